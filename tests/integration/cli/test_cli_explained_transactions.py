"""`muster transactions explain` tells of each end what has really happened, done by a client that nobody here wrote."""

import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from muster.coordinator.observability.views.transactions import FENCED, OPERATOR, PRODUCER, TIMED_OUT, UNKNOWN
from tests.integration.cli.test_cli_node import Prompt
from tests.support.node import NodeProcess, running_node
from tests.support.pace import Patience

pytestmark = pytest.mark.integration

SETTINGS = {"kafka.listeners": "127.0.0.1:0", "transaction.state.log.num.partitions": "4"}
PATIENCE_S = 30.0
FROZEN_S = 3.0
numbers = count()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(Path(tmp_path_factory.mktemp("explained") / "data"), SETTINGS) as running:
        yield running


@pytest.fixture
def topic(node: NodeProcess) -> str:
    return new_topic(node)


def new_topic(node: NodeProcess) -> str:
    name = f"topic-{next(numbers)}"
    assert Prompt(node.address)("topics", "create", name, "--partitions", "2").code == 0
    return name


def producer_of(node: NodeProcess, name: str, **more: object) -> Producer:
    settings = {"bootstrap.servers": node.kafka_address, "transactional.id": name, "client.id": name, "log_level": 0}
    producer = Producer(settings | more)
    producer.init_transactions(PATIENCE_S)
    return producer


def begin(producer: Producer, topic: str, records: int = 3) -> None:
    producer.begin_transaction()
    for _ in range(records):
        producer.produce(topic, b"x", partition=0)
    assert producer.flush(PATIENCE_S) == 0


def explained(node: NodeProcess, name: str, ends: int) -> tuple[list[dict[str, Any]], list[str]]:
    """The ends, newest first, and the sentences, once there are so many ends and nothing is open."""
    patience = Patience(PATIENCE_S)
    while True:
        told: Any = Prompt(node.address).json("transactions", "explain", name)
        if len(told["ended"]) >= ends and told["current"] is None:
            assert len(told["ended"]) == ends
            return told["ended"], told["sentences"]
        assert patience.lasts(), f"{name}: {told}"


def test_a_commit_and_an_abort(node: NodeProcess, topic: str) -> None:
    producer = producer_of(node, topic)
    begin(producer, topic)
    producer.commit_transaction(PATIENCE_S)
    begin(producer, topic, 2)
    producer.abort_transaction(PATIENCE_S)
    (aborted, committed), sentences = explained(node, topic, 2)
    assert (committed["result"], committed["cause"], committed["partition_count"]) == ("committed", PRODUCER, 1)
    assert (aborted["result"], aborted["cause"]) == ("aborted", PRODUCER)
    assert [(hold["topic"], hold["partition"], hold["offset"], hold["records"]) for hold in committed["holds"]] == [
        (topic, 0, 0, 3)
    ]
    assert [(hold["offset"], hold["records"]) for hold in aborted["holds"]] == [(4, 2)]
    assert committed["client_address"] == "127.0.0.1"
    assert f"committed by its producer (client '{topic}' at 127.0.0.1, confluent-kafka-python " in sentences[2]


def test_a_timeout_and_what_is_open_before_it(node: NodeProcess, topic: str) -> None:
    producer = producer_of(node, topic, **{"transaction.timeout.ms": 2_000})
    begin(producer, topic)
    shown = Prompt(node.address)("transactions", "explain", topic)
    assert f"'{topic}' has a transaction open since" in shown.out
    assert f"readers of committed records back in {topic}-0 at offset 0" in shown.out
    (ended,), sentences = explained(node, topic, 1)
    assert (ended["result"], ended["cause"], ended["client_address"]) == ("aborted", TIMED_OUT, None)
    assert ended["producer_address"] == "127.0.0.1"
    assert ended["open_ms"] >= 2_000
    assert ended["longest_hold_ms"] >= 1_000
    assert f"(client '{topic}' at 127.0.0.1, confluent-kafka-python " in sentences[1]
    assert "did not end it within its transaction.timeout.ms of 2.00 s" in sentences[1]
    assert f"It held readers of committed records back in {topic}-0 at offset 0 for " in sentences[1]
    with pytest.raises(KafkaException):
        producer.commit_transaction(PATIENCE_S)


def test_a_fence_and_an_operator(node: NodeProcess, topic: str) -> None:
    begin(producer_of(node, topic, **{"client.id": "first"}), topic)
    second = producer_of(node, topic, **{"client.id": "second"})
    begin(second, topic)
    assert Prompt(node.address)("transactions", "force-terminate", "--transactional-id", topic).code == 0
    (terminated, fenced), sentences = explained(node, topic, 2)
    assert (fenced["cause"], terminated["cause"]) == (FENCED, OPERATOR)
    assert "muster" in terminated["client_software"]
    assert "by an operator (at 127.0.0.1, muster" in sentences[1]
    assert "Its producer (client 'second' at 127.0.0.1, confluent-kafka-python " in sentences[1]
    assert "a new instance (client 'second' at 127.0.0.1, confluent-kafka-python " in sentences[2]
    with pytest.raises(KafkaException) as refused:
        second.commit_transaction(PATIENCE_S)
    assert refused.value.args[0].fatal()


def test_a_node_that_stands_still_tells_why_a_timeout_came_late(node: NodeProcess, topic: str) -> None:
    producer = producer_of(node, topic, **{"transaction.timeout.ms": 1_000})
    begin(producer, topic)
    node.freeze()
    time.sleep(FROZEN_S)  # how long it stands still is what is tested
    node.thaw()
    (ended,), sentences = explained(node, topic, 1)
    assert ended["cause"] == TIMED_OUT
    assert ended["open_ms"] >= 1_000 * FROZEN_S
    assert "The node stood still for " in sentences[1]
    assert "not known. " not in sentences[1]


def test_a_node_that_was_killed_tells_what_it_still_knows(tmp_path: Path) -> None:
    with running_node(tmp_path / "data", SETTINGS) as node:
        topic = new_topic(node)
        begin(producer_of(node, "orders", **{"client.id": "first"}), topic)
        producer = producer_of(node, "orders", **{"client.id": "second"})
        explained(node, "orders", 1)
        begin(producer, topic)
        producer.commit_transaction(PATIENCE_S)
        explained(node, "orders", 2)
        node.kill()
        node.start()
        (committed, fenced), sentences = explained(node, "orders", 2)
        assert (committed["result"], committed["cause"], committed["client_address"]) == ("committed", UNKNOWN, None)
        assert committed["holds"] == []
        assert (fenced["result"], fenced["cause"], fenced["client_address"]) == ("aborted", FENCED, "127.0.0.1")
        assert "By whom is not known" in sentences[1]
        assert "a new instance (client 'second' at 127.0.0.1, confluent-kafka-python " in sentences[2]
        assert "only the last state and aborts by the coordinator are kept" in sentences[-1]
        begin(producer, topic)
        node.kill()
        node.start()
        told: Any = Prompt(node.address).json("transactions", "explain", "orders")
        (hold,) = told["current"]["holds"]
        assert (hold["topic"], hold["offset"], hold["at_least"]) == (topic, 8, True)
        assert "Where its producer is, is not known" in told["sentences"][0]
        producer.abort_transaction(PATIENCE_S)
        (aborted, *_), _ = explained(node, "orders", 2)
        assert (aborted["result"], aborted["cause"]) == ("aborted", PRODUCER)
