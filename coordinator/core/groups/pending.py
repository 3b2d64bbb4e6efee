"""Which positions wait for the end of a transaction, and which are being written into one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from muster.coordinator.core.model.core_records import OffsetDeleted, OffsetsStored, OffsetStored, Record
from muster.coordinator.core.model.types import RequestId, StoredOffset

TopicPartition: TypeAlias = tuple[str, int]


class PendingPosition(NamedTuple):
    """at: the offset of its record in the shard's log."""

    value: StoredOffset
    at: int


OfGroups: TypeAlias = dict[str, dict[TopicPartition, tuple[PendingPosition, ...]]]
"""By group and place, in the order of the log: the end of one transaction may be read when the next has begun."""


@dataclass(slots=True)
class PendingPositions:
    """Of one shard. of: by producer id. writing: by request, what may be in the log any moment.

    There may be many of either at once, and each commit asks: who waits in a group, and how much there is, is kept.
    """

    of: dict[int, OfGroups] = field(default_factory=dict)
    writing: dict[RequestId, tuple[str, frozenset[TopicPartition]]] = field(default_factory=dict)
    _in_group: dict[str, set[int]] = field(default_factory=dict)
    _count: int = 0

    def __bool__(self) -> bool:
        return bool(self.of or self.writing)

    def __len__(self) -> int:
        """Positions."""
        return self._count + sum(len(places) for _, places in self.writing.values())

    def unstable(self, group_id: str) -> set[TopicPartition]:
        """Whose committed position may not be the last word."""
        found = self.of_group(group_id)
        return found.union(*(places for group, places in self.writing.values() if group == group_id))

    def of_group(self, group_id: str) -> set[TopicPartition]:
        """What is in the log, and waits."""
        return {place for producer_id in self._in_group.get(group_id, ()) for place in self.of[producer_id][group_id]}

    def written(self, producer_id: int, group_id: str, offsets: Mapping[TopicPartition, StoredOffset], at: int) -> None:
        waiting = self.of.setdefault(producer_id, {}).setdefault(group_id, {})
        self._in_group.setdefault(group_id, set()).add(producer_id)
        self._count += len(offsets)
        for number, (place, value) in enumerate(offsets.items()):
            waiting[place] = (*waiting.get(place, ()), PendingPosition(value, at + number))

    def ended(self, producer_id: int, before: int) -> dict[str, dict[TopicPartition, PendingPosition]]:
        """What waited for this producer, at places before that offset, and does so no longer: the newest of each."""
        ended: dict[str, dict[TopicPartition, PendingPosition]] = {}
        for group_id, offsets in self.of.pop(producer_id, {}).items():
            left: dict[TopicPartition, tuple[PendingPosition, ...]] = {}
            for place, each in offsets.items():
                if over := [one for one in each if one.at < before]:
                    ended.setdefault(group_id, {})[place] = over[-1]
                    self._count -= len(over)
                if rest := each[len(over) :]:
                    left[place] = rest
            if left:
                self.of.setdefault(producer_id, {})[group_id] = left
            else:
                self._is_out(producer_id, group_id)
        return ended

    def _is_out(self, producer_id: int, group_id: str) -> None:
        there = self._in_group[group_id]
        there.discard(producer_id)
        if not there:
            del self._in_group[group_id]

    def overtaken(self, group_id: str, places: Mapping[TopicPartition, int] | Iterable[TopicPartition]) -> None:
        """These were written anew, behind all that waits; or, where offsets are told, behind what is before those. What
        waits for its marker comes to nothing then: a cleaned log has the later record of a key only."""
        befores = places if isinstance(places, Mapping) else None
        for producer_id in self._in_group.get(group_id, ()):
            waiting = self.of[producer_id][group_id]
            for place in places if waiting else ():
                before = 0 if befores is None else befores[place]
                each = waiting.pop(place, ())
                left = tuple(one for one in each if befores is not None and one.at >= before)
                self._count -= len(each) - len(left)
                if left:
                    waiting[place] = left

    def overtaken_by(self, record: Record) -> None:
        """A fact is decided, and comes into the log behind all that is there."""
        if isinstance(record, OffsetsStored):
            self.overtaken(record.group_id, list(record.offsets))
        elif isinstance(record, OffsetStored | OffsetDeleted):
            self.overtaken(record.group_id, [(record.topic, record.partition)])
