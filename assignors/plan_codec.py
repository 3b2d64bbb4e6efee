"""Snapshots and plans as bytes, between a caller and the process of a plugin.

A snapshot is JSON with arrays behind it. Layout, little-endian: magic "MSNP", uint8 version, uint32 header length,
header (JSON), then the arrays in the order in which the header counts them: claims by member (int64 positions on the
axis of all topics in Java's order), then lags by topic.

A plan is the int32 owner of each partition; where some have none, rows of three int32 (member, topic, how many
partitions: numbers into the snapshot's own lists) and after them the partitions as int64, row by row.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from muster.assignors.api import Assignment, AssignorError, Snapshot
from muster.assignors.data.columns import NOBODY, Axis, MemberList, MemberTable, OwnerTable, TableMember, table_of
from muster.assignors.data.snapshot_json import decode_snapshot_json as json_load
from muster.assignors.data.snapshot_json import encode_snapshot_json as json_dump
from muster.assignors.data.values import in_java_order
from muster.assignors.run import checked

# Snapshots
# ---------

MAGIC = b"MSNP"
VERSION = 1
MAX_HEADER = 64 * 1024 * 1024
_PREFIX = struct.Struct("<4sBI")


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The snapshot as bytes. Claims to partitions that do not exist are not kept: nobody may rely on them."""
    table = snapshot.members if isinstance(snapshot.members, MemberTable) else table_of(snapshot)
    lags = {topic: np.asarray(row, dtype="<i8") for topic, row in (snapshot.lags or {}).items()}
    bare = replace(snapshot, members=[], lags=None)
    header = {
        "snapshot": json.loads(json_dump(bare)),
        "subscriptions": [list(topics) for topics in table.subscriptions],
        "subscription_of": [int(kind) for kind in table.subscription_of],
        "rows": [[row.id, row.generation, row.instance_id, row.rack, row.user_data.hex()] for row in table.rows],
        "claims": [None if claim is None else len(claim) for claim in table.claims],
        "lags": None if snapshot.lags is None else {topic: len(row) for topic, row in lags.items()},
    }
    text = json.dumps(header, separators=(",", ":")).encode("utf-8", "surrogatepass")
    parts = [_PREFIX.pack(MAGIC, VERSION, len(text)), text]
    parts += [np.asarray(claim, dtype="<i8").tobytes() for claim in table.claims if claim is not None]
    parts += [row.tobytes() for row in lags.values()]
    return b"".join(parts)


def decode_snapshot(blob: bytes) -> Snapshot:
    """Read what `encode_snapshot` wrote; ValueError when the bytes are cut short, foreign or contradict themselves."""
    if len(blob) < _PREFIX.size:
        raise ValueError(f"a binary snapshot has at least {_PREFIX.size} bytes; here are {len(blob)}")
    magic, version, size = _PREFIX.unpack_from(blob)
    if magic != MAGIC or version != VERSION:
        raise ValueError(f"this is no binary snapshot of version {VERSION}: it starts with {blob[:5]!r}")
    if size > min(MAX_HEADER, len(blob) - _PREFIX.size):
        raise ValueError(f"binary snapshot: a header of {size} bytes does not fit into {len(blob)} bytes")
    try:
        header = json.loads(blob[_PREFIX.size : _PREFIX.size + size].decode("utf-8", "surrogatepass"))
        return _assemble(header, blob, _PREFIX.size + size)
    except (KeyError, IndexError, TypeError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ValueError(f"binary snapshot: its parts do not fit together ({error})") from None


def _assemble(header: dict[str, Any], blob: bytes, start: int) -> Snapshot:
    bare = Snapshot(**json_load(json.dumps(header["snapshot"])))
    axis = Axis.of(_topics(bare), bare.topics)
    reader = _Arrays(blob, start)
    rows = [
        TableMember(word, int(generation), instance, rack, bytes.fromhex(data))
        for word, generation, instance, rack, data in header["rows"]
    ]
    subscriptions = [tuple(topics) for topics in header["subscriptions"]]
    kinds = [int(kind) for kind in header["subscription_of"]]
    if any(not 0 <= kind < len(subscriptions) for kind in kinds):
        raise ValueError("a member has a subscription that is not listed")
    claims = [None if count is None else reader.take(count, axis.size) for count in header["claims"]]
    lags = header["lags"]
    return Snapshot(
        topics=bare.topics,
        members=MemberTable(rows, subscriptions, kinds, axis, claims),
        lags=None if lags is None else {topic: reader.take(count, None) for topic, count in lags.items()},
        racks=bare.racks,
        assignor=bare.assignor,
        options=bare.options,
        stale=bare.stale,
    )


def _topics(snapshot: Snapshot) -> list[str]:
    return in_java_order(topic for topic, count in snapshot.topics.items() if count > 0)


class _Arrays:
    def __init__(self, blob: bytes, at: int) -> None:
        self.blob, self.at = blob, at

    def take(self, count: int, below: int | None) -> Any:
        end = self.at + 8 * count
        if count < 0 or end > len(self.blob):
            raise ValueError(f"{count} numbers at offset {self.at} do not fit into {len(self.blob)} bytes")
        row = np.frombuffer(self.blob, dtype="<i8", count=count, offset=self.at)
        if below is not None and count and (int(row.min()) < 0 or int(row.max()) >= below):
            raise ValueError(f"a claim lies beyond the {below} partitions there are")
        self.at = end
        return row


# Questions and plans
# -------------------

MAX_NOTE = 10_000
ROWS, OWNERS = "rows", "owners"


def pack_question(snapshot: Snapshot) -> tuple[dict[str, Any], bytes, Snapshot]:
    """Header, body, and the snapshot with its members as a table. Raises ValueError for a lag beyond 64 bits."""
    listed = not isinstance(snapshot.members, MemberTable)
    tabled = replace(snapshot, members=table_of(snapshot)) if listed else snapshot
    try:
        return {"listed": listed}, encode_snapshot(tabled), tabled
    except OverflowError:
        raise ValueError("a lag, or another number of the snapshot, does not fit into 64 bits") from None


def unpack_question(header: Mapping[str, Any], body: Any) -> Snapshot:
    """As the plugin is to see it: a list of members where the caller had one, lags as plain numbers."""
    snapshot = decode_snapshot(body)
    lags = snapshot.lags and {topic: tuple(np.asarray(row).tolist()) for topic, row in snapshot.lags.items()}
    table = table_of(snapshot)
    members = MemberList(table) if header["listed"] else table
    return replace(snapshot, members=members, lags=lags)


def pack_plan(snapshot: Snapshot, plan: Assignment) -> tuple[dict[str, Any], bytes]:
    """Header and body of a checked plan: where every partition has a reader, as owners, however it was written."""
    header: dict[str, Any] = {"note": plan.note[:MAX_NOTE], "unassigned": [list(tp) for tp in plan.unassigned]}
    if isinstance(plan.members, OwnerTable):
        return header | {"form": OWNERS}, np.ascontiguousarray(plan.members.owner, dtype="<i4").tobytes()
    if not plan.unassigned:
        return header | {"form": OWNERS}, owner_of_each(snapshot, plan.members).tobytes()
    member_number = {member.id: number for number, member in enumerate(snapshot.members)}
    topic_number = {topic: number for number, topic in enumerate(snapshot.topics)}
    rows = [
        (member_number[member], topic_number[topic], len(partitions))
        for member, share in plan.members.items()
        for topic, partitions in share.items()
    ]
    numbers = np.fromiter(chain.from_iterable(encode_rows(plan.members)), "<i8")
    return header | {"form": ROWS, "rows": len(rows)}, np.array(rows, dtype="<i4").tobytes() + numbers.tobytes()


def owner_of_each(snapshot: Snapshot, shares: Mapping[str, Mapping[str, Sequence[int]]]) -> Any:
    """The shares as an owner for each partition of the subscribed topics (int32, numbers into `columns.members`).

    A plan may have a row for every single partition: nothing is done row by row but by C.
    """
    columns = snapshot.columns
    base = dict(zip(columns.axis.topics, columns.axis.base.tolist(), strict=False))
    number = {member: at for at, member in enumerate(columns.members)}
    rows_each = [len(share) for share in shares.values()]
    count = sum(rows_each)
    starts = np.fromiter(map(base.__getitem__, chain.from_iterable(shares.values())), np.int64, count)
    sizes = np.fromiter(map(len, encode_rows(shares)), np.int64, count)
    numbers = np.fromiter(chain.from_iterable(encode_rows(shares)), np.int64, int(sizes.sum()))
    readers = np.repeat(np.array([number[member] for member in shares], "<i4"), rows_each)
    owner = np.full(columns.axis.size, NOBODY, "<i4")
    owner[np.repeat(starts, sizes) + numbers] = np.repeat(readers, sizes)
    return owner


def encode_rows(shares: Mapping[str, Mapping[str, Sequence[int]]]) -> Iterator[Sequence[int]]:
    return chain.from_iterable(share.values() for share in shares.values())


def unpack_plan(name: str, snapshot: Snapshot, header: Mapping[str, Any], body: Any) -> Assignment:
    """The plan for `snapshot`, in which each partition has exactly one rightful reader. Raises AssignorError."""
    try:
        unassigned = tuple((str(topic), int(number)) for topic, number in header["unassigned"])
        note = str(header["note"])[:MAX_NOTE]
        if header["form"] == OWNERS:
            return checked(name, snapshot, Assignment(read_owners(snapshot, body), unassigned=unassigned, note=note))
        count = int(header["rows"])
        rows = np.frombuffer(body, dtype="<i4", count=3 * count).reshape(count, 3)
        numbers = np.frombuffer(body, dtype="<i8", offset=12 * count)
        shares = decode_rows(snapshot, rows, numbers)
    except AssignorError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise AssignorError(name, f"its process sent something that is not a plan ({error})") from None
    return checked(name, snapshot, Assignment(shares, unassigned=unassigned, note=note))


def read_owners(snapshot: Snapshot, body: Any) -> OwnerTable:
    columns = snapshot.columns
    owner = np.frombuffer(body, dtype="<i4").astype(np.int32)
    if len(owner) != columns.axis.size or (len(owner) and not -1 <= owner.min() <= owner.max() < len(columns.members)):
        raise ValueError(f"{len(owner)} owners for {columns.axis.size} partitions and {len(columns.members)} members")
    return columns.table(owner)


def decode_rows(snapshot: Snapshot, rows: Any, numbers: Any) -> dict[str, dict[str, Sequence[int]]]:
    """Shares of all members; ValueError or IndexError where the numbers mean nothing."""
    ids, topics = [member.id for member in snapshot.members], list(snapshot.topics)
    if len(rows) and (int(rows.min()) < 0 or int(rows[:, 2].sum(dtype=np.int64)) != len(numbers)):
        raise ValueError(f"{len(rows)} rows do not fit {len(numbers)} partitions")
    listed = numbers.tolist()
    shares: dict[str, dict[str, Sequence[int]]] = {member: {} for member in ids}
    at = 0
    for member, topic, size in rows.tolist():
        share = shares[ids[member]]
        if topics[topic] in share:
            raise ValueError(f"two rows for {ids[member]!r} and {topics[topic]!r}")
        share[topics[topic]] = listed[at : at + size]
        at += size
    return shares
