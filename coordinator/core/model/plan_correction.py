"""Corrects a plan by the operator's overrides: snapshot, plan and overrides in, plan out. Pure.

While the group is calm (a freeze, a deploy, a share that waits for its heir) no living member loses a partition and
the assignor's plan is ignored. Otherwise the assignor's plan counts, except for drains and pins.

Where partitions move to keep members even, `PartitionWeights` measures by what the plan was made even by: counts, or
lags and loads over `member.capacity`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from muster.assignors.api import Assignment, Assignor, JsonValue, Member, Snapshot, TopicPartition
from muster.assignors.data.values import HANDOVER, HELD, WHOLE
from muster.coordinator.core.model.plan import Plan
from muster.coordinator.core.model.records import By, HeldShare, HoldsStored, MemberIdentifiers, Orphans

if TYPE_CHECKING:
    from muster.assignors.tools.what_if import Decide

# Weights
# -------

CAPACITY = "member.capacity"

PAYS = 0.05
"""By this share the heavier of two members has to become lighter for a further partition to move."""

NEGLIGIBLE_WEIGHT = 1e-9
"""Of one partition more or less it is enough that it is lighter at all; sums of fractions are not exact."""


@dataclass(frozen=True, slots=True)
class PartitionWeights:
    """`lags` None: each partition weighs the same. Only an assignor that goes by lags, or loads, is told of any."""

    lags: Mapping[str, Sequence[int]] | None
    capacity: Mapping[str, float]
    """By member id; 1 where nothing is said."""

    @property
    def by_count(self) -> bool:
        return self.lags is None

    def of(self, cell: TopicPartition) -> float:
        """Idle partitions weigh a little, as for the assignors: they are spread, too."""
        if self.lags is None:
            return 1.0
        topic, partition = cell
        row = self.lags.get(topic, ())
        return 1.0 + (max(0, row[partition]) if partition < len(row) else 0)

    def worth_it(self, heaviest: float) -> float:
        """What the heavier of two members may carry at most after a partition moved for evenness alone."""
        return heaviest * (1 - (NEGLIGIBLE_WEIGHT if self.by_count else PAYS))

    def carried(self, member_id: str, weight: float) -> float:
        """So much weight, as this member carries it."""
        return weight / self.capacity.get(member_id, 1.0)


def weights_of(snapshot: Snapshot) -> PartitionWeights:
    """By what the assignor of this snapshot makes members even."""
    stated = snapshot.options.get(CAPACITY)
    table = stated if isinstance(stated, Mapping) else {}
    capacity: dict[str, float] = {}
    for member in snapshot.members:
        for name in (member.id, member.instance_id):
            share = table.get(name) if name is not None else None
            if isinstance(share, int | float) and share > 0:
                capacity[member.id] = float(share)
                break
    return PartitionWeights(snapshot.lags, capacity)


# Corrections
# -----------

MAX_GIVEN = 100
"""So many partitions at most are given for one that is pinned."""

DRAINS = "drains"
"""As `describe_overrides` names them."""

MAX_NOTES = 5
"""So many are told one by one."""


@dataclass(frozen=True, slots=True)
class GroupSituation:
    """The group that a plan is for: what the plan was made from, who its members are, and what each has so far."""

    snapshot: Snapshot
    who: Mapping[str, MemberIdentifiers]
    had: Plan
    budget: int = 0
    """How many partitions of drained members may move at once; 0: all."""


@dataclass(frozen=True, slots=True)
class CorrectedPlan:
    """The plan that counts. `inherited`: the shares that found an heir in it. `notes`: what the ledger says of it."""

    plan: Plan
    inherited: tuple[HeldShare, ...] = ()
    notes: tuple[str, ...] = ()
    why: str = ""
    """By which holds it is another than the assignor's; empty: it is the assignor's own."""
    unasked: frozenset[str] = frozenset()
    """Members that the assignor was not told of: they are drained."""

    @property
    def left_by(self) -> Plan:
        """Who had what has an heir now. One that came back under its own id is its own heir."""
        return {s.member_id: dict(s.share) for s in self.inherited if s.member_id not in self.plan}

    def told_in(self, snapshot: Snapshot, *, whole: bool = False) -> Snapshot:
        """What the plan was made from, for the ledger: whoever makes it again must not wonder that it differs.

        `whole`: the plan holds nothing back for members, whichever way its assignor hands over.
        """
        asked = without_members(snapshot, self.unasked)
        told: dict[str, JsonValue] = {HELD: self.why} if self.why else {}
        if whole:
            told[HANDOVER] = WHOLE
        return replace(asked, options={**asked.options, **told}) if told else asked


def correct_with_overrides(plan: Plan, holds: HoldsStored, situation: GroupSituation) -> CorrectedPlan:
    """The plan as the holds leave it."""
    draft = DraftPlan(situation.snapshot)
    inherited: tuple[HeldShare, ...] = ()
    if holds.calm:
        inherited, notes = keep_everybody_calm(holds, situation, draft)
    else:
        draft.take_all(plan)
        notes = [*drain_members(holds, situation, draft), *pin_partitions(holds, situation, draft)]
    made = draft.plan()
    why = (
        ""
        if sorted(partition_owner_map(made)) == sorted(partition_owner_map(plan))
        else ", ".join(describe_overrides(holds))
    )
    unasked = frozenset() if holds.calm else drained_members(holds, situation.who)
    return CorrectedPlan(made, inherited, tuple(first_few(notes)), why, unasked)


def describe_overrides(holds: HoldsStored) -> Iterable[str]:
    """What is held, in the order of what beats what."""
    if holds.freeze is not None:
        yield "freeze"
    if holds.deploy is not None:
        yield "deploy"
    elif holds.shares:
        yield "held shares"
    if holds.pins:
        yield "pins"
    if holds.drains:
        yield DRAINS


def decide_with_overrides(holds: HoldsStored, who: Mapping[str, MemberIdentifiers], decide: "Decide") -> "Decide":
    """Plans of a preview as the coordinator would correct them; `who`: the group's members, by id."""
    if holds.nothing:
        return decide

    def corrected(assignor: Assignor, snapshot: Snapshot, withhold: bool) -> Assignment:
        known = {
            each.id: who.get(each.id, MemberIdentifiers(each.id, each.instance_id, "", "")) for each in snapshot.members
        }
        had: dict[str, dict[str, list[int]]] = {}
        for (topic, partition), member_id in sorted(snapshot.owners().items()):
            had.setdefault(member_id, {}).setdefault(topic, []).append(partition)
        plan: Plan = {}
        if not holds.calm:
            asked = without_members(snapshot, drained_members(holds, known))
            plan = as_plan(decide(assignor, asked, False).to_dict())
        made = correct_with_overrides(plan, holds, GroupSituation(snapshot, known, as_plan(had))).plan
        owners, before = {cell: member_id for member_id, cell in partition_owner_map(made)}, snapshot.owners()
        wanted = {topic for member in snapshot.members for topic in member.topics} & snapshot.topics.keys()
        cells = [(topic, partition) for topic in sorted(wanted) for partition in range(snapshot.topics[topic])]
        return Assignment(
            {each.id: made.get(each.id, {}) for each in snapshot.members},
            withheld=[cell for cell in cells if withhold and before.get(cell, owners.get(cell)) != owners.get(cell)],
            unassigned=[cell for cell in cells if cell not in owners],
            note=f"as operators hold the group: {', '.join(describe_overrides(holds))}",
        )

    return corrected


def as_plan(shares: Mapping[str, Mapping[str, Sequence[int]]]) -> Plan:
    return {
        member_id: {topic: tuple(partitions) for topic, partitions in share.items()}
        for member_id, share in shares.items()
    }


@dataclass(slots=True)
class DraftPlan:
    """A plan while it is being changed: each partition has one owner, who reads its topic."""

    snapshot: Snapshot
    readers: dict[str, Member] = field(init=False)
    owner: dict[TopicPartition, str] = field(default_factory=dict)
    count: dict[str, int] = field(init=False)
    weights: PartitionWeights = field(init=False)
    load: dict[str, float] = field(init=False)
    """What each carries, for its capacity: partitions, or what they weigh where the assignor goes by that."""

    def __post_init__(self) -> None:
        self.readers = {member.id: member for member in self.snapshot.members}
        self.count = dict.fromkeys(self.readers, 0)
        self.weights = weights_of(self.snapshot)
        self.load = dict.fromkeys(self.readers, 0.0)

    def may_read(self, member_id: str, cell: TopicPartition) -> bool:
        member = self.readers.get(member_id)
        topic, partition = cell
        return member is not None and topic in member.topics and partition < self.snapshot.topics.get(topic, 0)

    def give(self, cell: TopicPartition, member_id: str) -> None:
        former, weight = self.owner.get(cell), self.weights.of(cell)
        if former is not None:
            self.count[former] -= 1
            self.load[former] -= self.weights.carried(former, weight)
        self.owner[cell] = member_id
        self.count[member_id] += 1
        self.load[member_id] += self.weights.carried(member_id, weight)

    def take_all(self, plan: Plan) -> None:
        """What the plan says, as far as its members are there and read it."""
        for member_id, cell in partition_owner_map(plan):
            if cell not in self.owner and self.may_read(member_id, cell):
                self.give(cell, member_id)

    def least(self, cell: TopicPartition, among: Iterable[str]) -> str | None:
        """Whoever of them carries least and reads it, the first in a tie."""
        able = [member_id for member_id in among if self.may_read(member_id, cell)]
        return min(able, key=self.heaviness, default=None)

    def heaviness(self, member_id: str) -> tuple[float, int]:
        return self.load[member_id], self.count[member_id]

    def heavier_after(self, cell: TopicPartition, giver: str, taker: str) -> float:
        """What the heavier of both would carry if the one gave this to the other."""
        weight, carried = self.weights.of(cell), self.weights.carried
        return max(self.load[giver] - carried(giver, weight), self.load[taker] + carried(taker, weight))

    def of(self, member_id: str) -> list[TopicPartition]:
        return sorted(cell for cell, owner in self.owner.items() if owner == member_id)

    def read_cells(self) -> list[TopicPartition]:
        """Every partition that anybody reads."""
        read = {topic for member in self.readers.values() for topic in member.topics}
        topics = self.snapshot.topics
        return [(topic, partition) for topic in sorted(read & topics.keys()) for partition in range(topics[topic])]

    def plan(self) -> Plan:
        shares: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in self.readers}
        for (topic, partition), member_id in sorted(self.owner.items()):
            shares[member_id].setdefault(topic, []).append(partition)
        return {
            member_id: {topic: tuple(partitions) for topic, partitions in share.items()}
            for member_id, share in shares.items()
        }


def keep_everybody_calm(
    holds: HoldsStored, situation: GroupSituation, draft: DraftPlan
) -> tuple[tuple[HeldShare, ...], list[str]]:
    """Everybody keeps what it has, heirs get what waits for them, and what nobody has is given out or left alone."""
    draft.take_all(situation.had)
    settled = [member_id for member_id, count in draft.count.items() if count]
    drained = drained_members(holds, situation.who)
    inherited, notes = give_to_next_owners(holds, situation, draft, drained)
    still = [share for share in holds.shares if share not in inherited]
    notes += [f"{share.size} partitions of {share.member_id} wait for a replacement" for share in still]
    waiting = {cell for share in still for cell in partition_set(share)}
    if holds.freeze is not None and holds.freeze.orphans is Orphans.KEEP:
        return inherited, notes
    undrained = [member_id for member_id in draft.readers if member_id not in drained]
    able = [member_id for member_id in settled if member_id not in drained]
    for cell in draft.read_cells():
        if cell not in draft.owner and cell not in waiting:
            # Newcomers get nothing as long as anybody else can read it, drained members as long as a newcomer can.
            taker = draft.least(cell, able) or draft.least(cell, undrained) or draft.least(cell, draft.readers)
            if taker is not None:
                draft.give(cell, taker)
    return inherited, notes


def give_to_next_owners(
    holds: HoldsStored, situation: GroupSituation, draft: DraftPlan, drained: frozenset[str]
) -> tuple[tuple[HeldShare, ...], list[str]]:
    """Whoever has nothing is the heir of a share that waits: of the one of its client id, else of the oldest."""
    if holds.freeze is not None:
        return (), []
    idle = [member_id for member_id, count in draft.count.items() if not count and member_id not in drained]
    free = list(holds.shares)
    pairs: list[tuple[str, HeldShare]] = []
    for namesake in (True, False):
        for member_id in list(idle):
            client_id = situation.who[member_id].client_id
            fitting = [share for share in free if not namesake or share.client_id == client_id]
            mine = next((s for s in fitting if any(draft.may_read(member_id, cell) for cell in partition_set(s))), None)
            if mine is not None:
                pairs.append((member_id, mine))
                free.remove(mine)
                idle.remove(member_id)
    for member_id, share in pairs:
        for cell in partition_set(share):
            if draft.may_read(member_id, cell):
                draft.give(cell, member_id)
    notes = [f"{member_id} replaces {share.member_id}: {share.size} partitions" for member_id, share in pairs]
    return tuple(share for _, share in pairs), notes


def drained_members(holds: HoldsStored, who: Mapping[str, MemberIdentifiers]) -> frozenset[str]:
    """The ids of those whom a drain names."""
    if not holds.drains:
        return frozenset()
    return frozenset(
        member_id for member_id, each in who.items() if any(each.is_named(d.by, d.name) for d in holds.drains)
    )


def without_members(snapshot: Snapshot, drained: frozenset[str]) -> Snapshot:
    """What an assignor is asked about where members are drained: they have no capacity, so they are not there."""
    if not drained:
        return snapshot
    return replace(snapshot, members=[member for member in snapshot.members if member.id not in drained])


def drain_members(holds: HoldsStored, situation: GroupSituation, draft: DraftPlan) -> list[str]:
    """What drained members have goes to others, so many at once; what nobody else reads stays theirs."""
    drained = drained_members(holds, situation.who)
    if not drained:
        return []
    staying = [member_id for member_id in draft.readers if member_id not in drained]
    had = {cell: member_id for member_id, cell in partition_owner_map(situation.had)}
    left = situation.budget or len(had)
    gave = dict.fromkeys(sorted(drained), 0)
    for cell in draft.read_cells():
        owner, former = draft.owner.get(cell), had.get(cell, "")
        taker = owner if owner in staying else former if former in staying else draft.least(cell, staying)
        if taker is None or not draft.may_read(taker, cell):
            # Rather a drained member than nobody.
            taker = former if draft.may_read(former, cell) else draft.least(cell, draft.readers)
        elif former in drained and draft.may_read(former, cell):
            taker = taker if left else former
            gave[former] += bool(left)
            left -= bool(left)
        elif owner is None:
            continue  # the assignor's own word
        if taker is not None and taker != owner:
            draft.give(cell, taker)
    return [f"{member_id} is drained of {count} partitions" for member_id, count in gave.items() if count]


def pin_partitions(holds: HoldsStored, situation: GroupSituation, draft: DraftPlan) -> list[str]:
    """What is pinned is its member's, as long as he lives; he gives another for it if he would have too many."""
    notes = []
    pinned = {(pin.topic, pin.partition) for pin in holds.pins}
    drained = drained_members(holds, situation.who)
    had = {cell: member_id for member_id, cell in partition_owner_map(situation.had)}
    for each in holds.pins:
        cell = (each.topic, each.partition)
        meant = [member_id for member_id, who in situation.who.items() if who.is_named(By.ANY, each.name)]
        able = [member_id for member_id in meant if draft.may_read(member_id, cell)]
        former = draft.owner.get(cell)
        if not able or former in able:
            continue
        owner = had[cell] if had.get(cell) in able else min(able, key=draft.heaviness)
        draft.give(cell, owner)
        where = f"{each.topic}-{each.partition}"
        notes.append(f"{where} is pinned to {each.name}: {owner} has it, not {former or 'nobody'}")
        if former is not None and former not in drained:
            even_out(owner, former, pinned, had, draft)
    return notes


def even_out(
    giver: str, taker: str, pinned: set[TopicPartition], had: Mapping[TopicPartition, str], draft: DraftPlan
) -> None:
    """Of his others for it: one where partitions are counted, as many as pay where they have weights.

    Of what makes both as even, best one that the other had, then one that he did not have.
    """
    able = [cell for cell in draft.of(giver) if cell not in pinned and draft.may_read(taker, cell)]

    def merit(cell: TopicPartition) -> tuple[float, bool, bool, TopicPartition]:
        return draft.heavier_after(cell, giver, taker), had.get(cell) != taker, had.get(cell) == giver, cell

    for _ in range(1 if draft.weights.by_count else MAX_GIVEN):
        best = min(able, key=merit, default=None)
        if best is None or draft.heavier_after(best, giver, taker) > draft.weights.worth_it(draft.load[giver]):
            return
        draft.give(best, taker)
        able.remove(best)


def partition_owner_map(plan: Plan) -> Iterable[tuple[str, TopicPartition]]:
    for member_id, share in plan.items():
        for topic, partitions in share.items():
            for partition in partitions:
                yield member_id, (topic, partition)


def partition_set(held: HeldShare) -> Iterable[TopicPartition]:
    for topic, partitions in held.share:
        for partition in partitions:
            yield topic, partition


def first_few(notes: list[str]) -> list[str]:
    return notes if len(notes) <= MAX_NOTES else [*notes[:MAX_NOTES], f"and {len(notes) - MAX_NOTES} more like these"]
