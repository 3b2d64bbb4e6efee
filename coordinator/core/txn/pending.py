"""Which positions wait for the end of a transaction, and which are being written into one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from muster.coordinator.core.records import OffsetDeleted, OffsetsStored, OffsetStored, Record
from muster.coordinator.core.types import RequestId, StoredOffset

Place: TypeAlias = tuple[str, int]


class Waiting(NamedTuple):
    """at: the offset of its record in the shard's log."""

    value: StoredOffset
    at: int


OfGroups: TypeAlias = dict[str, dict[Place, tuple[Waiting, ...]]]
"""By group and place, in the order of the log: the end of one transaction may be read when the next has begun."""


@dataclass(slots=True)
class Pending:
    """Of one shard. of: by producer id. writing: by request, what may be in the log any moment."""

    of: dict[int, OfGroups] = field(default_factory=dict)
    writing: dict[RequestId, tuple[str, frozenset[Place]]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.of or self.writing)

    def __len__(self) -> int:
        """Positions."""
        all_groups = (offsets for groups in self.of.values() for offsets in groups.values())
        waiting = sum(len(each) for offsets in all_groups for each in offsets.values())
        return waiting + sum(len(places) for _, places in self.writing.values())

    def unstable(self, group_id: str) -> set[Place]:
        """Whose committed position may not be the last word."""
        found = {place for groups in self.of.values() for place in groups.get(group_id, ())}
        return found.union(*(places for group, places in self.writing.values() if group == group_id))

    def of_group(self, group_id: str) -> set[Place]:
        """What is in the log, and waits."""
        return {place for groups in self.of.values() for place in groups.get(group_id, ())}

    def written(self, producer_id: int, group_id: str, offsets: Mapping[Place, StoredOffset], at: int) -> None:
        waiting = self.of.setdefault(producer_id, {}).setdefault(group_id, {})
        for number, (place, value) in enumerate(offsets.items()):
            waiting[place] = (*waiting.get(place, ()), Waiting(value, at + number))

    def ended(self, producer_id: int, before: int) -> dict[str, dict[Place, Waiting]]:
        """What waited for this producer, at places before that offset, and does so no longer: the newest of each."""
        ended: dict[str, dict[Place, Waiting]] = {}
        for group_id, offsets in self.of.pop(producer_id, {}).items():
            for place, each in offsets.items():
                if over := [one for one in each if one.at < before]:
                    ended.setdefault(group_id, {})[place] = over[-1]
                if left := each[len(over) :]:
                    self.of.setdefault(producer_id, {}).setdefault(group_id, {})[place] = left
        return ended

    def overtaken(self, group_id: str, places: Mapping[Place, int] | Iterable[Place]) -> None:
        """These were written anew, behind all that waits; or, where offsets are told, behind what is before those. What
        waits for its marker comes to nothing then: a cleaned log has the later record of a key only."""
        befores = places if isinstance(places, Mapping) else None
        for groups in self.of.values():
            waiting = groups.get(group_id)
            for place in places if waiting else ():
                assert waiting is not None
                before = 0 if befores is None else befores[place]
                left = tuple(each for each in waiting.pop(place, ()) if befores is not None and each.at >= before)
                if left:
                    waiting[place] = left

    def overtaken_by(self, record: Record) -> None:
        """A fact is decided, and comes into the log behind all that is there."""
        if isinstance(record, OffsetsStored):
            self.overtaken(record.group_id, list(record.offsets))
        elif isinstance(record, OffsetStored | OffsetDeleted):
            self.overtaken(record.group_id, [(record.topic, record.partition)])
