"""The plain values that decisions are made of: members, their order, and which of them rightfully owns a partition.

Orders are those that Kafka's Java code sees: strings by UTF-16 code unit, static members first (KIP-345). Where
members' claims to a partition disagree, the newest generation wins, and a tie at the top makes it nobody's
(KAFKA-12984, KAFKA-13419, KAFKA-14639). `FALLBACK`, `REASON`, `HELD` and `HANDOVER` are options of a recorded snapshot
that no assignor was given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, TypeVar

# Values
# ------

JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
TopicPartition: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Member:
    """One member of the group.

    `owned` is what it claims to own ({topic: partitions}); None means that it reports nothing, as a
    brand-new member does. A claim counts from `generation`; -1 is "none".
    """

    id: str
    topics: tuple[str, ...]
    owned: Mapping[str, Sequence[int]] | None = None
    generation: int = -1
    instance_id: str | None = None
    rack: str | None = None
    user_data: bytes = b""


class SnapshotValues(Protocol):
    """What a `Snapshot` holds, for those who only read it. Field by field as there."""

    @property
    def topics(self) -> Mapping[str, int]: ...

    @property
    def members(self) -> Sequence[Member]: ...

    @property
    def lags(self) -> Mapping[str, Sequence[int]] | None: ...

    @property
    def racks(self) -> Mapping[str, Sequence[Sequence[str]]] | None: ...

    @property
    def assignor(self) -> str: ...

    @property
    def options(self) -> Mapping[str, JsonValue]: ...

    @property
    def stale(self) -> Mapping[str, Sequence[int]]: ...


# Positions
# ---------


def reading_position(committed: int | None, log_start: int) -> int:
    """The offset at which a group goes on reading: its committed one, but never below the log's start.

    What retention removed is no work for any member, whether the group had read it or not. Without a commit a group
    has everything that is in the log before it (KAFKA-5337).

    >>> reading_position(5, 5_000), reading_position(7, 0), reading_position(None, 40)
    (5000, 7, 40)
    """
    return log_start if committed is None else max(committed, log_start)


def readable_lag(committed: int | None, log_start: int, log_end: int) -> int:
    """Records that a group with this position still has to read, never negative.

    Kafka's tools show another figure, `log_end - committed`, which also counts records that retention has removed.
    As in these, `log_end` is the high watermark, whatever `isolation.level` members have: no protocol tells it to their
    coordinator. So records of open transactions count, and a transaction that hangs shows as a lag that stays.

    >>> readable_lag(5, 5_000, 5_000), readable_lag(45, 10, 50), readable_lag(None, 10, 50), readable_lag(60, 10, 50)
    (0, 5, 40, 0)
    """
    return max(0, log_end - reading_position(committed, log_start))


# Orders
# ------


class Ranked(Protocol):
    """What decides a member's place."""

    @property
    def id(self) -> str: ...

    @property
    def instance_id(self) -> str | None: ...


_R = TypeVar("_R", bound=Ranked)


def in_java_order(words: Iterable[str]) -> list[str]:
    """Sorted as `String.compareTo` does: by UTF-16 code unit, not by code point.

    >>> in_java_order(["\\U0001f600", "\\uffee"]) == ["\\U0001f600", "\\uffee"]
    True
    """
    listed = list(words)
    # Up to U+D7FF the two orders agree, and nearly every name is ASCII.
    if "".join(listed).isascii():
        return sorted(listed)
    return sorted(listed, key=java_key)


def java_key(word: str) -> bytes:
    """A key that sorts as Java compares strings; lone surrogates are allowed, as they are in Java."""
    return word.encode("utf-16-be", "surrogatepass")


def in_kafka_order(members: Sequence[_R]) -> list[_R]:
    """Static members by group.instance.id, then dynamic ones by member id."""
    static = {member.instance_id: member for member in members if member.instance_id is not None}
    dynamic = {member.id: member for member in members if member.instance_id is None}
    if len(static) + len(dynamic) < len(members):
        return sorted(members, key=_member_key)  # An instance seen twice: the member id decides.
    return [static[word] for word in in_java_order(static)] + [dynamic[word] for word in in_java_order(dynamic)]


def _member_key(member: Ranked) -> tuple[bool, bytes, bytes]:
    rank = member.id if member.instance_id is None else member.instance_id
    return member.instance_id is None, java_key(rank), java_key(member.id)


# Options that only the ledger has
# --------------------------------

FALLBACK: Final = "fallback"
"""The assignor had failed: what stood in for it."""
REASON: Final = "reason"
"""Why it had failed."""
HELD: Final = "held"
"""The assignor's word was not the last: what an operator held of the group."""
HANDOVER: Final = "handover"
"""How the coordinator handed out its plan: `WHOLE`, or held back by `CLAIMS`, or by those of a list of member ids."""
WHOLE: Final = "whole"
CLAIMS: Final = "claims"
TOLD_BESIDE: Final = frozenset({FALLBACK, REASON, HELD, HANDOVER})


# Claims
# ------

NOBODY = -1


def rightful_owners(topics: Mapping[str, int], members: Sequence[Member]) -> dict[tuple[str, int], str]:
    """{(topic, partition): member id}: the newest generation wins, a tie at the top is nobody's.

    Claims to partitions that do not exist, and winners who no longer subscribe, count for nothing.
    """
    held = owner_table(topics, members)
    return {
        (topic, partition): members[owner].id
        for topic, table in held.items()
        for partition, owner in enumerate(table)
        if owner != NOBODY
    }


def owner_table(topics: Mapping[str, int], members: Sequence[Member]) -> dict[str, list[int]]:
    """{topic: owner by partition}, owners as indices into `members`; topics nobody claims are left out."""
    table = claims_of_one_generation(topics, members)
    if table is None:
        table = newest_claims(topics, members)
    _lose(table, members)
    return table


def newest_claims(topics: Mapping[str, int], members: Sequence[Member]) -> dict[str, list[int]]:
    """By whoever claims it as of the newest generation; NOBODY where several do."""
    table: dict[str, list[int]] = {}
    newest: dict[str, list[int]] = {}
    for index, member in enumerate(members):
        generation = member.generation
        for topic, partitions in (member.owned or {}).items():
            holders = table.get(topic)
            if holders is None:
                count = topics.get(topic, 0)
                holders = table[topic] = [NOBODY] * count
                newest[topic] = [_BEFORE_ALL] * count
            since = newest[topic]
            # A partition that one member lists twice is no conflict; nearly always it lists one.
            for partition in partitions if len(partitions) == 1 else set(partitions):
                if not 0 <= partition < len(holders):
                    continue
                if generation > since[partition]:
                    since[partition] = generation
                    holders[partition] = index
                elif generation == since[partition]:
                    holders[partition] = NOBODY
    return table


def claims_of_one_generation(topics: Mapping[str, int], members: Sequence[Member]) -> dict[str, list[int]] | None:
    """The same where all claims are equally new, as after a plan that everybody took in: none has to be compared.

    None: they are not, or some partition is claimed twice or does not exist.
    """
    claiming = [(index, member) for index, member in enumerate(members) if member.owned]
    if len({member.generation for _, member in claiming}) > 1:
        return None
    table: dict[str, list[int]] = {}
    claims = 0
    for index, member in claiming:
        for topic, partitions in (member.owned or {}).items():
            holders = table.get(topic)
            if holders is None:
                holders = table[topic] = [NOBODY] * topics.get(topic, 0)
            claims += len(partitions)
            try:
                for partition in partitions:
                    if partition < 0:
                        return None
                    holders[partition] = index
            except IndexError:
                return None
    # A partition that is claimed twice is missing here.
    owned = sum(map(len, table.values())) - sum(holders.count(NOBODY) for holders in table.values())
    return table if owned == claims else None


def _lose(table: dict[str, list[int]], members: Sequence[Member]) -> None:
    """Who no longer subscribes to a topic has lost it."""
    wanted = {topics: frozenset(topics) for topics in {member.topics for member in members}}
    everywhere = frozenset.intersection(*wanted.values()) if wanted else frozenset()
    for topic, holders in table.items():
        if topic in everywhere:
            continue
        lost = {index for index in set(holders) if index != NOBODY and topic not in wanted[members[index].topics]}
        if lost:
            table[topic] = [NOBODY if index in lost else index for index in holders]


def raw_claims(members: Sequence[Member]) -> dict[tuple[str, int], set[str]]:
    """Every claim as reported, right or wrong: a member that claims a partition may still be reading it."""
    claimed: dict[tuple[str, int], set[str]] = {}
    for member in members:
        for topic, partitions in (member.owned or {}).items():
            for partition in partitions:
                claimed.setdefault((topic, partition), set()).add(member.id)
    return claimed


def find_claimants(members: Iterable[Member], asked: Mapping[str, set[int]]) -> dict[tuple[str, int], str | None]:
    """Who claims each partition that is asked for, right or wrong; None where several do."""
    found: dict[tuple[str, int], str | None] = {}
    for member in members:
        owned = member.owned
        if not owned:
            continue
        for topic, partitions in asked.items():
            for partition in owned.get(topic, ()):
                if partition in partitions and found.setdefault((topic, partition), member.id) != member.id:
                    found[topic, partition] = None
    return found


_BEFORE_ALL = -(1 << 40)
