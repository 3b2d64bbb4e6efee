"""`muster bench` and `muster lab` in an install without the extra `workshop`."""

import importlib.util
import re
import sys
import tomllib
from pathlib import Path

import pytest

from muster.cli.common.commands import Exit
from muster.cli.main import main
from muster.cli.workshop import WORKSHOP_MODULES

COMMANDS = ["bench log", "bench spark", "bench wire", "lab compare", "lab join", "lab scaler"]
MODULES_OF = {"aiokafka": "aiokafka", "confluent-kafka": "confluent_kafka", "kafka-python": "kafka"}


@pytest.mark.parametrize("command", COMMANDS)
def test_without_the_extra_one_sentence_says_what_is_missing_and_which_command_installs_it(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert main(command.split()) == Exit.FAILURE
    out, complaint = capsys.readouterr()
    assert (out, complaint.splitlines()) == (
        "",
        ["error: psutil is not installed; pip install 'muster-groups[workshop]'"],
    )


def test_all_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("matplotlib", "kafka"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["lab", "compare"]) == Exit.FAILURE
    assert "kafka, matplotlib are not installed; pip install" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_help_needs_no_extra(command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert main([*command.split(), "--help"]) == Exit.OK
    assert "Usage:" in capsys.readouterr().out


def test_the_extra_brings_every_module_that_is_looked_for() -> None:
    extras = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    brought, unread = set[str](), ["workshop"]
    while unread:
        for requirement in extras[unread.pop()]:
            if inner := re.match(r"muster-groups\[(.*)\]", requirement):
                unread += inner[1].split(",")
            elif name := re.match(r"[\w.-]+", requirement):
                brought.add(MODULES_OF.get(name[0], name[0]))
    assert set(WORKSHOP_MODULES) <= brought
    assert all(importlib.util.find_spec(name) for name in WORKSHOP_MODULES)
