"""The join phase: prepare a rebalance, wait for the members, elect a leader, vote for a protocol.

The delay of a delayed cooperative group (KIP-415) belongs to the group: it outlives its leader and this node. The
leader hands in what it knows together with its plan; it is kept and handed to the next leader. It is opaque here,
except for the delay, which is counted on the coordinator's clock. A group that every member has left forgets it.

A frozen group whose members plan: no coordinator can keep a leader from moving partitions, so the group has no leader
while it is frozen. The generation stands, members that join again are sent the same generation, and their shares are
cut to what they read. Newcomers wait; this is soft, they ask again after a restart.
"""

from collections import Counter
from dataclasses import replace

from muster.assignors.data.consumer_protocol import encode_assignment, parse_assignment
from muster.coordinator.core.classic import rebalance_ledger, server_side_assignment
from muster.coordinator.core.classic.group import (
    A_MEMBER,
    ClassicGroup,
    ClassicMember,
    check_protocols,
    last_planned_shares,
)
from muster.coordinator.core.groups.bookkeeping import keep_audit_entry
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.effects import JoinedMember, JoinReply, refused_join, refused_sync
from muster.coordinator.core.model.events import JoinGroup, StoodStill, SyncGroup
from muster.coordinator.core.model.ledger import Departure, RebalanceTrigger, WithheldPartition, trigger_by_member
from muster.coordinator.core.model.plan import CONSUMER, next_generation, shares_of, topics_of
from muster.coordinator.core.model.records import DelayForgotten, DelayStored, Orphans
from muster.coordinator.core.model.types import DELAYED, Cause, GroupState, Outcome, RequestId, TimerKey, WaitEnd
from muster.coordinator.errors import CoordinatorError, ErrorCode

# Delayed groups (KIP-415)
# ------------------------

DEFAULT_DELAY_MS = 300_000
"""`scheduled.rebalance.max.delay.ms` of Kafka Connect."""


def keep_delay(group: ClassicGroup, request: SyncGroup, step: Step) -> None:
    """Keep what the leader knows with the plan it belongs to; a plan without it ends what was kept before.

    What is too large to keep dies with its leader, as in Kafka.
    """
    state = request.leader_state
    if not state or len(state.encode()) > step.limits.ledger_max_snapshot_bytes:
        forget_delay(group.id, step)
        return
    delay_ms = request.scheduled_delay_ms
    if delay_ms > 0:
        step.keep(DelayStored(group.id, state, step.now_ms + delay_ms, delay_ms))
    else:
        step.keep(DelayStored(group.id, state, None))


def forget_delay(group_id: str, step: Step) -> None:
    if kept_delay(group_id, step) is not None:
        step.keep(DelayForgotten(group_id))


def kept_delay(group_id: str, step: Step) -> DelayStored | None:
    ledger = step.state.ledgers.get(group_id)
    return ledger.delay if ledger else None


def remaining_delay_ms(kept: DelayStored | None, step: Step) -> int | None:
    """How much of the delay is left, 0 when it is over, None when none runs."""
    if kept is None or kept.until_ms is None:
        return None
    delay_ms = _delay_of_older_version(kept, kept.until_ms, step) if kept.delay_ms is None else kept.delay_ms
    began_ms = step.past(kept.until_ms - delay_ms)
    return max(0, began_ms + delay_ms - step.now_ms)


def _delay_of_older_version(kept: DelayStored, until_ms: int, step: Step) -> int:
    """How long a delay was meant to last whose record says only its end: it began with the plan that it belongs to.

    Without that plan in the ledger it counts as Connect's default, if that much is left (GC-T5).
    """
    entries = step.state.ledgers[kept.group_id].entries
    if not entries:
        return min(until_ms - step.now_ms, DEFAULT_DELAY_MS)
    return max(0, until_ms - entries[max(entries)].ended_at_ms)


def extend_delay(group: ClassicGroup, event: StoodStill, step: Step) -> None:
    """A lost worker could not come back while the node stood still: a delay that ran then ends later by the stall."""
    kept = kept_delay(group.id, step)
    if not event.stalled_ms or kept is None or kept.until_ms is None:
        return
    if kept.until_ms > step.now_ms - event.stalled_ms:
        step.keep(DelayStored(group.id, kept.leader_state, kept.until_ms + event.stalled_ms, kept.delay_ms))


def prepare_rebalance(
    group: ClassicGroup, trigger: RebalanceTrigger, step: Step, arriving: ClassicMember | None = None
) -> None:
    """Call everyone back. A group that was empty waits the initial delay, so that members starting together meet."""
    rebalance_ledger.begin_rebalance(group, trigger, arriving, step)
    if group.state is GroupState.COMPLETING_REBALANCE:
        take_back_plan(group, step)
    group.pending_syncs.clear()
    step.disarm(*group.plan_timers)
    group.plan_request = None
    group.become(GroupState.PREPARING_REBALANCE, step.now_ms)
    step.announce(group)

    if group.previous_state is GroupState.EMPTY:
        delay_ms = step.limits.initial_rebalance_delay_ms
        group.initial_remaining_ms = max(group.max_rebalance_timeout_ms - delay_ms, 0)
        step.arm(group.join_timer, delay_ms)
    elif group.everyone_joined:
        complete_join(group, step)
    else:
        step.arm(group.join_timer, group.max_rebalance_timeout_ms)
        server_side_assignment.await_holders(group, step)


def take_back_plan(group: ClassicGroup, step: Step) -> None:
    """The plan that was being made is void: members that wait for it must join again."""
    for member in group.members.values():
        member.assignment = b""
        if member.sync_request is not None:
            step.reply(member.sync_request, refused_sync(ErrorCode.REBALANCE_IN_PROGRESS))
            member.sync_request = None
            # Its session may have run out while it was parked: from here on it has to be heard of again.
            step.arm(group.session_timer(member.id), member.session_timeout_ms)


def rebalance_or_wait(
    group: ClassicGroup, trigger: RebalanceTrigger, step: Step, arriving: ClassicMember | None = None
) -> None:
    """A member came, went or changed: start a rebalance, or see whether the one under way can go on."""
    if arriving is None and let_plan_stand(group, trigger, step):
        return
    if group.can_rebalance:
        prepare_rebalance(group, trigger, step, arriving)
        return
    rebalance_ledger.note_trigger(group, trigger, step)
    if arriving is not None:
        rebalance_ledger.note_arrival(group, arriving, step)
    maybe_complete_join(group, step)


def let_plan_stand(group: ClassicGroup, trigger: RebalanceTrigger, step: Step) -> bool:
    """Whether members left and no other has to come back for it, so that the generation stands."""
    if not group.members or group.state is not GroupState.STABLE:
        return False
    last = rebalance_ledger.last_plan(group)
    departed = [member_id for member_id in group.departures if last.get(member_id)]
    standing = step.state.extensions.standing_plan(group.id, bool(group.remote), departed, step.state)
    if standing is None:
        return False
    for member_id, departure in group.departures.items():
        for cell in standing.waiting.get(member_id, ()):
            group.carried[cell] = WithheldPartition(member_id, departure.last_owned_ms)
    detail = f"{trigger.detail}; {standing.why}"
    keep_audit_entry(group, Outcome.HELD, replace(trigger, detail=detail), step)
    step.keep(group.record(step.now_ms))
    rebalance_ledger.disarm_when_complete(group, step)
    return True


def maybe_complete_join(group: ClassicGroup, step: Step) -> None:
    """Go on as soon as everyone is here; the initial delay is never cut short."""
    preparing = group.state is GroupState.PREPARING_REBALANCE
    if preparing and group.initial_remaining_ms is None and group.everyone_joined:
        complete_join(group, step)


def join_timer_fired(group: ClassicGroup, step: Step) -> None:
    """The initial delay or the rebalance timeout is over."""
    assert group.state is GroupState.PREPARING_REBALANCE
    remaining_ms = group.initial_remaining_ms
    if remaining_ms and group.new_member_added:
        # Members are still arriving: give the rest of them a chance.
        delay_ms = min(step.limits.initial_rebalance_delay_ms, remaining_ms)
        group.new_member_added = False
        group.initial_remaining_ms = max(remaining_ms - delay_ms, 0)
        step.arm(group.join_timer, delay_ms)
        return
    complete_join(group, step)


def complete_join(group: ClassicGroup, step: Step) -> None:
    """End the join phase: a new generation for those who came, or an empty group."""
    step.disarm(group.join_timer, group.handoff_timer)
    drop_absent_members(group, step)
    if group.members and not elect_leader(group):
        # Only static members are left, and none of them has come back: wait for them, the generation stands.
        step.arm(group.join_timer, group.max_rebalance_timeout_ms)
        return

    group.initial_remaining_ms = None
    group.new_member_added = False
    group.trailing.clear()
    group.generation = next_generation(group.generation)
    rebalance_ledger.end_join_phase(group, step)
    if group.members:
        start_generation(group, step)
    else:
        empty_group(group, step)


def drop_absent_members(group: ClassicGroup, step: Step) -> None:
    """Dynamic members that did not rejoin in time are out; static ones keep their place (KIP-345)."""
    if group.members.joining_count == len(group.members):
        return
    for member in [m for m in group.members.values() if not m.joining and m.group_instance_id is None]:
        rebalance_ledger.note_trigger(
            group, trigger_by_member(Cause.REBALANCE_TIMEOUT, member, "did not rejoin in time"), step
        )
        departure = Departure(
            "its owner did not rejoin within the rebalance timeout", member.last_seen_ms, WaitEnd.NEVER
        )
        remove_member(group, member, departure, step)


def elect_leader(group: ClassicGroup) -> bool:
    """Keep the leader if it rejoined, else take the first member that did. False when nobody did."""
    leader = group.members.get(group.leader or "")
    if leader is not None and leader.join_request is not None:
        return True
    successor = next((member for member in group.members.values() if member.joining), None)
    if successor is None:
        return False
    group.leader = successor.id
    return True


def empty_group(group: ClassicGroup, step: Step) -> None:
    """Nobody is left: the generation grows all the same, and the log says so."""
    group.protocol_name = None
    group.leader = None
    group.planner, group.insisting = A_MEMBER, frozenset()
    group.subscribed_topics = frozenset()
    group.restored = False
    group.become(GroupState.EMPTY, step.now_ms)
    rebalance_ledger.record_emptied(group, step)
    forget_delay(group.id, step)
    step.keep(group.record(step.now_ms))


def start_generation(group: ClassicGroup, step: Step) -> None:
    """Tell everyone the generation, and the leader who is there."""
    group.protocol_name = elect_protocol(group)
    group.subscribed_topics = subscribed_topics(group)
    group.planner = server_side_assignment.planner_of(group, step)
    if group.planner.kept_out:
        rebalance_ledger.note_trigger(group, RebalanceTrigger(Cause.ASSIGNOR_CHANGED, group.planner.kept_out), step)
    group.become(GroupState.COMPLETING_REBALANCE, step.now_ms)
    step.announce(group)
    for member in group.members.values():
        member.is_new = False
        step.arm(group.session_timer(member.id), member.session_timeout_ms)
        join_request = group.members.unpark(member)
        if join_request is not None:
            step.reply(join_request, join_reply(group, member, step))
    group.pending_syncs = set(group.members)
    step.arm(group.sync_timer, group.max_rebalance_timeout_ms)
    if group.planner.assignor:
        server_side_assignment.request_plan(group, step)


def elect_protocol(group: ClassicGroup) -> str:
    """Each member votes for the first name of its list that all support; the leader's preference breaks a tie."""
    candidates = group.members.common_protocols
    if len(candidates) == 1:
        return next(iter(candidates))
    votes: dict[str, int] = {}
    for member in group.members.values():
        for protocol in member.protocols:
            if protocol.name in candidates:
                votes[protocol.name] = votes.get(protocol.name, 0) + 1
                break
    leader = group.members[group.leader or ""]
    preference = [protocol.name for protocol in leader.protocols if protocol.name in candidates]
    return min(votes, key=lambda name: (-votes[name], preference.index(name)))


def subscribed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """What the members read, None when that cannot be known: then nothing of the group may expire."""
    if group.protocol_type != CONSUMER or group.protocol_name is None:
        return None
    topics: set[str] = set()
    # Most members say the same.
    for subscription in set(group.members.subscriptions(group.protocol_name)):
        wanted = topics_of(subscription)
        if wanted is None:
            return None
        topics |= wanted
    return frozenset(topics)


def join_reply(group: ClassicGroup, member: ClassicMember, step: Step) -> JoinReply:
    """Tell the member the current generation, for which it may speak from now on; only the leader sees the others."""
    member.generation = group.generation
    rebalance = group.rebalance
    leader = group.acting_leader
    leads = member.id == leader
    kept = kept_delay(group.id, step) if leads else None
    return JoinReply(
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=leader,
        member_id=member.id,
        members=roster(group) if leads else (),
        cause=rebalance.trigger.cause if rebalance else Cause.UNSPECIFIED,
        cause_detail=rebalance.trigger.detail if rebalance else "",
        rebalance_number=rebalance.number if rebalance else 0,
        leader_state=kept.leader_state if kept else "",
        scheduled_delay_ms=None if kept is None else remaining_delay_ms(kept, step),
    )


def roster(group: ClassicGroup) -> tuple[JoinedMember, ...]:
    said = group.members.subscriptions(group.protocol_name)
    return tuple(
        [
            JoinedMember(member.id, member.group_instance_id, subscription)
            for member, subscription in zip(group.members.values(), said, strict=True)
        ]
    )


def remove_member(group: ClassicGroup, member: ClassicMember, departure: Departure, step: Step) -> None:
    """Take the member out and answer what it has parked; the caller decides what follows."""
    if group.remote:
        share = last_planned_shares(group).get(member.id, {})
        step.state.extensions.member_left(group.id, member.identifiers, share, step)
    rebalance_ledger.note_departure(group, member.id, departure, step)
    group.history.note_gone(member.seen, departure.end, step.now_ms)
    join_request = group.members.unpark(member)
    if join_request is not None:
        step.reply(join_request, refused_join(ErrorCode.UNKNOWN_MEMBER_ID, member.id))
    if member.sync_request is not None:
        # Kafka never answers this one (ARCHITECTURE.md, differences).
        step.reply(member.sync_request, refused_sync(ErrorCode.UNKNOWN_MEMBER_ID))
    step.disarm(group.session_timer(member.id))
    group.members.remove(member)
    group.pending_syncs.discard(member.id)
    group.trailing.pop(member.id, None)
    if member.group_instance_id is not None and group.static.get(member.group_instance_id) == member.id:
        del group.static[member.group_instance_id]
    if group.leader == member.id:
        group.leader = next(iter(group.members), None)


# Frozen groups
# -------------


def is_frozen(group: ClassicGroup, step: Step) -> bool:
    """Whether the group is frozen, and its members would plan for it."""
    holds = step.state.holds.get(group.id)
    return holds is not None and holds.freeze is not None and not group.remote


def must_wait(group: ClassicGroup, request: JoinGroup, step: Step) -> bool:
    """Whether whoever asks has to wait: he is no member, and would get something, or become the one who plans."""
    holds = step.state.holds.get(group.id)
    if holds is None or holds.freeze is None:
        return False
    known = request.member_id in group.members or (request.group_instance_id or "") in group.static
    if known or request.member_id not in ("", *group.pending_joins):
        return False  # a member, or nobody that the group has heard of: the same as ever is said to both
    if group.state is GroupState.EMPTY:
        return holds.freeze.orphans is Orphans.KEEP
    leads = group.remote and not group.planner.by_setting and not request.remote_assignor
    return not group.remote or bool(leads)


def park_newcomer(group: ClassicGroup, request: JoinGroup, patience_ms: int, step: Step) -> None:
    """He waits, at most as long as a rebalance may take him. Of a name that he was given before nothing is left."""
    check_protocols(group, request.protocol_type, request.protocols)
    if len(group.members) + len(group.door) >= step.limits.max_group_size:
        raise CoordinatorError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {group.id!r} is frozen, and as many wait for it as group.max.size allows; ask again later",
        )
    group.pending_joins.discard(request.member_id)
    step.disarm(group.session_timer(request.member_id))
    group.door[request.request_id] = replace(request, member_id="")
    step.state.parked[request.request_id] = request.member_id
    step.arm(newcomer_timer(group.id, request.request_id), patience_ms)


def newcomer_timer(group_id: str, request_id: RequestId) -> TimerKey:
    return ("door", group_id, str(request_id))


def refuse_newcomer(group: ClassicGroup, request_id: RequestId, step: Step) -> None:
    """All clients ask again after this code."""
    if group.door.pop(request_id, None) is not None:
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        step.reply(request_id, JoinReply(code, f"group {group.id!r} is frozen (muster groups resume); ask again"))


def forget_newcomer(group: ClassicGroup, request_id: RequestId, step: Step) -> None:
    """His client is gone."""
    if group.door.pop(request_id, None) is not None:
        step.disarm(newcomer_timer(group.id, request_id))


def release_newcomers(group: ClassicGroup, step: Step) -> list[JoinGroup]:
    """Those who waited, in order; nobody does any more."""
    waiting = list(group.door.values())
    for request in waiting:
        step.disarm(newcomer_timer(group.id, request.request_id))
        step.state.parked.pop(request.request_id, None)
    group.door.clear()
    return waiting


def refuse_newcomers(group: ClassicGroup, code: ErrorCode, step: Step) -> None:
    """The group is no more, or none of this kind."""
    for request in release_newcomers(group, step):
        step.reply(request.request_id, refused_join(code, ""))


def take_back_member(group: ClassicGroup, member: ClassicMember, request: JoinGroup, step: Step) -> bool:
    """A member joins again in a frozen group: whether it was told that the generation stands, and that nobody leads."""
    if not is_frozen(group, step) or group.state is not GroupState.STABLE:
        return False
    if all(protocol.name != group.protocol_name for protocol in request.protocols):
        raise CoordinatorError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"group {group.id!r} is frozen with {group.protocol_name!r}, which member {member.id!r} does not offer any "
            "more; resume the group first",
        )
    group.members.offer(member, request.protocols)
    member.last_seen_ms = step.now_ms
    cut_unread_share(group, member)
    group.subscribed_topics = subscribed_topics(group)
    step.keep(group.record(step.now_ms))
    step.arm(group.session_timer(member.id), member.session_timeout_ms)
    step.reply(request.request_id, replace(join_reply(group, member, step), leader="", members=()))
    return True


def cut_unread_share(group: ClassicGroup, member: ClassicMember) -> None:
    """Clients that get topics they do not read ask for another plan, for ever. What it does not read is nobody's."""
    topics = topics_of(member.metadata(group.protocol_name)) if group.protocol_type == CONSUMER else None
    if topics is None or not member.assignment:
        return
    try:
        share = parse_assignment(member.assignment)
    except ValueError:
        return
    kept = {topic: partitions for topic, partitions in share.partitions.items() if topic in topics}
    if len(kept) < len(share.partitions):
        member.assignment = encode_assignment(kept, share.user_data, share.version)


def covers_topics(group: ClassicGroup, step: Step) -> bool:
    """Whether the plan has every partition of every topic that is read, as far as the catalog is known.

    Whoever comes back is not told on which partition counts the plan was made. If topics grew, or became its own,
    while it was away, nobody would notice later. Nor would it ask for the round that gives out what a cooperative plan
    withheld for its sake: it has nothing left to let go of.

    No catalog knows the resources of a delayed group (KIP-415): each is one partition. While its delay runs, some are
    meant to be without an owner, and whoever is there asks again when it is over. What its leader knew may be lost, or
    was too large to keep: then a round more than needed does no harm.
    """
    kept = kept_delay(group.id, step)
    delayed = kept is not None or group.protocol_name == DELAYED
    unlisted = 1 if delayed and remaining_delay_ms(kept, step) is None else 0
    planned: Counter[str] = Counter()
    for member in group.members.values():
        planned.update(shares_of(member.assignment))
    wanted = subscribed_topics(group) or ()
    return all(step.state.partitions.get(topic, unlisted) <= planned[topic] for topic in wanted)
