"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments in every version (CL-A5, CL-A8), and who
may."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, ClassVar

import pytest

from muster.coordinator.edge.listener_base import OperatorAction
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.authorization.guard import HandlerGuard
from muster.coordinator.kafka.authorization.judge import NodeTopics
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import Dispatcher
from muster.coordinator.kafka.handlers.cluster_backend import PartitionAdminHandlers
from muster.coordinator.kafka.protocol import APIS
from muster.coordinator.replication.io.admin.cluster_admin import Reassignment
from muster.coordinator.replication.protocol.cluster_metadata import TopicPartition
from muster.coordinator.security.access_model import Operation, ResourceType
from tests.support.cluster_image import ThreeNodes
from tests.support.kafka.asked import Asked
from tests.support.kafka.rights import ALICE, ROOT, acl, authorizer, codes

NAMES = ("ElectLeaders", "AlterPartitionReassignments", "ListPartitionReassignments")
OWN = [api for api in APIS if api.name in NAMES]
T0, T1, O0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("o", 0)


class RecordedRequests:
    """Answers what a test says, and notes what it was asked."""

    def __init__(self, **found: ErrorCode) -> None:
        self.found = {TopicPartition(name[0], int(name[1])): code for name, code in found.items()}
        self.asked: list[Any] = []
        self.moving: dict[TopicPartition, Reassignment] = {}

    async def elect(
        self, places: Iterable[TopicPartition] | None, unclean: bool = False, timeout_ms: int = -1
    ) -> Mapping[TopicPartition, ErrorCode]:
        self.asked.append((places, unclean, timeout_ms))
        return self.found if places is None else {each: self.found[each] for each in places}

    async def reassign(
        self, wanted: Mapping[TopicPartition, tuple[int, ...] | None], timeout_ms: int = -1
    ) -> Mapping[TopicPartition, ErrorCode]:
        self.asked.append((wanted, timeout_ms))
        return {each: self.found[each] for each in wanted}

    def reassignments(self, places: Iterable[TopicPartition] | None = None) -> Mapping[TopicPartition, Reassignment]:
        return {place: one for place, one in self.moving.items() if places is None or place in places}


class Played:
    def __init__(self, requests: RecordedRequests, asked: Asked, told: list[OperatorAction]) -> None:
        self.requests, self.ask, self.told = requests, asked, told

    async def elect(self, version: int, *places: TopicPartition, all_of_them: bool = False, **more: Any) -> Any:
        made = struct("ElectLeadersRequest.topic_partitions")
        rows = [made(topic=each.topic, partitions=[each.partition]) for each in places]
        return await self.ask("ElectLeaders", version, topic_partitions=None if all_of_them else rows, **more)

    async def reassign(self, version: int, wanted: Mapping[TopicPartition, list[int] | None], **more: Any) -> Any:
        made, part = (struct(f"AlterPartitionReassignmentsRequest.topics{of}") for of in ("", ".partitions"))
        topics = [
            made(name=each.topic, partitions=[part(partition_index=each.partition, replicas=ids)])
            for each, ids in wanted.items()
        ]
        return await self.ask("AlterPartitionReassignments", version, topics=topics, **more)


def play(requests: RecordedRequests, story: Callable[[Played], Awaitable[None]], who: str = ROOT, *acls: Any) -> None:
    async def run() -> None:
        told: list[OperatorAction] = []
        guard = HandlerGuard(authorizer(acls), NodeTopics(dict, auto_create=False))
        dispatch = Dispatcher([PartitionAdminHandlers(requests, ThreeNodes().view)], None, told.append, guard, apis=OWN)
        await story(Played(requests, Asked(dispatch, who), told))

    asyncio.run(run())


def rows(answer: Any) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.topic, part.partition_id): part.error_code
        for topic in answer.replica_election_results
        for part in topic.partition_result
    }


@pytest.mark.parametrize("version", range(3))
def test_elections_are_answered_partition_by_partition(version: int) -> None:
    async def story(played: Played) -> None:
        answer = await played.elect(version, T0, T1, O0, timeout_ms=7)
        assert rows(answer) == {T0: 0, T1: 84, O0: 80}
        assert answer.error_code == 0
        assert played.requests.asked == [([T0, T1, O0], False, 7)]
        told = {part.error_message for topic in answer.replica_election_results for part in topic.partition_result}
        assert None in told
        assert len(told) == 3
        assert [(one.what, one.of, one.refused) for one in played.told] == [("ElectLeaders", "t,t,o", 2)]
        assert rows(await played.elect(version, all_of_them=True)) == {T0: 0, T1: 84, O0: 80}
        assert played.requests.asked[1] == (None, False, 60_000)

    found = {"t0": ErrorCode.NONE, "t1": ErrorCode.ELECTION_NOT_NEEDED, "o0": ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    play(RecordedRequests(**found), story)


@pytest.mark.parametrize("version", [1, 2])
def test_an_unclean_election_names_its_partition(version: int) -> None:
    async def story(played: Played) -> None:
        answer = await played.elect(version, T0, election_type=1)
        assert rows(answer) == {T0: 83}
        assert played.requests.asked == [([T0], True, 60_000)]
        assert (await played.elect(version, all_of_them=True, election_type=1)).error_code == 42
        assert (await played.elect(version, T0, election_type=2)).error_code == 42
        assert len(played.requests.asked) == 1

    play(RecordedRequests(t0=ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE), story)


@pytest.mark.parametrize("version", range(2))
def test_reassignments_are_answered_partition_by_partition(version: int) -> None:
    async def story(played: Played) -> None:
        answer = await played.reassign(version, {T0: [8, 9], O0: None}, timeout_ms=-3)
        assert [(topic.name, [part.error_code for part in topic.partitions]) for topic in answer.responses] == [
            ("t", [0]),
            ("o", [85]),
        ]
        assert answer.responses[0].partitions[0].error_message is None
        assert played.requests.asked == [({T0: (8, 9), O0: None}, 0)]
        assert [(one.what, one.refused) for one in played.told] == [("AlterPartitionReassignments", 1)]

    play(RecordedRequests(t0=ErrorCode.NONE, o0=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS), story)


def test_the_number_of_replicas_stays_where_the_request_says_so() -> None:
    async def story(played: Played) -> None:
        answer = await played.reassign(1, {T0: [8, 9], T1: [9, 8, 7]}, allow_replication_factor_change=False)
        assert [part.error_code for topic in answer.responses for part in topic.partitions] == [38, 0]
        assert played.requests.asked == [({T1: (9, 8, 7)}, 60_000)]

    play(RecordedRequests(t1=ErrorCode.NONE), story)


def test_what_is_under_way_is_listed() -> None:
    async def story(played: Played) -> None:
        played.requests.moving = {T0: Reassignment((8, 9, 7), (8,), (7,)), O0: Reassignment((7, 8), (), (8,))}
        everything = await played.ask("ListPartitionReassignments", 0, topics=None)
        assert [topic.name for topic in everything.topics] == ["t", "o"]
        (part,) = everything.topics[0].partitions
        assert (part.partition_index, part.replicas, part.adding_replicas, part.removing_replicas) == (
            0,
            [8, 9, 7],
            [8],
            [7],
        )
        wanted = struct("ListPartitionReassignmentsRequest.topics")(name="o", partition_indexes=[0, 5])
        some = await played.ask("ListPartitionReassignments", 0, topics=[wanted])
        assert [topic.name for topic in some.topics] == ["o"]
        assert played.told == []

    play(RecordedRequests(), story)


class Requests:
    OF: ClassVar = {
        "ElectLeaders": lambda played, version: played.elect(version, T0),
        "AlterPartitionReassignments": lambda played, version: played.reassign(version, {T0: [8]}),
        "ListPartitionReassignments": lambda played, version: played.ask("ListPartitionReassignments", version),
    }


@pytest.mark.parametrize("api", OWN, ids=lambda api: api.name)
def test_who_may_not_alter_or_look_at_the_cluster_hears_31(api: Any) -> None:
    right = Operation.DESCRIBE if api.name.startswith("List") else Operation.ALTER
    for version in range(api.first, api.last + 1):

        async def refused(played: Played, version: int = version) -> None:
            answer = await Requests.OF[api.name](played, version)
            assert set(codes(answer)) == ({31, 0} if (api.name, version) == ("ElectLeaders", 0) else {31})
            assert played.requests.asked == []

        async def allowed(played: Played, version: int = version) -> None:
            assert 31 not in set(codes(await Requests.OF[api.name](played, version)))

        play(RecordedRequests(t0=ErrorCode.NONE), refused, ALICE)
        play(RecordedRequests(t0=ErrorCode.NONE), allowed, ALICE, acl(right, ResourceType.CLUSTER))
