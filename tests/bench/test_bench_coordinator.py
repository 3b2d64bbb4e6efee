"""The benchmarks run, at a size that proves nothing about speed and everything about the reports."""

import json
import os
from pathlib import Path

import pytest

from muster.cli import workshop
from muster.cli.main import main
from muster.workshop.bench import coordinator_suite, groups, grpc_members, heartbeats, interference, web_costs
from muster.workshop.bench import interference as stall
from muster.workshop.bench.crowds import QUESTIONS
from muster.workshop.bench.processes import CORES, LOAD_CORE, SERVER_CORE, BenchFailed, pinned, run_server
from muster.workshop.bench.report import less_is_better


def test_twice_the_cost_of_the_peer_is_half_as_good() -> None:
    row = less_is_better("c", 10.0, "s", "peer", 5.0, 0.6)
    assert (row.ratio, row.ok) == (0.5, False)
    assert less_is_better("c", 10.0, "s", "peer", 5.0, 0.5).ok


def test_loading_is_reported_against_a_plain_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interference, "RECORDS", 1_000)
    monkeypatch.setattr(interference, "KEYS", 500)
    (row,) = interference.measure_loading("loading", str(tmp_path / "data"))
    assert row.value > 0
    assert row.ratio == pytest.approx(row.peer_value / row.value, rel=0.1)


def test_pages_are_reported_by_time_size_and_stretch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MEMBERS", 7), ("PARTITIONS", 70), ("GROUPS", 5), ("TIMES", 1)):
        monkeypatch.setattr(web_costs, name, value)
    rows = list(web_costs.measure_pages("pages", str(tmp_path)))
    assert [row.unit for row in rows] == ["ms cpu", "KB", "ms of loop"] * 2
    assert all(row.value > 0 for row in rows)


def test_an_unknown_case_is_not_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "coordinator", "--only", "no such case"]) == 3
    assert "no case of coordinator contains 'no such case'" in capsys.readouterr().err


def test_a_server_that_does_not_start_is_named() -> None:
    with pytest.raises(BenchFailed, match="import sys"), run_server(["-c", "import sys"]):
        raise AssertionError("nothing answers here")


@pytest.mark.skipif(len(CORES) < 2, reason="two cores are needed to keep two processes apart")
def test_a_server_that_is_started_by_a_load_on_its_core_is_on_another() -> None:
    """It inherits the load's core: they shared one, and the other was idle."""
    sleeper = "import json, sys; print(json.dumps({'host': 'h', 'port': 1}), flush=True); sys.stdin.read()"
    with pinned(LOAD_CORE), run_server(["-c", sleeper]) as other:
        assert (os.sched_getaffinity(0), os.sched_getaffinity(other.pid)) == ({LOAD_CORE}, {SERVER_CORE})
    assert os.sched_getaffinity(0) == CORES


def test_what_is_never_reached_is_null_in_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = less_is_better("c", 0.0, "s", "peer", 5.0, 0.6)._asdict()
    monkeypatch.setitem(workshop.SUITES, "coordinator", lambda only: iter([row]))
    assert main(["bench", "coordinator", "--json"]) == 0
    told = json.loads(capsys.readouterr().out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert (told["ratio"], told["value"]) == (None, 0.0)


def test_a_failed_benchmark_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(name: str, home: str) -> None:
        raise BenchFailed("the peer is not there")

    monkeypatch.setattr(coordinator_suite, "CASES", {"c": fail})
    assert main(["bench", "coordinator"]) == 1
    assert capsys.readouterr().err.strip() == "error: the peer is not there"


@pytest.mark.integration
def test_heartbeats_are_measured_against_the_echo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "HEARTBEAT_MEMBERS", 4)
    monkeypatch.setattr(heartbeats, "HEARTBEAT_ROUNDS", 1)
    monkeypatch.setattr(heartbeats, "HEARTBEAT_WARM_UP_S", 0.1)
    monkeypatch.setattr(heartbeats, "HEARTBEAT_ROUND_S", 0.3)
    (row,) = heartbeats.measure_heartbeats("heartbeats", str(tmp_path / "data"))
    assert row.unit == "us CPU/RPC"
    assert row.value > 0
    assert row.peer_value > 0


@pytest.mark.integration
def test_a_node_that_counts_is_measured_against_one_that_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, small in (
        ("COMPARED_MEMBERS", 3),
        ("COMPARED_ROUNDS", 1),
        ("COMPARED_WARM_UP_S", 0.1),
        ("COMPARED_ROUND_S", 0.2),
    ):
        monkeypatch.setattr(heartbeats, name, small)
    monkeypatch.setattr(heartbeats, "HEARTBEAT_MEMBERS", 3)
    rows = list(heartbeats.measure_metrics_cost("metrics", str(tmp_path)))
    assert [row.case.rpartition(" by ")[2] for row in rows] == ["gRPC", "Kafka's door"]
    assert all(row.value > 0 and row.peer_value > 0 for row in rows)


@pytest.mark.integration
def test_a_scrape_is_measured_by_its_series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, small in (("SCRAPED_GROUPS", 10), ("SCRAPED_PARTITIONS", 10), ("SCRAPE_TIMES", 2)):
        monkeypatch.setattr(web_costs, name, small)
    rows = list(web_costs.measure_scrape("scrape", str(tmp_path)))
    assert [row.unit for row in rows] == ["us CPU/series", "us CPU/series", "ms CPU"] * 2
    assert all(row.value > 0 for row in rows)


@pytest.mark.integration
def test_open_pages_are_measured_beside_a_node_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, small in (("PAGES", 4), ("FOLLOWING_ROUNDS", 1), ("ROUND_S", 0.1), ("SETTLED_S", 0.0)):
        monkeypatch.setattr(web_costs, name, small)
    (row,) = web_costs.measure_open_pages("following", str(tmp_path / "data"))
    assert row.case.startswith("following: 4 open pages")
    assert row.ok is (row.value <= row.peer_value)


@pytest.mark.integration
def test_pushed_and_polled_members_take_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "SIZES", (2,))
    monkeypatch.setattr(groups, "HANDOVER_ROUNDS", 1)
    found = list(groups.measure_handover("owned", str(tmp_path / "data")))
    assert [row.case for row in found] == [
        "owned: one joins, 2 members, pushed",
        "owned: one leaves, 2 members, pushed",
    ]


@pytest.mark.integration
def test_a_warm_handover_is_measured_beside_a_cold_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "TAKEOVER_ROUNDS", 1)
    (row,) = groups.measure_warm_takeover("handover", str(tmp_path / "data"))
    assert row.case == "handover: work on a partition goes on elsewhere, 2 s to load, warm"
    # Two seconds of sleep are two seconds however busy the machine is; what is left is the machine's.
    assert row.peer_value >= 2_000
    assert row.value < row.peer_value


@pytest.mark.integration
def test_messages_of_a_group_grow_with_its_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "SMALL", 5)
    monkeypatch.setattr(groups, "LARGE", 25)
    monkeypatch.setattr(groups, "SHORTEST_SESSION_MS", 500)
    monkeypatch.setattr(
        groups, "LARGE_GROUP_SETTINGS", groups.LARGE_GROUP_SETTINGS | {"group.min.session.timeout.ms": "500"}
    )
    monkeypatch.setattr(grpc_members, "HEARTBEAT_S", 0.1)
    messages, size, *times = groups.measure_large_group("one group", str(tmp_path / "data"))
    assert messages.ok
    assert messages.value < 11
    assert size.unit == "bytes/member"
    assert len(times) == 2


@pytest.mark.integration
def test_others_are_listened_to_while_a_stranger_asks_for_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, small in (
        ("STALL_PARTITIONS", 100),
        ("OFFSETS", 700),
        ("EXPIRING_GROUPS", 3),
        ("STALL_MEMBERS", 3),
        ("LISTED_GROUPS", 600),
        ("DESCRIBED_GROUPS", 600),
        ("ASKING", 3),
        ("CONSUMERS", 3),
        ("PRODUCERS", 20),
        ("QUOTAS", 20),
        ("USERS", 20),
        ("ACLS", 600),
        ("READS", 3),
        ("LARGE_BATCHES", 2),
        ("SEGMENTS", 2),
        ("TOPICS", 3),
        ("IDLE_S", 0.1),
        ("UPKEEP_S", 0.1),
        ("FIRST_EXPIRY_MS", 1_000),
        ("SMALL_SEGMENTS", 5),
    ):
        monkeypatch.setattr(stall, name, small)
    rows = list(stall.measure_stalls("stall", str(tmp_path / "data")))
    assert len({row.case for row in rows}) == 18 + len(QUESTIONS)
    assert all(row.value > 0 and row.peer_value > 0 for row in rows)
    for question in QUESTIONS:
        units = [row.unit for row in rows if f"({question})" in row.case]
        assert units == ["ms p50", "ms p99", "ms at most"], question


@pytest.mark.integration
def test_a_start_is_measured_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interference, "STARTUP_PARTITIONS", 20)
    monkeypatch.setattr(interference, "GROUPS", 20)
    rows = list(interference.measure_startup("startup", str(tmp_path / "data")))
    assert [row.unit for row in rows] == ["s", "s CPU"]


def test_what_others_hear_beside_refused_requests_is_told_for_both_doors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, small in (("IDLE_S", 0.1), ("ENTRIES", 150_000), ("ABUSE_TIMES", 1), ("FLOOD", 50), ("FLOODS", 1)):
        monkeypatch.setattr(interference, name, small)
    rows = list(interference.measure_abuse("abuse", str(tmp_path / "data")))
    assert len(rows) == 6
    assert [row.case.rpartition(" by ")[2] for row in rows] == ["Kafka's door", "gRPC"] * 3
    assert all(row.value > 0 for row in rows)
