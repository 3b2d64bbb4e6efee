"""The checks of `muster.assignors.run` on arrays; imported for large groups only."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np

from muster.assignors.api import Assignment, AssignorError, Snapshot, TopicPartition
from muster.assignors.data.columns import NOBODY, Axis, Ints, OwnerTable, SnapshotColumns, subscribed

_NAMED = 5


class AxisPartitions(Sequence[TopicPartition]):
    """Positions on an axis, read as (topic, partition)."""

    def __init__(self, axis: Axis, where: Ints) -> None:
        self._axis, self._where = axis, where

    def __len__(self) -> int:
        return len(self._where)

    @overload
    def __getitem__(self, index: int) -> TopicPartition: ...
    @overload
    def __getitem__(self, index: slice) -> list[TopicPartition]: ...
    def __getitem__(self, index: int | slice) -> TopicPartition | list[TopicPartition]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        where = int(self._where[index])
        topic = int(np.searchsorted(self._axis.base, where, side="right")) - 1
        return self._axis.topics[topic], where - int(self._axis.base[topic])

    def __iter__(self) -> Iterator[TopicPartition]:
        return ((topic, p) for topic, row in self._axis.split(self._where).items() for p in row)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


def checked_table(name: str, snapshot: Snapshot, answer: Assignment, limited: bool) -> Assignment | None:
    """The answer when it is an owner table of this snapshot and flawless; None when it is another mapping."""
    if not isinstance(answer.members, OwnerTable):
        return None
    # A plugin's table stands on its own copy of the snapshot; the numbers are judged against the original.
    columns, owner = snapshot.columns, answer.members.owner
    table = answer.members if answer.members.columns is columns else columns.table(owner)
    axis = columns.axis
    if not isinstance(owner, np.ndarray) or owner.shape != (axis.size,) or owner.dtype.kind != "i":
        raise AssignorError(
            name, f"answered {_kind(owner)} as owners; expected an array of {axis.size} signed integers"
        )
    wrong = np.flatnonzero((owner < NOBODY) | (owner >= len(columns.members)))
    if len(wrong):
        raise AssignorError(
            name, f"gave {_names(axis, wrong)} to member number {int(owner[wrong[0]])}, which does not exist"
        )
    none = np.flatnonzero(owner == NOBODY)
    if len(none) and not limited:
        raise AssignorError(name, f"forgot {_names(axis, none)}")
    given = np.flatnonzero(owner != NOBODY) if len(none) else np.arange(axis.size)
    alien = given[:0]
    if not _all_read_everything(columns):
        mask = subscribed(given, owner[given], axis, columns.subscriptions, columns.subscription_of)
        alien = given[~mask]
    if len(alien):
        reader = columns.members[int(owner[alien[0]])]
        raise AssignorError(name, f"gave {reader!r} {_names(axis, alien[:1])}, but it is not subscribed to that topic")
    return dataclasses.replace(
        answer, members=table, unassigned=AxisPartitions(axis, none) if len(none) else (), note=str(answer.note)
    )


def withheld_table(target: Assignment) -> Assignment | None:
    """`muster.assignors.run.withheld` on an owner table; None for any other mapping."""
    table = target.members
    if not isinstance(table, OwnerTable):
        return None
    columns = table.columns
    # A rightful owner who keeps its partition is never held up; anyone else waits for the claimants.
    early = columns.claimed & (table.owner != columns.owner) & (table.owner != NOBODY)
    where = np.flatnonzero(early)
    if not len(where):
        return target
    owner = table.owner.copy()
    owner[where] = NOBODY
    return dataclasses.replace(target, members=columns.table(owner), withheld=AxisPartitions(columns.axis, where))


def _kind(owner: object) -> str:
    return f"{owner.dtype} {owner.shape}" if isinstance(owner, np.ndarray) else type(owner).__name__


def _all_read_everything(columns: SnapshotColumns) -> bool:
    return all(len(topics) == len(columns.axis.topics) for topics in columns.subscriptions)


def _names(axis: Axis, where: Ints) -> str:
    named = ", ".join(f"{topic}-{partition}" for topic, partition in AxisPartitions(axis, where[:_NAMED]))
    return named if len(where) <= _NAMED else f"{named} and {len(where) - _NAMED} more"
