"""OffsetCommit 0 and 1, OffsetFetch 0: positions of clients of Kafka 0.8, in ZooKeeper or in the log."""

import asyncio
from collections.abc import Mapping
from typing import Any

from muster.coordinator.core.model.effects import OffsetCommitReply
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.kafka.codec.codec import decode_frame, struct
from muster.coordinator.kafka.dispatch import ClientPeer, EncodedAnswer, KafkaCall
from muster.coordinator.kafka.handlers.committed_offsets import CommittedOffsetHandlers
from muster.coordinator.kafka.handlers.group_requests import GroupRequests
from muster.coordinator.kafka.handlers.offset_commit_reader import make_commit
from tests.support.kafka.door import OneShard

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


async def fetched(handlers: CommittedOffsetHandlers, version: int) -> list[tuple[int, int, int]]:
    topics = [struct("OffsetFetchRequest.topics")(name="t", partition_indexes=[0, 1])]
    asked = struct("OffsetFetchRequest")(group_id="g", topics=topics)
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
