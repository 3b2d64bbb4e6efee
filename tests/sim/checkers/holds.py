"""15. What is held stays held: who lives in a frozen group keeps what it has, a share that waits is nobody's but its
heir's, a pinned partition is its member's, and a drained member gets nothing new.

What somebody has is taken from records alone, so it is the same through rebalances, through conversions between the
classic protocol and KIP-848, and through crashes. A leader's plan that was under way when a group was frozen counts.
What a member might not read, by the last that was known of its rights, it was to lose in any case: a reload forgets
rights, and a static member that is away says nothing of them, so whoever takes its place has no claim to that either.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from muster.assignors.api import TopicPartition
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.consumer.group import ConsumerGroup
from muster.coordinator.core.consumer.group import cells as of_ids
from muster.coordinator.core.control.overrides import overrides
from muster.coordinator.core.groups.group import GroupData
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.kinds.registry import KINDS
from muster.coordinator.core.model.effects import Effects
from muster.coordinator.core.model.events import Event, HoldGroup, ResumeGroup, TimerFired
from muster.coordinator.core.model.plan import assignment_of
from muster.coordinator.core.model.plan_correction import (
    GroupSituation,
    drained_members,
    partition_owner_map,
    partition_set,
)
from muster.coordinator.core.model.records import By, HoldsStored, Orphans, RebalanceDecided
from muster.coordinator.core.model.rights import TopicRights
from muster.coordinator.core.model.types import GroupState, Outcome, RebalanceEntry
from muster.coordinator.core.shard import Shard
from tests.sim.checkers.replay import group_of
from tests.sim.watch import Checker
from tests.sim.world import World


@dataclass(frozen=True, slots=True)
class Known:
    """A group as its records last told it."""

    kind: type[GroupData]
    situation: GroupSituation
    instances: dict[str, set[TopicPartition]]
    """What a classic group's last plan has for static members, gone or not: each waits for itself."""
    aims: dict[str, set[TopicPartition]]


@dataclass(frozen=True, slots=True)
class Noted:
    """The newest entry of a group's ledger, and its generation, when something began to hold: if the log has lost them,
    nobody was told of it."""

    entry: RebalanceEntry | None
    generation: int


class WhatIsHeldStays(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.known: dict[str, Known] = {}
        self.rested: set[str] = set()
        """Frozen groups that have been at home since: no plan from before the freeze is under way."""
        self.planned_here: dict[str, Noted] = {}
        """Calm groups with members for which the coordinator plans: as long as they are, nobody else does."""
        self.was: dict[str, HoldsStored] = {}
        self.rights: dict[tuple[str, str], TopicRights] = {}
        """Of each member of a held group, by group and member: the last that was known."""
        self.led: set[str] = set()
        """Held groups whose members make their plans, before the step."""

    def before_step(self, shard: int, core: Shard, event: Event) -> None:
        self.was = dict(core.state.holds)
        self.led = {group_id for group_id in self.was if is_led(core.state.logged(group_id))}
        for group_id in self.was:
            group = core.state.logged(group_id)
            if group is not None:
                self._note_rights(group_id, group)
            # Who comes and goes in a rebalance of a classic group leaves no record.
            under_way = isinstance(group, ClassicGroup) and group.state is not GroupState.STABLE
            if group_id not in self.known or under_way:
                self._look(core, group_id)

    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        changed = {group_of(record) for record in effects.records}
        decided = {
            record.group_id
            for record in effects.records
            if isinstance(record, RebalanceDecided) and record.entry.outcome is Outcome.COMPLETED
        }
        by_word = isinstance(event, HoldGroup | ResumeGroup) or (
            isinstance(event, TimerFired) and event.key[0] in overrides.TIMERS
        )
        for group_id in sorted(changed & {*self.was, *core.state.holds}):
            before = self.known.get(group_id)
            self._look(core, group_id)
            after = self.known.get(group_id)
            if before is None or after is None or group_id not in self.was or self.harmed(group_id):
                continue
            self._count_conversion(group_id, before, after)
            if before.kind is not after.kind:
                before = replace(before, instances={})  # who was gone comes as a newcomer
            planned = group_id in decided
            self._compare(core, group_id, before, after.situation, planned=planned, by_word=by_word)
        self._rest(core)

    def _compare(
        self, core: Shard, group_id: str, before: Known, after: GroupSituation, *, planned: bool, by_word: bool
    ) -> None:
        was, now = self.was[group_id], core.state.holds.get(group_id) or HoldsStored(group_id)
        led = group_id in self.led
        if was.freeze is not None and now.freeze is not None and not (led and group_id not in self.rested):
            self._frozen(core, group_id, now, before, after)
        if led or is_led(core.state.logged(group_id)):
            return
        self._nobodys(group_id, now, after)
        if was.deploy is not None and now.deploy is not None and was.freeze is None:
            self._left(group_id, now, before, after, {c for each in aims(core, group_id, after).values() for c in each})
        if by_word:
            return
        self._inherited(core, group_id, was, now, after)
        if planned and was.calm:
            self._stay(core, group_id, before, after)
        elif planned and not now.calm:
            self._pinned(core, group_id, now, after)
            self._drained(core, group_id, now, before, after)

    def loaded(self, shard: int, core: Shard) -> None:
        """Members of classic groups are there only now."""
        for group_id, holds in core.state.holds.items():
            self._look(core, group_id)
            for verb in verbs(holds):
                self.world.census[f"{verb} after a crash"] += 1

    def replayed(self, shard: int, core: Shard) -> None:
        faults = self.node.log.faults
        for group_id in [*self.known, *self.rested, *self.planned_here]:
            if self.node.shard_index(group_id) == shard:
                self.known.pop(group_id, None)
                self.rested.discard(group_id)
                if faults.damage or faults.harm or not kept(self.planned_here.get(group_id), core, group_id):
                    self.planned_here.pop(group_id, None)  # who plans may be in what cannot be read

    def _look(self, core: Shard, group_id: str) -> None:
        group = core.state.logged(group_id)
        self.known.pop(group_id, None)
        if group is not None:
            self._note_rights(group_id, group)
            situation = KINDS[type(group)].situation(group, Step(core.state, self.world.node_ms))
            self.known[group_id] = Known(
                type(group), situation, shares_of_instances(group), aims(core, group_id, situation)
            )

    def _note_rights(self, group_id: str, group: GroupData) -> None:
        for member_id, member in group.members.items():
            if (rights := getattr(member, "rights", None)) is not None:
                self.rights[group_id, member_id] = rights

    def _rest(self, core: Shard) -> None:
        for group_id in {*self.was, *core.state.holds}:
            holds, group = core.state.holds.get(group_id), core.state.logged(group_id)
            if holds is None:
                self.known.pop(group_id, None)
            self._planner(core, group_id, holds, group)
            if holds is None or holds.freeze is None or group is None:
                self.rested.discard(group_id)
                continue
            was = self.was.get(group_id)
            if was is not None and was.freeze is not None and was.freeze.orphans is not holds.freeze.orphans:
                # Another word for what has no owner counts after the plan that a leader makes, as a freeze does.
                self.rested.discard(group_id)
            if not isinstance(group, ClassicGroup) or group.state is GroupState.STABLE:
                self.rested.add(group_id)

    def _planner(self, core: Shard, group_id: str, holds: HoldsStored | None, group: GroupData | None) -> None:
        if holds is None or not holds.calm or group is None or not group.members:
            self.planned_here.pop(group_id, None)
        elif not is_led(group):
            if group_id not in self.planned_here:
                self.planned_here[group_id] = Noted(newest(core, group_id), group.generation)
        elif group_id in self.planned_here:
            self.fail(f"{group_id} has a leader, while nobody may lose anything: {holds}")

    def _count_conversion(self, group_id: str, before: Known, after: Known) -> None:
        if before.kind is not after.kind and before.situation.who:
            to = "KIP-848" if after.kind is ConsumerGroup else "classic"
            for verb in verbs(self.was[group_id]):
                self.world.census[f"{verb} through a conversion to {to}"] += 1

    def _had(self, group_id: str, before: Known, after: GroupSituation) -> dict[str, set[TopicPartition]]:
        """What those who are still there had, of what they might read."""

        def may_read(member_id: str, cell: TopicPartition) -> bool:
            rights = self.rights.get((group_id, member_id))
            return rights is None or rights.may_read(cell[0])

        return as_now(before, after, may_read)

    # What must hold

    def _frozen(self, core: Shard, group_id: str, holds: HoldsStored, before: Known, after: GroupSituation) -> None:
        self.world.census["steps of frozen groups"] += 1
        assert holds.freeze is not None
        had, has = self._had(group_id, before, after), owned(after)
        for member_id, mine in had.items():
            still = claimed(core, group_id, after, member_id)
            if lost := {cell for cell in mine - has[member_id] - still if reads(after, member_id, cell)}:
                self.fail(f"{group_id} is frozen, and {member_id} lost {sorted(lost)}")
        drained = drained_members(holds, after.who)
        settled = [member_id for member_id, mine in had.items() if mine and member_id not in drained]
        had = as_now(before, after, lambda *_: True)
        for member_id, mine in has.items():
            gained = mine - had.get(member_id, set())
            if gained and holds.freeze.orphans is Orphans.KEEP:
                self.fail(f"{group_id} is frozen, and {member_id} got {sorted(gained)}")
            elif not had.get(member_id):
                wrong = {cell for cell in gained if any(reads(after, other, cell) for other in settled)}
                if wrong:
                    self.fail(f"{group_id} is frozen, and the newcomer {member_id} got {sorted(wrong)}")

    def _stay(self, core: Shard, group_id: str, before: Known, after: GroupSituation) -> None:
        """A plan while nobody may lose anything."""
        self.world.census["plans of calm groups"] += 1
        aim = aims(core, group_id, after)
        for member_id, mine in self._had(group_id, before, after).items():
            still = claimed(core, group_id, after, member_id)
            if lost := {c for c in mine - aim.get(member_id, set()) - still if reads(after, member_id, c)}:
                self.fail(f"what {group_id} has is to stay where it is, and {member_id} is to lose {sorted(lost)}")

    def _nobodys(self, group_id: str, holds: HoldsStored, after: GroupSituation) -> None:
        waiting = {cell: share for share in holds.shares for cell in partition_set(share)}
        self.world.census["steps with shares that wait"] += bool(waiting)
        for member_id, has in owned(after).items():
            if taken := sorted(has & waiting.keys()):
                former = waiting[taken[0]].member_id
                self.fail(f"{group_id}: {taken} wait for a replacement of {former}, and {member_id} has them")

    def _left(
        self, group_id: str, holds: HoldsStored, before: Known, after: GroupSituation, given: set[TopicPartition]
    ) -> None:
        """In a deploy what a dynamic member leaves waits, unless it is on its way to another, has an heir by now, or
        nobody is there who could be given it."""
        waiting = {share.member_id for share in holds.shares}
        for member_id, who in before.situation.who.items():
            if who.instance_id is not None or member_id in after.who or member_id in waiting:
                continue
            going = {cell for other, cells in before.aims.items() if other != member_id for cell in cells}
            left = owned(before.situation)[member_id] - going - given
            if left := {cell for cell in left if any(reads(after, other, cell) for other in after.who)}:
                self.fail(f"{group_id} is deployed, and {sorted(left)} that {member_id} left wait for nobody")

    def _inherited(self, core: Shard, group_id: str, was: HoldsStored, now: HoldsStored, after: GroupSituation) -> None:
        """What waits no longer, though nobody's word or time ended that, is one member's: all of it that he reads."""
        aim, still = aims(core, group_id, after), {(share.member_id, share.share) for share in now.shares}
        for share in was.shares if after.who else ():
            if (share.member_id, share.share) in still:
                continue
            self.world.census["shares that found an heir"] += 1
            there = {cell for cell in partition_set(share) if any(reads(after, member_id, cell) for member_id in aim)}
            heirs = {member_id: there - mine for member_id, mine in aim.items() if mine & there}
            whole = (heir for heir, rest in heirs.items() if not any(reads(after, heir, cell) for cell in rest))
            if there and not any(whole):
                self.fail(f"{group_id}: what {share.member_id} left, {sorted(there)}, went to {sorted(heirs)}")

    def _pinned(self, core: Shard, group_id: str, holds: HoldsStored, after: GroupSituation) -> None:
        owners = {cell: member_id for member_id, has in aims(core, group_id, after).items() for cell in has}
        for pin in holds.pins:
            cell = (pin.topic, pin.partition)
            meant = {m for m, who in after.who.items() if who.is_named(By.ANY, pin.name) and reads(after, m, cell)}
            if meant and cell in owners:
                self.world.census["pins that counted"] += 1
                if owners[cell] not in meant:
                    self.fail(f"{group_id}: {cell} is pinned to {pin.name}, and {owners[cell]} has it")

    def _drained(self, core: Shard, group_id: str, holds: HoldsStored, before: Known, after: GroupSituation) -> None:
        drained = drained_members(holds, after.who)
        pinned = {(pin.topic, pin.partition) for pin in holds.pins}
        had = as_now(before, after, lambda *_: True)
        freed = {cell for other, cells in owned(before.situation).items() if other not in after.who for cell in cells}
        for member_id in drained:
            self.world.census["plans with drained members"] += 1
            # What it was to have already and somebody who went worked on became its own by that; it goes by the budget.
            own = had.get(member_id, set()) | (before.aims.get(member_id, set()) & freed)
            new = aims(core, group_id, after).get(member_id, set()) - own - pinned
            others = [m for m in after.who if m not in drained]
            if gained := {cell for cell in new if any(reads(after, other, cell) for other in others)}:
                self.fail(f"{group_id}: {member_id} is drained, and got {sorted(gained)}")


def newest(core: Shard, group_id: str) -> RebalanceEntry | None:
    ledger = core.ledgers.get(group_id)
    return max(ledger.entries.values(), key=lambda entry: entry.number, default=None) if ledger is not None else None


def kept(noted: Noted | None, core: Shard, group_id: str) -> bool:
    """Whether the log has all of that; what the ledger has trimmed was there."""
    ledger, group = core.ledgers.get(group_id), core.state.logged(group_id)
    if noted is None or noted.entry is None or ledger is None or not ledger.entries:
        return False
    if group is None or group.generation < noted.generation:
        return False
    was, now = noted.entry, ledger.entries.get(noted.entry.number)
    if now is None:
        return was.number < min(ledger.entries)
    return (now.started_at_ms, now.cause, now.generation) == (was.started_at_ms, was.cause, was.generation)


def is_led(group: GroupData | None) -> bool:
    return group is not None and KINDS[type(group)].plans_itself(group)


def verbs(holds: HoldsStored) -> Iterator[str]:
    for verb, on in (("freeze", holds.freeze), ("deploy", holds.deploy), ("drain", holds.drains), ("pin", holds.pins)):
        if on:
            yield verb


def owned(situation: GroupSituation) -> dict[str, set[TopicPartition]]:
    held: dict[str, set[TopicPartition]] = {member_id: set() for member_id in situation.who}
    for member_id, cell in partition_owner_map(situation.had):
        held.setdefault(member_id, set()).add(cell)
    return held


def shares_of_instances(group: GroupData) -> dict[str, set[TopicPartition]]:
    stored = group.stored if isinstance(group, ClassicGroup) else None
    return {
        member.group_instance_id: {cell for _, cell in partition_owner_map({"": assignment_of(member.assignment)})}
        for member in (stored.members if stored else ())
        if member.group_instance_id is not None
    }


def as_now(
    before: Known, after: GroupSituation, may_read: Callable[[str, TopicPartition], bool]
) -> dict[str, set[TopicPartition]]:
    """What those who are still there had; a static member may go by another id by now, or have been away."""
    names = {who.instance_id: member_id for member_id, who in after.who.items() if who.instance_id is not None}
    known = before.situation
    had = {names[each]: set(mine) for each, mine in before.instances.items() if each in names}
    for member_id, mine in owned(known).items():
        who = known.who.get(member_id)
        now = member_id if member_id in after.who else names.get(who.instance_id) if who and who.instance_id else None
        if now is not None:
            had.setdefault(now, set()).update(cell for cell in mine if may_read(member_id, cell))
    return had


def aims(core: Shard, group_id: str, situation: GroupSituation) -> dict[str, set[TopicPartition]]:
    """What each member is to have by the last plan, whoever still has to let go of it."""
    group = core.consumer_groups.get(group_id)
    if group is None:
        return owned(situation)
    names = core.state.topic_names
    return {
        member_id: {(names[topic], partition) for topic, partition in of_ids(share) if topic in names}
        for member_id, share in group.targets.items()
    }


def claimed(core: Shard, group_id: str, situation: GroupSituation, member_id: str) -> set[TopicPartition]:
    """What others say that they still work on: it is withheld from whoever was to have it (KIP-429).

    Of a KIP-848 group a snapshot has what the target gives, not what its members say.
    """
    if not isinstance(core.state.logged(group_id), ClassicGroup):
        return set()
    others = (member for member in situation.snapshot.members if member.id != member_id)
    return {(topic, each) for other in others for topic, rows in (other.owned or {}).items() for each in rows}


def reads(situation: GroupSituation, member_id: str, cell: TopicPartition) -> bool:
    """Whether the partition exists, and the member reads it."""
    if cell[1] >= situation.snapshot.topics.get(cell[0], 0):
        return False
    return any(member.id == member_id and cell[0] in member.topics for member in situation.snapshot.members)
