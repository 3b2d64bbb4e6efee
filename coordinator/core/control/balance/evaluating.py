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
from muster.coordinator.core.control.balance.events import BalanceGoesOn
from muster.coordinator.core.control.balance.judging import Burden, Owners, Patience, burden, falls_behind, worth_it
from muster.coordinator.core.control.balance.loads import Loads
from muster.coordinator.core.control.balance.ongoing import Balancing
from muster.coordinator.core.control.balance.problem import Problem, problem_of
from muster.coordinator.core.control.balance.resting import cannot_act, why_rests
from muster.coordinator.core.control.balance.rules import ACT
from muster.coordinator.core.control.balance.telling import proof, watched
from muster.coordinator.core.control.balance.weighing import with_loads
from muster.coordinator.core.control.holds import members
from muster.coordinator.core.control.holds.correction import corrected
from muster.coordinator.core.control.who import wanted_options
from muster.coordinator.core.effects import MeasureLoad
from muster.coordinator.core.events import LoadMeasured, Planned
from muster.coordinator.core.groups.group import Group
from muster.coordinator.core.groups.kinds import KINDS
from muster.coordinator.core.ledger import Trigger
from muster.coordinator.core.plan import Plan, PlanRequest
from muster.coordinator.core.state import ShardState, Step
from muster.coordinator.core.types import Cause


def fresh(group_id: str, step: Step) -> Balancing:
    return Balancing(memory.rules_for(group_id, step.state), Patience())


def measure(group_id: str, balancing: Balancing, step: Step) -> None:
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
        balancing.loads = Loads(counts, balancing.rules.sample_ms, balancing.loads)
    balancing.serial = step.tick()
    step.out.measures.append(MeasureLoad(group_id, balancing.serial, counts))


def measured(event: LoadMeasured, balancing: Balancing, step: Step) -> None:
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


def evaluate(group_id: str, balancing: Balancing, step: Step) -> None:
    """Have a plan made where one might pay."""
    if not balancing.asked:
        proceed(look, group_id, balancing, step)


Stage: TypeAlias = Callable[[str, Balancing, Step], Any]
"""A part of an evaluation; gives back the one that follows, None when nothing is left to do."""

AT_ONCE_PARTITIONS = 10_000
"""Of more, each stage has a turn of its own: none of them takes others' turns for more than a few milliseconds."""


def proceed(stage: Stage | None, group_id: str, balancing: Balancing, step: Step) -> None:
    """From this stage on, now or a stage in a turn."""
    while stage is not None:
        stage = stage(group_id, balancing, step)
        if stage is not None and balancing.partitions > AT_ONCE_PARTITIONS:
            balancing.next_stage, balancing.ticket = stage, step.tick()
            step.out.chores.append(BalanceGoesOn(group_id, balancing.ticket))
            return


def goes_on(event: BalanceGoesOn, balancing: Balancing, step: Step) -> None:
    """The next stage, unless another evaluation has begun since."""
    stage = balancing.next_stage
    if stage is not None and event.ticket == balancing.ticket:
        balancing.next_stage = None
        proceed(stage, event.group_id, balancing, step)


def look(group_id: str, balancing: Balancing, step: Step) -> Stage | None:
    """What there is to be evened out: made anew only when the group has changed."""
    if problem_now(group_id, balancing, step) is not None:
        return keep_up
    balancing.patience.over()
    return None


def keep_up(group_id: str, balancing: Balancing, step: Step) -> Stage | None:
    """Whether all members do; by which loads they are judged hangs on it."""
    problem, loads = problem_now(group_id, balancing, step), balancing.loads
    if problem is None or loads is None:
        balancing.patience.over()
        return None
    written, growth = (problem.loads(loads, column) for column in loads.growth())
    balancing.behind = falls_behind(problem.owner, written, growth, len(problem.capacity))
    return judge


def judge(group_id: str, balancing: Balancing, step: Step) -> Stage | None:
    """Whether any plan could make the heaviest member lighter by enough."""
    problem = problem_now(group_id, balancing, step)
    if problem is not None and judged(problem, balancing).most_to_gain >= balancing.rules.min_gain:
        return ask
    balancing.patience.over()
    return None


def ask(group_id: str, balancing: Balancing, step: Step) -> Stage | None:
    """Have it made."""
    problem = problem_now(group_id, balancing, step)
    if problem is None:
        balancing.patience.over()
        return None
    snapshot = asked_of(group_id, with_loads(problem.snapshot, group_id, balancing, step), step)
    balancing.asked = step.fresh_epoch(0)
    step.out.plans.append(PlanRequest(group_id, balancing.asked, snapshot.assignor, snapshot))
    return None


def judged(problem: Problem, balancing: Balancing) -> Burden:
    """What members carry, by the loads that count; whoever describes the group is told of it."""
    found = carried(problem, problem.owner, balancing)
    balancing.heaviest, balancing.ratio = problem.columns.members[found.who], found.ratio
    return found


def planned(event: Planned, balancing: Balancing, step: Step) -> None:
    """What the group would become. It counts if the group is still the one that was looked at."""
    balancing.asked = 0
    asked_for, now = balancing.problem, problem_now(event.group_id, balancing, step)
    if event.plan is None or now is None or now is not asked_for:
        balancing.patience.over()
        return
    after = now.owners_by(as_held(event.group_id, event.plan, now, step))
    proceed(partial(weigh, after, now), event.group_id, balancing, step)


def weigh(after: Owners, problem: Problem, group_id: str, balancing: Balancing, step: Step) -> Stage | None:
    """Whether it pays, and has for long enough."""
    if problem_now(group_id, balancing, step) is not problem or not pays(group_id, after, problem, balancing, step):
        balancing.patience.over()
    elif balancing.patience.paid(problem.same, step.now_ms) >= balancing.rules.rounds:
        return partial(conclude, after, problem)
    return None


def asked_of(group_id: str, snapshot: Snapshot, step: Step) -> Snapshot:
    """What the assignor is told of it: drained members get nothing."""
    if group_id not in step.state.holds:
        return snapshot
    group = step.state.logged(group_id)
    return members.asked(group_id, snapshot, KINDS[type(group)].situation(group, step).who.values(), step)


def as_held(group_id: str, plan: Plan, problem: Problem, step: Step) -> Plan:
    """What would become of the plan where an operator has pinned partitions or drains members."""
    holds, group = step.state.holds.get(group_id), step.state.logged(group_id)
    if holds is None:
        return plan
    situation = KINDS[type(group)].situation(group, step)
    return corrected(plan, holds, replace(situation, snapshot=problem.snapshot)).plan


def problem_now(group_id: str, balancing: Balancing, step: Step) -> Problem | None:
    """The group as it is now, if it may be evened out; made anew only after it has changed."""
    group = step.state.logged(group_id)
    loads = balancing.loads
    if group is None or loads is None or not loads.rated or why_rests(group, step):
        return None
    same = likeness(group, loads, step.state)
    if balancing.problem is None or balancing.problem.same != same:
        snapshot = KINDS[type(group)].snapshot(group, step)
        if snapshot is None or any(loads.counts.get(topic) != count for topic, count in snapshot.topics.items()):
            return None
        balancing.problem = problem_of(snapshot, same, wanted_options(step.state, group_id))
    return balancing.problem


def likeness(group: Group, loads: Loads, state: ShardState) -> tuple[object, ...]:
    """All by which a group is the same as it was."""
    stored, held = state.settings.get(group.id), state.holds.get(group.id)
    version = None if stored is None else stored.version
    return (type(group), group.generation, tuple(group.members), version, held, loads.counts)


def last_burden(group: Group, state: ShardState) -> Burden | None:
    """What the members of a balanced group carry, by the loads that count. For whoever looks on: nothing is asked for.

    None where the balance is off or knows too little yet, and where the group was not at rest since it changed.
    """
    balancing = state.balancing.get(group.id)
    if balancing is None or balancing.loads is None or balancing.problem is None:
        return None
    if balancing.problem.same != likeness(group, balancing.loads, state):
        return None
    return carried(balancing.problem, balancing.problem.owner, balancing)


def carried(problem: Problem, owner: Owners, balancing: Balancing) -> Burden:
    """What members carry if these own, by the loads that count (`Loads.counted`)."""
    assert balancing.loads is not None
    counted = balancing.loads.counted(balancing.rules.drain_ms, balancing.behind)
    return burden(owner, problem.loads(balancing.loads, counted), problem.capacity)


def burdens(problem: Problem, owner: Owners, balancing: Balancing) -> tuple[Burden, Burden]:
    """By the loads that count, and by the last sample alone."""
    assert balancing.loads is not None
    last = balancing.loads.last_records(balancing.rules.drain_ms)
    by_last = burden(owner, problem.loads(balancing.loads, last), problem.capacity)
    return carried(problem, owner, balancing), by_last


def pays(group_id: str, after: Owners, problem: Problem, balancing: Balancing, step: Step) -> bool:
    """Whether the heaviest member becomes lighter by enough, now as well as on the average, and what moves may move."""
    resting = problem.mask(memory.last_moves(group_id, balancing.rules, step))
    return worth_it(
        after != problem.owner,
        resting,
        burdens(problem, problem.owner, balancing),
        burdens(problem, after, balancing),
        balancing.rules,
    )


def conclude(after: Owners, problem: Problem, group_id: str, balancing: Balancing, step: Step) -> None:
    """Do it, or say what would have been done, if the group is still the same."""
    group = step.state.logged(group_id)
    if group is None or problem_now(group_id, balancing, step) is not problem:
        balancing.patience.over()
        return
    was, becomes = carried(problem, problem.owner, balancing), carried(problem, after, balancing)
    why = proof(was, becomes, int((after != problem.owner).sum()), problem, balancing, step.now_ms)
    balancing.patience.over()
    kind = KINDS[type(group)]
    hindrance = cannot_act(group, kind.plans_itself(group)) if balancing.rules.mode == ACT else ""
    if balancing.rules.mode == ACT and not hindrance:
        kind.replan(group, Trigger(Cause.LAG_IMBALANCE, why), step)
    elif memory.may_tell(group_id, balancing.rules, step):
        told = f"{why}; not done: {hindrance}" if hindrance else why
        watched(group, told, problem.moves_to(after), step)
        memory.told(group_id, balancing.rules, step)
