"""Makes facts of KIP-848 groups true, live and in replay. Tombstones for unknown things are harmless."""

from typing import assert_never

from coordinator.core.consumer.group import FIRST_EPOCH, ConsumerGroup, ConsumerMember, MemberState
from coordinator.core.consumer.records import (
    ConsumerMemberDeleted,
    ConsumerMemberStored,
    ConsumerRecord,
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


def apply_to(groups: dict[str, ConsumerGroup], record: ConsumerRecord) -> None:
    """Change the group the record speaks of, making it when needed."""
    match record:
        case GroupEpochDeleted():
            groups.pop(record.group_id, None)
        case ConsumerMemberDeleted() | TargetEpochDeleted() | TargetDeleted() | CurrentDeleted() | RegexDeleted():
            if group := groups.get(record.group_id):
                forget(group, record)
        case _:
            keep(groups.setdefault(record.group_id, ConsumerGroup(record.group_id)), record)


def keep(
    group: ConsumerGroup,
    record: ConsumerMemberStored | GroupEpochStored | TargetEpochStored | TargetStored | CurrentStored | RegexStored,
) -> None:
    match record:
        case GroupEpochStored():
            group.epoch, group.metadata_hash = record.epoch, record.metadata_hash
        case TargetEpochStored():
            aim(group, record.epoch, record.timestamp_ms)
        case TargetStored():
            group.targets[record.member_id] = record.partitions
        case ConsumerMemberStored():
            introduce(group, record)
        case CurrentStored():
            hand_over(group, record)
        case RegexStored():
            group.regexes[record.regex] = record
        case _:
            assert_never(record)


def forget(
    group: ConsumerGroup,
    record: ConsumerMemberDeleted | TargetEpochDeleted | TargetDeleted | CurrentDeleted | RegexDeleted,
) -> None:
    match record:
        case ConsumerMemberDeleted():
            group.uncount(record.member_id)
            member = group.members.pop(record.member_id, None)
            if member is not None:
                group.let_go(member.id, member.holds)
                if member.instance_id is not None and group.static.get(member.instance_id) == member.id:
                    del group.static[member.instance_id]
        case TargetEpochDeleted():
            aim(group, FIRST_EPOCH, 0)
        case TargetDeleted():
            group.targets.pop(record.member_id, None)
        case CurrentDeleted():
            clear(group, record.member_id)
        case RegexDeleted():
            group.regexes.pop(record.regex, None)
        case _:
            assert_never(record)


def aim(group: ConsumerGroup, epoch: int, timestamp_ms: int) -> None:
    group.target_epoch, group.target_timestamp_ms = epoch, timestamp_ms
    for member in group.members.values():
        group.count(member)


def introduce(group: ConsumerGroup, record: ConsumerMemberStored) -> None:
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


def hand_over(group: ConsumerGroup, record: CurrentStored) -> None:
    # Compaction may leave a member's share before the member itself.
    member = group.members.setdefault(record.member_id, ConsumerMember(record.member_id))
    group.let_go(member.id, member.holds)
    member.epoch, member.previous_epoch = record.epoch, record.previous_epoch
    known = record.state in MemberState._value2member_map_
    member.state = MemberState(record.state) if known else MemberState.UNKNOWN
    member.assigned, member.revoking = record.assigned, record.revoking
    group.hold(member.id, record.assigned)
    group.hold(member.id, record.revoking)
    group.count(member)


def clear(group: ConsumerGroup, member_id: str) -> None:
    member = group.members.get(member_id)
    if member is None:
        return
    group.let_go(member.id, member.holds)
    member.epoch = member.previous_epoch = 0
    member.state = MemberState.STABLE
    member.assigned, member.revoking = {}, {}
    group.count(member)
