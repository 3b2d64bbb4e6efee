"""Processes of the demo: announced, watched, stopped in order."""

import os
from pathlib import Path

import pytest

from muster.cli.common.commands import CommandError
from muster.cli.demo.processes import DemoProcesses


def test_a_node_that_cannot_start_is_reported_with_its_own_words(tmp_path: Path) -> None:
    with (
        DemoProcesses(tmp_path) as children,
        pytest.raises(CommandError, match=r"did not start.*not a setting of this node"),
    ):
        children.start_node(["--set", "no.such.setting=1"])


def test_a_child_that_ends_by_itself_is_reported_with_its_last_words(tmp_path: Path) -> None:
    with DemoProcesses(tmp_path) as children:
        children.start("worker-1", ["no-such-command"]).wait(60)
        with pytest.raises(CommandError, match=r"worker-1 ended unexpectedly with exit code 2.*no-such-command"):
            children.must_be_alive()


def test_nobody_is_left_when_the_block_ends_in_an_error(tmp_path: Path) -> None:
    started = []

    def fail() -> None:
        with DemoProcesses(tmp_path) as children:
            # It waits for its standard input, as a child that works would wait for work.
            started.append(children.start("filter", ["assign", "--assignor", "range"]))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert started[0].returncode is not None
    with pytest.raises(ProcessLookupError):
        os.kill(started[0].pid, 0)
