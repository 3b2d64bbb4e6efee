"""The balance of a group, from one measurement to the next: measure, judge, plan, and act when it has paid long enough.

A timer asks for a measurement (`MeasureLoad`), which the edge takes: where logs end and what is committed, of one
moment. Then the group is looked at, if it is at rest; where a plan could make the heaviest member lighter by enough,
one is asked for, off the loop. Only when such a plan was found in `balance.rounds` evaluations in a row, in a group
that was the same all the while, is anything done.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from muster.assignors.api import Snapshot
from muster.coordinator.core.control.balance import memory
from muster.coordinator.core.control.balance.judging import (
    MemberBurdens,
    Owners,
    PaidRounds,
    does_member_fall_behind,
    is_worth_moving,
    member_burdens,
)
from muster.coordinator.core.control.balance.loads import PartitionLoads
from muster.coordinator.core.control.balance.ongoing import OngoingBalance
from muster.coordinator.core.control.balance.problem import BalanceProblem, problem_of
from muster.coordinator.core.control.balance.resting import why_balance_cannot_act, why_balance_rests
from muster.coordinator.core.control.balance.telling import proof_sentence, record_watched
from muster.coordinator.core.control.balance.weighing import with_loads
from muster.coordinator.core.control.overrides import members
from muster.coordinator.core.groups.group import GroupData
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.kinds.kinds import KINDS
from muster.coordinator.core.model.balance_events import BalanceGoesOn
from muster.coordinator.core.model.core_events import LoadMeasured, Planned
from muster.coordinator.core.model.correction import correct_with_overrides
from muster.coordinator.core.model.effects import MeasureLoad
from muster.coordinator.core.model.ledger import RebalanceTrigger
from muster.coordinator.core.model.plan import Plan, PlanRequest
from muster.coordinator.core.model.types import Cause
from muster.coordinator.core.settings.rules import ACT
from muster.coordinator.core.settings.who import chosen_options


def fresh_balance(group_id: str, step: Step) -> OngoingBalance:
    return OngoingBalance(memory.balance_rules_of(group_id, step.state), PaidRounds())


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
        loads.take(topic, first, ends, committed, event.at_ms)
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
    return members.assignor_input(group_id, snapshot, KINDS[type(group)].situation(group, step).who.values(), step)


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
    resting = problem.mask(memory.recent_moves(group_id, balancing.rules, step))
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
    elif memory.may_report_watched(group_id, balancing.rules, step):
        told = f"{why}; not done: {hindrance}" if hindrance else why
        record_watched(group, told, problem.moves_to(after), step)
        memory.note_watched(group_id, balancing.rules, step)
