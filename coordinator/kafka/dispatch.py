"""Map an API key and version to the handler that answers it. Handlers see decoded messages and know no connection.

A handler is `async def join_group(self, request, call) -> response`, named like its API in snake_case. It may have a
second form, `heartbeat_now(self, request, call)`, that answers without a task: it returns the response, a
`DeferredAnswer`, or None to leave the request to the async form. A handler that returns None sends no answer (Produce
with acks=0). Responses are made with `codec.struct`, or are any object that has the fields, or an `EncodedAnswer`.
A third form, `offset_commit_reader(version)`, may replace the message's decoder for one connection.

Handlers of one connection start in the order of its requests, and each runs to its first wait before the next one
starts; an immediate answer may overtake requests that have not started. A request whose API `parks` holds back all
that follow it until it is answered. Answers always leave in order.

`SaslHandlers` answers SaslHandshake and SaslAuthenticate, on listeners that authenticate and on those that do not.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from time import thread_time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from muster.coordinator.edge.listener_base import (
    ACTIONS,
    ReportAction,
    format_software,
    is_software_word,
    report_actions,
)
from muster.coordinator.kafka.codec.codec import (
    Buffer,
    Decoder,
    Encoder,
    decoder_of,
    encode,
    encoder_of,
    fields_in_version,
    is_flexible,
    message_of,
    struct,
)
from muster.coordinator.kafka.protocol import API_VERSIONS, APIS, Api
from muster.coordinator.security.access_model import ANONYMOUS, UNAUTHENTICATED, Identity
from muster.long_work import AT_ONCE, REQUEST_THREAD, run_in_answer_thread

if TYPE_CHECKING:
    from muster.coordinator.observability.metrics.instruments import Instruments, RequestMeter


# SaslHandshake, SaslAuthenticate
# -------------------------------

ILLEGAL_SASL_STATE = 34


class SaslHandlers:
    async def sasl_handshake(self, request: Any, call: Any) -> Any:
        made, login = struct("SaslHandshakeResponse"), call.peer.login
        if login is None:
            return made(error_code=ILLEGAL_SASL_STATE)
        return made(
            error_code=await login.begin_exchange(request.mechanism, call.api_version),
            mechanisms=list(login.mechanisms),
        )

    async def sasl_authenticate(self, request: Any, call: Any) -> Any:
        made, login = struct("SaslAuthenticateResponse"), call.peer.login
        if login is None:
            return made(error_code=ILLEGAL_SASL_STATE, error_message="this listener asks nobody who they are")
        code, message, data, lifetime_ms = await login.authenticate(bytes(request.auth_bytes))
        return made(error_code=code, error_message=message, auth_bytes=data, session_lifetime_ms=lifetime_ms)


Handler: TypeAlias = Callable[[Any, "KafkaCall"], Awaitable[Any]]
Immediate: TypeAlias = Callable[[Any, "KafkaCall"], Any]

INVALID_REQUEST: Final = 42

T = TypeVar("T")

DOOR: Final = "kafka"
"""This door's name among metrics."""


class EncodedAnswer:
    """An answer that a handler has as bytes, without header."""

    __slots__ = ("body",)

    def __init__(self, body: list[Buffer]) -> None:
        self.body = body


async def encode_aside(message: str, version: int, whole: Callable[[], T], rows: int) -> T | EncodedAnswer:
    """Of few rows what `whole` makes, of many the bytes of it, made beside the loop."""
    if rows <= AT_ONCE:
        return whole()
    return await run_in_answer_thread(lambda: EncodedAnswer(encode(message, version, whole())))


class HangUp(Exception):
    """Raised by a handler: there is no answer that would tell the client of its failure, so the connection ends."""


class DeferredAnswer:
    """What a handler's `..._now` may return instead of an answer: it comes by a call, and no task waits for it."""

    __slots__ = ()

    def then(self, came: Callable[[], None]) -> None:
        """Call `came` once there is an answer, unless it is cancelled before."""
        raise NotImplementedError

    def respond(self) -> Any:
        """The answer, once it has come; raises as a handler may."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Nobody wants it any more."""
        raise NotImplementedError


class FutureAnswer(DeferredAnswer):
    """An answer that `respond` makes once a future is done."""

    __slots__ = ("_respond", "future")

    def __init__(self, future: "asyncio.Future[Any]", respond: Callable[[], Any]) -> None:
        self.future = future
        self._respond = respond

    def then(self, came: Callable[[], None]) -> None:
        self.future.add_done_callback(lambda done: None if done.cancelled() else came())

    def respond(self) -> Any:
        return self._respond()

    def cancel(self) -> None:
        self.future.cancel()


class ThreadedAnswer(DeferredAnswer):
    """An answer that takes its time to be made: a thread makes it, by a call that is here or comes later."""

    __slots__ = ("_call", "_made", "spent_s")

    def __init__(self, call: DeferredAnswer | Callable[[], Any]) -> None:
        self._call = call
        self.spent_s = 0.0
        """Of the thread's time."""
        self._made: asyncio.Future[Any] | None = None

    def then(self, came: Callable[[], None]) -> None:
        if isinstance(self._call, DeferredAnswer):
            self._call.then(partial(self._start_thread, came))
        else:
            self._start_thread(came)

    def _start_thread(self, came: Callable[[], None]) -> None:
        self._made = asyncio.get_running_loop().run_in_executor(REQUEST_THREAD, self._make)
        self._made.add_done_callback(lambda done: None if done.cancelled() else came())

    def _make(self) -> Any:
        call = self._call.respond() if isinstance(self._call, DeferredAnswer) else self._call
        began_s = thread_time()
        made = call()
        self.spent_s = thread_time() - began_s
        return made

    def respond(self) -> Any:
        assert self._made is not None, "it has not come"
        return self._made.result()

    def cancel(self) -> None:
        if isinstance(self._call, DeferredAnswer):
            self._call.cancel()
        if self._made is not None:
            self._made.cancel()


next_connection_number: Final = count(1).__next__
"""Above those of all connections there have been in this process."""


@dataclass(slots=True)
class ClientPeer:
    """The other end of a connection. `eof` is done once it is gone; requests under way are cancelled then as well."""

    host: str
    eof: "asyncio.Future[None]"
    software_name: str = ""
    """What the client said with ApiVersions; empty before that, and for clients that say nothing."""
    software_version: str = ""
    software: str = ""
    """Both in one, such as `librdkafka 2.16.0`."""
    identity: Identity = UNAUTHENTICATED
    """Who it is, once it has shown that; until then nobody in particular, at its address."""
    stands_for: int | None = None
    """The broker of another cluster whose port it has come to; None: this node's own."""
    login: Any = None
    """Its `connections.login.Login`, where its listener asks for one."""
    number: int = field(default_factory=next_connection_number)
    """Given once by this process: by it the groups know which members share a connection."""
    groups: set[str] = field(default_factory=set)
    """Groups that members joined by this connection, which are to know when it closes."""

    def __post_init__(self) -> None:
        if self.identity is UNAUTHENTICATED:
            self.identity = Identity(ANONYMOUS, self.host)


class KafkaCall:
    """What a handler may know of a request besides its message."""

    __slots__ = ("api_version", "begun", "client_id", "peer")

    def __init__(self, api_version: int, client_id: str | None, peer: ClientPeer) -> None:
        self.api_version = api_version
        self.client_id = client_id or ""
        self.peer = peer
        self.begun: Any = None
        """What a `..._now` has done of a request before it left it to the long way, for that one to go on with.

        Only where the API `parks`: all requests of this form on this connection have one and the same call.
        """

    @property
    def peer_host(self) -> str:
        return self.peer.host

    @property
    def identity(self) -> Identity:
        return self.peer.identity

    @property
    def client_software_name(self) -> str:
        return self.peer.software_name

    @property
    def client_software_version(self) -> str:
        return self.peer.software_version

    @property
    def client_software(self) -> str:
        return self.peer.software

    @property
    def eof(self) -> "asyncio.Future[None]":
        """Done when the client is gone, for handlers that wait long."""
        return self.peer.eof


class RequestAuthorizer(Protocol):
    """Who asks whether a caller may, before a handler is asked."""

    def guarded(
        self, api: str, version: int, handler: Handler | None, immediate: Immediate | None
    ) -> tuple[Handler | None, Immediate | None]:
        """Both of an API's handlers, behind its judge."""
        ...


class RequestLimiter(Protocol):
    """Keeps what handlers are asked within quotas."""

    def limited(
        self, api: str, handler: Handler | None, immediate: Immediate | None
    ) -> tuple[Handler | None, Immediate | None]: ...

    def when_changed(self, tell: Callable[[], None]) -> None:
        """Call this whenever `limited` makes something else of the same handlers."""


@dataclass(slots=True, eq=False)
class ServedVersion:
    """One version of an API: how its requests are read, its answers written, and who answers.

    One object for good, by which connections keep what they know of it; who answers may be limited otherwise later.
    """

    api: Api
    version: int
    handler: Handler | None
    """None where `immediate` never leaves it to the long way."""
    immediate: Immediate | None
    read_header: Decoder
    reader: Callable[[], Decoder]
    """Makes what reads the requests of one connection."""
    write: Encoder
    tagged: bool
    """The answer's header has tagged fields (KIP-482: that of ApiVersions never has)."""
    meter: "RequestMeter | None" = None
    """Where its requests are counted, if anywhere."""
    coded: bool = False
    """The answer has one error code for the whole request."""

    def refusal(self, why: str) -> Any:
        """The answer that refuses the whole request with INVALID_REQUEST; None where it has no place for a code."""
        name = f"{self.api.name}Response"
        places = fields_of(name, self.version)
        said = {"error_code": INVALID_REQUEST, "error_message": why}
        return (
            struct(name)(**{place: said[place] for place in places & said.keys()}) if "error_code" in places else None
        )


class Dispatcher:
    """All forms that one door serves, those of `apis`. `handlers` are asked for each in turn; ApiVersions is answered
    here.

    Requests are counted in `instruments`, and what operators change is told to `tell`, if there are any; with a
    `guard` every handler has a judge before it, with `limiting` some are asked within quotas. Raises LookupError when
    nobody answers an API, or judges it.
    """

    def __init__(
        self,
        handlers: Sequence[object],
        instruments: "Instruments | None" = None,
        tell: ReportAction | None = None,
        guard: RequestAuthorizer | None = None,
        limiting: RequestLimiter | None = None,
        apis: Sequence[Api] = APIS,
        features: "FinalizedFeatures | None" = None,
    ) -> None:
        self.instruments = instruments
        self.apis = apis
        self._tell = tell
        self._guard = guard
        self._limiting = limiting
        everyone = (ApiVersionsHandler(apis, features), SaslHandlers(), *handlers)
        self._answering = {api.key: (api, find_handler(api, everyone)) for api in apis}
        self.forms: dict[tuple[int, int], ServedVersion] = {}
        """Those that were asked for, by key and version; see `form`."""
        if limiting is not None:
            limiting.when_changed(self._apply_limits)

    def form(self, key: int, version: int) -> ServedVersion | None:
        """None when this version is not served."""
        return self.forms.get((key, version)) or self._made(key, version)

    def _watched(self, api: Api, handler: Handler | None) -> Handler | None:
        if handler is None or self._tell is None or api.name not in ACTIONS:
            return handler
        return report_actions(handler, api.name, DOOR, self._tell)

    def _made(self, key: int, version: int) -> ServedVersion | None:
        """Its first request compiles a form."""
        if key not in self._answering:
            return None
        api, who = self._answering[key]
        if not api.serves(version):
            return None
        name = snake_case(api.name)
        request, response = f"{api.name}Request", f"{api.name}Response"
        handler, immediate = self._handlers_of(api, version)
        made = self.forms[key, version] = ServedVersion(
            api,
            version,
            handler,
            immediate,
            decoder_of("RequestHeader", 1 + is_flexible(request, version)),
            partial(getattr(who, f"{name}_reader", partial(decoder_of, request)), version),
            encoder_of(response, version),
            is_flexible(response, version) and key != API_VERSIONS,
            None if self.instruments is None else self.instruments.meter(DOOR, api.name),
            "error_code" in fields_of(response, version),
        )
        return made

    def _handlers_of(self, api: Api, version: int) -> tuple[Handler | None, Immediate | None]:
        """The long one and the short one, with all that stands before them."""
        who, name = self._answering[api.key][1], snake_case(api.name)
        handler, immediate = self._watched(api, getattr(who, name, None)), getattr(who, f"{name}_now", None)
        if self._limiting is not None:
            handler, immediate = self._limiting.limited(api.name, handler, immediate)
        if self._guard is not None:
            handler, immediate = self._guard.guarded(api.name, version, handler, immediate)
        return handler, immediate

    def _apply_limits(self) -> None:
        for form in self.forms.values():
            form.handler, form.immediate = self._handlers_of(form.api, form.version)


def fields_of(name: str, version: int) -> set[str]:
    """The fields of a message in this version."""
    return {one.name for one in fields_in_version(message_of(name, version).fields, version)}


def find_handler(api: Api, handlers: Sequence[object]) -> object:
    """Who of the handlers answers this API."""
    name = snake_case(api.name)
    for each in handlers:
        if hasattr(each, name) or hasattr(each, f"{name}_now"):
            return each
    raise LookupError(f"{api.name} has no handler; one of {[type(each).__name__ for each in handlers]} needs {name}()")


class FinalizedFeatures(NamedTuple):
    """What clients may count on from every node (KIP-584): name -> level.

    epoch: 0 or more, and higher after each change. Clients pass over what has none, and what is older than they know.
    """

    epoch: int
    levels: Mapping[str, int]


class ApiVersionsHandler:
    """ApiVersions: what is served here, and what the client is (KIP-35, KIP-511).

    Supported features are never told: up to version 3 none with a minimum of 0 may be (KAFKA-17011).
    """

    def __init__(self, apis: Sequence[Api] = APIS, features: FinalizedFeatures | None = None) -> None:
        self._apis = apis
        self._features = features

    def api_versions_now(self, request: Any, call: KafkaCall) -> Any:
        if call.api_version >= 3:
            for word in (request.client_software_name, request.client_software_version):
                if not is_software_word(word):
                    return struct("ApiVersionsResponse")(error_code=INVALID_REQUEST)
            call.peer.software_name = request.client_software_name
            call.peer.software_version = request.client_software_version
            call.peer.software = format_software(request.client_software_name, request.client_software_version)
        response = struct("ApiVersionsResponse")(api_keys=version_ranges(self._apis))
        if self._features is not None:
            row = struct("ApiVersionsResponse.finalized_features")
            response.finalized_features_epoch = self._features.epoch
            response.finalized_features = [
                row(name=name, max_version_level=level, min_version_level=level)
                for name, level in self._features.levels.items()
            ]
        return response


def version_ranges(apis: Sequence[Api]) -> list[Any]:
    """What ApiVersions tells of each API."""
    made = struct("ApiVersionsResponse.api_keys")
    return [made(api_key=api.key, min_version=api.first_advertised, max_version=api.last) for api in apis]


def snake_case(name: str) -> str:
    """An API's name as its handler is called.

    >>> snake_case("InitProducerId")
    'init_producer_id'
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
