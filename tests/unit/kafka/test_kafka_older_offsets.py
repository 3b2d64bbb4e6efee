"""OffsetCommit 0 and 1, OffsetFetch 0: positions of clients of Kafka 0.8, in ZooKeeper or in the log."""

import asyncio
from collections.abc import Mapping
from typing import Any

from muster.coordinator.core.model.effects import OffsetCommitReply
from muster.coordinator.core.model.events import GroupObserved, ObservedMember, OffsetCommit
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.kafka.codec.codec import decode_frame, struct
from muster.coordinator.kafka.dispatch import ClientPeer, EncodedAnswer, KafkaCall
from muster.coordinator.kafka.handlers.committed_offsets import CommittedOffsetHandlers
from muster.coordinator.kafka.handlers.group_requests import GroupRequests
from muster.coordinator.kafka.handlers.offset_commit_reader import make_commit
from tests.support.kafka.door import OneShard
from tests.unit.storage.logs import T0

CATALOG = {"t": 2}


class KeptInZooKeeper:
    def __init__(self) -> None:
        self.kept: dict[tuple[str, int], int] = {}
        self.away = False

    def knows(self, group_id: str) -> bool:
        return group_id == "known"

    async def positions(self, group_id: str) -> Mapping[tuple[str, int], int]:
        if self.away:
            raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "ZooKeeper cannot be reached")
        return self.kept

    async def commit_positions(self, group_id: str, positions: Mapping[tuple[str, int], int]) -> OffsetCommitReply:
        if self.away:
            return OffsetCommitReply(ErrorCode.COORDINATOR_NOT_AVAILABLE, "ZooKeeper cannot be reached")
        self.kept.update(positions)
        return OffsetCommitReply()


def call(version: int) -> KafkaCall:
    return KafkaCall(version, "old", ClientPeer("127.0.0.1", asyncio.get_running_loop().create_future()))


def decoded(name: str, version: int, answer: Any) -> Any:
    assert isinstance(answer, EncodedAnswer)
    return decode_frame(name, version, b"".join(answer.body))


async def commit(handlers: CommittedOffsetHandlers, version: int, *places: tuple[str, int, int]) -> list[int]:
    path = "OffsetCommitRequest.topics"
    rows = [
        struct(path)(name=topic, partitions=[struct(f"{path}.partitions")(partition_index=one, committed_offset=at)])
        for topic, one, at in places
    ]
    asked = make_commit(struct("OffsetCommitRequest")(group_id="g", topics=rows))
    assert handlers.offset_commit_now(asked, call(version)) is None, "ZooKeeper takes its time"
    answer = decoded("OffsetCommitResponse", version, await handlers.offset_commit(asked, call(version)))
    return [one.error_code for topic in answer.topics for one in topic.partitions]


async def fetched(handlers: CommittedOffsetHandlers, version: int, group: str = "g") -> list[tuple[int, int, int]]:
    topics = [struct("OffsetFetchRequest.topics")(name="t", partition_indexes=[0, 1])]
    asked = struct("OffsetFetchRequest")(group_id=group, topics=topics)
    answer = decoded("OffsetFetchResponse", version, await handlers.offset_fetch(asked, call(version)))
    return [
        (one.partition_index, one.committed_offset, one.error_code)
        for topic in answer.topics
        for one in topic.partitions
    ]


def handlers_with(elsewhere: KeptInZooKeeper | None) -> CommittedOffsetHandlers:
    return CommittedOffsetHandlers(GroupRequests(OneShard(), 1), lambda: CATALOG, lambda *_: (0, 9), elsewhere)


def test_version_0_lies_in_zookeeper_and_the_log_has_nothing_of_it() -> None:
    async def story() -> None:
        zookeeper = KeptInZooKeeper()
        handlers = handlers_with(zookeeper)
        assert await fetched(handlers, 0) == [(0, -1, 3), (1, -1, 3)], "as Kafka told it: nothing is known of them"
        assert await commit(handlers, 0, ("t", 0, 5), ("t", 7, 1), ("u", 0, 1)) == [0, 3, 3]
        assert zookeeper.kept == {("t", 0): 5}
        assert await fetched(handlers, 0) == [(0, 5, 0), (1, -1, 3)]
        assert await fetched(handlers, 1) == [(0, -1, 0), (1, -1, 0)]

    asyncio.run(story())


def test_consumers_of_that_era_are_answered_from_the_log_alone_and_others_get_the_larger() -> None:
    """GC-O6. Versions 1 and 2 are what a consumer of the ZooKeeper era asks with `offsets.storage=kafka`: where it was
    rewound to counts, and not what it left behind in ZooKeeper. With `dual.commit.enabled` it compares both itself."""

    async def story() -> None:
        zookeeper, driver = KeptInZooKeeper(), OneShard()
        handlers = CommittedOffsetHandlers(GroupRequests(driver, 1), lambda: CATALOG, lambda *_: (0, 99), zookeeper)
        member = ObservedMember("known_m", ("t",))
        driver.shard.step(GroupObserved("known", (member,)), T0)
        zookeeper.kept = {("t", 0): 50, ("t", 1): 50}
        rewound = {("t", 0): (20, -1, ""), ("t", 1): (60, -1, "")}
        driver.shard.step(OffsetCommit(7, "known", "", None, -1, rewound), T0)
        for version in (1, 2):
            assert await fetched(handlers, version, "known") == [(0, 20, 0), (1, 60, 0)]
        assert await fetched(handlers, 3, "known") == [(0, 50, 0), (1, 60, 0)]
        everything = struct("OffsetFetchRequest")(group_id="known", topics=None)
        answer = decoded("OffsetFetchResponse", 2, await handlers.offset_fetch(everything, call(2)))
        assert {one.committed_offset for topic in answer.topics for one in topic.partitions} == {50, 60}

    asyncio.run(story())


def test_a_zookeeper_that_is_away_is_told_for_each_partition() -> None:
    async def story() -> None:
        zookeeper = KeptInZooKeeper()
        handlers = handlers_with(zookeeper)
        zookeeper.away = True
        assert await commit(handlers, 0, ("t", 0, 5)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert {code for _, _, code in await fetched(handlers, 0)} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}

    asyncio.run(story())


def test_without_a_zookeeper_version_0_reads_the_log() -> None:
    async def story() -> None:
        assert await fetched(handlers_with(None), 0) == [(0, -1, 3), (1, -1, 3)]

    asyncio.run(story())
