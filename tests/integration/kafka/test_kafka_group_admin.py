"""Groups in the hands of other projects' admin clients and tools: shown truly, reset while nobody is in, deleted."""

import asyncio
import struct
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import kafka.admin as kafka_python
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, ConsumerGroupType, KafkaException
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, ConfigResource
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from muster.client import Admin
from tests.support.kafka.stage import NODE, PARTITIONS, Stage, stage
from tests.support.node import NodeProcess, running_node
from tests.support.pace import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

PATIENCE_S = 30.0
EVERYWHERE = list(range(PARTITIONS))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(Path(tmp_path_factory.mktemp("kafka-admin") / "data"), NODE) as running:
        yield running


@pytest.fixture
def confluent(node: NodeProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": node.kafka_address, "log_level": 0})


@pytest.fixture
def python(node: NodeProcess) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=node.kafka_address)
    yield admin
    admin.close()


def outcome(future: "Future[Any]") -> Any:
    """A result, or an error by its name."""
    try:
        return future.result(PATIENCE_S)
    except KafkaException as error:
        return error.args[0].name()


def in_use(play: Stage, library: str, **more: str) -> Any:
    """A member that has read and committed ten messages of each partition."""
    member = play.start(library, **more)
    play.until_shared(member)
    play.send(10)
    play.until_committed()
    return member


@pytest.mark.parametrize(("assignor", "kind"), [("range", "CLASSIC"), ("consumer", "CONSUMER")])
def test_confluents_admin_shows_resets_and_deletes_a_group(
    node: NodeProcess, confluent: AdminClient, assignor: str, kind: str
) -> None:
    with stage(node, assignor) as play:
        member, group = in_use(play, "confluent"), play.group

        def listed(**filters: object) -> bool:
            found = confluent.list_consumer_groups(**filters).result(PATIENCE_S).valid
            return group in [one.group_id for one in found]

        def described() -> Any:
            return confluent.describe_consumer_groups([group])[group].result(PATIENCE_S)

        def altered(partition: int, offset: int) -> str | None:
            wanted = ConsumerGroupTopicPartitions(group, [Place(group, partition, offset)])
            (answer,) = outcome(confluent.alter_consumer_group_offsets([wanted])[group]).topic_partitions
            return answer.error and str(answer.error.name())

        other = ConsumerGroupType.CONSUMER if kind == "CLASSIC" else ConsumerGroupType.CLASSIC
        assert listed(states={ConsumerGroupState.STABLE}, types={ConsumerGroupType[kind]})
        assert not listed(states={ConsumerGroupState.EMPTY})
        assert not listed(types={other})
        shown = described()
        assert (shown.state, shown.type) == (ConsumerGroupState.STABLE, ConsumerGroupType[kind])
        assert shown.partition_assignor == ("range" if kind == "CLASSIC" else "uniform")
        assert (shown.coordinator.id, f"{shown.coordinator.host}:{shown.coordinator.port}") == (1, node.kafka_address)
        (one,) = shown.members
        assert (one.client_id, one.host) == (member.name, "127.0.0.1")
        assert sorted(place.partition for place in one.assignment.topic_partitions) == EVERYWHERE
        assert altered(0, 3) == "UNKNOWN_MEMBER_ID", "nobody resets a group over its members' heads"
        assert outcome(confluent.delete_consumer_groups([group])[group]) == "NON_EMPTY_GROUP"
        member.leave()
        until(lambda: listed(states={ConsumerGroupState.EMPTY}), lambda: f"{described().state}")
        assert described().members == []
        assert [altered(0, 3), altered(99, 3)] == [None, "UNKNOWN_TOPIC_OR_PART"]
        kept = outcome(confluent.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group])
        assert [place.offset for place in kept.topic_partitions] == [3, 10, 10, 10, 10, 10]
        again = play.start("confluent")
        until(lambda: {(0, offset) for offset in range(3, 10)} <= again.read, lambda: "it begins where it was reset to")
        assert (0, 2) not in again.read
        again.leave()
        until(lambda: listed(states={ConsumerGroupState.EMPTY}), lambda: f"{described().state}")
        assert outcome(confluent.delete_consumer_groups([group])[group]) is None
        assert not listed()
        assert outcome(confluent.delete_consumer_groups([group])[group]) == "GROUP_ID_NOT_FOUND"


def test_kafka_pythons_admin_shows_resets_and_deletes_a_group(node: NodeProcess, python: KafkaAdminClient) -> None:
    with stage(node, "range") as play:
        in_use(play, "aiokafka", instance="a")
        group = play.group
        assert group in [one["group_id"] for one in python.list_groups(states_filter=["Stable"])]
        assert group not in [one["group_id"] for one in python.list_groups(types_filter=["consumer"])]
        shown = python.describe_groups([group])[group]
        assert (shown["group_state"], shown["protocol_data"], shown["error"]) == ("Stable", "range", None)
        (member,) = shown["members"]
        assert (member["group_instance_id"], member["client_id"]) == ("a", "aiokafka-0")
        assert member["member_metadata"]["topics"] == [group]
        assert member["member_assignment"]["assigned_partitions"] == [{"topic": group, "partitions": EVERYWHERE}]
        first, second = TopicPartition(group, 0), TopicPartition(group, 1)
        back = {first: OffsetAndMetadata(3, "by hand", -1)}
        assert python.alter_group_offsets(group, back)[first].__name__ == "UnknownMemberIdError"
        assert python.delete_group_offsets(group, [first])[first].__name__ == "GroupSubscribedToTopicError"
        play.workers[0].kill()
        gone = kafka_python.MemberToRemove(group_instance_id="a")
        assert python.remove_group_members(group, [gone])["a"].__name__ == "NoError"
        until(lambda: python.describe_groups([group])[group]["group_state"] == "Empty", lambda: "the member is out")
        assert python.alter_group_offsets(group, back)[first].__name__ == "NoError"
        assert python.delete_group_offsets(group, [second])[second].__name__ == "NoError"
        kept = python.list_group_offsets(group)[group]
        told = {place.partition: (at.offset, at.metadata) for place, at in kept.items()}
        assert told == {0: (3, "by hand")} | dict.fromkeys(EVERYWHERE[2:], (10, ""))
        assert python.delete_groups([group, "nobody's"]) == {group: "OK", "nobody's": "GroupIdNotFoundError"}
        assert python.describe_groups([group])[group]["group_state"] == "Dead"


def test_a_lag_exporter_sees_the_lag(node: NodeProcess, python: KafkaAdminClient) -> None:
    """As kafka-lag-exporter, kminion and kafka-ui ask: every group, its members, all its offsets, the logs' ends."""
    with stage(node, "consumer") as play:
        member = in_use(play, "confluent")
        member.kill()
        play.send(7)
        groups = [one["group_id"] for one in python.list_groups()]
        assert play.group in groups
        assert {one["error"] for one in python.describe_groups(groups).values()} == {None}
        for group, offsets in python.list_group_offsets(groups).items():
            ends = python.list_partition_offsets(dict.fromkeys(offsets, -1)) if offsets else {}
            lag = {place.partition: ends[place].offset - at.offset for place, at in offsets.items()}
            assert group != play.group or lag == dict.fromkeys(EVERYWHERE, 7)


def test_aiokafkas_admin_shows_a_group(node: NodeProcess) -> None:
    async def ask(group: str) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=node.kafka_address)
        await admin.start()
        assert (group, "consumer") in await admin.list_consumer_groups()
        (answer,) = await admin.describe_consumer_groups([group])
        (row,) = answer.to_object()["groups"]
        assert (row["state"], row["protocol"], len(row["members"])) == ("Stable", "range", 1)
        kept = await admin.list_consumer_group_offsets(group)
        assert {place.partition: at.offset for place, at in kept.items()} == dict.fromkeys(EVERYWHERE, 10)
        await admin.close()

    with stage(node, "range") as play:
        in_use(play, "kafka-python")
        asyncio.run(ask(play.group))


def test_who_reads_the_offsets_topic_finds_the_commits(node: NodeProcess) -> None:
    """As Burrow does: it asks nobody, it consumes __consumer_offsets."""
    with stage(node, "range") as play:
        in_use(play, "kafka-python")
        consumer = KafkaConsumer(bootstrap_servers=node.kafka_address, group_id=None, auto_offset_reset="earliest")
        consumer.assign([TopicPartition("__consumer_offsets", n) for n in range(4)])
        found: dict[int, int] = {}

        def all_found() -> bool:
            for records in consumer.poll(500).values():
                found.update(commits_of(play.group, records))
            return found == dict.fromkeys(EVERYWHERE, 10)

        until(all_found, lambda: f"{found}")
        consumer.close()


def commits_of(group: str, records: list[Any]) -> Iterator[tuple[int, int]]:
    """Partition and offset of each commit; keys begin with a version, 0 and 1 are commits."""
    for record in records:
        if int.from_bytes(record.key[:2], "big") > 1 or record.value is None:
            continue
        size = int.from_bytes(record.key[2:4], "big")
        if record.key[4 : 4 + size].decode() == group:
            yield int.from_bytes(record.key[-4:], "big"), struct.unpack_from(">hq", record.value)[1]


def test_what_is_not_served_is_told_at_once(confluent: AdminClient, python: KafkaAdminClient) -> None:
    """The clients read it from ApiVersions: none of them waits for an answer that never comes."""
    assert confluent.describe_user_scram_credentials().result(30) == {}, "a node without security has no users"
    (broker,) = python.describe_log_dirs()
    assert [directory["error_code"] for directory in broker["log_dirs"]] == [0], "what web interfaces ask for"
    (shown,) = confluent.describe_configs([ConfigResource("broker", "1")]).values()
    assert "group.min.session.timeout.ms" in outcome(shown)


def test_the_ledger_names_the_clients_software(node: NodeProcess) -> None:
    with stage(node, "range") as play:
        first = play.start("confluent")
        play.until_shared(first)
        second = play.start("kafka-python")
        play.until_shared(first, second)
        with Admin(bootstrap_servers=node.address) as admin:
            latest, oldest = (entry.detail for entry in (admin.explain(play.group)[0], admin.explain(play.group)[-1]))
        assert "(confluent-0, confluent-kafka-python " in oldest
        assert "(kafka-python-1, kafka-python " in latest
