"""Evaluates a group's balance from one measurement to the next: measure, judge, plan, and act when it has paid enough.

A timer asks for a measurement (`MeasureLoad`), which the edge takes: log ends and committed positions of one moment.
The group is then judged, if it is at rest; where a plan could make the heaviest member lighter by enough, one is
requested, off the event loop. Only when such a plan was found in `balance.rounds` evaluations in a row, in a group
that stayed the same, is anything done. The ledger says why a move paid, or would have. `OngoingBalance` is soft: it
begins again with the process.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from muster.assignors.api import Snapshot
from muster.coordinator.core.control.balance import group_balance
from muster.coordinator.core.control.balance.group_balance import why_balance_cannot_act, why_balance_rests, with_loads
from muster.coordinator.core.control.balance.loads import (
    BalanceProblem,
    MemberBurdens,
    Owners,
    PaidRounds,
    PartitionLoads,
    does_member_fall_behind,
    heaviest_gain,
    is_worth_moving,
    member_burdens,
    problem_of,
)
from muster.coordinator.core.control.overrides import overrides
from muster.coordinator.core.groups.bookkeeping import audit_entry, keep_entry
from muster.coordinator.core.groups.group import GroupData
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.kinds.registry import KINDS
from muster.coordinator.core.model.effects import MeasureLoad
from muster.coordinator.core.model.events import BalanceGoesOn, LoadMeasured, Planned
from muster.coordinator.core.model.ledger import RebalanceTrigger
from muster.coordinator.core.model.plan import Plan, PlanRequest
from muster.coordinator.core.model.plan_correction import correct_with_overrides
from muster.coordinator.core.model.types import Cause, Outcome, PartitionMove
from muster.coordinator.core.settings.assignor_choice import chosen_options
from muster.coordinator.core.settings.shapes import ACT, BalanceRules

# State
# -----


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


# Ledger
# ------


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


def fresh_balance(group_id: str, step: Step) -> OngoingBalance:
    return OngoingBalance(group_balance.balance_rules_of(group_id, step.state), PaidRounds())


def request_measurement(group_id: str, balancing: OngoingBalance, step: Step) -> None:
    """Ask for the load of what the group reads; where nobody reads anything there is none."""
    group = step.state.logged(group_id)
    state = step.state
    topics = (KINDS[type(group)].subscribed(group, group_id) or ()) if group is not None and group.members else ()
    counts = {topic: state.partitions[topic] for topic in sorted(topics) if topic in state.partitions}
    balancing.partitions = sum(counts.values())
    if not counts:
        balancing.loads, balancing.serial = None, 0
        balancing.patience.over()
        return
    if balancing.loads is None or balancing.loads.counts != counts:
        balancing.loads = PartitionLoads(counts, balancing.rules.sample_ms, balancing.loads)
    balancing.serial = step.tick()
    step.out.measures.append(MeasureLoad(group_id, balancing.serial, counts))


def take_measurement(event: LoadMeasured, balancing: OngoingBalance, step: Step) -> None:
    """A piece of a measurement, or why there is none. One that was asked for earlier is void."""
    loads = balancing.loads
    if loads is None or event.serial != balancing.serial:
        return
    balancing.refused = event.refused
    if event.refused:
        # A rebalance that was begun by these loads is planned by them: without, it would undo what was evened out.
        if at_rest(event.group_id, step):
            balancing.loads = None
        balancing.serial = 0
        balancing.patience.over()
        return
    for topic, first, ends, committed in event.rows:
        loads.record_positions(topic, first, ends, committed, event.at_ms)
    if event.last:
        balancing.serial = 0
        balancing.weighing = dict(event.weighing)
        loads.taken()
        evaluate(event.group_id, balancing, step)


def at_rest(group_id: str, step: Step) -> bool:
    group = step.state.logged(group_id)
    return group is None or not group.under_way


def evaluate(group_id: str, balancing: OngoingBalance, step: Step) -> None:
    """Have a plan made where one might pay."""
    if not balancing.asked:
        proceed_from(build_problem, group_id, balancing, step)


Stage: TypeAlias = Callable[[str, OngoingBalance, Step], Any]
"""A part of an evaluation; gives back the one that follows, None when nothing is left to do."""

AT_ONCE_PARTITIONS = 10_000
"""Of more, each stage has a turn of its own: none of them takes others' turns for more than a few milliseconds."""


def proceed_from(stage: Stage | None, group_id: str, balancing: OngoingBalance, step: Step) -> None:
    """From this stage on, now or a stage in a turn."""
    while stage is not None:
        stage = stage(group_id, balancing, step)
        if stage is not None and balancing.partitions > AT_ONCE_PARTITIONS:
            balancing.next_stage, balancing.ticket = stage, step.tick()
            step.out.chores.append(BalanceGoesOn(group_id, balancing.ticket))
            return


def go_on_from(event: BalanceGoesOn, balancing: OngoingBalance, step: Step) -> None:
    """The next stage, unless another evaluation has begun since."""
    stage = balancing.next_stage
    if stage is not None and event.ticket == balancing.ticket:
        balancing.next_stage = None
        proceed_from(stage, event.group_id, balancing, step)


def build_problem(group_id: str, balancing: OngoingBalance, step: Step) -> Stage | None:
    """What there is to be evened out: made anew only when the group has changed."""
    if problem_now(group_id, balancing, step) is not None:
        return check_keeping_up
    balancing.patience.over()
    return None


def check_keeping_up(group_id: str, balancing: OngoingBalance, step: Step) -> Stage | None:
    """Whether all members do; by which loads they are judged hangs on it."""
    problem, loads = problem_now(group_id, balancing, step), balancing.loads
    if problem is None or loads is None:
        balancing.patience.over()
        return None
    written, growth = (problem.loads(loads, column) for column in loads.growth())
    balancing.behind = does_member_fall_behind(problem.owner, written, growth, len(problem.capacity))
    return judge_problem


def judge_problem(group_id: str, balancing: OngoingBalance, step: Step) -> Stage | None:
    """Whether any plan could make the heaviest member lighter by enough."""
    problem = problem_now(group_id, balancing, step)
    if problem is not None and note_burdens(problem, balancing).most_to_gain >= balancing.rules.min_gain:
        return request_balance_plan
    balancing.patience.over()
    return None


def request_balance_plan(group_id: str, balancing: OngoingBalance, step: Step) -> Stage | None:
    """Have it made."""
    problem = problem_now(group_id, balancing, step)
    if problem is None:
        balancing.patience.over()
        return None
    snapshot = balance_input(group_id, with_loads(problem.snapshot, group_id, balancing, step), step)
    balancing.asked = step.fresh_epoch(0)
    step.out.plans.append(PlanRequest(group_id, balancing.asked, snapshot.assignor, snapshot))
    return None


def note_burdens(problem: BalanceProblem, balancing: OngoingBalance) -> MemberBurdens:
    """What members carry, by the loads that count; whoever describes the group is told of it."""
    found = burdens_carried(problem, problem.owner, balancing)
    balancing.heaviest, balancing.ratio = problem.columns.members[found.who], found.ratio
    return found


def take_balance_result(event: Planned, balancing: OngoingBalance, step: Step) -> None:
    """What the group would become. It counts if the group is still the one that was looked at."""
    balancing.asked = 0
    asked_for, now = balancing.problem, problem_now(event.group_id, balancing, step)
    if event.plan is None or now is None or now is not asked_for:
        balancing.patience.over()
        return
    after = now.owners_by(correct_balance_plan(event.group_id, event.plan, now, step))
    proceed_from(partial(weigh_result, after, now), event.group_id, balancing, step)


def weigh_result(
    after: Owners, problem: BalanceProblem, group_id: str, balancing: OngoingBalance, step: Step
) -> Stage | None:
    """Whether it pays, and has for long enough."""
    if problem_now(group_id, balancing, step) is not problem or not does_plan_pay(
        group_id, after, problem, balancing, step
    ):
        balancing.patience.over()
    elif balancing.patience.paid(problem.same, step.now_ms) >= balancing.rules.rounds:
        return partial(conclude_evaluation, after, problem)
    return None


def balance_input(group_id: str, snapshot: Snapshot, step: Step) -> Snapshot:
    """What the assignor is told of it: drained members get nothing."""
    if group_id not in step.state.holds:
        return snapshot
    group = step.state.logged(group_id)
    return overrides.assignor_input(group_id, snapshot, KINDS[type(group)].situation(group, step).who.values(), step)


def correct_balance_plan(group_id: str, plan: Plan, problem: BalanceProblem, step: Step) -> Plan:
    """What would become of the plan where an operator has pinned partitions or drains members."""
    holds, group = step.state.holds.get(group_id), step.state.logged(group_id)
    if holds is None:
        return plan
    situation = KINDS[type(group)].situation(group, step)
    return correct_with_overrides(plan, holds, replace(situation, snapshot=problem.snapshot)).plan


def problem_now(group_id: str, balancing: OngoingBalance, step: Step) -> BalanceProblem | None:
    """The group as it is now, if it may be evened out; made anew only after it has changed."""
    group = step.state.logged(group_id)
    loads = balancing.loads
    if group is None or loads is None or not loads.rated or why_balance_rests(group, step):
        return None
    same = group_likeness(group, loads, step.state)
    if balancing.problem is None or balancing.problem.same != same:
        snapshot = KINDS[type(group)].snapshot(group, step)
        if snapshot is None or any(loads.counts.get(topic) != count for topic, count in snapshot.topics.items()):
            return None
        balancing.problem = problem_of(snapshot, same, chosen_options(step.state, group_id))
    return balancing.problem


def group_likeness(group: GroupData, loads: PartitionLoads, state: ShardState) -> tuple[object, ...]:
    """All by which a group is the same as it was."""
    stored, held = state.settings.get(group.id), state.holds.get(group.id)
    version = None if stored is None else stored.version
    return (type(group), group.generation, tuple(group.members), version, held, loads.counts)


def last_burden(group: GroupData, state: ShardState) -> MemberBurdens | None:
    """What the members of a balanced group carry, by the loads that count. For whoever looks on: nothing is asked for.

    None where the balance is off or knows too little yet, and where the group was not at rest since it changed.
    """
    balancing = state.balancing.get(group.id)
    if balancing is None or balancing.loads is None or balancing.problem is None:
        return None
    if balancing.problem.same != group_likeness(group, balancing.loads, state):
        return None
    return burdens_carried(balancing.problem, balancing.problem.owner, balancing)


def burdens_carried(problem: BalanceProblem, owner: Owners, balancing: OngoingBalance) -> MemberBurdens:
    """What members carry if these own, by the loads that count (`PartitionLoads.counted`)."""
    assert balancing.loads is not None
    counted = balancing.loads.counted(balancing.rules.drain_ms, balancing.behind)
    return member_burdens(owner, problem.loads(balancing.loads, counted), problem.capacity)


def burdens(problem: BalanceProblem, owner: Owners, balancing: OngoingBalance) -> tuple[MemberBurdens, MemberBurdens]:
    """By the loads that count, and by the last sample alone."""
    assert balancing.loads is not None
    last = balancing.loads.last_records(balancing.rules.drain_ms)
    by_last = member_burdens(owner, problem.loads(balancing.loads, last), problem.capacity)
    return burdens_carried(problem, owner, balancing), by_last


def does_plan_pay(group_id: str, after: Owners, problem: BalanceProblem, balancing: OngoingBalance, step: Step) -> bool:
    """Whether the heaviest member becomes lighter by enough, now as well as on the average, and what moves may move."""
    resting = problem.mask(group_balance.recent_moves(group_id, balancing.rules, step))
    return is_worth_moving(
        after != problem.owner,
        resting,
        burdens(problem, problem.owner, balancing),
        burdens(problem, after, balancing),
        balancing.rules,
    )


def conclude_evaluation(
    after: Owners, problem: BalanceProblem, group_id: str, balancing: OngoingBalance, step: Step
) -> None:
    """Do it, or say what would have been done, if the group is still the same."""
    group = step.state.logged(group_id)
    if group is None or problem_now(group_id, balancing, step) is not problem:
        balancing.patience.over()
        return
    was, becomes = burdens_carried(problem, problem.owner, balancing), burdens_carried(problem, after, balancing)
    why = proof_sentence(was, becomes, int((after != problem.owner).sum()), problem, balancing, step.now_ms)
    balancing.patience.over()
    kind = KINDS[type(group)]
    hindrance = why_balance_cannot_act(group, kind.plans_itself(group)) if balancing.rules.mode == ACT else ""
    if balancing.rules.mode == ACT and not hindrance:
        kind.replan(group, RebalanceTrigger(Cause.LAG_IMBALANCE, why), step)
    elif group_balance.may_report_watched(group_id, balancing.rules, step):
        told = f"{why}; not done: {hindrance}" if hindrance else why
        record_watched(group, told, problem.moves_to(after), step)
        group_balance.note_watched(group_id, balancing.rules, step)
