"""What a refused request was made of goes at once: gRPC keeps the end of a call until garbage is collected."""

import asyncio
import gc
import sys
from typing import Any, NoReturn

import pytest

from muster.coordinator.edge import request_limits
from muster.coordinator.edge.request_limits import MalformedGroupRequest
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.grpc.adapter import GrpcMethods
from muster.coordinator.server.rpc_dispatch import MethodKind, ServiceMethod
from muster.long_work import REQUEST_THREAD

NAME = "/coordinator.rpc.v1.GroupCoordinator/OffsetFetch"


class Aborted(Exception):
    pass


class Call:
    """grpc.aio's context: it raises the end of the call and keeps what it raised."""

    def __init__(self) -> None:
        self.kept: Exception | None = None

    async def abort(self, code: object, details: str, trailing_metadata: object) -> NoReturn:
        self.kept = Aborted(details)
        raise self.kept


async def nobody(request: Any, call: Any) -> NoReturn:
    raise AssertionError("a list that is too long was taken")


def test_the_bytes_of_a_refused_request_are_not_kept() -> None:
    method = ServiceMethod(NAME, MethodKind.UNARY, pb.OffsetFetchRequest, pb.OffsetFetchResponse, nobody)
    serve = GrpcMethods({NAME: method}, (MalformedGroupRequest,))._handlers[NAME].unary_unary
    most = request_limits.max_entries("OffsetFetchRequest.topics.partition_indexes")
    topic = pb.OffsetFetchTopic(name="t", partition_indexes=range(most + 1))
    data = pb.OffsetFetchRequest(group_id="g", topics=[topic]).SerializeToString()
    call = Call()
    gc.disable()
    try:
        alone = sys.getrefcount(data)
        with pytest.raises(Aborted, match="partition_indexes"):
            asyncio.run(serve(data, call))
        assert call.kept is not None
        REQUEST_THREAD.submit(int).result()  # the thread that has read it lets go of it a moment later
        assert sys.getrefcount(data) == alone
    finally:
        gc.enable()
