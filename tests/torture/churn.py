"""What comes and goes at a node, through both doors: each is a coroutine that leaves nothing behind when it returns.

Names are never used twice, so that whatever a node keeps of what has gone adds up.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

import grpc

from muster.assignors.data.consumer_protocol import Subscription, encode_assignment, encode_subscription
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.storage.rpc.v1 import broker_service_pb2 as log_pb
from tests.support.kafka.client import KafkaClient
from tests.support.kafka.node import create_topic, join
from tests.support.pace import pace
from tests.support.stubs import BrokerStub, GroupCoordinatorStub

SUBSCRIPTION = encode_subscription(Subscription(version=1, topics=("t",)))
SHARE = encode_assignment({"t": [0]})
MANY = 150_000
"""More entries than any list of a request may have."""

LEAVING = -1
"""The epoch by which a member of KIP-848 says good-bye."""

PATIENCE_S = 30.0
LATE = "ran out of time"
"""How a piece of work is counted that the machine had no time for: what it left is the node's to clean up."""


class Churn:
    """One of each kind after the other, as long as it is let. `done` counts them."""

    def __init__(self, grpc_address: str, kafka_address: str) -> None:
        self.done: Counter[str] = Counter()
        self.doors = [address_of(grpc_address), address_of(kafka_address)]
        self._grpc = grpc_address
        self._numbers = itertools.count()

    async def run(self, over: Callable[[], bool], workers: int = 2) -> None:
        """Go on until `over`. What one of them raises ends all."""
        async with asyncio.TaskGroup() as tasks:
            for kind in KINDS:
                for _ in range(workers):
                    tasks.create_task(self._repeat(kind, over))

    async def _repeat(self, kind: "Kind", over: Callable[[], bool]) -> None:
        while not over():
            try:
                await self._some(kind)
            except TimeoutError:
                self.done[LATE] += 1
            await asyncio.sleep(PAUSES_S.get(kind.__name__, 0.01))

    async def _some(self, kind: "Kind") -> None:
        async with asyncio.timeout(PATIENCE_S * pace()), grpc.aio.insecure_channel(self._grpc) as channel:
            for _ in range(10):
                await kind(self, channel)
                self.done[kind.__name__] += 1

    def fresh(self, what: str) -> str:
        return f"{what}-{next(self._numbers)}"

    def kafka(self) -> KafkaClient:
        return KafkaClient(*self.doors[1], client_id=self.fresh("client"))


def address_of(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


Kind = Callable[[Churn, grpc.aio.Channel], Awaitable[None]]


def joining(group: str, member_id: str = "") -> pb.JoinGroupRequest:
    return pb.JoinGroupRequest(
        group_id=group,
        member_id=member_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[pb.JoinGroupProtocol(name="range", metadata=SUBSCRIPTION)],
        client_id="soak",
    )


async def joined(stub: GroupCoordinatorStub, group: str) -> pb.JoinGroupResponse:
    answer = await stub.JoinGroup(joining(group))
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = await stub.JoinGroup(joining(group, answer.member_id))
    assert not answer.error_code, answer
    return answer


async def groups_live_and_go(churn: Churn, channel: grpc.aio.Channel) -> None:
    """A member joins, plans, commits and leaves; the group is deleted."""
    stub, group = GroupCoordinatorStub(channel), churn.fresh("group")
    told = await joined(stub, group)
    who = {"group_id": group, "member_id": told.member_id, "generation_id": told.generation_id}
    plan = [pb.SyncGroupAssignment(member_id=told.member_id, assignment=SHARE)]
    assert not (await stub.SyncGroup(pb.SyncGroupRequest(**who, assignments=plan))).error_code
    assert not (await stub.Heartbeat(pb.HeartbeatRequest(**who))).error_code
    row = pb.OffsetCommitPartition(partition_index=0, committed_offset=1)
    await stub.OffsetCommit(
        pb.OffsetCommitRequest(
            group_id=group,
            member_id=told.member_id,
            generation_id_or_member_epoch=told.generation_id,
            topics=[pb.OffsetCommitTopic(name="t", partitions=[row])],
        )
    )
    members = [pb.MemberIdentity(member_id=told.member_id)]
    assert not (await stub.LeaveGroup(pb.LeaveGroupRequest(group_id=group, members=members))).error_code
    gone = await stub.DeleteGroups(pb.DeleteGroupsRequest(groups_names=[group]))
    assert not gone.results[0].error_code, gone


async def topics_come_and_go(churn: Churn, channel: grpc.aio.Channel) -> None:
    stub, topic = BrokerStub(channel), churn.fresh("topic")
    made = await stub.CreateTopics(log_pb.CreateTopicsRequest(topics=[log_pb.NewTopic(name=topic, num_partitions=2)]))
    assert not made.topics[0].error_code, made
    gone = await stub.DeleteTopics(log_pb.DeleteTopicsRequest(topic_names=[topic]))
    assert not gone.topics[0].error_code, gone


async def calls_are_cancelled(churn: Churn, channel: grpc.aio.Channel) -> None:
    """Somebody waits for a group to form, watches one, opens a stream: and is gone without a word."""
    stub, group = GroupCoordinatorStub(channel), churn.fresh("cancelled")
    first = await joined(stub, group)
    calls = [
        stub.JoinGroup(joining(group)),
        stub.WatchGroup(pb.WatchGroupRequest(group_id=group)),
        stub.Session(),
        *(stub.Heartbeat(pb.HeartbeatRequest(group_id=group)) for _ in range(20)),
    ]
    await asyncio.sleep(0.01)
    for call in calls:
        call.cancel()
    await stub.RemoveMembers(pb.RemoveMembersRequest(group_id=group))
    await stub.LeaveGroup(pb.LeaveGroupRequest(group_id=group, members=[pb.MemberIdentity(member_id=first.member_id)]))
    await stub.DeleteGroups(pb.DeleteGroupsRequest(groups_names=[group]))


async def requests_are_refused(churn: Churn, channel: grpc.aio.Channel) -> None:
    """Lists too long, groups that are not there, protocols that nobody has."""
    stub, group = GroupCoordinatorStub(channel), churn.fresh("nobody")
    request = joining(group)
    del request.protocols[:]
    assert (await stub.JoinGroup(request)).error_code
    assert (await stub.SyncGroup(pb.SyncGroupRequest(group_id=group, member_id="m", generation_id=1))).error_code
    many = pb.OffsetFetchRequest(group_id=group, topics=[pb.OffsetFetchTopic(name="t", partition_indexes=range(MANY))])
    with suppress(grpc.aio.AioRpcError):
        await stub.OffsetFetch(many)
        raise AssertionError("a list of 150,000 was taken")


async def kafkas_requests_are_refused(churn: Churn, channel: grpc.aio.Channel) -> None:
    async with churn.kafka() as client:
        topic = struct("OffsetFetchRequest.topics")(name="t", partition_indexes=list(range(MANY)))
        answer = await client.ask("OffsetFetch", 5, group_id=churn.fresh("nobody"), topics=[topic])
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        client.send("Metadata", 9, topics=[struct("MetadataRequest.topics")(name="t")] * (MANY // 10))
        await client.receive()


async def kafkas_members_vanish(churn: Churn, channel: grpc.aio.Channel) -> None:
    """A connection comes, joins a group, parks a second request, and breaks."""
    group = churn.fresh("vanishing")
    range_ = struct("JoinGroupRequest.protocols")(name="range", metadata=SUBSCRIPTION)
    fields = {
        "group_id": group,
        "session_timeout_ms": 6_000,
        "rebalance_timeout_ms": 6_000,
        "protocol_type": "consumer",
        "protocols": [range_],
    }
    async with churn.kafka() as client, churn.kafka() as other:
        told = await client.ask("JoinGroup", 3, member_id="", **fields)
        other.send("JoinGroup", 3, struct("JoinGroupRequest")(member_id="", **fields))
        other.send("Fetch", 11, struct("FetchRequest")(max_wait_ms=100))
        await client.ask("Heartbeat", 3, group_id=group, generation_id=told.generation_id, member_id=told.member_id)
        await client.ask("LeaveGroup", 2, group_id=group, member_id=told.member_id)
    stub = GroupCoordinatorStub(channel)
    await stub.RemoveMembers(pb.RemoveMembersRequest(group_id=group))
    await stub.DeleteGroups(pb.DeleteGroupsRequest(groups_names=[group]))


async def consumer_groups_live_and_go(churn: Churn, channel: grpc.aio.Channel) -> None:
    """A member that is planned for (KIP-848) comes through one door and leaves by the other."""
    stub, group, member = GroupCoordinatorStub(channel), churn.fresh("planned"), churn.fresh("member")
    names = pb.SubscribedTopicNames(names=["t"])
    told = await stub.ConsumerGroupHeartbeat(
        pb.ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=names,
            topic_partitions=pb.ConsumerAssignment(),
        )
    )
    assert not told.error_code, told
    async with churn.kafka() as client:
        for epoch in (told.member_epoch, LEAVING):
            said = {"group_id": group, "member_id": member, "member_epoch": epoch}
            answer = await client.ask("ConsumerGroupHeartbeat", 1, **said)
            assert not answer.error_code, answer
    gone = await stub.DeleteGroups(pb.DeleteGroupsRequest(groups_names=[group]))
    # A look at what has expired, every ten minutes, takes a group that is empty and has no positions.
    assert gone.results[0].error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND), gone


async def kafkas_groups_live_and_go(churn: Churn, channel: grpc.aio.Channel) -> None:
    """As `groups_live_and_go`, by Kafka's door."""
    group = churn.fresh("kafka-group")
    async with churn.kafka() as client:
        told = await join(client, group_id=group, session_timeout_ms=10_000)
        assert not told.error_code, told
        who = {"group_id": group, "generation_id": told.generation_id, "member_id": told.member_id}
        share = struct("SyncGroupRequest.assignments")(member_id=told.member_id, assignment=SHARE)
        assert not (await client.ask("SyncGroup", 3, assignments=[share], **who)).error_code
        assert not (await client.ask("Heartbeat", 3, **who)).error_code
        row = struct("OffsetCommitRequest.topics.partitions")(partition_index=0, committed_offset=1)
        topic = struct("OffsetCommitRequest.topics")(name="t", partitions=[row])
        await client.ask(
            "OffsetCommit",
            7,
            group_id=group,
            member_id=told.member_id,
            generation_id_or_member_epoch=told.generation_id,
            topics=[topic],
        )
        assert not (await client.ask("LeaveGroup", 2, group_id=group, member_id=told.member_id)).error_code
        (gone,) = (await client.ask("DeleteGroups", 1, groups_names=[group])).results
        assert not gone.error_code, gone


async def kafkas_topics_come_and_go(churn: Churn, channel: grpc.aio.Channel) -> None:
    topic = churn.fresh("kafka-topic")
    async with churn.kafka() as client:
        await create_topic(client, topic, 2)
        (gone,) = (await client.ask("DeleteTopics", 5, topic_names=[topic], timeout_ms=10_000)).responses
        assert not gone.error_code, gone


async def connections_break(churn: Churn, channel: grpc.aio.Channel) -> None:
    """To each door: one that says nothing, one that breaks in the middle of a word, one that speaks no protocol."""
    for door in churn.doors:
        for said in (b"", b"\0\0\1", b"PRI * HTTP/2.0", b"GET / HTTP/1.1\r\n\r\n"):
            _, writer = await asyncio.open_connection(*door)
            writer.write(said)
            with suppress(ConnectionError):
                await writer.drain()
            writer.transport.abort()


KINDS: tuple[Kind, ...] = (
    groups_live_and_go,
    kafkas_groups_live_and_go,
    consumer_groups_live_and_go,
    topics_come_and_go,
    kafkas_topics_come_and_go,
    connections_break,
    calls_are_cancelled,
    requests_are_refused,
    kafkas_requests_are_refused,
    kafkas_members_vanish,
)
PAUSES_S = {
    "requests_are_refused": 0.5,
    "kafkas_requests_are_refused": 0.5,
    "topics_come_and_go": 0.1,
    "kafkas_topics_come_and_go": 0.1,
}
"""What is heavy comes less often, so that there is room for the others."""
