"""What the ledger says of a group's balance: why a move paid, or would have."""

from dataclasses import replace

from muster.coordinator.core.control.balance.judging import MemberBurdens, heaviest_gain
from muster.coordinator.core.control.balance.ongoing import OngoingBalance
from muster.coordinator.core.control.balance.problem import BalanceProblem
from muster.coordinator.core.groups.entries import audit_entry, keep_entry
from muster.coordinator.core.groups.group import GroupData
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.types import Cause, Outcome, PartitionMove


def proof_sentence(
    before: MemberBurdens,
    after: MemberBurdens,
    moves: int,
    problem: BalanceProblem,
    balancing: OngoingBalance,
    now_ms: int,
) -> str:
    """One sentence with all figures that the decision rests on."""
    rules, patience, drain_s = balancing.rules, balancing.patience, balancing.rules.drain_ms / 1000
    who, lasted_s = problem.columns.members[before.who], (now_ms - patience.since_ms) / 1000
    budget = f" <= budget {rules.move_budget}" if rules.move_budget else ""
    return (
        f"the heaviest member, {who}, carries {before.heaviest / drain_s:.4g} records/s, {before.ratio:.3g} times the "
        f"mean; with {count_of(moves, 'move')}{budget} the heaviest carries {after.heaviest / drain_s:.4g}: "
        f"{100 * heaviest_gain(before, after):.3g} % less >= {100 * rules.min_gain:.3g} %, in "
        f"{count_of(patience.rounds, 'evaluation')} in a row over {lasted_s:.4g} s"
    )


def count_of(number: int, noun: str) -> str:
    """
    >>> count_of(1, "move"), count_of(2, "move")
    ('1 move', '2 moves')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def record_watched(group: GroupData, detail: str, moves: tuple[PartitionMove, ...], step: Step) -> None:
    """An entry beside those of rebalances: nothing was planned anew, nobody moved."""
    entry = audit_entry(group.id, Outcome.WATCHED, "", detail, step)
    entry = replace(entry, cause=Cause.LAG_IMBALANCE, moves=moves)
    keep_entry(group.id, entry, step)
    step.announce(group, entry=entry)
