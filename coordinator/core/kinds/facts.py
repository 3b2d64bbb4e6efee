"""Makes the facts true that are the same for every kind of group: offsets, the ledger, settings, the node's diary."""

from collections.abc import Mapping
from typing import Any

from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.groups.facts import FENCE_FACTS
from muster.coordinator.core.groups.kind import FactApplier
from muster.coordinator.core.groups.state import ShardState
from muster.coordinator.core.model.balance_records import BalanceForgotten, BalanceStored
from muster.coordinator.core.model.core_records import (
    DelayForgotten,
    DelayStored,
    LossMended,
    NumbersPassed,
    OffsetDeleted,
    OffsetsStored,
    OffsetStored,
    RebalanceDecided,
    RebalanceForgotten,
    RebalanceSettled,
    RebalanceShadowed,
    SettingsStored,
    SettingsUnset,
    ShadowsForgotten,
    StallForgotten,
    StallNoted,
    TakeoverForgotten,
    TakeoverNoted,
)
from muster.coordinator.core.model.ledger import GroupLedger
from muster.coordinator.core.model.trial_records import CanaryForgotten, CanaryStored
from muster.coordinator.core.model.types import Outcome, StoredOffset
from muster.coordinator.core.model.values import HoldsEnded, HoldsStored


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


def apply_rebalance_decided(state: ShardState, record: RebalanceDecided) -> None:
    ledger = state.ledgers.setdefault(record.group_id, GroupLedger())
    ledger.keep(record.entry)
    ledger.settlements.pop(record.entry.number, None)
    if record.entry.outcome is Outcome.GROUP_DELETED:
        state.farewells.pop(record.group_id, None)
        state.farewells[record.group_id] = record.entry.number
    ledger.shadows.pop(record.entry.number, None)


def apply_rebalance_settled(state: ShardState, record: RebalanceSettled) -> None:
    ledger = state.ledgers.setdefault(record.group_id, GroupLedger())
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


def forget_delay(state: ShardState, record: DelayForgotten) -> None:
    if kept := state.ledgers.get(record.group_id):
        kept.delay = None
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


def note_stall(state: ShardState, record: StallNoted) -> None:
    state.stalls[record.stall.number] = record.stall


def forget_stall(state: ShardState, record: StallForgotten) -> None:
    state.stalls.pop(record.number, None)


def note_takeover(state: ShardState, record: TakeoverNoted) -> None:
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
    StallNoted: note_stall,
    StallForgotten: forget_stall,
    TakeoverNoted: note_takeover,
    TakeoverForgotten: forget_takeover,
    NumbersPassed: pass_numbers,
    LossMended: loss_mended,
    **FENCE_FACTS,
}
