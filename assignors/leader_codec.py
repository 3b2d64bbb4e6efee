"""From subscription bytes to assignment bytes: what the leader of a classic group does in one go.

ConsumerProtocol blobs of many members are read together: all are walked in step, one topic entry at a time. Members
whose blobs are unusual are read one by one, with the same outcome. Assignments of all members are laid out in one
buffer. A single blob is the business of `assignors/data/consumer_protocol.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from muster.assignors.api import FAST_FROM, Assignment, Assignor, JsonValue, Snapshot
from muster.assignors.data.columns import Axis, Ints, MemberTable, OwnerTable, TableMember
from muster.assignors.data.consumer_protocol import (
    MAX_STRING_BYTES,
    NEWEST,
    TopicLists,
    encode_assignment,
    member_from_subscription,
)
from muster.assignors.data.consumer_protocol import (
    SubscribedMember as SubscribedMember,
)
from muster.assignors.data.values import in_java_order
from muster.assignors.run import run

# Assignments of many members
# ---------------------------

Bytes: TypeAlias = NDArray[np.uint8]


class EncodedTopicNames:
    """Topic names as they stand in a blob: length in two bytes, then the name; padded to one width."""

    def __init__(self, axis: Axis) -> None:
        self.axis = axis
        encoded = [topic.encode("utf-8", "surrogatepass") for topic in axis.topics]
        raw = [struct.pack(">h", min(len(name), MAX_STRING_BYTES)) + name for name in encoded]
        self.size = np.array([len(name) for name in raw] or [2], dtype=np.int64)
        self.width = int(self.size.max())
        padded = b"".join(name.ljust(self.width, b"\0") for name in raw) or bytes(self.width)
        self.bytes: Bytes = np.frombuffer(padded, dtype=np.uint8).reshape(-1, self.width)
        self.beyond = np.arange(self.width) >= self.size[:, None]
        self.number = {name: index for index, name in enumerate(raw)}

    @cached_property
    def same_size(self) -> bool:
        return bool((self.size == self.width).all())


def encode_shares(table: OwnerTable, version: int) -> dict[str, bytes]:
    """Each member's assignment as bytes."""
    axis, members = table.columns.axis, table.columns.members
    frame = encode_assignment({}, None, version)  # version, no topics, no user data
    order, start = table.index
    given = order[start[0] :]
    topic = axis.topic_of[given]
    lengths = np.diff(start)
    who = np.repeat(np.arange(len(members), dtype=np.int32), lengths)
    names = EncodedTopicNames(axis)
    head = np.ones(len(given), dtype=np.bool_)  # where an entry (member, topic) begins
    head[1:] = (topic[1:] != topic[:-1]) | (who[1:] != who[:-1])
    single = np.bincount(who[~head], minlength=len(members)) == 0  # one partition of each topic
    out: dict[str, bytes] = {}
    if names.same_size and single.any():
        body = _single_rows(axis, names, given, topic).data
        size = names.width + 8
        for number in np.flatnonzero(single).tolist():
            begin, end = int(start[number] - start[0]), int(start[number + 1] - start[0])
            count = struct.pack(">i", end - begin)
            out[members[number]] = b"".join((frame[:2], count, body[begin * size : end * size], frame[6:]))
        many = np.flatnonzero(~single)
    else:
        many = np.arange(len(members))
    if len(many):
        rows = np.isin(who, many) if len(many) < len(members) else slice(None)
        layout = _Layout(axis, names, given[rows], topic[rows], who[rows], head[rows])
        out.update(zip([members[number] for number in many.tolist()], layout.blobs(many, frame), strict=True))
    return {member: out[member] for member in members}


def _single_rows(axis: Axis, names: EncodedTopicNames, given: Any, topic: NDArray[np.int32]) -> Bytes:
    """Entries of one partition each: name, count 1, partition; all of one size, so one matrix."""
    width = names.width
    rows = np.empty((len(given), width + 8), dtype=np.uint8)
    rows[:, :width] = names.bytes[topic]
    rows[:, width : width + 4] = (0, 0, 0, 1)
    partition = (given - axis.base[topic]).astype(">i4")
    rows[:, width + 4 :] = partition.view(np.uint8).reshape(-1, 4)
    return rows.reshape(-1)


class _Layout:
    """The general case: every entry's place in one buffer, then name, count and partitions put there."""

    def __init__(
        self,
        axis: Axis,
        names: EncodedTopicNames,
        given: Any,
        topic: NDArray[np.int32],
        who: NDArray[np.int32],
        head: Any,
    ) -> None:
        self.names, self.first = names, np.flatnonzero(head)
        self.topic, self.who = topic[self.first], who[self.first]
        self.count = np.diff(np.append(self.first, len(given)))
        self.partition = given - axis.base[topic]
        self.sizes = names.size[self.topic] + 4 + 4 * self.count

    def blobs(self, members: NDArray[np.intp], frame: bytes) -> list[bytes]:
        place = np.searchsorted(members, self.who)
        ends = np.cumsum(self.sizes)
        offset = ends - self.sizes + 10 * place + 6  # 6 bytes before and 4 behind each member's entries
        entries = np.bincount(place, minlength=len(members))
        body = np.bincount(place, weights=self.sizes, minlength=len(members)).astype(np.int64)
        stops = np.cumsum(body + 10)
        begins = stops - body - 10
        buffer = np.zeros(int(stops[-1]), dtype=np.uint8)
        edges = np.frombuffer(frame, dtype=np.uint8)
        buffer[begins[:, None] + np.arange(2)] = edges[:2]
        _put_int32(buffer, begins + 2, entries)
        for size in np.unique(self.names.size).tolist():
            rows = self.names.size[self.topic] == size
            buffer[offset[rows][:, None] + np.arange(size)] = self.names.bytes[self.topic[rows], :size]
        behind = offset + self.names.size[self.topic]
        _put_int32(buffer, behind, self.count)
        rank = np.arange(len(self.partition)) - np.repeat(self.first, self.count)
        _put_int32(buffer, np.repeat(behind + 4, self.count) + 4 * rank, self.partition)
        buffer[stops[:, None] - 4 + np.arange(4)] = edges[6:]
        blob = buffer.tobytes()
        return [blob[begin:stop] for begin, stop in zip(begins.tolist(), stops.tolist(), strict=True)]


def _put_int32(buffer: Bytes, at: Any, value: Any) -> None:
    for shift, byte in ((24, 0), (16, 1), (8, 2), (0, 3)):
        buffer[at + byte] = (value >> shift) & 0xFF


# Subscriptions of many members
# -----------------------------

_UNKNOWN = -1
GENERATION_BYTES = 4
"""All that Java's cooperative-sticky says in its user data."""


def member_table(assignor: str, members: Sequence[SubscribedMember], counts: Mapping[str, int]) -> MemberTable:
    """The members as a table; those whose blobs are unusual are read one by one, with the same outcome."""
    axis = Axis.of(in_java_order(topic for topic, count in counts.items() if count > 0), counts)
    lists = TopicLists()
    heads = [_Head.of(joined.metadata, *lists.read(joined.metadata)) for joined in members]
    walk = _BlobWalk(EncodedTopicNames(axis), members, heads)
    from_user_data = assignor == "sticky"
    if from_user_data:
        walk.sections([(h.user_data, h.user_data + h.user_size) if h.user_size > 0 else None for h in heads])
        claims, after = walk.claims, walk.at.copy()
        walk.sections([(h.owned, h.size) if h.version >= 1 else None for h in heads])
    else:
        walk.sections([(h.owned, h.size) if h.version >= 1 else None for h in heads])
        claims, after = walk.claims, walk.at
    kinds: dict[tuple[str, ...], int] = {}
    rows: list[TableMember] = []
    rights: list[Ints | None] = []
    for number, (joined, head) in enumerate(zip(members, heads, strict=True)):
        row = (
            None if number in walk.odd else _read_tail(assignor, joined, head, int(walk.at[number]), int(after[number]))
        )
        if row is None:
            row, claim = _one_by_one(assignor, joined, axis, counts)
        else:
            claim = claims[number] if (head.user_size > 0 if from_user_data else head.version >= 1) else None
        rows.append(row)
        rights.append(claim)
        kinds.setdefault(head.topics, len(kinds))
    return MemberTable(rows, list(kinds), [kinds[head.topics] for head in heads], axis, rights)


@dataclass(frozen=True, slots=True)
class _Head:
    """Where the parts of one subscription lie."""

    version: int
    topics: tuple[str, ...]
    user_data: int  # where it starts
    user_size: int  # -1: null
    owned: int  # where the owned partitions start
    size: int

    @classmethod
    def of(cls, blob: bytes, version: int, topics: tuple[str, ...], at: int) -> _Head:
        if at + 4 > len(blob):
            raise ValueError(f"subscription: user data needs 4 bytes at offset {at}, but {len(blob) - at} are left")
        size: int = struct.unpack_from(">i", blob, at)[0]
        owned = at + 4 + max(0, size)
        if owned > len(blob):
            raise ValueError(f"subscription: {size} bytes of user data at offset {at} do not fit")
        return cls(version, topics, at + 4, size, owned, len(blob))


def _read_tail(assignor: str, joined: SubscribedMember, head: _Head, at: int, after: int) -> TableMember | None:
    """Generation and rack from behind the partitions; None when the blob is not as expected."""
    blob, generation, rack = joined.metadata, -1, None
    if assignor == "sticky":
        end = head.user_data + max(0, head.user_size)
        if head.user_size > 0 and end - after >= 4:
            generation = struct.unpack_from(">i", blob, after)[0]
    if head.version >= 2:
        if at + 4 > head.size:
            return None
        if assignor != "sticky":
            generation = struct.unpack_from(">i", blob, at)[0]
    if head.version >= 3:
        if at + 6 > head.size:
            return None
        length = struct.unpack_from(">h", blob, at + 4)[0]
        if length >= 0:
            raw = blob[at + 6 : at + 6 + length]
            try:
                rack = raw.decode() if len(raw) == length else None
            except UnicodeDecodeError:
                return None
            if rack is None:
                return None
    elif head.version < 2 and assignor == "cooperative-sticky":
        return None  # Its generation, if any, is in the user data.
    if assignor != "sticky" and head.version >= 1 and head.user_size > GENERATION_BYTES:
        return None  # It may say there what it owns as well.
    user_data = blob[head.user_data : head.owned]
    return TableMember(joined.member_id, generation, joined.instance_id, rack, user_data)


def _one_by_one(
    assignor: str, joined: SubscribedMember, axis: Axis, counts: Mapping[str, int]
) -> tuple[TableMember, Ints | None]:
    """The plain reader's verdict; ValueError when the blob cannot be read."""
    member = member_from_subscription(joined.member_id, joined.instance_id, joined.metadata, assignor)
    row = TableMember(member.id, member.generation, member.instance_id, member.rack, member.user_data)
    if member.owned is None:
        return row, None
    found = [
        int(axis.base[axis.place[topic]]) + partition
        for topic, partitions in member.owned.items()
        if topic in axis.place
        for partition in partitions
        if 0 <= partition < counts[topic]
    ]
    return row, np.unique(np.array(found, dtype=np.int64))


_Entries = tuple[NDArray[np.int64], ...]  # member, topic or -1, where its partitions start, how many
_TEMPLATES = 4  # tried for each length of a section
_WORTH_A_TEMPLATE = 4  # members


@dataclass(frozen=True, slots=True)
class _Template:
    """One section, taken apart: by entry the topic, where its partitions start, and how many there are."""

    topic: NDArray[np.int64]
    start: NDArray[np.int64]
    count: NDArray[np.int64]
    size: int

    @property
    def numbers(self) -> NDArray[np.bool_]:
        """The bytes that are partition numbers."""
        edges = np.zeros(self.size + 1, dtype=np.int64)
        np.add.at(edges, self.start, 1)
        np.add.at(edges, self.start + 4 * self.count, -1)
        return np.cumsum(edges[:-1]) > 0

    def entries(self, members: NDArray[np.int64], begin: NDArray[np.int64]) -> _Entries:
        each = len(members)
        return (
            np.repeat(members, len(self.topic)),
            np.tile(self.topic, each),
            (begin[:, None] + self.start).ravel(),
            np.tile(self.count, each),
        )


class _BlobWalk:
    """Reads sections of topic entries from all blobs in step."""

    def __init__(self, names: EncodedTopicNames, members: Sequence[SubscribedMember], heads: Sequence[_Head]) -> None:
        self.names = names
        blobs = [joined.metadata for joined in members]
        sizes = np.array([len(blob) for blob in blobs], dtype=np.int64)
        self.first = np.concatenate(([0], np.cumsum(sizes)[:-1])) if len(blobs) else sizes
        # The tail lets a look at a name run over the end of the last blob.
        self.buffer: Bytes = np.frombuffer(b"".join([*blobs, bytes(names.width + 8)]), dtype=np.uint8)
        self.at = np.zeros(len(blobs), dtype=np.int64)  # within each blob, behind what was read
        self.odd: set[int] = set()  # blobs that the plain reader must judge
        self.claims: list[Ints] = []

    def sections(self, where: Sequence[tuple[int, int] | None]) -> None:
        """Read one section of each blob; afterwards `claims` and `at` hold what was found."""
        self.start = np.array([0 if part is None else part[0] for part in where], dtype=np.int64) + self.first
        self.end = np.array([0 if part is None else part[1] for part in where], dtype=np.int64) + self.first
        at = self.start.copy()
        present = np.array([n for n, part in enumerate(where) if part is not None], dtype=np.int64)
        entries, active = self._by_template(present, at)
        active = self._keep(active, self.end[active] - at[active] >= 4)
        left = np.zeros(len(where), dtype=np.int64)
        left[active] = self._int32(at[active])
        at[active] += 4
        active = self._keep(active, (left[active] >= 0) & (left[active] * 6 <= self.end[active] - at[active]))
        following = np.zeros(len(where), dtype=np.int64)
        active = active[left[active] > 0]
        while len(active):
            here = at[active]
            topic, size = self._names_at(active, here, following[active])
            active, here, topic, size = self._fitting(active, here, topic, size, here + size + 4)
            count = self._int32(here + size)
            fits = (count >= 0) & (here + size + 4 + 4 * count <= self.end[active])
            self._keep(active, fits)
            active, here, topic, size, count = (row[fits] for row in (active, here, topic, size, count))
            entries.append((active, topic, here + size + 4, count))
            at[active] = here + size + 4 + 4 * count
            following[active] = topic + 1
            left[active] -= 1
            active = active[left[active] > 0]
        self.at = at - self.first
        self.claims = self._positions(entries, len(where))

    def _by_template(
        self, present: NDArray[np.int64], at: NDArray[np.int64]
    ) -> tuple[list[_Entries], NDArray[np.int64]]:
        """Sections that equal another one but for the partition numbers are read as one matrix.

        Moves `at` behind them; answers their entries, and who is left to be walked through.
        """
        entries: list[_Entries] = []
        left = [present[:0]]
        size = self.end[present] - self.start[present]
        for length in np.unique(size).tolist():
            group = present[size == length]
            for _ in range(_TEMPLATES):
                if len(group) < _WORTH_A_TEMPLATE:
                    break
                template = self._template(int(self.start[group[0]]), length)
                if template is None:
                    break
                alike = group[self._match(group, template)]
                entries.append(template.entries(alike, self.start[alike]))
                at[alike] += template.size
                group = np.setdiff1d(group, alike, assume_unique=True)
            left.append(group)
        return entries, np.concatenate(left)

    def _template(self, begin: int, length: int) -> _Template | None:
        """The section that begins there, taken apart; None when it is not sound."""
        section = self.buffer[begin : begin + length].tobytes()
        if length < 4 or (number := int.from_bytes(section[:4], "big", signed=True)) < 0:
            return None
        at = 4
        topics: list[int] = []
        starts: list[int] = []
        counts: list[int] = []
        for _ in range(number):
            name_end = at + 2 + int.from_bytes(section[at : at + 2], "big", signed=True)
            topic = self.names.number.get(section[at:name_end]) if at + 2 <= name_end <= length - 4 else None
            if topic is None:
                return None
            count = int.from_bytes(section[name_end : name_end + 4], "big", signed=True)
            at = name_end + 4 + 4 * count
            if count < 0 or at > length:
                return None
            topics.append(topic)
            starts.append(name_end + 4)
            counts.append(count)
        return _Template(np.array(topics, np.int64), np.array(starts, np.int64), np.array(counts, np.int64), at)

    def _match(self, group: NDArray[np.int64], template: _Template) -> NDArray[np.bool_]:
        """Which of these sections have the same bytes wherever the template has no partition numbers."""
        rows = np.lib.stride_tricks.sliding_window_view(self.buffer, template.size)[self.start[group]]
        same = rows == rows[0]
        same |= template.numbers
        return np.asarray(same.all(axis=1))

    def _fitting(self, active: Any, here: Any, topic: Any, size: Any, end: Any) -> tuple[Any, Any, Any, Any]:
        fits = (size >= 2) & (end <= self.end[active])
        self._keep(active, fits)
        return active[fits], here[fits], topic[fits], size[fits]

    def _keep(self, active: NDArray[np.int64], good: Any) -> NDArray[np.int64]:
        self.odd.update(active[~good].tolist())
        kept: NDArray[np.int64] = active[good]
        return kept

    def _int32(self, at: Any) -> NDArray[np.int64]:
        buffer = self.buffer
        value: NDArray[np.int64] = buffer[at].astype(np.int64) << 24
        value |= buffer[at + 1].astype(np.int64) << 16
        value |= buffer[at + 2].astype(np.int64) << 8
        value |= buffer[at + 3]
        return value.astype(np.int32).astype(np.int64)

    def _names_at(
        self, active: NDArray[np.int64], here: NDArray[np.int64], guess: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(topic number or -1, bytes of the name with its length): most often the topic after the last one."""
        names = self.names
        topic = np.minimum(guess, len(names.bytes) - 1)
        size = names.size[topic]
        seen = self.buffer[here[:, None] + np.arange(names.width)] == names.bytes[topic]
        if not names.same_size:
            seen |= names.beyond[topic]
        for place in np.flatnonzero(~seen.all(axis=1)).tolist():
            begin, end = int(here[place]), int(self.end[active[place]])
            length = int.from_bytes(self.buffer[begin : begin + 2].tobytes(), "big", signed=True)
            if length < 0 or begin + 2 + length > end:
                size[place] = 0  # No name at all: the plain reader will say so.
                continue
            raw = self.buffer[begin : begin + 2 + length].tobytes()
            topic[place] = names.number.get(raw, _UNKNOWN)
            size[place] = len(raw) if topic[place] != _UNKNOWN or _is_text(raw[2:]) else 0
        return np.asarray(topic), np.asarray(size)

    def _positions(self, entries: list[_Entries], members: int) -> list[Ints]:
        if not entries:
            return [np.zeros(0, dtype=np.int64)] * members
        member, topic, start, count = (np.concatenate(column) for column in zip(*entries, strict=True))
        ends = np.cumsum(count)
        rank = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - count, count)
        partition = self._int32(np.repeat(start, count) + 4 * rank)
        topics, who = np.repeat(topic, count), np.repeat(member, count)
        axis = self.names.axis
        real = (topics != _UNKNOWN) & (partition >= 0) & (partition < axis.counts[topics])
        where, who = (axis.base[topics] + partition)[real], who[real]
        if bool((who[1:] < who[:-1]).any()):
            order = np.argsort(who.astype(np.uint16) if members < 0xFFFF else who, kind="stable")
            where, who = where[order], who[order]
        cuts = np.searchsorted(who, np.arange(members + 1)).tolist()
        rows: list[Ints] = [where[begin:end] for begin, end in pairwise(cuts)]
        if bool(((where[1:] <= where[:-1]) & (who[1:] == who[:-1])).any()):
            rows = [np.unique(row) for row in rows]  # Unsorted, or a partition listed twice.
        return rows


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


# Subscriptions in, assignments out
# ---------------------------------


@dataclass(frozen=True, slots=True)
class LeaderTopics:
    """What the leader knows of the topics; fields as in `Snapshot`."""

    topics: Mapping[str, int]
    lags: Mapping[str, Sequence[int]] | None = None
    racks: Mapping[str, Sequence[Sequence[str]]] | None = None


def assign_bytes(
    assignor: Assignor,
    members: Sequence[SubscribedMember],
    cluster: LeaderTopics,
    options: Mapping[str, JsonValue] | None = None,
) -> tuple[Assignment, dict[str, bytes]]:
    """Decode, decide, encode: the assignment, and for each member the bytes for SyncGroup.

    Raises ValueError for a subscription that cannot be read, AssignorError for an assignor that fails.
    """
    snapshot = read_group(assignor.name, members, cluster, options)
    assignment = run(assignor, snapshot)
    return assignment, write_shares(assignment)


def read_group(
    assignor: str,
    members: Sequence[SubscribedMember],
    cluster: LeaderTopics,
    options: Mapping[str, JsonValue] | None = None,
) -> Snapshot:
    """The snapshot that the subscriptions describe."""
    found = None
    if sum(cluster.topics.values()) >= FAST_FROM:
        found = member_table(assignor, members, cluster.topics)
    lists = TopicLists()
    return Snapshot(
        topics=cluster.topics,
        members=found
        if found is not None
        else [
            member_from_subscription(joined.member_id, joined.instance_id, joined.metadata, assignor, lists)
            for joined in members
        ],
        lags=cluster.lags,
        racks=cluster.racks,
        assignor=assignor,
        options=options or {},
    )


def write_shares(assignment: Assignment, version: int = NEWEST) -> dict[str, bytes]:
    """Each member's assignment as bytes."""
    if hasattr(assignment.members, "owner"):
        from muster.assignors.data.columns import OwnerTable

        if isinstance(assignment.members, OwnerTable):
            return encode_shares(assignment.members, version)
    return {member: encode_assignment(share, None, version) for member, share in assignment.members.items()}
