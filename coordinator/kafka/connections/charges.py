"""What the connections of a node are charged by, and what one of them is charged (KIP-124, KIP-219).

Who is over a quota is answered at once and told how long to wait; for so long nothing more is read from the connection.
Time is measured only where a quota is set on it: decoding, what a handler does before and between its waits, and
encoding; not what the groups' turn does for many requests together.
"""

import select
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from struct import Struct
from time import perf_counter
from typing import Any, Final, Protocol

from muster.coordinator.edge.timing import LoopTime
from muster.coordinator.kafka.codec.codec import is_flexible, message_of
from muster.coordinator.kafka.codec.emitter import Buffer, fields_in_version
from muster.coordinator.kafka.connections.places import RequestSlot
from muster.coordinator.kafka.dispatch import KafkaCall, ThreadedAnswer
from muster.coordinator.security.names import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from muster.coordinator.security.quotas import NodeQuotas

MOST_MEMBERS: Final = 100
"""Of one connection, whose sessions stand still while it is held; a client has one, a proxy may have some."""

MOST_LINGERING: Final = 1_000
"""Connections that wait to be closed, because their address opens too many."""

EOF_CHECK_S: Final = 5.0
"""While a connection is held nobody reads it, so now and then it is looked whether its client is there at all."""

UNCHARGED: Final = frozenset({"ApiVersions", "SaslHandshake", "SaslAuthenticate"})
"""What comes before anybody knows who it is."""

TIME = Struct(">i")
PERCENT = 100.0

HeldConnections = Callable[[str, str, int], None]
"""What this member of this group says is not read for so many ms."""


class Holdable(Protocol):
    """A connection that can be held."""

    def hold_back(self) -> None: ...

    def release(self) -> None: ...

    def fileno(self) -> int: ...

    def abort(self) -> None: ...


class ConnectionCharges:
    """Of one listener."""

    def __init__(self, quotas: NodeQuotas, held: HeldConnections, loop: Any) -> None:
        self.quotas = quotas
        self.held = held
        self.loop = loop
        self.lingering = 0

    def payer(self, connection: Holdable) -> "ChargedConnection | None":
        """None while nothing is set that a request is charged for: then nobody looks."""
        return ChargedConnection(self, connection) if self.quotas.rates else None

    def turned_away(self, host: str, abort: Callable[[], None]) -> bool | None:
        """Whether a new connection comes too soon after others of its address: None; else it is closed, at once or
        (True) after a while."""
        wait_s = self.quotas.connected(host, self.loop.time()) if self.quotas.connections else 0.0
        if not wait_s:
            return None
        if self.lingering >= MOST_LINGERING:
            return False
        self.lingering += 1

        def close() -> None:
            self.lingering -= 1
            abort()

        self.loop.call_later(wait_s, close)
        return True


class ChargedConnection:
    """One connection's side of it."""

    __slots__ = ("_charges", "_connection", "_members", "_since_s", "_until_s")

    def __init__(self, charges: ConnectionCharges, connection: Holdable) -> None:
        self._charges = charges
        self._connection = connection
        self._members: dict[str, str] = {}
        self._since_s = 0.0
        self._until_s = 0.0

    # -- time ---------------------------------------------------------------------------------------------

    def begin(self, begin: Callable[[Any], None], frame: Any, slots: "deque[RequestSlot]") -> None:
        """Begin a request, and note what that took."""
        self.enter()
        begin(frame)
        if slots:
            slots[-1].spent_s += perf_counter() - self._since_s

    def enter(self) -> None:
        """What is done from now on is for one request."""
        self._since_s = perf_counter()

    def timed(self, slot: RequestSlot, answering: Awaitable[Any]) -> Awaitable[Any]:
        return self._timed(slot, answering) if self._charges.quotas.requests else answering

    async def _timed(self, slot: RequestSlot, answering: Awaitable[Any]) -> Any:
        steps = LoopTime(answering)
        answer = await steps
        slot.spent_s += steps.spent_s
        self.enter()
        return answer

    # -- charges ------------------------------------------------------------------------------------------

    def asked(self, slot: RequestSlot, call: KafkaCall, request: Any) -> None:
        """A request was read. What is produced is charged now, so that those behind it are not even begun."""
        slot.call = call
        quotas = self._charges.quotas
        if quotas.producing and slot.form.api.name == "Produce":
            now_s = self._charges.loop.time()
            user = call.identity.principal.name
            slot.wait_s = quotas.charge(quotas.producing, user, call.client_id, slot.size, now_s)
            if slot.wait_s:
                self._hold(to_milliseconds(slot.wait_s), now_s)
        member_id = getattr(request, "member_id", "")
        if member_id and (len(self._members) < MOST_MEMBERS or request.group_id in self._members):
            self._members[request.group_id] = member_id

    def charged(self, slot: RequestSlot, body: list[Buffer]) -> list[Buffer]:
        """The answer with the time to wait in it; the connection is held for so long."""
        call, api = slot.call, slot.form.api.name
        if call is None or api in UNCHARGED:
            return body
        quotas, now_s = self._charges.quotas, self._charges.loop.time()
        user, client = call.identity.principal.name, call.client_id
        wait_s, why = 0.0, ""
        if api == "Produce":
            wait_s, why = slot.wait_s, PRODUCER_BYTE_RATE
        elif api == "Fetch":
            size = sum(map(len, body))
            wait_s, why = quotas.charge(quotas.consuming, user, client, size, now_s), CONSUMER_BYTE_RATE
        if quotas.requests:
            took_s = slot.spent_s + perf_counter() - self._since_s
            if isinstance(slot.task, ThreadedAnswer):
                took_s += slot.task.spent_s
            for_time_s = quotas.charge(quotas.requests, user, client, took_s * PERCENT, now_s)
            if for_time_s > wait_s:
                wait_s, why = for_time_s, REQUEST_PERCENTAGE
        where = throttle_time_position(slot.form.api.name, slot.form.version)
        told_ms = TIME.unpack_from(body[0])[0] if where == 0 and body else 0
        if told_ms > wait_s * 1000:
            wait_s, why = told_ms / 1000, CONTROLLER_MUTATION_RATE
        if not wait_s:
            return body
        quotas.told(user, why, wait_s)
        wait_ms = to_milliseconds(wait_s)
        self._hold(wait_ms, now_s)
        return body if where is None else set_throttle_time(body, where, wait_ms)

    # -- holding ------------------------------------------------------------------------------------------

    def _hold(self, wait_ms: int, now_s: float) -> None:
        until_s = now_s + wait_ms / 1000
        for group_id, member_id in self._members.items():
            more_ms = round((until_s - max(self._until_s, now_s)) * 1000)
            if more_ms > 0:
                self._charges.held(group_id, member_id, more_ms)
        if until_s <= self._until_s:
            return
        began = self._until_s <= now_s
        self._until_s = until_s
        if began:
            self._connection.hold_back()
            self._charges.loop.call_later(min(EOF_CHECK_S, until_s - now_s), self._look)

    def _look(self) -> None:
        """Go on, if it is time; give up, if the client has."""
        left_s = self._until_s - self._charges.loop.time()
        if left_s <= 0:
            self._connection.release()
        elif peer_has_closed(self._connection.fileno()):
            self._connection.abort()
        else:
            self._charges.loop.call_later(min(EOF_CHECK_S, left_s), self._look)


def to_milliseconds(seconds: float) -> int:
    return max(1, int(seconds * 1000))


@cache
def throttle_time_position(api: str, version: int) -> int | None:
    """Where an answer has the time to wait: at its beginning (0), or so many bytes before its end (negative)."""
    name = f"{api}Response"
    fields = [one.name for one in fields_in_version(message_of(name, version).fields, version)]
    if "throttle_time_ms" not in fields:
        return None
    if fields[0] == "throttle_time_ms":
        return 0
    if fields[-1] == "throttle_time_ms":
        return -TIME.size - is_flexible(name, version)
    return None


def set_throttle_time(body: Sequence[Buffer], where: int, wait_ms: int) -> list[Buffer]:
    """The same bytes but for the time."""
    at = 0 if where == 0 else len(body) - 1
    piece = bytearray(body[at])
    if len(piece) < abs(where) or len(piece) < TIME.size:
        return set_throttle_time([b"".join(body)], where, wait_ms)
    TIME.pack_into(piece, where if where >= 0 else len(piece) + where, wait_ms)
    return [*body[:at], bytes(piece), *body[at + 1 :]]


def peer_has_closed(descriptor: int) -> bool:
    """Whether the other side of a socket has closed it."""
    hung_up = getattr(select, "POLLRDHUP", 0)
    if descriptor < 0 or not hung_up:
        return False
    poll = select.poll()
    poll.register(descriptor, hung_up)
    return bool(poll.poll(0))
