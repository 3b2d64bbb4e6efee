"""What rules beside the protocols may add to a group's life: overrides, balance, shadow assignors, canaries.

Kinds of groups and the shard call `ShardState.extensions`; `control/extensions.py` says who answers. A kind therefore
knows none of these rules, and a rule that nothing is set for costs one look into its own table.

In the order in which a kind that makes a plan calls them: `protects_members`, `prepare_snapshot`,
`restrict_snapshot`, then, with the assignor's answer, `restore_snapshot`, `correct_plan` and `plan_adopted`.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from muster.assignors.api import Snapshot, TopicPartition
from muster.coordinator.core.groups.group import GroupData
from muster.coordinator.core.model.events import Planned
from muster.coordinator.core.model.ledger import OngoingRebalance
from muster.coordinator.core.model.plan import Plan
from muster.coordinator.core.model.plan_correction import CorrectedPlan, GroupSituation
from muster.coordinator.core.model.records import HeldShare, MemberIdentifiers, OfOperators
from muster.coordinator.core.model.types import Partitions, RebalanceEntry, TimerKey

if TYPE_CHECKING:
    from muster.coordinator.core.groups.state import ShardState, Step


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group of any kind as extensions see it. Members and shares are functions: most groups need neither."""

    id: str
    rebalance: OngoingRebalance | None
    """The rebalance under way, for notes of what changed its plan."""
    members: Callable[[], Mapping[str, MemberIdentifiers]]
    shares: Callable[[], Plan]
    """What each member has so far."""

    def situation(self, snapshot: Snapshot, budget: int) -> GroupSituation:
        return GroupSituation(snapshot, self.members(), self.shares(), budget)


@dataclass(frozen=True, slots=True)
class StandingPlan:
    """Members left, and the plan stands without them. `waiting`: of each, the partitions that wait for its heir."""

    why: str
    waiting: Mapping[str, Collection[TopicPartition]]


class GroupExtension:
    """One rule. It has no state of its own, that is in `ShardState`; what it does not override adds nothing."""

    timers: frozenset[str] = frozenset()
    """First words of the timer keys that are its own."""

    tables: Mapping[str, str] = {}
    """What it is told (`TOLD`) -> the table of `ShardState` by group that says of which groups: of others it is not."""

    # Plans.

    def protects_members(self, group_id: str, state: "ShardState") -> bool:
        """Whether no living member may lose a partition for now: whatever an assignor says does not count."""
        return False

    def prepare_snapshot(self, group: GroupData, snapshot: Snapshot, step: "Step") -> Snapshot:
        """What the plan is made from, as the ledger shows it."""
        return snapshot

    def restrict_snapshot(self, view: GroupView, snapshot: Snapshot, step: "Step") -> Snapshot:
        """What the assignor may see of it."""
        return snapshot

    def restore_snapshot(self, group_id: str, seen: Snapshot, whole: Callable[[], Snapshot], step: "Step") -> Snapshot:
        """What the assignor saw, with the members of the whole snapshot that it did not see."""
        return seen

    def correct_plan(self, view: GroupView, plan: Plan, snapshot: Snapshot, step: "Step") -> CorrectedPlan | None:
        """The plan that counts, noted in the rebalance under way; None: the assignor's own."""
        return None

    def plan_adopted(self, group_id: str, inherited: tuple[HeldShare, ...], step: "Step") -> None:
        """The plan holds from here on, and in it these shares have found their heirs."""

    def leader_plan_adopted(self, group_id: str, step: "Step") -> None:
        """A leader's plan holds from here on: the coordinator could not correct it."""

    # Members.

    def member_left(
        self, group_id: str, member: MemberIdentifiers, share: Mapping[str, Partitions], step: "Step"
    ) -> None:
        """The member is taken out of a group that the coordinator plans for, and leaves this share."""

    def standing_plan(
        self, group_id: str, planned_here: bool, departed: Collection[str], state: "ShardState"
    ) -> StandingPlan | None:
        """Whether the plan stands without the departed, of whom each had a share; None: the others are called back."""
        return None

    # The ledger.

    def plan_recorded(self, group_id: str, entry: RebalanceEntry, step: "Step") -> None:
        """The entry is on record. Older ones may still have to make room."""

    def entry_kept(self, group_id: str, entry: RebalanceEntry, step: "Step") -> None:
        """The ledger is what it will be after this entry."""

    def plan_settled(self, group_id: str, step: "Step") -> None:
        """Every member has what the last plan gives it."""

    def group_forgotten(self, group_id: str, step: "Step") -> None:
        """The group goes, and all that belongs to it."""

    # The shard.

    def fire_timer(self, key: TimerKey, step: "Step") -> None:
        """One of its `timers` is due."""

    def load(self, step: "Step") -> None:
        """The log has been replayed, and the kinds have loaded their groups."""

    def take_lost_record(self, tombstone: OfOperators, step: "Step") -> bool:
        """Whether the record that cannot be read is its own, and the tombstone is kept by it."""
        return False

    def take_plan(self, event: Planned, step: "Step") -> bool:
        """Whether the plan answers a question of its own: then it is not the group's."""
        return False

    def node_stalled(self, stalled_ms: int, step: "Step") -> None:
        """The node heard no member for so long."""


CALLS: Final = tuple(name for name, call in vars(GroupExtension).items() if callable(call) and not name.startswith("_"))
"""What extensions may be asked or told."""

TOLD: Final = ("leader_plan_adopted", "plan_recorded", "entry_kept", "plan_settled")
"""Those of every rebalance, for which nearly no group has anything set: who is in no table is not even asked."""


def answers(extension: GroupExtension, call: str) -> bool:
    """Whether it has an answer of its own."""
    return getattr(type(extension), call) is not getattr(GroupExtension, call)


class Extensions:
    """All of them, asked in this order. The first that corrects a plan, or lets one stand, has the say."""

    __slots__ = ("_answering", "_told", "by_timer", "each")

    def __init__(self, each: tuple[GroupExtension, ...] = ()) -> None:
        self.each = each
        self._answering = {name: tuple(one for one in each if answers(one, name)) for name in CALLS}
        """By call: those that answer it, which is one of four as a rule."""
        self._told = {
            name: tuple((getattr(one, name), one.tables.get(name)) for one in self._answering[name]) for name in TOLD
        }
        """By call: those that are told, and the table that a group has to be in, if there is one."""
        self.by_timer: Mapping[str, GroupExtension] = {word: one for one in each for word in one.timers}
        """First word of a timer key -> whose it is. Other timers are a group's, or the shard's."""

    def protects_members(self, group_id: str, state: "ShardState") -> bool:
        return any(one.protects_members(group_id, state) for one in self._answering["protects_members"])

    def prepare_snapshot(self, group: GroupData, snapshot: Snapshot, step: "Step") -> Snapshot:
        for one in self._answering["prepare_snapshot"]:
            snapshot = one.prepare_snapshot(group, snapshot, step)
        return snapshot

    def restrict_snapshot(self, view: GroupView, snapshot: Snapshot, step: "Step") -> Snapshot:
        for one in self._answering["restrict_snapshot"]:
            snapshot = one.restrict_snapshot(view, snapshot, step)
        return snapshot

    def restore_snapshot(self, group_id: str, seen: Snapshot, whole: Callable[[], Snapshot], step: "Step") -> Snapshot:
        for one in self._answering["restore_snapshot"]:
            seen = one.restore_snapshot(group_id, seen, whole, step)
        return seen

    def correct_plan(self, view: GroupView, plan: Plan, snapshot: Snapshot, step: "Step") -> CorrectedPlan:
        for one in self._answering["correct_plan"]:
            if (corrected := one.correct_plan(view, plan, snapshot, step)) is not None:
                return corrected
        return CorrectedPlan(plan)

    def plan_adopted(self, group_id: str, inherited: tuple[HeldShare, ...], step: "Step") -> None:
        for one in self._answering["plan_adopted"]:
            one.plan_adopted(group_id, inherited, step)

    def leader_plan_adopted(self, group_id: str, step: "Step") -> None:
        for tell, table in self._told["leader_plan_adopted"]:
            if table is None or group_id in getattr(step.state, table):
                tell(group_id, step)

    def member_left(
        self, group_id: str, member: MemberIdentifiers, share: Mapping[str, Partitions], step: "Step"
    ) -> None:
        for one in self._answering["member_left"]:
            one.member_left(group_id, member, share, step)

    def standing_plan(
        self, group_id: str, planned_here: bool, departed: Collection[str], state: "ShardState"
    ) -> StandingPlan | None:
        for one in self._answering["standing_plan"]:
            if (standing := one.standing_plan(group_id, planned_here, departed, state)) is not None:
                return standing
        return None

    def plan_recorded(self, group_id: str, entry: RebalanceEntry, step: "Step") -> None:
        for tell, table in self._told["plan_recorded"]:
            if table is None or group_id in getattr(step.state, table):
                tell(group_id, entry, step)

    def entry_kept(self, group_id: str, entry: RebalanceEntry, step: "Step") -> None:
        for tell, table in self._told["entry_kept"]:
            if table is None or group_id in getattr(step.state, table):
                tell(group_id, entry, step)

    def plan_settled(self, group_id: str, step: "Step") -> None:
        for tell, table in self._told["plan_settled"]:
            if table is None or group_id in getattr(step.state, table):
                tell(group_id, step)

    def group_forgotten(self, group_id: str, step: "Step") -> None:
        for one in self._answering["group_forgotten"]:
            one.group_forgotten(group_id, step)

    def load(self, step: "Step") -> None:
        for one in self._answering["load"]:
            one.load(step)

    def take_lost_record(self, tombstone: OfOperators, step: "Step") -> bool:
        return any(one.take_lost_record(tombstone, step) for one in self._answering["take_lost_record"])

    def take_plan(self, event: Planned, step: "Step") -> bool:
        return any(one.take_plan(event, step) for one in self._answering["take_plan"])

    def node_stalled(self, stalled_ms: int, step: "Step") -> None:
        for one in self._answering["node_stalled"]:
            one.node_stalled(stalled_ms, step)


NO_EXTENSIONS = Extensions()
