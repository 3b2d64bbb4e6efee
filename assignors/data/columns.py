"""A snapshot as integer arrays, and an assignment as one: how a million partitions stay cheap.

All partitions of subscribed topics lie on one axis: topics in Java's order, partition p of topic t at
base[t] + p. Members are numbered in Kafka's order, equal subscriptions share one array. The mappings
of `Snapshot` and `Assignment` are views on these arrays, made when somebody looks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.assignors.data.axis import Axis, Ints
from muster.assignors.data.member_table import MemberList, MemberTable, TableMember
from muster.assignors.data.order import in_java_order, in_kafka_order
from muster.assignors.data.values import SnapshotValues

NOBODY = -1
FEW = 64
"""Below so many numbers plain Python is faster than numpy's fixed cost."""


@dataclass(frozen=True)
class SnapshotColumns:
    """What a vectorised assignor works on; get it as `snapshot.columns`."""

    axis: Axis  # subscribed topics only
    members: tuple[str, ...]  # ids in Kafka's order
    subscriptions: tuple[NDArray[np.int32], ...]  # distinct ones, topic numbers, sorted
    subscription_of: NDArray[np.int32]  # by member
    owner: NDArray[np.int32]  # rightful owner by partition, or -1
    claimed: NDArray[np.bool_]  # by anyone, rightfully or not
    snapshot: SnapshotValues

    @cached_property
    def readers(self) -> NDArray[np.int32]:
        """Members who subscribe to anything."""
        sizes = np.array([len(topics) for topics in self.subscriptions] or [0])
        return np.flatnonzero(sizes[self.subscription_of] > 0).astype(np.int32)

    @cached_property
    def alike(self) -> bool:
        """Whether all readers have the same subscription."""
        return sum(len(topics) > 0 for topics in self.subscriptions) == 1

    @cached_property
    def takers(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """(start, member): the subscribers of topic t are member[start[t]:start[t + 1]], in order."""
        topics = len(self.axis.topics)
        if self.alike:
            step = len(self.readers)
            return np.arange(topics + 1, dtype=np.int64) * step, np.tile(self.readers, topics)
        lengths = np.array([len(row) for row in self.subscriptions] or [0])[self.subscription_of]
        member = np.repeat(np.arange(len(self.members), dtype=np.int32), lengths)
        wanted = [self.subscriptions[kind] for kind in self.subscription_of.tolist()]
        topic = np.concatenate(wanted) if wanted else np.zeros(0, dtype=np.int32)
        # Small unsigned keys are sorted by radix: ten times faster than by comparison.
        order = np.argsort(topic.astype(np.uint16) if topics < 0xFFFF else topic, kind="stable")
        start = np.zeros(topics + 1, dtype=np.int64)
        np.cumsum(np.bincount(topic, minlength=topics), out=start[1:])
        return start, member[order]

    @cached_property
    def lags(self) -> NDArray[np.int64]:
        """Records behind, by partition; unknown ones are 0. ValueError where 64 bits do not suffice."""
        out = np.zeros(self.axis.size, dtype=np.int64)
        for number, topic in enumerate(self.axis.topics):
            known = (self.snapshot.lags or {}).get(topic)
            if known is not None:
                count = int(self.axis.counts[number])
                try:
                    row = np.asarray(known, dtype=np.int64)[:count]
                except OverflowError:
                    raise ValueError(f"a lag of {topic!r} does not fit into 64 bits") from None
                start = int(self.axis.base[number])
                out[start : start + len(row)] = np.maximum(row, 0)
        return out

    def table(self, owner: NDArray[np.int32]) -> OwnerTable:
        """An owner array as the mapping that `Assignment.members` wants."""
        return OwnerTable(self, owner)


class OwnerTable(Mapping[str, Mapping[str, Sequence[int]]]):
    """{member: {topic: [partitions]}} over an owner array."""

    def __init__(self, columns: SnapshotColumns, owner: NDArray[np.int32]) -> None:
        self.columns, self.owner = columns, owner

    @cached_property
    def index(self) -> tuple[Ints, Ints]:
        """Positions grouped by owner, and where each member's begin."""
        members = len(self.columns.members)
        kind = np.uint16 if members < 0xFFFF else np.int64
        order = np.argsort((self.owner + 1).astype(kind), kind="stable")
        start = np.zeros(members + 2, dtype=np.int64)
        np.cumsum(np.bincount(self.owner + 1, minlength=members + 1), out=start[1:])
        return order, start[1:]

    @cached_property
    def _number(self) -> dict[str, int]:
        return {member: number for number, member in enumerate(self.columns.members)}

    def positions(self, number: int) -> Ints:
        """Where on the axis member `number` reads."""
        order, start = self.index
        return order[start[number] : start[number + 1]]

    def __getitem__(self, member: str) -> dict[str, list[int]]:
        return self.columns.axis.split(self.positions(self._number[member]))

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns.members)

    def __len__(self) -> int:
        return len(self.columns.members)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, OwnerTable) and other.columns is self.columns:
            return bool(np.array_equal(self.owner, other.owner))
        return isinstance(other, Mapping) and dict(self.items()) == dict(other.items())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} members, {len(self.owner)} partitions>"


def columns_of(snapshot: SnapshotValues) -> SnapshotColumns:
    """The columns of a snapshot; fast from a `MemberTable`, a pass over all claims from a list."""
    members = snapshot.members
    if isinstance(members, MemberList) and members.untouched:
        members = members.table
    table = members if isinstance(members, MemberTable) else table_of(snapshot)
    order = kafka_order(table.rows)
    axis = Axis.of(_wanted(snapshot, table), snapshot.topics)
    place = axis.place
    interned: dict[tuple[int, ...], int] = {}
    kind_of: list[int] = []
    for topics in table.subscriptions:
        numbers = tuple(sorted({place[topic] for topic in topics if topic in place}))
        kind_of.append(interned.setdefault(numbers, len(interned)))
    kinds = np.array(kind_of or [0], dtype=np.int32)
    subscription_of = kinds[np.asarray(table.subscription_of, dtype=np.intp)][order]
    subscriptions = tuple(np.array(numbers, dtype=np.int32) for numbers in interned)
    owner, claimed = _resolve(table, order, axis, subscriptions, subscription_of)
    for array in (owner, claimed, subscription_of, axis.base, *subscriptions):
        array.flags.writeable = False  # One snapshot serves many readers.
    return SnapshotColumns(
        axis=axis,
        members=tuple(table.rows[number].id for number in order.tolist()),
        subscriptions=subscriptions,
        subscription_of=subscription_of,
        owner=owner,
        claimed=claimed,
        snapshot=snapshot,
    )


def table_of(snapshot: SnapshotValues) -> MemberTable:
    """Members of any kind as a table."""
    if isinstance(snapshot.members, MemberTable):
        return snapshot.members
    axis = Axis.of(in_java_order(t for t, count in snapshot.topics.items() if count > 0), snapshot.topics)
    base = dict(zip(axis.topics, axis.base.tolist(), strict=False))
    known: dict[tuple[str, ...], int] = {}
    rows: list[TableMember] = []
    kinds: list[int] = []
    claims: list[Ints | None] = []
    topics: tuple[str, ...] | None = None
    for member in snapshot.members:
        rows.append(TableMember(member.id, member.generation, member.instance_id, member.rack, member.user_data))
        if member.topics is not topics:  # Members that read the same share one tuple more often than not.
            topics, kind = member.topics, known.setdefault(member.topics, len(known))
        kinds.append(kind)
        claims.append(None if member.owned is None else _positions(member.owned, base, snapshot.topics))
    return MemberTable(rows, list(known), kinds, axis, claims)


def kafka_order(rows: Sequence[TableMember]) -> NDArray[np.intp]:
    """Numbers of the members in Kafka's order."""
    number = {row.id: index for index, row in enumerate(rows)}
    return np.array([number[row.id] for row in in_kafka_order(rows)], dtype=np.intp)


def _wanted(snapshot: SnapshotValues, table: MemberTable) -> list[str]:
    used = set(np.unique(np.asarray(table.subscription_of, dtype=np.intp)).tolist())
    wanted: set[str] = set().union(*(table.subscriptions[kind] for kind in used))
    if wanted.issuperset(table.axis.topics):
        return list(table.axis.topics)
    return [topic for topic in table.axis.topics if topic in wanted]


def _positions(owned: Mapping[str, Sequence[int]], base: Mapping[str, int], counts: Mapping[str, int]) -> Ints:
    rows: list[Ints] = []
    few: list[int] = []
    for topic, partitions in owned.items():
        start = base.get(topic)
        if start is None:
            continue
        count = counts[topic]
        if len(partitions) < FEW:
            few.extend([start + partition for partition in partitions if 0 <= partition < count])
        else:
            row = np.asarray(partitions, dtype=np.int64)
            rows.append(row[(row >= 0) & (row < count)] + start)
    if not rows:
        return np.array(sorted(set(few)), dtype=np.int64)
    found = np.concatenate([*rows, np.array(few, dtype=np.int64)])
    return found if bool((found[1:] > found[:-1]).all()) else np.unique(found)


def _resolve(
    table: MemberTable,
    order: NDArray[np.intp],
    axis: Axis,
    subscriptions: Sequence[NDArray[np.int32]],
    subscription_of: NDArray[np.int32],
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """(rightful owner, claimed at all) by partition: see `muster.assignors.data.claims`."""
    owner = np.full(axis.size, NOBODY, dtype=np.int32)
    claimed = np.zeros(axis.size, dtype=np.bool_)
    rows = [table.claims[number] for number in order.tolist()]
    lengths = np.array([0 if row is None else len(row) for row in rows], dtype=np.int64)
    if not lengths.any():
        return owner, claimed
    where = np.concatenate([row for row in rows if row is not None and len(row)])
    who = np.repeat(np.arange(len(rows), dtype=np.int32), lengths)
    if axis.topics != table.axis.topics:
        where, who = _moved_to(axis, table.axis, where, who)
    claimed[where] = True
    generation = np.array([table.rows[number].generation for number in order.tolist()], dtype=np.int64)
    if len(where) != int(claimed.sum()):
        where, who = _newest(where, who, generation)
    owner[where] = who
    _drop_unsubscribed(owner, axis, subscriptions, subscription_of)
    return owner, claimed


def _moved_to(axis: Axis, source: Axis, where: Any, who: NDArray[np.int32]) -> tuple[Any, NDArray[np.int32]]:
    """Positions of one axis on another; those of topics that the other lacks are dropped."""
    shift = np.full(len(source.topics), -1, dtype=np.int64)
    for number, topic in enumerate(source.topics):
        if topic in axis.place:
            shift[number] = axis.base[axis.place[topic]]
    topics = np.searchsorted(source.base, where, side="right") - 1
    there = shift[topics]
    fits = there >= 0
    return (there + where - source.base[topics])[fits], who[fits]


def _newest(where: Any, who: NDArray[np.int32], generation: NDArray[np.int64]) -> tuple[Any, NDArray[np.int32]]:
    """Of several claims to one partition the newest; of several newest ones none."""
    when = generation[who]
    order = np.lexsort((when, where))
    where, who, when = where[order], who[order], when[order]
    last = np.append(where[1:] != where[:-1], True)
    tied = np.zeros(len(where), dtype=np.bool_)
    tied[1:] = (where[1:] == where[:-1]) & (when[1:] == when[:-1]) & (who[1:] != who[:-1])
    best = last & ~tied
    return where[best], who[best]


def _drop_unsubscribed(
    owner: NDArray[np.int32],
    axis: Axis,
    subscriptions: Sequence[NDArray[np.int32]],
    subscription_of: NDArray[np.int32],
) -> None:
    if all(len(topics) == len(axis.topics) for topics in subscriptions):
        return
    owned = np.flatnonzero(owner >= 0)
    owner[owned[~subscribed(owned, owner[owned], axis, subscriptions, subscription_of)]] = NOBODY


def subscribed(
    where: Any,
    who: NDArray[np.int32],
    axis: Axis,
    subscriptions: Sequence[NDArray[np.int32]],
    subscription_of: NDArray[np.int32],
) -> NDArray[np.bool_]:
    """Whether member `who` subscribes to the topic of partition `where`, element by element."""
    topics = len(axis.topics)
    keys = np.concatenate([numbers.astype(np.int64) + kind * topics for kind, numbers in enumerate(subscriptions)])
    asked = subscription_of[who].astype(np.int64) * topics + axis.topic_of[where]
    if topics * len(subscriptions) <= 1 << 25:
        allowed = np.zeros(topics * len(subscriptions), dtype=np.bool_)
        allowed[keys] = True
        return _truth(allowed[asked])
    found = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    return _truth(keys[found] == asked)


def _truth(mask: Any) -> NDArray[np.bool_]:
    """The mask as what it is; numpy's own stubs lose the type of an indexed array."""
    return np.asarray(mask, dtype=np.bool_)
