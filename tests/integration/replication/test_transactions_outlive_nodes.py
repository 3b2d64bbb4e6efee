"""Three real nodes and a transactional producer of Kafka's: nodes are killed, and each transaction stays whole."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from muster.client import Admin
from muster.client import Consumer as OurConsumer
from muster.client import Producer as OurProducer
from muster.client.errors import Refused, Unreachable
from muster.coordinator.observability.views.transactions import FENCED, PRODUCER
from muster.coordinator.runtime.shards import partition_for
from tests.support.cluster_nodes import ClusterNodes, running_cluster
from tests.support.pace import Patience

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

TOPIC, GROUP = "orders", "billing"
PARTITIONS, IDS = 3, 4
PATIENCE_S = 60.0
SETTINGS = {"transaction.state.log.num.partitions": str(IDS)}
numbers = count()


@pytest.fixture
def cluster(zookeeper: str, tmp_path: Path) -> Iterator[ClusterNodes]:
    with running_cluster(tmp_path, zookeeper, settings=SETTINGS) as running:
        admin = AdminClient({"bootstrap.servers": running.kafka_address, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(PATIENCE_S)
        yield running


def everybody(cluster: ClusterNodes) -> str:
    return ",".join(node.kafka_address for node in cluster.nodes.values())


def leader(cluster: ClusterNodes, topic: str, partition: int) -> int:
    admin = AdminClient({"bootstrap.servers": everybody(cluster), "log_level": 0})
    patience = Patience(PATIENCE_S)
    while True:
        found = admin.list_topics(topic, PATIENCE_S).topics[topic].partitions.get(partition)
        if found is not None and found.leader > 0:
            return int(found.leader)
        assert patience.lasts(), cluster.log_tail()


def coordinator(cluster: ClusterNodes, transactional_id: str) -> int:
    return leader(cluster, "__transaction_state", partition_for(transactional_id, IDS))


def producer_of(cluster: ClusterNodes, name: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": everybody(cluster),
            "transactional.id": name,
            "socket.timeout.ms": 5_000,
            "log_level": 0,
        }
    )
    again(cluster, lambda: producer.init_transactions(PATIENCE_S))
    return producer


def again(cluster: ClusterNodes, ask: Callable[[], object]) -> None:
    """As often as the client says that it may be asked again."""
    patience = Patience(PATIENCE_S)
    while True:
        try:
            ask()
        except KafkaException as error:
            if not error.args[0].retriable() or not patience.lasts():
                raise AssertionError(cluster.log_tail()) from error
        else:
            return


def send(producer: Producer, *values: bytes) -> None:
    for place, value in enumerate(values):
        producer.produce(TOPIC, value, partition=place % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


def read(cluster: ClusterNodes) -> list[bytes]:
    """All that a reader of committed records gets, sorted."""
    consumer = Consumer(
        {
            "bootstrap.servers": everybody(cluster),
            "group.id": f"reader-{next(numbers)}",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    found: list[bytes] = []
    ended: set[int] = set()
    patience = Patience(PATIENCE_S)
    while len(ended) < PARTITIONS:
        assert patience.lasts(), cluster.log_tail()
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            ended.add(message.partition())
        else:
            found.append(message.value())
    consumer.close()
    return sorted(found)


def until_read(cluster: ClusterNodes, wanted: list[bytes]) -> None:
    patience = Patience(PATIENCE_S)
    while (found := read(cluster)) != wanted:
        assert patience.lasts(), (found, wanted, cluster.log_tail())


def test_commit_abort_fencing_and_offsets_over_three_nodes(cluster: ClusterNodes) -> None:
    producer = producer_of(cluster, "A")
    producer.begin_transaction()
    send(producer, b"a0", b"a1", b"a2")
    assert read(cluster) == [], "it is open"
    again(cluster, lambda: producer.commit_transaction(PATIENCE_S))
    until_read(cluster, [b"a0", b"a1", b"a2"])

    producer.begin_transaction()
    send(producer, b"b0", b"b1", b"b2")
    again(cluster, lambda: producer.abort_transaction(PATIENCE_S))
    assert read(cluster) == [b"a0", b"a1", b"a2"]

    member = Consumer(
        {
            "bootstrap.servers": everybody(cluster),
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    member.subscribe([TOPIC])
    patience = Patience(PATIENCE_S)
    while not member.assignment():
        assert patience.lasts(), cluster.log_tail()
        member.poll(0.1)
    producer.begin_transaction()
    send(producer, b"c0")
    positions = [TopicPartition(TOPIC, 1, 2)]
    again(
        cluster,
        lambda: producer.send_offsets_to_transaction(positions, member.consumer_group_metadata(), PATIENCE_S),
    )
    again(cluster, lambda: producer.commit_transaction(PATIENCE_S))
    (found,) = member.committed(positions, PATIENCE_S)
    assert found.offset == 2
    member.close()

    producer.begin_transaction()
    send(producer, b"d0")
    newer = producer_of(cluster, "A")
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(PATIENCE_S)
    assert refused.value.args[0].fatal(), refused.value
    newer.begin_transaction()
    send(newer, b"e0", b"e1", b"e2")
    again(cluster, lambda: newer.commit_transaction(PATIENCE_S))
    until_read(cluster, [b"a0", b"a1", b"a2", b"c0", b"e0", b"e1", b"e2"])


def test_whichever_node_coordinates_an_id_explains_how_its_transactions_ended(cluster: ClusterNodes) -> None:
    first = producer_of(cluster, "A")
    first.begin_transaction()
    send(first, b"a0", b"a1", b"a2")
    second = producer_of(cluster, "A")
    second.begin_transaction()
    send(second, b"b0")
    again(cluster, lambda: second.commit_transaction(PATIENCE_S))
    with Admin(bootstrap_servers=cluster.address) as admin:
        patience = Patience(PATIENCE_S)
        while len((told := admin.explain_transactions("A")).ended) < 2 or told.HasField("current"):
            assert patience.lasts(), (told, cluster.log_tail())
    committed, fenced = told.ended
    assert (committed.committed, committed.cause, committed.client_address) == (True, PRODUCER, "127.0.0.1")
    assert (fenced.committed, fenced.cause, fenced.producer_address) == (False, FENCED, "127.0.0.1")
    assert fenced.partition_count == 3
    assert "these for 30 days in __aborts" in told.sentences[-1]
    struck = coordinator(cluster, "A")
    cluster.nodes[struck].kill()
    survivor = next(node for number, node in cluster.nodes.items() if number != struck)
    with Admin(bootstrap_servers=survivor.address) as admin:
        patience = Patience(PATIENCE_S)
        while not (causes := explained_causes(admin)):
            assert patience.lasts(), cluster.log_tail()
    assert FENCED in causes, "another node ended it; this one has it from __aborts"


def explained_causes(admin: Admin) -> list[str]:
    """Of the ends of A; none while its coordinator is away or loads."""
    try:
        return [end.cause for end in admin.explain_transactions("A").ended]
    except (Refused, Unreachable):
        return []


def test_coordinator_and_data_leader_are_killed_in_open_transactions(cluster: ClusterNodes) -> None:
    producer = producer_of(cluster, "A")
    producer.begin_transaction()
    send(producer, b"a0", b"a1", b"a2")
    struck = coordinator(cluster, "A")
    cluster.nodes[struck].kill()
    again(cluster, lambda: producer.commit_transaction(PATIENCE_S))
    until_read(cluster, [b"a0", b"a1", b"a2"])
    assert coordinator(cluster, "A") != struck
    cluster.nodes[struck].start()

    producer.begin_transaction()
    send(producer, b"b0", b"b1", b"b2")
    led = leader(cluster, TOPIC, 0)
    cluster.nodes[led].kill()
    again(cluster, lambda: producer.commit_transaction(PATIENCE_S))
    until_read(cluster, [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"])
    cluster.nodes[led].start()

    producer.begin_transaction()
    send(producer, b"c0", b"c1", b"c2")
    cluster.nodes[coordinator(cluster, "A")].stop()
    again(cluster, lambda: producer.abort_transaction(PATIENCE_S))
    assert read(cluster) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]


def test_our_own_producer_commits_through_the_death_of_its_coordinator(cluster: ClusterNodes) -> None:
    """At level 2: the leaders of data add their partitions, whichever node coordinates."""
    addresses = ",".join(node.address for node in cluster.nodes.values())
    places = [(TOPIC, number) for number in range(PARTITIONS)]
    with OurProducer(bootstrap_servers=addresses, transactional_id="ours") as producer:
        with producer.transaction():
            for _, number in places:
                producer.produce(TOPIC, b"a%d" % number, partition=number)
        producer.begin()
        for _, number in places:
            producer.produce(TOPIC, b"b%d" % number, partition=number)
        producer.flush()
        struck = coordinator(cluster, "ours")
        cluster.nodes[struck].kill()
        producer.commit()
        producer.begin()
        producer.produce(TOPIC, b"c", partition=0)
        producer.abort()
    until_read(cluster, [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"])
    with OurConsumer(bootstrap_servers=addresses, isolation_level="read_committed") as consumer:
        consumer.assign(places)
        consumer.seek_to_beginning()
        found: list[bytes | None] = []
        patience = Patience(PATIENCE_S)
        while len(found) < 6:
            assert patience.lasts(), (found, cluster.log_tail())
            found += [message.value for message in consumer.consume(100, 0.2)]
    assert sorted(found) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]


def test_nodes_stand_still_in_open_transactions_and_wake_up_to_no_say_in_them(cluster: ClusterNodes) -> None:
    producer = producer_of(cluster, "A")
    producer.begin_transaction()
    send(producer, b"a0", b"a1", b"a2")
    frozen = coordinator(cluster, "A")
    cluster.freeze(frozen)
    again(cluster, lambda: producer.commit_transaction(PATIENCE_S))
    producer.begin_transaction()
    send(producer, b"b0", b"b1", b"b2")
    cluster.thaw(frozen)
    until_read(cluster, [b"a0", b"a1", b"a2"])
    again(cluster, lambda: producer.abort_transaction(PATIENCE_S))

    producer.begin_transaction()
    send(producer, b"c0", b"c1", b"c2")
    frozen = leader(cluster, TOPIC, 1)
    cluster.freeze(frozen)
    again(cluster, lambda: producer.commit_transaction(PATIENCE_S))
    cluster.until_session_is_over(frozen)
    producer.begin_transaction()
    send(producer, b"d0", b"d1", b"d2")
    cluster.thaw(frozen)
    again(cluster, lambda: producer.abort_transaction(PATIENCE_S))
    until_read(cluster, [b"a0", b"a1", b"a2", b"c0", b"c1", b"c2"])
