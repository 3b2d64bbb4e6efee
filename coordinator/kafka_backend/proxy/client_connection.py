"""A client's connection through the node, and the listener of all its ports.

What passes streams through, what is for Muster is answered as at any other listener, and answers leave in the order
of the requests also where both mix (KB-X7). Of a request that passes, only length, API, version and correlation id
are read; of Produce also whether it will be answered. Requests for groups are held whole, within the limits of the
other listeners.

A client that logs in at its broker is served under the name that the broker accepted. Before that only ApiVersions
and SASL requests are taken, in small frames and few bytes: what is answered here rests on the broker's yes, too. A
client that has shown a certificate is served under that name, and comes to the brokers by the credentials that the
node has for all such clients (`engine.kafka.proxy.principal`). SASL is refused to it: it would be one more login of
those credentials. Nor may it have a delegation token, with which it would come to the brokers without a
certificate, and past the node (KB-X10).

All ports are bound before the upstream is asked (KB-X6), so that a restarted node is there for clients that
remember one.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from struct import Struct, error
from typing import Any, ClassVar, Final

from muster.coordinator.edge.listener_base import ListenerTls, open_listening_socket
from muster.coordinator.edge.tls_flow_control import TlsHandshakes
from muster.coordinator.kafka.codec.codec import (
    Buffer,
    DecodeFailure,
    Frame,
    MalformedFrame,
    RequestTooLong,
    decode,
    encode,
    is_flexible,
    read_uvarint,
    skip_tags,
)
from muster.coordinator.kafka.connections.client import body_position
from muster.coordinator.kafka.connections.connection import MAX_BYTES_PER_TURN, EarlyRefusal, ServerConnection
from muster.coordinator.kafka.connections.listener import BACKLOG, ConnectionListener, ListenerLimits
from muster.coordinator.kafka.connections.received_requests import (
    HEAD,
    LENGTH_BYTES,
    SHORTEST,
    DecodedHeader,
    RequestSlot,
)
from muster.coordinator.kafka.connections.sasl_login import SaslWordsConnection
from muster.coordinator.kafka.dispatch import DOOR, Dispatcher, HangUp, ServedVersion
from muster.coordinator.kafka.protocol import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE, Api
from muster.coordinator.kafka_backend.proxy import response_rewriting
from muster.coordinator.kafka_backend.proxy.allowed_apis import CHANGES_TOPICS, PRODUCE, TABLE, TOKENS, RequestRoute
from muster.coordinator.kafka_backend.proxy.broker_addresses import HandshakeArrival, ProxyAddresses, ServerNames
from muster.coordinator.kafka_backend.proxy.broker_connection import (
    BrokerConnection,
    ExpectedAnswer,
    OpensBrokerConnection,
    ProxyTraffic,
)
from muster.coordinator.kafka_backend.proxy.client_login import ClientLogin, RelayRules
from muster.coordinator.kafka_backend.proxy.request_splitting import SplitRequest, join_answers, split_request
from muster.coordinator.kafka_backend.proxy.response_rewriting import Edit
from muster.coordinator.observability.metrics.instruments import Instruments

# How requests begin
# ------------------

START: Final = Struct(">ihhi")
"""Length, API key, version, correlation id."""

SHORT: Final = Struct(">h")
MOST_TAGS: Final = 100
LONGEST: Final = 1 << 17
"""Bytes within which a request's first strings have ended: each has at most 32,767."""

BEHIND_TRANSACTION: Final = {"AddOffsetsToTxn": 10, "TxnOffsetCommit": 0}
"""Requests that begin with a transactional id -> bytes between that and the group."""


class HeaderCut(Exception):
    """The bytes end before what is looked for."""


def acks_of(version: int, data: Frame, at: int) -> int | None:
    """What the Produce request whose length is at `at` says of its answer (0: none comes); None: more bytes are
    needed. Raises MalformedFrame."""
    flexible = is_flexible("ProduceRequest", max(version, 3))
    try:
        position = behind_header(data, at + START.size, flexible)
        if version >= 3:
            _, position = string_at(data, position, flexible)
        if position + SHORT.size > len(data):
            raise HeaderCut
        return int(SHORT.unpack_from(data, position)[0])
    except HeaderCut:
        if len(data) - at > LONGEST:
            raise MalformedFrame(f"Produce {version} does not tell its acks in its first {LONGEST} bytes") from None
        return None


def group_of(name: str, version: int, frame: Frame) -> tuple[str, int]:
    """The group that a whole request is about, and where its name ends. Raises MalformedFrame."""
    flexible = is_flexible(f"{name}Request", version)
    try:
        position = behind_header(frame, HEAD.size, flexible)
        if name in BEHIND_TRANSACTION:
            _, position = string_at(frame, position, flexible)
            position += BEHIND_TRANSACTION[name]
        raw, position = string_at(frame, position, flexible)
        return ("" if raw is None else raw.decode()), position
    except (HeaderCut, UnicodeDecodeError):
        raise MalformedFrame(f"{name} {version} does not name its group") from None


def behind_header(data: Frame, position: int, flexible: bool) -> int:
    """Where the body begins, behind client id and tagged fields. Raises HeaderCut, MalformedFrame."""
    _, position = string_at(data, position, False)
    if not flexible:
        return position
    try:
        return skip_tags(data, position, len(data), MOST_TAGS)[0]
    except IndexError:
        raise HeaderCut from None
    except DecodeFailure as broken:
        if "ends within" in str(broken):
            raise HeaderCut from None
        raise MalformedFrame(f"a request's header: {broken}") from None


def string_at(data: Frame, position: int, compact: bool) -> tuple[bytes | None, int]:
    """A string, or null, and where it ends. Raises HeaderCut, MalformedFrame."""
    try:
        if compact:
            size, position = read_uvarint(data, position)
            size -= 1
        else:
            (size,) = SHORT.unpack_from(data, position)
            position += SHORT.size
    except (IndexError, error):
        raise HeaderCut from None
    except DecodeFailure as broken:
        raise MalformedFrame(f"a string's length: {broken}") from None
    if size < 0:
        return None, position
    if position + size > len(data):
        raise HeaderCut
    return bytes(data[position : position + size]), position + size


# A connection without login
# --------------------------

LONGEST_KEPT: Final = 1_024
"""Bytes of a request's beginning that are kept, to know the next of the same group by them."""


@dataclass(slots=True, eq=False)
class ProxyPort:
    """What the connections of one port have in common. broker: whom it stands for; None: it is the node's own."""

    broker: int | None
    places: ProxyAddresses
    ours: Callable[[str], bool]
    leg: Callable[[], tuple[str, OpensBrokerConnection]]
    """Whom a connection leads to, for people, and what makes it. Raises HangUp where there is nobody."""
    traffic: ProxyTraffic
    instruments: Instruments | None = None
    topics_changed: Callable[[], None] = lambda: None
    """Told when a request went through after which there may be other topics."""
    login: RelayRules | None = None
    """Where clients show their brokers who they are."""
    by_certificate: bool = False
    """Whether they have shown the node, and come to brokers by credentials that it has for all of them."""


class ProxyConnection(ServerConnection):
    __slots__ = ("_carry", "_known", "_left", "_leg", "_passes", "_passing", "_port", "_uncut", "_upstream_full")

    untold: ClassVar[frozenset[int]] = frozenset()
    """APIs of the table that its clients are not told of."""

    def __init__(self, port: ProxyPort, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._port = port
        self._leg: BrokerConnection | None = None
        self._upstream_full = False
        self._left = 0
        self._passes = False
        self._carry = b""
        self._uncut = b""
        self._known: dict[int, bytes] = {}
        self._passing: dict[int, ServedVersion] = {}

    # -- what comes from the client -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._peer.stands_for = self._port.broker
        if self._let_in and self._port.broker is not None:
            try:
                self._upstream()
            except HangUp as why:
                self._drop(str(why))

    def data_received(self, data: bytes) -> None:
        if self._draining and not (self._left and self._passes):
            return
        self._active_at = self._loop.time()
        if self._uncut:
            self._uncut += data
            return
        self._cut_up(data)
        self._throttle()

    def _cut_up(self, data: bytes) -> None:
        try:
            if self._carry:
                data, self._carry = self._carry + data, b""
            self._cut(data)
        except (MalformedFrame, HangUp) as error:
            self._drop(str(error))

    def _cut(self, data: bytes) -> None:
        """Pieces of what passes go on; frames that are read are taken once they are whole."""
        at, end = 0, len(data)
        while at < end and not self._transport.is_closing():
            if not self._left:
                if self._draining:
                    return
                if end - at < self._start_bytes():
                    self._carry = data[at:]
                    return
                if not self._begun(data, at):
                    return
            size = min(self._left, end - at)
            self._left -= size
            if self._passes:
                assert self._leg is not None, "it was made when the request began"
                self._leg.write(data if size == len(data) else memoryview(data)[at : at + size])
            else:
                self._hold(data[at : at + size])
            at += size

    def _start_bytes(self) -> int:
        """How much of a frame is looked at before it is let in."""
        return START.size

    def _begun(self, data: bytes, at: int) -> bool:
        """Look at the request that begins here. False: it cannot begin yet. Raises MalformedFrame, HangUp."""
        size, key, version, correlation = START.unpack_from(data, at)
        if not SHORTEST <= size <= self._limits.max_frame:
            raise MalformedFrame(f"a frame of {size} bytes; expected {SHORTEST} to {self._limits.max_frame}")
        api, way = TABLE.get(key, (None, RequestRoute.GREET))
        if api is None or not (api.first <= version <= api.last or way is RequestRoute.GREET):
            raise HangUp(f"API {key} version {version} does not pass here; ApiVersions tells which do")
        if way is RequestRoute.EDIT and key == LIST_GROUPS and self._port.broker is None:
            way = RequestRoute.GROUP
        self._passes = way is RequestRoute.PASS or way is RequestRoute.EDIT
        if self._passes:
            if self._backlog or self._parked is not None:
                self._uncut = data[at:]
                return False
            acks: int | None = 1
            if key == PRODUCE:
                acks = acks_of(version, data, at)
            if acks is None:
                self._carry = data[at : at + LONGEST + 1]
                return False
            leg = self._upstream()
            if acks:
                slot = self._slot(key, version, correlation)
                leg.expect(self._expected(slot, edit_of(self._port, key, version)))
        self._left = size + LENGTH_BYTES
        return True

    def _hold(self, piece: bytes) -> None:
        """Of a frame that is read whole; the same as at any other door."""
        for frame in self._frames.feed(piece):
            self._bytes += len(frame)
            self._backlog.append(frame)
        if self._frames.missing:
            if (refused := self._foreseen()) is not None:
                self._backlog.append(refused)
            if self._frames.missing > MAX_BYTES_PER_TURN:
                self._rest()
        super()._advance()

    def _advance(self) -> None:
        super()._advance()
        while self._uncut and not self._backlog and self._parked is None and not self._transport.is_closing():
            data, self._uncut = self._uncut, b""
            self._cut_up(data)
        self._throttle()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._uncut = self._carry = b""
        if self._leg is not None:
            self._leg.close()

    # -- requests that are read ---------------------------------------------------------------------------------------

    def _start(self, frame: Frame) -> None:
        key, version, correlation = HEAD.unpack_from(frame)
        known = self._known.get(key << 16 | version)
        if known is not None and frame.startswith(known, HEAD.size):
            super()._start(frame)
            return
        way = TABLE[key][1]
        if key == LIST_GROUPS:
            super()._start(frame)
        elif way is RequestRoute.GREET:
            self._greet(frame, version, correlation)
        elif way is RequestRoute.GROUP:
            self._one_group(frame, key, version, correlation)
        elif way is RequestRoute.SEVERAL:
            self._several(frame, key, version, correlation)
        elif key == SASL_HANDSHAKE and version == 0:
            raise HangUp(
                "SaslHandshake 0 does not pass: the words after it have no headers; expected version 1, or a listener "
                "of SASL_PLAINTEXT or SASL_SSL"
            )
        else:
            self._forward(frame, key, version, correlation)

    def _serve_here(self, frame: Frame) -> None:
        """By the node's own handlers, as at any other door."""
        super()._start(frame)

    def _greet(self, frame: Frame, version: int, correlation: int) -> None:
        """What the client is, is told to both; what it may use is what both have."""
        form = self._dispatch.form(API_VERSIONS, version)
        if form is None:
            super()._start(frame)
            return
        caller, request = self._read(form, frame)
        assert form.immediate is not None
        response = form.immediate(request, caller.call)
        if response.error_code:
            super()._start(frame)
            return
        edit = response_rewriting.edit_versions(version, self._port.broker is None, self.untold)
        self._forward(frame, API_VERSIONS, version, correlation, edit)

    def _one_group(self, frame: Frame, key: int, version: int, correlation: int) -> None:
        group, end = group_of(TABLE[key][0].name, version, frame)
        if not self._port.ours(group):
            self._forward(frame, key, version, correlation)
            return
        if end <= LONGEST_KEPT:
            self._known[key << 16 | version] = bytes(frame[HEAD.size : end])
        super()._start(frame)

    def _several(self, frame: Frame, key: int, version: int, correlation: int) -> None:
        name = TABLE[key][0].name
        change = change_of(self._port, name, version)
        edit = None if change is None else response_rewriting.edit_whole(f"{name}Response", version, change)
        form = self._dispatch.form(key, version)
        if form is None:  # nobody here has a part in it
            self._forward(frame, key, version, correlation, edit)
            return
        try:
            caller, request = self._read(form, frame)
        except RequestTooLong:
            super()._start(frame)
            return
        parts = split_request(name, version, request, self._port.ours, self._port.places)
        if parts.theirs is None:
            super()._start(frame)
        elif parts.mine is None:
            self._forward(frame, key, version, correlation, edit)
        else:
            slot = RequestSlot(len(frame), correlation, form, self._begun_s)
            self._slots.append(slot)
            self._parked = slot
            slot.task = self._loop.create_task(self._both(slot, caller, request, parts, change))

    async def _both(
        self,
        slot: RequestSlot,
        caller: DecodedHeader,
        request: Any,
        parts: SplitRequest,
        change: Callable[[Any], Any] | None,
    ) -> None:
        """Ask the upstream for its part and the handlers for theirs, and join what they say."""
        name, version, form = slot.form.api.name, slot.form.version, slot.form
        try:
            told = self._send_part(slot, caller, parts.theirs)
            assert form.handler is not None, f"{name} is answered by the long way"
            here = await form.handler(parts.mine, caller.call)
            answer = await told
            begin = 4 if not form.tagged else 5
            there = decode(f"{name}Response", version, answer, begin)[0]
            self._fill(slot, join_answers(name, version, request, here, there if change is None else change(there)))
        except asyncio.CancelledError:
            return
        except Exception as error:
            self._failed(slot, error)
            return
        self._resume_reading(slot)

    def _send_part(self, slot: RequestSlot, caller: DecodedHeader, request: Any) -> "asyncio.Future[bytes]":
        """Part of a request, with the header of the whole."""
        return self._said(slot.form.api, slot.form.version, slot.correlation, caller.header, request)

    def _said(self, api: Api, version: int, correlation: int, header: bytes, request: Any) -> "asyncio.Future[bytes]":
        """A request of the node's own on the client's way there. Raises HangUp."""
        answer: asyncio.Future[bytes] = self._loop.create_future()
        leg = self._upstream()
        head = HEAD.pack(api.key, version, correlation) + header
        body = b"".join(encode(f"{api.name}Request", version, request))
        leg.expect(ExpectedAnswer(correlation, None, answer=answer))
        leg.write((len(head) + len(body)).to_bytes(LENGTH_BYTES, "big") + head + body)
        return answer

    def _read(self, form: ServedVersion, frame: Frame) -> tuple[DecodedHeader, Any]:
        caller = self._callers.get(form)
        if caller is None or not frame.startswith(caller.header, HEAD.size):
            caller = self._meet(form, frame)
        return caller, caller.read(frame, HEAD.size + len(caller.header))[0]

    def _forward(self, frame: Frame, key: int, version: int, correlation: int, edit: Edit | None = None) -> None:
        """A frame that was read after all passes as it came."""
        leg = self._upstream()
        slot = self._slot(key, version, correlation)
        leg.expect(self._expected(slot, edit))
        leg.write(len(frame).to_bytes(LENGTH_BYTES, "big") + frame)
        self._bytes -= len(frame)

    # -- the upstream -------------------------------------------------------------------------------------------------

    def _upstream(self) -> BrokerConnection:
        """The way there, which is begun when it is needed first. Raises HangUp."""
        if self._leg is None:
            where, opens = self._port.leg()
            self._leg = BrokerConnection(self, self._port.traffic, where)
            self._upstream_full = True
            opens(self._leg)
        return self._leg

    def _slot(self, key: int, version: int, correlation: int) -> RequestSlot:
        form = self._passing.get(key << 16 | version)
        if form is None:
            form = self._passing[key << 16 | version] = passing_form(self._port.instruments, key, version)
        slot = RequestSlot(0, correlation, form, self._begun_s)
        self._slots.append(slot)
        return slot

    def _expected(self, slot: RequestSlot, edit: Edit | None) -> ExpectedAnswer:
        return ExpectedAnswer(slot.correlation, slot, edit, slot.form.tagged)

    def is_due(self, slot: RequestSlot) -> bool:
        return bool(self._slots) and self._slots[0] is slot

    def pass_on(self, piece: Buffer) -> None:
        if not self._transport.is_closing():
            self._transport.write(piece)

    def passed(self, slot: RequestSlot) -> None:
        slot.done = True
        self._active_at = self._loop.time()
        if slot.form.api.key in CHANGES_TOPICS:
            self._port.topics_changed()
        self._send()
        if self._draining:
            self._close_if_drained()
        elif self._paused or self._uncut:
            self._resume_reading()

    def leg_stands(self, leg: BrokerConnection) -> None:
        self.leg_full(False)

    def leg_full(self, full: bool) -> None:
        self._upstream_full = full
        self._throttle()

    def leg_lost(self, leg: BrokerConnection, why: str) -> None:
        """With it goes the client's connection; one of the node's own port that nobody needs right now is made anew."""
        if leg is not self._leg:
            return
        self._leg = None
        if self._can_do_without(leg):
            self.leg_full(False)
        else:
            self._end(why)

    def leg_ends(self, leg: BrokerConnection) -> None:
        """The client comes again, once what it has asked is answered, as after any connection's end."""
        if self._can_do_without(leg):
            leg.failed("its login ends")
        else:
            self.drain()

    def _can_do_without(self, leg: BrokerConnection) -> bool:
        return self._port.broker is None and not leg.under_way and not (self._left and self._passes)

    def _end(self, why: str) -> None:
        """Close, once what was answered has left: it may say why the upstream hung up."""
        self.fault, self._draining = why, True
        self._backlog.clear()
        for slot in self._slots:
            if slot.task is not None:
                slot.task.cancel()
        self._slots.clear()
        self._transport.close()

    def _send(self) -> None:
        super()._send()
        if self._leg is not None and self._leg.kept:
            self._loop.call_soon(self._leg.resume_reading)

    # -- pressure -----------------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._weigh()
        if self._leg is not None:
            self._leg.rest()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._leg is not None:
            self._leg.resume_reading()

    def _throttle(self) -> None:
        """As its base; a request that passes is at hand until it has passed, and does not stand in its own way."""
        stop = self._resting or self._held or self._upstream_full or bool(self._uncut)
        taken = len(self._slots) + len(self._backlog) - (self._passes and self._left > 0)
        if taken > 0 and not stop:
            full = taken >= self._limits.max_in_flight or self.in_flight_bytes > self._limits.max_in_flight_bytes
            stop = full or self._choked
        if stop != self._paused and not self._transport.is_closing():
            self._paused = stop
            (self._transport.pause_reading if stop else self._transport.resume_reading)()


LIST_GROUPS: Final = 16
METADATA: Final = 3
DESCRIBE_CLUSTER: Final = 60


def edit_of(port: ProxyPort, key: int, version: int) -> Edit | None:
    """What is done with the answer to a request that was not read."""
    if key == METADATA:
        return response_rewriting.edit_metadata(version, port.places)
    if key == DESCRIBE_CLUSTER:
        return response_rewriting.edit_described_cluster(version, port.places)
    if key == LIST_GROUPS:
        return response_rewriting.edit_listed_groups(version, port.ours)
    name = TABLE[key][0].name
    if port.broker is None and name in response_rewriting.OF_EACH:
        return response_rewriting.empty_answer(name, version)
    return None


def change_of(port: ProxyPort, name: str, version: int) -> Callable[[Any], Any] | None:
    """What is done with the upstream's answer, or its part of one."""
    if name == "FindCoordinator":
        return lambda answer: response_rewriting.rewrite_coordinators(answer, version, port.places)
    if name == "DescribeConfigs":
        return response_rewriting.rewrite_described_configs
    if name == "ListConfigResources":
        return lambda answer: response_rewriting.rewrite_listed_resources(answer, port.ours)
    return None


def answer_nothing(*_: object) -> Any:
    raise AssertionError("a request that passes is neither read nor answered here")


def passing_form(instruments: Instruments | None, key: int, version: int) -> ServedVersion:
    """The form of requests that the upstream answers."""
    api, way = TABLE[key]
    tagged = way is not RequestRoute.PASS and is_flexible(f"{api.name}Response", version) and key != API_VERSIONS
    meter = None if instruments is None else instruments.meter(DOOR, api.name)
    return ServedVersion(api, version, None, None, answer_nothing, answer_nothing, answer_nothing, tagged, meter)


# A connection whose client logs in at its broker
# -----------------------------------------------

NO_CLIENT_ID: Final = b"\xff\xff"
"""A null string, where a request's header names its client."""

APIS: Final = {TABLE[key][0].name: TABLE[key][0] for key in (SASL_HANDSHAKE, SASL_AUTHENTICATE)}


class LoginProxyConnection(SaslWordsConnection, ProxyConnection):
    __slots__ = ("_login", "_rules")

    def __init__(self, rules: RelayRules, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._rules = rules
        self._login: ClientLogin | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._let_in:
            self._login = ClientLogin(self._rules, self._ask_broker, self._peer, self._frames, self)
            self._peer.login = self._login

    def connection_lost(self, exc: Exception | None) -> None:
        if self._login is not None:
            self._login.gone()
        super().connection_lost(exc)

    def settled(self) -> None:
        """See `Asked`. Until when a login holds is looked at with each request."""

    # -- what comes from the client -----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        try:
            self._entered().heard(len(data))
        except HangUp as error:
            self._drop(str(error))
        else:
            super().data_received(data)

    def _start_bytes(self) -> int:
        return LENGTH_BYTES if self._entered().raw else START.size

    def _begun(self, data: bytes, at: int) -> bool:
        login = self._entered()
        if login.raw:
            self._begin_words(int.from_bytes(data[at : at + LENGTH_BYTES], "big", signed=True))
            return True
        size, key, _, _ = START.unpack_from(data, at)
        if size > self._frames.limit:
            raise MalformedFrame(f"a frame of {size} bytes; expected at most {self._frames.limit}")
        passes = key in TABLE and TABLE[key][1] in (RequestRoute.PASS, RequestRoute.EDIT)
        if passes and not (self._backlog or self._parked is not None):  # else it is looked at again when its turn comes
            login.admit(key)
        return super()._begun(data, at)

    def _begin_words(self, size: int) -> None:
        """What comes after SaslHandshake 0: frames of nothing but a mechanism's words. Raises MalformedFrame."""
        if not 1 <= size <= self._frames.limit:
            raise MalformedFrame(f"a frame of {size} bytes; expected 1 to {self._frames.limit}")
        self._passes = False
        self._left = size + LENGTH_BYTES

    def _start(self, frame: Frame) -> None:
        login = self._entered()
        if login.raw:
            self._hear(login, frame)
            return
        key, version, _ = HEAD.unpack_from(frame)
        login.admit(key)
        if key == SASL_AUTHENTICATE:
            login.relay.version = version
        if key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            self._serve_here(frame)
        else:
            super()._start(frame)

    def _foreseen(self) -> EarlyRefusal | None:
        """Nothing is read of a request before the login but its key."""
        return super()._foreseen() if self._entered().known else None

    def _entered(self) -> ClientLogin:
        if self._login is None:
            raise HangUp("it is not open")
        return self._login

    # -- its broker ---------------------------------------------------------------------------------------------------

    async def _ask_broker(self, name: str, version: int, request: Any) -> Any:
        """See `AskBroker`. Raises HangUp, MalformedFrame."""
        header = NO_CLIENT_ID + (b"\0" if is_flexible(f"{name}Request", version) else b"")
        frame = await self._said(APIS[name], version, 0, header, request)
        return decode(f"{name}Response", version, frame, body_position(name, version, frame))[0]

    def leg_lost(self, leg: BrokerConnection, why: str) -> None:
        """With it goes the login, and with that the client's connection, however idle. Who is just being told that a
        login has failed hears that yet."""
        if leg is not self._leg:
            return
        self._leg = None
        if not (self._draining and self._slots and not leg.under_way):
            self._end(why)


# A connection whose client has shown a certificate
# -------------------------------------------------


class CertificateProxyConnection(ProxyConnection):
    __slots__ = ()

    untold: ClassVar[frozenset[int]] = TOKENS

    def _begun(self, data: bytes, at: int) -> bool:
        _, key, _, _ = START.unpack_from(data, at)
        if key in TOKENS:
            raise HangUp(f"API {key} is for delegation tokens, which clients with certificates cannot get")
        return super()._begun(data, at)

    def _start(self, frame: Frame) -> None:
        if HEAD.unpack_from(frame)[0] in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            self._serve_here(frame)
        else:
            super()._start(frame)


# The listener: the node's own port and one per broker (KB-X6)
# ------------------------------------------------------------

BROKERS_BACKLOG: Final = 256


class ProxyListener(ConnectionListener):
    """One listener with many ports; what is let in counts for all of them together."""

    def __init__(self, limits: ListenerLimits) -> None:
        super().__init__(limits)
        self._for_brokers: dict[int, socket.socket] = {}
        self._servers: list[asyncio.Server | TlsHandshakes] = []

    def bind_for(self, host: str, ports: Iterable[tuple[int, int]]) -> None:
        """Take the port of each broker, given as (broker, port). Raises OSError, which has the port in `filename`."""
        for broker, port in ports:
            try:
                self._for_brokers[broker] = open_listening_socket(host, port, BROKERS_BACKLOG)
            except OSError as error:
                error.filename = port
                raise

    def give_back(self) -> None:
        super().give_back()
        for each in self._for_brokers.values():
            each.close()

    async def serve(
        self,
        own: ProxyPort,
        dispatch: Dispatcher,
        stands_for: Callable[[int], ProxyPort],
        elsewhere: Dispatcher,
        tls: ListenerTls | None,
        whom: Callable[[str | None], int | None] | None = None,
    ) -> None:
        """own, dispatch: of the node's own port; stands_for, elsewhere: of a broker's. whom: which broker a connection
        to the own port is for, by the name that is asked for in its handshake, where they are told apart by names."""

        def made(broker: int | None) -> ServerConnection:
            return self._made(own, dispatch) if broker is None else self._made(stands_for(broker), elsewhere)

        making: Callable[..., asyncio.Protocol] = connections_of_port(own)
        if whom is not None:
            assert tls is not None, "names are asked for in handshakes"
            making = connections_by_name(ServerNames(tls, whom), made)
        await self.start(dispatch, making, tls)
        for broker, listening in self._for_brokers.items():
            await self._listen(listening, partial(self._made, stands_for(broker), elsewhere), tls)

    def _made(self, port: ProxyPort, dispatch: Dispatcher) -> ServerConnection:
        return connections_of_port(port)(dispatch, self._limits.connection, self._let_in, self._gone, self._shared)

    async def _listen(
        self, listening: socket.socket, make: Callable[[], ServerConnection], tls: ListenerTls | None
    ) -> None:
        if tls is None:
            loop = asyncio.get_running_loop()
            self._servers.append(await loop.create_server(make, sock=listening, backlog=BACKLOG))
            return
        handshakes = TlsHandshakes(tls, listening, make, self._admits)
        handshakes.start()
        self._servers.append(handshakes)

    def drain(self) -> None:
        for accepting in self._servers:
            accepting.close()
        super().drain()


def connections_by_name(
    named: ServerNames, made: Callable[[int | None], ServerConnection]
) -> Callable[..., asyncio.Protocol]:
    """Takes what a `ServerConnection` takes."""
    return lambda *_: HandshakeArrival(lambda transport: made(named.broker(transport)))


def connections_of_port(port: ProxyPort) -> Callable[..., ServerConnection]:
    """What makes a port's connections."""
    if port.login is not None:
        return partial(LoginProxyConnection, port.login, port)
    return partial(CertificateProxyConnection if port.by_certificate else ProxyConnection, port)
