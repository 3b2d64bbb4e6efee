"""What a broker's log adds while it is being written: a sentence may come after the record of its rebalance.

So the newest rebalances are kept as their records told of them, and are looked at once more when the log has said more
of their groups.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.ledger import GroupLedger
from muster.coordinator.core.model.plan import shorten_entry
from muster.coordinator.core.model.records import RebalanceDecided
from muster.coordinator.core.model.types import RebalanceEntry
from muster.coordinator.core.watched.broker_evidence import BrokerEvidence
from muster.coordinator.core.watched.broker_sentences import BrokerSentence

MOST_GROUPS = 1_000
"""Whose newest rebalances a later sentence may still explain."""

MOST_OF_GROUP = 3
"""Rebalances of one group: a sentence comes within seconds."""


@dataclass(slots=True)
class RecentRebalance:
    """By its records alone, and as it was told last."""

    recorded: RebalanceEntry
    told: RebalanceEntry


class FollowedEvidence(BrokerEvidence):
    """As its base, of a log that grows."""

    def __init__(self, zone_ms: int | None = None) -> None:
        super().__init__(zone_ms)
        self._recent: dict[str, deque[RecentRebalance]] = {}
        """By group, the one that rebalanced last at the end."""

    def settle(self, group_id: str, entry: RebalanceEntry) -> RebalanceEntry:
        told = super().settle(group_id, entry)
        of_group = self._recent.pop(group_id, None) or deque(maxlen=MOST_OF_GROUP)
        of_group.append(RecentRebalance(entry, told))
        self._recent[group_id] = of_group
        if len(self._recent) > MOST_GROUPS:
            del self._recent[next(iter(self._recent))]
        return told

    def take_sentences(self, sentences: Sequence[BrokerSentence]) -> list[RebalanceDecided]:
        """The rebalances that the log says more of with these, as amendments."""
        for sentence in sentences:
            self.take_sentence(sentence)
        amended = []
        for group_id in dict.fromkeys(sentence.group_id for sentence in sentences):
            for recent in self._recent.get(group_id, ()):
                told = super().settle(group_id, recent.recorded)
                if told != recent.told:
                    recent.told = told
                    amended.append(RebalanceDecided(group_id, told, amends=True))
        return amended


# The entry that is kept
# ----------------------


def amend_kept_entry(decided: RebalanceDecided, step: Step) -> RebalanceEntry | None:
    """Keep what the log says of a rebalance in its entry; None: that is not kept, so nothing is said."""
    ledger = step.state.ledgers.get(decided.group_id)
    kept = None if ledger is None else find_kept(ledger, decided.entry)
    if kept is None:
        return None
    entry = shorten_entry(amend_seen_entry(kept, decided.entry), step.limits.max_group_bytes)
    step.keep(RebalanceDecided(decided.group_id, entry, amends=True))
    return entry


def find_kept(ledger: GroupLedger, told: RebalanceEntry) -> RebalanceEntry | None:
    """The entry of the same rebalance, whatever its number. The newest are looked at first."""
    for number in sorted(ledger.entries, reverse=True):
        kept = ledger.entries[number]
        if ends_of(kept) == ends_of(told):
            return kept
    return None


def ends_of(entry: RebalanceEntry) -> tuple[int, int, int]:
    """What no two rebalances of a group have in common."""
    return entry.previous_generation, entry.generation, entry.ended_at_ms


def amend_seen_entry(kept: RebalanceEntry, told: RebalanceEntry) -> RebalanceEntry:
    """The entry that is kept, with what the log says of it. What looks have seen of it stays."""
    whys = {(move.topic, move.partition): move.why for move in told.moves}
    return replace(
        told,
        number=kept.number,
        phases=kept.phases,
        started_at_ms=min(kept.started_at_ms, told.started_at_ms),
        moves=tuple(replace(move, why=whys.get((move.topic, move.partition), move.why)) for move in kept.moves),
        members=kept.members,
        snapshot_json=kept.snapshot_json,
        snapshot_source=kept.snapshot_source,
        unowned_at_least_partition_ms=kept.unowned_at_least_partition_ms,
    )
