"""Members of central groups over time: registration, pings, leases, committed offsets, load and delete.

RegisterConsumer joins, comes back, or changes a subscription; checks come first. A member stops fetching by itself
when a session timeout has passed since an answer of its own that the coordinator showed to have heard. The
coordinator counts from when it heard that answer, or a later one: its lease never ends sooner. After a replay every
owner may be fetching: the coordinator waits for it as if its stream had just closed. The coordinator commits the
offsets that members report, and takes explicit commits as well.
"""

from collections.abc import Sequence

from muster.coordinator.core.central import group_task, ownership_ledger
from muster.coordinator.core.central.group import NOT_FETCHING, CentralGroup, CentralMember, CentralState
from muster.coordinator.core.consumer.target import check_regex
from muster.coordinator.core.groups.bookkeeping import check_nobody_in, forget_belongings, forget_unread, is_held
from muster.coordinator.core.groups.group import owners_by_partition
from muster.coordinator.core.groups.kind import RefusedPositions
from muster.coordinator.core.groups.member_causes import (
    departure_of_expired,
    describe_subscription,
    trigger_of_expiry,
    trigger_of_newcomer,
)
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.effects import CentralReply, DeleteReply, LeaveReply, MemberReply
from muster.coordinator.core.model.events import (
    ClaimFence,
    DeleteGroup,
    Deregister,
    FetcherStarted,
    FetcherStopped,
    LeaveGroup,
    OffsetCommit,
    Offsets,
    PingAnswered,
    RegisterConsumer,
    StoodStill,
    StreamClosed,
)
from muster.coordinator.core.model.ledger import Departure, RebalanceTrigger, trigger_by_member
from muster.coordinator.core.model.plan import canonical_name, runnable_assignors
from muster.coordinator.core.model.records import CentralDeleted, CentralOwner, CentralStored, OffsetStored
from muster.coordinator.core.model.types import (
    NO_TOPIC_ID,
    Cause,
    Limits,
    MemberIdentity,
    RequestId,
    StoredOffset,
    TimerKey,
    WaitEnd,
)
from muster.coordinator.errors import CoordinatorError, ErrorCode

# Committed offsets
# -----------------


def keep_positions(group: CentralGroup, member: CentralMember, offsets: Offsets, step: Step) -> None:
    """Commit what has changed, as far as the member may fetch it: what it says of anything else is of no account."""
    share = group.owned.get(member.id, {}) if member.may_fetch else {}
    stored = step.state.offsets.get(group.id, {})
    for topic, partition, position in offsets:
        before = stored.get((topic, partition))
        of_topic = step.state.topic_ids.get(topic, NO_TOPIC_ID)
        known = before is not None and (before.offset, before.topic_id) == (position.offset, of_topic)
        if known or partition not in share.get(topic, ()):
            continue
        value = StoredOffset(position.offset, position.leader_epoch, position.metadata, step.now_ms, None, of_topic)
        step.keep(OffsetStored(group.id, topic, partition, value))


def check_may_commit(group: CentralGroup, request: OffsetCommit, step: Step) -> RefusedPositions:
    """A commit by OffsetCommit: by a member under the generation that holds, or by anybody while nobody is there."""
    if request.generation < 0 and not group.members:
        return {}
    if request.member_id not in group.members:
        what = f"no member {request.member_id!r}" if request.member_id else "members: only they may commit now"
        raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.id!r} has {what}")
    if request.generation != group.generation:
        raise CoordinatorError(
            ErrorCode.ILLEGAL_GENERATION,
            f"generation {request.generation} is not generation {group.generation} of group {group.id!r}",
        )
    own = group.owned.get(request.member_id, {})
    strange = [place for place in request.offsets if place[1] not in own.get(place[0], ())]
    return dict.fromkeys(owned_by_others(group, strange), ErrorCode.STALE_MEMBER_EPOCH) if strange else {}


def owned_by_others(group: CentralGroup, places: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Those that somebody has; what nobody has may be committed by any member."""
    owners = owners_by_partition(group.owned)
    return [(topic, partition) for topic, partition in places if partition in owners.get(topic, {})]


def owns_partition(group: CentralGroup, request: ClaimFence, step: Step) -> bool:
    return request.member_id in group.members and request.partition in group.owned.get(request.member_id, {}).get(
        request.topic, ()
    )


def expire_positions(group: CentralGroup, step: Step) -> None:
    """Drop what nobody reads and nobody has committed for the retention time, then the group if it has nothing left."""
    forget_unread(group.id, group.subscribed_topics() if group.members else frozenset(), step)
    if not group.members and not step.state.offsets.get(group.id) and not is_held(group.id, step):
        delete_records(group, step)


def delete_records(group: CentralGroup, step: Step) -> None:
    """Tombstones for an empty group and all that belongs to it, its ledger included."""
    forget_belongings(group.id, step)
    step.keep(CentralDeleted(group.id))


def register_consumer(group: CentralGroup, request: RegisterConsumer, step: Step) -> None:
    """Take the member in and look at what that changes. Refusals change nothing."""
    check_registration_form(request, step.limits)
    check_fits_group(group, request, step.limits)
    member = group.members.get(request.member_id)
    if request.stream:
        change_subscription(group, request, step)
    elif member is not None:
        restore_member(group, member, request, step)
    else:
        add_member(group, request, step)


def open_group(request: RegisterConsumer, step: Step) -> None:
    """The first member of a new group registers."""
    check_may_open(request, step.limits)
    opened_group(request, 0, step)
    register_consumer(step.state.get(CentralGroup, request.group_id), request, step)


def check_registration_form(request: RegisterConsumer, limits: Limits) -> None:
    """The request makes sense by itself."""
    if not request.group_id:
        raise CoordinatorError(ErrorCode.INVALID_GROUP_ID, "group_id is empty; give the group a name")
    if not request.member_id:
        raise invalid_registration("member_id is empty; make one (a uuid) and keep it for the life of the process")
    if not limits.min_session_timeout_ms <= request.session_timeout_ms <= limits.max_session_timeout_ms:
        raise CoordinatorError(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"session timeout {request.session_timeout_ms} ms is not between group.min.session.timeout.ms "
            f"({limits.min_session_timeout_ms}) and group.max.session.timeout.ms ({limits.max_session_timeout_ms})",
        )
    if not request.topics and not request.regex:
        raise invalid_registration("a member that registers has to give topic names or a regular expression")
    if request.regex:
        check_regex(request.regex)
    check_assignor_allowed(request, limits)


def check_assignor_allowed(request: RegisterConsumer, limits: Limits) -> None:
    """A client must not name code to be imported here."""
    names = runnable_assignors(limits)
    if canonical_name(request.assignor, limits) not in names:
        raise CoordinatorError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"{request.assignor!r} is not an assignor of this coordinator; known here: {', '.join(names)}",
        )


def check_may_open(request: RegisterConsumer, limits: Limits) -> None:
    """Refuse what could not register with a group that nobody is in."""
    check_registration_form(request, limits)
    if request.stream:
        raise refuse_unregistered(request)
    if request.generation != NOT_FETCHING or request.owned:
        raise refuse_foreign_member(request, "the group is new here")


def opened_group(request: RegisterConsumer, generation: int, step: Step) -> None:
    """The group in its central form. Its generations go on where those of its former kind ended."""
    step.keep(CentralStored(request.group_id, generation, canonical_name(request.assignor, step.limits), step.now_ms))


def check_fits_group(group: CentralGroup, request: RegisterConsumer, limits: Limits) -> None:
    """What the request says agrees with the group as it is."""
    member = group.members.get(request.member_id)
    if request.stream:
        if member is None or member.stream != request.stream:
            raise refuse_unregistered(request)
    elif member is not None and not member.lost:
        raise CoordinatorError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"member id {request.member_id!r} of group {group.id!r} is registered by another stream, which is open; "
            "give each consumer an id of its own, or wait until that stream is given up",
        )
    others = len(group.members) - (member is not None)
    if others and canonical_name(request.assignor, limits) != group.assignor:
        raise CoordinatorError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the members of group {group.id!r} assign by {group.assignor!r}, this one by {request.assignor!r}; "
            "give all of them the same partition.assignment.strategy",
        )
    if member is None and len(group.members) >= limits.max_group_size:
        raise CoordinatorError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {group.id!r} has reached group.max.size ({limits.max_group_size}); "
            "stop a member or raise the limit",
        )
    if not request.stream:
        check_may_go_on(group, member, request)


def check_may_go_on(group: CentralGroup, member: CentralMember | None, request: RegisterConsumer) -> None:
    """Whoever is still fetching must be doing so with the group's knowledge."""
    if request.generation == NOT_FETCHING and not request.owned:
        return
    share = group.owned.get(request.member_id, {})
    cells = {(topic, partition) for topic, partitions in share.items() for partition in partitions}
    if member is None or request.generation != group.generation or cells != set(request.owned):
        raise refuse_foreign_member(request, f"the group is at generation {group.generation}")


def add_member(group: CentralGroup, request: RegisterConsumer, step: Step) -> None:
    member = CentralMember(request.member_id, request.client_id, request.client_host, request.session_timeout_ms)
    member.client_software, member.rights = request.client_software, request.rights
    group.members[member.id] = member
    take_in_registration(group, member, request, step)
    group_task.take_newcomer(group, trigger_of_newcomer(group, group.seen(member), "", step), step)


def restore_member(group: CentralGroup, member: CentralMember, request: RegisterConsumer, step: Step) -> None:
    """Its lease runs: if it still fetches what is stored for it, nothing has happened to anybody."""
    before = (member.topics, member.regex, member.rights or request.rights)
    step.disarm(group.lease_timer(member.id))
    group.history.succeed(member.id, member.id)
    member.fetching = request.generation
    member.may_fetch = request.generation != NOT_FETCHING
    take_in_registration(group, member, request, step)
    keep_positions(group, member, request.offsets, step)
    if (member.topics, member.regex, member.rights) != before:
        what = f"came back and {describe_subscription(before[0], member.topics, (before[1], member.regex))}"
        changed = trigger_by_member(Cause.SUBSCRIPTION_CHANGED, member, what)
        group_task.request_rebalance(group, changed, step)
    elif group.state is CentralState.WAITING and group.has_lost:
        # Others are waited for still. Thousands come back together: none of them looks at all the others.
        group.progress.dirty = True
        group_task.start_if_late(group, member, step)
    else:
        group.progress.dirty = True
        group_task.advance_task(group, step)


def take_in_registration(group: CentralGroup, member: CentralMember, request: RegisterConsumer, step: Step) -> None:
    """What the request says of the member is true from here on, and its stream is the one that counts."""
    group.assignor = canonical_name(request.assignor, step.limits)
    member.client_id, member.client_host = request.client_id, request.client_host
    member.client_software, member.rights = request.client_software, request.rights
    member.session_timeout_ms = request.session_timeout_ms
    member.rack_id = request.rack_id
    member.stream, member.gone = request.request_id, None
    member.heard_ms, member.timed_out = step.now_ms, 0
    member.last_number = member.answered = 0
    set_subscription(group, member, request, step)
    step.reply(request.request_id, CentralReply())
    step.arm(group.ping_timer(member.id), member.ping_interval_ms)


def set_subscription(group: CentralGroup, member: CentralMember, request: RegisterConsumer, step: Step) -> None:
    former, member.regex = member.regex, request.regex
    member.topics = frozenset(request.topics)
    group_task.forget_unused_regex(group, former)
    group_task.request_resolution(group, member.regex, step)
    if why := ownership_ledger.missing_topics_sentence(group, member.topics, step):
        group_task.report_failure(
            member, f"{why}; create it there, or stop that node so that the one that has it is elected", step
        )


def change_subscription(group: CentralGroup, request: RegisterConsumer, step: Step) -> None:
    _, member = group_task.require_speaker(request.group_id, request.member_id, request.stream, step)
    before = (member.topics, member.regex, member.rights)
    member.rights = request.rights
    set_subscription(group, member, request, step)
    step.reply(request.request_id, CentralReply())
    if (member.topics, member.regex, member.rights) != before:
        what = describe_subscription(before[0], member.topics, (before[1], member.regex))
        changed = trigger_by_member(Cause.SUBSCRIPTION_CHANGED, member, what)
        group_task.request_rebalance(group, changed, step)


def refuse_unregistered(request: RegisterConsumer) -> CoordinatorError:
    return CoordinatorError(
        ErrorCode.UNKNOWN_MEMBER_ID, f"member {request.member_id!r} is not registered by this stream"
    )


def refuse_foreign_member(request: RegisterConsumer, why: str) -> CoordinatorError:
    return CoordinatorError(
        ErrorCode.ILLEGAL_GENERATION,
        f"member {request.member_id!r} fetches {len(request.owned)} partitions of generation {request.generation}, but "
        f"{why}, and they are not its own in it; give up everything and register with nothing",
    )


def invalid_registration(message: str) -> CoordinatorError:
    return CoordinatorError(ErrorCode.INVALID_REQUEST, message)


# Pings and leases
# ----------------

OUT = "the coordinator has given this member up; stop fetching and register again"


def ping_answered(request: PingAnswered, step: Step) -> None:
    group, member = group_task.require_speaker(request.group_id, request.member_id, request.stream, step)
    note_sign_of_life(member, request.number, step)
    keep_positions(group, member, request.offsets, step)
    if member.ping is not None and request.number >= member.ping:
        member.ping = None
        step.arm(group.ping_timer(member.id), max(0, member.pinged_ms + member.ping_interval_ms - step.now_ms))
    step.reply(request.request_id, CentralReply(answered=member.answered))


def fetcher_stopped(request: FetcherStopped, step: Step) -> None:
    group, member = group_task.require_speaker(request.group_id, request.member_id, request.stream, step)
    note_sign_of_life(member, request.number, step)
    keep_positions(group, member, request.offsets, step)
    step.reply(request.request_id, CentralReply(answered=member.answered))
    group_task.take_stopped(group, member, request.number, step)


def fetcher_started(request: FetcherStarted, step: Step) -> None:
    group, member = group_task.require_speaker(request.group_id, request.member_id, request.stream, step)
    note_sign_of_life(member, request.number, step)
    step.reply(request.request_id, CentralReply(answered=member.answered))
    group_task.take_started(group, member, request.number, step)


def deregister(request: Deregister, step: Step) -> None:
    """It leaves in good order: what it had is free at once."""
    group, member = group_task.require_speaker(request.group_id, request.member_id, request.stream, step)
    keep_positions(group, member, request.offsets, step)
    group_task.release_stream(member, step)
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
    group_task.send_ping(group, member, step)


def stream_closed(event: StreamClosed, step: Step) -> None:
    group = step.state.find(CentralGroup, event.group_id)
    member = group.members.get(event.member_id) if group is not None else None
    if group is None or member is None or member.stream != event.stream:
        return
    trigger = trigger_by_member(Cause.SESSION_EXPIRED, member, "closed its stream and did not come back")
    lose_member(group, member, trigger, step)


def lose_member(group: CentralGroup, member: CentralMember, trigger: RebalanceTrigger, step: Step) -> None:
    """Its stream is over. An attempt that needs it fails at once; what it may be fetching is kept for its lease."""
    group_task.release_stream(member, step, ErrorCode.UNKNOWN_MEMBER_ID, OUT)
    member.stream = member.ping = member.demand = None
    member.orders.clear()
    member.gone = trigger
    group.history.note_gone(group.seen(member), WaitEnd.JOINED, step.now_ms)
    step.disarm(group.ping_timer(member.id))
    step.disarm(group.order_timer(member.id))
    share = group.owned.get(member.id)
    if not member.may_fetch or not share or member.lease_end_ms <= step.now_ms:
        expire_lease(group, member, step)
        return
    step.arm(group.lease_timer(member.id), member.lease_end_ms - step.now_ms)
    if group.state in (CentralState.STOPPING, CentralState.STARTING):
        group_task.fail_attempt(group, f"member {member.id} lost its stream", step)
    else:
        group.progress.dirty = True
        group_task.advance_task(group, step)


def expire_lease(group: CentralGroup, member: CentralMember, step: Step) -> None:
    """Its lease is over, or it has nothing to keep."""
    assert member.gone is not None
    running = group.state in (CentralState.STOPPING, CentralState.STARTING)
    needed = member.id in group.progress.plan
    departure = departure_of_expired(group, member.id, member.heard_ms)
    if running and needed:
        group_task.fail_attempt(group, f"member {member.id} lost its stream", step)
    known = group.history.former.get(member.id)
    came_back = known is not None and bool(known.successor) and member.gone.cause is Cause.SESSION_EXPIRED
    gone = trigger_of_expiry(group, group.seen(member), step) if came_back else member.gone
    remove_member(group, member, gone, departure, step)


def remove_member(
    group: CentralGroup, member: CentralMember, trigger: RebalanceTrigger, departure: Departure, step: Step
) -> None:
    """The member is out; whatever it had is for others."""
    if trigger.cause in (Cause.SESSION_EXPIRED, Cause.POLL_TIMEOUT):
        step.lost_member(group.id, trigger.detail)
    group.history.note_gone(group.seen(member), departure.end, step.now_ms)
    step.state.extensions.member_left(group.id, member.identifiers, group.owned.get(member.id, {}), step)
    for key in group.timers_of(member.id):
        step.disarm(key)
    del group.members[member.id]
    group.progress.awaited.discard(member.id)
    group.progress.void = group.progress.void or member.id in group.progress.plan
    group_task.forget_unused_regex(group, member.regex)
    ownership_ledger.note_trigger(group, trigger, step)
    ownership_ledger.note_departure(group, member, departure, step)
    group.progress.dirty = True
    group_task.advance_task(group, step)


def load_group(group: CentralGroup, step: Step) -> None:
    """The log has been replayed. Every owner may be fetching: it is waited for as if its stream had just closed."""
    assert group.stored is not None
    group.assignor = canonical_name(group.stored.assignor, step.limits)
    for owner in group.stored.owners:
        member = group.members[owner.member_id] = expected_member(owner, group.generation, step.now_ms)
        member.gone = trigger_by_member(
            Cause.COORDINATOR_FAILOVER, member, "did not come back after the coordinator was loaded"
        )
        step.arm(group.lease_timer(member.id), member.lease_end_ms - step.now_ms)
    if group.members:
        group.progress.dirty = True
        group_task.advance_task(group, step)


def expected_member(owner: CentralOwner, generation: int, now_ms: int) -> CentralMember:
    return CentralMember(
        owner.member_id,
        owner.client_id,
        owner.client_host,
        owner.session_timeout_ms,
        frozenset(owner.topics),
        owner.regex,
        fetching=generation,
        may_fetch=True,
        heard_ms=now_ms,
    )


def fire_timer(group: CentralGroup, key: TimerKey, step: Step) -> None:
    match key:
        case ("retry", _):
            group_task.start_task(group, step)
        case ("newcomers", _):
            group_task.advance_task(group, step)
        case ("lease", _, member_id):
            expire_lease(group, group.members[member_id], step)
        case ("ping", _, member_id):
            ping_timer_fired(group, group.members[member_id], step)
        case ("order", _, member_id):
            group_task.order_timed_out(group, group.members[member_id], step)
        case _:
            raise AssertionError(f"no timer is called {key}")


def forget_waiting_stream(group: CentralGroup, member_id: str, request_id: RequestId, step: Step) -> None:
    """The stream that waited for orders is gone."""
    member = group.members.get(member_id)
    if member is not None and member.waiting == request_id:
        member.waiting = None


def unload_group(group: CentralGroup, step: Step) -> None:
    for member in group.members.values():
        group_task.release_stream(member, step, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR.meaning)


def extend_leases(group: CentralGroup, event: StoodStill, step: Step) -> None:
    """Leases are counted from when a member was last heard: they run as much later."""
    for member in group.members.values():
        member.heard_ms = min(step.now_ms, member.heard_ms + event.moved_ms)


def leave_group(group: CentralGroup, request: LeaveGroup, step: Step) -> None:
    """Only operators remove members by a call: members leave by their stream."""
    leavers = [MemberIdentity(member_id) for member_id in group.members] if request.everyone else request.members
    replies = []
    for who in leavers:
        member = group.members.get(who.member_id)
        if member is None or not request.operator:
            code, why = ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.id!r} has no member {who.member_id!r}"
            if member is not None:
                why = f"member {who.member_id!r} of central group {group.id!r} leaves by its stream"
            replies.append(MemberReply(who.member_id, who.group_instance_id, code, why))
            continue
        replies.append(MemberReply(who.member_id, who.group_instance_id, ErrorCode.NONE))
        evict_member(group, member, request.operator, step)
    step.reply(request.request_id, LeaveReply(members=tuple(replies)))


def evict_member(group: CentralGroup, member: CentralMember, operator: str, step: Step) -> None:
    """One that is lost is taken for dead on the operator's word; a living one is told, and its lease is waited out."""
    trigger = trigger_by_member(Cause.OPERATOR, member, f"was removed by {operator}")
    if member.lost:
        member.gone = trigger
        expire_lease(group, member, step)
    else:
        lose_member(group, member, trigger, step)


def delete_group(group: CentralGroup, request: DeleteGroup, step: Step) -> None:
    """Forget an empty group with its offsets and its ledger."""
    check_nobody_in(group)
    delete_records(group, step)
    step.reply(request.request_id, DeleteReply())


def replan_after_settings(group: CentralGroup, trigger: RebalanceTrigger, step: Step) -> None:
    if group.members:
        group_task.request_rebalance(group, trigger, step)
