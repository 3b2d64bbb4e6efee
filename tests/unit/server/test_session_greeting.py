"""A session stream that never says whose it is: it counts, and it has a deadline."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from muster.coordinator.core.model import events
from muster.coordinator.core.model.effects import HelloReply
from muster.coordinator.edge.request_limits import MalformedGroupRequest
from muster.coordinator.errors import Overloaded
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.runtime.shards import partition_for
from muster.coordinator.server.services.member_session import MOVED, ServerSessions, read_to_end


class Caller:
    """A client on loopback."""

    peer_host = "127.0.0.1"
    client_software = ""
    metadata: Mapping[str, str] = {}
    identity: Any = None

    def cancelled(self) -> bool:
        return False


async def silence() -> AsyncIterator[pb.SessionRequest]:
    await asyncio.Event().wait()
    yield pb.SessionRequest()


def sessions(**more: int) -> ServerSessions:
    driver: Any = None  # nobody gets as far as to ask it
    return ServerSessions(driver, shards=1, **({"limit": 1, "grace_ms": 0} | more))


def test_a_stream_that_says_nothing_is_ended() -> None:
    async def story() -> None:
        node = sessions(hello_ms=1)
        with pytest.raises(
            MalformedGroupRequest, match="hello did not come within 1 ms; send it, or register_consumer"
        ):
            await anext(aiter(node.serve(silence(), Caller())))
        assert len(node) == 0

    asyncio.run(story())


def test_it_counts_from_its_first_moment() -> None:
    async def story() -> None:
        node = sessions(most_silent=1)
        silent = asyncio.ensure_future(anext(aiter(node.serve(silence(), Caller()))))
        await asyncio.sleep(0)
        assert len(node) == 1
        with pytest.raises(Overloaded, match="1 sessions are open that have not said whose they are"):
            await anext(aiter(node.serve(silence(), Caller())))
        silent.cancel()
        with pytest.raises(asyncio.CancelledError):
            await silent
        assert len(node) == 0

    asyncio.run(story())


class Greeting:
    """A driver that knows how to greet."""

    def next_id(self) -> int:
        return 1

    async def ask_shard(self, shard: int, event: object, wanted: object) -> HelloReply:
        return HelloReply(heartbeat_interval_ms=3_000)


async def hello() -> AsyncIterator[pb.SessionRequest]:
    yield pb.SessionRequest(hello=pb.SessionHello(group_id="g", member_id="m"))
    await asyncio.Event().wait()


def test_g1_the_members_of_a_shard_that_is_lost_are_sent_away() -> None:
    async def story() -> None:
        greeting: Any = Greeting()
        node = ServerSessions(greeting, shards=8, limit=1, grace_ms=0)
        stream = aiter(node.serve(hello(), Caller()))
        assert (await anext(stream)).WhichOneof("event") == "welcome"
        shard = partition_for("g", 8)
        node.end_shard((shard + 1) % 8)
        following = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        assert not following.done()
        node.end_shard(shard)
        assert (await following).drain.reason == MOVED
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    asyncio.run(story())


class Noting(Greeting):
    """It notes whose stream broke."""

    def __init__(self) -> None:
        self.lost: list[object] = []

    def submit_event(self, shard: int, event: object) -> None:
        self.lost.append(event)


@pytest.mark.parametrize("breaks", [True, False])
def test_a_stream_that_breaks_is_no_orderly_end_though_its_requests_end_first(breaks: bool) -> None:
    """So gRPC tells of a client that was killed: the requests end, and some turns later the call is cancelled."""

    async def story() -> None:
        driver: Any = Noting()
        ends, welcomed = asyncio.Event(), asyncio.Event()

        async def said() -> AsyncIterator[pb.SessionRequest]:
            yield pb.SessionRequest(hello=pb.SessionHello(group_id="g", member_id="m"))
            await ends.wait()

        async def served() -> None:
            node = ServerSessions(driver, shards=1, limit=1, grace_ms=0)
            async for _ in node.serve(read_to_end(said()), Caller()):
                welcomed.set()

        call = asyncio.create_task(served())
        await welcomed.wait()
        ends.set()
        for _ in range(10):
            await asyncio.sleep(0)
        if breaks:
            call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert driver.lost == ([events.StreamLost("g", "m", 0, -1)] if breaks else [])

    asyncio.run(story())
