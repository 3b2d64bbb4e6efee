"""A heartbeat on a member's stream takes the short way where all is well, and the long one where that cannot tell."""

import asyncio
from typing import Any

import pytest

from muster.coordinator.core.model.effects import HeartbeatReply, PushReply
from muster.coordinator.core.model.events import Heartbeat, Listen
from muster.coordinator.edge.request_limits import MalformedGroupRequest
from muster.coordinator.errors import ErrorCode
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.services.member_session import ServerSession, SessionIdentity


class Node:
    """A driver whose shard has one member, "m" of group "g", in generation 3."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.beaten: list[tuple[str, str, int]] = []
        self.well = True

    def next_id(self) -> int:
        return len(self.asked) + 1

    def beat(self, shard: int, group_id: str, member_id: str, generation: int, rights: Any = None) -> bool:
        if self.well:
            self.beaten.append((group_id, member_id, generation))
        return self.well

    async def ask_shard(self, shard: int, event: Any, wanted: type) -> Any:
        self.asked.append(event)
        if isinstance(event, Listen):
            await asyncio.Event().wait()
        return HeartbeatReply(ErrorCode.REBALANCE_IN_PROGRESS, "") if wanted is HeartbeatReply else PushReply()


async def answers(node: Node, *requests: pb.HeartbeatRequest, instance: str | None = None) -> list[pb.SessionResponse]:
    """To these heartbeats, numbered from 1, until there is nothing more to be said."""
    driver: Any = node
    session = ServerSession(driver, 0, SessionIdentity("g", "m", instance), "127.0.0.1", "")

    async def said() -> Any:
        for number, request in enumerate(requests, 1):
            yield pb.SessionRequest(request_number=number, heartbeat=request)
        await asyncio.Event().wait()

    reading = asyncio.create_task(session.read(said()))
    responses = aiter(session.responses(pb.SessionWelcome()))
    await anext(responses)
    heard = [await anext(responses) for _ in requests]
    for _ in range(3):
        await asyncio.sleep(0)  # whoever listens from here on asks
    await session.stop(reading)
    return heard


def test_all_is_well_without_an_event() -> None:
    node = Node()
    beats = [pb.HeartbeatRequest(generation_id=3)] * 2
    first, second = asyncio.run(answers(node, *beats))
    assert node.beaten == [("g", "m", 3)] * 2
    assert [event for event in node.asked if not isinstance(event, Listen)] == []
    assert (first.request_number, first.heartbeat, second.request_number) == (1, pb.HeartbeatResponse(), 2)
    [listening] = node.asked
    assert (listening.member_id, listening.generation) == ("m", 3), "the coordinator speaks first from here on"


def test_what_the_short_way_cannot_tell_is_asked() -> None:
    node = Node()
    node.well = False
    [answer] = asyncio.run(answers(node, pb.HeartbeatRequest(generation_id=2)))
    assert answer.heartbeat.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    [event] = node.asked
    assert isinstance(event, Heartbeat)


def test_a_static_member_may_be_fenced_which_is_asked() -> None:
    node = Node()
    asyncio.run(answers(node, pb.HeartbeatRequest(generation_id=3), instance="i"))
    assert node.beaten == []
    assert [type(event) for event in node.asked] == [Heartbeat]


def test_nobody_speaks_for_another() -> None:
    node = Node()
    with pytest.raises(MalformedGroupRequest, match="group_id is 'h'; this session belongs to 'g'"):
        asyncio.run(answers(node, pb.HeartbeatRequest(group_id="h", generation_id=3)))
    assert node.beaten == []
