"""`muster bench wire --kafka PLACE` runs, with a second node in the broker's place; of speed it says nothing."""

from pathlib import Path

import pytest

pytest.importorskip("psutil", reason="the broker's process is found by it: pip install 'muster-groups[bench]'")

from muster.coordinator.bench.kafka import place
from muster.coordinator.bench.processes import BenchFailed, node
from muster.coordinator.bench.wire import costs
from muster.coordinator.bench.wire.beside import suite, work
from muster.coordinator.bench.wire.records import kafka_address
from muster.coordinator.cli.main import main


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (
        (costs, "WARM_UP_S", 0.02),
        (costs, "ROUND_S", 0.3),
        (suite, "WARM_UP_S", 0.0),
        (suite, "WARM_ROUNDS", 1),
        (suite, "ROUNDS", 1),
        (suite, "DELAY_MS", 0),
        (work, "CONNECTIONS", 2),
        (work, "MANY", 2),
        (work, "ASKED", 20),
        (work, "LEAVES", (2,)),
    ):
        monkeypatch.setattr(module, name, value)


@pytest.mark.integration
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("small")
def test_each_work_is_done_by_both_and_told_with_both_figures(tmp_path: Path) -> None:
    with node(str(tmp_path), suite.SETTINGS) as other:
        rows = list(suite.cases(kafka_address(other), ""))
    assert [row.case.partition(": ")[2].partition(",")[0] for row in rows] == [
        *["heartbeats"] * 3,
        *["commits of ten"] * 2,
        *["one leaves"] * 2,
    ]
    assert all(row.value > 0 and row.peer_value > 0 and row.peer == "Kafka's broker" for row in rows)


@pytest.mark.integration
@pytest.mark.usefixtures("small")
def test_one_case_by_its_name(tmp_path: Path) -> None:
    with node(str(tmp_path), suite.SETTINGS) as other:
        rows = list(suite.cases(kafka_address(other), "beside Kafka: one leaves, 2"))
    assert len(rows) == 2
    assert not list(suite.cases("nowhere", "no such case"))


def test_a_folder_without_a_broker_is_told_with_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(BenchFailed, match=r"no broker in .*expected a folder of Kafka 4 with libs/kafka_2.13"):
        place.classpath(str(tmp_path))
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "kafka_2.13-4.1.1.jar").touch()
    assert place.classpath(str(tmp_path)).endswith("kafka_2.13-4.1.1.jar")


def test_nobody_listens(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BenchFailed, match=r"no process that can be seen listens at 127\.0\.0\.1:1"):
        place.listening_pid("127.0.0.1:1")
    with pytest.raises(BenchFailed, match="'kafka:broker' is no address"):
        place.listening_pid("kafka:broker")
    assert main(["bench", "wire", "--only", "beside Kafka", "--kafka", "127.0.0.1:1"]) == 1
    assert "listens at 127.0.0.1:1" in capsys.readouterr().err


def test_only_the_wire_has_that_peer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "log", "--kafka", "127.0.0.1:9092"]) == 2
    assert "--kafka goes with the suite wire" in capsys.readouterr().err
