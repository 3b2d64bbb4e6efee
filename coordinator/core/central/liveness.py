"""Whether members live: pings, closed streams, and the lease that a lost member's partitions are kept for.

A member stops fetching by itself when a session timeout has passed since an answer of its own that the coordinator
showed to have heard. The coordinator counts from when it heard that answer, or a later one: never sooner.
"""

from muster.coordinator.core.central import ownership_ledger, positions, rebalance, telling, topics
from muster.coordinator.core.central.group import CentralGroup, CentralMember, CentralState
from muster.coordinator.core.control.overrides import central as held
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.effects import CentralReply
from muster.coordinator.core.model.events import Deregister, FetcherStarted, FetcherStopped, PingAnswered, StreamClosed
from muster.coordinator.core.model.ledger import Departure, RebalanceTrigger, trigger_by_member
from muster.coordinator.core.model.types import Cause
from muster.coordinator.errors import ErrorCode

OUT = "the coordinator has given this member up; stop fetching and register again"


def ping_answered(request: PingAnswered, step: Step) -> None:
    group, member = telling.require_speaker(request.group_id, request.member_id, request.stream, step)
    note_sign_of_life(member, request.number, step)
    positions.keep_positions(group, member, request.offsets, step)
    if member.ping is not None and request.number >= member.ping:
        member.ping = None
        step.arm(group.ping_timer(member.id), max(0, member.pinged_ms + member.ping_interval_ms - step.now_ms))
    step.reply(request.request_id, CentralReply(answered=member.answered))


def fetcher_stopped(request: FetcherStopped, step: Step) -> None:
    group, member = telling.require_speaker(request.group_id, request.member_id, request.stream, step)
    note_sign_of_life(member, request.number, step)
    positions.keep_positions(group, member, request.offsets, step)
    step.reply(request.request_id, CentralReply(answered=member.answered))
    rebalance.take_stopped(group, member, request.number, step)


def fetcher_started(request: FetcherStarted, step: Step) -> None:
    group, member = telling.require_speaker(request.group_id, request.member_id, request.stream, step)
    note_sign_of_life(member, request.number, step)
    step.reply(request.request_id, CentralReply(answered=member.answered))
    rebalance.take_started(group, member, request.number, step)


def deregister(request: Deregister, step: Step) -> None:
    """It leaves in good order: what it had is free at once."""
    group, member = telling.require_speaker(request.group_id, request.member_id, request.stream, step)
    positions.keep_positions(group, member, request.offsets, step)
    telling.release_stream(member, step)
    step.reply(request.request_id, CentralReply())
    polls = "poll timeout" in request.reason
    trigger = trigger_by_member(Cause.POLL_TIMEOUT if polls else Cause.MEMBER_LEFT, member, "left", request.reason)
    remove_member(group, member, trigger, Departure("its owner left the group", step.now_ms), step)


def note_sign_of_life(member: CentralMember, number: int, step: Step) -> None:
    """A sign of life, and the proof that the member has seen the order `number`."""
    member.heard_ms = step.now_ms
    member.timed_out = 0
    member.answered = max(member.answered, min(number, member.last_number))


def ping_timer_fired(group: CentralGroup, member: CentralMember, step: Step) -> None:
    """It is time for the next ping, or the last one was not answered in time."""
    if member.ping is not None:
        member.timed_out += 1
        limit = step.limits.central_max_timed_out
        if member.timed_out >= limit:
            what = f"did not answer {limit} pings in a row, the last one within {member.patience_ms} ms"
            lose_member(group, member, trigger_by_member(Cause.SESSION_EXPIRED, member, what), step)
            return
    telling.send_ping(group, member, step)


def stream_closed(event: StreamClosed, step: Step) -> None:
    group = step.state.find(CentralGroup, event.group_id)
    member = group.members.get(event.member_id) if group is not None else None
    if group is None or member is None or member.stream != event.stream:
        return
    trigger = trigger_by_member(Cause.SESSION_EXPIRED, member, "closed its stream and did not come back")
    lose_member(group, member, trigger, step)


def lose_member(group: CentralGroup, member: CentralMember, trigger: RebalanceTrigger, step: Step) -> None:
    """Its stream is over. An attempt that needs it fails at once; what it may be fetching is kept for its lease."""
    telling.release_stream(member, step, ErrorCode.UNKNOWN_MEMBER_ID, OUT)
    member.stream = member.ping = member.demand = None
    member.orders.clear()
    member.gone = trigger
    step.disarm(group.ping_timer(member.id))
    step.disarm(group.order_timer(member.id))
    share = group.owned.get(member.id)
    if not member.may_fetch or not share or member.lease_end_ms <= step.now_ms:
        expire_lease(group, member, step)
        return
    step.arm(group.lease_timer(member.id), member.lease_end_ms - step.now_ms)
    if group.state in (CentralState.STOPPING, CentralState.STARTING):
        rebalance.fail_attempt(group, f"member {member.id} lost its stream", step)
    else:
        group.progress.dirty = True
        rebalance.advance_task(group, step)


def expire_lease(group: CentralGroup, member: CentralMember, step: Step) -> None:
    """Its lease is over, or it has nothing to keep."""
    assert member.gone is not None
    running = group.state in (CentralState.STOPPING, CentralState.STARTING)
    needed = member.id in group.progress.plan
    departure = Departure("its owner's session expired", member.heard_ms)
    if running and needed:
        rebalance.fail_attempt(group, f"member {member.id} lost its stream", step)
    remove_member(group, member, member.gone, departure, step)


def remove_member(
    group: CentralGroup, member: CentralMember, trigger: RebalanceTrigger, departure: Departure, step: Step
) -> None:
    """The member is out; whatever it had is for others."""
    if trigger.cause in (Cause.SESSION_EXPIRED, Cause.POLL_TIMEOUT):
        step.lost_member(group.id, trigger.detail)
    held.hold_central_share(group, member, step)
    for key in group.timers_of(member.id):
        step.disarm(key)
    del group.members[member.id]
    group.progress.awaited.discard(member.id)
    group.progress.void = group.progress.void or member.id in group.progress.plan
    topics.forget_unused_regex(group, member.regex)
    ownership_ledger.note_trigger(group, trigger, step)
    ownership_ledger.note_departure(group, member, departure)
    group.progress.dirty = True
    rebalance.advance_task(group, step)
