"""The stream of a central group's member, spoken by hand: orders, their answers, what ends it, its bounds."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.node.node import CoordinatorNode
from tests.integration.conftest import Run
from tests.support.grpc_node import connected, create_topic, serving
from tests.support.stubs import GroupCoordinatorStub

pytestmark = pytest.mark.integration


class Talk:
    """One stream of one member."""

    def __init__(self, stub: GroupCoordinatorStub, member_id: str) -> None:
        self.call = stub.Session()
        self.member_id = member_id
        self.heard = 0

    async def say(self, **request: Any) -> None:
        await self.call.write(pb.SessionRequest(**request))

    async def hear(self) -> pb.SessionResponse:
        response = await self.call.read()
        assert isinstance(response, pb.SessionResponse), "the stream has ended"
        self.heard += 1
        assert response.sequence_number == self.heard
        return response

    async def order(self) -> pb.CentralOrder:
        return (await self.hear()).order

    async def register(self, **more: Any) -> pb.ConsumerRegistered:
        said: dict[str, Any] = {"group_id": "g", "session_timeout_ms": 30_000, "topics": ["t"], "assignor": "range"}
        await self.say(register_consumer=pb.RegisterConsumer(member_id=self.member_id, **(said | more)))
        return (await self.hear()).registered

    async def started(self) -> pb.StartFetcher:
        order = await self.order()
        await self.say(fetcher_started=pb.FetcherStarted(number=order.number))
        return order.start_fetcher

    async def ended(self) -> grpc.StatusCode:
        assert await self.call.read() is grpc.aio.EOF
        return await self.call.code()


@asynccontextmanager
async def node_with_a_topic(data: Path, **more: str) -> AsyncIterator[tuple[CoordinatorNode, GroupCoordinatorStub]]:
    async with serving(data, **more) as node, connected(node) as channel:
        await create_topic(channel, "t", 2)
        yield node, GroupCoordinatorStub(channel)


def test_orders_come_down_and_answers_go_up(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with node_with_a_topic(tmp_path) as (_node, stub):
            a, b = Talk(stub, "a"), Talk(stub, "b")
            assert (await a.register()).error_code == 0
            begun = await a.started()
            assert [(row.partition, row.HasField("offset")) for row in begun.partitions] == [(0, False), (1, False)]
            assert (await b.register()).error_code == 0
            order = await a.order()
            assert (order.WhichOneof("order"), order.answered) == ("stop_fetcher", 1)
            offsets = [pb.ConsumedOffset(topic="t", partition=1, offset=7)]
            await a.say(fetcher_stopped=pb.FetcherStopped(number=order.number, offsets=offsets))
            assert [(row.partition, row.offset) for row in (await b.started()).partitions] == [(1, 7)]
            assert (await a.started()).generation_id == begun.generation_id + 1
            await b.say(deregister=pb.Deregister(reason="done"))
            assert await b.ended() is grpc.StatusCode.OK
            assert (await a.order()).stop_fetcher.cause_detail.endswith('left; it says "done"')
            a.call.cancel()

    run(story)


def test_a_refused_registration_ends_the_stream_in_good_order(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with node_with_a_topic(tmp_path) as (_node, stub):
            a, twin = Talk(stub, "a"), Talk(stub, "a")
            await a.register()
            refused = await twin.register()
            assert refused.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
            assert "is registered by another stream" in refused.error_message
            assert await twin.ended() is grpc.StatusCode.OK
            a.call.cancel()

    run(story)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"heartbeat": pb.HeartbeatRequest()}, "request is heartbeat; expected ping_answered"),
        ({}, "request is empty; expected ping_answered"),
        ({"register_consumer": pb.RegisterConsumer(group_id="h", member_id="a")}, "this stream belongs to 'g'"),
        (
            {"ping_answered": pb.PingAnswered(offsets=[pb.ConsumedOffset(topic="t", offset=-5)])},
            "offsets.offset is -5; expected 0 or more",
        ),
    ],
)
def test_what_breaks_the_shape_breaks_the_stream(tmp_path: Path, run: Run, said: dict[str, Any], words: str) -> None:
    async def story() -> None:
        async with node_with_a_topic(tmp_path) as (_node, stub):
            talk = Talk(stub, "a")
            await talk.register()
            await talk.started()
            await talk.say(**said)
            with pytest.raises(grpc.aio.AioRpcError) as broken:
                await drained(talk)
            assert broken.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert words in (broken.value.details() or "")

    run(story)


def test_a_removed_member_is_told_and_its_stream_ends(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with node_with_a_topic(tmp_path) as (_node, stub):
            talk = Talk(stub, "a")
            await talk.register()
            await talk.started()
            removed = await stub.RemoveMembers(pb.RemoveMembersRequest(group_id="g"))
            assert [member.member_id for member in removed.members] == ["a"]
            assert (await talk.hear()).fenced.error_code == ErrorCode.UNKNOWN_MEMBER_ID
            assert await talk.ended() is grpc.StatusCode.OK

    run(story)


def test_a_node_that_stops_says_so_and_takes_no_more_streams_than_it_keeps(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with node_with_a_topic(tmp_path, max_sessions="1") as (node, stub):
            talk, another = Talk(stub, "a"), Talk(stub, "b")
            await talk.register()
            await talk.started()
            await another.say(register_consumer=pb.RegisterConsumer(group_id="g", member_id="b"))
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await another.call.read()
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            await node.stop()
            assert "shutting down" in (await talk.hear()).drain.reason
            # The fixture stops it once more, which does no harm to what is closed already.

    run(story)


async def drained(talk: Talk) -> None:
    """Read to the end, whatever comes before it."""
    while await talk.call.read() is not grpc.aio.EOF:
        pass
