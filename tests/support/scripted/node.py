"""A gRPC node that answers what is true, or what a script says in its place."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import grpc

from muster.client.calls import methods
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as group_pb

SERVED: Final = (
    methods.METADATA,
    methods.PRODUCE,
    methods.FETCH,
    methods.MULTI_FETCH,
    methods.LIST_OFFSETS,
    methods.DELETE_RECORDS,
    methods.INIT_PRODUCER_ID,
    methods.FIND_COORDINATOR,
    methods.OFFSET_COMMIT,
    methods.OFFSET_FETCH,
    methods.LIST_GROUPS,
    methods.DESCRIBE_GROUPS,
    methods.DELETE_GROUPS,
    methods.CONSUMER_GROUP_HEARTBEAT,
    methods.STAGE_RECORDS,
    methods.COMMIT_STAGED,
)


class Truth(Protocol):
    """What all nodes share: a coroutine `_name(node, request)` for each method that is served."""

    said: list["Said"]


@dataclass(slots=True)
class Said:
    """A call that reached a node."""

    node: int
    name: str
    request: Any


class ScriptedNode:
    """One node. `truth` answers; `script` may answer in its place."""

    def __init__(self, node_id: int, cluster: Truth) -> None:
        self.node_id = node_id
        self.port = 0
        self.awake = asyncio.Event()
        """Not set: it takes calls and answers none, as if it were frozen."""
        self.awake.set()
        self.scripts: dict[str, list[Callable[[Any, Callable[[], Awaitable[Any]]], Awaitable[Any]]]] = {}
        self._cluster = cluster
        self._server: grpc.aio.Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def lives(self) -> bool:
        return self._server is not None

    def next(self, name: str, script: Callable[[Any, Callable[[], Awaitable[Any]]], Awaitable[Any]]) -> None:
        """Once: `script(request, truth)` answers the next call of this name."""
        self.scripts.setdefault(name, []).append(script)

    async def start(self) -> None:
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers((_Handlers(self),))
        bound = server.add_insecure_port(f"127.0.0.1:{self.port}")
        assert bound, f"port {self.port} is taken"
        self.port = bound
        await server.start()
        self._server = server

    async def die(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)

    async def answer(self, name: str, request: Any, context: grpc.aio.ServicerContext | None) -> Any:
        cluster = self._cluster
        cluster.said.append(Said(self.node_id, name, request))
        await self.awake.wait()

        async def truth() -> Any:
            return await getattr(cluster, f"_{name.lower()}")(self, request)

        scripts = self.scripts.get(name)
        answer = await (scripts.pop(0)(request, truth) if scripts else truth())
        if answer is BROKEN and context is not None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the connection broke")
        return answer


BROKEN: Final = object()
"""What a script answers for a connection that breaks before the answer."""


async def session(node: ScriptedNode, requests: AsyncIterator[Any]) -> AsyncIterator[group_pb.SessionResponse]:
    """A member's stream: it is welcome, and its heartbeats are answered like calls."""
    hello, number = group_pb.SessionHello(), 0
    async for request in requests:
        number += 1
        answer = group_pb.SessionResponse(sequence_number=number, request_number=request.request_number)
        if request.HasField("hello"):
            hello = request.hello
            answer.welcome.heartbeat_interval_ms = 60_000
        else:
            beat = request.consumer_group_heartbeat
            beat.group_id, beat.member_id = hello.group_id, hello.member_id
            answer.consumer_group_heartbeat.CopyFrom(await node.answer("ConsumerGroupHeartbeat", beat, None))
        yield answer


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, node: ScriptedNode) -> None:
        self._node = node

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        if details.method == methods.SESSION.path:

            async def converse(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
                async for answer in session(self._node, requests):
                    yield answer

            return grpc.stream_stream_rpc_method_handler(
                converse,
                request_deserializer=methods.SESSION.request.FromString,
                response_serializer=lambda answer: answer.SerializeToString(),
            )
        for method in SERVED:
            if method.path == details.method:

                async def handle(request: Any, context: Any, name: str = method.name) -> Any:
                    return await self._node.answer(name, request, context)

                return grpc.unary_unary_rpc_method_handler(
                    handle,
                    request_deserializer=method.request.FromString,
                    response_serializer=lambda answer: answer.SerializeToString(),
                )
        return None
