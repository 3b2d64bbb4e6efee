"""Counts what a protobuf message lists before anything is built of it: the parser would take what the bytes hold.

The wire format is walked by its tags, and what is no list is stepped over by its length; it ends at the first entry too
many. What cannot be walked is left to the parser, which says what is wrong with it.
"""

from dataclasses import dataclass
from functools import cache

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from muster.coordinator.edge import limits
from muster.coordinator.edge.shape import MalformedGroupRequest

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
        self._limits = [limits.max_entries(path) for path in self._paths]

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
        strays = limits.MAX_STRAY_FIELDS
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
            raise MalformedGroupRequest(limits.describe_too_many(field, most - left[place], most, counted=False))


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
