"""The log through the eyes of clients that nobody here wrote: confluent-kafka, kafka-python, aiokafka and kcat."""

import asyncio
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType as PythonResourceType
from kafka.admin import NewTopic as PythonTopic

from muster import client
from tests.support.node import NodeProcess, running_node
from tests.support.pace import Patience, pace

pytestmark = pytest.mark.integration

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
MESSAGES = 10_000
PATIENCE_S = 30.0
KAFKA = {"kafka.listeners": "127.0.0.1:0"}
numbers = count()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(Path(tmp_path_factory.mktemp("kafka") / "data"), KAFKA) as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"topic-{next(numbers)}"


def texts(number: int) -> list[bytes]:
    """Values that compress a little, of many lengths, none like another."""
    return [b"%d|" % place * (1 + place % 40) for place in range(number)]


def produce(address: str, topic: str, values: Sequence[bytes], **more: Any) -> list[int]:
    """Send by confluent-kafka; the offsets that were told, in the order of sending."""
    told: dict[int, int] = {}
    failed: list[Any] = []

    def note(place: int) -> Callable[[Any, Any], None]:
        return lambda error, message: failed.append(error) if error else told.update({place: message.offset()})

    producer = Producer({"bootstrap.servers": address, "linger.ms": 5} | more)
    for place, value in enumerate(values):
        producer.produce(topic, value, key=b"key", headers=[("n", b"%d" % place)], on_delivery=note(place))
        if place % 1000 == 0:
            producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    assert failed == []
    return [told[place] for place in range(len(values))]


def consume(address: str, topic: str, number: int, **more: Any) -> list[Any]:
    """Read by confluent-kafka from the beginning of partition 0."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "readers", "check.crcs": True} | more)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Any] = []
    patience = Patience(PATIENCE_S)
    while len(found) < number:
        assert patience.lasts(), f"only {len(found)} of {number} messages within {PATIENCE_S} s"
        for message in consumer.consume(1000, 0.5):
            assert message.error() is None
            found.append(message)
    consumer.close()
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_kafka_reads_what_it_wrote_with_every_codec(node: NodeProcess, topic: str, codec: str) -> None:
    sent = texts(MESSAGES)
    idempotent = {"compression.type": codec, "enable.idempotence": True}
    assert produce(node.kafka_address, topic, sent, **idempotent) == list(range(MESSAGES))
    found = consume(node.kafka_address, topic, MESSAGES)
    assert [message.value() for message in found] == sent
    assert [message.offset() for message in found] == list(range(MESSAGES))
    assert found[77].headers() == [("n", b"77")]
    with client.Consumer(bootstrap_servers=node.address, auto_offset_reset="earliest") as ours:
        ours.assign([(topic, 0)])
        by_grpc: list[Any] = []
        while len(by_grpc) < MESSAGES:
            by_grpc += ours.consume(MESSAGES, 1.0)
    assert [message.value for message in by_grpc] == sent


@pytest.mark.parametrize("codec", [None, "gzip", "zstd"])
def test_kafka_python_reads_what_it_wrote(node: NodeProcess, topic: str, codec: str | None) -> None:
    sent = texts(MESSAGES // 4)
    producer = KafkaProducer(bootstrap_servers=node.kafka_address, compression_type=codec, linger_ms=5)
    told = [producer.send(topic, value) for value in sent]
    producer.flush(PATIENCE_S)
    assert [future.get(PATIENCE_S).offset for future in told] == list(range(len(sent)))
    producer.close()
    partition = PythonPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=node.kafka_address, group_id=None, auto_offset_reset="earliest")
    consumer.assign([partition])
    found: list[bytes] = []
    patience = Patience(PATIENCE_S)
    while len(found) < len(sent):
        assert patience.lasts()
        found += [record.value for records in consumer.poll(500).values() for record in records]
    assert found == sent
    assert (consumer.beginning_offsets([partition]), consumer.end_offsets([partition])) == (
        {partition: 0},
        {partition: len(sent)},
    )
    consumer.close()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_aiokafka_reads_what_it_wrote(node: NodeProcess, topic: str, codec: str | None) -> None:
    sent = texts(MESSAGES // 4)

    async def story() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=node.kafka_address, compression_type=codec, enable_idempotence=True
        )
        await producer.start()
        told = [await producer.send(topic, value) for value in sent]
        assert [(await future).offset for future in told] == list(range(len(sent)))
        await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=node.kafka_address, auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign([AioPartition(topic, 0)])
        found: list[bytes] = []
        async with asyncio.timeout(PATIENCE_S * pace()):
            while len(found) < len(sent):
                batches = await consumer.getmany(timeout_ms=500)
                found += [record.value for records in batches.values() for record in records]
        await consumer.stop()
        assert found == sent

    asyncio.run(story())


@pytest.mark.parametrize("codec", CODECS)
def test_kcat_reads_what_it_wrote(node: NodeProcess, topic: str, codec: str) -> None:
    kcat = shutil.which("kcat")
    if kcat is None:
        pytest.skip("kcat is not installed (apt-get install kcat)")
    sent = texts(500)
    there = [kcat, "-b", node.kafka_address, "-t", topic, "-p", "0"]
    subprocess.run([*there, "-P", "-z", codec], input=b"\n".join(sent), check=True, timeout=PATIENCE_S * pace())
    read = subprocess.run([*there, "-C", "-e", "-q"], capture_output=True, check=True, timeout=PATIENCE_S * pace())
    assert read.stdout.splitlines() == sent
    size = node.data / f"{topic}-0" / "00000000000000000000.log"
    # A client that is told of Produce from 3 on only would leave compression out (KAFKA-18659).
    assert (size.stat().st_size < sum(map(len, sent))) == (codec != "none")


def test_an_idempotent_producer_survives_a_kill_of_the_node_without_a_loss_or_a_repeat(tmp_path: Path) -> None:
    with running_node(tmp_path / "data", KAFKA) as node:
        failed: list[Any] = []
        delivered = 0

        def note(error: Any, message: Any) -> None:
            nonlocal delivered
            delivered += not error
            if error:
                failed.append(error)

        producer = Producer(
            {
                "bootstrap.servers": node.kafka_address,
                "enable.idempotence": True,
                "batch.num.messages": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        sent = texts(6_000)
        for turn in range(3):
            for value in sent[turn * 2_000 : (turn + 1) * 2_000]:
                producer.produce("t", value, on_delivery=note)
            if turn < 2:
                # In the middle of it: some are acknowledged, some in the log without that, some on their way.
                while delivered < turn * 2_000 + 200:
                    producer.poll(0.1)
                node.kill()
                node.start()
        assert producer.flush(PATIENCE_S) == 0
        assert (failed, delivered) == ([], len(sent))
        assert [message.value() for message in consume(node.kafka_address, "t", len(sent))] == sent
        with client.Consumer(bootstrap_servers=node.address) as ours:
            assert ours.get_watermark_offsets(("t", 0)).high == len(sent)


def test_a_consumer_that_waits_is_woken_by_whoever_produces(node: NodeProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.kafka_address})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE_S)
    # It would wait for a minute, longer than this test's patience.
    patient = {"fetch.wait.max.ms": 60_000, "socket.timeout.ms": 90_000}
    consumer = Consumer({"bootstrap.servers": node.kafka_address, "group.id": "patient"} | patient)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(1.0) is None
    produce(node.kafka_address, topic, [b"from confluent-kafka"])
    first = consumer.poll(PATIENCE_S)
    assert (first.value(), first.offset()) == (b"from confluent-kafka", 0)
    with client.Producer(bootstrap_servers=node.address) as producer:
        producer.produce(topic, b"by gRPC", key=b"k")
    second = consumer.poll(PATIENCE_S)
    assert (second.value(), second.key(), second.offset()) == (b"by gRPC", b"k", 1)
    consumer.close()


def test_offsets_are_found_by_time(node: NodeProcess, topic: str) -> None:
    producer = Producer({"bootstrap.servers": node.kafka_address})
    start = 1_700_000_000_000
    for number in range(20):
        producer.produce(topic, b"x", timestamp=start + 1000 * number)
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({"bootstrap.servers": node.kafka_address, "group.id": "clock"})
    asked = [start - 5, start + 6_500, start + 99_000]
    found = [consumer.offsets_for_times([TopicPartition(topic, 0, at)], PATIENCE_S)[0].offset for at in asked]
    assert found == [0, 7, -1]
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S) == (0, 20)
    consumer.close()
    partition = PythonPartition(topic, 0)
    other = KafkaConsumer(bootstrap_servers=node.kafka_address, group_id=None)
    told = other.offsets_for_times({partition: start + 6_500})[partition]
    assert (told.offset, told.timestamp) == (7, start + 7_000)
    other.close()


def results(futures: dict[Any, "Future[Any]"]) -> dict[Any, Any]:
    """What came of each; an error by its name."""
    found: dict[Any, Any] = {}
    for key, future in futures.items():
        try:
            found[key] = future.result(PATIENCE_S)
        except KafkaException as error:
            found[key] = error.args[0].name()
    return found


def test_confluents_admin_makes_shows_grows_and_deletes_topics(node: NodeProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.kafka_address})
    tuned = NewTopic(topic, 3, 1, config={"retention.ms": "5000"})
    wanted = [tuned, NewTopic(f"{topic}-copies", 1, 3), NewTopic(f"{topic}-none", 0, 1)]
    assert list(results(admin.create_topics(wanted)).values()) == [
        None,
        "INVALID_REPLICATION_FACTOR",
        "INVALID_PARTITIONS",
    ]
    assert results(admin.create_topics([tuned]))[topic] == "TOPIC_ALREADY_EXISTS"
    listed = admin.list_topics(timeout=PATIENCE_S)
    assert len(listed.topics[topic].partitions) == 3
    assert listed.controller_id in listed.brokers
    (shown,) = results(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)])).values()
    assert (shown["retention.ms"].value, shown["segment.bytes"].value) == ("5000", "1073741824")
    assert shown["segment.bytes"].is_default
    assert not shown["retention.ms"].is_default
    results(admin.create_partitions([NewPartitions(topic, 5)]))
    produce(node.kafka_address, topic, [b"x"] * 10, partitioner="consistent")
    number = next(n for n in range(5) if (node.data / f"{topic}-{n}" / "00000000000000000000.log").stat().st_size)
    (deleted,) = results(admin.delete_records([TopicPartition(topic, number, 4)])).values()
    assert deleted.low_watermark == 4
    assert results(admin.delete_topics([topic]))[topic] is None
    assert results(admin.delete_topics([topic]))[topic] == "UNKNOWN_TOPIC_OR_PART"
    assert not list(node.data.glob(f"{topic}-*"))


def test_kafka_pythons_admin_makes_shows_and_deletes_topics(node: NodeProcess, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=node.kafka_address)
    admin.create_topics([PythonTopic(topic, 2, 1, topic_configs={"retention.ms": "5000"})])
    assert topic in admin.list_topics()
    (described,) = admin.describe_topics([topic])
    assert [part["leader_id"] for part in described["partitions"]] == [1, 1]
    assert admin.describe_cluster()["controller_id"] == 1
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    admin.close()


def test_confluents_admin_changes_settings(node: NodeProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.kafka_address})
    results(admin.create_topics([NewTopic(topic, 1, 1)]))

    def changed(kind: ResourceType, name: str, *steps: tuple[str, AlterConfigOpType, str | None]) -> Any:
        entries = [ConfigEntry(key, value, incremental_operation=how) for key, how, value in steps]
        (outcome,) = results(
            admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=entries)])
        ).values()
        return outcome

    def shown() -> dict[str, str]:
        (found,) = results(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)])).values()
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {name: entry.value for name, entry in found.items() if entry.source == own}

    put, drop, append = AlterConfigOpType.SET, AlterConfigOpType.DELETE, AlterConfigOpType.APPEND
    here = ResourceType.TOPIC, topic
    assert changed(*here, ("retention.ms", put, "5000"), ("cleanup.policy", append, "compact")) is None
    assert shown() == {"retention.ms": "5000", "cleanup.policy": "compact,delete"}
    assert changed(*here, ("retention.ms", drop, "")) is None
    assert changed(*here, ("retention.ms", put, "soon")) == "INVALID_CONFIG"
    assert changed(ResourceType.TOPIC, f"{topic}-gone", ("retention.ms", put, "5")) == "UNKNOWN_TOPIC_OR_PART"
    assert changed(ResourceType.BROKER, "1", ("log.retention.ms", put, "5")) == "INVALID_REQUEST"
    assert shown() == {"cleanup.policy": "compact,delete"}


def test_kafka_pythons_admin_replaces_settings(node: NodeProcess, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=node.kafka_address)
    admin.create_topics([PythonTopic(topic, 1, 1, topic_configs={"retention.ms": "5000"})])
    wanted = PythonResource(PythonResourceType.TOPIC, topic, configs={"max.message.bytes": "9999"})
    # By AlterConfigs this client names what is set already, by the incremental request only what changes.
    for incremental in (False, True):
        admin.alter_configs([wanted], incremental=incremental)
        (found,) = admin.describe_configs([PythonResource(PythonResourceType.TOPIC, topic)])["topic"].values()
        assert {name: row["value"] for name, row in found.items()} == {
            "max.message.bytes": "9999",
            "retention.ms": "5000",
        }
    admin.close()


@pytest.mark.parametrize("era", [(0, 8, 2), (0, 9), (0, 10, 0), (0, 10, 1)], ids=str)
def test_a_client_that_speaks_as_of_old_reads(node: NodeProcess, topic: str, era: tuple[int, ...]) -> None:
    """Messages of magic 0, and 1 from 0.10 on, made of batches in every codec."""
    sent = texts(200) * len(CODECS)
    for codec in CODECS:
        produce(node.kafka_address, topic, texts(200), **{"compression.type": codec})
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=node.kafka_address,
        api_version=era,
        group_id=None if era < (0, 9) else topic,
        auto_offset_reset="earliest",
        consumer_timeout_ms=PATIENCE_S * 1000,
    )
    found = [next(consumer) for _ in sent]
    assert [message.value for message in found] == sent
    assert all((message.timestamp is None) == (era < (0, 10)) for message in found)
    consumer.close()


def test_a_topic_comes_into_being_only_where_that_is_allowed(tmp_path: Path) -> None:
    with running_node(tmp_path / "data", KAFKA | {"auto.create.topics.enable": "false"}) as node:
        failed: list[str] = []
        producer = Producer({"bootstrap.servers": node.kafka_address, "topic.metadata.propagation.max.ms": 100})
        producer.produce("nowhere", b"x", on_delivery=lambda error, message: failed.append(error.name()))
        producer.flush(PATIENCE_S)
        assert failed == ["UNKNOWN_TOPIC_OR_PART"]
        assert "nowhere" not in AdminClient({"bootstrap.servers": node.kafka_address}).list_topics().topics


def test_without_acks_records_arrive_all_the_same(node: NodeProcess, topic: str) -> None:
    producer = Producer({"bootstrap.servers": node.kafka_address, "acks": 0})
    for value in texts(1_000):
        producer.produce(topic, value)
    assert producer.flush(PATIENCE_S) == 0
    assert [message.value() for message in consume(node.kafka_address, topic, 1_000)] == texts(1_000)
