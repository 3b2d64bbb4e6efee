"""Passes what watched partitions say on to the shards that answer for their groups, in portions."""

from collections.abc import Callable
from typing import Final

from muster.coordinator.core.model.events import RecordsWatched, WatchStood
from muster.coordinator.core.model.records import (
    GroupRecord,
    OffsetDeleted,
    OffsetsStored,
    RebalanceDecided,
    Record,
    TopicId,
)
from muster.coordinator.core.model.types import RebalanceEntry, StoredOffset
from muster.coordinator.watch.watched_partition import WatchedPartition

MOST_FACTS: Final = 200
"""In one event: the loop has others to serve."""

MOST_POSITIONS: Final = 1_000
"""That one look passes on."""


class FactsCollector:
    """The sink of one watched partition."""

    def __init__(self) -> None:
        self.facts: list[Record] = []

    def take_fact(self, fact: GroupRecord) -> None:
        self.facts.append(fact)

    def take_entry(self, group_id: str, entry: RebalanceEntry) -> None:
        self.facts.append(RebalanceDecided(group_id, entry))


class WatchedFacts:
    """All watched partitions. tell: gets the number of a shard and an event for it."""

    def __init__(self, tell: Callable[[int, RecordsWatched | WatchStood], None]) -> None:
        self._tell = tell
        self._names: dict[TopicId, str] = {}
        self._collectors: dict[int, FactsCollector] = {}
        self.partitions: dict[int, WatchedPartition] = {}

    def made_partition(self, partition: int) -> WatchedPartition:
        """One that has read nothing yet, in place of what was there."""
        collector = self._collectors[partition] = FactsCollector()
        watched = self.partitions[partition] = WatchedPartition(collector, self._names)
        return watched

    def pass_facts(self, partition: int, shard: int) -> None:
        """What was said since the last call, positions excepted."""
        collector = self._collectors[partition]
        facts, collector.facts = collector.facts, []
        for begin in range(0, len(facts), MOST_FACTS):
            self._tell(shard, RecordsWatched(tuple(facts[begin : begin + MOST_FACTS])))

    def pass_positions(self, partition: int, shard: int) -> bool:
        """The newest positions, so many at a time. Whether there are more."""
        changed = self.partitions[partition].take_positions(MOST_POSITIONS)
        stored: dict[str, dict[tuple[str, int], StoredOffset]] = {}
        facts: list[Record] = []
        for group_id, topic, number, position in changed:
            if position is None:
                facts.append(OffsetDeleted(group_id, topic, number))
            else:
                stored.setdefault(group_id, {})[topic, number] = position
        facts += [OffsetsStored(group_id, offsets) for group_id, offsets in stored.items()]
        for begin in range(0, len(facts), MOST_FACTS):
            self._tell(shard, RecordsWatched(tuple(facts[begin : begin + MOST_FACTS])))
        return len(changed) == MOST_POSITIONS
