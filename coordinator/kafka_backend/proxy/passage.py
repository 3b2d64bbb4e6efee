"""A client's connection through the node. What passes streams, what is for Muster is answered as at any other door, and
answers leave in the order of the requests also where both mix (KB-X7).

Of a request that passes no more is read than its length, API, version and correlation id; of Produce also whether it
will be answered. Requests for groups are held whole, within the limits of the node's other doors.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from muster.coordinator.kafka.apis import API_VERSIONS, Api
from muster.coordinator.kafka.codec.codec import decode, encode, is_flexible
from muster.coordinator.kafka.codec.decoding import RequestTooLong
from muster.coordinator.kafka.codec.emitter import Buffer, Frame, MalformedFrame
from muster.coordinator.kafka.connections.connection import MAX_BYTES_PER_TURN, ServerConnection
from muster.coordinator.kafka.connections.frames import HEAD, LENGTH_BYTES, SHORTEST
from muster.coordinator.kafka.connections.places import DecodedHeader, RequestSlot
from muster.coordinator.kafka.dispatch import DOOR, HangUp, ServedVersion
from muster.coordinator.kafka_backend.proxy import response_rewriting
from muster.coordinator.kafka_backend.proxy.allowed_apis import CHANGES_TOPICS, PRODUCE, TABLE, RequestRoute
from muster.coordinator.kafka_backend.proxy.beginnings import LONGEST, START, acks_of, group_of
from muster.coordinator.kafka_backend.proxy.leg import (
    BrokerConnection,
    ExpectedAnswer,
    OpensBrokerConnection,
    ProxyTraffic,
)
from muster.coordinator.kafka_backend.proxy.places import ProxyAddresses
from muster.coordinator.kafka_backend.proxy.relaying import RelayRules
from muster.coordinator.kafka_backend.proxy.response_rewriting import Edit
from muster.coordinator.kafka_backend.proxy.splitting import SplitRequest, join_answers, split_request
from muster.coordinator.observability.metrics.instruments import Instruments

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
                if end - at < START.size:
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
            told = self._ask(slot, caller, parts.theirs)
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
        self._answered(slot)

    def _ask(self, slot: RequestSlot, caller: DecodedHeader, request: Any) -> "asyncio.Future[bytes]":
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
            self._go_on()

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
            self._loop.call_soon(self._leg.go_on)

    # -- pressure -----------------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._weigh()
        if self._leg is not None:
            self._leg.rest()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._leg is not None:
            self._leg.go_on()

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
