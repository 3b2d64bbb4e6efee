"""The copies on a node: which role each has, which are deleted or strays, and which logs cannot be used.

A role is decided with every change of the image, unit by unit, and never goes back: a node that was shown a higher
epoch leads again only by an image of that epoch or a later one (CL-L9).

A copy is deleted only when the image says so (CL-F11). A log that works again goes on without a restart. It must
still have everything that was flushed when it broke: the controller may count on that, for an offline replica can be
in the ISR or ELR still (CL-F9).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    NO_NODE_ID,
    PartitionState,
    TopicPartition,
    halves_of,
)
from muster.coordinator.replication.protocol.replica_fetch import LogBroken, ReplicaLog, ReplicaLogs

# The role of each copy (CL-L9)
# -----------------------------


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

    def silenced(self) -> dict[TopicPartition, int]:
        """Units that this node led until somebody named the epoch that is given here, and no image has come of it."""
        return {unit: epoch for unit, epoch in self._deposed.items() if unit in self._parts}

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


# Copies to delete, and strays (CL-F11)
# -------------------------------------


class CopyRemoval:
    """strays: copies that are kept though the image does not name them, with the ids of their topics."""

    __slots__ = ("_leave", "_logs", "strays")

    def __init__(self, logs: ReplicaLogs, leave: Callable[[TopicPartition, bytes], None]) -> None:
        """leave: have no part in a partition any more, where what is done with it is about the topic of that id, and
        not about a later one of its name."""
        self._logs = logs
        self._leave = leave
        self.strays: dict[TopicPartition, bytes] = {}

    def delete_all(self, name: str, topic_id: bytes) -> None:
        """The topic is deleted."""
        for place, held_id in list(self._logs.held()):
            if place.topic == name and held_id == topic_id:
                self._leave(place, topic_id)
                self._logs.delete(place, topic_id)
                self.strays.pop(place, None)

    def forgotten(self, name: str, known: bytes | None) -> None:
        """The image names the topic no more, or one of another id by this name, and does not say that it was deleted:
        keep what is here. known: the id by which it goes now."""
        for place, topic_id in self._logs.held():
            if place.topic == name and known != topic_id:
                self._leave(place, topic_id)
                self.strays[place] = topic_id

    def let_go(self, copies: Iterable[tuple[TopicPartition, bytes]]) -> None:
        """They are assigned to others, who have everything."""
        for place, topic_id in copies:
            if self._logs.topic_id(place) == topic_id:
                self._logs.delete(place, topic_id)


# Logs that cannot be used (CL-F9)
# --------------------------------

LOOK_AGAIN_MS = 10_000
"""Between two looks at one log: opening one takes reading."""

SHOWN_PATIENCE_MS = 10_000
"""So long an image may take that brings an epoch which a request has named (CL-L9)."""


@dataclass(slots=True)
class LogOutage:
    """kept: how far each half was flushed, where that is known. stays: what its log disagrees about is no matter of the
    disk; it is over with an unclean election of a later epoch than this one. no_room: nothing could be written, so that
    another copy was to lead. corrupt: the halves with records that are not as they were written."""

    kept: Mapping[TopicPartition, int]
    stays: int | None = None
    no_room: bool = False
    corrupt: frozenset[TopicPartition] = frozenset()
    look_ms: int | None = None


class LogOutages:
    """reasons: the partitions that are offline here, with the ids of their topics, as the controller is told."""

    __slots__ = ("_units", "reasons")

    def __init__(self) -> None:
        self.reasons: dict[TopicPartition, tuple[bytes, str]] = {}
        self._units: dict[TopicPartition, LogOutage] = {}

    def __contains__(self, unit: TopicPartition) -> bool:
        return unit in self._units

    def begins(self, unit: TopicPartition, ids: Mapping[TopicPartition, bytes], why: str, outage: LogOutage) -> None:
        """ids: of the topics of its halves."""
        known = self._units.get(unit)
        if known is not None:
            outage.kept = {**known.kept, **outage.kept}
            outage.no_room = outage.no_room or known.no_room
            outage.corrupt |= known.corrupt
        self._units[unit] = outage
        for half, topic_id in ids.items():
            self.reasons[half] = topic_id, why

    def still(self, unit: TopicPartition, why: str) -> None:
        """It was looked at in vain."""
        for half in halves_of(unit):
            if half in self.reasons:
                self.reasons[half] = self.reasons[half][0], why

    def is_over(self, unit: TopicPartition) -> None:
        self._units.pop(unit, None)
        for half in halves_of(unit):
            self.reasons.pop(half, None)

    def corrupt(self, unit: TopicPartition) -> frozenset[TopicPartition]:
        """Its halves with records that are not as they were written."""
        return self._units[unit].corrupt if unit in self._units else frozenset()

    def found_corrupt(self, place: TopicPartition, unit: TopicPartition) -> None:
        if unit in self._units:
            self._units[unit].corrupt |= {place}

    def may_open(self, unit: TopicPartition, unclean_epoch: int, *, led: bool) -> None:
        """Raises LogBroken where opening it is no remedy. led: another node leads it; what is corrupt is better than
        nothing."""
        outage = self._units[unit]
        if (outage.stays is not None and unclean_epoch <= outage.stays) or (outage.corrupt and led):
            raise LogBroken(self.reasons[unit][1])

    def wants_room(self, unit: TopicPartition) -> bool:
        """Whether it is to be asked first if there is room by now."""
        return self._units[unit].no_room

    def must_be_whole(self, unit: TopicPartition, half: TopicPartition, log: ReplicaLog) -> None:
        """Raises LogBroken where the log that was opened lacks what it had."""
        had = self._units[unit].kept.get(half, log.end)
        if log.end < had:
            raise LogBroken(
                f"{half} ends at offset {log.end} after it was reopened, but had been flushed up to {had}: the missing "
                "records may be committed. Restore its directory, or delete it while this node is stopped and give the "
                "node an empty data directory"
            )

    def due(self, now_ms: int) -> TopicPartition | None:
        """A unit to look at anew now, one at a time; it is the next one's turn afterwards."""
        for outage in self._units.values():
            if outage.stays is None and outage.look_ms is None:
                outage.look_ms = now_ms + LOOK_AGAIN_MS
        found = min(
            ((outage.look_ms, unit) for unit, outage in self._units.items() if outage.look_ms is not None), default=None
        )
        if found is None or found[0] > now_ms:
            return None
        self._units[found[1]].look_ms = now_ms + LOOK_AGAIN_MS
        return found[1]
