"""2. Generations that a member sees never go back.

Precisely: as long as the group is not deleted, no member is told to join a generation before one whose plan it was
given. A generation that never got its plan is not on record (Kafka writes none at the end of the join phase), so after
a crash of the node its number may be given again; without a crash between them, numbers only grow.
"""

from coordinator.core.effects import Effects
from coordinator.core.events import Event
from coordinator.core.records import GroupDeleted
from coordinator.core.shard import Shard
from coordinator.errors import ErrorCode
from coordinator.member import events as ev
from tests.sim.client import Process
from tests.sim.watch import Checker
from tests.sim.world import World


class GenerationsNeverGoBack(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.shares: dict[str, int] = {}
        """process -> the newest generation whose plan it got"""
        self.live: dict[str, int] = {}
        """group -> generation, since the shard was last loaded"""

    def loaded(self, shard: int, core: Shard) -> None:
        # A group may be gone as a whole: then nobody had been told that there is one.
        self.live = {
            group_id: number for group_id, number in self.live.items() if self.node.shard_index(group_id) != shard
        }
        self.live.update((group.id, group.generation) for group in core.groups.values())

    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        for record in effects.records:
            if isinstance(record, GroupDeleted):
                self._forget(record.group_id)
        for group in core.groups.values():
            before = self.live.get(group.id, 0)
            if group.generation < before:
                self.fail(f"{group.id} went from generation {before} back to {group.generation}")
            self.live[group.id] = group.generation

    def _forget(self, group_id: str) -> None:
        self.live.pop(group_id, None)
        for process in self.processes:
            if process.settings.group_id == group_id:
                self.shares.pop(process.name, None)

    def told(self, process: Process, event: ev.Event) -> None:
        if isinstance(event, ev.JoinAnswered) and event.code is ErrorCode.NONE:
            newest = self.shares.get(process.name, 0)
            if event.generation < newest:
                self.fail(f"{process} had its share of generation {newest} and is told to join {event.generation}")
        if isinstance(event, ev.SyncAnswered) and event.code is ErrorCode.NONE:
            self.shares[process.name] = max(self.shares.get(process.name, 0), process.member.generation)
