"""The one task of a central group: plan, stop every member, own, start every member (docs/protocol/central.md).

Whatever happens meanwhile sets one bit, and the group looks again when its task is done. Nothing is given away that a
member may still be fetching: while a lost member's lease runs, all members keep what is stored.

Orders are queued until a member's stream asks for them, numbered, and watched until they are answered. Subscriptions
are names, and regular expressions that new topics may match.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias, assert_never

from muster.assignors.api import AssignorError, Snapshot
from muster.coordinator.core.central import ownership_ledger, task_parts
from muster.coordinator.core.central.group import (
    NOT_FETCHING,
    CentralGroup,
    CentralMember,
    CentralState,
    CheckedPlan,
    OrderedAction,
    OutstandingOrder,
    Slices,
    TaskPart,
    central_view,
)
from muster.coordinator.core.consumer.target import candidate_topics
from muster.coordinator.core.groups.bookkeeping import snapshot_within_limit
from muster.coordinator.core.groups.member_causes import changes_since, describe_changes
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.model.effects import (
    NOTHING_COMMITTED,
    CentralReply,
    Order,
    Ping,
    RebalanceFailed,
    ResolveRegex,
    StartFetcher,
    StopFetcher,
)
from muster.coordinator.core.model.events import AwaitOrders, ContinueTask, Planned, RegexResolved
from muster.coordinator.core.model.ledger import RebalanceTrigger, trigger_by_member
from muster.coordinator.core.model.plan import (
    Plan,
    PlanRequest,
    lacks_lags,
    next_generation,
    too_large,
)
from muster.coordinator.core.model.records import CentralStored
from muster.coordinator.core.model.rights import RightsAnew, describe_rights_change, refreshed_rights
from muster.coordinator.core.model.types import Cause
from muster.coordinator.errors import CoordinatorError, ErrorCode

# Orders
# ------

ORDERS_IN_STEP = 100
"""Members that one step orders to stop or to start. A group with more is large: its task is done in parts, with turns
of others in between, and its newcomers wait for those behind them."""

PARTITIONS_IN_STEP = 1_000
"""Partitions that a group may share for its task to be done without pauses."""

MOST_PAUSES = 10
"""Newcomers that keep coming are waited for so many times as long as the last of them."""

OrderCause: TypeAlias = tuple[Cause, str, int]
"""Why a member is stopped or started: the rebalance's cause, detail and number."""


def await_orders(request: AwaitOrders, step: Step) -> None:
    """Give the stream what waits for its member, or let it wait."""
    _, member = require_speaker(request.group_id, request.member_id, request.stream, step)
    release_stream(member, step)
    member.waiting = request.request_id
    step.state.parked[request.request_id] = member.id
    deliver_orders(member, step)


def require_speaker(group_id: str, member_id: str, stream: int, step: Step) -> tuple[CentralGroup, CentralMember]:
    """The member whose open stream this is; UNKNOWN_MEMBER_ID when the group goes on without it."""
    group = step.state.find(CentralGroup, group_id)
    member = group.members.get(member_id) if group is not None else None
    if group is None or member is None or member.stream != stream:
        raise CoordinatorError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"member {member_id!r} of group {group_id!r} is not registered by this stream; stop fetching and register",
        )
    return group, member


def send_ping(group: CentralGroup, member: CentralMember, step: Step) -> None:
    number = next_order_number(member)
    member.ping, member.pinged_ms = number, step.now_ms
    queue_order(member, Ping(number), step)
    step.arm(group.ping_timer(member.id), member.patience_ms)


def order_stop(group: CentralGroup, member: CentralMember, step: Step, why: OrderCause) -> None:
    number = next_order_number(member)
    cause, detail, rebalance = why
    send_order(group, member, OutstandingOrder(OrderedAction.STOP, number), step)
    queue_order(member, StopFetcher(number, cause, detail, rebalance), step)


def order_start(group: CentralGroup, member: CentralMember, step: Step, why: OrderCause) -> None:
    """Order the member to fetch what is stored for it, from where the group has committed."""
    number = next_order_number(member)
    member.may_fetch = True
    committed = step.state.offsets.get(group.id, {})
    share = group.owned[member.id]
    partitions = tuple(
        (topic, partition, stored.offset if (stored := committed.get((topic, partition))) else NOTHING_COMMITTED)
        for topic in sorted(share)
        for partition in share[topic]
    )
    cause, detail, rebalance = why
    send_order(group, member, OutstandingOrder(OrderedAction.START, number), step)
    queue_order(member, StartFetcher(number, group.generation, partitions, cause, detail, rebalance), step)


def report_failure(member: CentralMember, detail: str, step: Step) -> None:
    queue_order(member, RebalanceFailed(next_order_number(member), detail), step)


def current_cause(group: CentralGroup, step: Step) -> OrderCause:
    """Why: the rebalance under way, else the last one."""
    rebalance = group.progress.rebalance
    if rebalance is not None:
        return rebalance.trigger.cause, rebalance.trigger.detail, rebalance.number
    ledger = step.state.ledgers.get(group.id)
    entry = ledger.newest if ledger else None
    return (entry.cause, entry.detail, entry.number) if entry else (Cause.UNSPECIFIED, "", 0)


def send_order(group: CentralGroup, member: CentralMember, wanted: OutstandingOrder, step: Step) -> None:
    member.demand = wanted
    step.arm(group.order_timer(member.id), member.patience_ms)


def next_order_number(member: CentralMember) -> int:
    member.last_number += 1
    return member.last_number


def queue_order(member: CentralMember, order: Order, step: Step) -> None:
    """The latest word of a kind replaces one that was not delivered; a stop and a start are of one kind."""
    kind: tuple[type[Order], ...] = (type(order),)
    if isinstance(order, StopFetcher | StartFetcher):
        kind = (StopFetcher, StartFetcher)
    member.orders = [earlier for earlier in member.orders if not isinstance(earlier, kind)]
    member.orders.append(order)
    deliver_orders(member, step)


def deliver_orders(member: CentralMember, step: Step) -> None:
    if member.waiting is None or not member.orders:
        return
    orders, member.orders = tuple(member.orders), []
    request, member.waiting = member.waiting, None
    step.reply(request, CentralReply(orders=orders, answered=member.answered))


def release_stream(member: CentralMember, step: Step, code: ErrorCode = ErrorCode.NONE, message: str = "") -> None:
    """Answer the stream that waits, if any."""
    if member.waiting is not None:
        request, member.waiting = member.waiting, None
        step.reply(request, CentralReply(code, message, answered=member.answered))


def take_newcomer(group: CentralGroup, trigger: RebalanceTrigger, step: Step) -> None:
    """Somebody has registered. All members stop for a rebalance, so those who come together are given one."""
    ownership_ledger.note_trigger(group, trigger, step)
    first_ms, _ = group.progress.newcomers or (step.now_ms, step.now_ms)
    group.progress.newcomers = first_ms, step.now_ms
    advance_task(group, step)


def awaits_more(group: CentralGroup, step: Step) -> bool:
    """Whether newcomers of a large group wait for those behind them.

    Only in a stable group, where everything has an owner that fetches: nobody but they waits.
    """
    pause_ms, newcomers = step.limits.central_newcomers_delay_ms, group.progress.newcomers
    if newcomers is None or group.state is not CentralState.STABLE or not is_large(group):
        return False
    left_ms = min(newcomers[1] + pause_ms, newcomers[0] + MOST_PAUSES * pause_ms) - step.now_ms
    if left_ms <= 0:
        return False
    step.arm(group.newcomers_timer, left_ms)
    return True


def is_large(group: CentralGroup) -> bool:
    return len(group.members) > ORDERS_IN_STEP


def takes_turns(group: CentralGroup) -> bool:
    """Whether the parts of the task have turns of their own: for its members, or for what they share."""
    request = group.progress.request
    return is_large(group) or (request is not None and sum(request.snapshot.topics.values()) > PARTITIONS_IN_STEP)


def request_rebalance(group: CentralGroup, trigger: RebalanceTrigger, step: Step) -> None:
    """Something happened that may change who is to have what."""
    ownership_ledger.note_trigger(group, trigger, step)
    group.progress.dirty = True
    advance_task(group, step)


def advance_task(group: CentralGroup, step: Step) -> None:
    """Take the group's task as far as it can go now."""
    match group.state:
        case CentralState.EMPTY | CentralState.WAITING | CentralState.STABLE:
            if group.progress.left is TaskPart.SETTLE:
                return  # it looks then what has happened meanwhile
            if group.progress.dirty or (group.progress.newcomers is not None and not awaits_more(group, step)):
                start_task(group, step)

        case CentralState.STOPPING:
            if group.progress.void:
                # Those who have stopped wait for the next plan.
                start_task(group, step)
            elif not group.progress.awaited and group.progress.left is None:
                finish_stopping(group, step)

        case CentralState.STARTING:
            if not group.progress.awaited:
                finish_starting(group, step)

        case CentralState.ASSIGNING | CentralState.BACKING_OFF:
            # The plan, or the timer, leads on from here; without anybody there is nothing to wait for.
            if not group.members:
                start_task(group, step)

        case _:
            assert_never(group.state)


def start_task(group: CentralGroup, step: Step) -> None:
    """Find out what is to be done, from the group as it is now."""
    progress = group.progress
    progress.dirty = progress.void = False
    progress.newcomers = None
    drop_parts(group)
    progress.awaited.clear()
    progress.unordered.clear()
    step.disarm(group.retry_timer)
    step.disarm(group.newcomers_timer)
    if not group.members:
        empty_group(group, step)
    elif progress.resolving or group.has_lost:
        progress.dirty = True
        move_to_state(group, CentralState.WAITING, step)
        start_late_ones(group, step)
    else:
        request_plan(group, step)


def request_plan(group: CentralGroup, step: Step) -> None:
    """Make the snapshot, and ask the assignor."""
    move_to_state(group, CentralState.ASSIGNING, step)
    group.progress.planning_since_ms = step.now_ms
    do_part(group, TaskPart.ASK, step)


def ask_assignor(group: CentralGroup, step: Step) -> None:
    """Have the assignor run: at once where that is quick, else off the loop."""
    progress, extensions = group.progress, step.state.extensions
    snapshot, progress.snapshot = progress.snapshot, None
    assert snapshot is not None
    if must_look_again(group):
        start_task(group, step)
        return
    snapshot = extensions.prepare_snapshot(group, snapshot, step)
    asked = extensions.restrict_snapshot(central_view(group), snapshot, step)
    request = PlanRequest(group.id, step.fresh_epoch(group.generation), snapshot.assignor, asked)
    progress.request, progress.put_off = request, False
    if extensions.protects_members(group.id, step.state):
        # Whatever an assignor says, nobody loses anything.
        adopt_plan(group, {}, step)
        return
    try:
        made = None if lacks_lags(request) else step.state.planner(request)
    except AssignorError as error:
        step.plan_failed(group.id, str(error))
        fail_attempt(group, str(error), step)
        return
    if made is None:
        progress.put_off = True
        step.out.plans.append(request)
    else:
        adopt_plan(group, made, step)


def take_planned(group: CentralGroup, event: Planned, step: Step) -> None:
    """A plan that was put off has come, or its assignor failed."""
    progress = group.progress
    if not progress.put_off:
        return
    assert progress.request is not None
    if event.epoch != progress.request.epoch:
        return  # asked for earlier, or by an earlier group of this id
    progress.put_off = False
    if event.snapshot is not None:
        progress.request = replace(progress.request, snapshot=event.snapshot)
    if must_look_again(group):
        start_task(group, step)
    elif event.plan is None:
        step.plan_failed(group.id, event.error)
        fail_attempt(group, event.error, step)
    else:
        adopt_plan(group, event.plan, step)


def must_look_again(group: CentralGroup) -> bool:
    """Whether something has happened since the snapshot was made that the plan has to know of."""
    return group.progress.dirty and (group.has_lost or not group.progress.second_look)


def adopt_plan(group: CentralGroup, made: Plan, step: Step) -> None:
    """What operators hold corrects the plan, which is then compared with the one that holds."""
    progress = group.progress
    assert progress.request is not None
    extensions, seen = step.state.extensions, progress.request.snapshot
    everybody = extensions.restore_snapshot(group.id, seen, lambda: snapshot_of(group, step), step)
    kept = extensions.correct_plan(central_view(group), made, everybody, step)
    progress.checking = CheckedPlan(kept, everybody)
    do_part(group, TaskPart.CHECK, step)


def pursue_plan(group: CentralGroup, step: Step) -> None:
    """If the plan is the one that holds, nobody is stopped for it; otherwise everybody is."""
    progress = group.progress
    checked, progress.checking = progress.checking, None
    assert progress.request is not None
    assert checked is not None
    if must_look_again(group):
        start_task(group, step)
        return
    kept, everybody = checked.corrected, checked.everybody
    wanted: Plan = {member_id: share for member_id, share in checked.wanted.items() if member_id in group.members}
    if checked.size_bytes > step.limits.max_group_bytes:
        why = too_large(group.id, "the members and their partitions", checked.size_bytes, step.limits)
        step.plan_failed(group.id, why)
        fail_attempt(group, why, step)
        return
    progress.counts = dict(progress.request.snapshot.topics)
    if wanted == group.owned:
        if progress.newcomers is None:
            ownership_ledger.drop_rebalance(group)
        move_to_state(group, CentralState.STARTING, step)
        start_late_ones(group, step)
        advance_task(group, step)
        return
    progress.request = replace(progress.request, snapshot=kept.told_in(everybody, whole=True))
    ownership_ledger.note_planned(group, step)
    progress.plan, progress.inherited = wanted, kept.inherited
    progress.stopping_since_ms = step.now_ms
    progress.stopped.clear()
    move_to_state(group, CentralState.STOPPING, step)
    fetching = [member.id for member in group.present if member.may_fetch]
    progress.awaited.update(fetching)
    begin_orders(group, fetching, step)
    advance_task(group, step)


def finish_stopping(group: CentralGroup, step: Step) -> None:
    """Nobody fetches. What has happened since the plan was made is taken in now, once: nobody stops for it again."""
    progress = group.progress
    if (progress.dirty or progress.newcomers is not None) and not progress.second_look:
        progress.second_look = True
        ownership_ledger.end_stop_phase(group, step)
        start_task(group, step)
    else:
        ownership_ledger.end_stopping(group, step)
        go_on(group, TaskPart.DESCRIBE, step)


def go_on(group: CentralGroup, part: TaskPart, step: Step) -> None:
    """Do this part of the task; that of a large group has a later turn."""
    if takes_turns(group):
        group.progress.left = part
        continue_later(group, step)
    else:
        do_part(group, part, step)


def continue_later(group: CentralGroup, step: Step) -> None:
    if not group.progress.continuing:
        group.progress.continuing = True
        step.out.chores.append(ContinueTask(group.id))


def continue_task(event: ContinueTask, step: Step) -> None:
    group = step.state.find(CentralGroup, event.group_id)
    if group is None:
        return
    progress = group.progress
    progress.continuing = False
    part, progress.left = progress.left, None
    if part is None:
        give_orders(group, step)
    else:
        do_part(group, part, step)
    if progress.unordered:
        continue_later(group, step)


def do_part(group: CentralGroup, part: TaskPart, step: Step) -> None:
    """Begin this part of the task, or go on with it: a slice of it for a large group, else all."""
    progress = group.progress
    if progress.slices is None:
        progress.slices = slices_of_part(group, part, step.state)
    for _ in progress.slices:
        if takes_turns(group):
            progress.left = part
            continue_later(group, step)
            return
    progress.slices = None
    finish_part(group, part, step)


def slices_of_part(group: CentralGroup, part: TaskPart, state: ShardState) -> Slices[None]:
    """What this part of the task computes, and keeps for `finish_part`. No step outlives its turn, so none is used."""
    progress = group.progress
    match part:
        case TaskPart.LOOK:
            pass
        case TaskPart.ASK:
            progress.snapshot = yield from task_parts.make_snapshot(group, state)
        case TaskPart.CHECK:
            checked = progress.checking
            assert checked is not None
            checked.wanted = yield from task_parts.shares_by_member(group, checked.corrected.plan)
            checked.size_bytes = yield from task_parts.ownership_bytes(group, checked.wanted)
        case TaskPart.DESCRIBE:
            assert progress.request is not None
            progress.described = (yield from task_parts.write_snapshot(progress.request.snapshot)), ""
        case TaskPart.COMPARE:
            assert progress.rebalance is not None
            progress.compared = yield from task_parts.compare_plans(group.owned, progress.plan, progress.rebalance)
        case TaskPart.STORE:
            assert progress.compared is not None
            progress.decided = yield from task_parts.prepare_ownership(group, progress.plan, progress.compared)
        case TaskPart.SETTLE:
            assert progress.settling is not None
            assert progress.settled_at_ms is not None
            progress.settled = yield from task_parts.settle_rebalance(
                group, progress.settling, progress.settled_at_ms, state
            )
            yield
        case _:
            assert_never(part)


def finish_part(group: CentralGroup, part: TaskPart, step: Step) -> None:
    """What follows from this part of the task."""
    progress = group.progress
    match part:
        case TaskPart.LOOK:
            advance_task(group, step)
        case TaskPart.ASK:
            ask_assignor(group, step)
        case TaskPart.CHECK:
            pursue_plan(group, step)
        case TaskPart.DESCRIBE:
            progress.described = snapshot_within_limit(progress.described[0], ownership_ledger.SOURCE, step)
            go_on(group, TaskPart.COMPARE, step)
        case TaskPart.COMPARE:
            go_on(group, TaskPart.STORE, step)
        case TaskPart.STORE:
            adopt_ownership(group, step)
        case TaskPart.SETTLE:
            ownership_ledger.keep_settled(group, step)
            look_at_what_happened(group, step)
        case _:
            assert_never(part)


def drop_parts(group: CentralGroup) -> None:
    """Whatever a later turn was to do is of no account any more."""
    progress = group.progress
    progress.left = progress.slices = None
    progress.snapshot = progress.checking = progress.compared = progress.decided = progress.settled = None
    progress.described = ("", "")


def adopt_ownership(group: CentralGroup, step: Step) -> None:
    """The plan becomes the ownership, and everybody is told to start."""
    progress, decided = group.progress, group.progress.decided
    assert decided is not None
    progress.second_look = False
    ownership_ledger.record_decision(group, decided, step)
    generation = next_generation(group.generation)
    step.keep(CentralStored(group.id, generation, group.assignor, step.now_ms, decided.owners))
    drop_parts(group)
    step.state.extensions.plan_adopted(group.id, progress.inherited, step)
    move_to_state(group, CentralState.STARTING, step)
    start_late_ones(group, step)
    advance_task(group, step)


def finish_starting(group: CentralGroup, step: Step) -> None:
    """Everybody fetches what is stored for it. Of a large group, that is written down in later turns."""
    progress = group.progress
    later = takes_turns(group) and progress.settling is not None
    if not later:
        ownership_ledger.close_settling(group, step)
    progress.failures, progress.second_look = 0, False
    move_to_state(group, CentralState.STABLE, step)
    if later:
        progress.settled_at_ms = step.now_ms
        go_on(group, TaskPart.SETTLE, step)
    else:
        look_at_what_happened(group, step)


def look_at_what_happened(group: CentralGroup, step: Step) -> None:
    if group.progress.dirty or group.progress.newcomers is not None:
        go_on(group, TaskPart.LOOK, step)


def start_late_ones(group: CentralGroup, step: Step) -> None:
    late = group.late_members()
    if group.state is CentralState.STARTING:
        group.progress.awaited.update(late)
    begin_orders(group, late, step)


def start_if_late(group: CentralGroup, member: CentralMember, step: Step, why: OrderCause | None = None) -> None:
    """Whoever is here and does not fetch what is stored for it is told to."""
    if not group.is_late(member):
        return
    if group.state is CentralState.STARTING:
        group.progress.awaited.add(member.id)
    if member.demand is None or member.demand.want is OrderedAction.STOP:
        order_start(group, member, step, why or current_cause(group, step))


def begin_orders(group: CentralGroup, members: Sequence[str], step: Step) -> None:
    """Order these members to do what the group's state is for; those of a large group in several turns."""
    group.progress.unordered = deque(members)
    if len(members) > ORDERS_IN_STEP:
        continue_later(group, step)
    else:
        give_orders(group, step)


def give_orders(group: CentralGroup, step: Step) -> None:
    """As many as one step may: thousands at once would keep the node from everything else for as long."""
    progress, why = group.progress, current_cause(group, step)
    for _ in range(min(ORDERS_IN_STEP, len(progress.unordered))):
        member = group.members.get(progress.unordered.popleft())
        if member is None or member.lost:
            continue
        if group.state is not CentralState.STOPPING:
            start_if_late(group, member, step, why)
        elif member.id in progress.awaited:
            order_stop(group, member, step, why)
    if progress.unordered:
        continue_later(group, step)


def take_stopped(group: CentralGroup, member: CentralMember, number: int, step: Step) -> None:
    """The member has stopped. One that was told to start in the meantime says so next."""
    demand = member.demand
    if demand is not None and (demand.want is OrderedAction.START or number < demand.number):
        return
    member.may_fetch, member.fetching, member.demand = False, NOT_FETCHING, None
    step.disarm(group.order_timer(member.id))
    ownership_ledger.note_stopped(group, member, step)
    if group.state is CentralState.STOPPING:
        group.progress.awaited.discard(member.id)
        advance_task(group, step)
    elif demand is None and group.state in (CentralState.WAITING, CentralState.STABLE):
        # Too late for the attempt that asked for it; perhaps the next one finds everybody ready.
        request_rebalance(group, trigger_by_member(Cause.REVOCATION_FOLLOW_UP, member, "has stopped after all"), step)
    elif group.state is not CentralState.BACKING_OFF:
        start_if_late(group, member, step)
        advance_task(group, step)


def take_started(group: CentralGroup, member: CentralMember, number: int, step: Step) -> None:
    demand = member.demand
    if demand is None or demand.want is not OrderedAction.START or number != demand.number:
        return
    member.demand, member.fetching = None, group.generation
    step.disarm(group.order_timer(member.id))
    ownership_ledger.note_started(group, member, step)
    if group.state is CentralState.STARTING:
        group.progress.awaited.discard(member.id)
        advance_task(group, step)


def order_timed_out(group: CentralGroup, member: CentralMember, step: Step) -> None:
    """An answer is late: the attempt has failed. Outside of an attempt, the order is given again."""
    demand = member.demand
    if demand is None:
        return
    word = "StopFetcher" if demand.want is OrderedAction.STOP else "StartFetcher"
    if group.state in (CentralState.STOPPING, CentralState.STARTING):
        fail_attempt(group, f"member {member.id} did not answer {word} within {member.patience_ms} ms", step)
    else:
        member.demand = None
        start_late_ones(group, step)


def fail_attempt(group: CentralGroup, why: str, step: Step) -> None:
    """This attempt is over. There is another after a pause, up to a maximum; then it is reported."""
    progress = group.progress
    progress.failures += 1
    progress.second_look = False
    drop_parts(group)
    ownership_ledger.note_failed_attempt(group, why, step)
    for member in group.present:
        step.disarm(group.order_timer(member.id))
        member.demand = None
    progress.awaited.clear()
    progress.unordered.clear()
    if progress.failures > step.limits.central_max_retries:
        give_up(group, why, step)
        return
    move_to_state(group, CentralState.BACKING_OFF, step)
    step.arm(group.retry_timer, step.limits.central_backoff_ms)


def give_up(group: CentralGroup, why: str, step: Step) -> None:
    """Say so to the ledger and to everybody; what is stored stands until something else happens."""
    progress = group.progress
    attempts, progress.failures, progress.dirty = progress.failures, 0, bool(group.lost)
    ownership_ledger.record_given_up(group, step)
    for member in group.present:
        report_failure(member, f"{attempts} attempts to rebalance group {group.id!r} failed, the last one: {why}", step)
    move_to_state(group, CentralState.WAITING, step)
    start_late_ones(group, step)


def empty_group(group: CentralGroup, step: Step) -> None:
    progress = group.progress
    if group.stored is not None and group.stored.owners:
        ownership_ledger.record_emptied(group, step)
        step.keep(CentralStored(group.id, next_generation(group.generation), group.assignor, step.now_ms))
    progress.rebalance, progress.put_off, progress.failures = None, False, 0
    move_to_state(group, CentralState.EMPTY, step)


def move_to_state(group: CentralGroup, state: CentralState, step: Step) -> None:
    if state is not group.state:
        group.become(state)
        step.announce(group)


def snapshot_of(group: CentralGroup, step: Step) -> Snapshot:
    """All that the plan depends on."""
    return task_parts.finish_slices(task_parts.make_snapshot(group, step.state))


# Subscriptions
# -------------


def request_resolution(group: CentralGroup, regex: str, step: Step, *, again: bool = False) -> None:
    """Have the topics found that the expression stands for. Until they are, nothing is moved."""
    progress = group.progress
    if not regex or regex in progress.resolving or (regex in progress.regexes and not again):
        return
    progress.resolving[regex] = step.tick()
    step.out.regexes.append(ResolveRegex(group.id, regex, candidate_topics(step), progress.resolving[regex]))


def take_resolved(group: CentralGroup, event: RegexResolved, step: Step) -> None:
    """A change is a change of every subscription that uses the expression."""
    progress = group.progress
    if progress.resolving.get(event.regex) != event.version:
        return
    del progress.resolving[event.regex]
    if event.version < step.state.topics_version:
        request_resolution(group, event.regex, step, again=True)  # topics were created meanwhile
        return
    before = progress.regexes.get(event.regex)
    if not event.error:
        progress.regexes[event.regex] = event.topics
    elif before is None:
        progress.regexes[event.regex] = ()
    if before is not None and before != progress.regexes[event.regex]:
        what = f"{len(event.topics)} topics" if len(event.topics) != 1 else "1 topic"
        cause = RebalanceTrigger(
            Cause.SUBSCRIPTION_CHANGED, f"the regular expression {event.regex!r} now stands for {what}"
        )
        request_rebalance(group, cause, step)
    else:
        advance_task(group, step)


def forget_unused_regex(group: CentralGroup, regex: str) -> None:
    if regex and not any(member.regex == regex for member in group.members.values()):
        group.progress.regexes.pop(regex, None)
        group.progress.resolving.pop(regex, None)


def take_topic_changes(group: CentralGroup, step: Step) -> None:
    """Topics were created, grew or went: look at patterns again, and at what the group reads."""
    for regex in sorted({member.regex for member in group.members.values() if member.regex}):
        request_resolution(group, regex, step, again=True)
    if group.progress.counts is not None and group.progress.counts != partition_counts(group, step):
        changes = changes_since(step.state, group.subscribed_topics(), step.now_ms)
        detail = describe_changes(changes) if changes else "the topics that the group reads have changed"
        trigger = RebalanceTrigger(Cause.PARTITIONS_CHANGED, detail, topics=changes)
        request_rebalance(group, trigger, step)


def take_rights_change(group: CentralGroup, event: RightsAnew, step: Step) -> None:
    """Some may read others than before."""
    triggers = []
    for member in group.members.values():
        was, member.rights = group.topics_of(member), refreshed_rights(member.rights, event)
        now = group.topics_of(member)
        if was != now:
            triggers.append(trigger_by_member(Cause.SUBSCRIPTION_CHANGED, member, describe_rights_change(was, now)))
    if triggers:
        request_rebalance(group, triggers[0], step)


def partition_counts(group: CentralGroup, step: Step) -> dict[str, int]:
    wanted = group.named_topics()
    return {topic: count for topic, count in step.state.partitions.items() if topic in wanted}
