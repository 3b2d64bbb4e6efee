"""What a node does with its copies when it hears how the cluster stands: leads, follows or rests.

It is asked with every change of the image, unit by unit. It never takes a step back: who was shown a higher epoch leads
no more until an image of that epoch, or a later one, says so (CL-L9).
"""

from dataclasses import dataclass
from typing import TypeAlias

from muster.coordinator.cluster.facts import NO_EPOCH, NOBODY, State, TopicPartition


@dataclass(frozen=True, slots=True)
class Lead:
    """Become the unit's leader; or, at the epoch that this node leads already, hear who is in sync now."""

    unit: TopicPartition
    state: State
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Follow:
    """Copy from another node. What was on its way from a former leader, or in a former epoch, is void."""

    unit: TopicPartition
    state: State


@dataclass(frozen=True, slots=True)
class Rest:
    """Keep the copy, and do nothing with it: nobody leads, or this node has no part in the unit any more."""

    unit: TopicPartition


Step: TypeAlias = Lead | Follow | Rest


@dataclass(slots=True)
class Part:
    """What a node does with one unit: at which epoch, after whom. leader NOBODY: it rests."""

    topic_id: bytes
    leader: int = NOBODY
    epoch: int = NO_EPOCH
    partition_epoch: int = NO_EPOCH
    replicas: tuple[int, ...] = ()


class Hosting:
    """The units that node `me` has a part in."""

    def __init__(self, me: int) -> None:
        self._me = me
        self._parts: dict[TopicPartition, Part] = {}
        self._deposed: dict[TopicPartition, int] = {}

    def leads(self, unit: TopicPartition) -> int:
        """The epoch in which this node leads the unit; NO_EPOCH where it does not."""
        part = self._parts.get(unit)
        return part.epoch if part is not None and part.leader == self._me else NO_EPOCH

    def follows(self, unit: TopicPartition) -> tuple[int, int]:
        """(leader, epoch) of a unit that this node copies; (NOBODY, NO_EPOCH) where it does not."""
        part = self._parts.get(unit)
        if part is None or part.leader in (NOBODY, self._me):
            return NOBODY, NO_EPOCH
        return part.leader, part.epoch

    def is_of_another(self, unit: TopicPartition, topic_id: bytes) -> bool:
        """Whether what this node does with the unit is about a former topic of the same name."""
        part = self._parts.get(unit)
        return part is not None and part.topic_id != topic_id

    def learn(self, unit: TopicPartition, topic_id: bytes, state: State, replicas: tuple[int, ...]) -> Step | None:
        """The image says so of a unit. None: nothing changes here."""
        if self._me not in replicas:
            return self._rest(unit)
        part = self._parts.get(unit)
        if part is None:
            part = self._parts[unit] = Part(topic_id)
        if state.leader_epoch < part.epoch:
            return None  # an image that is behind what was shown here already
        if state.leader == self._me:
            return self._lead(unit, part, state, replicas)
        if state.leader == NOBODY:
            part.epoch, part.replicas = state.leader_epoch, replicas
            part.partition_epoch = state.partition_epoch
            return self._rest(unit, keep=part)
        if (part.leader, part.epoch) == (state.leader, state.leader_epoch):
            part.partition_epoch, part.replicas = state.partition_epoch, replicas
            return None
        self._parts[unit] = Part(topic_id, state.leader, state.leader_epoch, state.partition_epoch, replicas)
        self._deposed.pop(unit, None)
        return Follow(unit, state)

    def shown(self, unit: TopicPartition, epoch: int) -> Rest | None:
        """Somebody of the cluster knows the unit at a higher epoch: this node leads it no more (CL-L9)."""
        led = self.leads(unit)
        if led == NO_EPOCH or epoch <= led:
            return None
        self._deposed[unit] = max(epoch, self._deposed.get(unit, NO_EPOCH))
        self._parts[unit].leader = NOBODY
        return Rest(unit)

    def begin_again(self, unit: TopicPartition) -> None:
        """What the image says of it is to be done anew: its log had failed. What was shown meanwhile counts."""
        self._parts.pop(unit, None)

    def forget(self, unit: TopicPartition) -> None:
        """Its topic is deleted, or not known any more: nothing of it counts for a later one of the same name."""
        self._parts.pop(unit, None)
        self._deposed.pop(unit, None)

    def _lead(self, unit: TopicPartition, part: Part, state: State, replicas: tuple[int, ...]) -> Lead | None:
        if state.leader_epoch < self._deposed.get(unit, NO_EPOCH):
            return None
        same = (part.leader, part.epoch) == (self._me, state.leader_epoch)
        if same and state.partition_epoch <= part.partition_epoch and replicas == part.replicas:
            return None
        self._parts[unit] = Part(part.topic_id, self._me, state.leader_epoch, state.partition_epoch, replicas)
        self._deposed.pop(unit, None)
        return Lead(unit, state, replicas)

    def _rest(self, unit: TopicPartition, keep: Part | None = None) -> Rest | None:
        part = self._parts.get(unit)
        if part is None:
            return None
        had = part.leader != NOBODY
        if keep is None:
            self.forget(unit)
        else:
            part.leader = NOBODY
        return Rest(unit) if had else None
