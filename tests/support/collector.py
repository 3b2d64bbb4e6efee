"""A collector of traces in memory: OTLP's TraceService over real gRPC."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import Queue
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector(TraceServiceServicer):
    """`spans` has what was taken, in order; `resource` the attributes of who sent the last of it."""

    def __init__(self) -> None:
        self.address = ""
        self.spans: Queue[Span] = Queue()
        self.resource: dict[str, Any] = {}

    def Export(self, request: pb.ExportTraceServiceRequest, context: object) -> pb.ExportTraceServiceResponse:
        for sent in request.resource_spans:
            self.resource = attributes(sent.resource)
            for scope in sent.scope_spans:
                for span in scope.spans:
                    self.spans.put(span)
        return pb.ExportTraceServiceResponse()

    def trace(self, patience_s: float) -> list[Span]:
        """All spans of one trace, the root last, as it ends last. Raises queue.Empty when it does not come."""
        found = []
        while not found or found[-1].parent_span_id:
            found.append(self.spans.get(timeout=patience_s))
        return found


def attributes(of: Any) -> dict[str, Any]:
    """Those of a span or a resource."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in of.attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    add_TraceServiceServicer_to_server(collector, server)
    collector.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None)
