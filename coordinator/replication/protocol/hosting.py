"""What a node does with its copies when it hears how the cluster stands: leads, follows or rests.

It is asked with every change of the image, unit by unit. It never takes a step back: who was shown a higher epoch leads
no more until an image of that epoch, or a later one, says so (CL-L9).
"""

from dataclasses import dataclass
from typing import TypeAlias

from muster.coordinator.replication.protocol.facts import NO_EPOCH, NO_NODE_ID, PartitionState, TopicPartition


@dataclass(frozen=True, slots=True)
class BecomeLeader:
    """Become the unit's leader; or, at the epoch that this node leads already, hear who is in sync now."""

    unit: TopicPartition
    state: PartitionState
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BecomeFollower:
    """Copy from another node. What was on its way from a former leader, or in a former epoch, is void."""

    unit: TopicPartition
    state: PartitionState


@dataclass(frozen=True, slots=True)
class BecomeIdle:
    """Keep the copy, and do nothing with it: nobody leads, or this node has no part in the unit any more."""

    unit: TopicPartition


RoleChange: TypeAlias = BecomeLeader | BecomeFollower | BecomeIdle


@dataclass(slots=True)
class HostedUnit:
    """What a node does with one unit: at which epoch, after whom. leader NOBODY: it rests."""

    topic_id: bytes
    leader: int = NO_NODE_ID
    epoch: int = NO_EPOCH
    partition_epoch: int = NO_EPOCH
    replicas: tuple[int, ...] = ()


class HostedUnits:
    """The units that node `me` has a part in."""

    def __init__(self, me: int) -> None:
        self._me = me
        self._parts: dict[TopicPartition, HostedUnit] = {}
        self._deposed: dict[TopicPartition, int] = {}

    def leads(self, unit: TopicPartition) -> int:
        """The epoch in which this node leads the unit; NO_EPOCH where it does not."""
        part = self._parts.get(unit)
        return part.epoch if part is not None and part.leader == self._me else NO_EPOCH

    def follows(self, unit: TopicPartition) -> tuple[int, int]:
        """(leader, epoch) of a unit that this node copies; (NOBODY, NO_EPOCH) where it does not."""
        part = self._parts.get(unit)
        if part is None or part.leader in (NO_NODE_ID, self._me):
            return NO_NODE_ID, NO_EPOCH
        return part.leader, part.epoch

    def is_of_another(self, unit: TopicPartition, topic_id: bytes) -> bool:
        """Whether what this node does with the unit is about a former topic of the same name."""
        part = self._parts.get(unit)
        return part is not None and part.topic_id != topic_id

    def learn(
        self, unit: TopicPartition, topic_id: bytes, state: PartitionState, replicas: tuple[int, ...]
    ) -> RoleChange | None:
        """The image says so of a unit. None: nothing changes here."""
        if self._me not in replicas:
            return self._rest(unit)
        part = self._parts.get(unit)
        if part is None:
            part = self._parts[unit] = HostedUnit(topic_id)
        if state.leader_epoch < part.epoch:
            return None  # an image that is behind what was shown here already
        if state.leader == self._me:
            return self._lead(unit, part, state, replicas)
        if state.leader == NO_NODE_ID:
            part.epoch, part.replicas = state.leader_epoch, replicas
            part.partition_epoch = state.partition_epoch
            return self._rest(unit, keep=part)
        if (part.leader, part.epoch) == (state.leader, state.leader_epoch):
            part.partition_epoch, part.replicas = state.partition_epoch, replicas
            return None
        self._parts[unit] = HostedUnit(topic_id, state.leader, state.leader_epoch, state.partition_epoch, replicas)
        self._deposed.pop(unit, None)
        return BecomeFollower(unit, state)

    def shown(self, unit: TopicPartition, epoch: int) -> BecomeIdle | None:
        """Somebody of the cluster knows the unit at a higher epoch: this node leads it no more (CL-L9)."""
        led = self.leads(unit)
        if led == NO_EPOCH or epoch <= led:
            return None
        self._deposed[unit] = max(epoch, self._deposed.get(unit, NO_EPOCH))
        self._parts[unit].leader = NO_NODE_ID
        return BecomeIdle(unit)

    def begin_again(self, unit: TopicPartition) -> None:
        """What the image says of it is to be done anew: its log had failed. What was shown meanwhile counts."""
        self._parts.pop(unit, None)

    def forget(self, unit: TopicPartition) -> None:
        """Its topic is deleted, or not known any more: nothing of it counts for a later one of the same name."""
        self._parts.pop(unit, None)
        self._deposed.pop(unit, None)

    def _lead(
        self, unit: TopicPartition, part: HostedUnit, state: PartitionState, replicas: tuple[int, ...]
    ) -> BecomeLeader | None:
        if state.leader_epoch < self._deposed.get(unit, NO_EPOCH):
            return None
        same = (part.leader, part.epoch) == (self._me, state.leader_epoch)
        if same and state.partition_epoch <= part.partition_epoch and replicas == part.replicas:
            return None
        self._parts[unit] = HostedUnit(part.topic_id, self._me, state.leader_epoch, state.partition_epoch, replicas)
        self._deposed.pop(unit, None)
        return BecomeLeader(unit, state, replicas)

    def _rest(self, unit: TopicPartition, keep: HostedUnit | None = None) -> BecomeIdle | None:
        part = self._parts.get(unit)
        if part is None:
            return None
        had = part.leader != NO_NODE_ID
        if keep is None:
            self.forget(unit)
        else:
            part.leader = NO_NODE_ID
        return BecomeIdle(unit) if had else None
