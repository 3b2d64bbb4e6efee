"""A KIP-848 group becomes classic again when its last member of that protocol is gone."""

from collections.abc import Sequence
from dataclasses import dataclass

from muster.assignors.data.consumer_protocol import encode_assignment
from muster.coordinator.core.classic.assigning import ClassicPlanner
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.classic.lifecycle import restore_group
from muster.coordinator.core.classic.rebalance import prepare_rebalance
from muster.coordinator.core.consumer import epoch_ledger, target
from muster.coordinator.core.consumer.cleanup import forget_group
from muster.coordinator.core.consumer.group import ConsumerGroup, ConsumerMember
from muster.coordinator.core.control.overrides import consumer as held
from muster.coordinator.core.control.overrides.standing import are_members_protected
from muster.coordinator.core.groups.conversion import GroupConversion
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.consumer_records import ClassicSide
from muster.coordinator.core.model.core_records import GroupStored, MemberRecord
from muster.coordinator.core.model.ledger import Departure, RebalanceTrigger
from muster.coordinator.core.model.plan import CONSUMER

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

    What leavers had may wait for an heir. While nobody may lose anything the coordinator goes on planning: a member
    that led would move partitions as it likes.
    """
    epoch_ledger.record_downgrade(group, step)
    for leaver, _ in leaving.leavers:
        held.hold_consumer_share(group, leaver, step)
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
    if are_members_protected(step.state, group.id):
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
