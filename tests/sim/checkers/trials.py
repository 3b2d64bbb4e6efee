"""16. Assignors on trial harm nobody: one canary at a time, which leaves the settings as they were, and idle shadows.

While a canary runs its candidate is who is wanted, and nobody changes what was set before. After a roll-back that is
still set; after a promotion the candidate is. Of each group's shadows one decision is asked at a time, and their answer
does nothing but what is told beside an entry that is there.
"""

from muster.assignors.api import JsonValue
from muster.coordinator.core.model.effects import Effects
from muster.coordinator.core.model.events import Event, Shadowed, StartCanary
from muster.coordinator.core.model.records import (
    CanaryForgotten,
    CanaryState,
    CanaryStored,
    RebalanceShadowed,
    ShadowsForgotten,
)
from muster.coordinator.core.model.shadow_scoring import ShadowRequest
from muster.coordinator.core.model.types import Outcome
from muster.coordinator.core.settings.assignor_choice import chosen_assignor
from muster.coordinator.core.shard import Shard
from tests.sim.watch import Checker
from tests.sim.world import World

Set = tuple[JsonValue, JsonValue]
Begun = tuple[str, int, str, int]


class TrialsHarmNobody(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.canaries: dict[str, CanaryStored] = {}
        self.settings: dict[str, Set] = {}
        self.former: dict[Begun, Set] = {}
        self.asked: dict[int, dict[str, int]] = {}
        """Shard -> group -> the ticket that is out."""

    def before_step(self, shard: int, core: Shard, event: Event) -> None:
        self.canaries = dict(core.state.canaries)
        self.settings = {group_id: chosen(core, group_id) for group_id in {*core.state.settings, *self.canaries}}

    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        self._shadows(shard, core, event, effects)
        # By the event, not by the clock: a word is taken back and given again within one ms.
        begins = {event.group_id} if isinstance(event, StartCanary) else set()
        for record in effects.records:
            if isinstance(record, CanaryForgotten):
                self.canaries.pop(record.group_id, None)
            if isinstance(record, CanaryStored):
                self._canary(core, record, begins=record.group_id in begins)
                begins.discard(record.group_id)
        for group_id, canary in core.state.canaries.items():
            if canary.runs and chosen_assignor(core.state, group_id) != canary.assignor:
                self.fail(f"{canary} runs, and {chosen_assignor(core.state, group_id)!r} is wanted")
            if canary.runs:
                self._as_before(core, canary)

    def loaded(self, shard: int, core: Shard) -> None:
        self.asked.pop(shard, None)
        for canary in core.state.canaries.values():
            if canary.runs:
                self.world.census["canaries that survived a crash"] += 1
                self._as_before(core, canary)

    def _canary(self, core: Shard, now: CanaryStored, *, begins: bool) -> None:
        was = self.canaries.get(now.group_id)
        self.canaries[now.group_id] = now
        if begins or was is None or begun(was) != begun(now):
            if was is not None and was.runs:
                self.fail(f"{now} began while {was} ran")
            if now.state is not CanaryState.CANARY:
                self.fail(f"{now} did not begin")
            self.former[begun(now)] = self.settings.get(now.group_id, (None, None))
            return
        if not was.runs or (was.state is CanaryState.WAITING and now.state is CanaryState.CANARY):
            self.fail(f"{was} became {now}")
        if was.state is not now.state:
            self.world.census[f"canaries {now.state.value}"] += 1
        if now.state is CanaryState.ROLLED_BACK:
            self._as_before(core, now)
        if now.state is CanaryState.PROMOTED and chosen(core, now.group_id) != promoted(now):
            self.fail(f"{now} is not what is set: {chosen(core, now.group_id)}")

    def _as_before(self, core: Shard, canary: CanaryStored) -> None:
        if self.harmed(canary.group_id):
            return  # what was set may have been in the record that says nothing
        former = self.former.get(begun(canary))
        if former != chosen(core, canary.group_id):
            self.fail(f"before {canary} this was set: {former}, now {chosen(core, canary.group_id)}")

    def _shadows(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        out = self.asked.setdefault(shard, {})
        if isinstance(event, Shadowed):
            out.pop(event.group_id, None)
            idle = all(isinstance(record, RebalanceShadowed) for record in effects.records)
            if not idle or effects.replies or effects.timers or effects.notices:
                self.fail(f"{event} did more than to be told: {effects}")
        for request in effects.plans:
            if isinstance(request, ShadowRequest):
                if request.group_id in out:
                    self.fail(f"{request.group_id} has two decisions with its shadows")
                out[request.group_id] = request.ticket
        # A step may amend an entry, with its scores, and then let it go.
        gone = {(each.group_id, each.number) for each in effects.records if isinstance(each, ShadowsForgotten)}
        for record in effects.records:
            if isinstance(record, RebalanceShadowed) and (record.group_id, record.number) not in gone:
                self._told(core, record)

    def _told(self, core: Shard, record: RebalanceShadowed) -> None:
        ledger = core.ledgers.get(record.group_id)
        entry = ledger.entries.get(record.number) if ledger else None
        if entry is None or entry.outcome is not Outcome.COMPLETED:
            self.fail(f"{record} is told beside {entry}")
        real = record.scores[0]
        if not real.failure and real.took_ms is None and (real.differs or len(record.scores) > 5):
            self.fail(f"the plan that counts is measured as another's: {record}")


def begun(canary: CanaryStored) -> Begun:
    return canary.group_id, canary.began_at_ms, canary.assignor, canary.for_ms


def chosen(core: Shard, group_id: str) -> Set:
    """What is set of who plans."""
    stored = core.state.settings.get(group_id)
    values = stored.values if stored else {}
    return values.get("assignor"), values.get("assignor.options")


def promoted(canary: CanaryStored) -> Set:
    return canary.assignor, dict(canary.options) or None
