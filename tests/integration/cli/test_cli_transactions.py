"""`muster transactions` against a real node, whose transactions a producer of Kafka's protocol has left as they are."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from tests.integration.cli.test_cli_node import Done, Prompt
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
