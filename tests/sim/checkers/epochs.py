"""8, for KIP-848 groups: the ledger explains every epoch, and every target.

When an epoch ends, because the next one begins or the group turns classic, the ledger has an entry for it. A new target
is appended together with the entry of its epoch, whose moves lead from the target before to the new one. A group of
whose records one was damaged may skip epochs, and its count begins with a target that nothing explains.
"""

from dataclasses import dataclass, field

from muster.coordinator.core.consumer.group import FIRST_EPOCH, ConsumerGroup, cells
from muster.coordinator.core.model.effects import Effects
from muster.coordinator.core.model.events import Event
from muster.coordinator.core.model.records import (
    ConsumerMemberDeleted,
    ConsumerMemberStored,
    GroupEpochDeleted,
    GroupEpochStored,
    RebalanceDecided,
    Record,
    Shares,
    TargetDeleted,
    TargetEpochStored,
    TargetStored,
)
from muster.coordinator.core.model.types import Outcome, RebalanceEntry
from muster.coordinator.core.shard import Shard
from tests.sim.checkers.decisions import Owners, moved
from tests.sim.watch import Checker
from tests.sim.world import World


@dataclass(slots=True)
class Known:
    """One group as its records tell it."""

    epoch: int = FIRST_EPOCH
    born: int = FIRST_EPOCH
    """The epoch it came with: as a new group, or out of a classic one."""
    targets: dict[str, Shares] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    """member -> its instance id"""
    left: dict[str, str] = field(default_factory=dict)
    """instance id -> the member that held it and went in this step"""
    owners: Owners = field(default_factory=dict)
    """By the last target, those who went since included."""


class EpochsAreExplained(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.known: dict[str, Known] = {}
        self.explained: dict[str, set[int]] = {}
        """group -> the epochs that its ledger has an entry for"""

    def before_step(self, shard: int, core: Shard, event: Event) -> None:
        for known in self.known.values():
            known.left.clear()
        self.explained = {
            group_id: {entry.generation for entry in ledger.entries.values()}
            for group_id, ledger in core.ledgers.items()
        }

    def replayed(self, shard: int, core: Shard) -> None:
        """Who went since the last target is forgotten with the process.

        A loss of power takes the unflushed tails of the two topics apart: the entry of a target may be gone with it,
        before anybody has been told of the target.
        """
        earlier = {
            group_id: known for group_id, known in self.known.items() if self.node.shard_index(group_id) == shard
        }
        for group_id in earlier:
            del self.known[group_id]
        for group in core.consumer_groups.values():
            born = earlier[group.id].born if group.id in earlier else group.epoch
            ledger = core.ledgers.get(group.id)
            told = ledger is not None and any(entry.generation == group.epoch for entry in ledger.entries.values())
            torn = group.epoch == group.target_epoch and not told
            self.known[group.id] = as_loaded(group, group.epoch if torn else min(born, group.epoch))

    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        entries: dict[str, list[RebalanceEntry]] = {}
        for record in effects.records:
            if isinstance(record, RebalanceDecided):
                entries.setdefault(record.group_id, []).append(record.entry)
                self.explained.setdefault(record.group_id, set()).add(record.entry.generation)
        for record in effects.records:
            self._take(record, entries.get(getattr(record, "group_id", ""), []))

    def _take(self, record: Record, entries: list[RebalanceEntry]) -> None:
        match record:
            case GroupEpochDeleted():
                if known := self.known.pop(record.group_id, None):
                    self._ended(record.group_id, known)
            case GroupEpochStored():
                known = self._of(record.group_id, record.epoch)
                if record.epoch != known.epoch:
                    self._ended(record.group_id, known)
                known.epoch = record.epoch
            case TargetEpochStored():
                self._decided(record, self._of(record.group_id), entries)
            case ConsumerMemberStored() | ConsumerMemberDeleted() | TargetStored() | TargetDeleted():
                note(self._of(record.group_id), record)
            case _:
                pass

    def _of(self, group_id: str, epoch: int = FIRST_EPOCH) -> Known:
        # A group that was classic begins with its epoch; a new one with its first member.
        return self.known.setdefault(group_id, Known(epoch, epoch))

    def _ended(self, group_id: str, known: Known) -> None:
        explained = known.epoch in self.explained.get(group_id, ()) or self.harmed(group_id)
        if known.epoch > known.born and not explained:
            self.fail(f"epoch {known.epoch} of {group_id} is over, and the ledger says nothing of it")

    def _decided(self, record: TargetEpochStored, known: Known, entries: list[RebalanceEntry]) -> None:
        after = {cell: member for member, share in known.targets.items() for cell in named(share)}
        if record.timestamp_ms == 0 and record.epoch == known.born:
            known.owners = after
            return
        outcome = Outcome.COMPLETED if record.timestamp_ms else Outcome.EMPTIED
        ended = [entry for entry in entries if entry.generation == record.epoch and entry.outcome is outcome]
        if len(ended) != 1 and self.harmed(record.group_id):
            known.owners = after
            return
        if len(ended) != 1:
            self.fail(f"the target of epoch {record.epoch} of {record.group_id} has {len(ended)} explanations, not 1")
            return
        led_to = moved(known.owners, ended[0].moves)
        # The target of a member whose record is damaged may go after others have been given what was in it.
        if led_to != after and not self.harmed(record.group_id):
            self.fail(
                f"the moves into epoch {record.epoch} of {record.group_id} lead from {known.owners} to {led_to}, "
                f"but the target is {after}"
            )
        known.owners = after


def note(known: Known, record: ConsumerMemberStored | ConsumerMemberDeleted | TargetStored | TargetDeleted) -> None:
    match record:
        case ConsumerMemberStored():
            instance_id = record.instance_id
            if instance_id is not None:
                known.instances[record.member_id] = instance_id
                if old := known.left.pop(instance_id, None):
                    known.owners = {
                        cell: record.member_id if owner == old else owner for cell, owner in known.owners.items()
                    }
        case ConsumerMemberDeleted():
            if instance_id := known.instances.pop(record.member_id, None):
                known.left[instance_id] = record.member_id
        case TargetStored():
            known.targets[record.member_id] = record.partitions
        case TargetDeleted():
            known.targets.pop(record.member_id, None)


def as_loaded(group: ConsumerGroup, born: int) -> Known:
    return Known(
        group.epoch,
        born,
        dict(group.targets),
        {member.id: member.instance_id for member in group.members.values() if member.instance_id is not None},
        {},
        {cell: member for member, share in group.targets.items() for cell in named(share)},
    )


def named(share: Shares) -> list[tuple[str, int]]:
    """The ids of the simulation are the names, filled up."""
    return [(topic.rstrip(b"\0").decode(), partition) for topic, partition in cells(share)]
