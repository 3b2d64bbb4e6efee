"""What must hold in every run, after every event and at its end. The first violation ends the run.

1 atomic, 2 an acknowledged commit is for ever, 3 no aborted read, 4 what was shown never changes, 5 one decision,
6 legal moves and epochs, 7 fencing, 8 nothing hangs, 9 no late data, 12 replay equals live, 13 answers, markers and
completions rest on durable facts, 14 producer ids are unique, 16 everything ends, 17 nobody times out unheard, 18 an
epoch that fences is given to nobody. (15, bytes: the node decodes and encodes every record.)
"""

from collections import Counter
from collections.abc import Set as AbstractSet
from typing import Any

from muster.coordinator.transactions.effects import EndCause, EndTxnReply, InitProducerIdReply, SendMarkers
from muster.coordinator.transactions.records import MOVES, TransactionExpired, TransactionState, TransactionStored
from tests.sim.transactions.clients import Producer, Tag
from tests.sim.transactions.logs import DataBatch, MarkerBatch

Place = tuple[str, int]
CLOCK_SLACK_MS = 25_000
"""How much clocks of two processes of a node may differ."""


class Violation(Exception):
    """A rule is broken."""


class Judge:
    def __init__(self, world: Any) -> None:
        self.world = world
        self.shown: dict[Place, list[tuple[int, Tag]]] = {}
        self.stable: dict[Place, int] = {}
        self.results: dict[tuple[int, int], bool] = {}
        self.given: dict[tuple[int, int], Producer] = {}
        self.used: dict[int, str] = {}
        self.shown_records: AbstractSet[tuple[Any, Place, int]] = frozenset()
        """Transaction, partition and number of each record that is shown in the end."""
        self.fences: set[tuple[int, int]] = set()
        """Since the shard was loaded: what fences is in no record."""

    def fail(self, sentence: str) -> None:
        raise Violation(sentence)

    def want(self, holds: bool, sentence: str) -> None:
        if not holds:
            self.fail(sentence)

    # -- the coordinator ----------------------------------------------------------------------------------

    def decided(self, before: TransactionStored | None, record: Any, node: Any) -> None:
        if isinstance(record, TransactionExpired):
            return
        known = None if before is None else before.state
        self.want(known in MOVES.get(record.state, ()), f"6: {record} follows {before}")
        if before is not None and before.producer_id == record.producer_id:
            self.want(record.epoch >= before.epoch, f"6: the epoch falls from {before} to {record}")
        elif record.producer_id not in self.used:
            self.used[record.producer_id] = record.transactional_id
        elif before is not None:
            # A power cut may take a rotation back, and its id with it; nobody has heard of that one.
            self.want(self.used[record.producer_id] == record.transactional_id, f"14: {record} has the id of another")
        if before is not None and before.state.prepared:
            committed = before.state is TransactionState.PREPARE_COMMIT
            wanted = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
            self.want(record.state is wanted, f"5: {record} follows {before}")
            self.completed(before, node)
        elif record.state is TransactionState.PREPARE_ABORT:
            cause = node.shard.state.ids[record.transactional_id].decision.cause
            heard_ms = node.loaded_ms + min(record.timeout_ms, 10_000)
            in_time = cause is not EndCause.TIMED_OUT or node.now_ms >= heard_ms
            if cause in (EndCause.FENCED, EndCause.OPERATOR):
                rotated = (record.next_producer_id, 0)
                self.fences.add(rotated if record.next_producer_id >= 0 else (record.producer_id, record.epoch))
            self.want(in_time, f"17: {record} times out, loaded at {node.loaded_ms}")

    def completed(self, prepared: TransactionStored, node: Any) -> None:
        """Every marker of the transaction is durable."""
        for place in prepared.places:
            self.check_marked(place, prepared, node)

    def check_marked(self, place: Place, prepared: TransactionStored, node: Any) -> None:
        raised = prepared.client_level >= 2
        if place[0] in node.absent or self.is_newer(place, prepared, node):
            return  # Another log was there when it began, and that one has gone.
        log = node.logs[place]
        mine = [
            (offset, batch)
            for offset, batch in enumerate(log.batches[: log.durable])
            if batch.producer_id == prepared.producer_id
        ]
        data_epoch = prepared.epoch - raised  # What has the raised one is of the next transaction.
        data = [offset for offset, batch in mine if isinstance(batch, DataBatch) and batch.epoch <= data_epoch]
        last_data = max(data, default=-1)
        done = any(
            isinstance(batch, MarkerBatch) and batch.epoch == prepared.epoch and offset > last_data
            for offset, batch in mine
        )
        known = log.producers.get(prepared.producer_id)
        open_yet = known is not None and known.first is not None and known.epoch <= data_epoch
        self.want(done and not open_yet, f"13: {prepared} is complete, and {place} has no durable marker of it")

    def is_newer(self, place: Place, prepared: TransactionStored, node: Any) -> bool:
        """Whether the topic may have been made again after the transaction began; clocks are set now and then."""
        return bool(node.made_ms.get(place[0], 0) + CLOCK_SLACK_MS >= prepared.started_ms)

    def replayed(self, node: Any) -> None:
        live = {name: known.stored for name, known in node.shard.state.ids.items()}
        read = {name: known.stored for name, known in node.mirror.state.ids.items()}
        self.want(live == read, f"12: live {live}, replayed {read}")

    def replied(self, producer: Producer, said: Any, node: Any) -> None:
        """An answer leaves the node."""
        if said.code or not isinstance(said, InitProducerIdReply | EndTxnReply):
            return
        key = (said.producer_id, said.epoch)
        known = node.kept.state.ids.get(producer.transactional_id)
        stored = None if known is None else known.stored
        durable = stored is not None and (
            key <= (stored.producer_id, stored.epoch) or key == (stored.next_producer_id, 0)
        )
        self.want(durable, f"13: {producer.name} is told {said}, and durable is {stored}")
        self.want(key not in self.fences, f"18: {producer.name} is given {key}, which only fences")
        owner = self.given.setdefault(key, producer)
        self.want(owner is producer, f"6: {key} is given to {producer.name} and to {owner.name}")
        if isinstance(said, InitProducerIdReply):
            for other in self.world.producers:
                if other.transactional_id == producer.transactional_id and other.fenced_ms is None:
                    other.fenced_ms = self.world.now_ms
            producer.fenced_ms = None

    # -- logs ---------------------------------------------------------------------------------------------

    def marking(self, sent: SendMarkers, node: Any) -> None:
        """A marker is about to be written."""
        known = node.kept.state.ids.get(sent.transactional_id)
        stored = None if known is None else known.stored
        decided = stored is not None and stored.state.prepared and stored.epoch == sent.epoch
        self.want(decided, f"13: {sent} is written, and durable is {stored}")
        committed = stored is not None and stored.state is TransactionState.PREPARE_COMMIT
        self.want(committed == sent.commit, f"5: {sent} is written, and durable is {stored}")

    def marked(self, place: Place, marker: MarkerBatch, offset: int) -> None:
        for transaction in self.world.transactions:
            # The next transaction may be begun, but at level 0 nothing is sent before the last one is complete.
            mine = transaction.producer_id == marker.producer_id and transaction.content
            if mine and (transaction.producer.level < 2 or transaction.epoch < marker.epoch):
                transaction.over.setdefault(place, offset)
        if marker.level >= 2:
            key = (marker.producer_id, marker.epoch)
            known = self.results.setdefault(key, marker.commit)
            self.want(known == marker.commit, f"5: producer {key} has markers of both results, one in {place}")

    def cut(self, place: Place, end: int) -> None:
        """A power cut took away what was behind this."""
        for transaction in self.world.transactions:
            if transaction.over.get(place, -1) >= end:
                del transaction.over[place]

    def deleted(self, place: Place) -> None:
        """The topic was deleted: what it had is nobody's loss."""
        self.shown.pop(place, None)
        self.stable.pop(place, None)
        for transaction in self.world.transactions:
            transaction.lost.add(place)
            transaction.over.pop(place, None)

    def retained(self, place: Place, gone: list[DataBatch]) -> None:
        """Retention took records away. What was shown before counts."""
        known = {(tag.transaction, tag.number) for _, tag in self.shown.get(place, [])}
        for batch in gone:
            if (batch.record.transaction, batch.record.number) not in known:
                batch.record.transaction.lost.add(place)

    def appended(self, place: Place, batch: DataBatch) -> None:
        transaction = batch.record.transaction
        self.want(place not in transaction.over, f"9: {batch} is appended to {place} behind the marker of its end")

    def look(self, node: Any) -> None:
        """What a reader of committed data is shown now."""
        for place, log in node.logs.items():
            stable, seen = log.stable(), log.committed()
            shown = self.shown.get(place, [])
            before = [each for each in shown if each[0] >= log.start]
            self.want(stable >= self.stable.get(place, 0), f"4: the last stable offset of {place} falls to {stable}")
            self.want(seen[: len(before)] == before, f"4: {place} showed {before}, and now {seen}")
            for offset, tag in seen[len(before) :]:
                self.check_shown(place, offset, tag)
            self.shown[place], self.stable[place] = shown[: len(shown) - len(before)] + seen, stable

    def check_shown(self, place: Place, offset: int, tag: Tag) -> None:
        transaction = tag.transaction
        where = f"{tag} at {place} offset {offset}"
        self.want(transaction.commit_sent, f"3: {where} is shown, and its producer has not asked for a commit")
        self.want(transaction.outcome != "aborted", f"3: {where} is shown, and its transaction was aborted")
        fenced_ms = transaction.producer.fenced_ms
        late = fenced_ms is not None and tag.sent_ms > fenced_ms
        self.want(not late, f"7: {where} is shown, sent at {tag.sent_ms} after {fenced_ms}")

    # -- groups -------------------------------------------------------------------------------------------

    def raise_found(self) -> None:
        """Tell of what was found where nothing may be raised."""

    # -- the end ------------------------------------------------------------------------------------------

    def conclude(self, node: Any) -> None:
        """Faults have ended long ago."""
        self.look(node)
        for name, known in node.shard.state.ids.items():
            self.want(known.stored.state.idle, f"16: {name} is still in {known.stored.state.title}")
            self.want(not known.waiting, f"16: requests wait for {name}")
        for place, log in node.logs.items():
            self.want(not log.open_transactions(), f"8: {log.open_transactions()} are open in {place}")
            self.want(log.stable() == len(log.batches), f"8: {place} is not stable to its end")
        for producer in self.world.producers:
            self.want(producer.name in self.world.finished, f"16: {producer.name} was not answered")
        shown: Counter[tuple[Any, Place, int]] = Counter()
        for place, seen in self.shown.items():
            shown.update((tag.transaction, place, tag.number) for _, tag in seen)
        self.shown_records = shown.keys()
        for transaction in self.world.transactions:
            lost = transaction.lost
            mine = {(place, number) for (of, place, number) in shown if of is transaction and place not in lost}
            acked = {(place, number) for place, number in transaction.acked if place not in lost}
            self.want(not mine or mine == acked, f"1: {transaction} shows {mine} of {acked}")
            if transaction.outcome == "committed":
                self.want(mine == acked, f"2: {transaction} was committed and shows {mine} of {acked}")
        self.want(max(shown.values(), default=1) == 1, "2: a record is shown twice")
