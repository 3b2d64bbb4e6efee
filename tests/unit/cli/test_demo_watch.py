"""What `muster demo --watch` proves, and what it shows where no Kafka can be started."""

import gzip
import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from muster.cli.demo.watch_demo import KILLED, RECORDED, SLOW, WatchDemo, compare_with_truth, show_watch_proof
from muster.cli.main import main
from muster.coordinator.java_runtime import JavaNotFound


def rebalance(culprit: str, cause: str, certainty: str = "inferred") -> dict[str, Any]:
    return {"culprit_client_id": culprit, "cause": cause, "certainty": certainty}


TRUE = [rebalance(SLOW, "POLL_TIMEOUT"), rebalance(SLOW, "MEMBER_RESTARTED"), rebalance(KILLED, "SESSION_EXPIRED")]


def shown(rebalances: list[dict[str, Any]]) -> str:
    out = io.StringIO()
    show_watch_proof(Console(file=out, width=100), compare_with_truth(rebalances))
    return out.getvalue()


def test_what_was_done_stands_beside_what_was_told() -> None:
    told = shown(TRUE)
    assert "SIGKILL" in told
    assert "session expired" in told
    assert "poll timeout" in told
    assert "NOT ALL" not in told


@pytest.mark.parametrize(
    "wrong",
    [[], TRUE[:2], TRUE[1:], [rebalance(KILLED, "MEMBER_LEFT"), *TRUE[:2]], [rebalance("worker-1", "SESSION_EXPIRED")]],
)
def test_one_cause_that_is_told_otherwise_is_enough(wrong: list[dict[str, Any]]) -> None:
    assert not all(each.right for each in compare_with_truth(wrong))
    assert "NOT ALL OF IT WAS TOLD AS IT WAS" in shown(wrong)


def test_the_recording_is_small() -> None:
    """Every installed Muster has it."""
    assert RECORDED.stat().st_size < 16_000
    assert len(gzip.decompress(RECORDED.read_bytes())) < 500_000


def test_without_java_the_same_is_told_of_a_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def no_java(*_: object, **__: object) -> None:
        raise JavaNotFound("there is no java")

    monkeypatch.setattr("muster.cli.demo.watch_demo.running_broker", no_java)
    assert WatchDemo(tmp_path).run()
    told = capfd.readouterr().out
    assert "No Kafka can be started here: there is no java" in told
    assert "this is a recording" in told
    assert "worker-2 stopped answering" in told
    assert "worker-3" in told


def test_it_has_a_story_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--watch", "--workers", "2"]) == 2
    assert "--watch has a story of its own" in capsys.readouterr().err
