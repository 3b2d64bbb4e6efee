"""Which rule answers which call of `groups/extensions.py`. A new rule is a class here, and a place in `EXTENSIONS`."""

from collections.abc import Callable, Collection, Mapping

from muster.assignors.api import Snapshot
from muster.coordinator.core.control.balance import balance_switch, group_balance
from muster.coordinator.core.control.overrides import override_commands, overrides
from muster.coordinator.core.control.trials import canary, shadow_assignors
from muster.coordinator.core.groups.extensions import Extensions, GroupExtension, GroupView, StandingPlan
from muster.coordinator.core.groups.group import GroupData
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.model.events import Planned
from muster.coordinator.core.model.plan import Plan
from muster.coordinator.core.model.plan_correction import CorrectedPlan
from muster.coordinator.core.model.records import HeldShare, HoldsEnded, MemberIdentifiers, OfOperators
from muster.coordinator.core.model.types import Partitions, RebalanceEntry, TimerKey


class BalanceExtension(GroupExtension):
    """Plans are made from measured loads, and what moved rests."""

    timers = frozenset({balance_switch.BALANCE_TIMER})
    tables = {"plan_recorded": "settings"}  # noqa: RUF012  # nobody changes it

    def prepare_snapshot(self, group: GroupData, snapshot: Snapshot, step: Step) -> Snapshot:
        return group_balance.weigh_snapshot(snapshot, group, step)

    def plan_recorded(self, group_id: str, entry: RebalanceEntry, step: Step) -> None:
        group_balance.note_rebalance(group_id, entry, step)

    def fire_timer(self, key: TimerKey, step: Step) -> None:
        balance_switch.take_sample_due(key[1], step)

    def load(self, step: Step) -> None:
        balance_switch.load_balance(step)

    def take_plan(self, event: Planned, step: Step) -> bool:
        return balance_switch.take_balance_plan(event, step)


class OverrideExtension(GroupExtension):
    """Freezes, deploys, drains and pins correct plans, and shares wait for heirs."""

    timers = overrides.TIMERS
    tables = {"leader_plan_adopted": "holds", "plan_settled": "holds"}  # noqa: RUF012  # nobody changes it

    def protects_members(self, group_id: str, state: ShardState) -> bool:
        return overrides.are_members_protected(state, group_id)

    def restrict_snapshot(self, view: GroupView, snapshot: Snapshot, step: Step) -> Snapshot:
        if view.id not in step.state.holds:
            return snapshot
        return overrides.assignor_input(view.id, snapshot, view.members().values(), step)

    def restore_snapshot(self, group_id: str, seen: Snapshot, whole: Callable[[], Snapshot], step: Step) -> Snapshot:
        return overrides.restore_snapshot(group_id, seen, whole, step)

    def correct_plan(self, view: GroupView, plan: Plan, snapshot: Snapshot, step: Step) -> CorrectedPlan | None:
        return overrides.correct_plan(view, plan, snapshot, step)

    def plan_adopted(self, group_id: str, inherited: tuple[HeldShare, ...], step: Step) -> None:
        overrides.release_inherited_shares(group_id, inherited, step)

    def leader_plan_adopted(self, group_id: str, step: Step) -> None:
        overrides.release_all_shares(group_id, step)

    def member_left(
        self, group_id: str, member: MemberIdentifiers, share: Mapping[str, Partitions], step: Step
    ) -> None:
        overrides.hold_share(group_id, member, share, step)

    def standing_plan(
        self, group_id: str, planned_here: bool, departed: Collection[str], state: ShardState
    ) -> StandingPlan | None:
        return overrides.standing_plan(group_id, planned_here, departed, state)

    def plan_settled(self, group_id: str, step: Step) -> None:
        overrides.note_settled(group_id, step)

    def group_forgotten(self, group_id: str, step: Step) -> None:
        overrides.forget_overrides(group_id, step)

    def fire_timer(self, key: TimerKey, step: Step) -> None:
        override_commands.fire_override_timer(key, step)

    def load(self, step: Step) -> None:
        override_commands.load_overrides(step)

    def take_lost_record(self, tombstone: OfOperators, step: Step) -> bool:
        if not isinstance(tombstone, HoldsEnded):
            return False
        override_commands.take_lost_overrides(tombstone, step)
        return True

    def node_stalled(self, stalled_ms: int, step: Step) -> None:
        overrides.extend_held_shares(stalled_ms, step)


class ShadowExtension(GroupExtension):
    """Other assignors make each decision again, for the ledger."""

    tables = {"entry_kept": "settings"}  # noqa: RUF012  # nobody changes it

    def entry_kept(self, group_id: str, entry: RebalanceEntry, step: Step) -> None:
        shadow_assignors.score_with_shadows(group_id, entry, step)


class CanaryExtension(GroupExtension):
    """An assignor is on trial. `Shard.step` lets canaries see what a step has decided (`watch_canaries`)."""

    timers = frozenset({canary.CANARY_TIMER})

    def group_forgotten(self, group_id: str, step: Step) -> None:
        canary.forget_canary(group_id, step)

    def fire_timer(self, key: TimerKey, step: Step) -> None:
        canary.end_canary_time(key[1], step)

    def load(self, step: Step) -> None:
        canary.load_canaries(step)


EXTENSIONS = Extensions((BalanceExtension(), OverrideExtension(), ShadowExtension(), CanaryExtension()))
"""Balance before overrides: an assignor sees measured loads without the members that are drained."""
