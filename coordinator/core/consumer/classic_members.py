"""Members that speak the classic protocol inside a KIP-848 group.

The group has no leader: each such member is a follower that receives its own share, gives up what it must by joining
again, and takes what is free the same way. Only a member that turns the group classic again by coming back is made
its leader.
"""

from dataclasses import replace

from muster.assignors.data.consumer_protocol import NEWEST, Subscription, encode_assignment, parse_subscription
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.classic.rebalance import roster
from muster.coordinator.core.consumer import epoch_ledger, lifecycle, members, target
from muster.coordinator.core.consumer.group import ConsumerGroup, ConsumerMember, ConsumerMemberState, shares
from muster.coordinator.core.consumer.heartbeat import available_partitions, reconcile_member, subscription_triggers
from muster.coordinator.core.consumer.members import check_state_known, require_consumer_member
from muster.coordinator.core.consumer.migration import DOWNGRADE, LeavingMembers
from muster.coordinator.core.groups.member_history import NO_CONNECTION, connection_after
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.effects import HeartbeatReply, JoinReply, SyncReply
from muster.coordinator.core.model.events import Heartbeat, JoinGroup, SyncGroup
from muster.coordinator.core.model.ledger import RebalanceTrigger, trigger_by_member
from muster.coordinator.core.model.plan import CONSUMER
from muster.coordinator.core.model.records import ClassicSide, ConsumerMemberStored, Shares
from muster.coordinator.core.model.types import Cause, MemberIdentity
from muster.coordinator.core.settings.assignor_choice import chosen_assignor
from muster.coordinator.errors import CoordinatorError, ErrorCode


def join_group(group: ConsumerGroup, request: JoinGroup, step: Step) -> None:
    """Take the member in, or take in what it has given up; the answer comes at once."""
    said = check_suitable(group, request, step)
    sent_back = not request.member_id and request.group_instance_id is None and request.require_known_member_id
    member_id = request.member_id or f"{request.group_instance_id or request.client_id}-{request.fresh_id}"
    if sent_back:
        code = ErrorCode.MEMBER_ID_REQUIRED
        step.reply(request.request_id, JoinReply(code, code.meaning, member_id=member_id))
        return
    member = take_in_classic_member(group, request, member_id, said, step)
    step.disarm(group.rejoin_timer(member.id))
    renew_session(group, member, step)
    step.arm(group.fetch_timer(member.id), member.rebalance_timeout_ms)
    hears = JoinReply(
        generation=member.epoch,
        protocol_type=CONSUMER,
        protocol_name=request.protocols[0].name,
        member_id=member.id,
    )
    # With an assignor set, or a freeze or deploy on, nobody leads: what the group has next is planned for it.
    protected = step.state.extensions.protects_members(group.id, step.state)
    planned = protected or bool(chosen_assignor(step.state, group.id))
    calm = group.at_rest and request.supports_skip_assignment and not planned
    if (
        DOWNGRADE.made(group, LeavingMembers(None if calm else may_have_come_back(member), leader=member.id), step)
        and calm
    ):
        hears = leader_reply(hears, step.state.get(ClassicGroup, group.id))
    step.reply(request.request_id, hears)


def may_have_come_back(member: ConsumerMember) -> RebalanceTrigger:
    what = "was the last to speak the consumer protocol, and came back with the classic one"
    return trigger_by_member(Cause.STATIC_MEMBER_REPLACED, member, what)


def leader_reply(hears: JoinReply, classic: ClassicGroup) -> JoinReply:
    """Who is answered leads from here on and assigns nothing: nobody else watches the topics of a classic group.

    (Kafka answers a follower, and the group does not hear of new partitions until its next rebalance.)
    """
    return replace(
        hears,
        protocol_name=classic.protocol_name,
        leader=hears.member_id,
        skip_assignment=True,
        members=roster(classic),
    )


def check_suitable(group: ConsumerGroup, request: JoinGroup, step: Step) -> Subscription:
    """What the member subscribes to. Refuses before anything is changed."""
    if step.limits.consumer_migration_policy == "disabled":
        raise inconsistent_protocol(
            f"group {group.id!r} is a consumer group, and group.consumer.migration.policy is disabled"
        )
    static_member = group.static.get(request.group_instance_id or "")
    known = request.member_id in group.members or static_member is not None
    if not known and len(group.members) >= step.limits.consumer_max_group_size:
        raise CoordinatorError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {group.id!r} has reached group.consumer.max.size ({step.limits.consumer_max_group_size})",
        )
    if request.protocol_type != CONSUMER or not request.protocols:
        raise inconsistent_protocol(
            f"group {group.id!r} takes members of protocol type {CONSUMER!r} with at least one protocol"
        )
    offered = {protocol.name for protocol in request.protocols}
    for member in group.members.values():
        if member.classic is not None and member.id not in (request.member_id, static_member):
            offered &= {protocol.name for protocol in member.classic.protocols}
    if not offered:
        raise inconsistent_protocol(f"no protocol that is offered suits every classic member of group {group.id!r}")
    if request.member_id and request.group_instance_id is not None:
        require_consumer_member(group, request.member_id, request.group_instance_id)
    try:
        said = parse_subscription(request.protocols[0].metadata)
    except ValueError as error:
        raise inconsistent_protocol(f"the subscription cannot be read: {error}") from error
    if request.member_id in group.members:
        check_state_known(group.members[request.member_id], owned_by(said, step))
    elif request.member_id and said.owned:
        # It was thrown out and has not heard of it: what it claims may be somebody else's by now.
        raise CoordinatorError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"group {group.id!r} has no member {request.member_id!r} that could own partitions; "
            f"give them up and join with an empty member id",
        )
    return said


def owned_by(said: Subscription, step: Step) -> Shares:
    """What it says it still has; eager members have let go of everything."""
    return target.share_by_id({topic: tuple(partitions) for topic, partitions in (said.owned or {}).items()}, step)


def take_in_classic_member(
    group: ConsumerGroup, request: JoinGroup, member_id: str, said: Subscription, step: Step
) -> ConsumerMember:
    held_by = group.static.get(request.group_instance_id or "")
    replaced = group.members[held_by] if held_by is not None and held_by != member_id else None
    live = replaced or group.members.get(member_id)
    before = None if live is None else replace(live)
    record = member_after_join(request, member_id, said)
    if replaced is not None:
        members.replace_static_member(group, replaced, record, step)
    elif live is None or live.stored(group.id) != record:
        step.keep(record)
    member = group.members[member_id]
    member.rights = request.rights if before is None else before.rights
    known = NO_CONNECTION if replaced is not None else member.connection
    member.connection = connection_after(known, request.connection)
    triggers = subscription_triggers(group, member, before, replaced is not None, step)
    triggers += target.take_rights(group, member, request.rights, step)
    if triggers:
        target.raise_group_epoch(group, triggers[0], step)
    target.compute_target(group, step)
    reconcile_member(group, member, owned_by(said, step), step)
    return member


def member_after_join(request: JoinGroup, member_id: str, said: Subscription) -> ConsumerMemberStored:
    timeout_ms = request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms
    return ConsumerMemberStored(
        group_id=request.group_id,
        member_id=member_id,
        instance_id=request.group_instance_id,
        rack_id=said.rack,
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=tuple(sorted(said.topics)),
        topic_regex=None,
        rebalance_timeout_ms=timeout_ms,
        server_assignor=None,
        classic=ClassicSide(request.session_timeout_ms, request.protocols),
    )


def sync_group(group: ConsumerGroup, request: SyncGroup, step: Step) -> None:
    """The member's own share, in the version of its subscription."""
    member, side = classic_member(group, MemberIdentity(request.member_id, request.group_instance_id))
    check_generation(member, request.generation)
    protocol = side.protocols[0]
    if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, protocol.name):
        raise inconsistent_protocol(f"member {member.id!r} joined with protocol {protocol.name!r} of type {CONSUMER!r}")
    if member.state is not ConsumerMemberState.UNREVOKED and (
        member.epoch < group.target_epoch or target.has_what_it_may_not(group, member, step.state)
    ):
        raise CoordinatorError(ErrorCode.REBALANCE_IN_PROGRESS)
    step.disarm(group.fetch_timer(member.id))
    renew_session(group, member, step)
    share = epoch_ledger.share_by_name(shares(member.assigned), step)
    blob = encode_assignment(share, version=min(parse_subscription(protocol.metadata).version, NEWEST))
    step.reply(request.request_id, SyncReply(protocol_type=CONSUMER, protocol_name=protocol.name, assignment=blob))


def heartbeat(group: ConsumerGroup, request: Heartbeat, step: Step) -> None:
    """Alive, whatever the answer is; it is called back when it has something to give up or to take."""
    member, _ = classic_member(group, MemberIdentity(request.member_id, request.group_instance_id))
    renew_session(group, member, step)
    if request.generation != member.epoch:
        code = ErrorCode.ILLEGAL_GENERATION
        step.reply(request.request_id, HeartbeatReply(code, code.meaning))
        return
    if request.rights is not None and (triggers := target.take_rights(group, member, request.rights, step)):
        target.request_target(group, triggers[0], step)
    if call_back_reply(group, member, step):
        if group.rejoin_timer(member.id) not in step.state.deadlines:
            step.arm(group.rejoin_timer(member.id), member.rebalance_timeout_ms)
        code = ErrorCode.REBALANCE_IN_PROGRESS
        step.reply(request.request_id, HeartbeatReply(code, code.meaning))
    else:
        step.reply(request.request_id, HeartbeatReply())


def call_back_reply(group: ConsumerGroup, member: ConsumerMember, step: Step) -> bool:
    if member.epoch < group.target_epoch or member.state is ConsumerMemberState.UNREVOKED:
        return True
    if target.has_what_it_may_not(group, member, step.state):
        return True
    wanted = target.readable_target(group, member, step)
    return (
        member.state is ConsumerMemberState.UNRELEASED
        and not available_partitions(group, member, wanted, member.assigned)[1]
    )


def classic_member(group: ConsumerGroup, who: MemberIdentity) -> tuple[ConsumerMember, ClassicSide]:
    member = require_consumer_member(group, who.member_id, who.group_instance_id)
    if member.classic is None:
        raise CoordinatorError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"member {member.id!r} of group {group.id!r} speaks the consumer protocol"
        )
    return member, member.classic


def check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise CoordinatorError(
            ErrorCode.ILLEGAL_GENERATION,
            f"generation {generation} is not generation {member.epoch} of member {member.id!r}; join again",
        )


def renew_unread(group: ConsumerGroup, member_id: str, step: Step) -> None:
    """It lives, though what it said was not read. For who speaks KIP-848 only heartbeats speak."""
    member = group.members.get(member_id)
    if member is not None and member.classic is not None and group.session_timer(member_id) in step.state.deadlines:
        renew_session(group, member, step)


def renew_session(group: ConsumerGroup, member: ConsumerMember, step: Step) -> None:
    if not step.on_behalf:
        group.progress.last_seen_ms[member.id] = step.now_ms
    step.arm(group.session_timer(member.id), lifecycle.session_timeout_of(group, member, step))


def inconsistent_protocol(message: str) -> CoordinatorError:
    return CoordinatorError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message)
