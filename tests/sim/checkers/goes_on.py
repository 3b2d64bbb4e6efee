"""15. What is held goes on and ends: in a group that has come to rest, somebody is to look at a drain whose next
partitions could go, and at a deploy from which everybody is back, whatever crash was in between.
"""

from muster.coordinator.core.control.overrides import overrides
from muster.coordinator.core.control.overrides.override_commands import OverrideContext, override_context
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.effects import Effects
from muster.coordinator.core.model.events import Event
from muster.coordinator.core.model.plan_correction import drained_members
from muster.coordinator.core.shard import Shard
from tests.sim.checkers.replay import group_of
from tests.sim.watch import Checker


class WhatIsHeldGoesOn(Checker):
    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        changed = {group_of(record) for record in effects.records}
        for group_id in sorted(changed & core.state.holds.keys()):
            group = core.state.logged(group_id)
            if group is None or not group.members or overrides.override_look_timer(group_id) in core.state.deadlines:
                continue
            found = override_context(group_id, "", Step(core.state, self.world.node_ms))
            if found.at_rest and not found.plans_itself and not self.harmed(group_id):
                self._nothing_is_left(group_id, found)

    def _nothing_is_left(self, group_id: str, found: OverrideContext) -> None:
        holds = found.holds
        self.world.census["held groups at rest"] += 1
        if holds.deploy is not None and holds.deploy.back >= holds.deploy.expect:
            self.fail(f"{group_id} is at rest, everybody is back, and nobody ends its deploy: {holds}")
        if holds.drains and not holds.calm:
            drained = drained_members(holds, found.situation.who)
            if going := sorted(cell for cell in found.moved_by(holds) if found.owners[cell] in drained):
                self.fail(f"{group_id} is at rest, and nobody drains {going}: {holds}")
