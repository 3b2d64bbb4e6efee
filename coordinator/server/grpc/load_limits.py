"""What clients may put on the gRPC listener: lasting calls, unread answers, and entries of one request.

HTTP/2 limits the calls of a connection, but a client's library keeps a call above that limit to itself until another
one ends: without an error, and for ever where streams hold all places. So streams are refused, with the reason,
before they take the last places; calls that end by themselves always find one in the end.

An answer stays on this side until its client has room for it, and gRPC cuts off no slow reader. Fetches get less the
more is unread, down to one batch, so that every client goes on. Above the limit the clients that have not taken an
answer for long are cut off, and those that leave some unread are refused large answers; far above it, every client
is. gRPC has no call that ends a connection, so the socket is shut and gRPC finds its peer gone.

What a request lists is counted before the parser builds anything of it, by walking the wire format's tags up to the
first entry too many. Bytes that cannot be walked are left to the parser, which says what is wrong with them.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

import structlog
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from muster.coordinator.edge import request_limits
from muster.coordinator.edge.overload import LogThrottle
from muster.coordinator.edge.request_limits import MalformedGroupRequest
from muster.coordinator.errors import Overloaded

# Cutting a connection
# --------------------

OPEN_FILES = Path("/proc/self/fd")


def cut_connection(peer: str) -> bool:
    """Shut the connection with gRPC's `peer` (`ipv4:127.0.0.1:51234`); whether there was one that could be found.

    Found among the process's open files, which Linux lists; elsewhere nothing is. Looks at each of them: not on an
    event loop.
    """
    address = parse_peer(peer)
    if address is None or not OPEN_FILES.is_dir():
        return False
    return any(shut_if_connected_to(int(number), address) for number in os.listdir(OPEN_FILES))


def parse_peer(peer: str) -> tuple[str, int] | None:
    """
    >>> parse_peer("ipv4:127.0.0.1:51234"), parse_peer("ipv6:%5B::1%5D:51234"), parse_peer("unix:/run/muster.sock")
    (('127.0.0.1', 51234), ('::1', 51234), None)
    """
    family, _, rest = peer.partition(":")
    host, _, port = rest.replace("%5B", "").replace("%5D", "").rpartition(":")
    return (host, int(port)) if family in ("ipv4", "ipv6") and port.isdecimal() else None


def shut_if_connected_to(number: int, address: tuple[str, int]) -> bool:
    """Shut the open file of this number if it is a connection with `address`."""
    found = duplicate_descriptor(number)
    if found is None:
        return False
    with found:
        try:
            if found.family not in (socket.AF_INET, socket.AF_INET6):
                return False
            host, port = found.getpeername()[:2]
            if (host.removeprefix("::ffff:"), port) != address:
                return False
            found.shutdown(socket.SHUT_RDWR)
        except OSError:  # not connected, or gone meanwhile
            return False
    return True


def duplicate_descriptor(number: int) -> socket.socket | None:
    """A copy of the open file of this number, which is ours to close and stays what it is while it is looked at; None
    if it is no socket."""
    try:
        copy = os.dup(number)
    except OSError:  # gone meanwhile
        return None
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        return None


# Calls and answers of each connection
# ------------------------------------

PATIENCE_S = 5.0
"""Who has not taken an answer after so long may be cut off, longest first, while too much is unread."""

TELL_EVERY_S = 10.0
"""Of the refusals of one connection, one in so many seconds is told."""

LARGE_ANSWER = 1 << 16
"""Answers below this size are not counted: a connection has few calls, and a call itself takes memory, too."""

DEFAULT_UNSENT_BYTES = 128 << 20

log = structlog.get_logger("muster.grpc")


@dataclass(frozen=True, slots=True)
class ConnectionLoadLimits:
    """What one connection, and all of them, may put on a node."""

    max_calls: int = 1 << 30
    """Of one connection at once, as HTTP/2 has been told (`grpc.max.streams.per.connection`)."""
    max_unsent_bytes: int = DEFAULT_UNSENT_BYTES
    """Of answers that clients have not taken; twice as many for connections on which nothing is unread."""

    @property
    def max_lasting(self) -> int:
        """Of these calls, those that may last: a quarter is left to the others."""
        return self.max_calls - self.max_calls // 4


@dataclass(slots=True)
class LargeAnswer:
    """A large one on its way."""

    peer: str
    size: int
    since_s: float
    """By the event loop's clock."""
    cut: bool = False


class ConnectionLoad:
    """One per server, on its event loop. A connection is known by gRPC's name of its peer."""

    def __init__(self, limits: ConnectionLoadLimits, cut: Callable[[str], object] = cut_connection) -> None:
        """`cut_connection` ends a connection, in a thread."""
        self._limits = limits
        self._cut = cut
        self._answers: dict[int, LargeAnswer] = {}
        """Large ones that are being sent, oldest first."""
        self._numbers = count()
        self._lasting: dict[str, int] = {}
        self._unsent: dict[str, int] = {}
        self._total_unsent = 0
        self._told = LogThrottle(TELL_EVERY_S)

    @property
    def unsent(self) -> int:
        """Bytes of large answers that clients have not taken."""
        return self._total_unsent

    def begin_call(self, peer: str) -> None:
        """A call that may last begins; `end` follows. Raises Overloaded."""
        count, most = self._lasting.get(peer, 0), self._limits.max_lasting
        if count >= most:
            raise self._refusal(
                peer,
                f"this connection has {count} calls under way that last (sessions, watches), as many "
                f"as it may have: {most} of its {self._limits.max_calls} calls (grpc.max.streams.per.connection). "
                "Open another connection for more: a further channel, with a subchannel pool of its own",
            )
        self._lasting[peer] = count + 1

    def end(self, peer: str) -> None:
        subtract_count(self._lasting, peer, 1)

    def room(self, peer: str) -> int:
        """Bytes that the connection's next answer should have at most, if it can be cut; at least 1."""
        most = self._limits.max_unsent_bytes
        return max(1, min(most - self._total_unsent, most // 2 - self._unsent.get(peer, 0)))

    def keep(self, peer: str, size: int) -> int:
        """A large answer is there to be sent; returns its number, for `sent`. Raises Overloaded.

        Who reads what he asks for has nothing unread, and room where those who do not read have none any more.
        """
        most, own = self._limits.max_unsent_bytes, self._unsent.get(peer, 0)
        if self._total_unsent + size > most:
            self._cut_slowest(self._total_unsent + size - most)
        allowed = most if own else 2 * most
        if self._total_unsent and self._total_unsent + size > allowed:
            raise self._refusal(
                peer,
                f"{own} bytes of answers are unread on this connection, {self._total_unsent} on all of them: no room "
                f"for {size} more (grpc.max.unsent.bytes is {most}). Read what was asked for, then ask again",
            )
        self._unsent[peer] = own + size
        self._total_unsent += size
        number = next(self._numbers)
        self._answers[number] = LargeAnswer(peer, size, asyncio.get_running_loop().time())
        return number

    def sent(self, number: int) -> None:
        """The client took it, or is gone."""
        answer = self._answers.pop(number)
        self._total_unsent -= answer.size
        subtract_count(self._unsent, answer.peer, answer.size)

    def _cut_slowest(self, excess: int) -> None:
        """Cut off who has waited longest, and too long, until so many bytes will be free."""
        loop, going = asyncio.get_running_loop(), set[str]()
        for answer in self._answers.values():
            if excess <= 0 or loop.time() - answer.since_s < PATIENCE_S:
                return
            if answer.peer not in going:
                going.add(answer.peer)
                excess -= self._unsent[answer.peer]
                if not answer.cut:
                    self._end(answer, loop)

    def _end(self, answer: "LargeAnswer", loop: asyncio.AbstractEventLoop) -> None:
        answer.cut = True
        loop.run_in_executor(None, self._cut, answer.peer)
        log.warning(
            "slow reader cut off",
            peer=answer.peer,
            unread=self._unsent[answer.peer],
            together=self._total_unsent,
            why=f"an answer was not taken in {loop.time() - answer.since_s:.0f} s, and grpc.max.unsent.bytes is full",
        )

    def _refusal(self, peer: str, why: str) -> Overloaded:
        untold = self._told.count_suppressed(peer, asyncio.get_running_loop().time())
        if untold is not None:
            log.warning("calls refused", peer=peer, why=why, untold=untold)
        return Overloaded(why)


def subtract_count(counts: dict[str, int], peer: str, amount: int) -> None:
    counts[peer] -= amount
    if not counts[peer]:
        del counts[peer]


# Counting what a request lists
# -----------------------------

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
UNFINISHED = bytes(range(128, 256))
"""The bytes of a varint but its last."""

LONGEST_VARINT = 10
SHORT = 1_000
"""Entries that are gone through in a millisecond or so."""


@dataclass(frozen=True, slots=True)
class FieldRule:
    """What to do about one field, by its tag. `place` is the list's among the lists of the request; -1: no list."""

    place: int
    packed: bool = False
    width: int = 0
    """Bytes of each packed number; 0 for varints."""
    rules: "MessageRules | None" = None
    """Those of the message that the field holds."""


@dataclass(frozen=True, slots=True)
class MessageRules:
    """What to do about the fields of one message; `strays` are those that are no list, or not known."""

    by_tag: dict[int, FieldRule]
    strays: int


class UnwalkableMessage(Exception):
    """These bytes cannot be walked."""


class EntryCounter:
    """Counts the lists of one kind of request."""

    def __init__(self, message: Descriptor) -> None:
        self._name = message.name
        self._paths: list[str] = []
        self._rules = self._rules_of(message, message.name)
        self._limits = [request_limits.max_entries(path) for path in self._paths]

    def short(self, data: bytes) -> bool:
        """Whether no list is so long that going through it would hold up others. Cheap, whatever the bytes are."""
        try:
            self._walk(data, 0, len(data), self._rules, [min(each, SHORT) for each in self._limits])
        except (UnwalkableMessage, IndexError):
            return True
        except MalformedGroupRequest:
            return False
        return True

    def check(self, data: bytes) -> None:
        """Return if no list is too long. Raises MalformedRequest."""
        try:
            self._walk(data, 0, len(data), self._rules, list(self._limits))
        except (UnwalkableMessage, IndexError):
            return

    def _rules_of(self, message: Descriptor, path: str) -> MessageRules:
        by_tag: dict[int, FieldRule] = {}
        strays = request_limits.MAX_STRAY_FIELDS
        for field in message.fields:
            below = f"{path}.{field.name}"
            place = -1
            if field.is_repeated:
                place = len(self._paths)
                self._paths.append(below)
            else:
                strays += 1
            inner = self._rules_of(field.message_type, below) if field.message_type is not None else None
            by_tag[field.number << 3 | wire_type(field)] = FieldRule(place, rules=inner)
            if field.is_repeated and wire_type(field) != LENGTH:
                by_tag[field.number << 3 | LENGTH] = FieldRule(place, True, WIDTHS.get(wire_type(field), 0))
        return MessageRules(by_tag, strays)

    def _walk(self, data: bytes, at: int, end: int, rules: MessageRules, left: list[int]) -> None:
        by_tag, strays = rules.by_tag, rules.strays
        while at < end:
            tag = data[at]
            at += 1
            if tag > 127:
                tag, at = read_varint(data, at - 1)
            rule = by_tag.get(tag)
            kind = tag & 7
            begin = at
            if kind == LENGTH:
                size = data[at]
                at += 1
                if size > 127:
                    size, at = read_varint(data, at - 1)
                begin = at
                at += size
            elif kind == VARINT:
                at += 1
                if data[begin] > 127:
                    _, at = read_varint(data, begin)
            elif kind in WIDTHS:
                at += WIDTHS[kind]
            else:
                raise UnwalkableMessage
            if at > end:
                raise UnwalkableMessage
            if rule is None or rule.place < 0:
                strays -= 1
                if strays < 0:
                    raise MalformedGroupRequest(
                        f"{self._name} has more than {rules.strays} fields in one message besides its lists; "
                        "send each once"
                    )
            else:
                self._spend(rule, data, begin, at, left)
            if rule is not None and rule.rules is not None:
                self._walk(data, begin, at, rule.rules, left)

    def _spend(self, rule: FieldRule, data: bytes, begin: int, end: int, left: list[int]) -> None:
        place, count = rule.place, 1
        if rule.packed:
            # A varint has at most ten bytes, so that no more than these need a look.
            longest = LONGEST_VARINT * (left[place] + 1)
            part = data[begin : min(end, begin + longest)]
            count = (end - begin) // rule.width if rule.width else len(part.translate(None, UNFINISHED))
        left[place] -= count
        if left[place] < 0:
            field, most = self._paths[place].partition(".")[2], self._limits[place]
            raise MalformedGroupRequest(
                request_limits.describe_too_many(field, most - left[place], most, counted=False)
            )


WIDTHS = {FIXED64: 8, FIXED32: 4}


def wire_type(field: FieldDescriptor) -> int:
    """How one value of the field is written."""
    match field.type:
        case FieldDescriptor.TYPE_STRING | FieldDescriptor.TYPE_BYTES | FieldDescriptor.TYPE_MESSAGE:
            return LENGTH
        case FieldDescriptor.TYPE_DOUBLE | FieldDescriptor.TYPE_FIXED64 | FieldDescriptor.TYPE_SFIXED64:
            return FIXED64
        case FieldDescriptor.TYPE_FLOAT | FieldDescriptor.TYPE_FIXED32 | FieldDescriptor.TYPE_SFIXED32:
            return FIXED32
    return VARINT


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The varint at this place, and where it ends."""
    value = 0
    for shift in range(0, 7 * LONGEST_VARINT, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise UnwalkableMessage


@cache
def counter_of(message: Descriptor) -> EntryCounter:
    return EntryCounter(message)
