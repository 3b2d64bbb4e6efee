"""CreateTopics and CreatePartitions at a node that is one of three: copies, and on which nodes (CL-A2)."""

from collections.abc import Sequence
from typing import Any

import pytest

from muster.coordinator.replication.io.admin.topic_admin import PlannedTopics, TopicPlanner
from muster.coordinator.replication.protocol.cluster_metadata import ClusterTopic, ReplicaAssignment
from muster.storage.broker.requests import MorePartitions, NewTopic, TopicRequests
from muster.storage.types import Topic as Made
from tests.support.cluster_image import ThreeNodes, led, topic_id
from tests.support.kafka.door import Door, made, play

T = ClusterTopic("t", topic_id("t"), (ReplicaAssignment((7, 8, 9)),) * 3)


class Placed(TopicRequests):
    """Plans as a cluster does, and writes nothing: what is asked for is there at once."""

    def __init__(self, cluster: ThreeNodes, door: Door) -> None:
        super().__init__(door.broker, lambda: None)
        self.cluster = cluster
        self.planning = TopicPlanner(cluster.image, door.broker.settings, 2)
        self.asked: list[NewTopic | MorePartitions] = []

    def check_new(self, wanted: NewTopic) -> None:
        self.planning.new_topic(wanted, PlannedTopics())

    def check_growth(self, wanted: MorePartitions) -> None:
        self.planning.growth(T, wanted, PlannedTopics())

    async def create(self, wanted: Sequence[NewTopic]) -> list[Any]:
        self.asked += wanted
        for each in wanted:
            replicas = enumerate(self.planning.new_topic(each, PlannedTopics()))
            self.cluster.topics(**{each.name: {number: led(ids[0], replicas=ids) for number, ids in replicas}})
        return [Made(each.name, topic_id(each.name), each.partitions, {}) for each in wanted]

    async def grow(self, wanted: Sequence[Any]) -> list[Any]:
        self.asked += wanted
        return [Made("t", topic_id("t"), each.total, {}) for each in wanted]


def ask(story: Any) -> None:
    cluster = ThreeNodes()

    async def run(door: Door) -> None:
        door.requests.topics = placed = Placed(cluster, door)
        await story(door, placed)

    play(run, cluster=cluster.view)


def assigned(partition: int, *brokers: int) -> Any:
    return made("CreateTopicsRequest.topics.assignments", partition_index=partition, broker_ids=list(brokers))


async def create(door: Door, version: int, *topics: dict[str, Any], **more: Any) -> list[Any]:
    standard = {"num_partitions": -1, "replication_factor": -1}
    wanted = [made("CreateTopicsRequest.topics", **(standard | topic)) for topic in topics]
    return list((await door.ask("CreateTopics", version, topics=wanted, **more)).topics)


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_have_the_copies_that_are_asked_for_or_the_default(version: int) -> None:
    async def story(door: Door, placed: Placed) -> None:
        answers = await create(
            door,
            version,
            {"name": "a", "num_partitions": 2, "replication_factor": 3},
            {"name": "b"},
            {"name": "c", "assignments": [assigned(1, 9), assigned(0, 8)]},
        )
        assert [answer.error_code for answer in answers] == [0, 0, 0]
        if version >= 5:
            assert [(each.num_partitions, each.replication_factor) for each in answers] == [(2, 3), (1, 2), (2, 1)]
        assert placed.asked == [
            NewTopic("a", 2, {}, 3),
            NewTopic("b", 1, {}, -1),
            NewTopic("c", 2, {}, -1, {1: [9], 0: [8]}),
        ]

    ask(story)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ({"num_partitions": 1, "replication_factor": 4}, 38),
        ({"assignments": [assigned(0, 5)]}, 39),
        ({"assignments": [assigned(0, 7), assigned(0, 8)]}, 39),
        ({"assignments": [assigned(0, 7)], "num_partitions": 1}, 42),
        ({"num_partitions": 1, "replication_factor": 3}, 0),
    ],
)
def test_what_cannot_be_placed_is_refused_before_anything_is_written(topic: dict[str, Any], code: int) -> None:
    async def story(door: Door, placed: Placed) -> None:
        (answer,) = await create(door, 7, {"name": "a", **topic}, validate_only=True)
        assert (answer.error_code, placed.asked) == (code, [])
        assert answer.replication_factor == (-1 if code else 3)

    ask(story)


@pytest.mark.parametrize("version", range(4))
def test_new_partitions_may_say_where_they_go(version: int) -> None:
    async def story(door: Door, placed: Placed) -> None:
        part = "CreatePartitionsRequest.topics.assignments"
        cases = {(9, 8, 7): 0, (9, 8): 39, (9, 8, 5): 39}
        for brokers, code in cases.items():
            wanted = made(
                "CreatePartitionsRequest.topics", name="t", count=4, assignments=[made(part, broker_ids=list(brokers))]
            )
            answer = await door.ask("CreatePartitions", version, topics=[wanted])
            assert [each.error_code for each in answer.results] == [code], brokers
        assert placed.asked == [MorePartitions("t", 4, [[9, 8, 7]])]

    ask(story)
