"""Peers of the heartbeat cases: bare servers that answer a heartbeat and do nothing else.

Over gRPC: grpc.aio with the same channel arguments, event loop, garbage collection and generic registration as a node
has; it parses the request. Over Kafka's protocol: a protocol of the same event loop that cuts the stream into frames
and answers each with the bytes that a node answered, which is the least that any server of such frames does. Run as
`python -m muster.workshop.bench.echo`, the second with `frames HEX`; it ends when its standard input does.
"""

import asyncio
import gc
import json
import sys
from typing import cast

import grpc

from muster.coordinator.config import load_settings
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.node.main import YOUNG_OBJECTS, loop_factory
from muster.coordinator.server.node.node import transport_limits

METHOD = "/coordinator.rpc.v1.GroupCoordinator/Heartbeat"
HOST = "127.0.0.1"


async def heartbeat(data: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
    pb.HeartbeatRequest.FromString(data)
    return pb.HeartbeatResponse().SerializeToString()


class EchoHandler(grpc.GenericRpcHandler):
    """One method, no more around it than gRPC needs."""

    def __init__(self) -> None:
        self._handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(heartbeat)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes] | None":
        return self._handler if handler_call_details.method == METHOD else None


class FrameEcho(asyncio.Protocol):
    """Answers each frame with its correlation id and the same bytes behind it."""

    def __init__(self, tail: bytes) -> None:
        self._length, self._tail = (4 + len(tail)).to_bytes(4, "big"), tail
        self._unread = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by class

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        data, at = self._unread + data, 0
        answers: list[bytes] = []
        while (body := at + 4) <= len(data) and (end := body + int.from_bytes(data[at:body], "big")) <= len(data):
            answers += (self._length, data[body + 4 : body + 8], self._tail)  # behind the API and its version
            at = end
        self._unread = data[at:]
        if answers:
            self._transport.write(b"".join(answers))


async def serve_frames(tail: bytes) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: FrameEcho(tail), HOST, 0)
    await announce_until_eof(server.sockets[0].getsockname()[1])
    server.close()


async def serve() -> None:
    server = grpc.aio.server(options=transport_limits(load_settings()).options())
    server.add_generic_rpc_handlers((EchoHandler(),))
    port = server.add_insecure_port(f"{HOST}:0")
    await server.start()
    await announce_until_eof(port)
    await server.stop(0)


async def announce_until_eof(port: int) -> None:
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
    print(json.dumps({"event": "listening", "host": HOST, "port": port}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve_frames(bytes.fromhex(sys.argv[2])) if sys.argv[1:2] == ["frames"] else serve())
