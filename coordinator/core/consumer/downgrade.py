"""A KIP-848 group becomes classic again when its last member of that protocol is gone."""

from collections.abc import Collection, Sequence

from assignors.user_data import encode_assignment
from coordinator.core.classic.lifecycle import restore
from coordinator.core.classic.rebalance import prepare_rebalance
from coordinator.core.consumer import history
from coordinator.core.consumer.cleanup import forget_group
from coordinator.core.consumer.group import ConsumerGroup, ConsumerMember
from coordinator.core.consumer.records import ClassicSide
from coordinator.core.ledger import Departure, Trigger
from coordinator.core.plan import CONSUMER
from coordinator.core.records import GroupStored, MemberRecord
from coordinator.core.state import Step

DOWNGRADES = ("downgrade", "bidirectional")


def is_due(group: ConsumerGroup, step: Step, without: Collection[str] = ()) -> bool:
    """Only members of the classic protocol are left once those have gone, and the group may be one."""
    allowed = step.limits.consumer_migration_policy in DOWNGRADES
    staying = [member for member in group.members.values() if member.id not in without]
    only_classic = bool(staying) and all(member.classic is not None for member in staying)
    return allowed and only_classic and len(staying) <= step.limits.max_group_size


def downgrade(
    group: ConsumerGroup, trigger: Trigger | None, step: Step, leavers: Sequence[tuple[ConsumerMember, Departure]] = ()
) -> None:
    """Everyone but the leavers keeps what it was to have; then `trigger`, if there is one, calls them to a rebalance.

    The group epoch is the generation and is not raised: whoever is up to date hears REBALANCE_IN_PROGRESS, and may
    commit what it has done, until it joins again. So may whoever is still on its way to that epoch, under its own.
    There is no trigger when a static member only came back with the other protocol and everyone has its target already.
    """
    history.handed_back(group, step)
    gone = {member.id: departure for member, departure in leavers}
    staying = [member for member in group.members.values() if member.id not in gone]
    stored = as_classic(group, staying, step)
    adrift = history.adrift(group, staying, step)
    trailing = {member.id: member.epoch for member in staying if 0 < member.epoch < group.epoch}
    seen_ms = dict(group.progress.last_seen_ms)
    forget_group(group, step)
    step.keep(stored)
    classic = step.state.groups[group.id]
    restore(classic, stored, step)
    classic.restored = False
    classic.carried, classic.departures, classic.trailing = adrift, gone, trailing
    for side in staying:
        member = classic.members[side.id]
        classic.members.offer(member, side_of(side).protocols)
        member.last_seen_ms = seen_ms.get(side.id, step.now_ms)
    if trigger is not None:
        prepare_rebalance(classic, trigger, step)
        assert classic.rebalance is not None
        classic.rebalance.also.append("only members of the classic protocol are left: the group speaks it again")


def as_classic(group: ConsumerGroup, staying: Sequence[ConsumerMember], step: Step) -> GroupStored:
    protocol = common_protocol([side_of(member) for member in staying])
    return GroupStored(
        group_id=group.id,
        protocol_type=CONSUMER,
        generation=group.epoch,
        protocol=protocol,
        leader=staying[0].id,
        state_timestamp_ms=step.now_ms,
        members=tuple(member_record(group, member, protocol, step) for member in staying),
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
        assignment=encode_assignment(history.by_name(group.target_of(member), step)),
    )
