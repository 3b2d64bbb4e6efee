"""What Muster's own records tell, read as those of another broker, agrees with what its ledger knows.

The stories of groups in `tests/scripts` are told once more: their records go through the histories of watched groups.
Moves are the same; a cause that is told as recorded is one of the ledger's; times without an owner lie within bounds.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import pytest

from muster.coordinator.core.model import events
from muster.coordinator.core.model.records import (
    ConsumerRecord,
    GroupDeleted,
    GroupStored,
    OffsetStored,
    RebalanceDecided,
    RebalanceSettled,
    Record,
)
from muster.coordinator.core.model.types import Cause, Certainty, Outcome, RebalanceEntry, Settlement
from muster.coordinator.core.watched.classic_history import ClassicHistory
from muster.coordinator.core.watched.consumer_history import ConsumerHistory
from muster.coordinator.core.watched.endings import CommitTimes
from tests.support.stories.script import Stage
from tests.support.stories.story import read_story

SCRIPTS = Path(__file__).parents[3] / "scripts"
FOLDERS = ("classic", "consumer", "explain", "static", "lifecycle", "stall")
STORIES = [path for folder in FOLDERS for path in sorted((SCRIPTS / folder).glob("*.txt"))]

ENDED = (Outcome.COMPLETED, Outcome.EMPTIED)

ALIKE = {
    Cause.MEMBER_RESTARTED: {Cause.MEMBER_JOINED},
    Cause.STATIC_MEMBER_METADATA_CHANGED: {Cause.STATIC_MEMBER_REPLACED},
    Cause.SUBSCRIPTION_CHANGED: {Cause.PARTITIONS_CHANGED, Cause.MEMBER_JOINED},
    Cause.LEADER_REJOINED: {Cause.PARTITIONS_CHANGED},
    Cause.PROTOCOLS_CHANGED: {Cause.PROTOCOL_CHANGED},
}
"""What the ledger knows, and what records tell of the same: a coordinator hears more than it writes."""

OTHERWISE = ("downgrade", "upgrade", "damaged_record", "topics_change")
"""Of groups that turn into the other kind, of one whose records are damaged (what was before is not known), and of a
topic whose name the ledger no longer has."""

STORIES = [path for path in STORIES if not path.stem.startswith(OTHERWISE)]


@dataclass
class SeenStage(Stage):
    stamped: list[tuple[int, Record]] = field(default_factory=list)

    def one_step(self, event: events.Event) -> list[str]:
        before = len(self.records)
        lines = super().one_step(event)
        self.stamped += [(self.now_ms, record) for record in self.records[before:]]
        return lines


class NamesInIds(dict[bytes, str]):
    """The ids of a story's topics are their names, and how often each was made anew."""

    def get(self, topic_id: bytes, _otherwise: object = None) -> str:  # type: ignore[override]
        return topic_id.rstrip(bytes(range(10))).decode(errors="replace")


@dataclass
class Group:
    classic: ClassicHistory
    consumer: ConsumerHistory
    watched: list[RebalanceEntry] = field(default_factory=list)
    ledger: dict[int, RebalanceEntry] = field(default_factory=dict)
    settled: dict[int, Settlement] = field(default_factory=dict)

    def pairs(self) -> Iterator[tuple[RebalanceEntry, RebalanceEntry]]:
        """Of the same generation: as watched, and as the ledger has it."""
        known = {each.generation: each for each in self.ledger.values() if each.outcome in ENDED}
        yield from (
            (each, known[each.generation])
            for each in self.watched
            if each.generation in known and each.outcome in ENDED
        )


def groups_of(path: Path) -> dict[str, Group]:
    stage = SeenStage()
    for block in read_story(path):
        if block.command:
            stage.run(block.command)
    groups: dict[str, Group] = {}
    for at_ms, record in stage.stamped:
        group_id = getattr(record, "group_id", "")
        if group_id not in groups:
            commits = CommitTimes()
            consumer = ConsumerHistory(group_id, NamesInIds(), commits=commits)
            groups[group_id] = Group(ClassicHistory(group_id, commits=commits), consumer)
        group = groups[group_id]
        if isinstance(record, RebalanceDecided):
            group.ledger[record.entry.number] = record.entry
        elif isinstance(record, RebalanceSettled):
            group.settled[record.settlement.number] = record.settlement
        elif isinstance(record, GroupStored):
            entry = group.classic.take_group(record, at_ms, 0)
            group.watched += [] if entry is None else [entry]
        elif isinstance(record, GroupDeleted):
            group.classic.take_deletion()
        elif isinstance(record, OffsetStored):
            group.classic.commits.note_commit((record.topic, record.partition), at_ms)
        elif isinstance(record, get_args(ConsumerRecord)):
            group.watched += group.consumer.take_record(record, at_ms)
    return groups


@pytest.mark.parametrize("path", STORIES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_ledger_says_the_same(path: Path) -> None:
    for group in groups_of(path).values():
        for watched, known in group.pairs():
            assert moves_of(watched) == moves_of(known), (watched, known)
            if watched.certainty is Certainty.RECORDED:
                causes = {known.cause, *(each.cause for each in known.triggers)}
                assert watched.cause in causes.union(*(ALIKE.get(each, ()) for each in causes)), (watched, known)


@pytest.mark.parametrize(
    "path",
    [path for path in STORIES if path.stem != "same_id_again"],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_the_ledger_s_times_without_an_owner_lie_within_the_bounds(path: Path) -> None:
    """The ledger of a classic group counts on until a member has its share, which no record tells. Of a partition that
    nobody had before, no record tells since when there is one. What an epoch that was overtaken had not handed over by
    then the ledger of a KIP-848 group counts afresh, and a watched one counts on."""
    for group in groups_of(path).values():
        for watched, known in group.pairs():
            settlement = group.settled.get(known.number)
            if settlement is None:
                continue
            synced, heirs = dict(settlement.synced), {(each.topic, each.partition): each for each in watched.moves}
            for topic, partition, unowned_ms in settlement.unowned:
                move = heirs.get((topic, partition))
                if move is None or not move.source:
                    continue
                after_ms = synced[move.target] - known.ended_at_ms if group.classic.stored is not None else 0
                least_ms = move.unowned_ms if move.unowned_at_least_ms is None else move.unowned_at_least_ms
                assert least_ms <= max(0, unowned_ms - after_ms) <= move.unowned_ms, (move, unowned_ms, after_ms)


def moves_of(entry: RebalanceEntry) -> set[tuple[str, int, str, str]]:
    return {(move.topic, move.partition, move.source, move.target) for move in entry.moves}
