"""A group that ZooKeeper holds, as far as it was seen. All of it is soft: it is looked at again after a restart."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from muster.coordinator.core.groups.group import GroupData
from muster.coordinator.core.model.ledger import MAX_ALSO, RebalanceTrigger
from muster.coordinator.core.model.observed_events import GroupObserved, ObservedMember, TopicPartition
from muster.coordinator.core.model.types import GroupState, TimerKey

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

    def note(self, trigger: RebalanceTrigger) -> None:
        if len(self.also) < MAX_ALSO:
            self.also.append(trigger.detail)


@dataclass(slots=True)
class ObservedGroup:
    """What was last seen, and the rebalance under way."""

    id: str
    seen: GroupObserved
    generation: int
    """The number of rebalances that the ledger counts; members of that era know of none."""
    rebalance: ObservedRebalance | None = None
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
