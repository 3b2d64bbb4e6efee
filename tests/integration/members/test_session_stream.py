"""The Session stream by behaviour, spoken by hand: what is pushed, what ends it, what it may not do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from tests.integration.conftest import Run
from tests.support.grpc_node import connected, create_topic, groups, lone_member, parked_join, state_of
from tests.support.stubs import GroupCoordinatorStub

pytestmark = pytest.mark.integration


class Talk:
    """One stream of one member."""

    def __init__(self, stub: GroupCoordinatorStub) -> None:
        self.call = stub.Session()
        self.heard = 0

    async def say(self, **request: object) -> None:
        await self.call.write(pb.SessionRequest(acknowledged=self.heard, **request))  # type: ignore[arg-type]

    async def hear(self) -> pb.SessionResponse:
        response = await self.call.read()
        assert isinstance(response, pb.SessionResponse), "the stream has ended"
        assert response.sequence_number == self.heard + 1
        self.heard = response.sequence_number
        return response

    async def greet(self, member_id: str) -> pb.SessionWelcome:
        await self.say(hello=pb.SessionHello(group_id="g", member_id=member_id))
        return (await self.hear()).welcome

    async def heartbeat(self, number: int, generation: int = 1) -> None:
        await self.say(request_number=number, heartbeat=pb.HeartbeatRequest(generation_id=generation))

    async def ended(self) -> grpc.StatusCode:
        assert await self.call.read() is grpc.aio.EOF
        return await self.call.code()


@asynccontextmanager
async def talking(stub: GroupCoordinatorStub, member_id: str) -> AsyncIterator[Talk]:
    talk = Talk(stub)
    await talk.greet(member_id)
    yield talk
    talk.call.cancel()


def test_heartbeats_ride_on_it_and_a_rebalance_is_pushed_once(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with groups(tmp_path) as (_node, stub):
            member_id = await lone_member(stub)
            async with talking(stub, member_id) as talk:
                await talk.heartbeat(7)
                answer = await talk.hear()
                assert (answer.request_number, answer.WhichOneof("event")) == (7, "heartbeat")
                assert answer.heartbeat.error_code == 0
                newcomer = await parked_join(stub)
                push = await talk.hear()
                assert (push.request_number, push.WhichOneof("event")) == (0, "rebalance")
                assert push.rebalance.error_code == ErrorCode.REBALANCE_IN_PROGRESS
                assert push.rebalance.generation_id == 1
                await talk.heartbeat(8)
                assert (await talk.hear()).heartbeat.error_code == ErrorCode.REBALANCE_IN_PROGRESS
                newcomer.cancel()

    run(story)


def test_a_heartbeat_without_a_number_is_answered_only_if_there_is_something_to_say(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with groups(tmp_path) as (_node, stub), talking(stub, await lone_member(stub)) as talk:
            await talk.heartbeat(0)
            await talk.heartbeat(1)
            assert (await talk.hear()).request_number == 1
            await talk.heartbeat(0, generation=9)
            push = await talk.hear()
            assert push.fenced.error_code == ErrorCode.ILLEGAL_GENERATION
            assert push.fenced.generation_id == 9

    run(story)


def test_who_is_removed_hears_of_it_at_once(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with groups(tmp_path) as (_node, stub), talking(stub, await lone_member(stub)) as talk:
            await talk.heartbeat(1)
            await talk.hear()
            await stub.RemoveMembers(pb.RemoveMembersRequest(group_id="g", reason="enough"))
            push = await talk.hear()
            assert push.fenced.error_code == ErrorCode.UNKNOWN_MEMBER_ID

    run(story)


def test_a_broken_stream_shortens_the_session_to_the_grace_and_a_closed_one_does_not(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with groups(tmp_path, group_reconnect_grace_ms="1") as (_node, stub):
            member_id = await lone_member(stub)
            async with talking(stub, member_id) as talk:
                await talk.heartbeat(1)
                await talk.hear()
                await talk.call.done_writing()
                assert await talk.ended() is grpc.StatusCode.OK
            alive = await stub.Heartbeat(pb.HeartbeatRequest(group_id="g", member_id=member_id, generation_id=1))
            assert alive.error_code == 0
            async with talking(stub, member_id) as talk:
                await talk.heartbeat(1)
                await talk.hear()
            while await state_of(stub) != "Empty":
                pass
            explained = await stub.ExplainGroup(pb.ExplainGroupRequest(group_id="g", limit=1))
            assert explained.rebalances[0].culprit == member_id

    run(story)


def test_a_second_stream_of_the_same_member_ends_the_first(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with groups(tmp_path, group_reconnect_grace_ms="1") as (_node, stub):
            member_id = await lone_member(stub)
            async with talking(stub, member_id) as first, talking(stub, member_id) as second:
                assert "another session" in (await first.hear()).drain.reason
                assert await first.ended() is grpc.StatusCode.OK
                await second.heartbeat(1)
                assert (await second.hear()).heartbeat.error_code == 0

    run(story)


def test_a_node_that_stops_says_so(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with groups(tmp_path) as (node, stub), talking(stub, await lone_member(stub)) as talk:
            await talk.heartbeat(1)
            await talk.hear()
            stopping = asyncio.create_task(node.stop())
            assert "find the coordinator again" in (await talk.hear()).drain.reason
            assert await talk.ended() is grpc.StatusCode.OK
            await stopping

    run(story)


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (pb.SessionRequest(), None, "hello is missing"),
        (pb.SessionRequest(hello=pb.SessionHello(member_id="m")), None, "hello.group_id is empty"),
        (pb.SessionRequest(hello=pb.SessionHello(group_id="g")), None, "hello.member_id is empty"),
        (
            pb.SessionRequest(hello=pb.SessionHello(group_id="g", member_id="m")),
            pb.SessionRequest(hello=pb.SessionHello(group_id="g", member_id="m")),
            "hello was sent twice",
        ),
        (
            pb.SessionRequest(hello=pb.SessionHello(group_id="g", member_id="m")),
            pb.SessionRequest(heartbeat=pb.HeartbeatRequest(member_id="x")),
            "member_id is 'x'; this session belongs to 'm'",
        ),
        (
            pb.SessionRequest(hello=pb.SessionHello(group_id="g", member_id="m")),
            pb.SessionRequest(),
            "request is empty",
        ),
    ],
)
def test_a_stream_that_breaks_its_own_shape_is_refused(
    tmp_path: Path, run: Run, first: pb.SessionRequest, second: pb.SessionRequest | None, says: str
) -> None:
    async def story() -> None:
        async with groups(tmp_path) as (_node, stub):
            call = stub.Session()
            await call.write(first)
            if second is not None:
                await call.write(second)
            with pytest.raises(grpc.aio.AioRpcError, match=says) as refused:
                async for _ in call:
                    pass
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    run(story)


def test_a_kip_848_member_hears_nothing_more_before_it_has_acknowledged(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        none_between = {"group_consumer_assignment_interval_ms": "0"}
        async with groups(tmp_path, **none_between) as (node, stub), connected(node) as channel:
            await create_topic(channel, "t", 2)
            joined = await stub.ConsumerGroupHeartbeat(joining("one"))
            topic_id = joined.assignment.topic_partitions[0].topic_id
            async with talking(stub, "one") as talk:
                await talk.say(request_number=1, consumer_group_heartbeat=saying(2, topic_id, owned=(0, 1), full=True))
                assert (await talk.hear()).consumer_group_heartbeat.member_epoch == 2
                heard = talk.heard
                await stub.ConsumerGroupHeartbeat(joining("two"))
                push = await talk.hear()
                assert (push.request_number, partitions_of(push)) == (0, [0])
                # Sent before the push was heard: left aside, and not answered. The next one is.
                talk.heard, now = heard, talk.heard
                await talk.say(request_number=2, consumer_group_heartbeat=saying(2, topic_id, owned=(0,)))
                talk.heard = now
                await talk.say(request_number=3, consumer_group_heartbeat=saying(2, topic_id, owned=(0, 1), full=True))
                answer = await talk.hear()
                assert (answer.request_number, answer.consumer_group_heartbeat.member_epoch) == (3, 2)
                await talk.say(request_number=4, consumer_group_heartbeat=saying(2, topic_id, owned=(0,)))
                assert (await talk.hear()).consumer_group_heartbeat.member_epoch == 3

    run(story)


def joining(member_id: str) -> pb.ConsumerGroupHeartbeatRequest:
    request = saying(0, b"", owned=(), full=True)
    request.group_id, request.member_id = "g", member_id
    return request


def saying(
    epoch: int, topic_id: bytes, *, owned: tuple[int, ...], full: bool = False
) -> pb.ConsumerGroupHeartbeatRequest:
    request = pb.ConsumerGroupHeartbeatRequest(member_epoch=epoch, topic_partitions=pb.ConsumerAssignment())
    if owned:
        request.topic_partitions.topic_partitions.add(topic_id=topic_id, partitions=owned)
    if full:
        request.rebalance_timeout_ms = 60_000
        request.subscribed_topic_names.names.append("t")
    return request


def partitions_of(response: pb.SessionResponse) -> list[int]:
    topics = response.consumer_group_heartbeat.assignment.topic_partitions
    return [number for topic in topics for number in topic.partitions]


def test_sessions_are_limited(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with groups(tmp_path, max_sessions="1") as (_node, stub), talking(stub, "one"):
            call = stub.Session()
            await call.write(pb.SessionRequest(hello=pb.SessionHello(group_id="g", member_id="two")))
            with pytest.raises(grpc.aio.AioRpcError, match="as many as this node keeps") as refused:
                async for _ in call:
                    pass
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    run(story)
