"""The join phase: prepare a rebalance, wait for the members, elect a leader, vote for a protocol."""

from muster.coordinator.core.classic import delay, history, plans
from muster.coordinator.core.classic.assigning import A_MEMBER
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.classic.members import ClassicMember
from muster.coordinator.core.control.overrides import classic as held
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.bounds import next_generation
from muster.coordinator.core.model.effects import JoinedMember, JoinReply, refused_join, refused_sync
from muster.coordinator.core.model.ledger import Departure, RebalanceTrigger, trigger_by_member
from muster.coordinator.core.model.plan import CONSUMER, topics_of
from muster.coordinator.core.model.types import Cause, GroupState
from muster.coordinator.errors import ErrorCode


def prepare_rebalance(
    group: ClassicGroup, trigger: RebalanceTrigger, step: Step, arriving: ClassicMember | None = None
) -> None:
    """Call everyone back. A group that was empty waits the initial delay, so that members starting together meet."""
    history.begin_rebalance(group, trigger, arriving, step)
    if group.state is GroupState.COMPLETING_REBALANCE:
        take_back_plan(group, step)
    group.pending_syncs.clear()
    step.disarm(group.sync_timer)
    step.disarm(group.assign_timer)
    step.disarm(group.follow_timer)
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
        plans.await_holders(group, step)


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
    if arriving is None and held.let_plan_stand(group, trigger, step):
        return
    if group.can_rebalance:
        prepare_rebalance(group, trigger, step, arriving)
        return
    history.note_trigger(group, trigger)
    if arriving is not None:
        history.note_arrival(group, arriving, step)
    maybe_complete_join(group, step)


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
    step.disarm(group.join_timer)
    step.disarm(group.handoff_timer)
    drop_absent_members(group, step)
    if group.members and not elect_leader(group):
        # Only static members are left, and none of them has come back: wait for them, the generation stands.
        step.arm(group.join_timer, group.max_rebalance_timeout_ms)
        return

    group.initial_remaining_ms = None
    group.new_member_added = False
    group.trailing.clear()
    group.generation = next_generation(group.generation)
    history.end_join_phase(group, step)
    if group.members:
        start_generation(group, step)
    else:
        empty_group(group, step)


def drop_absent_members(group: ClassicGroup, step: Step) -> None:
    """Dynamic members that did not rejoin in time are out; static ones keep their place (KIP-345)."""
    for member in [m for m in group.members.values() if not m.joining and m.group_instance_id is None]:
        history.note_trigger(group, trigger_by_member(Cause.REBALANCE_TIMEOUT, member, "did not rejoin in time"))
        departure = Departure("its owner did not rejoin within the rebalance timeout", member.last_seen_ms)
        remove_member(group, member, departure, step)


def elect_leader(group: ClassicGroup) -> bool:
    """Keep the leader if it rejoined, else take the first member that did. False when nobody did."""
    leader = group.members.get(group.leader or "")
    if leader is not None and leader.joining:
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
    history.record_emptied(group, step)
    delay.forget_delay(group.id, step)
    step.keep(group.record(step.now_ms))


def start_generation(group: ClassicGroup, step: Step) -> None:
    """Tell everyone the generation, and the leader who is there."""
    group.protocol_name = elect_protocol(group)
    group.subscribed_topics = subscribed_topics(group)
    group.planner = plans.planner_of(group, step)
    if group.planner.kept_out:
        history.note_trigger(group, RebalanceTrigger(Cause.ASSIGNOR_CHANGED, group.planner.kept_out))
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
    if group.remote:
        plans.request_plan(group, step)


def elect_protocol(group: ClassicGroup) -> str:
    """Each member votes for the first name of its list that all support; the leader's preference breaks a tie."""
    candidates = group.members.common_protocols
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
    for subscription in {member.metadata(group.protocol_name) for member in group.members.values()}:
        wanted = topics_of(subscription)
        if wanted is None:
            return None
        topics |= wanted
    return frozenset(topics)


def join_reply(group: ClassicGroup, member: ClassicMember, step: Step) -> JoinReply:
    """Tell the member the current generation, for which it may speak from now on; only the leader sees the others."""
    member.generation = group.generation
    rebalance = group.rebalance
    leads = member.id == group.acting_leader
    kept = delay.kept_delay(group.id, step) if leads else None
    return JoinReply(
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.acting_leader,
        member_id=member.id,
        members=roster(group) if leads else (),
        cause=rebalance.trigger.cause if rebalance else Cause.UNSPECIFIED,
        cause_detail=rebalance.trigger.detail if rebalance else "",
        rebalance_number=rebalance.number if rebalance else 0,
        leader_state=kept.leader_state if kept else "",
        scheduled_delay_ms=delay.remaining_delay_ms(kept, step),
    )


def roster(group: ClassicGroup) -> tuple[JoinedMember, ...]:
    return tuple(
        JoinedMember(member.id, member.group_instance_id, member.metadata(group.protocol_name))
        for member in group.members.values()
    )


def remove_member(group: ClassicGroup, member: ClassicMember, departure: Departure, step: Step) -> None:
    """Take the member out and answer what it has parked; the caller decides what follows."""
    held.hold_classic_share(group, member, step)
    history.note_departure(group, member.id, departure)
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
