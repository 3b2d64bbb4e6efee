"""`muster bench wire --kafka PLACE` runs, with a second node in the broker's place; of speed it says nothing."""

import json
from pathlib import Path

import pytest

pytest.importorskip("psutil", reason="the broker's process is found by it: pip install 'muster-groups[workshop]'")

from muster.cli import workshop
from muster.cli.main import main
from muster.workshop.bench import kafka_peer, wire_costs, wire_page, wire_suite
from muster.workshop.bench.kafka_load import kafka_address
from muster.workshop.bench.processes import BenchFailed, run_node
from muster.workshop.bench.report import MarksMissing, write_tables


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (
        (wire_costs, "WARM_UP_S", 0.02),
        (wire_costs, "ROUND_S", 0.3),
        (wire_suite, "WARM_UP_S", 0.0),
        (wire_suite, "WARM_ROUNDS", 1),
        (wire_suite, "ROUNDS", 1),
        (wire_suite, "DELAY_MS", 0),
        (wire_suite, "CONNECTIONS", 2),
        (wire_suite, "MANY", 3),  # other groups than those of CONNECTIONS
        (wire_suite, "ASKED", 20),
        (wire_suite, "LEAVES", (2,)),
    ):
        monkeypatch.setattr(module, name, value)


@pytest.mark.integration
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("small")
def test_each_work_is_done_by_both_and_told_with_both_figures(tmp_path: Path) -> None:
    with run_node(str(tmp_path), wire_suite.SETTINGS) as other:
        rows = list(wire_suite.measure_beside_kafka(kafka_address(other), ""))
    assert [row.case.partition(": ")[2].partition(",")[0] for row in rows] == [
        *["heartbeats"] * 3,
        *["commits of ten"] * 2,
        *["one leaves"] * 2,
    ]
    assert all(row.value > 0 and row.peer_value > 0 and row.peer == "Kafka's broker" for row in rows)


@pytest.mark.integration
@pytest.mark.usefixtures("small")
def test_one_case_by_its_name(tmp_path: Path) -> None:
    with run_node(str(tmp_path), wire_suite.SETTINGS) as other:
        rows = list(wire_suite.measure_beside_kafka(kafka_address(other), "beside Kafka: one leaves, 2"))
    assert len(rows) == 2
    assert not list(wire_suite.measure_beside_kafka("nowhere", "no such case"))


def test_a_folder_without_a_broker_is_told_with_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(BenchFailed, match=r"no broker in .*expected a folder of Kafka 4 with libs/kafka_2.13"):
        kafka_peer.classpath(str(tmp_path))
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "kafka_2.13-4.1.1.jar").touch()
    assert kafka_peer.classpath(str(tmp_path)).endswith("kafka_2.13-4.1.1.jar")


def test_nobody_listens(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BenchFailed, match=r"no process that can be seen listens at 127\.0\.0\.1:1"):
        kafka_peer.listening_pid("127.0.0.1:1")
    with pytest.raises(BenchFailed, match="'kafka:broker' is no address"):
        kafka_peer.listening_pid("kafka:broker")
    assert main(["bench", "wire", "--only", "beside Kafka", "--kafka", "127.0.0.1:1"]) == 1
    assert "listens at 127.0.0.1:1" in capsys.readouterr().err


def test_not_every_suite_has_that_peer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "log", "--kafka", "127.0.0.1:9092"]) == 2
    assert "--kafka works only with the suites wire, cluster, engine, transactions and watch" in capsys.readouterr().err


def told(what: str, value: float, peer: float, ratio: float, goal: float = 2.0) -> str:
    row = {"case": f"beside Kafka: {what}", "value": value, "unit": "ms", "peer_value": peer, "ratio": ratio}
    return json.dumps({**row, "goal": goal})


def test_the_table_has_the_range_of_all_runs_and_says_what_was_missed() -> None:
    first = [told("one leaves, 10 members, wall", 4.0, 8.0, 2.0), told("heartbeats, 64 connections", 9.0, 9.0, 1.0)]
    second = [told("one leaves, 10 members, wall", 5.0, 9.0, 1.8), told("heartbeats, 64 connections", 9.0, 10.0, 1.11)]
    found = wire_page.read_cases([*first, json.dumps({"case": "commits"}), *second])
    assert wire_page.performance_tables(found).splitlines()[2:] == [
        "| work | a node | Kafka | ratio | goal |",
        "|---|---:|---:|---:|---:|",
        "| one leaves, 10 members, wall | 4 to 5 ms | 8 to 9 | 1.8 to 2 | 2, in 1 of 2 runs |",
        "| heartbeats, 64 connections | 9 ms | 9 to 10 | 1 to 1.11 | 2, missed |",
    ]
    assert "2 runs" in wire_page.readme_tables(found)
    assert "64" not in wire_page.readme_tables(found)
    with pytest.raises(ValueError, match="no case 'beside Kafka'"):
        wire_page.read_cases([json.dumps({"case": "commits"})])


def test_both_pages_have_a_place_for_the_table() -> None:
    for path in wire_page.PAGES:
        assert f"<!-- begin {wire_page.MARK} -->" in (Path(__file__).parents[2] / path).read_text()


def test_a_page_without_the_place_is_left_as_it_is(tmp_path: Path) -> None:
    there = tmp_path / "page.md"
    there.write_text("<!-- begin x -->\nold\n<!-- end x -->\n")
    with pytest.raises(MarksMissing, match="no place for 'y'"):
        write_tables(there, {"x": "new", "y": "new"})
    assert "old" in there.read_text()


def test_each_run_is_told_by_its_number(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(workshop.SUITES, "log", lambda only: iter([{"case": "c", "value": 1.0, "ok": True}]))
    assert main(["bench", "log", "--runs", "2", "--json"]) == 0
    assert [json.loads(line)["run"] for line in capsys.readouterr().out.splitlines()] == [1, 2]
    assert main(["bench", "log", "--json"]) == 0
    assert "run" not in json.loads(capsys.readouterr().out)
