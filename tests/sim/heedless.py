"""Shards that do not heed what operators hold, one for each thing that is held."""

import sys
from collections.abc import Callable
from dataclasses import replace

from muster.coordinator.core.classic import replanning
from muster.coordinator.core.consumer import epoch_ledger, migration
from muster.coordinator.core.consumer.group import ConsumerGroup
from muster.coordinator.core.control.overrides import overrides
from muster.coordinator.core.groups.extensions import Extensions
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.model.effects import Effects
from muster.coordinator.core.model.events import Event
from muster.coordinator.core.model.plan import Plan
from muster.coordinator.core.model.plan_correction import CorrectedPlan, GroupSituation
from muster.coordinator.core.model.records import HoldsStored, Record
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.shard import Shard

Overlook = Callable[[HoldsStored], HoldsStored]


class Heedless(Shard):
    """Corrects plans as if less were held."""

    __slots__ = ()
    overlook: Overlook

    def step(self, event: Event, now_ms: int) -> Effects:
        honest = overrides.correct_with_overrides

        def heedless(plan: Plan, holds: HoldsStored, situation: GroupSituation) -> CorrectedPlan:
            return honest(plan, type(self).overlook(holds), situation)

        overrides.correct_with_overrides = heedless
        try:
            return super().step(event, now_ms)
        finally:
            overrides.correct_with_overrides = honest


class ThawedShard(Heedless):
    """A freeze is no reason not to move partitions."""

    overlook = staticmethod(lambda holds: replace(holds, freeze=None, deploy=None, shares=()))


class GreedyNextOwners(Heedless):
    """What a member left is for everybody."""

    overlook = staticmethod(lambda holds: replace(holds, shares=()))


class PinlessShard(Heedless):
    """A pin is a wish."""

    overlook = staticmethod(lambda holds: replace(holds, pins=()))


class UndrainedShard(Heedless):
    """Who is drained gets what he gets, and assignors hear of him."""

    overlook = staticmethod(lambda holds: replace(holds, drains=()))

    def step(self, event: Event, now_ms: int) -> Effects:
        honest, overrides.assignor_input = overrides.assignor_input, lambda group_id, snapshot, people, step: snapshot
        try:
            return super().step(event, now_ms)
        finally:
            overrides.assignor_input = honest


class UnheardExtensions(Extensions):
    """Two modules hear that no member is protected."""

    __slots__ = ()

    def protects_members(self, group_id: str, state: ShardState) -> bool:
        caller = sys._getframe(1).f_globals["__name__"]
        return caller not in (migration.__name__, replanning.__name__) and super().protects_members(group_id, state)


class LedShard(Shard):
    """A group that turns classic has a leader at once, whatever is held of it."""

    def __init__(self, limits: Limits, index: int) -> None:
        super().__init__(limits, index)
        self.state.extensions = UnheardExtensions(self.state.extensions.each)


class ForgottenShard(Shard):
    """Nobody who waits for a KIP-848 group to come to rest is told if a crash was in between."""

    def step(self, event: Event, now_ms: int) -> Effects:
        honest = epoch_ledger.settle_when_stable
        epoch_ledger.settle_when_stable = only_what_is_known
        try:
            return super().step(event, now_ms)
        finally:
            epoch_ledger.settle_when_stable = honest


def only_what_is_known(group: ConsumerGroup, step: Step) -> None:
    if group.at_rest and group.progress.handover is not None:
        epoch_ledger.close_handover(group, step)


class AbsentNextOwners(Shard):
    """What the last member of a protocol leaves waits for nobody."""

    def step(self, event: Event, now_ms: int) -> Effects:
        honest, epoch_ledger.leave_share = epoch_ledger.leave_share, lambda _group, _member, _step: None
        try:
            return super().step(event, now_ms)
        finally:
            epoch_ledger.leave_share = honest


class ForgetfulShard(Shard):
    """Reads no freeze and no pin from the log."""

    def apply(self, record: Record) -> None:
        if isinstance(record, HoldsStored):
            record = replace(record, freeze=None, pins=())
        super().apply(record)
