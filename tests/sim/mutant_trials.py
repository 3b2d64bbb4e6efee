"""Shards whose assignors on trial do harm, on purpose."""

from dataclasses import replace

from muster.coordinator.core.control.trials import canary
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.effects import Effects
from muster.coordinator.core.model.events import Event, Shadowed, StartCanary
from muster.coordinator.core.model.records import CanaryState, CanaryStored, SettingsStored
from muster.coordinator.core.shard import Shard


class CrowdedShard(Shard):
    """Lets a second canary into a group that has one."""

    def step(self, event: Event, now_ms: int) -> Effects:
        if isinstance(event, StartCanary):
            self.state.canaries.pop(event.group_id, None)
        return super().step(event, now_ms)


class KeenShard(Shard):
    """Has the candidate in the settings from the start."""

    def step(self, event: Event, now_ms: int) -> Effects:
        effects = super().step(event, now_ms)
        if isinstance(event, StartCanary) and effects.records and not event.validate_only:
            kept = SettingsStored(event.group_id, 1, {"assignor": self.state.canaries[event.group_id].assignor})
            self.apply(kept)
            effects.records.append(kept)
        return effects


class RashShard(Shard):
    """Promotes what is to be rolled back, and says otherwise."""

    def step(self, event: Event, now_ms: int) -> Effects:
        honest, canary.roll_back_canary = canary.roll_back_canary, rash
        try:
            return super().step(event, now_ms)
        finally:
            canary.roll_back_canary = honest


def rash(running: CanaryStored, why: str, step: Step) -> None:
    canary.promote_canary(running, why, step)
    step.keep(replace(step.state.canaries[running.group_id], state=CanaryState.ROLLED_BACK))


class EagerShard(Shard):
    """Asks for the next decision of a group's shadows while the one before is with them."""

    def step(self, event: Event, now_ms: int) -> Effects:
        self.state.shadowing.clear()
        return super().step(event, now_ms)


class BusybodyShard(Shard):
    """Acts on what shadows answer."""

    def step(self, event: Event, now_ms: int) -> Effects:
        effects = super().step(event, now_ms)
        if isinstance(event, Shadowed):
            effects.timers["assign", event.group_id] = now_ms + 1
        return effects


class SloppyShard(Shard):
    """Lets the setting be changed while a canary runs."""

    def step(self, event: Event, now_ms: int) -> Effects:
        honest, canary.check_no_canary = canary.check_no_canary, lambda _group_id, _names, _step: None
        try:
            return super().step(event, now_ms)
        finally:
            canary.check_no_canary = honest
