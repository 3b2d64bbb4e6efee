"""What the ledger's entries add up to, since the node started: counted as they become durable."""

from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from muster.coordinator.core.model.types import AUDIT_OUTCOMES, Outcome, RebalanceEntry, RebalancePhase
from muster.coordinator.observability.metrics.instruments import LONG_BOUNDS, Timing


def long_timing() -> Timing:
    return Timing(LONG_BOUNDS)


@dataclass(slots=True)
class GroupRebalanceTotals:
    """One group's. The numbers say which entry was counted last: an entry is told of when it is decided, and again
    when it has settled; one whose assignor failed once more when it was made after all.
    """

    causes: Counter[str] = field(default_factory=Counter)
    durations: dict[str, Timing] = field(default_factory=dict)
    """By type of group."""
    moved: Counter[str] = field(default_factory=Counter)
    """By assignor."""
    unowned_ms: int = 0
    begun: int = 0
    planned: int = 0
    settled: int = 0
    phases: int = 0
    """Phases of the entry `planned` that were counted."""


class RebalanceTotals:
    """All groups' of a node."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupRebalanceTotals] = {}
        self.phases: dict[str, Timing] = {}

    def told(self, group_id: str, group_type: str, entry: RebalanceEntry) -> None:
        """An entry has become durable, or more is known of it. Those of no rebalance are not counted."""
        if entry.outcome in AUDIT_OUTCOMES:
            return
        group = self.groups.setdefault(group_id, GroupRebalanceTotals())
        if entry.number > group.begun:
            group.begun = entry.number
            group.causes[entry.cause.name.lower()] += 1
        if entry.number > group.planned and entry.outcome in (Outcome.COMPLETED, Outcome.EMPTIED):
            group.planned, group.phases = entry.number, 0
            group.moved[entry.protocol_name] += len(entry.moves)
            if entry.outcome is Outcome.COMPLETED:
                took_ms = max(0, entry.ended_at_ms - entry.started_at_ms)
                group.durations.setdefault(group_type, long_timing()).took(took_ms / 1000)
        if entry.number == group.planned:
            self._phases(entry.phases[group.phases :])
            group.phases = max(group.phases, len(entry.phases))
        if entry.unowned_partition_ms >= 0 and entry.number > group.settled:
            group.settled = entry.number
            group.unowned_ms += entry.unowned_partition_ms

    def keep(self, alive: Container[str]) -> None:
        """Forget the groups that are no longer there."""
        for group_id in [each for each in self.groups if each not in alive]:
            del self.groups[group_id]

    def _phases(self, phases: Iterable[RebalancePhase]) -> None:
        for phase in phases:
            self.phases.setdefault(phase.name, long_timing()).took(max(0, phase.duration_ms) / 1000)
