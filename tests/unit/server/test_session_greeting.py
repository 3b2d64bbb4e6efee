"""A session stream that never says whose it is: it counts, and it has a deadline."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from muster.coordinator.errors import Overloaded
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.messages.shape import MalformedRequest
from muster.coordinator.server.service.session import Sessions


class Caller:
    """A client on loopback."""

    peer_host = "127.0.0.1"
    client_software = ""
    metadata: Mapping[str, str] = {}

    def cancelled(self) -> bool:
        return False


async def silence() -> AsyncIterator[pb.SessionRequest]:
    await asyncio.Event().wait()
    yield pb.SessionRequest()


def sessions(**more: int) -> Sessions:
    driver: Any = None  # nobody gets as far as to ask it
    return Sessions(driver, shards=1, **({"limit": 1, "grace_ms": 0} | more))


def test_a_stream_that_says_nothing_is_ended() -> None:
    async def story() -> None:
        node = sessions(hello_ms=1)
        with pytest.raises(MalformedRequest, match="hello did not come within 1 ms; send it, or register_consumer"):
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
