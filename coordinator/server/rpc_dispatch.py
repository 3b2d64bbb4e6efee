"""The transport-neutral table of methods: request type, handler, response type. gRPC is one reader of it, HTTP another.

A handler is `async def heartbeat(self, request, call) -> HeartbeatResponse`, named like its method in snake_case; a
stream's handler is an async generator. A handler with one answer may have a fast path, `heartbeat_fast_path(self,
request, call)`, for calls so frequent that one more coroutine is felt: see `FastPathHandler`. Middleware that wraps a
handler drops its fast path, so the fast path cannot bypass it. The handler is the general way; rights and quotas judge
both (tests/property/security/test_rights_fast_paths.py).

The table is built from the service descriptor, so a method without a handler is found when the node starts, not when
a client calls it.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeAlias

from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message

from muster.coordinator.security.access_model import Identity


class RpcCall(Protocol):
    """What a handler may know of the call besides its request."""

    @property
    def peer_host(self) -> str:
        """The client's address without its port, empty when the transport has none."""

    @property
    def client_software(self) -> str:
        """What the client says it runs, such as `muster-python 0.1.0`; empty when it says nothing."""

    @property
    def identity(self) -> Identity:
        """Who calls: somebody, where nobody is asked who they are."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """The call's text headers, keys in lower case."""

    def cancelled(self) -> bool:
        """True once nobody waits for the answer any more."""


class MethodKind(Enum):
    UNARY = "unary"
    SERVER_STREAM = "server stream"
    BOTH_STREAM = "streams both ways"


UnaryHandler: TypeAlias = Callable[[Any, RpcCall], Awaitable[Message | bytes]]
"""Bytes are an answer that the handler encoded itself."""

StreamHandler: TypeAlias = Callable[[Any, RpcCall], AsyncIterator[Message]]
"""Of both kinds of streams: the first argument is one request, or an async iterator of them."""


FastPath: TypeAlias = Callable[[Any, RpcCall], bool]
"""A fast path, see `FastPathHandler`."""


class FastPathHandler:
    """A handler with a fast path, for calls so frequent that one more coroutine is felt.

    `fast_path` does all the work and returns True where the answer is a message without any field set. It returns False
    where it has done nothing: then the handler is called. Middleware that wraps a handler drops its fast path, so the
    fast path cannot bypass it.
    """

    __slots__ = ("_handler", "fast_path")

    def __init__(self, handler: UnaryHandler, fast_path: FastPath) -> None:
        self._handler = handler
        self.fast_path = fast_path

    def __call__(self, request: Any, call: RpcCall) -> Awaitable[Message | bytes]:
        return self._handler(request, call)


def fast_path_of(handler: Callable[[Any, RpcCall], Any]) -> FastPath | None:
    """The handler's fast path, or None if it has none."""
    return handler.fast_path if isinstance(handler, FastPathHandler) else None


@dataclass(frozen=True, slots=True)
class ServiceMethod:
    """One row of the table. `handler` is a UnaryHandler or a StreamHandler, as `kind` says."""

    full_name: str
    kind: MethodKind
    request_type: type[Message]
    response_type: type[Message]
    handler: Callable[[Any, RpcCall], Any]


def methods_of(
    service: ServiceDescriptor, handlers: object, only: Collection[str] | None = None
) -> dict[str, ServiceMethod]:
    """Rows for every method of the service, or those named, by full name (`/package.Service/Method`).

    Raises LookupError when `handlers` lacks one.
    """
    table: dict[str, ServiceMethod] = {}
    for method in service.methods:
        if only is not None and method.name not in only:
            continue
        handler = getattr(handlers, snake_case(method.name), None)
        if handler is None:
            raise LookupError(
                f"{service.full_name} has no handler for {method.name}: "
                f"{type(handlers).__name__} needs a method {snake_case(method.name)}(request, call)"
            )
        if (fast_path := f"{snake_case(method.name)}_fast_path") in dir(type(handlers)):
            handler = FastPathHandler(handler, getattr(handlers, fast_path))
        full_name = f"/{service.full_name}/{method.name}"
        table[full_name] = ServiceMethod(
            full_name,
            kind_of(method),
            message_factory.GetMessageClass(method.input_type),
            message_factory.GetMessageClass(method.output_type),
            handler,
        )
    return table


def kind_of(method: MethodDescriptor) -> MethodKind:
    if method.client_streaming:
        assert method.server_streaming, f"{method.full_name} streams requests only; the table has no such kind"
        return MethodKind.BOTH_STREAM
    return MethodKind.SERVER_STREAM if method.server_streaming else MethodKind.UNARY


def snake_case(name: str) -> str:
    """Write a method's name as its handler is called.

    >>> snake_case("InitProducerId")
    'init_producer_id'
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
