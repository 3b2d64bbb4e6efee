"""14. What an operator did to positions, or to a whole group, is told: once, with what it was and what it is.

Nothing that members do is told as an operator's.
"""

from muster.coordinator.core.model.effects import DeleteReply, Effects
from muster.coordinator.core.model.events import DeleteGroup, Event, OffsetCommit, OffsetDelete
from muster.coordinator.core.model.records import RebalanceDecided
from muster.coordinator.core.model.types import Outcome, RebalanceEntry
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from tests.sim.watch import Checker
from tests.sim.world import World

TOLD = (Outcome.POSITIONS_CHANGED, Outcome.GROUP_DELETED)

Positions = dict[tuple[str, int], int]


class OperatorsAreTold(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.was: dict[int, Positions] = {}
        """Of the group that each shard's last such request is about: others step while it is at a long one."""
        self.shared: dict[int, bool] = {}

    def before_step(self, shard: int, core: Shard, event: Event) -> None:
        if isinstance(event, OffsetCommit | OffsetDelete | DeleteGroup):
            ledger = core.ledgers.get(event.group_id)
            self.was[shard] = positions(core, event.group_id)
            self.shared[shard] = ledger is not None and ledger.newest is not None

    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        told = [
            record.entry
            for record in effects.records
            if isinstance(record, RebalanceDecided) and record.entry.outcome in TOLD
        ]
        if not isinstance(event, OffsetCommit | OffsetDelete | DeleteGroup):
            wanted = False
        elif isinstance(event, DeleteGroup):
            done = any(isinstance(reply, DeleteReply) and reply.code is ErrorCode.NONE for _, reply in effects.replies)
            wanted = bool(event.operator) and done
        else:
            wanted = self._is_of_an_operator(event, shard) and positions(core, event.group_id) != self.was[shard]
        if len(told) != wanted:
            self.fail(f"{event} is told {len(told)} times, not {int(wanted)}: {told}")
        elif wanted:
            assert isinstance(event, OffsetCommit | OffsetDelete | DeleteGroup)
            self.world.census[f"told of operators: {told[0].outcome.name.lower()}"] += 1
            self._told_truly(core, event, told[0])

    def _is_of_an_operator(self, event: OffsetCommit | OffsetDelete, shard: int) -> bool:
        by_tool = isinstance(event, OffsetDelete) or event.by_tool
        return bool(event.operator) and (by_tool or self.shared[shard])

    def _told_truly(self, core: Shard, event: OffsetCommit | OffsetDelete | DeleteGroup, entry: RebalanceEntry) -> None:
        now, told = positions(core, event.group_id), {(each.topic, each.partition): each for each in entry.positions}
        was = self.was[core.index]
        changed = {place for place in {*now, *was} if now.get(place) != was.get(place)}
        if any(place not in told or told[place].after != now.get(place) for place in changed):
            self.fail(f"{event} changed {was} to {now}, and {entry} tells it otherwise")
        kept = core.ledgers[event.group_id].entries
        if isinstance(event, DeleteGroup) and list(kept.values()) != [entry]:
            self.fail(f"of a deleted group more is told than who deleted it: {kept}")


def positions(core: Shard, group_id: str) -> Positions:
    return {place: value.offset for place, value in core.state.offsets.get(group_id, {}).items()}
