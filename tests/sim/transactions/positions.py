"""What a log of groups says of positions, by a model of its own: what counts, what waits, and what became of each.

It knows TX-G4, TX-G7 and nothing else. Each position has the tag of its transaction as metadata.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from muster.coordinator.core.model.records import (
    OffsetDeleted,
    OffsetsStored,
    OffsetStored,
    TxnMarked,
    TxnOffsetsStored,
)
from muster.coordinator.runtime.kafka_records import decode_group
from muster.coordinator.runtime.ports import KeyValue, TxnBatchRead, TxnMarkerFound
from muster.coordinator.runtime.replay import GROUPS_TOPIC

Key = tuple[str, str, int]
"""Group, topic, partition."""
GROUP_PLACE = (GROUPS_TOPIC, 0)
"""The one partition of the groups' topic."""


class WaitingPosition(NamedTuple):
    at: int
    producer_id: int
    key: Key
    offset: int
    tag: str


@dataclass(slots=True)
class PositionsModel:
    """Takes records in the order of the log. counted, dropped, gone: positions by tag that a marker has committed, or
    dropped, and those that a tombstone took before."""

    end: int = 0
    latest: dict[Key, tuple[int, int | None]] = field(default_factory=dict)
    """Of each key where its newest record stands that counts, and its offset; None: deleted."""
    waiting: list[WaitingPosition] = field(default_factory=list)
    counted: dict[str, set[Key]] = field(default_factory=dict)
    dropped: dict[str, set[Key]] = field(default_factory=dict)
    gone: dict[str, set[Key]] = field(default_factory=dict)
    ended: list[WaitingPosition] = field(default_factory=list)
    """What the last marker found."""

    def plain(self, key: Key, offset: int | None) -> None:
        self.end += 1
        self.latest[key] = (self.end, offset)
        if offset is None:
            for each in [each for each in self.waiting if each.key == key]:
                self.gone.setdefault(each.tag, set()).add(key)
                self.waiting.remove(each)

    def pend(self, producer_id: int, key: Key, offset: int, tag: str) -> None:
        self.end += 1
        self.waiting = [each for each in self.waiting if (each.producer_id, each.key) != (producer_id, key)]
        self.waiting.append(WaitingPosition(self.end, producer_id, key, offset, tag))

    def mark(self, producer_id: int, commit: bool) -> None:
        self.end += 1
        self.ended = [each for each in self.waiting if each.producer_id == producer_id]
        self.waiting = [each for each in self.waiting if each.producer_id != producer_id]
        for each in self.ended:
            (self.counted if commit else self.dropped).setdefault(each.tag, set()).add(each.key)
            if commit and self.latest.get(each.key, (-1, None))[0] < each.at:
                self.latest[each.key] = (each.at, each.offset)

    # -- what comes in --------------------------------------------------------------------------------------

    def take(self, record: Any) -> None:
        """A fact as a step has decided it."""
        match record:
            case OffsetsStored():
                for place, value in record.offsets.items():
                    self.plain((record.group_id, *place), value.offset)
            case TxnOffsetsStored():
                for place, value in record.offsets.items():
                    self.pend(record.producer_id, (record.group_id, *place), value.offset, value.metadata)
            case TxnMarked():
                self.mark(record.producer_id, record.commit)
            case OffsetDeleted():
                self.plain((record.group_id, record.topic, record.partition), None)

    def read(self, items: Iterable[Any]) -> None:
        """A log, from its beginning."""
        for item in items:
            if isinstance(item, TxnMarkerFound):
                self.mark(item.producer.id, item.commit)
            elif isinstance(item, TxnBatchRead):
                for record in map(decode_group, item.records):
                    assert isinstance(record, OffsetStored), f"{record} is in a transaction"
                    key = (record.group_id, record.topic, record.partition)
                    self.pend(item.producer.id, key, record.value.offset, record.value.metadata)
            elif isinstance(item, KeyValue):
                self._read_plain(decode_group(item))

    def _read_plain(self, record: Any) -> None:
        if isinstance(record, OffsetStored):
            self.plain((record.group_id, record.topic, record.partition), record.value.offset)
        elif isinstance(record, OffsetDeleted):
            self.plain((record.group_id, record.topic, record.partition), None)

    # -- what is known --------------------------------------------------------------------------------------

    def committed(self) -> dict[Key, int]:
        return {key: offset for key, (_, offset) in self.latest.items() if offset is not None}

    def pending(self) -> list[tuple[int, Key, int]]:
        """(producer id, key, offset) of what may yet change something: of each key, in the order of the log."""
        live = [each for each in self.waiting if self.latest.get(each.key, (-1, None))[0] < each.at]
        return sorted(((each.producer_id, each.key, each.offset) for each in live), key=lambda each: each[1])

    def unstable(self, group_id: str) -> set[tuple[str, int]]:
        return {(key[1], key[2]) for _, key, _ in self.pending() if key[0] == group_id}


def known_positions(state: Any) -> tuple[dict[Key, int], list[tuple[int, Key, int]]]:
    """The same two of a shard's live state."""
    committed = {
        (group_id, *place): value.offset
        for group_id, stored in state.offsets.items()
        for place, value in stored.items()
    }
    waiting = sorted(
        ((group_id, *place), one.at, producer_id, one.value.offset)
        for producer_id, groups in state.pending.of.items()
        for group_id, positions in groups.items()
        for place in positions.values
        for one in positions.of_place(place)
    )
    return committed, [(producer_id, key, offset) for key, _, producer_id, offset in waiting]
