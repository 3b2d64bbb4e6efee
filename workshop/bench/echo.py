"""The peer of the heartbeat case: a bare grpc.aio server that parses a heartbeat and answers it, and nothing else.

Same grpcio, channel arguments, event loop, garbage collection and generic registration as a node has. Run as
`python -m muster.workshop.bench.echo`; it ends when its standard input does.
"""

import asyncio
import gc
import json
import sys

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


async def serve() -> None:
    server = grpc.aio.server(options=transport_limits(load_settings()).options())
    server.add_generic_rpc_handlers((EchoHandler(),))
    port = server.add_insecure_port(f"{HOST}:0")
    await server.start()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
    print(json.dumps({"event": "listening", "host": HOST, "port": port}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    await server.stop(0)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve())
