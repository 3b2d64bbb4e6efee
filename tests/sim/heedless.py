"""Shards that do not heed what operators hold, one for each thing that is held."""

from collections.abc import Callable
from dataclasses import replace

from muster.coordinator.core.control.holds import members
from muster.coordinator.core.control.holds.correction import Corrected, Situation
from muster.coordinator.core.control.holds.values import HoldsStored
from muster.coordinator.core.effects import Effects
from muster.coordinator.core.events import Event
from muster.coordinator.core.plan import Plan
from muster.coordinator.core.shard import Shard

Overlook = Callable[[HoldsStored], HoldsStored]


class Heedless(Shard):
    """Corrects plans as if less were held."""

    __slots__ = ()
    overlook: Overlook

    def step(self, event: Event, now_ms: int) -> Effects:
        honest = members.corrected

        def heedless(plan: Plan, holds: HoldsStored, situation: Situation) -> Corrected:
            return honest(plan, type(self).overlook(holds), situation)

        members.corrected = heedless
        try:
            return super().step(event, now_ms)
        finally:
            members.corrected = honest


class ThawedShard(Heedless):
    """A freeze is no reason not to move partitions."""

    overlook = staticmethod(lambda holds: replace(holds, freeze=None, deploy=None, shares=()))


class GreedyHeirs(Heedless):
    """What a member left is for everybody."""

    overlook = staticmethod(lambda holds: replace(holds, shares=()))


class PinlessShard(Heedless):
    """A pin is a wish."""

    overlook = staticmethod(lambda holds: replace(holds, pins=()))


class UndrainedShard(Heedless):
    """Who is drained gets what he gets, and assignors hear of him."""

    overlook = staticmethod(lambda holds: replace(holds, drains=()))

    def step(self, event: Event, now_ms: int) -> Effects:
        honest, members.asked = members.asked, lambda group_id, snapshot, people, step: snapshot
        try:
            return super().step(event, now_ms)
        finally:
            members.asked = honest
