"""How far the shadow assignors of a node's groups disagree with the plans that count.

Of each group the latest decision that its shadows have made again, as long as the assignor is still set as a shadow.
"""

from collections import Counter
from dataclasses import dataclass, field

from muster.coordinator.core.control.trials.setting import SHADOW_ASSIGNORS
from muster.coordinator.core.groups.state import ShardState
from muster.coordinator.core.model.types import RebalanceEntry


@dataclass(slots=True)
class ShadowDisagreement:
    """Added up group by group, by the word of the shadow: partitions that it would have given to somebody else, and
    all that there were to give."""

    differs: Counter[str] = field(default_factory=Counter)
    partitions: Counter[str] = field(default_factory=Counter)

    def note(self, group_id: str, state: ShardState) -> None:
        """One more group. What a shadow did not plan (it failed, or nobody could) is left out."""
        ledger = state.ledgers.get(group_id)
        if ledger is None or not ledger.shadows or group_id not in state.settings:
            return
        number = max(ledger.shadows)
        real, *others = ledger.shadows[number]
        entry = ledger.entries.get(number)
        if entry is None or real.failure:
            return
        words = {candidate.word for candidate in SHADOW_ASSIGNORS.of(state, group_id)}
        partitions = count_assigned_partitions(entry) + real.unassigned
        for score in others:
            if not score.failure and score.assignor in words and partitions:
                self.differs[score.assignor] += score.differs
                self.partitions[score.assignor] += partitions

    def ratios(self) -> dict[str, float]:
        return {word: self.differs[word] / count for word, count in sorted(self.partitions.items())}


def count_assigned_partitions(entry: RebalanceEntry) -> int:
    """Partitions that somebody was given."""
    return sum(len(partitions) for member in entry.members for _, partitions in member.assigned)
