"""The blobs that members exchange through a classic group: ConsumerProtocol, byte for byte.

Subscription: v0 topics and user data, v1 + owned partitions (KIP-429), v2 + generation (KIP-792), v3 + rack (KIP-881).
Assignment: the same layout in all versions. A reader takes a newer version by the newest layout it knows and ignores
the rest. User data of the sticky assignors is read and written here, too. Every length is checked before it is used.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from muster.assignors.data.values import Member

NEWEST = 3
MAX_BLOB_BYTES = 64 * 1024 * 1024
MAX_STRING_BYTES = 32_767
NAMES = 1_024
"""Topics whose names' bytes are kept: a name has at most 249 characters where topics are made."""

Partitions = Mapping[str, Sequence[int]]

_COUNT = struct.Struct(">i")
_ONE = struct.Struct(">ii")
_LENGTH = struct.Struct(">h")
_END = struct.Struct(">ih")


@dataclass(frozen=True, slots=True)
class SubscribedMember:
    """A member as the leader's JoinGroup answer lists it."""

    member_id: str
    metadata: bytes
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member tells the leader when it joins; fields a version lacks keep their defaults."""

    version: int
    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: Partitions = field(default_factory=dict)
    generation: int = -1
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """What the leader tells a member in SyncGroup."""

    version: int
    partitions: Partitions
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription) -> bytes:
    """The bytes of a subscription in its own version (0 to 3); topics and claims in the order given."""
    version = _writable(subscription.version)
    parts = [struct.pack(">hi", version, len(subscription.topics))]
    parts += [_string(topic) for topic in subscription.topics]
    parts.append(_nullable_bytes(subscription.user_data))
    if version >= 1:
        parts.append(_partitions(subscription.owned))
    if version >= 2:
        parts.append(_int32(subscription.generation))
    if version >= 3:
        parts.append(b"\xff\xff" if subscription.rack is None else _string(subscription.rack))
    return b"".join(parts)


class TopicLists:
    """Reads the topics of one subscription after the other; equal lists are read once and shared."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[bytes, int, tuple[str, ...]]] = {}  # by version and number of topics

    def read(self, blob: bytes) -> tuple[int, tuple[str, ...], int]:
        """As `parse_topics`."""
        known = self._known.get(blob[:6])
        if known is None or not blob.startswith(known[0]):
            version, topics, at = parse_topics(blob)
            known = self._known[blob[:6]] = (blob[:at], version, topics)
        return known[1], known[2], len(known[0])


def parse_subscription(blob: bytes, lists: TopicLists | None = None) -> Subscription:
    """Read a subscription of any version; ValueError says where the bytes stop making sense.

    `lists` spares the work of reading equal topic lists again.
    """
    return Subscription(*_said(blob, lists))


_Said = tuple[int, tuple[str, ...], "bytes | None", Partitions, int, "str | None"]
"""The fields of a `Subscription`."""


def _said(blob: bytes, lists: TopicLists | None) -> _Said:
    reader = _Reader(blob, "subscription")
    version, topics, reader.at = parse_topics(blob) if lists is None else lists.read(blob)
    user_data = reader.nullable_bytes()
    if version >= NEWEST:
        owned, at = reader.partitions(), reader.at
        if len(blob) - at >= _END.size:
            generation, size = _END.unpack_from(blob, at)
            if size < 0:  # Hardly anybody tells of a rack.
                return version, topics, user_data, owned, generation, None
        return version, topics, user_data, owned, reader.int32(), reader.nullable_string()
    owned = reader.partitions() if version >= 1 else {}
    return version, topics, user_data, owned, reader.int32() if version >= 2 else -1, None


def parse_topics(blob: bytes) -> tuple[int, tuple[str, ...], int]:
    """(version, topics, offset behind them): the part that every version has, all that a broker reads."""
    reader = _Reader(blob, "subscription")
    version = reader.version()
    topics = tuple(reader.string() for _ in range(reader.count(2, "topics")))
    return version, topics, reader.at


def encode_assignment(partitions: Partitions, user_data: bytes | None = None, version: int = NEWEST) -> bytes:
    """The bytes of one member's assignment."""
    return struct.pack(">h", _writable(version)) + _partitions(partitions) + _nullable_bytes(user_data)


def parse_assignment(blob: bytes) -> MemberAssignment:
    """Read an assignment of any version; no bytes at all mean "nothing", as for a member without a share."""
    if not blob:
        return MemberAssignment(NEWEST, {})
    reader = _Reader(blob, "assignment")
    return MemberAssignment(reader.version(), reader.partitions(), reader.nullable_bytes())


def encode_sticky_user_data(owned: Partitions, generation: int | None = None) -> bytes:
    """User data of the eager sticky assignor: v0 are the owned partitions, v1 adds the generation."""
    return _partitions(owned) + (b"" if generation is None else _int32(generation))


def parse_sticky_user_data(blob: bytes) -> tuple[dict[str, list[int]], int]:
    """(owned, generation); -1 when the blob is v0. The layout has no version field: v1 is longer."""
    reader = _Reader(blob, "sticky user data")
    owned = reader.partitions()
    return owned, reader.int32() if reader.left() >= 4 else -1


def encode_cooperative_user_data(generation: int) -> bytes:
    """User data of cooperative-sticky: the generation, for leaders that know no subscription v2."""
    return _int32(generation)


def parse_cooperative_user_data(blob: bytes) -> int:
    return _Reader(blob, "cooperative-sticky user data").int32()


def member_from_subscription(
    member_id: str, instance_id: str | None, blob: bytes, assignor: str = "", lists: TopicLists | None = None
) -> Member:
    """The member that a subscription describes, with claims from where `assignor` puts them.

    Eager `sticky` believes user data alone; all others believe the owned partitions, and take the
    generation from user data when the subscription is too old to have one. User data that cannot be
    read says nothing about ownership, as in Java; it does not spoil the group.
    """
    return _member(member_id, instance_id, _said(blob, lists), assignor)


def member_from_parsed(member_id: str, instance_id: str | None, said: Subscription, assignor: str = "") -> Member:
    """As `member_from_subscription`, of a subscription that has been read; its claims are passed on as they are."""
    told = said.version, said.topics, said.user_data, said.owned, said.generation, said.rack
    return _member(member_id, instance_id, told, assignor)


def _member(member_id: str, instance_id: str | None, said: _Said, assignor: str) -> Member:
    version, topics, user_data, claimed, generation, rack = said
    owned: Partitions | None = claimed if version >= 1 else None
    if assignor == "sticky":
        owned, generation = _sticky_claims(user_data)
    elif version < 2 and assignor == "cooperative-sticky" and user_data:
        generation = parse_cooperative_user_data(user_data) if len(user_data) >= 4 else -1
    member = Member(member_id, topics, owned, generation, instance_id, rack, user_data or b"")
    if user_data and assignor != "sticky" and claims_are_memories(member):
        # librdkafka's cooperative-sticky says what it holds in its user data as well: that is no memory, and withholds.
        return replace(member, user_data=b"")
    return member


def claims_are_memories(member: Member) -> bool:
    """Whether `owned` is only what the member had: eager `sticky` says so in its user data, and has let go of it.

    Such a claim guides a plan, and holds up nobody.
    """
    if not member.user_data or not member.owned:
        return False
    had, _ = _sticky_claims(member.user_data)
    if had is None or had.keys() != member.owned.keys():
        return False
    return all(sorted(had[topic]) == sorted(partitions) for topic, partitions in member.owned.items())


def _sticky_claims(user_data: bytes | None) -> tuple[Partitions | None, int]:
    if not user_data:
        return None, -1
    try:
        return parse_sticky_user_data(user_data)
    except ValueError:
        return None, -1


def _writable(version: int) -> int:
    if not 0 <= version <= NEWEST:
        raise ValueError(f"version {version} cannot be written; versions 0 to {NEWEST} are known")
    return version


def _string(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > MAX_STRING_BYTES:
        raise ValueError(f"{text[:40]!r}... is {len(raw)} bytes long; at most {MAX_STRING_BYTES} fit")
    return _LENGTH.pack(len(raw)) + raw


_name = lru_cache(maxsize=NAMES)(_string)
"""A topic's name, which every member's share repeats."""


def _nullable_bytes(raw: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if raw is None else struct.pack(">i", len(raw)) + raw


def _int32(number: int) -> bytes:
    try:
        return struct.pack(">i", number)
    except struct.error:
        raise ValueError(f"{number} does not fit into 32 bits; generations and partitions must") from None


def _partitions(owned: Partitions) -> bytes:
    parts = [_COUNT.pack(len(owned))]
    for topic, partitions in owned.items():
        count = len(partitions)
        parts.append(_name(topic))
        try:
            if count == 1:  # By far the most frequent: one partition of many topics.
                parts.append(_ONE.pack(1, partitions[0]))
            else:
                parts.append(struct.pack(f">i{count}i", count, *partitions))
        except struct.error:
            raise ValueError(f"a partition of {topic!r} is not a 32-bit number: {list(partitions)[:5]}") from None
    return b"".join(parts)


class _Reader:
    """Walks over a blob; every length is checked against what is left before anything is made of it."""

    def __init__(self, blob: bytes, what: str) -> None:
        if len(blob) > MAX_BLOB_BYTES:
            raise ValueError(f"{what}: {len(blob)} bytes are too many; at most {MAX_BLOB_BYTES} are read")
        self.blob, self.what, self.at = blob, what, 0

    def left(self) -> int:
        return len(self.blob) - self.at

    def version(self) -> int:
        number: int = struct.unpack(">h", self.take(2, "version"))[0]
        if number < 0:
            raise ValueError(f"{self.what}: version {number} does not exist; 0 or more expected")
        return number

    def take(self, size: int, field_name: str) -> bytes:
        end = self.at + size
        if end > len(self.blob):
            raise ValueError(
                f"{self.what}: {field_name} needs {size} bytes at offset {self.at}, but only {self.left()} are left"
            )
        piece = self.blob[self.at : end]
        self.at = end
        return piece

    def int32(self) -> int:
        number: int = struct.unpack(">i", self.take(4, "a number"))[0]
        return number

    def count(self, least: int, field_name: str) -> int:
        """A number of elements of at least `least` bytes each."""
        number = self.int32()
        if number < 0 or number * least > self.left():
            raise ValueError(
                f"{self.what}: {number} {field_name} at offset {self.at - 4} cannot be in {self.left()} bytes"
            )
        return number

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise ValueError(f"{self.what}: a name at offset {self.at - 2} is null; a string is expected")
        return text

    def nullable_string(self) -> str | None:
        size: int = struct.unpack(">h", self.take(2, "a string's length"))[0]
        if size < 0:
            return None
        raw = self.take(size, "a string")
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise ValueError(f"{self.what}: {raw[:40]!r} at offset {self.at - size} is not UTF-8") from None

    def nullable_bytes(self) -> bytes | None:
        size = self.int32()
        return None if size < 0 else self.take(size, "user data")

    def partitions(self) -> dict[str, list[int]]:
        """In one go; where anything is unusual, step by step, which finds the words for it."""
        quick = _quick_partitions(self.blob, self.at)
        if quick is None:
            return self._partitions()
        owned, self.at = quick
        return owned

    def _partitions(self) -> dict[str, list[int]]:
        owned: dict[str, list[int]] = {}
        for _ in range(self.count(6, "topics")):
            topic = self.string()
            count = self.count(4, "partitions")
            numbers = struct.unpack(f">{count}i", self.take(4 * count, "partitions"))
            owned.setdefault(topic, []).extend(numbers)
        return owned


def _quick_partitions(blob: bytes, at: int) -> tuple[dict[str, list[int]], int] | None:
    """The partitions at that place and where they end; None where a length is wrong, or a topic is there twice."""
    owned: dict[str, list[int]] = {}
    length_at, one_at = _LENGTH.unpack_from, _ONE.unpack_from
    try:
        (topics,) = _COUNT.unpack_from(blob, at)
        at += 4
        for _ in range(topics):
            begin = at + 2
            at = begin + length_at(blob, at)[0]
            count, first = one_at(blob, at)
            topic = blob[begin:at].decode()
            if at < begin:
                return None
            at += 4
            owned[topic] = [first] if count == 1 else list(struct.unpack_from(f">{count}i", blob, at))
            at += 4 * count
    except (struct.error, UnicodeDecodeError):
        return None
    return (owned, at) if len(owned) == topics else None
