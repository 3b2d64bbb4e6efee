"""What must hold of transactions over the nodes of a cluster: what committed readers are shown, and the logs.

By the numbers of the simulator of transactions: 1 atomic, 2 an acknowledged commit is for ever, 3 no aborted read, 4
what was shown stays, 5 one decision, 6 legal moves, epochs and owners, 7 fencing, 8 nothing hangs, 13 Complete rests on
committed markers, 14 producer ids are unique, 15 each record is written as it was read, 16 everything ends. And that a
shard has one coordinator at a time, and 19: a commit is refused as not open only where its transaction was aborted by
the coordinator. 17 and 18 are looked at where they are decided and answered (`SimTransactions`).
Where transactions carry positions, `PositionChecks` has the rules of these.
"""

from collections.abc import Set
from typing import Any

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import OFFSETS, TRANSACTIONS, TopicPartition
from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.runtime.transaction_records import decode_transaction, encode_transaction
from muster.coordinator.transactions.effects import EndTxnReply, InitProducerIdReply
from muster.coordinator.transactions.events import EndTxn
from muster.coordinator.transactions.records import MOVES, TransactionExpired, TransactionState, TransactionStored
from tests.sim.replication.disk import SimLog
from tests.sim.replication.groups.coordinator import SHARDS
from tests.sim.replication.node import SimNode
from tests.sim.replication.transactions.coordinator import ID_SHARDS
from tests.sim.replication.transactions.data_logs import LedLog
from tests.sim.replication.transactions.position_checks import PositionChecks
from tests.sim.replication.transactions.producers import ProducersHistory
from tests.sim.transactions.clients import Tag
from tests.sim.transactions.logs import MarkerBatch
from tests.sim.transactions.node import PLACES
from tests.sim.world import World

LOOK_MS = 50
Place = tuple[str, int]


class TransactionChecks:
    def __init__(self, world: World, nodes: list[SimNode]) -> None:
        self.world, self.nodes = world, nodes
        self.history: ProducersHistory
        self.shown: dict[Place, list[tuple[int, Tag]]] = {}
        self.given: dict[tuple[int, int], Any] = {}
        self.positions: PositionChecks | None = None
        """Where transactions carry positions."""
        self.timed_out: Set[tuple[int, int]] = frozenset()
        """Producer ids and epochs of the aborts that a coordinator decided at a timeout."""
        self.latest: dict[int, int] = {}
        """By shard: the leader epoch of the last answer."""

    def want(self, holds: bool, checker: str, sentence: str) -> None:
        if not holds:
            self.world.violated(checker, sentence)

    # -- while it goes on -----------------------------------------------------------------------------------

    def answered(self, node: SimNode, shard: int, epoch: int, event: Any, reply: Any) -> None:
        if isinstance(event, EndTxn) and reply.code is ErrorCode.INVALID_TXN_STATE:
            self.check_not_open(TopicPartition(TRANSACTIONS, shard), epoch, event)
        if reply.code:
            return
        known = self.latest.get(shard, -1)
        self.want(epoch >= known, "OneCoordinator", f"{node.name} answers for ids {shard} in {epoch}, after {known}")
        self.latest[shard] = max(known, epoch)

    def check_not_open(self, place: TopicPartition, epoch: int, event: EndTxn) -> None:
        """A producer of level 2 hears INVALID_TXN_STATE of a commit only where the coordinator has aborted the
        transaction itself (TX-C9): at its timeout, or for a new instance, of which a later coordinator knows no more
        than the raised epoch. All else that ends it is the producer's own, and each producer knows what it has sent.
        """
        aborted = [
            (entry.epoch, record)
            for entry, record in self.stored(place)
            if record.transactional_id == event.transactional_id
            and record.state is TransactionState.PREPARE_ABORT
            and (record.producer_id, record.epoch) == (event.producer_id, event.epoch + 1)
        ]
        why = ""
        for decided_in, record in aborted:
            others = [each for each in self.history.producers if each.transactional_id == event.transactional_id]
            if (record.producer_id, record.epoch) in self.timed_out:  # Their times may be of two nodes' clocks.
                why = "its timeout"
            elif decided_in < epoch and any(each.name != event.client for each in others):
                why = "a new instance, told by a former coordinator"
        rightly = event.level >= 2 and event.commit and bool(why)
        self.want(rightly, "19", f"{event} is refused as not open in {epoch}; its aborts by the coordinator: {aborted}")
        self.world.census[f"commits refused after {why}"] += 1

    def told(self, client: Any, reply: Any) -> None:
        """A producer has its answer."""
        if not isinstance(reply, InitProducerIdReply | EndTxnReply) or reply.code:
            return
        producer, key = client.producer, (reply.producer_id, reply.epoch)
        owner = self.given.setdefault(key, producer)
        self.want(owner is producer, "6", f"{key} is given to {producer.name} and to {owner.name}")
        if isinstance(reply, InitProducerIdReply):  # Answers of two instances may come in another order.
            now_ms, mine = self.world.now_ms, producer.transactional_id
            others = [each for each in self.history.producers if each.transactional_id == mine and each is not producer]
            for other in others:
                if (other.producer_id, other.epoch) < key and other.fenced_ms is None:
                    other.fenced_ms = now_ms
            newer = any((other.producer_id, other.epoch) > key for other in others)
            producer.fenced_ms = now_ms if newer else None

    def look(self) -> None:
        """What readers of committed records are shown."""
        for place in PLACES:
            for log in self.leaders(place):
                seen, shown = log.known.committed(), self.shown.setdefault(place, [])
                both = min(len(seen), len(shown))
                self.want(seen[:both] == shown[:both], "4", f"{place} showed {shown[:both]}, and now {seen[:both]}")
                for offset, tag in seen[both:]:
                    self.check_shown(place, offset, tag)
                shown += seen[both:]
        self.world.after(LOOK_MS, self.look)

    def leaders(self, place: Place) -> list[LedLog]:
        """As who leads it would answer."""
        able = [node for node in self.nodes if node.alive and not node.frozen and node.ids is not None]
        found = [node.ids.data.find(TopicPartition(*place)) for node in able if node.ids is not None]
        return [log for log in found if log is not None]

    def check_shown(self, place: Place, offset: int, tag: Tag) -> None:
        transaction, where = tag.transaction, f"{tag} at {place} offset {offset}"
        if self.positions is not None:
            self.positions.rules.check_output(place, offset, tag)
        self.world.census["records of transactions read"] += 1
        self.want(transaction.commit_sent, "3", f"{where} is shown, and nobody has asked for a commit")
        self.want(transaction.outcome != "aborted", "3", f"{where} is shown, and its transaction was aborted")
        fenced_ms = transaction.producer.fenced_ms
        late = fenced_ms is not None and tag.sent_ms > fenced_ms
        self.want(not late, "7", f"{where} is shown, sent at {tag.sent_ms} after {fenced_ms}")

    # -- the end --------------------------------------------------------------------------------------------

    def end(self) -> None:
        self.want(not self.history.unfinished(), "16", f"{self.history.unfinished()} were not answered")
        for shard in range(ID_SHARDS):
            self.check_ids(shard)
        for place in PLACES:
            for log in self.leaders(place):
                opened = log.known.open_transactions()
                self.want(not opened, "8", f"{opened} are open in {place}")
                known = log.known
                self.want(known.stable() == len(known.batches), "8", f"{place} is not stable to its end")
        self.check_results()
        self.check_transactions()

    def check_ids(self, shard: int) -> None:
        """The records of a shard, as its leader has them."""
        stored: dict[str, TransactionStored] = {}
        owners: dict[int, str] = {}
        for value in self.records(TopicPartition(TRANSACTIONS, shard)):
            stored_as = KeyValue(*value)
            record: Any = decode_transaction(stored_as)
            self.want(encode_transaction(record) == stored_as, "15", f"{record} is not written as it was read")
            if isinstance(record, TransactionExpired):
                continue  # It asks for room, in the name of nobody.
            before = stored.get(record.transactional_id)
            known = None if before is None else before.state
            self.want(known in MOVES.get(record.state, ()), "6", f"{record} follows {before}")
            if before is not None and before.producer_id == record.producer_id:
                self.want(record.epoch >= before.epoch, "6", f"the epoch falls from {before} to {record}")
            owner = owners.setdefault(record.producer_id, record.transactional_id)
            self.want(owner == record.transactional_id, "14", f"{record} has the producer id of {owner}")
            if before is not None and before.state.prepared:
                self.completed(before, record)
            stored[record.transactional_id] = record
            self.world.census[f"ids {record.state.title}"] += 1
        for each in stored.values():
            self.want(each.state.idle, "16", f"{each} in the end")

    def completed(self, prepared: TransactionStored, record: TransactionStored) -> None:
        commit = prepared.state is TransactionState.PREPARE_COMMIT
        wanted = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        self.want(record.state is wanted, "5", f"{record} follows {prepared}")
        marker = (prepared.producer_id, prepared.epoch, commit)
        for place in prepared.places:
            found = any(
                isinstance(each, MarkerBatch) and (each.producer_id, each.epoch, each.commit) == marker
                for each in self.records(TopicPartition(*place))
            )
            self.want(found, "13", f"{prepared} was completed, and {place} has no marker of it")

    def stored(self, place: TopicPartition) -> list[tuple[Any, TransactionStored]]:
        """Entries of a shard of ids that tell of transactions, and what they tell."""
        told = [(entry, decode_transaction(KeyValue(*entry.value))) for entry in self.entries(place)]
        return [(entry, record) for entry, record in told if isinstance(record, TransactionStored)]

    def records(self, place: TopicPartition) -> list[Any]:
        return [entry.value for entry in self.entries(place)]

    def entries(self, place: TopicPartition) -> list[Any]:
        led = [node.replicas.led[place] for node in self.nodes if node.alive and place in node.replicas.led]
        newest = max(led, key=lambda each: each.leader.epoch, default=None)
        if newest is None:
            return []
        assert isinstance(newest.log, SimLog)
        return list(newest.log.model.records)

    def check_results(self) -> None:
        results: dict[tuple[int, int], bool] = {}
        groups = [(OFFSETS, shard) for shard in range(SHARDS)]
        for place in (*PLACES, *groups):
            for each in self.records(TopicPartition(*place)):
                if isinstance(each, MarkerBatch) and each.level >= 2:
                    key = (each.producer_id, each.epoch)
                    known = results.setdefault(key, each.commit)
                    self.want(known == each.commit, "5", f"producer {key} has markers of both results")

    def check_transactions(self) -> None:
        shown: dict[Any, list[tuple[Place, int]]] = {}
        for place, seen in self.shown.items():
            for _, tag in seen:
                shown.setdefault(tag.transaction, []).append((place, tag.number))
        for transaction in self.history.transactions:
            mine, acked = shown.get(transaction, []), set(transaction.acked)
            self.want(len(mine) == len(set(mine)), "2", f"of {transaction} a record is shown twice: {mine}")
            self.want(not mine or set(mine) == acked, "1", f"{transaction} shows {mine} of {acked}")
            self.world.census[f"transactions {transaction.outcome}"] += 1
            if transaction.outcome == "committed":
                self.want(set(mine) == acked, "2", f"{transaction} was committed and shows {mine} of {acked}")
        if self.positions is not None:
            self.positions.end({(of, *each) for of, records in shown.items() for each in records})
