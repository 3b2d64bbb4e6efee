"""The data that every kind of group has, which partition a member owns, and a group that ZooKeeper holds.

`GroupData` is what rules shared by all kinds know of a group; what a group answers is its kind's (`kind.py`). An
`ObservedGroup` belongs here because the state itself puts it before the log's group with the same id. All of it is
soft: it is read from ZooKeeper again after a restart.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from muster.assignors.api import TopicPartition
from muster.coordinator.core.groups.member_history import MemberHistory
from muster.coordinator.core.model.events import GroupObserved, ObservedMember
from muster.coordinator.core.model.ledger import MAX_ALSO, RebalanceTrigger, further_trigger
from muster.coordinator.core.model.plan import Plan
from muster.coordinator.core.model.types import (
    FurtherTrigger,
    GroupState,
    Incarnation,
    TimerKey,
    TopicChange,
    TopicChangeKind,
)
from muster.coordinator.errors import CoordinatorError, ErrorCode


class GroupData(Protocol):
    """One group, of whatever kind: the data. What it answers is its kind's (`muster.coordinator.core.groups.kind`)."""

    @property
    def id(self) -> str: ...

    @property
    def state(self) -> Enum:
        """Its value is the word that operators read."""

    @property
    def generation(self) -> int:
        """The number of its last plan, under whatever name its members know that."""

    @property
    def members(self) -> Mapping[str, object]: ...

    @property
    def under_way(self) -> int:
        """The number that the ledger has set aside for the rebalance that is under way; 0 when none is."""

    @property
    def logged(self) -> "GroupData | None":
        """What the log has under this id: itself, unless the group is held elsewhere."""


def group_id_given(group_id: str) -> None:
    if not group_id:
        raise CoordinatorError(ErrorCode.INVALID_GROUP_ID, "group_id is empty; give the group a name")


# Owners
# ------

Owners: TypeAlias = Mapping[str, Mapping[int, str]]
"""topic -> partition -> member"""


class OwnedPartitions(NamedTuple):
    """The owners, and what they follow from where that is known: nothing has to be read anew as long as it is equal."""

    owners: Owners
    stamp: tuple[object, ...] = ()


NOBODY_OWNS = OwnedPartitions({})


def owners_by_partition(plan: Plan) -> Owners:
    """
    >>> owners_by_partition({"a": {"t": (0, 2)}, "b": {"t": (1,)}})
    {'t': {0: 'a', 2: 'a', 1: 'b'}}
    """
    rows: dict[str, dict[int, str]] = {}
    for member, share in plan.items():
        for topic, partitions in share.items():
            row = rows.setdefault(topic, {})
            for partition in partitions:
                row[partition] = member
    return rows


# Groups observed in ZooKeeper
# ----------------------------

ZOOKEEPER = "zookeeper"
"""The type of these groups."""


@dataclass(slots=True)
class ObservedRebalance:
    """A rebalance that was seen to begin, and is not seen to be over yet."""

    trigger: RebalanceTrigger
    started_at_ms: int
    before: dict[TopicPartition, str]
    """The claims when it began."""
    changed_at_ms: int
    also: list[str] = field(default_factory=list)
    triggers: list[FurtherTrigger] = field(default_factory=list)
    topics: list[TopicChange] = field(default_factory=list)
    incarnations: list[Incarnation] = field(default_factory=list)
    gone: dict[str, str] = field(default_factory=dict)
    """member -> why it is no longer there"""
    free_since: dict[TopicPartition, int] = field(default_factory=dict)
    unowned: dict[TopicPartition, int] = field(default_factory=dict)
    """Milliseconds that a partition was seen without a claim, until it was claimed."""
    released_at_ms: int = -1
    claimed: dict[str, int] = field(default_factory=dict)
    """member -> when it last claimed since the newest trigger, in that order"""
    herd: set[str] = field(default_factory=set)
    """Everybody who claimed since it began."""
    notifications: int = 0

    @property
    def deleted(self) -> frozenset[str]:
        """Topics that were deleted, and led to it."""
        changes = (*self.trigger.topics, *self.topics)
        return frozenset(change.topic for change in changes if change.kind is TopicChangeKind.DELETED)

    def note(self, trigger: RebalanceTrigger, now_ms: int) -> None:
        """Something else that woke members while it was under way."""
        if len(self.also) < MAX_ALSO:
            self.also.append(trigger.detail)
            self.triggers.append(further_trigger(trigger, now_ms))
            self.topics.extend(change for change in trigger.topics if change not in self.topics)


@dataclass(slots=True)
class ObservedGroup:
    """What was last seen, and the rebalance under way."""

    id: str
    seen: GroupObserved
    generation: int
    """The number of rebalances that the ledger counts; members of that era know of none."""
    rebalance: ObservedRebalance | None = None
    history: MemberHistory = field(default_factory=MemberHistory)
    arrived_again: list[Incarnation] = field(default_factory=list)
    """Newcomers that are former members, until the rebalance that they begin is noted."""
    logged: GroupData | None = None
    """What the log has under this id: a group on its way between two generations is in both places."""

    @property
    def prevails(self) -> bool:
        """Whether it stands for its id, or the log's group does, which is more alive.

        Members decide; with none on either side the log does.
        """
        return self.logged is None or (bool(self.members) and not self.logged.members)

    @property
    def under_way(self) -> int:
        """Its entries get their number when they are written."""
        return 0

    @property
    def members(self) -> dict[str, ObservedMember]:
        return {member.id: member for member in self.seen.members}

    @property
    def timer(self) -> TimerKey:
        return ("quiet", self.id)

    @property
    def owned(self) -> dict[str, dict[str, list[int]]]:
        """member -> topic -> partitions, of the members that are there."""
        shares: dict[str, dict[str, list[int]]] = {member.id: {} for member in self.seen.members}
        for (topic, partition), owner in sorted(self.seen.owners.items()):
            if owner in shares:
                shares[owner].setdefault(topic, []).append(partition)
        return shares

    @property
    def complete(self) -> bool:
        """Whether every partition that a member subscribes to is claimed by a member that is there."""
        members = self.members
        return all(self.seen.owners.get(tp) in members for tp in self.wanted())

    @property
    def settled(self) -> bool:
        """Whether, besides, everybody who owns something has claimed it since the newest change."""
        if self.rebalance is None:
            return self.complete
        return self.complete and set(self.seen.owners.values()) <= self.rebalance.claimed.keys()

    @property
    def state(self) -> GroupState:
        if not self.seen.members:
            return GroupState.EMPTY
        return GroupState.STABLE if self.rebalance is None and self.complete else GroupState.PREPARING_REBALANCE

    @property
    def late(self) -> tuple[str, ...]:
        """Who has not claimed anything since the newest change."""
        if self.rebalance is None:
            return ()
        return tuple(member.id for member in self.seen.members if member.id not in self.rebalance.claimed)

    def wanted(self) -> Iterator[TopicPartition]:
        topics = {topic for member in self.seen.members for topic in member.topics}
        for topic in sorted(topics):
            for partition in range(self.seen.partitions.get(topic, 0)):
                yield topic, partition
