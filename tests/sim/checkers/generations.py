"""2. Generations and epochs that a member sees never go back.

Precisely: as long as the group is not deleted, no member is told to join a generation before one whose plan it was
given. A generation that never got its plan is not on record (Kafka writes none at the end of the join phase), so after
a crash of the node its number may be given again; without a crash between them, numbers only grow. A group that changes
its kind counts on, and one of whose records one was damaged may count from the start. The epoch that a KIP-848 member
believes in never falls, whether it was fenced meanwhile or not.
"""

from collections.abc import Iterator

from muster.client.members import events as ev
from muster.coordinator.core.model.effects import Effects
from muster.coordinator.core.model.events import Event
from muster.coordinator.core.model.records import GroupDeleted, GroupEpochDeleted
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from tests.sim.members.client import Process
from tests.sim.watch import Checker
from tests.sim.world import World


class GenerationsNeverGoBack(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.shares: dict[str, int] = {}
        """process -> the newest generation whose plan it got"""
        self.live: dict[str, int] = {}
        """group -> generation or epoch, since the shard was last loaded"""
        self.epochs: dict[str, int] = {}
        """KIP-848 process -> the newest epoch it believed in"""
        self.bereft: set[str] = set()
        """Those whose group was deleted: the next one counts from the start."""

    def loaded(self, shard: int, core: Shard) -> None:
        # A group may be gone as a whole: then nobody had been told that there is one.
        self.live = {
            group_id: number for group_id, number in self.live.items() if self.node.shard_index(group_id) != shard
        }
        self.live.update(numbers(core))

    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        for record in effects.records:
            if isinstance(record, GroupDeleted | GroupEpochDeleted):
                kept = record.group_id in core.groups or record.group_id in core.consumer_groups
                if not kept:
                    self._forget(record.group_id)
        for group_id, number in numbers(core):
            before = self.live.get(group_id, 0)
            if number < before:
                self.fail(f"{group_id} went from generation {before} back to {number}")
            self.live[group_id] = number

    def _forget(self, group_id: str) -> None:
        self.live.pop(group_id, None)
        for process in self.processes:
            if process.settings.group_id == group_id:
                self.shares.pop(process.name, None)
                self.bereft.add(process.name)

    def told(self, process: Process, event: ev.ClassicEvent | ev.ConsumerEvent) -> None:
        if isinstance(event, ev.JoinAnswered) and event.code is ErrorCode.NONE:
            newest = self.shares.get(process.name, 0)
            if event.generation < newest and not self._may_start_over(process):
                self.fail(f"{process} had its share of generation {newest} and is told to join {event.generation}")
            elif event.generation < newest:  # Its share was under way, or it stood still, while the group was deleted.
                self.bereft.discard(process.name)
                self.shares.pop(process.name, None)
        if isinstance(event, ev.SyncAnswered) and event.code is ErrorCode.NONE:
            self.shares[process.name] = max(self.shares.get(process.name, 0), process.member.generation)

    def _may_start_over(self, process: Process) -> bool:
        return process.name in self.bereft or self.harmed(process.settings.group_id)

    def after_event(self) -> None:
        for process in self.processes:
            if process.consumer:
                self._believes(process, process.member.generation)

    def _believes(self, process: Process, epoch: int) -> None:
        newest = self.epochs.get(process.name, 0)
        if 0 <= epoch < newest and not self._may_start_over(process):
            self.fail(f"{process} was at epoch {newest} and believes in {epoch} now")
        elif 0 <= epoch < newest:
            self.bereft.discard(process.name)
            self.epochs[process.name] = epoch
        elif epoch > newest:
            self.epochs[process.name] = epoch


def numbers(core: Shard) -> Iterator[tuple[str, int]]:
    for group in core.groups.values():
        yield group.id, group.generation
    for consumer_group in core.consumer_groups.values():
        yield consumer_group.id, consumer_group.epoch
