"""`muster transactions` against a real node, whose transactions a producer of Kafka's protocol has left as they are."""

import asyncio
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.runtime.shards import partition_for
from muster.storage.records.batch import encode_batch
from tests.integration.cli.test_cli_node import Done, Prompt
from tests.support.kafka.client import KafkaClient
from tests.support.node import NodeProcess, running_node

pytestmark = pytest.mark.integration

SETTINGS = {"kafka.listeners": "127.0.0.1:0", "transaction.state.log.num.partitions": "4"}
PATIENCE_S = 30.0
numbers = count()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(Path(tmp_path_factory.mktemp("transactions") / "data"), SETTINGS) as running:
        yield running


@pytest.fixture
def muster(node: NodeProcess) -> Prompt:
    return Prompt(node.address)


@pytest.fixture
def topic(muster: Prompt) -> str:
    name = f"topic-{next(numbers)}"
    assert muster("topics", "create", name, "--partitions", "2").code == 0
    return name


def begun(node: NodeProcess, name: str, topic: str, partition: int = 0) -> Producer:
    """A producer with one record in an open transaction."""
    producer = Producer({"bootstrap.servers": node.kafka_address, "transactional.id": name, "log_level": 0})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=partition)
    assert producer.flush(PATIENCE_S) == 0
    return producer


def test_ids_are_listed_by_state_age_and_name(muster: Prompt, node: NodeProcess, topic: str) -> None:
    first, second = f"{topic}-orders", f"{topic}-bills"
    done = begun(node, first, topic)
    done.commit_transaction(PATIENCE_S)
    begun(node, second, topic)
    every = muster("transactions", "list", "--transactional-id-pattern", f"{topic}-.*")
    head, *rows = [line.split() for line in every.out.splitlines()]
    assert head == ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
    assert [(row[0], row[1], row[3]) for row in rows] == [(second, "1", "Ongoing"), (first, "1", "CompleteCommit")]
    ongoing = muster.json("transactions", "list", "--state", "Ongoing")
    assert isinstance(ongoing, list)
    assert second in [row["transactional_id"] for row in ongoing]
    assert first not in [row["transactional_id"] for row in ongoing]
    assert muster.json("transactions", "list", "--duration-filter", "3600000") == []
    wrong = muster("transactions", "list", "--transactional-id-pattern", "(")
    assert (wrong.code, "RE2" in wrong.err) == (2, True)


def test_an_open_transaction_is_described_with_its_producer(muster: Prompt, node: NodeProcess, topic: str) -> None:
    begun(node, topic, topic, 1)
    shown = muster("transactions", "describe", "--transactional-id", topic)
    head, row = [line.split() for line in shown.out.splitlines()]
    assert " ".join(head) == (
        "CoordinatorId TransactionalId ProducerId ProducerEpoch TransactionState TransactionTimeoutMs "
        "CurrentTransactionStartTimeMs TransactionDurationMs TopicPartitions"
    )
    assert (row[1], row[4], row[5], row[8]) == (topic, "Ongoing", "60000", f"{topic}-1")
    told = muster.json("transactions", "describe", "--transactional-id", topic)
    assert isinstance(told, list)
    assert told[0]["partitions"] == [f"{topic}-1"]
    assert "rdkafka" in told[0]["client_software"]
    assert told[0]["client_address"].startswith("127.0.0.1")
    assert told[0]["duration_ms"] >= 0


def test_what_is_not_there_is_none(muster: Prompt, node: NodeProcess, topic: str) -> None:
    done = begun(node, topic, topic)
    done.abort_transaction(PATIENCE_S)
    row = muster("transactions", "describe", "--transactional-id", topic).out.splitlines()[1].split()
    assert (row[4], row[6], row[7]) == ("CompleteAbort", "None", "None")
    missing = muster("transactions", "describe", "--transactional-id", "nobody")
    assert (missing.code, missing.out) == (3, "")
    assert "'nobody'" in missing.err


@pytest.mark.parametrize(
    "words",
    [("force-terminate", "--transactional-id"), ("forceTerminateTransaction", "--transactionalId")],
)
def test_a_terminated_producer_is_fenced_and_nothing_stays_open(
    muster: Prompt, node: NodeProcess, topic: str, words: tuple[str, str]
) -> None:
    name = f"{topic}-{words[0]}"
    producer = begun(node, name, topic)
    done = muster("transactions", *words, name)
    assert done == Done(0, "", f"{name}: what was open is aborted, and its producer is fenced\n")
    told = muster.json("transactions", "describe", "--transactional-id", name)
    assert isinstance(told, list)
    assert (told[0]["partitions"], told[0]["start_time_ms"]) == ([], None)
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(PATIENCE_S)
    assert refused.value.args[0].fatal()
    again = begun(node, name, topic)
    again.commit_transaction(PATIENCE_S)
    assert muster("transactions", *words, "nobody").code == 3


# Transactions that hang
# ----------------------


@pytest.fixture(scope="module")
def unverified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node that takes records of transactions which no coordinator knows. It has looked for such ones already, as it
    does with each load of its transactional ids."""
    settings = SETTINGS | {"transaction.partition.verification.enable": "false"}
    with running_node(Path(tmp_path_factory.mktemp("hanging") / "data"), settings) as running:
        assert Prompt(running.address)("topics", "create", "first").code == 0
        begun(running, "first", "first").commit_transaction(PATIENCE_S)
        yield running


@pytest.fixture
def hanging(unverified: NodeProcess) -> tuple[Prompt, str, int]:
    """A topic whose first partition has a transaction open that nobody will end, and its producer."""
    muster, name, producer_id = Prompt(unverified.address), f"topic-{next(numbers)}", 4_000 + next(numbers)
    assert muster("topics", "create", name, "--partitions", "2").code == 0
    asyncio.run(send_unknown(unverified, name, producer_id))
    return muster, name, producer_id


async def send_unknown(node: NodeProcess, topic: str, producer_id: int, epoch: int = 3) -> None:
    """Records in a transaction of a producer that its coordinator does not know."""
    now_ms = time.time_ns() // 1_000_000
    records = encode_batch(
        [(now_ms, None, b"lost", ())] * 2,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=True,
    )
    data = struct("ProduceRequest.topic_data.partition_data")(index=0, records=records)
    told = struct("ProduceRequest.topic_data")(name=topic, partition_data=[data])
    host, _, port = node.kafka_address.rpartition(":")
    async with KafkaClient(host, int(port)) as client:
        answer = await client.ask(
            "Produce", 9, transactional_id="nobody", acks=-1, timeout_ms=30_000, topic_data=[told]
        )
    assert answer.responses[0].partition_responses[0].error_code == 0


def test_the_producers_of_a_partition_are_shown(hanging: tuple[Prompt, str, int]) -> None:
    muster, topic, producer_id = hanging
    shown = muster("transactions", "describe-producers", "--topic", topic, "--partition", "0")
    head, row = [line.split() for line in shown.out.splitlines()]
    assert " ".join(head) == (
        "ProducerId ProducerEpoch LatestCoordinatorEpoch LastSequence LastTimestamp CurrentTransactionStartOffset"
    )
    assert (row[:4], row[5]) == ([str(producer_id), "3", "-1", "1"], "0")
    none = muster("transactions", "describe-producers", "--topic", topic, "--partition", "1", "-o", "json")
    assert (none.code, none.out) == (0, "[]\n")
    assert muster("transactions", "describe-producers", "--topic", topic, "--partition", "7").code == 3


def test_what_hangs_is_found_everywhere_and_aborted(hanging: tuple[Prompt, str, int], unverified: NodeProcess) -> None:
    muster, topic, producer_id = hanging
    begun(unverified, f"{topic}-alive", topic, 1)

    def found(*words: str) -> list[tuple[str, int, int]]:
        rows = muster.json("transactions", "find-hanging", "--max-transaction-timeout", "0", *words)
        assert isinstance(rows, list)
        return [(row["topic"], row["partition"], row["producer_id"]) for row in rows if row["topic"] == topic]

    assert found() == [(topic, 0, producer_id)]
    assert found("--topic", topic) == [(topic, 0, producer_id)]
    assert found("--topic", topic, "--partition", "1") == []
    assert found("--broker-id", "1") == [(topic, 0, producer_id)]
    assert muster("transactions", "find-hanging", "--broker-id", "9").code == 3
    assert muster("transactions", "find-hanging", "--topic", "nowhere").code == 3
    assert muster("transactions", "find-hanging", "--partition", "1").code == 2
    assert muster.json("transactions", "find-hanging") == [], "not for 15 minutes"
    shown = muster("transactions", "find-hanging", "--topic", topic, "--max-transaction-timeout", "0").out
    assert " ".join(shown.splitlines()[0].split()) == (
        "Topic Partition ProducerId ProducerEpoch CoordinatorEpoch StartOffset LastTimestamp Duration(min)"
    )

    where = ("transactions", "abort", "--topic", topic, "--partition", "0")
    assert muster(*where).code == 2
    assert muster(*where, "--start-offset", "1").code == 3
    done = muster(*where, "--start-offset", "0")
    assert done == Done(0, "", f"aborted what producer {producer_id} of epoch 3 had open in {topic}-0\n")
    assert found() == []


def test_an_abort_of_a_named_producer_needs_all_three_figures(hanging: tuple[Prompt, str, int]) -> None:
    muster, topic, producer_id = hanging
    where = ("transactions", "abort", "--topic", topic, "--partition", "0", "--producer-id", str(producer_id))
    assert muster(*where, "--producer-epoch", "3").code == 2
    assert muster(*where, "--producer-epoch", "2", "--coordinator-epoch", "0").code == 1
    ahead = muster(*where, "--producer-epoch", "3", "--coordinator-epoch", "1")
    assert (ahead.code, "coordinator" in ahead.err) == (2, True)
    assert muster(*where, "--producer-epoch", "3", "--coordinator-epoch", "0").code == 0


def test_what_its_coordinator_will_end_is_left_alone(muster: Prompt, node: NodeProcess, topic: str) -> None:
    producer = begun(node, topic, topic)
    where = ("transactions", "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    refused = muster(*where)
    assert refused.code == 5
    for word in (f"'{topic}'", "open for", "127.0.0.1", f"force-terminate --transactional-id {topic}", "--anyway"):
        assert word in refused.err
    assert muster(*where, "--anyway").code == 0
    producer.commit_transaction(PATIENCE_S)


def test_ids_of_a_damaged_log_are_said_to_be_missing_beside_the_others(tmp_path: Path) -> None:
    names = [f"app-{number}" for number in range(6)]
    hit = partition_for(names[0], 4)
    left = sorted(name for name in names if partition_for(name, 4) != hit)
    with running_node(tmp_path / "data", SETTINGS) as node:
        for name in names:
            settings = {"bootstrap.servers": node.kafka_address, "transactional.id": name, "log_level": 0}
            Producer(settings).init_transactions(PATIENCE_S)
    (log,) = (tmp_path / "data" / f"__transaction_state-{hit}").glob("*.log")
    content = log.read_bytes()
    log.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with running_node(tmp_path / "data", SETTINGS) as node:
        told = Prompt(node.address)("transactions", "list")
    assert left, "some are in other logs"
    assert [line.split()[0] for line in told.out.splitlines()[1:]] == left
    assert told.code == 4
    assert f"missing in this list: those of __transaction_state-{hit}" in told.err
    assert f"the transactional ids of shard {hit} are not served" in told.err
