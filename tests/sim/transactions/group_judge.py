"""What must hold of groups whose positions transactions commit; on top of all that the judge of transactions looks at.

10 exactly once: each input has one output, and a group's position is where its inputs were read to. 11 offsets with
data: a position counts if, and only if, its transaction commits; UNSTABLE_OFFSET_COMMIT is told exactly while one
waits, and what waits keeps what is committed (TX-G6). 12 for positions: live state, replay and a model agree.
"""

from typing import Any

from muster.coordinator.core.model.effects import OffsetFetchReply
from muster.coordinator.core.model.events import ExpireOffsets, OffsetFetch
from muster.coordinator.core.model.records import OffsetDeleted, TxnMarked, TxnOffsetsStored
from muster.coordinator.errors import ErrorCode
from muster.coordinator.transactions.records import TransactionStored
from tests.sim.transactions.clients import Tag, Transaction
from tests.sim.transactions.judge import Judge, Place, Violation
from tests.sim.transactions.logs import MarkerBatch
from tests.sim.transactions.positions import GROUP_PLACE, PositionsModel, known_positions

Source = tuple[int, int]
"""An input: its partition and offset."""


class PositionsJudge(Judge):
    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.model = PositionsModel()
        self.outputs: dict[Source, Tag] = {}
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
        self.compare(shard, "a replay finds")

    def compare(self, shard: Any, what: str) -> None:
        wanted = self.model.committed(), self.model.pending()
        live = known_positions(shard.state)
        self.check(live == wanted, f"11: {what} {live}, and the log says {wanted}")

    def groups_stepped(self, side: Any, shard: Any, event: Any, effects: Any) -> None:
        waiting = {key for _, key, _ in self.model.pending()}
        for record in effects.records:
            if isinstance(event, ExpireOffsets) and isinstance(record, OffsetDeleted):
                key = (record.group_id, record.topic, record.partition)
                self.world.met["position expired"] += 1
                self.check(key not in waiting, f"11: the position {key} expires, and a transaction's waits")
            self.model.take(record)
            if isinstance(record, TxnOffsetsStored):
                self.world.passed("positions")
            if isinstance(record, TxnMarked):
                self.world.passed("a marker of positions")
                self.position_ends(record, side)
        self.compare(shard, f"after {type(event).__name__} it knows")
        if isinstance(event, OffsetFetch):
            for _, reply in effects.replies:
                if isinstance(reply, OffsetFetchReply) and not reply.code:
                    self.check_fetch(event, reply)

    def position_ends(self, record: TxnMarked, side: Any) -> None:
        """A marker is decided; whether that was durable before was looked at when it was sent."""
        for each in self.model.ended:
            self.world.met[f"position {'counts' if record.commit else 'dropped'}"] += 1
            transaction = self.transaction_of(each.tag)
            if record.commit and transaction is not None:
                where = f"{each.tag} at {each.key}"
                self.check(transaction.commit_sent, f"11: {where} counts, and nobody asked for a commit")
                self.check(transaction.outcome != "aborted", f"11: {where} counts, and was aborted")
        batch = MarkerBatch(record.producer_id, record.epoch, record.commit, record.coordinator_epoch, record.level)
        self.marked(GROUP_PLACE, batch, side.group_log.end_offset)

    def check_fetch(self, event: OffsetFetch, reply: OffsetFetchReply) -> None:
        unstable = self.model.unstable(event.group_id) if event.require_stable else set()
        committed = self.model.committed()
        for place in event.partitions or ():
            refused = reply.refused.get(place)
            told = refused is ErrorCode.UNSTABLE_OFFSET_COMMIT
            self.world.met["told unstable"] += told
            self.check(told == (place in unstable), f"11: of {event.group_id} {place} is told {refused}: {unstable}")
            found = reply.offsets.get(place)
            wanted = committed.get((event.group_id, *place))
            if not told:
                offset = None if found is None else found.offset
                self.check(offset == wanted, f"11: {event.group_id} {place} is told {offset}, committed is {wanted}")

    def transaction_of(self, tag: str) -> Transaction | None:
        transaction: Transaction | None = self.world.tagged.get(tag)
        return transaction

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
        if tag.source is not None:
            other = self.outputs.setdefault(tag.source, tag)
            self.want(other is tag, f"10: input {tag.source} has two outputs, {other} and {tag} at {place}")

    # -- the end --------------------------------------------------------------------------------------------

    def conclude(self, node: Any) -> None:
        self.raise_found()
        super().conclude(node)
        self.want(node.groups.shard is not None, "16: the groups' shard is not served")
        opened = node.groups.group_log.open_transactions()
        self.want(not opened, f"8: {opened} are open in {GROUP_PLACE}")
        self.model = PositionsModel()
        self.model.read(node.groups.log.read_groups(0))
        self.compare(node.groups.shard, "in the end it knows")
        self.raise_found()
        for transaction in self.world.transactions:
            self.check_positions(transaction)
        if self.world.options.workers:
            self.check_exactly_once()

    def check_positions(self, transaction: Transaction) -> None:
        tag, model = repr(transaction), self.model
        gone = model.gone.get(tag, set())
        counted, dropped = model.counted.get(tag, set()), model.dropped.get(tag, set())
        self.want(not (counted and dropped), f"11: of {tag} {counted} count and {dropped} do not")
        wanted = transaction.positions
        if transaction.outcome == "committed":
            self.want(wanted <= counted | gone, f"2: {tag} was committed; of {wanted} count {counted}, {gone} deleted")
        if transaction.outcome == "aborted":
            self.want(not counted, f"3: {tag} was aborted, and {counted} count")
        acked = {place for place in transaction.acked if place[0] not in transaction.lost}
        shown = {(place, number) for place, number in acked if (transaction, place, number) in self.shown_records}
        if acked and counted:
            self.want(shown == acked, f"11: {counted} of {tag} count, and of its records {shown} of {acked} are shown")
        if acked and dropped:
            self.want(not shown, f"11: {dropped} of {tag} do not count, and {shown} of its records are shown")

    def check_exactly_once(self) -> None:
        world = self.world
        for partition in range(world.options.inputs):
            read = sum(1 for each, _ in self.outputs if each == partition)
            position = self.model.committed().get((world.options.group, "in", partition), 0)
            self.want(position == read, f"10: {read} inputs of partition {partition} have outputs; position {position}")
            missing = [at for at in range(position) if (partition, at) not in self.outputs]
            self.want(not missing, f"10: inputs {missing} of partition {partition} have no output")
            self.want(position == world.options.backlog, f"16: only {position} inputs of {partition} were consumed")


def of_producer(each: MarkerBatch | tuple[int, int]) -> int:
    return each.producer_id if isinstance(each, MarkerBatch) else each[0]
