"""15. What is held stays held: who lives in a frozen group keeps what it has, a share that waits is nobody's, a pinned
partition is its member's, and a drained member gets nothing new.
"""

from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.consumer.group import cells as of_ids
from muster.coordinator.core.consumer.records import TargetEpochStored
from muster.coordinator.core.control.holds.correction import Cell, Situation, cells, cells_of, drained_members
from muster.coordinator.core.control.holds.values import By, HoldsStored, Orphans
from muster.coordinator.core.effects import Effects
from muster.coordinator.core.events import Event
from muster.coordinator.core.groups.group import Group
from muster.coordinator.core.groups.kinds import KINDS
from muster.coordinator.core.records import GroupStored
from muster.coordinator.core.shard import Shard
from muster.coordinator.core.state import Step
from muster.coordinator.core.types import GroupState
from tests.sim.watch import Checker
from tests.sim.world import World


class WhatIsHeldStays(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.before: dict[str, tuple[type[Group], HoldsStored, Situation]] = {}

    def before_step(self, shard: int, core: Shard, event: Event) -> None:
        self.before = {}
        for group_id, holds in core.state.holds.items():
            group = core.state.logged(group_id)
            if group is not None and at_home(group):
                self.before[group_id] = type(group), holds, self._situation(core, group)

    def _situation(self, core: Shard, group: Group) -> Situation:
        return KINDS[type(group)].situation(group, Step(core.state, self.world.now_ms))

    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        planned = {record.group_id for record in effects.records if isinstance(record, TargetEpochStored | GroupStored)}
        for group_id, (kind, was, before) in self.before.items():
            group, now = core.state.logged(group_id), core.state.holds.get(group_id)
            if type(group) is not kind or group is None or now is None or self.harmed(group_id) or not at_home(group):
                continue
            after = self._situation(core, group)
            if was.freeze is not None and now.freeze is not None:
                self._frozen(group_id, now, before, after)
            if not KINDS[kind].plans_itself(group):
                self._nobodys(group_id, now, after)
                if group_id in planned and was == now and not now.calm:
                    self._pinned(core, group_id, now, after)
                    self._drained(core, group_id, now, before, after)

    def _frozen(self, group_id: str, holds: HoldsStored, before: Situation, after: Situation) -> None:
        self.world.census["steps of frozen groups"] += 1
        reads = {member.id: set(member.topics) for member in after.snapshot.members}
        for member_id, had in owned(before).items():
            has = owned(after).get(member_id, set())
            lost = {cell for cell in had - has if exists(cell, after) and cell[0] in reads.get(member_id, ())}
            if member_id in after.who and lost:
                self.fail(f"{group_id} is frozen, and {member_id} lost {sorted(lost)}")
        assert holds.freeze is not None
        if holds.freeze.orphans is Orphans.KEEP:
            for member_id, has in owned(after).items():
                instance = after.who[member_id].instance_id
                known = member_id in before.who or (
                    instance is not None and any(each.instance_id == instance for each in before.who.values())
                )
                if has and not known:
                    self.fail(f"{group_id} is frozen, and the newcomer {member_id} got {sorted(has)}")

    def _nobodys(self, group_id: str, holds: HoldsStored, after: Situation) -> None:
        waiting = {cell: share for share in holds.shares for cell in cells_of(share)}
        self.world.census["steps with shares that wait"] += bool(waiting)
        for member_id, has in owned(after).items():
            if taken := sorted(has & waiting.keys()):
                former = waiting[taken[0]].member_id
                self.fail(f"{group_id}: {taken} wait for an heir of {former}, and {member_id} has them")

    def _pinned(self, core: Shard, group_id: str, holds: HoldsStored, after: Situation) -> None:
        owners = {cell: member_id for member_id, has in aims(core, group_id, after).items() for cell in has}
        for pin in holds.pins:
            cell = (pin.topic, pin.partition)
            meant = {m for m, who in after.who.items() if who.is_named(By.ANY, pin.name) and reads(after, m, cell)}
            if meant and cell in owners and exists(cell, after):
                self.world.census["pins that counted"] += 1
                if owners[cell] not in meant:
                    self.fail(f"{group_id}: {cell} is pinned to {pin.name}, and {owners[cell]} has it")

    def _drained(self, core: Shard, group_id: str, holds: HoldsStored, before: Situation, after: Situation) -> None:
        drained = drained_members(holds, after.who)
        pinned = {(pin.topic, pin.partition) for pin in holds.pins}
        for member_id in drained:
            self.world.census["plans with drained members"] += 1
            new = aims(core, group_id, after).get(member_id, set()) - owned(before).get(member_id, set()) - pinned
            others = [m for m in after.who if m not in drained]
            if gained := {cell for cell in new if any(reads(after, other, cell) for other in others)}:
                self.fail(f"{group_id}: {member_id} is drained, and got {sorted(gained)}")


def at_home(group: Group) -> bool:
    """What a classic group is to have is on record when it is stable; in between its leader may say anything."""
    return not isinstance(group, ClassicGroup) or group.state is GroupState.STABLE


def owned(situation: Situation) -> dict[str, set[Cell]]:
    held: dict[str, set[Cell]] = {member_id: set() for member_id in situation.who}
    for member_id, cell in cells(situation.had):
        held.setdefault(member_id, set()).add(cell)
    return held


def aims(core: Shard, group_id: str, situation: Situation) -> dict[str, set[Cell]]:
    """What each member is to have by the last plan, whoever still has to let go of it."""
    group = core.consumer_groups.get(group_id)
    if group is None:
        return owned(situation)
    names = core.state.topic_names
    return {
        member_id: {(names[topic], partition) for topic, partition in of_ids(share) if topic in names}
        for member_id, share in group.targets.items()
    }


def exists(cell: Cell, situation: Situation) -> bool:
    return cell[1] < situation.snapshot.topics.get(cell[0], 0)


def reads(situation: Situation, member_id: str, cell: Cell) -> bool:
    return any(member.id == member_id and cell[0] in member.topics for member in situation.snapshot.members)
