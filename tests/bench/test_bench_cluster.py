"""What `muster bench cluster` measures and tells, without nodes of its own."""

import json
import signal
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from muster.cli.main import main
from muster.workshop.bench import cluster_suite
from muster.workshop.bench import cluster_suite as takeover
from muster.workshop.bench.cluster_suite import FailureKind, ServiceGap
from muster.workshop.bench.processes import BenchFailed


def test_a_warm_takeover_is_measured_beside_a_cold_one(tmp_path: Path) -> None:
    row = takeover.measure_shard_takeover(str(tmp_path / "shard"), records=3_000)
    assert row.case == takeover.TAKEOVER_CASE
    assert row.value > 0
    assert row.peer_value is not None
    assert row.goal == 20.0


@pytest.fixture
def no_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed nodes are measured, and the first that is frozen is never answered for."""

    @contextmanager
    def nodes(home: str) -> Iterator[None]:
        yield

    async def rounds(trio: object, count: int, how: FailureKind, whats: Collection[str]) -> dict[str, ServiceGap]:
        if how is FailureKind.FROZEN:
            raise TimeoutError
        return dict.fromkeys(whats, ServiceGap(0.5, 0.6))

    monkeypatch.setattr(cluster_suite, "run_three_nodes", nodes)
    monkeypatch.setattr(cluster_suite, "measure_gaps", rounds)


@pytest.mark.usefixtures("no_nodes")
def test_a_row_is_told_before_the_next_case_begins_and_a_failure_names_its_case() -> None:
    rows = cluster_suite.run()
    assert [next(rows).case, next(rows).case] == [
        case for case, _, how, *_ in cluster_suite.FAILOVERS if how is FailureKind.KILLED
    ]
    with pytest.raises(BenchFailed, match=r"^P1 frozen: to the first heartbeat, .*produce: TimeoutError$"):
        next(rows)


@pytest.mark.usefixtures("no_nodes")
def test_what_was_measured_before_the_brokers_failed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def brokers(home: str, place: str) -> Iterator[None]:
        raise BenchFailed(f"no broker in {place!r}")
        yield

    monkeypatch.setattr(cluster_suite, "run_three_brokers", brokers)
    rows = cluster_suite.run("P1 killed", "/nowhere")
    assert [(row.value, row.peer) for row in (next(rows), next(rows))] == [(0.5, cluster_suite.TOLD)] * 2
    with pytest.raises(BenchFailed, match=r"produce: three brokers of Kafka 4.1.1: no broker in '/nowhere'$"):
        next(rows)


@pytest.mark.usefixtures("no_nodes")
def test_what_was_measured_is_shown_though_a_later_case_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "cluster", "--json"]) == 1
    out, err = capsys.readouterr()
    assert [json.loads(line)["value"] for line in out.splitlines()] == [0.5, 0.5]
    assert err.startswith("error: P1 frozen")
    assert main(["bench", "cluster"]) == 1
    out, err = capsys.readouterr()
    assert out.count("P1 killed") == 2
    assert err.startswith("error: P1 frozen")


@pytest.mark.usefixtures("no_nodes")
def test_a_benchmark_that_is_told_to_end_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def rounds(*arguments: object) -> dict[str, ServiceGap]:
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("it went on")

    monkeypatch.setattr(cluster_suite, "measure_gaps", rounds)
    assert main(["bench", "cluster", "--json"]) == 130
    assert capsys.readouterr().err.startswith("error: interrupted before all was measured")
    assert signal.getsignal(signal.SIGTERM) is before
