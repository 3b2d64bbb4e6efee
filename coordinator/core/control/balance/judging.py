"""Whether a plan pays: what the heaviest member carries before and after, and for how many evaluations in a row.

Pure, and the same for a group of a coordinator and for a trace that is replayed (`muster pipeline backtest`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from muster.assignors.api import JsonValue
from muster.coordinator.core.control.balance.loads import Floats
from muster.coordinator.core.settings.rules import BalanceRules

Owners = NDArray[np.int32]
"""By partition: the number of its member, -1 for nobody."""

Names = tuple[str, ...]
"""By which options may name a member: its id, and its group.instance.id where it has one."""


@dataclass(frozen=True, slots=True)
class MemberBurdens:
    """What members carry for their capacity, by one plan and one set of loads. In records (`Carried.records`)."""

    heaviest: float
    mean: float
    who: int
    """The number of the heaviest member."""

    @property
    def ratio(self) -> float:
        """Heaviest over mean; 1 where nobody carries anything."""
        return self.heaviest / self.mean if self.mean else 1.0

    @property
    def most_to_gain(self) -> float:
        """No plan makes the heaviest member lighter by a larger share than this."""
        return 1 - self.mean / self.heaviest if self.heaviest else 0.0


def member_burdens(owner: Owners, load: Floats, capacity: Floats) -> MemberBurdens:
    """
    >>> member_burdens(np.array([0, 0, 1], dtype=np.int32), np.array([3.0, 1.0, 2.0]), np.ones(2))
    MemberBurdens(heaviest=4.0, mean=3.0, who=0)
    """
    owned = owner >= 0
    carried = np.bincount(owner[owned], weights=load[owned], minlength=len(capacity)) / capacity
    who = int(np.argmax(carried))
    return MemberBurdens(float(carried[who]), float(load[owned].sum() / capacity.sum()), who)


BEHIND = 0.05
"""A member that reads so much less than is written for it cannot keep up; below that it is noise."""


def does_member_fall_behind(owner: Owners, written: Floats, growth: Floats, members: int) -> bool:
    """Whether any member read less in the last sample than was written for it. `written`, `growth`: by partition, as
    `Loads.growth` tells them.

    >>> owner = np.array([0, 0, 1], dtype=np.int32)
    >>> does_member_fall_behind(owner, np.array([5.0, 5.0, 9.0]), np.array([1.0, -1.0, 2.0]), 2)
    True
    """
    owned = owner >= 0
    asked = np.bincount(owner[owned], weights=written[owned], minlength=members)
    left = np.bincount(owner[owned], weights=growth[owned], minlength=members)
    return bool((left > BEHIND * asked).any())


def heaviest_gain(before: MemberBurdens, after: MemberBurdens) -> float:
    """By which share the heaviest member becomes lighter, whoever it is then."""
    return 1 - after.heaviest / before.heaviest if before.heaviest else 0.0


def is_worth_moving(
    moves: NDArray[np.bool_],
    resting: NDArray[np.bool_],
    before: Sequence[MemberBurdens],
    after: Sequence[MemberBurdens],
    rules: BalanceRules,
) -> bool:
    """Whether moves may be made, and pay: by each way of looking at the loads the heaviest member becomes lighter by
    enough. `moves`, `resting`: which partitions the plan would move, and which have moved too recently to move again.
    """
    if not moves.any() or (moves & resting).any() or (rules.move_budget and int(moves.sum()) > rules.move_budget):
        return False
    return all(heaviest_gain(was, becomes) >= rules.min_gain for was, becomes in zip(before, after, strict=True))


def capacities(names: Sequence[Names], options: Mapping[str, JsonValue]) -> Floats:
    """Of each member, as `member.capacity` of the assignor's options states it; 1 where it says nothing."""
    stated = options.get("member.capacity")
    table = {}
    if isinstance(stated, Mapping):
        table = {name: float(share) for name, share in stated.items() if isinstance(share, int | float)}
    return np.array([next((table[name] for name in who if name in table), 1.0) for who in names])


@dataclass(slots=True)
class PaidRounds:
    """Evaluations in a row that would have paid, in a group that was the same all the while."""

    rounds: int = 0
    since_ms: int = 0
    """When the first of them was."""
    same: object = field(default=None)

    def paid(self, same: object, now_ms: int) -> int:
        """One more that pays; `same` stands for all that has to be as it was at the one before. Returns how many."""
        if same != self.same or not self.rounds:
            self.rounds, self.since_ms, self.same = 0, now_ms, same
        self.rounds += 1
        return self.rounds

    def over(self) -> None:
        """It would not have paid, or could not be told: the count begins anew."""
        self.rounds = 0
