"""What must hold of groups whose positions transactions commit; on top of all that the judge of transactions looks at.

10 exactly once: each input has one output, and a group's position is where its inputs were read to. 11 offsets with
data: a position counts if, and only if, its transaction commits; UNSTABLE_OFFSET_COMMIT is told exactly while one
waits, and what waits keeps what is committed (TX-G6). 12 for positions: live state, replay and a model agree.
"""

from typing import Any

from muster.coordinator.core.model.records import TxnMarked, TxnOffsetsStored
from muster.coordinator.transactions.records import TransactionStored
from tests.sim.transactions.clients import Tag
from tests.sim.transactions.judge import Judge, Place, Violation
from tests.sim.transactions.logs import MarkerBatch
from tests.sim.transactions.position_rules import PositionRules
from tests.sim.transactions.positions import GROUP_PLACE, PositionsModel


class PositionsJudge(Judge):
    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.model = PositionsModel()
        self.rules = PositionRules(world, self.check)
        self.outputs = self.rules.outputs
        self.first: str = ""

    # Whatever is raised in a step would be taken for a bug of the shard.

    def found(self, sentence: str) -> None:
        self.first = self.first or sentence

    def raise_found(self) -> None:
        if self.first:
            raise Violation(self.first)

    def check(self, holds: bool, sentence: str) -> None:
        if not holds:
            self.found(sentence)

    # -- the groups' shard ----------------------------------------------------------------------------------

    def groups_loaded(self, side: Any, shard: Any) -> None:
        """It was replayed."""
        self.model = PositionsModel()
        self.model.read(side.log.read_groups(0))
        self.rules.compare(self.model, shard.state, "a replay finds")

    def groups_stepped(self, side: Any, shard: Any, event: Any, effects: Any) -> None:
        self.rules.take(self.model, event, effects)
        for record in effects.records:
            if isinstance(record, TxnOffsetsStored):
                self.world.passed("positions")
            if isinstance(record, TxnMarked):
                self.position_ends(record, side)
        self.rules.compare(self.model, shard.state, f"after {type(event).__name__} it knows")

    def position_ends(self, record: TxnMarked, side: Any) -> None:
        """A marker is decided; whether that was durable before was looked at when it was sent."""
        self.world.passed("a marker of positions")
        batch = MarkerBatch(record.producer_id, record.epoch, record.commit, record.coordinator_epoch, record.level)
        self.marked(GROUP_PLACE, batch, side.group_log.end_offset)

    # -- the coordinator of transactions --------------------------------------------------------------------

    def check_marked(self, place: Place, prepared: TransactionStored, node: Any) -> None:
        if place != GROUP_PLACE:
            super().check_marked(place, prepared, node)
            return
        data_epoch = prepared.epoch - (prepared.client_level >= 2)
        mine = [(at, each) for at, each in node.groups.durable() if of_producer(each) == prepared.producer_id]
        last_data = max((at for at, each in mine if isinstance(each, tuple) and each[1] <= data_epoch), default=-1)
        done = any(
            isinstance(each, MarkerBatch) and each.epoch == prepared.epoch and at > last_data for at, each in mine
        )
        opened = node.groups.group_log.open_transactions()
        open_yet = any(each.producer_id == prepared.producer_id and each.epoch <= data_epoch for each in opened)
        self.want(done and not open_yet, f"13: {prepared} is complete, and {place} has no durable marker of it")

    def check_shown(self, place: Place, offset: int, tag: Tag) -> None:
        super().check_shown(place, offset, tag)
        self.rules.check_output(place, offset, tag)

    # -- the end --------------------------------------------------------------------------------------------

    def conclude(self, node: Any) -> None:
        self.raise_found()
        super().conclude(node)
        self.want(node.groups.shard is not None, "16: the groups' shard is not served")
        opened = node.groups.group_log.open_transactions()
        self.want(not opened, f"8: {opened} are open in {GROUP_PLACE}")
        self.model = PositionsModel()
        self.model.read(node.groups.log.read_groups(0))
        self.rules.compare(self.model, node.groups.shard.state, "in the end it knows")
        for transaction in self.world.transactions:
            self.rules.check_transaction(self.model, transaction, self.shown_records)
        if self.world.options.workers:
            self.rules.check_exactly_once(self.model)
        self.raise_found()


def of_producer(each: MarkerBatch | tuple[int, int]) -> int:
    return each.producer_id if isinstance(each, MarkerBatch) else each[0]
