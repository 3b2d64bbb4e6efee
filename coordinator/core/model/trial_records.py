"""The facts of a canary: one record for each group, written anew with whatever changes it."""

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Any, TypeAlias

from muster.coordinator.core.model.value import frozen_value


class CanaryState(Enum):
    """Where a canary is. A group that never had one, or was deleted since, is idle."""

    CANARY = "canary"
    """The candidate plans the group, and its time runs."""
    WAITING = "waiting"
    """The candidate still plans the group: its time is over, and an operator has to say what becomes of it."""
    PROMOTED = "promoted"
    ROLLED_BACK = "rolled back"


RUNNING = frozenset({CanaryState.CANARY, CanaryState.WAITING})


@frozen_value
class CanaryGuardRule:
    """Trips when `figure` is over `limit`; with `relative`, over so many times its baseline."""

    figure: str
    limit: float
    relative: bool = False


@frozen_value
class CanaryBaseline:
    """How the group did before the canary: means over its own last hour, or as much of it as there is."""

    rebalances: int = 0
    """How many rebalances, with members at their end, `moves` is the mean of."""
    span_ms: int = 0
    """How long before the canary the first rebalance that is on record began, at most an hour."""
    moves: float = 0.0
    settled: int = 0
    """How many of them had their time without an owner on record: `unowned_ms` is the mean of these."""
    unowned_ms: float = 0.0
    lag: float = 0.0
    """The mean of the group's total lag."""
    lag_span_ms: int = 0
    """How long before the canary its first sample was taken; 0: there is none."""


@frozen_value
class CanaryTally:
    """What the group did since the canary began. The round that the canary itself started counts for none of it but
    failures and lost members."""

    rebalances: int = 0
    moves: int = 0
    settled: int = 0
    unowned_ms: int = 0
    plan_failures: int = 0
    expired: int = 0
    own_round: int = 0
    """The number of the last rebalance of the canary's own round; 0: it has no plan yet."""


@frozen_value
class CanaryStored:
    """A canary, running or over. Times are wall time, ms; `for_ms` bounds what is left when the clock was set back."""

    group_id: str
    state: CanaryState
    assignor: str
    options: Mapping[str, Any]
    """JSON, as all options of assignors."""
    former: str
    """Who planned before, and plans again after a roll-back."""
    operator: str
    began_at_ms: int
    for_ms: int
    until_ms: int
    promotes: bool
    """What becomes of it at the end of its time: it is the setting, or it waits."""
    guards: tuple[CanaryGuardRule, ...]
    lag_floor: int
    baseline: CanaryBaseline = field(default_factory=CanaryBaseline)
    tally: CanaryTally = field(default_factory=CanaryTally)
    ended: str = ""
    """Why it is over, in one sentence."""

    @property
    def runs(self) -> bool:
        return self.state in RUNNING


@frozen_value
class CanaryForgotten:
    """The tombstone of a group's canary."""

    group_id: str


CanaryRecord: TypeAlias = CanaryStored | CanaryForgotten
