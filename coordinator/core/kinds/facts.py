"""Applies each record to the state, live and in replay: one function for each record type.

`COMMON_FACTS` are the same for every kind: offsets, the ledger, settings, overrides and the shard's diary. The kinds'
own tables follow. Tombstones for unknown things are harmless: compaction leaves them behind.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias, assert_never, get_args

from muster.coordinator.core.central.group import CentralGroup
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.consumer.group import FIRST_EPOCH, ConsumerGroup, ConsumerMember, ConsumerMemberState
from muster.coordinator.core.groups.bookkeeping import FENCE_FACTS
from muster.coordinator.core.groups.kind import FactApplier
from muster.coordinator.core.groups.state import ShardState, WaitingPositions
from muster.coordinator.core.model.events import END
from muster.coordinator.core.model.ledger import GroupLedger
from muster.coordinator.core.model.records import (
    BalanceForgotten,
    BalanceStored,
    CanaryForgotten,
    CanaryStored,
    CentralDeleted,
    CentralStored,
    ConsumerMemberDeleted,
    ConsumerMemberStored,
    CurrentDeleted,
    CurrentStored,
    DelayForgotten,
    DelayStored,
    GroupDeleted,
    GroupEpochDeleted,
    GroupEpochStored,
    GroupStored,
    HoldsEnded,
    HoldsStored,
    LossMended,
    NumbersPassed,
    OffsetDeleted,
    OffsetsStored,
    OffsetStored,
    RebalanceDecided,
    RebalanceForgotten,
    RebalanceSettled,
    RebalanceShadowed,
    RegexDeleted,
    RegexStored,
    SettingsStored,
    SettingsUnset,
    ShadowsForgotten,
    StallForgotten,
    StallRecorded,
    TakeoverForgotten,
    TakeoverRecorded,
    TargetDeleted,
    TargetEpochDeleted,
    TargetEpochStored,
    TargetStored,
    TxnMarked,
    TxnOffsetsStored,
)
from muster.coordinator.core.model.types import Outcome, StoredOffset

# Every kind of group
# -------------------


def simple_group(state: ShardState, group_id: str) -> ClassicGroup:
    """The classic group, made when missing, in place of one of another kind. An offset alone makes a simple group."""
    group = state.find(ClassicGroup, group_id)
    return group or state.put(ClassicGroup(group_id, offsets=offsets_of(state, group_id)))


def offsets_of(state: ShardState, group_id: str) -> dict[tuple[str, int], StoredOffset]:
    return state.offsets.setdefault(group_id, {})


def own_offsets(state: ShardState, group_id: str) -> None:
    """Offsets belong to a group, of whatever kind."""
    if state.logged(group_id) is None:
        simple_group(state, group_id)


def keep_offset(state: ShardState, record: OffsetStored) -> None:
    offsets_of(state, record.group_id)[record.topic, record.partition] = record.value
    own_offsets(state, record.group_id)


def keep_offsets(state: ShardState, record: OffsetsStored) -> None:
    offsets_of(state, record.group_id).update(record.offsets)
    own_offsets(state, record.group_id)


def forget_offset(state: ShardState, record: OffsetDeleted) -> None:
    offsets = state.offsets.get(record.group_id)
    if offsets is None:
        return
    offsets.pop((record.topic, record.partition), None)
    if not offsets and state.find(ClassicGroup, record.group_id) is None:
        del state.offsets[record.group_id]
        state.commit_counts.pop(record.group_id, None)


def keep_pending(state: ShardState, record: TxnOffsetsStored) -> None:
    """They count once the transaction commits. Until then they hold their group, which they may have made."""
    state.pending.stored(record.producer_id, record.group_id, record.offsets)
    own_offsets(state, record.group_id)


def end_transaction(state: ShardState, record: TxnMarked) -> None:
    take_ended(state, state.pending.ended(record.producer_id, END), record.commit)


def end_in_slices(state: ShardState, record: TxnMarked, most: int) -> Iterator[None]:
    """As `end_transaction`; of so many positions at a time, after each of which it yields."""
    for group_id, ended in state.pending.ended(record.producer_id, END).items():
        while ended.values:
            take_ended(state, {group_id: ended.take_first(most)}, record.commit)
            yield


def take_ended(state: ShardState, waiting: Mapping[str, WaitingPositions], commit: bool) -> None:
    """What waited for a marker counts, if it commits, each at its own place in the log: what was written behind it
    counts more, and waits no longer if it is of another transaction before it (TX-G4)."""
    if not commit:
        return
    for group_id, ended in waiting.items():
        state.pending.overtaken(group_id, ended.at)
        keep_offsets(state, OffsetsStored(group_id, ended.values))


def apply_rebalance_decided(state: ShardState, record: RebalanceDecided) -> None:
    ledger = state.ledgers.get(record.group_id) or state.ledgers.setdefault(record.group_id, GroupLedger())
    ledger.keep(record.entry)
    ledger.settlements.pop(record.entry.number, None)
    if record.entry.outcome is Outcome.GROUP_DELETED:
        state.farewells.pop(record.group_id, None)
        state.farewells[record.group_id] = record.entry.number
    ledger.shadows.pop(record.entry.number, None)


def apply_rebalance_settled(state: ShardState, record: RebalanceSettled) -> None:
    ledger = state.ledgers.get(record.group_id) or state.ledgers.setdefault(record.group_id, GroupLedger())
    ledger.settlements[record.settlement.number] = record.settlement


def keep_shadows(state: ShardState, record: RebalanceShadowed) -> None:
    state.ledgers.setdefault(record.group_id, GroupLedger()).shadows[record.number] = record.scores


def forget_shadows(state: ShardState, record: ShadowsForgotten) -> None:
    if ledger := state.ledgers.get(record.group_id):
        ledger.shadows.pop(record.number, None)
        drop_if_empty(state, record.group_id, ledger)


def forget_entry(state: ShardState, record: RebalanceForgotten) -> None:
    ledger = state.ledgers.get(record.group_id)
    if ledger is None:
        return
    ledger.forget(record.number)
    ledger.settlements.pop(record.number, None)
    if state.farewells.get(record.group_id) == record.number:
        del state.farewells[record.group_id]
    ledger.shadows.pop(record.number, None)
    drop_if_empty(state, record.group_id, ledger)


def keep_delay(state: ShardState, record: DelayStored) -> None:
    state.ledgers.setdefault(record.group_id, GroupLedger()).delay = record
    (state.delayed.discard if record.until_ms is None else state.delayed.add)(record.group_id)


def forget_delay(state: ShardState, record: DelayForgotten) -> None:
    if kept := state.ledgers.get(record.group_id):
        kept.delay = None
        state.delayed.discard(record.group_id)
        drop_if_empty(state, record.group_id, kept)


def drop_if_empty(state: ShardState, group_id: str, ledger: GroupLedger) -> None:
    if not (ledger.entries or ledger.settlements or ledger.shadows or ledger.delay):
        del state.ledgers[group_id]


def keep_settings(state: ShardState, record: SettingsStored) -> None:
    state.settings[record.group_id] = record


def unset_settings(state: ShardState, record: SettingsUnset) -> None:
    state.settings.pop(record.group_id, None)


def keep_holds(state: ShardState, record: HoldsStored) -> None:
    state.holds[record.group_id] = record


def end_holds(state: ShardState, record: HoldsEnded) -> None:
    state.holds.pop(record.group_id, None)


def keep_balance(state: ShardState, record: BalanceStored) -> None:
    state.balanced[record.group_id] = record


def forget_balance(state: ShardState, record: BalanceForgotten) -> None:
    state.balanced.pop(record.group_id, None)


def keep_canary(state: ShardState, record: CanaryStored) -> None:
    state.canaries[record.group_id] = record


def forget_canary(state: ShardState, record: CanaryForgotten) -> None:
    state.canaries.pop(record.group_id, None)


def note_stall(state: ShardState, record: StallRecorded) -> None:
    state.stalls[record.stall.number] = record.stall


def forget_stall(state: ShardState, record: StallForgotten) -> None:
    state.stalls.pop(record.number, None)


def note_takeover(state: ShardState, record: TakeoverRecorded) -> None:
    state.takeovers[record.takeover.epoch] = record.takeover


def forget_takeover(state: ShardState, record: TakeoverForgotten) -> None:
    state.takeovers.pop(record.epoch, None)


def pass_numbers(state: ShardState, record: NumbersPassed) -> None:
    state.numbers_passed = record.number


def loss_mended(state: ShardState, record: LossMended) -> None:
    state.losses_mended = record.until


COMMON_FACTS: Mapping[type[Any], FactApplier] = {
    OffsetsStored: keep_offsets,
    OffsetStored: keep_offset,
    OffsetDeleted: forget_offset,
    TxnOffsetsStored: keep_pending,
    TxnMarked: end_transaction,
    RebalanceDecided: apply_rebalance_decided,
    RebalanceSettled: apply_rebalance_settled,
    RebalanceShadowed: keep_shadows,
    ShadowsForgotten: forget_shadows,
    RebalanceForgotten: forget_entry,
    DelayStored: keep_delay,
    DelayForgotten: forget_delay,
    SettingsStored: keep_settings,
    SettingsUnset: unset_settings,
    HoldsStored: keep_holds,
    HoldsEnded: end_holds,
    BalanceStored: keep_balance,
    BalanceForgotten: forget_balance,
    CanaryStored: keep_canary,
    CanaryForgotten: forget_canary,
    StallRecorded: note_stall,
    StallForgotten: forget_stall,
    TakeoverRecorded: note_takeover,
    TakeoverForgotten: forget_takeover,
    NumbersPassed: pass_numbers,
    LossMended: loss_mended,
    **FENCE_FACTS,
}


# Classic groups
# --------------


def apply_group_stored(state: ShardState, record: GroupStored) -> None:
    simple_group(state, record.group_id).stored = record


def apply_group_deleted(state: ShardState, record: GroupDeleted) -> None:
    state.drop(ClassicGroup, record.group_id)
    if not state.offsets.get(record.group_id):
        state.offsets.pop(record.group_id, None)
        state.commit_counts.pop(record.group_id, None)


CLASSIC_FACTS: Mapping[type[Any], FactApplier] = {GroupStored: apply_group_stored, GroupDeleted: apply_group_deleted}


# KIP-848 groups
# --------------

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


# Central groups
# --------------


def apply_central_stored(state: ShardState, record: CentralStored) -> None:
    """The group is of this kind from here on, whatever an older record made of it."""
    group = state.find(CentralGroup, record.group_id)
    (group or state.put(CentralGroup(record.group_id))).own(record)


def apply_central_deleted(state: ShardState, record: CentralDeleted) -> None:
    if state.drop(CentralGroup, record.group_id) and state.offsets.get(record.group_id):
        own_offsets(state, record.group_id)


CENTRAL_FACTS: Mapping[type[Any], FactApplier] = {
    CentralStored: apply_central_stored,
    CentralDeleted: apply_central_deleted,
}
