"""What must hold of positions in transactions over the nodes of a cluster (`tests.sim.transactions.position_rules`).

Each shard of groups has a model of what its log says, from its load on; in the end one model reads the logs of those
who lead them then. 12: what is live is what a replay finds. 15: each record is written as it was read.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from muster.coordinator.core.model.effects import Effects
from muster.coordinator.core.model.records import TxnMarked, TxnOffsetsStored
from muster.coordinator.runtime.kafka_records import decode_group, encode
from muster.coordinator.runtime.ports import KeyValue, TxnBatchRead
from tests.sim.replication.groups.coordinator import SHARDS, SimGroups, WatchedShard, Watching
from tests.sim.transactions.position_rules import PositionRules
from tests.sim.transactions.positions import PositionsModel
from tests.sim.world import World

if TYPE_CHECKING:
    from tests.sim.replication.node import SimNode


class PositionChecks(Watching):
    def __init__(self, world: World, nodes: "list[SimNode]", history: Any, passed: "Callable[[SimNode], None]") -> None:
        """passed: hears of a node that has decided something about positions in a transaction."""
        self.world, self.nodes, self.history = world, nodes, history
        self.passed = passed
        self.rules = PositionRules(history, self.check)

    def check(self, holds: bool, sentence: str) -> None:
        if not holds:
            checker, _, said = sentence.partition(": ")
            self.world.violated(checker, said)

    # -- while it goes on -----------------------------------------------------------------------------------

    def loaded(self, node: "SimNode", core: WatchedShard) -> None:
        assert node.groups is not None
        core.positions = PositionsModel()
        core.positions.read(node.groups.log.read_groups(core.index))
        if core.positions.waiting:
            self.world.census["shards loaded while positions wait"] += 1
        self.rules.compare(core.positions, core.state, f"{node.name} has loaded of shard {core.index}")

    def stepped(self, node: "SimNode", core: WatchedShard, event: Any, effects: Effects) -> None:
        self.rules.take(core.positions, event, effects)
        self.rules.compare(core.positions, core.state, f"{node.name} knows after {type(event).__name__}")
        if any(isinstance(each, TxnOffsetsStored | TxnMarked) for each in effects.records):
            self.passed(node)

    # -- the end --------------------------------------------------------------------------------------------

    def end(self, shown_records: set[tuple[Any, Any, int]]) -> None:
        model = PositionsModel()
        for shard in range(SHARDS):
            groups = self.leader_of(shard)
            if groups is None:
                self.check(False, f"16: shard {shard} of groups is not served")
                continue
            opened = groups.log.known(shard).open_transactions()
            self.check(not opened, f"8: {opened} are open in shard {shard} of groups")
            items = list(groups.log.read_groups(shard))
            mine = PositionsModel()
            mine.read(items)
            live: Any = groups.engine.core(shard)
            self.rules.compare(mine, live.state, f"in the end shard {shard} knows")
            model.read(items)
            for item in items:
                self.check_bytes(item)
        for transaction in self.history.transactions:
            self.rules.check_transaction(model, transaction, shown_records)
            self.world.census["positions of transactions that count"] += len(model.counted.get(repr(transaction), ()))
        if self.history.options.workers:
            self.rules.check_exactly_once(model)

    def leader_of(self, shard: int) -> SimGroups | None:
        sides = [node.groups for node in self.nodes if node.alive and node.groups is not None]
        served = [each for each in sides if each.coordinating.leads(shard) and each.engine.core(shard) is not None]
        return max(served, key=lambda each: each.coordinating.epoch_of(shard), default=None)

    def check_bytes(self, item: Any) -> None:
        if isinstance(item, TxnBatchRead):
            for stored in item.records:
                again = [KeyValue(*each) for each in encode([decode_group(stored)]).groups]  # type: ignore[list-item]
                same = [(each.key, each.value) for each in again] == [(stored.key, stored.value)]
                self.check(same, f"15: {stored} is read, and written as {again}")
