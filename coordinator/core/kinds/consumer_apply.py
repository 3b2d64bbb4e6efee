"""Makes facts of KIP-848 groups true, live and in replay. Tombstones for unknown things are harmless."""

from collections.abc import Mapping
from typing import Any, TypeAlias, assert_never, get_args

from muster.coordinator.core.consumer.group import FIRST_EPOCH, ConsumerGroup, ConsumerMember, ConsumerMemberState
from muster.coordinator.core.groups.kind import FactApplier
from muster.coordinator.core.groups.state import ShardState
from muster.coordinator.core.model.consumer_records import (
    ConsumerMemberDeleted,
    ConsumerMemberStored,
    CurrentDeleted,
    CurrentStored,
    GroupEpochDeleted,
    GroupEpochStored,
    RegexDeleted,
    RegexStored,
    TargetDeleted,
    TargetEpochDeleted,
    TargetEpochStored,
    TargetStored,
)

Stored: TypeAlias = (
    ConsumerMemberStored | GroupEpochStored | TargetEpochStored | TargetStored | CurrentStored | RegexStored
)
Gone: TypeAlias = ConsumerMemberDeleted | TargetEpochDeleted | TargetDeleted | CurrentDeleted | RegexDeleted


def apply_consumer_fact(state: ShardState, record: Stored) -> None:
    """Change the group the record speaks of, making it when needed: it is of this kind from here on."""
    group = state.find(ConsumerGroup, record.group_id)
    store_fact(group or state.put(ConsumerGroup(record.group_id)), record)


def apply_consumer_tombstone(state: ShardState, record: Gone) -> None:
    if group := state.find(ConsumerGroup, record.group_id):
        remove_fact(group, record)


def apply_epoch_deleted(state: ShardState, record: GroupEpochDeleted) -> None:
    state.drop(ConsumerGroup, record.group_id)


def store_fact(group: ConsumerGroup, record: Stored) -> None:
    match record:
        case GroupEpochStored():
            group.epoch, group.metadata_hash = record.epoch, record.metadata_hash
        case TargetEpochStored():
            set_target_epoch(group, record.epoch, record.timestamp_ms)
        case TargetStored():
            group.targets[record.member_id] = record.partitions
        case ConsumerMemberStored():
            add_member(group, record)
        case CurrentStored():
            set_current_assignment(group, record)
        case RegexStored():
            group.regexes[record.regex] = record
        case _:
            assert_never(record)


def remove_fact(group: ConsumerGroup, record: Gone) -> None:
    match record:
        case ConsumerMemberDeleted():
            group.uncount(record.member_id)
            member = group.members.pop(record.member_id, None)
            if member is not None:
                group.let_go(member.id, member.holds)
                if member.instance_id is not None and group.static.get(member.instance_id) == member.id:
                    del group.static[member.instance_id]
        case TargetEpochDeleted():
            set_target_epoch(group, FIRST_EPOCH, 0)
        case TargetDeleted():
            group.targets.pop(record.member_id, None)
        case CurrentDeleted():
            clear_current_assignment(group, record.member_id)
        case RegexDeleted():
            group.regexes.pop(record.regex, None)
        case _:
            assert_never(record)


def set_target_epoch(group: ConsumerGroup, epoch: int, timestamp_ms: int) -> None:
    group.target_epoch, group.target_timestamp_ms = epoch, timestamp_ms
    for member in group.members.values():
        group.count(member)


def add_member(group: ConsumerGroup, record: ConsumerMemberStored) -> None:
    member = group.members.setdefault(record.member_id, ConsumerMember(record.member_id))
    member.instance_id = record.instance_id
    member.rack_id = record.rack_id
    member.client_id, member.client_host = record.client_id, record.client_host
    member.topic_names = frozenset(record.topic_names)
    member.topic_regex = record.topic_regex
    member.rebalance_timeout_ms = record.rebalance_timeout_ms
    member.server_assignor = record.server_assignor
    member.classic = record.classic
    if record.instance_id is not None:
        group.static[record.instance_id] = record.member_id
    group.count(member)


def set_current_assignment(group: ConsumerGroup, record: CurrentStored) -> None:
    # Compaction may leave a member's share before the member itself.
    member = group.members.setdefault(record.member_id, ConsumerMember(record.member_id))
    group.let_go(member.id, member.holds)
    member.epoch, member.previous_epoch = record.epoch, record.previous_epoch
    known = record.state in ConsumerMemberState._value2member_map_
    member.state = ConsumerMemberState(record.state) if known else ConsumerMemberState.UNKNOWN
    member.assigned, member.revoking = record.assigned, record.revoking
    group.hold(member.id, record.assigned)
    group.hold(member.id, record.revoking)
    group.count(member)


def clear_current_assignment(group: ConsumerGroup, member_id: str) -> None:
    member = group.members.get(member_id)
    if member is None:
        return
    group.let_go(member.id, member.holds)
    member.epoch = member.previous_epoch = 0
    member.state = ConsumerMemberState.STABLE
    member.assigned, member.revoking = {}, {}
    group.count(member)


CONSUMER_FACTS: Mapping[type[Any], FactApplier] = {
    **dict.fromkeys(get_args(Stored), apply_consumer_fact),
    **dict.fromkeys(get_args(Gone), apply_consumer_tombstone),
    GroupEpochDeleted: apply_epoch_deleted,
}
