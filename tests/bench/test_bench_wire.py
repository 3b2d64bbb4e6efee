"""`muster bench wire` runs, at a size that proves nothing about speed and everything about the reports."""

from pathlib import Path

import pytest

pytest.importorskip(
    "confluent_kafka", reason="the peer is librdkafka's mock cluster: pip install 'muster-groups[workshop]'"
)

from muster.cli.main import main
from muster.workshop.bench import kafka_load, wire_costs, wire_suite

pytestmark = pytest.mark.integration


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_costs, "CONNECTIONS", 2)
    monkeypatch.setattr(wire_costs, "COST_ROUNDS", 2)
    monkeypatch.setattr(wire_costs, "WARM_UP_S", 0.05)
    monkeypatch.setattr(wire_costs, "ROUND_S", 0.2)
    monkeypatch.setattr(wire_costs.heartbeats, "HEARTBEAT_MEMBERS", 2)
    monkeypatch.setattr(wire_costs.heartbeats, "HEARTBEAT_WARM_UP_S", 0.1)
    monkeypatch.setattr(wire_costs, "REJOIN_ROUNDS", 2)
    monkeypatch.setattr(wire_costs, "REJOINS", 6)
    monkeypatch.setattr(wire_costs, "LIMITS_MS", {3: 60_000.0})
    monkeypatch.setattr(wire_costs, "CALLS", 20)
    monkeypatch.setattr(wire_suite, "ASKED", 50)
    monkeypatch.setattr(wire_suite, "ECHO_ROUNDS", 2)
    monkeypatch.setattr(kafka_load, "ROUNDS", 1)
    monkeypatch.setattr(kafka_load, "PER_PARTITION", 500)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("case", list(wire_suite.CASES))
def test_every_case_is_measured(tmp_path: Path, case: str) -> None:
    rows = list(wire_suite.CASES[case](case, str(tmp_path)))
    assert rows
    for row in rows:
        assert row.bench == "wire"
        assert row.case.startswith(case)
        assert row.value > 0
        assert row.peer_value > 0


def test_an_unknown_case_is_not_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "wire", "--only", "no such case"]) == 3
    assert "no case of wire contains 'no such case'" in capsys.readouterr().err


def test_a_limit_is_read_for_the_machine_and_never_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wire_costs.measure_coding_us() > 0
    machine = wire_costs.MachinePace()
    for times in (3.0, 3.0, 8.0):
        monkeypatch.setattr(wire_costs, "measure_coding_us", lambda times=times: wire_costs.CODED_US * times)
        machine.measure_pace()
    slow = wire_costs.limit_row("commits", 90.0, "us", 45.0, machine)
    assert (slow.peer_value, slow.ratio, slow.ok) == (135.0, 1.5, True)
    monkeypatch.setattr(wire_costs, "measure_coding_us", lambda: wire_costs.CODED_US / 2)
    quick = wire_costs.MachinePace()
    quick.measure_pace()
    fast = wire_costs.limit_row("commits", 50.0, "us", 45.0, quick)
    assert (fast.peer_value, fast.ratio, fast.ok) == (45.0, 0.9, False)
