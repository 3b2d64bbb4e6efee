"""A member's stream ends by what its background task ended with: it must not stay open, and silent, for ever."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from muster.coordinator.core.model.effects import CentralReply
from muster.coordinator.core.model.events import AwaitOrders, Listen
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.services.central_groups import CentralSession
from muster.coordinator.server.services.member_session import ServerSession, SessionIdentity


class MistakenDriver:
    """One whose shard has members, and of which nobody can ask what comes next."""

    def next_id(self) -> int:
        return 1

    def beat(self, *args: object) -> bool:
        return True

    async def ask_shard(self, shard: int, event: Any, wanted: type) -> Any:
        if isinstance(event, Listen | AwaitOrders):
            raise ZeroDivisionError
        return CentralReply()


async def silent(*first: Any) -> AsyncIterator[Any]:
    for each in first:
        yield each
    await asyncio.Event().wait()


async def until_its_end(responses: AsyncIterator[pb.SessionResponse]) -> None:
    async with asyncio.timeout(30):
        async for _ in responses:
            pass


def test_the_stream_of_a_member_that_is_not_heard_for_any_more_ends_by_the_mistake() -> None:
    async def story() -> None:
        driver: Any = MistakenDriver()
        session = ServerSession(driver, 0, SessionIdentity("g", "m", None), "127.0.0.1", "")
        beat = pb.SessionRequest(request_number=1, heartbeat=pb.HeartbeatRequest(generation_id=3))
        reading = asyncio.create_task(session.read(silent(beat)))
        with pytest.raises(ZeroDivisionError):
            await until_its_end(session.responses(pb.SessionWelcome()))
        await session.stop(reading)

    asyncio.run(story())


def test_the_stream_of_a_central_member_that_gets_no_orders_any_more_ends_by_the_mistake() -> None:
    async def story() -> None:
        driver: Any = MistakenDriver()
        call: Any = SimpleNamespace(peer_host="127.0.0.1", client_software="")
        registration = pb.RegisterConsumer(group_id="g", member_id="m", assignor="range", session_timeout_ms=10_000)
        session = CentralSession(driver, 0, registration, call, epoch=1, elected_epoch=lambda: 1)
        with pytest.raises(ZeroDivisionError):
            await until_its_end(session.responses(silent()))

    asyncio.run(story())
