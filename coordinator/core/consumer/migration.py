"""Conversion between classic and KIP-848 groups, in both directions.

A classic group becomes a KIP-848 group when the first member of that protocol joins, and a classic one again when its
last member of that protocol is gone (`group.consumer.migration.policy`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster.assignors.data.consumer_protocol import Subscription, encode_assignment, parse_subscription
from muster.coordinator.core.classic import rebalance_ledger as classic_history
from muster.coordinator.core.classic.group import (
    ClassicGroup,
    ClassicMember,
    ClassicPlanner,
    check_not_dead,
    last_planned_shares,
)
from muster.coordinator.core.classic.lifecycle import dissolve_group, restore_group
from muster.coordinator.core.classic.rebalance import prepare_rebalance
from muster.coordinator.core.consumer import epoch_ledger, target
from muster.coordinator.core.consumer.group import (
    FIRST_EPOCH,
    JOINING,
    ConsumerGroup,
    ConsumerMember,
    ConsumerMemberState,
    cells,
)
from muster.coordinator.core.consumer.members import check_heartbeat_form, forget_group
from muster.coordinator.core.groups.kind import GroupConversion
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.events import ConsumerHeartbeat
from muster.coordinator.core.model.ledger import Departure, RebalanceTrigger
from muster.coordinator.core.model.plan import CONSUMER, Plan, assignment_of
from muster.coordinator.core.model.records import (
    ClassicSide,
    ConsumerMemberStored,
    CurrentStored,
    Epochs,
    GroupDeleted,
    GroupEpochStored,
    GroupStored,
    MemberRecord,
    Shares,
    TargetEpochStored,
    TargetStored,
    TopicId,
)
from muster.coordinator.core.model.types import DELAYED
from muster.coordinator.errors import CoordinatorError, ErrorCode

# Classic to KIP-848
# ------------------

UPGRADES = ("upgrade", "bidirectional")


@dataclass(frozen=True, slots=True)
class FormerMember:
    """A classic member as it was: its subscription, its share of the last plan, and what it has yet to let go of."""

    said: Subscription
    share: Shares
    withheld: Shares


def is_upgrade_asked_for(group: ClassicGroup, request: ConsumerHeartbeat, step: Step) -> bool:
    return request.member_epoch == JOINING


def upgrade(
    group: ClassicGroup, request: ConsumerHeartbeat, subscriptions: Mapping[str, Subscription], step: Step
) -> None:
    """The group in its new form; its members live on as members that speak the classic protocol."""
    release_classic_members(group, step)
    epoch = max(group.generation, FIRST_EPOCH)
    step.keep(GroupDeleted(group.id))
    step.keep(GroupEpochStored(group.id, epoch))
    # A member of an earlier KIP-848 group of this id may come back with what it did then still to be committed.
    step.state.get(ConsumerGroup, group.id).progress.gave = None
    shares = {member_id: target.share_by_id(share, step) for member_id, share in plan_that_counts(group, step).items()}
    given = {cell for share in shares.values() for cell in cells(share)}
    for member in group.members.values():
        said = subscriptions[member.id]
        had = FormerMember(said, shares[member.id], not_let_go(said, given, step))
        migrate_member(group, member, had, epoch, step)
    step.keep(TargetEpochStored(group.id, epoch, 0))


def plan_that_counts(group: ClassicGroup, step: Step) -> Plan:
    """What each member is to have. One that was taken back leaves nobody anything, unless nobody may lose anything."""
    if not step.state.extensions.protects_members(group.id, step.state):
        return {member.id: assignment_of(member.assignment) for member in group.members.values()}
    told = last_planned_shares(group)
    return {member_id: told.get(member_id, {}) for member_id in group.members}


def left_topics_out(group: ConsumerGroup, step: Step) -> bool:
    """Whether the plan that came from the classic group misses partitions that are read.

    Topics may have grown since it was made, unnoticed by a leader; nothing else would call for a new target before they
    change again. An epoch that was raised here knows its topics.
    """
    if group.metadata_hash or group.epoch > group.target_epoch:
        return False
    planned: Counter[TopicId] = Counter()
    for share in group.targets.values():
        planned.update({topic: len(partitions) for topic, partitions in share.items()})
    ids, counts = step.state.topic_ids, step.state.partitions
    return any(counts.get(name, 0) > planned[ids[name]] for name in group.subscribed_topics() & ids.keys())


def check_may_upgrade(group: ClassicGroup, request: ConsumerHeartbeat, step: Step) -> dict[str, Subscription]:
    """The members' subscriptions. Refuses before anything is changed."""
    check_heartbeat_form(request, step.limits)
    check_not_dead(group)
    if not group.members:
        return {}
    if step.limits.consumer_migration_policy not in UPGRADES:
        raise stays_classic(group, "group.consumer.migration.policy does not allow it to change")
    if group.protocol_type != CONSUMER:
        raise stays_classic(group, f"its protocol type is {group.protocol_type!r}")
    if any(offered.name == DELAYED for member in group.members.values() for offered in member.protocols):
        raise stays_classic(
            group, f"its members share named resources (they offer {DELAYED!r}), and KIP-848 knows topics only"
        )
    if len(group.members) >= step.limits.consumer_max_group_size:
        raise stays_classic(
            group, f"it has {len(group.members)} members, group.consumer.max.size counts the new one, too"
        )
    try:
        return {member.id: parse_subscription(metadata_of(group, member)) for member in group.members.values()}
    except ValueError as error:
        raise stays_classic(group, f"a subscription cannot be read ({error})") from error


def metadata_of(group: ClassicGroup, member: ClassicMember) -> bytes:
    """What it says under the protocol that the group chose, or would choose for itself."""
    chosen = group.protocol_name
    return member.metadata(chosen) or (member.protocols[0].metadata if member.protocols else b"")


def stays_classic(group: ClassicGroup, why: str) -> CoordinatorError:
    return CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group.id!r} is a classic group and stays one: {why}")


def release_classic_members(group: ClassicGroup, step: Step) -> None:
    """Answer what is parked, end what the ledger has open, and stop the classic timers."""
    classic_history.abandon_rebalance(group, step)
    step.disarm(group.join_timer)
    step.disarm(group.sync_timer)
    step.disarm(group.follow_timer)
    for member_id in (*group.members, *group.pending_joins):
        step.disarm(group.session_timer(member_id))
    dissolve_group(group, ErrorCode.REBALANCE_IN_PROGRESS, step)


def not_let_go(said: Subscription, given: set[tuple[TopicId, int]], step: Step) -> Shares:
    """What a member owned when it joined and nobody was given: a cooperative plan withheld it until its owner lets go.

    The owner says so by the join it owes; until then it may still work on it. `given` learns of it.
    """
    owned = target.share_by_id({topic: tuple(partitions) for topic, partitions in (said.owned or {}).items()}, step)
    held = {topic: frozenset(p for p in partitions if (topic, p) not in given) for topic, partitions in owned.items()}
    given.update(cells(held))
    return {topic: partitions for topic, partitions in held.items() if partitions}


def migrate_member(group: ClassicGroup, member: ClassicMember, had: FormerMember, epoch: int, step: Step) -> None:
    step.keep(
        ConsumerMemberStored(
            group_id=group.id,
            member_id=member.id,
            instance_id=member.group_instance_id,
            rack_id=had.said.rack,
            client_id=member.client_id,
            client_host=member.client_host,
            topic_names=tuple(sorted(had.said.topics)),
            topic_regex=None,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=None,
            classic=ClassicSide(member.session_timeout_ms, member.protocols),
        )
    )
    step.keep(TargetStored(group.id, member.id, had.share))
    state = ConsumerMemberState.UNREVOKED if had.withheld else ConsumerMemberState.STABLE
    assigned, revoking = share_at_epoch(had.share, epoch), share_at_epoch(had.withheld, epoch)
    step.keep(CurrentStored(group.id, member.id, epoch, epoch, state, assigned, revoking))
    step.arm(("session", group.id, member.id), member.session_timeout_ms)
    step.state.get(ConsumerGroup, group.id).progress.last_seen_ms[member.id] = member.last_seen_ms


def share_at_epoch(share: Shares, epoch: int) -> Epochs:
    return {topic: dict.fromkeys(sorted(partitions), epoch) for topic, partitions in share.items()}


UPGRADE = GroupConversion(
    ClassicGroup, ConsumerGroup, ConsumerHeartbeat, is_upgrade_asked_for, check_may_upgrade, upgrade
)


# KIP-848 to classic
# ------------------

DOWNGRADES = ("downgrade", "bidirectional")


@dataclass(frozen=True, slots=True)
class LeavingMembers:
    """What may leave only members of the classic protocol behind: some go, or one came back speaking it."""

    trigger: RebalanceTrigger | None
    leavers: Sequence[tuple[ConsumerMember, Departure]] = ()
    leader: str = ""
    """Who came back; with nobody, the first of those that stay leads."""


def staying(group: ConsumerGroup, leaving: LeavingMembers) -> list[ConsumerMember]:
    gone = {member.id for member, _ in leaving.leavers}
    return [member for member in group.members.values() if member.id not in gone]


def is_downgrade_due(group: ConsumerGroup, leaving: LeavingMembers, step: Step) -> bool:
    """Only members of the classic protocol are left once those have gone, and the group may be one."""
    if step.limits.consumer_migration_policy not in DOWNGRADES:
        return False
    left = staying(group, leaving)
    return 0 < len(left) <= step.limits.max_group_size and all(member.classic is not None for member in left)


def downgrade(group: ConsumerGroup, leaving: LeavingMembers, stored: GroupStored, step: Step) -> None:
    """Everyone but the leavers keeps what it was to have; then the trigger, if there is one, calls for a rebalance.

    The group epoch is the generation and is not raised: whoever is up to date hears REBALANCE_IN_PROGRESS, and may
    commit what it has done, until it joins again. So may whoever is still on its way to that epoch, under its own.
    There is no trigger when a static member only came back with the other protocol, everyone has its target already,
    and who came back can be told to lead without assigning (KIP-814).

    What leavers had may wait for a replacement. While nobody may lose anything the coordinator goes on planning: a
    member that led would move partitions as it likes.
    """
    epoch_ledger.record_downgrade(group, step)
    for leaver, _ in leaving.leavers:
        epoch_ledger.leave_share(group, leaver, step)
    planner = target.preferred_assignor(group, step)
    gone = {member.id: departure for member, departure in leaving.leavers}
    left = staying(group, leaving)
    adrift = epoch_ledger.partitions_adrift(group, left, step)
    trailing = {member.id: member.epoch for member in left if 0 < member.epoch < group.epoch}
    seen_ms = dict(group.progress.last_seen_ms)
    forget_group(group, step)
    step.keep(stored)
    classic = step.state.get(ClassicGroup, group.id)
    restore_group(classic, stored, step)
    classic.restored = False
    classic.carried, classic.departures, classic.trailing = adrift, gone, trailing
    if step.state.extensions.protects_members(group.id, step.state):
        classic.planner = ClassicPlanner(planner, by_setting=True)
    for side in left:
        member = classic.members[side.id]
        classic.members.offer(member, side_of(side).protocols)
        member.last_seen_ms = seen_ms.get(side.id, step.now_ms)
    if leaving.trigger is not None:
        prepare_rebalance(classic, leaving.trigger, step)
        assert classic.rebalance is not None
        classic.rebalance.also.append("only members of the classic protocol are left: the group speaks it again")


def as_classic(group: ConsumerGroup, leaving: LeavingMembers, step: Step) -> GroupStored:
    """The group as it will be on record."""
    left = staying(group, leaving)
    protocol = common_protocol([side_of(member) for member in left])
    return GroupStored(
        group_id=group.id,
        protocol_type=CONSUMER,
        generation=group.epoch,
        protocol=protocol,
        leader=leaving.leader or left[0].id,
        state_timestamp_ms=step.now_ms,
        members=tuple(member_record(group, member, protocol, step) for member in left),
    )


def side_of(member: ConsumerMember) -> ClassicSide:
    assert member.classic is not None, f"member {member.id!r} does not speak the classic protocol"
    return member.classic


def common_protocol(sides: list[ClassicSide]) -> str:
    """The first name of the first member's list that all of them offer; joining saw to it that there is one."""
    offers = [{protocol.name for protocol in side.protocols} for side in sides]
    return next(protocol.name for protocol in sides[0].protocols if all(protocol.name in offer for offer in offers))


def member_record(group: ConsumerGroup, member: ConsumerMember, protocol: str, step: Step) -> MemberRecord:
    side = side_of(member)
    return MemberRecord(
        member_id=member.id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=side.session_timeout_ms,
        subscription=next(each.metadata for each in side.protocols if each.name == protocol),
        assignment=encode_assignment(epoch_ledger.share_by_name(group.target_of(member), step)),
    )


DOWNGRADE = GroupConversion(ConsumerGroup, ClassicGroup, LeavingMembers, is_downgrade_due, as_classic, downgrade)
