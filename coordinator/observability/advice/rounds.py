"""The rounds of a recorded history: who owned what before and after each, and how long each partition had no owner.

An entry records the sum of all partitions' time without an owner, and that of each partition that changed hands. The
rest of the sum belongs to partitions that their owners let go of and got back: the stop-the-world part of an eager
rebalance.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from muster.assignors.api import TopicPartition
from muster.coordinator.rpc.v1.ledger_pb2 import PartitionMove, Rebalance, RebalanceOutcome

Owners: TypeAlias = Mapping[TopicPartition, str]


@dataclass(frozen=True)
class RecordedRound:
    """A rebalance that had a plan. Times without an owner are seconds for each partition."""

    entry: Rebalance
    before: Owners
    after: Owners

    @property
    def number(self) -> int:
        return int(self.entry.number)

    @property
    def seconds(self) -> float:
        """Partition-seconds without an owner."""
        return float(self.entry.unowned_partition_seconds)

    @property
    def length_s(self) -> float:
        """From what set it off until its plan."""
        return max(0, self.entry.ended_at_ms - self.entry.started_at_ms) / 1000

    @cached_property
    def members(self) -> frozenset[str]:
        return frozenset(member.member_id for member in self.entry.members)

    @cached_property
    def changed(self) -> tuple[PartitionMove, ...]:
        """Partitions that a member had and another one got."""
        return tuple(each for each in self.entry.moves if each.source and each.target and each.source != each.target)

    @property
    def moves(self) -> int:
        return len(self.changed)

    @cached_property
    def kept(self) -> tuple[TopicPartition, ...]:
        return tuple(tp for tp, owner in self.after.items() if self.before.get(tp) == owner)

    @cached_property
    def kept_gap(self) -> float:
        """Of a partition that stayed with its owner."""
        moved = sum(each.unowned_ms for each in self.entry.moves if each.target and each.unowned_ms > 0) / 1000
        return max(0.0, self.seconds - moved) / len(self.kept) if self.kept else 0.0

    @cached_property
    def handover_gap(self) -> float:
        """Of a partition that went from one living member to another."""
        return mean_gap(each for each in self.changed if each.source in self.members) or self.kept_gap

    @cached_property
    def _orphan_gap(self) -> float:
        return mean_gap(each for each in self.changed if each.source not in self.members) or self.handover_gap

    @cached_property
    def _gaps_by_source(self) -> Mapping[str, float]:
        moves: dict[str, list[PartitionMove]] = {}
        for each in self.changed:
            moves.setdefault(each.source, []).append(each)
        return {source: mean_gap(found) for source, found in moves.items()}

    def orphan_gap(self, member_id: str) -> float:
        """Of a partition whose owner went."""
        return self._gaps_by_source.get(member_id) or self._orphan_gap

    @cached_property
    def new_gaps(self) -> Mapping[TopicPartition, float]:
        """Of partitions that nobody had had."""
        found = (each for each in self.entry.moves if not each.source and each.target and each.unowned_ms > 0)
        return {(each.topic, each.partition): each.unowned_ms / 1000 for each in found}

    @cached_property
    def undisturbed(self) -> int:
        """Partitions of members whose share stayed as it was."""
        touched = {end for move in self.entry.moves for end in (move.source, move.target)}
        return sum(self.after[tp] not in touched for tp in self.kept)


def mean_gap(moves: Iterable[PartitionMove]) -> float:
    """Seconds; 0 where none is known."""
    known = [move.unowned_ms for move in moves if move.unowned_ms >= 0]
    return sum(known) / len(known) / 1000 if known else 0.0


def list_rounds(entries: Iterable[Rebalance]) -> Iterator[RecordedRound]:
    """The rebalances that had a plan, in the order of the entries."""
    known: dict[TopicPartition, TopicPartition] = {}
    for entry in entries:
        if entry.outcome == RebalanceOutcome.REBALANCE_OUTCOME_COMPLETED:
            after = owners_after(entry, known)
            yield RecordedRound(entry, owners_before(entry, after), after)


def owners_after(entry: Rebalance, known: dict[TopicPartition, TopicPartition]) -> dict[TopicPartition, str]:
    """known: the partitions of other rounds, of which nearly all are in this one, too."""
    found: dict[TopicPartition, str] = {}
    for member in entry.members:
        member_id = member.member_id
        for share in member.assigned:
            topic = share.topic
            for partition in share.partitions:
                tp = topic, partition
                found[known.setdefault(tp, tp)] = member_id
    return found


def owners_before(entry: Rebalance, after: Owners) -> dict[TopicPartition, str]:
    """What did not move was its owner's before, too."""
    before = dict(after)
    for move in entry.moves:
        before.pop((move.topic, move.partition), None)
        if move.source:
            before[move.topic, move.partition] = move.source
    return before
