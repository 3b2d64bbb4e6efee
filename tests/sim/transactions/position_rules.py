"""What must hold of positions in transactions, on one node or many: rules 10 and 11, and 2, 3 and 9 of positions."""

from collections.abc import Callable, Set
from typing import Any

from muster.coordinator.core.model.effects import Effects, OffsetFetchReply
from muster.coordinator.core.model.events import ExpireOffsets, OffsetFetch
from muster.coordinator.core.model.records import OffsetDeleted, TxnMarked
from muster.coordinator.errors import ErrorCode
from tests.sim.transactions.clients import Tag, Transaction
from tests.sim.transactions.positions import Key, PositionsModel, known_positions

Source = tuple[int, int]
"""An input: its partition and offset."""


class PositionRules:
    """world: of the producers; check: takes whether something holds, and a sentence that begins with the rule."""

    def __init__(self, world: Any, check: Callable[[bool, str], None]) -> None:
        self.world, self.check = world, check
        self.outputs: dict[Source, Tag] = {}

    # -- while it goes on -----------------------------------------------------------------------------------

    def compare(self, model: PositionsModel, state: Any, what: str) -> None:
        wanted = model.committed(), model.pending()
        live = known_positions(state)
        self.check(live == wanted, f"11: {what} {live}, and the log says {wanted}")

    def take(self, model: PositionsModel, event: Any, effects: Effects) -> None:
        """A shard has stepped."""
        waiting: set[Key] = {key for _, key, _ in model.pending()}
        for record in effects.records:
            if isinstance(event, ExpireOffsets) and isinstance(record, OffsetDeleted):
                key = (record.group_id, record.topic, record.partition)
                self.world.met["position expired"] += 1
                self.check(key not in waiting, f"11: the position {key} expires, and a transaction's waits")
            model.take(record)
            if isinstance(record, TxnMarked):
                self.check_ended(model, record)
        if isinstance(event, OffsetFetch):
            for _, reply in effects.replies:
                if isinstance(reply, OffsetFetchReply) and not reply.code:
                    self.check_fetch(model, event, reply)

    def check_ended(self, model: PositionsModel, record: TxnMarked) -> None:
        """A marker is decided."""
        tags = {each.tag for each in model.ended}
        self.check(len(tags) < 2, f"9: {record} ends positions of several transactions, {sorted(tags)}")
        for each in model.ended:
            self.world.met[f"position {'counts' if record.commit else 'dropped'}"] += 1
            transaction = self.world.tagged.get(each.tag)
            if record.commit and transaction is not None:
                where = f"{each.tag} at {each.key}"
                self.check(transaction.commit_sent, f"11: {where} counts, and nobody asked for a commit")
                self.check(transaction.outcome != "aborted", f"11: {where} counts, and was aborted")

    def check_fetch(self, model: PositionsModel, event: OffsetFetch, reply: OffsetFetchReply) -> None:
        unstable = model.unstable(event.group_id) if event.require_stable else set()
        committed = model.committed()
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

    def check_output(self, place: tuple[str, int], offset: int, tag: Tag) -> None:
        """Something is shown to readers of committed records."""
        if tag.source is not None:
            other = self.outputs.setdefault(tag.source, tag)
            self.check(
                other is tag, f"10: input {tag.source} has two outputs, {other} and {tag} at {place} offset {offset}"
            )

    # -- the end --------------------------------------------------------------------------------------------

    def check_transaction(
        self, model: PositionsModel, transaction: Transaction, shown_records: Set[tuple[Any, Any, int]]
    ) -> None:
        """By the logs as they are in the end. shown_records: transaction, partition and number of what is shown."""
        tag = repr(transaction)
        gone = model.gone.get(tag, set())
        counted, dropped = model.counted.get(tag, set()), model.dropped.get(tag, set())
        self.check(not (counted and dropped), f"11: of {tag} {counted} count and {dropped} do not")
        wanted = transaction.positions
        if transaction.outcome == "committed":
            sentence = f"2: {tag} was committed; of {wanted} count {counted}, {gone} deleted"
            self.check(wanted <= counted | gone, sentence)
        if transaction.outcome == "aborted":
            self.check(not counted, f"3: {tag} was aborted, and {counted} count")
        acked = {place for place in transaction.acked if place[0] not in transaction.lost}
        shown = {(place, number) for place, number in acked if (transaction, place, number) in shown_records}
        if acked and counted:
            self.check(shown == acked, f"11: {counted} of {tag} count, and of its records {shown} of {acked} are shown")
        if acked and dropped:
            self.check(not shown, f"11: {dropped} of {tag} do not count, and {shown} of its records are shown")

    def check_exactly_once(self, model: PositionsModel) -> None:
        options = self.world.options
        for partition in range(options.inputs):
            read = sum(1 for each, _ in self.outputs if each == partition)
            position = model.committed().get((options.group, "in", partition), 0)
            self.check(
                position == read, f"10: {read} inputs of partition {partition} have outputs; position {position}"
            )
            missing = [at for at in range(position) if (partition, at) not in self.outputs]
            self.check(not missing, f"10: inputs {missing} of partition {partition} have no output")
            self.check(position == options.backlog, f"16: only {position} inputs of {partition} were consumed")
