"""A snapshot and its plan as bytes, between a caller and the process of a plugin.

A plan is the int32 owner of each partition; where some have none, rows of three int32 (member, topic, how many
partitions: numbers into the snapshot's own lists) and after them the partitions as int64, row by row. Whatever comes
back is checked as if anybody had sent it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from muster.assignors import snapshot_binary
from muster.assignors.api import Assignment, AssignorError, Snapshot
from muster.assignors.data.columns import NOBODY, OwnerTable, table_of
from muster.assignors.data.member_table import MemberList, MemberTable
from muster.assignors.run import checked

MAX_NOTE = 10_000
ROWS, OWNERS = "rows", "owners"


def pack_question(snapshot: Snapshot) -> tuple[dict[str, Any], bytes, Snapshot]:
    """Header, body, and the snapshot with its members as a table. Raises ValueError for a lag beyond 64 bits."""
    listed = not isinstance(snapshot.members, MemberTable)
    tabled = replace(snapshot, members=table_of(snapshot)) if listed else snapshot
    try:
        return {"listed": listed}, snapshot_binary.encode_snapshot(tabled), tabled
    except OverflowError:
        raise ValueError("a lag, or another number of the snapshot, does not fit into 64 bits") from None


def unpack_question(header: Mapping[str, Any], body: Any) -> Snapshot:
    """As the plugin is to see it: a list of members where the caller had one, lags as plain numbers."""
    snapshot = snapshot_binary.decode_snapshot(body)
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
        raise AssignorError(name, f"its process sent something that is no plan ({error})") from None
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
