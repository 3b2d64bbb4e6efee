"""What is going on in a group whose balance is on. Soft: it begins anew with the process."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.coordinator.core.control.balance.judging import PaidRounds
from muster.coordinator.core.control.balance.loads import PartitionLoads
from muster.coordinator.core.control.balance.problem import BalanceProblem
from muster.coordinator.core.settings.rules import BalanceRules


@dataclass(slots=True)
class OngoingBalance:
    """Of one group, by these rules."""

    rules: BalanceRules
    patience: PaidRounds
    serial: int = 0
    """Of the measurement that is under way; 0: none is."""
    loads: PartitionLoads | None = None
    weighing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Plugins that take loads, and the options of each; as the last measurement told."""
    behind: bool = False
    """Whether a member fell behind when the group was judged last: the last sample counts then, not the means."""
    asked: int = 0
    """The epoch of the plan that is being made; 0: none is."""
    problem: BalanceProblem | None = None
    """What was last planned for: it stays as long as the group does."""
    next_stage: Callable[..., Any] | None = None
    """What of the evaluation is left for a later turn, under this ticket."""
    ticket: int = 0
    partitions: int = 0
    """How many the group reads, measured or not."""
    refused: str = ""
    """Why nothing is measured."""
    heaviest: str = ""
    """Who carried most when the group was judged last, for its capacity."""
    ratio: float | None = None
    """How many times the mean that was; None: the group has not been judged as it is."""
