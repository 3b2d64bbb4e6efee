"""Serves the dispatch table with grpc.aio. Nothing else of the group side knows gRPC.

Only generic handlers are used: with registered methods grpcio waits on one future per method for each call that it
accepts, so that a large service pays for its size. Messages are decoded here, not by grpcio, so that bytes that are
no message are the client's fault (INVALID_ARGUMENT) and not the node's (INTERNAL); large requests are counted before
they are parsed.

A call without an answer ends with a gRPC status and google.rpc details; refusals of the protocol are answers. An
unexpected exception gives the client a reference into the node's log, and nothing of the inside.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache, partial
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias
from uuid import uuid4

import grpc
import structlog
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2

from muster.coordinator.edge import request_limits
from muster.coordinator.edge.listener_base import Authenticator, parse_user_agent
from muster.coordinator.edge.overload import RefusedRequestMemory
from muster.coordinator.edge.request_limits import LARGE_BYTES, MalformedGroupRequest, describe_too_large
from muster.coordinator.errors import (
    CallDenied,
    NodeShuttingDown,
    NotAuthenticated,
    Overloaded,
    SubjectNotFound,
    TemporarilyUnknown,
)
from muster.coordinator.runtime.record_fields import varint
from muster.coordinator.security.access_model import UNAUTHENTICATED, Identity
from muster.coordinator.server.grpc.load_limits import LARGE_ANSWER, ConnectionLoad, ConnectionLoadLimits, counter_of
from muster.coordinator.server.rpc_dispatch import MethodKind, ServiceMethod, fast_path_of
from muster.long_work import LoopSlice, run_in_answer_thread, run_in_request_thread

if TYPE_CHECKING:
    from muster.coordinator.observability.metrics.instruments import Instruments, RequestMeter


# Statuses of calls without an answer
# -----------------------------------

DOMAIN = "coordinator.rpc.v1"
DETAILS_KEY = "grpc-status-details-bin"


@dataclass(frozen=True, slots=True)
class CallStatus:
    """The status of a call that has no answer. `details` are google.rpc messages."""

    code: grpc.StatusCode
    text: str
    details: tuple[Message, ...]

    def trailing_metadata(self) -> tuple[tuple[str, bytes], ...]:
        """The status once more, with its details, where every gRPC library looks for it."""
        packed = []
        for detail in self.details:
            packed.append(AnyMessage())
            packed[-1].Pack(detail)
        status = status_pb2.Status(code=self.code.value[0], message=self.text, details=packed)
        return ((DETAILS_KEY, status.SerializeToString()),)


def malformed_status(text: str, field: str = "") -> CallStatus:
    """The request breaks its own shape; sending it again cannot help."""
    violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=text)
    return CallStatus(
        grpc.StatusCode.INVALID_ARGUMENT,
        text,
        (build_error_info("MALFORMED_REQUEST"), error_details_pb2.BadRequest(field_violations=[violation])),
    )


def overloaded_status(refusal: Overloaded) -> CallStatus:
    """A limit is reached; the client may try again after the hinted time."""
    delay = Duration()
    delay.FromMilliseconds(refusal.retry_after_ms)
    return CallStatus(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        str(refusal),
        (build_error_info("LIMIT_REACHED"), error_details_pb2.RetryInfo(retry_delay=delay)),
    )


def draining_status(refusal: NodeShuttingDown) -> CallStatus:
    return CallStatus(grpc.StatusCode.UNAVAILABLE, str(refusal), (build_error_info("DRAINING"),))


def not_found_status(refusal: SubjectNotFound) -> CallStatus:
    return CallStatus(grpc.StatusCode.NOT_FOUND, str(refusal), (build_error_info("NOT_THERE"),))


def denied_status(refusal: CallDenied) -> CallStatus:
    return CallStatus(grpc.StatusCode.PERMISSION_DENIED, str(refusal), (build_error_info("DENIED"),))


def unavailable_status(refusal: TemporarilyUnknown) -> CallStatus:
    return CallStatus(grpc.StatusCode.UNAVAILABLE, str(refusal), (build_error_info("NOT_NOW"),))


def unauthenticated_status(refusal: NotAuthenticated) -> CallStatus:
    return CallStatus(grpc.StatusCode.UNAUTHENTICATED, str(refusal), (build_error_info("NOT_AUTHENTICATED"),))


def failed_status() -> tuple[CallStatus, str]:
    """An unexpected exception: the client learns a reference into the node's log, and nothing of the inside."""
    reference = uuid4().hex[:12]
    details = (build_error_info("INTERNAL", reference=reference),)
    return CallStatus(grpc.StatusCode.INTERNAL, request_limits.describe_failure(reference), details), reference


def build_error_info(reason: str, **metadata: str) -> error_details_pb2.ErrorInfo:
    return error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=metadata)


# Counts per method
# -----------------


@dataclass(slots=True)
class MethodStats:
    """One method's calls. Long polls count their waiting time in `seconds` too."""

    in_flight: int = 0
    finished: int = 0
    seconds: float = 0.0
    refused: dict[str, int] = field(default_factory=dict)
    """gRPC status name -> calls that ended with it; answers that carry an `error_code` are not refused calls."""

    def refuse(self, status: str) -> None:
        self.refused[status] = self.refused.get(status, 0) + 1


Context: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]
GrpcHandler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Served: TypeAlias = Callable[[Any, Context], Coroutine[Any, Any, bytes | None]]
Reader: TypeAlias = Callable[[bytes], Coroutine[Any, Any, Message]]
UnaryAnswer: TypeAlias = Callable[[Any, Context, Identity], Coroutine[Any, Any, bytes | None]]

DOOR = "grpc"
"""This door's name among metrics."""

READING: set["asyncio.Task[bytes | None]"] = set()
"""Reads under way: the event loop itself keeps no task alive."""

SHOWN: Final[ContextVar[str]] = ContextVar("shown", default="")
"""What a call shows of who makes it: grpcio asks for its handler in the call's own task, with headers that it would
make anew for whoever asks again. Empty: nothing, or nobody has looked."""

EMPTY: Final = b""
"""A message without any field set."""

KEPT_HOSTS: Final = 4_096

log = structlog.get_logger("muster.grpc")


class GrpcCall:
    """The handler's view of a gRPC call; nothing is looked up before somebody asks."""

    __slots__ = ("_burden", "_context", "identity")

    def __init__(self, context: Context, burden: ConnectionLoad, identity: Identity = UNAUTHENTICATED) -> None:
        self._context = context
        self._burden = burden
        self.identity = identity

    @property
    def answer_room(self) -> int:
        """Bytes that the answer should have at most, if it can be cut."""
        return self._burden.room(self._context.peer())

    @property
    def peer_host(self) -> str:
        return host_of(self._context.peer())

    @property
    def client_software(self) -> str:
        return next((parse_user_agent(str(value)) for key, value in self._pairs if key == "user-agent"), "")

    @property
    def metadata(self) -> Mapping[str, str]:
        return {key: value for key, value in self._pairs if isinstance(value, str)}

    @property
    def _pairs(self) -> Iterable[tuple[str, str | bytes]]:
        return self._context.invocation_metadata() or ()

    def cancelled(self) -> bool:
        return self._context.cancelled()


class GrpcMethods(grpc.GenericRpcHandler):
    """Serves a dispatch table. `malformed_status` are the exceptions by which handlers say that a request has no shape.

    `most_bytes` has the requests, by full name of their method, that need not be as large as the transport allows.
    Calls are counted in `instruments`, if there are any. `gate` is asked who calls, before anything is decoded; without
    one nobody is.
    """

    def __init__(
        self,
        table: Mapping[str, ServiceMethod],
        malformed: tuple[type[Exception], ...],
        most_bytes: Mapping[str, int] = MappingProxyType({}),
        instruments: "Instruments | None" = None,
        limits: ConnectionLoadLimits | None = None,
        gate: Authenticator | None = None,
    ) -> None:
        self._gate = gate
        self._instruments = instruments
        self.burden = ConnectionLoad(limits or ConnectionLoadLimits())
        self._most_bytes = most_bytes
        self._leftovers = RefusedRequestMemory()
        self.stats = {full_name: MethodStats() for full_name in table}
        self._malformed = (*malformed, DecodeError)
        self._draining = False
        self._in_flight = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._handlers = {full_name: self._handler_of(method) for full_name, method in table.items()}
        self._strangers = {name: self._handler_of(method, strange=True) for name, method in table.items() if gate}

    @property
    def in_flight(self) -> int:
        return self._in_flight

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """One look into a dict, however many methods there are; None makes grpcio answer UNIMPLEMENTED.

        The message of somebody who has not shown yet who they are is not taken in before they have: it may be large.
        """
        method = handler_call_details.method
        if self._gate is None:
            return self._handlers.get(method)
        shown = authorization_of(handler_call_details.invocation_metadata)
        SHOWN.set(shown)
        return self._handlers.get(method) if shown in self._gate.seen else self._strangers.get(method)

    def drain(self) -> None:
        """Refuse every call that arrives from now on with UNAVAILABLE; those under way go on."""
        self._draining = True

    async def quiet(self) -> None:
        """Return once no call is under way."""
        await self._quiet.wait()

    def _handler_of(self, method: ServiceMethod, *, strange: bool = False) -> GrpcHandler:
        """`strange`: on the wire it is the same; a stream's messages are read when they are asked for."""
        meter = None
        if self._instruments is not None:
            meter = self._instruments.meter(DOOR, method.full_name.rpartition("/")[2])
        match method.kind:
            case MethodKind.UNARY:
                answer = (
                    serve_unary(method, self.burden)
                    if meter is None
                    else serve_metered_unary(method, meter, self.burden)
                )
                made = grpc.stream_unary_rpc_method_handler if strange else grpc.unary_unary_rpc_method_handler
                return made(self._served(method, answer, meter, strange=strange))
            case MethodKind.SERVER_STREAM:
                answer = self._lasting(serve_stream(method, self.burden, meter))
                made = grpc.stream_stream_rpc_method_handler if strange else grpc.unary_stream_rpc_method_handler
                return made(self._served(method, answer, meter, strange=strange))
            case MethodKind.BOTH_STREAM:
                answer = self._lasting(serve_stream(method, self.burden, meter))
                return grpc.stream_stream_rpc_method_handler(self._served(method, answer, meter))

    def _lasting(self, answer: UnaryAnswer) -> UnaryAnswer:
        return limit_lasting_call(answer if self._gate is None else end_with_identity(answer, self._gate), self.burden)

    def _served(
        self, method: ServiceMethod, answer: UnaryAnswer, meter: "RequestMeter | None", *, strange: bool = False
    ) -> Served:
        """Everything around one call: the gate, decoding, counting, and the status of a call without an answer.

        With `strange` the one message comes as a stream, of which nothing is read before the gate.
        """
        stats = self.stats[method.full_name]
        unary_call = method.kind is MethodKind.UNARY

        def refuse(status_name: str, started: float) -> None:
            stats.refuse(status_name)
            if meter is not None and unary_call:
                meter.refused(perf_counter() - started, status_name)
            elif meter is not None:
                meter.ended(status_name)

        parse = request_reader(method, self._most_bytes.get(method.full_name))
        parse_all = stream_reader(parse)
        stream = method.kind is MethodKind.BOTH_STREAM
        gate = self._gate

        async def serve(data: Any, context: Context) -> bytes | None:
            started = perf_counter()
            self._enter(stats)
            try:
                if self._draining:
                    raise NodeShuttingDown
                identity = UNAUTHENTICATED
                if gate is not None:  # who has shown that before is known without a wait, and without the headers anew
                    identity = gate.known(host_of(context.peer()), SHOWN.get()) or await identify_caller(gate, context)
                if strange:
                    data = await read_single_message(data)
                return await answer(parse_all(data) if stream else await parse(data), context, identity)
            except asyncio.CancelledError:
                refuse(grpc.StatusCode.CANCELLED.name, started)
                raise
            except Exception as error:
                ending = self._ending_of(error, method)
                self._leftovers.refused(len(data) if isinstance(data, bytes) else 0 if strange else LARGE_BYTES)
                refuse(ending.code.name, started)
                data = None  # gRPC keeps the end of a call, and this frame with it, until garbage is collected.
            finally:
                self._leave(stats, started)
            return await abort_call(context, ending)

        return serve

    def _enter(self, stats: MethodStats) -> None:
        stats.in_flight += 1
        self._in_flight += 1
        self._quiet.clear()

    def _leave(self, stats: MethodStats, started: float) -> None:
        stats.in_flight -= 1
        stats.finished += 1
        stats.seconds += perf_counter() - started
        self._in_flight -= 1
        if not self._in_flight:
            self._quiet.set()

    def _ending_of(self, error: Exception, method: ServiceMethod) -> CallStatus:
        if isinstance(error, self._malformed):
            if isinstance(error, DecodeError):
                return malformed_status(f"the bytes sent are no {method.request_type.DESCRIPTOR.full_name}")
            return malformed_status(str(error), getattr(error, "field", ""))
        match error:
            case Overloaded():
                return overloaded_status(error)
            case NodeShuttingDown():
                return draining_status(error)
            case NotAuthenticated():
                return unauthenticated_status(error)
            case CallDenied():
                return denied_status(error)
            case SubjectNotFound():
                return not_found_status(error)
            case TemporarilyUnknown():
                return unavailable_status(error)
        ending, reference = failed_status()
        log.error("handler failed", method=method.full_name, reference=reference, exc_info=error)
        return ending


def request_reader(method: ServiceMethod, most_bytes: int | None = None) -> Reader:
    """What turns bytes into a request; large ones are counted first, in a thread if they list much."""
    build, counter = method.request_type.FromString, counter_of(method.request_type.DESCRIPTOR)
    name = method.request_type.DESCRIPTOR.name

    def counted(data: bytes) -> Message:
        counter.check(data)
        return build(data)

    async def parse(data: bytes) -> Message:
        if len(data) <= LARGE_BYTES:
            return build(data)
        if most_bytes is not None and len(data) > most_bytes:
            raise MalformedGroupRequest(describe_too_large(name, len(data), most_bytes))
        if counter.short(data):
            return build(data)
        return await run_in_request_thread(partial(counted, data))

    return parse


def stream_reader(parse: Reader) -> Callable[[AsyncIterator[bytes]], AsyncIterator[Message]]:
    """The same for a stream of requests."""

    async def parse_all(stream: AsyncIterator[bytes]) -> AsyncIterator[Message]:
        reads = aiter(stream)
        while (data := await next_message(reads)) is not None:
            yield await parse(data)

    return parse_all


async def next_message(reads: AsyncIterator[bytes]) -> bytes | None:
    """The next message of a stream; None at its end.

    Whoever waits for it may be cancelled, the read itself is not: it ends with its call, and gRPC frees what it has
    allocated for a read only when that has ended (0.8 KB stayed of each stream that its client had cancelled).
    """

    async def read() -> bytes | None:
        return await anext(reads, None)

    reading = asyncio.create_task(read())
    READING.add(reading)
    reading.add_done_callback(discard_reading)
    return await asyncio.shield(reading)


async def read_single_message(stream: AsyncIterator[bytes]) -> bytes:
    """The one message of a call that has one. Raises MalformedRequest."""
    data = await next_message(aiter(stream))
    if data is None:
        raise MalformedGroupRequest("the call has no message; expected one")
    return data


def discard_reading(reading: "asyncio.Task[bytes | None]") -> None:
    READING.discard(reading)
    if not reading.cancelled():
        reading.exception()  # Seen, whether or not anybody waits yet.


PIECE_BYTES: Final = 64 << 10
"""Of an answer, or one row of it: so much is made bytes of at once, in less than a millisecond."""

FEW_ROWS: Final = 8
"""An answer of fewer rows is written in one piece."""

LENGTH_DELIMITED: Final = 2
"""The wire type of a message within another."""


def row_fields_of(answer: type[Message]) -> tuple[tuple[str, bytes], ...]:
    """The repeated messages of such an answer, by name, and the tag that each has on the wire."""
    return tuple(
        (field.name, varint(field.number << 3 | LENGTH_DELIMITED))
        for field in answer.DESCRIPTOR.fields
        if field.message_type is not None and isinstance(getattr(answer(), field.name), Sequence)
    )


async def encode_answer(answer: Message, row_fields: Sequence[tuple[str, bytes]]) -> bytes:
    """Its bytes; of one with many long rows, row by row, and others have their turns in between: an explanation may
    have 20 MB, and protobuf lets no other thread run meanwhile."""
    long = False
    for name, _ in row_fields:
        rows = getattr(answer, name)
        if (count := len(rows)) >= FEW_ROWS:
            longest = max(rows[at].ByteSize() for at in (0, count // 2, count - 1))
            long = long or longest * count > 4 * PIECE_BYTES
    if not long:
        return answer.SerializeToString()
    pieces = [piece async for piece in encode_pieces(answer, dict(row_fields))]
    return await run_in_answer_thread(partial(b"".join, pieces))  # which lets others run while it copies


async def encode_pieces(answer: Message, tags: Mapping[str, bytes]) -> AsyncIterator[bytes]:
    """Messages one behind the other are one message: each row is one that has no other, and the rest is the last."""
    rest, breath = type(answer)(), LoopSlice()
    for described, value in answer.ListFields():
        tag = tags.get(described.name)
        if tag is None:
            copy_field(rest, described.name, value)
            continue
        at_once = max(1, PIECE_BYTES // (value[0].ByteSize() + 1))
        for begin in range(0, len(value), at_once):
            rows = [row.SerializeToString() for row in value[begin : begin + at_once]]
            yield b"".join(part for row in rows for part in (tag, varint(len(row)), row))
            await breath.yield_if_used()
    yield rest.SerializeToString()


def copy_field(message: Message, name: str, value: Any) -> None:
    place: Any = getattr(message, name)
    if isinstance(value, Message):
        place.CopyFrom(value)
    elif isinstance(value, str | bytes) or not isinstance(value, Mapping | Sequence):
        setattr(message, name, value)
    else:
        place.MergeFrom(value)


def serve_unary(method: ServiceMethod, burden: ConnectionLoad) -> UnaryAnswer:
    handler, well = method.handler, fast_path_of(method.handler)
    row_fields = row_fields_of(method.response_type)

    async def answer(request: Any, context: Context, identity: Identity) -> bytes:
        call = GrpcCall(context, burden, identity)
        if well is not None and well(request, call):
            return EMPTY
        response: Message | bytes = await handler(request, call)
        data = (
            response
            if isinstance(response, bytes)
            else await encode_answer(response, row_fields)
            if row_fields
            else response.SerializeToString()
        )
        if len(data) >= LARGE_ANSWER:
            hold_answer(burden, context, len(data))
        return data

    return answer


def serve_metered_unary(method: ServiceMethod, meter: "RequestMeter", burden: ConnectionLoad) -> UnaryAnswer:
    """The same, counted: by the `error_code` of the answer, if it has one."""
    handler, well = method.handler, fast_path_of(method.handler)
    coded = "error_code" in method.response_type.DESCRIPTOR.fields_by_name
    row_fields = row_fields_of(method.response_type)

    async def answer(request: Any, context: Context, identity: Identity) -> bytes:
        started, call = perf_counter(), GrpcCall(context, burden, identity)
        if well is not None and well(request, call):
            meter.answered(perf_counter() - started, 0)
            return EMPTY
        response = await handler(request, call)
        took_s, encoded = perf_counter() - started, isinstance(response, bytes)
        data: bytes = (
            response
            if encoded
            else await encode_answer(response, row_fields)
            if row_fields
            else response.SerializeToString()
        )
        if len(data) >= LARGE_ANSWER:
            hold_answer(burden, context, len(data))
        meter.answered(took_s, response.error_code if coded and not encoded else 0)
        return data

    return answer


def hold_answer(burden: ConnectionLoad, context: Context, size: int) -> None:
    """Count an answer until its call is over, which it is when its client has taken it. Raises Overloaded."""
    number = burden.keep(context.peer(), size)

    def taken(context: Context) -> None:
        burden.sent(number)

    context.add_done_callback(taken)  # type: ignore[arg-type]  # the stubs want a class of theirs


def limit_lasting_call(answer: UnaryAnswer, burden: ConnectionLoad) -> UnaryAnswer:
    """The same, as long as its connection has room for a call that lasts."""

    async def counted(request: Any, context: Context, identity: Identity) -> bytes | None:
        peer = context.peer()
        burden.begin_call(peer)
        try:
            return await answer(request, context, identity)
        finally:
            burden.end(peer)

    return counted


def end_with_identity(answer: UnaryAnswer, gate: Authenticator) -> UnaryAnswer:
    """The same, until who calls is that no longer."""

    async def answered(request: Any, context: Context, identity: Identity) -> bytes | None:
        async with gate.lasting(identity):
            return await answer(request, context, identity)

    return answered


def serve_stream(method: ServiceMethod, burden: ConnectionLoad, meter: "RequestMeter | None" = None) -> UnaryAnswer:
    handler = method.handler

    async def answer(request: Any, context: Context, identity: Identity) -> None:
        stream = handler(request, GrpcCall(context, burden, identity))
        try:
            async for response in stream:
                await context.write(response.SerializeToString())
        finally:
            await stream.aclose()
        if meter is not None:
            meter.ended()

    return answer


async def abort_call(context: Context, ending: CallStatus) -> NoReturn:
    await context.abort(ending.code, ending.text, ending.trailing_metadata())


def authorization_of(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """What a call shows of who makes it; empty for nothing."""
    for pair in metadata or ():
        if pair[0] == "authorization" and isinstance(pair[1], str):
            return pair[1]
    return ""


async def identify_caller(gate: Authenticator, context: Context) -> Identity:
    """Who calls. Raises NotAuthenticated."""
    host, authorization = host_of(context.peer()), authorization_of(context.invocation_metadata())
    certificate = None if authorization else certificate_of(context)
    return await gate.identify(host=host, authorization=authorization, certificate=certificate, door=DOOR)


def certificate_of(context: Context) -> bytes | None:
    """The client's certificate as PEM, if it has shown one."""
    shown: Mapping[str, Iterable[bytes]] = context.auth_context()
    return next(iter(shown.get("x509_pem_cert", ())), None)


@lru_cache(KEPT_HOSTS)
def host_of(peer: str) -> str:
    """The host of gRPC's peer text.

    >>> host_of("ipv4:127.0.0.1:51234"), host_of("ipv6:%5B::1%5D:51234"), host_of("unix:/run/muster.sock")
    ('127.0.0.1', '::1', 'unix')
    """
    scheme, _, address = peer.partition(":")
    if scheme == "unix":
        return scheme
    host = address.rpartition(":")[0].replace("%5B", "[").replace("%5D", "]")
    return host.strip("[]")
