"""A node asks others at their doors: they may be elsewhere by now, gone, or of a version that says more."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import grpc
import pytest

from muster.coordinator.core.model.events import DescribeSettings
from muster.coordinator.edge.cluster_view import ClusterView, NodeAddress
from muster.coordinator.errors import ErrorCode
from muster.coordinator.rpc.v1.coordinator_service_pb2 import DescribeGroupSettingsResponse
from muster.coordinator.server.cluster_backend.peer_listeners import PeerChannels, PeerGroupClient, settings_reply

ME, OTHER = 1, 2


class Known:
    """One other node, which coordinates everything."""

    me = ME

    def __init__(self, port: int) -> None:
        self.at: list[NodeAddress] = [NodeAddress(OTHER, "127.0.0.1", port)]

    def nodes(self, listener: str) -> list[NodeAddress]:
        return self.at

    def coordinator(self, shard: int, listener: str) -> NodeAddress | None:
        return NodeAddress(OTHER, "127.0.0.1", 1)


class Door:
    """Takes calls, and answers none before it is told to."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.answers = asyncio.Event()
        self.port = 0

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        async def answered(request: bytes, context: object) -> bytes:
            self.asked.set()
            await self.answers.wait()
            return DescribeGroupSettingsResponse(version=7).SerializeToString()

        return grpc.unary_unary_rpc_method_handler(answered)


@asynccontextmanager
async def door() -> AsyncIterator[Door]:
    opened, server = Door(), grpc.aio.server()
    server.add_generic_rpc_handlers((opened,))  # type: ignore[arg-type]
    opened.port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield opened
    finally:
        await server.stop(0)


def test_who_asks_a_node_that_is_elsewhere_by_now_ends_nobody_s_question_to_where_it_was() -> None:
    async def story() -> None:
        async with asyncio.timeout(60), door() as there:
            known = Known(there.port)
            channels = PeerChannels(cast(ClusterView, known))
            elsewhere = PeerGroupClient(cast(ClusterView, known), channels, None)
            first = asyncio.create_task(elsewhere.settings(0, DescribeSettings(1, "g")))
            await there.asked.wait()
            known.at = []  # its session is over, or it comes back at another port
            second = await elsewhere.settings(0, DescribeSettings(2, "g"))
            assert second.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            there.answers.set()
            assert (await first).version == 7
            await channels.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("told", "heard"),
    [
        (0, ErrorCode.NONE),
        (16, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (30_000, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_code_that_is_not_known_here_is_a_failure_like_any_other(told: Any, heard: ErrorCode) -> None:
    assert settings_reply(DescribeGroupSettingsResponse(error_code=told)).code is heard
