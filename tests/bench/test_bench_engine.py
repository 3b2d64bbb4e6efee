"""The benchmark of nodes over somebody's Kafka, as far as it goes without one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from muster.cli.main import main
from muster.coordinator.runtime.shards import partition_for
from muster.storage.records.batch import decode_records, encode_turn
from muster.workshop.bench import kafka_backend_load, kafka_backend_suite
from muster.workshop.bench.cluster_suite import FailureKind, ServiceGap
from muster.workshop.bench.kafka_backend_load import group_per_shard
from muster.workshop.bench.kafka_backend_suite import encode_commit
from muster.workshop.bench.kafka_peer import KafkaBroker


def test_each_shard_has_a_group() -> None:
    assert [partition_for(group, 50) for group in group_per_shard(50)] == list(range(50))


def test_a_bare_batch_has_what_a_commit_keeps() -> None:
    [record] = decode_records(encode_commit(7))
    assert (b"bench-0" in record.key, len(encode_commit(7))) == (True, len(encode_commit(8)))


def test_the_shard_that_is_taken_has_as_many_positions_as_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_backend_suite, "KEYS", 20)
    turn = kafka_backend_suite.encode(map(kafka_backend_suite.stored_record, range(40))).groups
    assert len(list(decode_records(encode_turn(turn, 0)))) == 40
    assert kafka_backend_suite.measure_own_log(str(tmp_path), [turn]) > 0
    monkeypatch.setattr(kafka_backend_suite, "KEYS", 30)
    with pytest.raises(AssertionError, match="30 were written"):
        kafka_backend_suite.measure_own_log(str(tmp_path / "other"), [turn])


def test_rounds_of_transactions_alternate_and_go_on_with_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, int]] = []

    @contextmanager
    def proxy(broker: KafkaBroker, home: Path) -> Iterator[kafka_backend_load.ProxyNode]:
        yield kafka_backend_load.ProxyNode(1, "node:1")

    monkeypatch.setattr(kafka_backend_load, "run_proxy", proxy)
    monkeypatch.setattr(kafka_backend_load, "fill_broker", lambda *given: None)
    monkeypatch.setattr(
        kafka_backend_load, "make_transact", lambda address: lambda position: done.append((address, position))
    )
    monkeypatch.setattr(kafka_backend_load, "EACH", 2)
    [row] = kafka_backend_load.measure_transactions(KafkaBroker(None, "kafka:1"), "")  # type: ignore[arg-type]
    ours = [position for address, position in done if address == "node:1"]
    assert (
        ours
        == list(range(2 * (kafka_backend_load.TRANSACTION_ROUNDS + 1)))
        == [at for address, at in done if address == "kafka:1"]
    )
    assert [address for address, _ in done[:8:2]] == ["kafka:1", "node:1", "node:1", "kafka:1"]
    assert (row.bench, row.goal, row.unit) == ("engine", 0.33, "transactions/s")


def test_a_case_that_there_is_not_starts_no_broker() -> None:
    assert list(kafka_backend_suite.run("no such case")) == []


def test_a_folder_that_has_no_broker_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "engine", "--kafka", str(tmp_path)]) == 1
    assert "no broker in" in capsys.readouterr().err


def test_without_brokers_of_its_own_kafka_has_the_figures_of_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ours = {FailureKind.KILLED: ServiceGap(6.0, 6.0), FailureKind.STOPPED: ServiceGap(0.5, 2.0)}
    monkeypatch.setattr(kafka_backend_suite, "run_nodes_over", lambda broker, home: ours)
    killed, stopped = kafka_backend_suite.measure_failover(KafkaBroker(None, ""), str(tmp_path), "")  # type: ignore[arg-type]
    assert (killed.value, killed.peer_value, killed.ok) == (6.0, 10.3, True)
    assert (stopped.value, stopped.peer_value, stopped.ok, stopped.bench) == (2.0, 0.86, False, "engine")
