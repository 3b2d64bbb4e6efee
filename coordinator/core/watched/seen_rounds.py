"""What looks at a group have seen of its rounds: records tell when a round ended, looks when it began and who was
waited for until when.

A look tells the state that the group is in, now and then. So each moment is later than it was, by the time between two
looks at most, and a short round is not seen at all. Times are of the node's own clock; an entry has those of the
broker's, so only lengths are carried over.
"""

from dataclasses import dataclass, field, replace

from muster.coordinator.core.model.ledger import with_unowned_time
from muster.coordinator.core.model.records import RebalanceDecided
from muster.coordinator.core.model.types import Cause, GroupState, PartitionMove, RebalanceEntry, RebalancePhase

REBALANCING = (GroupState.PREPARING_REBALANCE.value, GroupState.COMPLETING_REBALANCE.value)
"""States in which a round of a classic group is under way."""

MOST_ROUNDS = 16
"""Of one group, that wait for their records."""

STALE_MS = 5_000
"""A record comes at once: of a round that looks saw end so long ago, it is not known which record is its own."""

JOIN, PLAN = "join", "plan"
WHOLE = "join and plan"
"""The one phase of a round whose two halves no look has told apart."""

DEPARTURES = (Cause.MEMBER_LEFT, Cause.SESSION_EXPIRED, Cause.POLL_TIMEOUT)
"""Causes that begin a round with a member that is gone."""


@dataclass(slots=True)
class SeenRound:
    """In ms of the node's clock; -1: not seen."""

    began_ms: int
    joined_ms: int = -1
    ended_ms: int = -1


@dataclass(slots=True)
class SeenRounds:
    """Of one group, oldest first: those whose records have not come yet. state: what the last look saw; "": it does
    not rebalance."""

    state: str = ""
    rounds: list[SeenRound] = field(default_factory=list)

    def see(self, state: str, now_ms: int) -> None:
        """A look has seen this state."""
        before, self.state = self.state, state
        if state == GroupState.PREPARING_REBALANCE.value:
            if before != state:
                self._close(now_ms)
                self._begin(SeenRound(now_ms))
        elif state == GroupState.COMPLETING_REBALANCE.value:
            if before != GroupState.PREPARING_REBALANCE.value or not self.rounds:
                return  # its begin was missed, and without it nothing can be told of the round
            if self.rounds[-1].joined_ms < 0:
                self.rounds[-1].joined_ms = now_ms
        else:
            self._close(now_ms)

    def take(self, generations: int, now_ms: int) -> SeenRound | None:
        """What was seen of the rounds that led to a record, this many generations after the one before it; None:
        nothing. It is forgotten then."""
        live = [each for each in self.rounds if each.ended_ms < 0 or now_ms - each.ended_ms <= STALE_MS]
        generations = max(0, generations)
        mine, self.rounds = live[:generations], live[generations:]
        if not mine:
            return None
        last = mine[-1]
        return SeenRound(mine[0].began_ms, last.joined_ms, now_ms if last.ended_ms < 0 else min(last.ended_ms, now_ms))

    def _begin(self, seen: SeenRound) -> None:
        self.rounds = [*self.rounds, seen][-MOST_ROUNDS:]

    def _close(self, now_ms: int) -> None:
        if self.rounds and self.rounds[-1].ended_ms < 0:
            self.rounds[-1].ended_ms = now_ms


def with_seen_phases(entry: RebalanceEntry, seen: SeenRound | None) -> RebalanceEntry:
    """The entry of a classic group with the begin and the phases that looks have seen; unchanged where they saw none,
    or where the records tell of phases themselves."""
    if seen is None or entry.phases:
        return entry
    whole_ms = max(0, seen.ended_ms - seen.began_ms)
    phases: tuple[RebalancePhase, ...] = (RebalancePhase(WHOLE, whole_ms),)
    if seen.began_ms <= seen.joined_ms <= seen.ended_ms:
        joined_ms = seen.joined_ms - seen.began_ms
        phases = (RebalancePhase(JOIN, joined_ms), RebalancePhase(PLAN, whole_ms - joined_ms))
    joined_ms = phases[0].duration_ms if len(phases) > 1 else whole_ms
    moves = tuple(with_seen_time(move, entry, whole_ms, whole_ms - joined_ms) for move in entry.moves)
    gained_ms = sum(
        (each.unowned_at_least_ms or 0) - (was.unowned_at_least_ms or 0)
        for each, was in zip(moves, entry.moves, strict=True)
    )
    least_ms = entry.unowned_at_least_partition_ms
    return replace(
        entry,
        started_at_ms=entry.ended_at_ms - whole_ms,
        phases=phases,
        moves=moves,
        unowned_at_least_partition_ms=None if least_ms is None else least_ms + gained_ms,
    )


def with_seen_time(move: PartitionMove, entry: RebalanceEntry, whole_ms: int, plan_ms: int) -> PartitionMove:
    """The move with what the look adds to its time without an owner at the least: its owner was gone before the round
    that nothing else began, and any other had let go of it when all had joined (WA-T3)."""
    least_ms = move.unowned_at_least_ms
    if least_ms is None:
        return move
    began_it = move.source == entry.culprit and entry.cause in DEPARTURES and not entry.triggers
    seen_ms = min(whole_ms if began_it else plan_ms, move.unowned_ms)
    return move if seen_ms <= least_ms else with_unowned_time(move, move.unowned_ms, seen_ms)


# Of all groups
# -------------


def see_round(group_id: str, state: str, seen: dict[str, SeenRounds], now_ms: int) -> None:
    """A look has seen this group in this state."""
    seen.setdefault(group_id, SeenRounds()).see(state, now_ms)
    forget_told(group_id, seen)


def take_seen(decided: RebalanceDecided, seen: dict[str, SeenRounds], now_ms: int) -> SeenRound | None:
    """What was seen of the rounds that led to this entry."""
    rounds = seen.get(decided.group_id)
    if rounds is None:
        return None
    entry = decided.entry
    generations = entry.generation - entry.previous_generation if entry.generation else MOST_ROUNDS
    taken = rounds.take(generations, now_ms)
    forget_told(decided.group_id, seen)
    return taken


def forget_told(group_id: str, seen: dict[str, SeenRounds]) -> None:
    """Nothing is kept of a group that does not rebalance, and whose rounds have their entries."""
    if not seen[group_id].state and not seen[group_id].rounds:
        del seen[group_id]
