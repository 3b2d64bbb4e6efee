"""Replaces a static member by its next incarnation (KIP-345, KIP-814)."""

from collections import Counter
from typing import assert_never

from muster.coordinator.core.classic import rebalance, rebalance_ledger, server_side_assignment
from muster.coordinator.core.classic.group import ClassicGroup, check_protocols
from muster.coordinator.core.classic.members import ClassicMember
from muster.coordinator.core.classic.rebalance import (
    elect_protocol,
    maybe_complete_join,
    prepare_rebalance,
    roster,
    subscribed_topics,
)
from muster.coordinator.core.groups.instance_ids import (
    describe_former,
    describe_refused,
    record_calm_restart,
    record_contested_instance_id,
)
from muster.coordinator.core.groups.member_causes import amend_closed
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.effects import JoinReply, refused_join, refused_sync
from muster.coordinator.core.model.events import ConnectionClosed, InstanceIdUser, JoinGroup
from muster.coordinator.core.model.ledger import (
    Departure,
    RebalanceTrigger,
    trigger_by_member,
)
from muster.coordinator.core.model.plan import (
    FIXED_BYTES,
    assignment_of,
    check_fits_log,
    shares_of,
    text_bytes,
    topics_of,
)
from muster.coordinator.core.model.rights import readable_topics
from muster.coordinator.core.model.types import (
    DELAYED,
    Cause,
    GroupState,
    Incarnation,
    MemberPlan,
    WaitEnd,
)
from muster.coordinator.errors import ErrorCode


def takeover_sentence(instance_id: str) -> str:
    """What the newcomer did, as its trigger and its answer say."""
    return f"took over group.instance.id {instance_id}"


def replace_static_member(group: ClassicGroup, request: JoinGroup, member_id: str, step: Step) -> None:
    """Hand the place of the old member id, its share included, to the new one; fence the old one at once."""
    check_protocols(group, request.protocol_type, request.protocols)
    old_id = group.static[request.group_instance_id or ""]
    check_incarnation_fits_log(group, request, old_id, step)
    was_leader = group.leader == old_id
    contested = group.history.takes_turns(group.members[old_id].seen, request.connection)
    note_replaced(group, old_id, member_id, step)
    away_ms = step.now_ms - group.members[old_id].last_seen_ms
    member = rename_static_member(group, old_id, member_id, step)
    replaced = Departure("its owner was replaced by its next incarnation", member.last_seen_ms, WaitEnd.REPLACED)
    update_static_member(group, member, request, step)
    step.arm(group.session_timer(member_id), member.session_timeout_ms)
    cause, what = trigger_of_replacement(group, member, step)
    trigger = trigger_by_member(
        cause, member, f"{takeover_sentence(member.group_instance_id or '')}{what}", request.reason
    )
    match group.state:
        case GroupState.STABLE if cause is Cause.STATIC_MEMBER_REPLACED:
            group.members.unpark(member)
            if contested:
                other = describe_former(group, old_id)
                record_contested_instance_id(group, member.seen, member_plan(member), other, step)
            else:
                incarnation = Incarnation(member.id, old_id, away_ms, "replaced")
                record_calm_restart(group, member.seen, member_plan(member), incarnation, step)
            if rebalance.is_frozen(group, step):
                rebalance.cut_unread_share(group, member)
            group.subscribed_topics = subscribed_topics(group)
            step.keep(group.record(step.now_ms))
            step.reply(request.request_id, reply_without_rebalance(group, member, old_id, was_leader, request, trigger))

        case GroupState.STABLE | GroupState.COMPLETING_REBALANCE:
            # KAFKA-9801: the leader may have made its plan for the old id already.
            rebalance_ledger.note_departure(group, old_id, replaced, step)
            group.arrived_again.append(Incarnation(member.id, old_id, away_ms, "replaced"))
            prepare_rebalance(group, trigger, step, arriving=member)

        case GroupState.PREPARING_REBALANCE:
            group.arrived_again.append(Incarnation(member.id, old_id, away_ms, "replaced"))
            rebalance_ledger.note_trigger(group, trigger, step)
            rebalance_ledger.note_departure(group, old_id, replaced, step)
            rebalance_ledger.note_arrival(group, member, step)
            maybe_complete_join(group, step)

        case GroupState.EMPTY | GroupState.DEAD:
            raise AssertionError(f"group {group.id!r} is {group.state.value} and has a static member")

        case _:
            assert_never(group.state)


def note_replaced(group: ClassicGroup, old_id: str, new_id: str, step: Step) -> None:
    """The old id is fenced from here on: whoever still speaks by it is a second process."""
    group.history.note_gone(group.members[old_id].seen, WaitEnd.REPLACED, step.now_ms)
    group.history.succeed(old_id, new_id)


def member_plan(member: ClassicMember) -> MemberPlan:
    return MemberPlan(
        member.id,
        member.client_id,
        member.client_host,
        member.group_instance_id,
        tuple(sorted(assignment_of(member.assignment).items())),
    )


def explain(group: ClassicGroup, event: ConnectionClosed | InstanceIdUser, step: Step) -> None:
    """Write down what follows from a closed connection, or from a group instance id that two processes use."""
    if isinstance(event, ConnectionClosed):
        amend_closed(group, event.connection, step)
        return
    holder = group.members.get(group.static.get(event.group_instance_id or "", ""))
    if holder is not None:
        record_contested_instance_id(group, holder.seen, member_plan(holder), describe_refused(group, event), step)


def check_incarnation_fits_log(group: ClassicGroup, request: JoinGroup, old_id: str, step: Step) -> None:
    """A calm takeover writes the group at once, with the newcomer's subscription and the share of the old one."""
    told = max(len(protocol.metadata) for protocol in request.protocols)
    told += text_bytes(request.fresh_id, request.group_instance_id, request.client_id, request.client_id)
    told += text_bytes(request.client_host) + FIXED_BYTES + len(group.members[old_id].assignment)
    size = group.stored_bytes(without=old_id) + told
    check_fits_log(group.id, "the members' subscriptions and shares", size, step.limits)


def trigger_of_replacement(group: ClassicGroup, member: ClassicMember, step: Step) -> tuple[Cause, str]:
    """Why the place was taken over, and what of it calls for a new plan while the group is stable."""
    if rebalance.is_frozen(group, step):
        return Cause.STATIC_MEMBER_REPLACED, ""
    if group.state is GroupState.STABLE and elect_protocol(group) != group.protocol_name:
        return Cause.PROTOCOL_CHANGED, f" and turned the vote from {group.protocol_name} to {elect_protocol(group)}"
    if group.state is GroupState.STABLE and not covers_topics(group, step):
        return Cause.PARTITIONS_CHANGED, " and reads partitions that the plan does not reach"
    if group.state is GroupState.STABLE and group.remote and holds_unread_topics(member, group.protocol_name):
        # Java's client rejects a share with a topic that it does not read, and joins again for ever.
        return Cause.STATIC_MEMBER_METADATA_CHANGED, " and does not read all topics of its share any more"
    return Cause.STATIC_MEMBER_REPLACED, ""


def covers_topics(group: ClassicGroup, step: Step) -> bool:
    """Whether the plan has every partition of every topic that is read, as far as the catalog is known.

    Whoever comes back is not told on which partition counts the plan was made. If topics grew, or became its own,
    while it was away, nobody would notice later. Nor would it ask for the round that gives out what a cooperative plan
    withheld for its sake: it has nothing left to let go of.

    No catalog knows the resources of a delayed group (KIP-415): each is one partition. While its delay runs, some are
    meant to be without an owner, and whoever is there asks again when it is over. What its leader knew may be lost, or
    was too large to keep: then a round more than needed does no harm.
    """
    kept = rebalance.kept_delay(group.id, step)
    delayed = kept is not None or group.protocol_name == DELAYED
    unlisted = 1 if delayed and rebalance.remaining_delay_ms(kept, step) is None else 0
    planned: Counter[str] = Counter()
    for member in group.members.values():
        planned.update(shares_of(member.assignment))
    wanted = subscribed_topics(group) or ()
    return all(step.state.partitions.get(topic, unlisted) <= planned[topic] for topic in wanted)


def holds_unread_topics(member: ClassicMember, protocol: str | None) -> bool:
    reads = topics_of(member.metadata(protocol))
    return reads is not None and not shares_of(member.assignment).keys() <= readable_topics(member.rights, reads)


def rename_static_member(group: ClassicGroup, old_id: str, new_id: str, step: Step) -> ClassicMember:
    """The same member under a new id, in the same place of the order."""
    old = group.members[old_id]
    fence_parked(group, old, step)
    step.disarm(group.session_timer(old_id))
    group.members.rename(old, new_id)
    if old.group_instance_id is not None:
        group.static[old.group_instance_id] = new_id
    if old_id in group.pending_syncs:
        group.pending_syncs = (group.pending_syncs - {old_id}) | {new_id}
    if group.leader == old_id:
        group.leader = new_id
    rebalance_ledger.rename_member(group, old_id, new_id)
    return old


def fence_parked(group: ClassicGroup, member: ClassicMember, step: Step) -> None:
    join_request = group.members.unpark(member)
    if join_request is not None:
        step.reply(join_request, refused_join(ErrorCode.FENCED_INSTANCE_ID, member.id))
    if member.sync_request is not None:
        step.reply(member.sync_request, refused_sync(ErrorCode.FENCED_INSTANCE_ID))
        member.sync_request = None


def update_static_member(group: ClassicGroup, member: ClassicMember, request: JoinGroup, step: Step) -> None:
    # KAFKA-14009: the new incarnation's own timeouts count.
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = (
        request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms
    )
    member.client_id = request.client_id
    member.client_host = request.client_host
    member.client_software = request.client_software
    member.rights = request.rights
    member.remote_assignor = server_side_assignment.requested_assignor(request, step.limits)
    group.members.offer(member, request.protocols)
    group.members.park(member, request.request_id)
    member.is_new = False  # it has a session from the start: only a newcomer is given five minutes
    member.last_seen_ms = step.now_ms
    member.connection = request.connection


def reply_without_rebalance(
    group: ClassicGroup,
    member: ClassicMember,
    old_id: str,
    was_leader: bool,
    request: JoinGroup,
    trigger: RebalanceTrigger,
) -> JoinReply:
    """No rebalance: the share it had is still its own. A leader is told not to assign anew (KIP-814)."""
    member.generation = group.generation
    was_leader = was_leader and not group.remote
    leads = was_leader and request.supports_skip_assignment
    # A client too old for skip_assignment is shown the old leader id, so that it acts as a follower.
    leader = old_id if was_leader and not request.supports_skip_assignment else group.acting_leader
    return JoinReply(
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=leader,
        skip_assignment=leads,
        member_id=member.id,
        members=roster(group) if leads else (),
        cause=trigger.cause,
        cause_detail=trigger.detail,
    )
