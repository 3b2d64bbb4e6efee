"""A snapshot as integer arrays, and an assignment as one: how a million partitions stay cheap.

All partitions of subscribed topics lie on one axis: topics in Java's order, partition p of topic t at base[t] + p.
Members are numbered in Kafka's order, equal subscriptions share one array, claims are positions on the axis. The
mappings of `Snapshot` and `Assignment` are views of these arrays, made when somebody looks.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import is_
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from muster.assignors.data.values import Member, SnapshotValues, in_java_order, in_kafka_order

# All partitions in one row
# -------------------------

Ints: TypeAlias = "NDArray[np.signedinteger[Any]]"


@dataclass(frozen=True)
class Axis:
    """All partitions of some topics in one row."""

    topics: tuple[str, ...]
    base: NDArray[np.int64]  # one longer than topics; the last is the number of partitions

    @classmethod
    def of(cls, topics: Sequence[str], counts: Mapping[str, int]) -> Axis:
        base = np.zeros(len(topics) + 1, dtype=np.int64)
        np.cumsum([counts[topic] for topic in topics], out=base[1:])
        return cls(tuple(topics), base)

    @property
    def size(self) -> int:
        return int(self.base[-1])

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        return np.diff(self.base)

    @cached_property
    def place(self) -> dict[str, int]:
        return {topic: number for number, topic in enumerate(self.topics)}

    @cached_property
    def topic_of(self) -> NDArray[np.int32]:
        """Topic number of each partition on the axis."""
        return np.repeat(np.arange(len(self.topics), dtype=np.int32), self.counts)

    def split(self, row: Ints) -> dict[str, list[int]]:
        """Sorted positions on the axis as {topic: [partitions]}."""
        if not len(row):
            return {}
        topics = np.searchsorted(self.base, row, side="right") - 1
        cuts = np.flatnonzero(np.diff(topics)) + 1
        starts = [0, *cuts.tolist()]
        numbers = (row - self.base[topics]).tolist()
        ends = [*starts[1:], len(numbers)]
        which = topics[starts].tolist()
        return {self.topics[topic]: numbers[start:end] for topic, start, end in zip(which, starts, ends, strict=True)}


# Members by column
# -----------------


@dataclass(frozen=True)
class TableMember:
    """What a `MemberTable` knows of a member besides its topics and claims."""

    id: str
    generation: int = -1
    instance_id: str | None = None
    rack: str | None = None
    user_data: bytes = b""


class OwnedView(Mapping[str, Sequence[int]]):
    """{topic: partitions} of one member's claims, read from positions on an axis when looked at."""

    __slots__ = ("_axis", "_cells", "_row")

    def __init__(self, axis: Axis, row: Ints) -> None:
        self._axis, self._row = axis, row
        self._cells: dict[str, list[int]] | None = None

    def _read(self) -> dict[str, list[int]]:
        if self._cells is None:
            self._cells = self._axis.split(np.sort(self._row))
        return self._cells

    def __getitem__(self, topic: str) -> Sequence[int]:
        return self._read()[topic]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        return repr(self._read())


class MemberTable(Sequence[Member]):
    """Members by column; give it to `Snapshot` in place of a list. Reads as a sequence of `Member`.

    `subscriptions` are the distinct topic lists, `subscription_of` says who has which. `claims` holds
    positions on `axis` for each member, or None for a member that reports nothing.
    """

    def __init__(
        self,
        rows: Sequence[TableMember],
        subscriptions: Sequence[tuple[str, ...]],
        subscription_of: Sequence[int],
        axis: Axis,
        claims: Sequence[Ints | None],
    ) -> None:
        if not len(rows) == len(subscription_of) == len(claims):
            raise ValueError(
                f"columns differ in length: {len(rows)} members, {len(subscription_of)} subscriptions, "
                f"{len(claims)} claims"
            )
        self.rows, self.axis, self.claims = rows, axis, claims
        self.subscriptions, self.subscription_of = subscriptions, subscription_of

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Member]:
        for row, kind, claim in zip(self.rows, self.subscription_of, self.claims, strict=True):
            yield self._member(row, kind, claim)

    @overload
    def __getitem__(self, index: int) -> Member: ...
    @overload
    def __getitem__(self, index: slice) -> list[Member]: ...
    def __getitem__(self, index: int | slice) -> Member | list[Member]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return self._member(self.rows[index], self.subscription_of[index], self.claims[index])

    def _member(self, row: TableMember, kind: int, claim: Ints | None) -> Member:
        return Member(
            id=row.id,
            topics=self.subscriptions[kind],
            owned=None if claim is None else OwnedView(self.axis, claim),
            generation=row.generation,
            instance_id=row.instance_id,
            rack=row.rack,
            user_data=row.user_data,
        )


class MemberList(list[Member]):
    """The members of a table, for those who expect a list. As long as nobody changes it, the table stands for it."""

    def __init__(self, table: MemberTable) -> None:
        super().__init__(table)
        self.table = table
        self._made = tuple(self)

    @property
    def untouched(self) -> bool:
        return len(self) == len(self._made) and all(map(is_, self, self._made))


# Snapshots and assignments as arrays
# -----------------------------------

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

    def items(self) -> ItemsView[str, Mapping[str, Sequence[int]]]:
        return OwnerItems(self)

    def shares(self) -> Iterator[tuple[str, dict[str, list[int]]]]:
        """Every member's share, by one pass over the columns."""
        axis, (order, start) = self.columns.axis, self.index
        topics = axis.topic_of[order]
        numbers = (order - axis.base[topics]).tolist()
        names, cuts = [axis.topics[topic] for topic in topics.tolist()], start.tolist()
        for number, member in enumerate(self.columns.members):
            share: dict[str, list[int]] = {}
            for place in range(cuts[number], cuts[number + 1]):
                share.setdefault(names[place], []).append(numbers[place])
            yield member, share

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


class OwnerItems(ItemsView[str, Mapping[str, Sequence[int]]]):
    """The items of an `OwnerTable`, read in one pass."""

    _mapping: OwnerTable

    def __iter__(self) -> Iterator[tuple[str, Mapping[str, Sequence[int]]]]:
        return iter(self._mapping.shares())


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
    """(rightful owner, claimed at all) by partition: see `muster.assignors.data.values`."""
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
