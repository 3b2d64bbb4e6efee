"""Metadata and DescribeCluster of a node that is one of three (rule CL-K1)."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from muster.coordinator.kafka.dispatch import HangUp
from muster.coordinator.kafka.handlers.cluster_backend import MAX_CREATIONS, TopicCreations
from muster.long_work import AT_ONCE
from muster.storage.broker.requests import NewTopic
from muster.storage.errors import InvalidTopicName, RequestTimedOut, StorageError, TopicAlreadyExists
from tests.support.cluster_image import ALL, ME, OTHERS, ThreeNodes, led, node, topic_id
from tests.support.kafka.door import Door, made, play
from tests.support.kafka.memory_node import until
from tests.support.turns import turns_of_others


async def metadata(door: Door, version: int, *names: str, **more: Any) -> Any:
    topics = [made("MetadataRequest.topics", name=name) for name in names]
    return await door.ask("Metadata", version, topics=topics, **more)


@pytest.mark.parametrize("version", range(13))
def test_metadata_has_all_nodes_all_topics_and_who_leads(version: int) -> None:
    async def story(door: Door) -> None:
        answer = await door.ask("Metadata", version, topics=None if version else [])
        rack = (lambda each: f"rack-{each}") if version >= 1 else (lambda each: None)
        assert [(each.node_id, each.host, each.port, each.rack) for each in answer.brokers] == [
            (each, f"node-{each}.example", 9092, rack(each)) for each in ALL
        ]
        assert answer.controller_id == (OTHERS[0] if version >= 1 else -1)
        assert answer.cluster_id == (door.broker.cluster_id if version >= 2 else None)
        topics = {topic.name: topic for topic in answer.topics}
        assert topics.keys() == {"t", "__consumer_offsets", "__rebalances"}
        assert topics["__rebalances"].is_internal == (version >= 1)
        assert topics["t"].topic_id == (topic_id("t") if version >= 10 else bytes(16))
        assert [
            (part.error_code, part.partition_index, part.leader_id, part.leader_epoch, part.replica_nodes)
            for part in topics["t"].partitions
        ] == [(0, number, ALL[number], 3 if version >= 7 else -1, list(ALL)) for number in range(3)]

    play(story, cluster=ThreeNodes().view)


def test_a_node_that_is_cut_off_ends_the_connection() -> None:
    """librdkafka asks the node that it used last: it would hear of itself as the leader for ever (CL-G4)."""
    cluster = ThreeNodes()
    cluster.cut_off = True

    async def story(door: Door) -> None:
        with pytest.raises(HangUp):
            await metadata(door, 12, "t")
        cluster.cut_off = False
        assert (await metadata(door, 12, "t")).topics[0].error_code == 0

    play(story, cluster=cluster.view)


@pytest.mark.parametrize("version", range(13))
def test_a_partition_without_a_leader_has_code_5_and_what_is_known(version: int) -> None:
    cluster = ThreeNodes()
    cluster.topics(t={0: led(-1, epoch=9, isr=[ME]), 1: led(8, isr=[8, ME])})

    async def story(door: Door) -> None:
        (topic,) = (await metadata(door, version, "t")).topics
        offline = topic.partitions[0]
        assert (offline.error_code, offline.leader_id) == (5, -1)
        assert (offline.leader_epoch, offline.isr_nodes) == (9 if version >= 7 else -1, [ME])
        assert (topic.partitions[1].error_code, topic.partitions[1].isr_nodes) == (0, [8, ME])

    play(story, cluster=cluster.view)


@pytest.mark.parametrize("version", range(13))
def test_replicas_of_a_node_that_is_gone_are_offline_and_it_is_named_no_more(version: int) -> None:
    cluster = ThreeNodes()
    cluster.nodes(node(8, gone=True))

    async def story(door: Door) -> None:
        answer = await metadata(door, version, "t")
        assert [each.node_id for each in answer.brokers] == [ME, 9]
        assert answer.controller_id == -1, "node 8 was it"
        first, second, _ = answer.topics[0].partitions
        if version == 0:
            assert (first.error_code, first.replica_nodes, first.isr_nodes) == (9, [ME, 9], [ME, 9])
        else:
            assert (first.error_code, first.replica_nodes) == (0, list(ALL))
        assert list(first.offline_replicas) == ([8] if version >= 5 else [])
        # The image still says 8, whose session just ended: nobody can ask it.
        assert (second.error_code, second.leader_id) == (5, -1)

    play(story, cluster=cluster.view)


@pytest.mark.parametrize(("version", "code"), [(5, 5), (6, 72), (12, 72)])
def test_a_leader_without_a_door_for_kafka_s_clients_cannot_be_named(version: int, code: int) -> None:
    cluster = ThreeNodes()
    cluster.nodes(node(8, listeners=["GRPC", "REPLICATION"]))

    async def story(door: Door) -> None:
        answer = await metadata(door, version, "t")
        assert [each.node_id for each in answer.brokers] == [ME, 9]
        second = answer.topics[0].partitions[1]
        assert (second.error_code, second.leader_id, list(second.offline_replicas)) == (code, -1, [])

    play(story, cluster=cluster.view)


def test_topics_are_found_by_id_and_what_was_deleted_is_not() -> None:
    async def story(door: Door) -> None:
        asked = [made("MetadataRequest.topics", name=None, topic_id=topic_id(name)) for name in ("t", "gone")]
        there, gone = (await door.ask("Metadata", 12, topics=asked)).topics
        assert (there.error_code, there.name, len(there.partitions)) == (0, "t", 3)
        assert (gone.error_code, gone.name, gone.topic_id) == (100, None, topic_id("gone"))

    play(story, cluster=ThreeNodes().view)


def test_what_lies_on_this_node_s_disk_is_no_topic_of_the_cluster() -> None:
    """Copies that the image does not name (CL-F11)."""

    async def story(door: Door) -> None:
        door.broker.create_topic("stray", 1)
        (topic,) = (await metadata(door, 12, "stray", allow_auto_topic_creation=False)).topics
        assert topic.error_code == 3

    play(story, cluster=ThreeNodes().view)


def test_what_nodes_keep_for_themselves_is_told_to_nobody() -> None:
    cluster = ThreeNodes()
    cluster.topics(__security={0: led(ME)})

    async def story(door: Door) -> None:
        answer = await door.ask("Metadata", 12, topics=None)
        assert "__security" not in {topic.name for topic in answer.topics}
        by_id = made("MetadataRequest.topics", name=None, topic_id=topic_id("__security"))
        by_name = made("MetadataRequest.topics", name="__security")
        answer = await door.ask("Metadata", 12, topics=[by_id, by_name], allow_auto_topic_creation=False)
        assert [topic.error_code for topic in answer.topics] == [100, 3]

    play(story, cluster=cluster.view)


class Creates:
    """Topics by ZooKeeper: a creation ends when the test says so."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.ends: list[asyncio.Future[list[Any]]] = []

    async def __call__(self, wanted: Sequence[NewTopic]) -> list[Any]:
        self.asked.append([each.name for each in wanted])
        self.ends.append(asyncio.get_running_loop().create_future())
        return await self.ends[-1]


def test_a_topic_that_is_made_by_asking_is_not_there_until_the_image_has_it() -> None:
    cluster = ThreeNodes()

    async def story(door: Door) -> None:
        creates = Creates()
        door.requests.topics.create = creates  # type: ignore[method-assign]
        first = asyncio.create_task(metadata(door, 12, "new", "bad/name", "t"))
        await until(lambda: bool(creates.ends))
        assert creates.asked == [["new", "bad/name"]]
        creates.ends[0].set_result([RequestTimedOut("no controller"), InvalidTopicName("a slash")])
        assert [topic.error_code for topic in (await first).topics] == [5, 17, 0]
        cluster.topics(new={})
        assert [topic.error_code for topic in (await metadata(door, 12, "new")).topics] == [5], "nobody leads it yet"
        cluster.topics(new={0: led(9)})
        (topic,) = (await metadata(door, 12, "new")).topics
        assert (topic.error_code, topic.partitions[0].leader_id) == (0, 9)
        assert len(creates.asked) == 1
        (unmade,) = (await metadata(door, 12, "other", allow_auto_topic_creation=False)).topics
        assert unmade.error_code == 3

    play(story, cluster=cluster.view)


def test_an_answer_waits_for_a_creation_only_so_long_and_nothing_is_begun_twice() -> None:
    async def story() -> None:
        creates = Creates()
        making = TopicCreations(creates, patience_s=0.01)
        assert {name: why.code for name, why in (await making.make([NewTopic("a", 1)])).items()} == {"a": 5}
        again = await making.make([NewTopic("a", 1), NewTopic("b", 1)])
        assert [why.code for why in again.values()] == [5, 5]
        assert creates.asked == [["a"], ["b"]]
        creates.ends[0].set_result([TopicAlreadyExists("another node was first")])
        await until(lambda: len(making.under_way) == 1)
        many = [NewTopic(f"n{number}", 1) for number in range(MAX_CREATIONS)]
        assert len(await making.make(many)) == MAX_CREATIONS
        assert len(creates.asked[-1]) == MAX_CREATIONS - 1, "what waits is bounded"
        failing = asyncio.create_task(making.make([NewTopic("b", 1)]))
        await asyncio.sleep(0)
        creates.ends[1].set_exception(OSError("a bug"))
        with pytest.raises(OSError):
            await failing
        creates.ends[2].set_result([StorageError("no")] * (MAX_CREATIONS - 1))
        await until(lambda: not making.under_way)

    asyncio.run(story())


def test_another_node_that_was_first_with_a_topic_is_no_refusal() -> None:
    async def story() -> None:
        async def create(wanted: Sequence[NewTopic]) -> list[Any]:
            return [TopicAlreadyExists("another node was first")]

        assert {name: why.code for name, why in (await TopicCreations(create).make([NewTopic("a", 1)])).items()} == {
            "a": 5
        }

    asyncio.run(story())


@pytest.mark.parametrize("version", range(2))
def test_describe_cluster_has_the_nodes_and_their_racks(version: int) -> None:
    async def story(door: Door) -> None:
        answer = await door.ask("DescribeCluster", version, include_cluster_authorized_operations=True)
        assert (answer.error_code, answer.error_message, answer.cluster_id) == (0, None, door.broker.cluster_id)
        assert answer.controller_id == OTHERS[0]
        assert [(each.broker_id, each.host, each.port, each.rack) for each in answer.brokers] == [
            (each, f"node-{each}.example", 9092, f"rack-{each}") for each in ALL
        ]
        assert answer.cluster_authorized_operations > 0

    play(story, cluster=ThreeNodes().view)


@pytest.mark.parametrize("version", range(2))
def test_a_node_on_its_own_describes_itself(version: int) -> None:
    async def story(door: Door) -> None:
        answer = await door.ask("DescribeCluster", version)
        assert (answer.error_code, answer.controller_id, answer.cluster_id) == (0, ME, door.broker.cluster_id)
        assert [(each.broker_id, each.host, each.port, each.rack) for each in answer.brokers] == [
            (ME, "muster.example", 9092, None)
        ]
        assert answer.cluster_authorized_operations == -(1 << 31)

    play(story)


@pytest.mark.parametrize(("kind", "code"), [(2, 114), (3, 115), (0, 115)])
def test_who_looks_for_controllers_hears_that_these_are_brokers(kind: int, code: int) -> None:
    async def story(door: Door) -> None:
        answer = await door.ask("DescribeCluster", 1, endpoint_type=kind)
        assert (answer.error_code, list(answer.brokers)) == (code, [])
        assert answer.error_message

    play(story)


@pytest.mark.parametrize("names", [(), ("large",)])
def test_very_many_partitions_are_told_of_in_slices(names: Sequence[str]) -> None:
    """10,000 of them took 22 ms of the node's loop."""
    cluster = ThreeNodes()
    cluster.topics(t={0: led(ME)}, large={number: led(ALL[number % 3]) for number in range(5 * AT_ONCE)})

    async def story(door: Door) -> None:
        asked = metadata(door, 12, *names) if names else door.ask("Metadata", 12, topics=None)
        asking = asyncio.ensure_future(asked)
        assert await turns_of_others(asking) >= 5
        [large] = [topic for topic in asking.result().topics if topic.name == "large"]
        assert [(part.partition_index, part.leader_id) for part in large.partitions] == [
            (number, ALL[number % 3]) for number in range(5 * AT_ONCE)
        ]

    play(story, cluster=cluster.view)
