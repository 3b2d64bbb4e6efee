"""A node with the real rules of transactional ids over logs in memory; requests and answers get lost as told."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from muster.client.calls.methods import END_TXN, FIND_COORDINATOR, INIT_TRANSACTIONS, PRODUCE
from muster.client.errors import Unreachable
from muster.client.types import TopicPartition
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as group_pb
from muster.coordinator.rpc.v1 import transaction_service_pb2 as transaction_pb
from muster.coordinator.transactions.effects import SendMarkers
from muster.coordinator.transactions.events import MarkersWritten
from muster.storage.records.batch import BatchView, read_batches
from muster.storage.rpc.v1 import broker_service_pb2 as pb
from tests.support.transactions import Desk

LEVEL = 2


class Delivery(Enum):
    """What becomes of one request."""

    ANSWERED = "answered"
    REQUEST_LOST = "the request is lost"
    ANSWER_LOST = "the answer is lost"
    LATE = "the request arrives after the next one"
    RESTART = "the coordinator is restarted before, and the answer is lost"


@dataclass
class WrittenTransactions:
    """One producer in one log."""

    epoch: int
    next_sequence: int = 0
    known: set[int] = field(default_factory=set)
    open_values: list[bytes] | None = None


class TransactionalNode:
    """Stands in for `Transport.call`: one node with all partitions and all transactional ids."""

    def __init__(self, deliveries: Iterator[Delivery]) -> None:
        self.desk = Desk()
        self.visible: dict[TopicPartition, list[bytes]] = {}
        """What readers of committed records see."""
        self.calls: list[str] = []
        self._deliveries = deliveries
        self._producers: dict[tuple[TopicPartition, int], WrittenTransactions] = {}
        self._late: list[Callable[[], Any]] = []
        self._marked = 0

    async def call(self, method: Any, request: Any, **given: Any) -> Any:
        if method is FIND_COORDINATOR:
            assert request.key_type == "transaction"
            return group_pb.FindCoordinatorResponse(host="node", port=1)
        perform = {INIT_TRANSACTIONS: self._init, END_TXN: self._end, PRODUCE: self._produce}[method]
        self.calls.append(method.name)
        delivery = next(self._deliveries, Delivery.ANSWERED)
        lost = Unreachable("node:1", 1, given["doing"])
        # A new instance's request that comes after its repetition fences the producer, which is safe: no story of ours.
        if delivery is Delivery.LATE and not (method is INIT_TRANSACTIONS and not request.HasField("producer_id")):
            self._late.append(lambda: perform(request))
        if delivery in (Delivery.LATE, Delivery.REQUEST_LOST):
            raise lost
        if delivery is Delivery.RESTART:
            self.desk.reload()
        answer = perform(request)
        late, self._late = self._late, []
        for each in late:
            each()
        if delivery is not Delivery.ANSWERED:
            raise lost
        return answer

    def write_markers(self) -> None:
        """Those that the coordinator has asked for, until it asks for no more."""
        while self._marked < len(self.desk.sent):
            sent = self.desk.sent[self._marked]
            self._marked += 1
            for place in sent.partitions:
                self._mark(TopicPartition(*place), sent)
            results = dict.fromkeys(sent.partitions, 0)
            self.desk.step(MarkersWritten(sent.transactional_id, sent.life, sent.number, results, frozenset()))

    def _mark(self, place: TopicPartition, marker: SendMarkers) -> None:
        producer = self._producers.setdefault((place, marker.producer_id), WrittenTransactions(marker.epoch))
        if marker.epoch < producer.epoch or (marker.epoch == producer.epoch and producer.open_values is not None):
            return
        if marker.commit:
            self.visible.setdefault(place, []).extend(producer.open_values or ())
        self._producers[place, marker.producer_id] = WrittenTransactions(marker.epoch)

    def _settled(self, answer: Any) -> Any:
        """An answer that has to wait for markers comes after them."""
        if answer is None:
            self.write_markers()
            answer = self.desk.answers[self.desk.requests]
        return answer

    def _init(self, request: transaction_pb.InitProducerIdRequest) -> transaction_pb.InitProducerIdResponse:
        held = {}
        if request.HasField("producer_id"):
            held = {"producer_id": request.producer_id, "epoch": request.producer_epoch}
        reply = self._settled(self.desk.init(request.transactional_id, **held))
        return transaction_pb.InitProducerIdResponse(
            error_code=int(reply.code),
            error_message=reply.message,
            producer_id=reply.producer_id,
            producer_epoch=reply.epoch,
        )

    def _end(self, request: transaction_pb.EndTxnRequest) -> transaction_pb.EndTxnResponse:
        named = {"name": request.transactional_id, "level": LEVEL}
        reply = self.desk.end(request.producer_id, request.producer_epoch, request.commit, **named)
        if reply is not None and reply.code == 51:
            self.write_markers()
        return transaction_pb.EndTxnResponse(
            error_code=int(reply.code),
            error_message=reply.message,
            producer_id=reply.producer_id,
            producer_epoch=reply.epoch,
        )

    def _produce(self, request: pb.ProduceRequest) -> pb.ProduceResponse:
        answer = pb.ProduceResponse()
        for topic in request.topic_data:
            results = answer.responses.add(name=topic.name)
            for part in topic.partition_data:
                place = TopicPartition(topic.name, part.index)
                code = self._append(request.transactional_id, place, next(read_batches(part.records)))
                results.partition_responses.add(index=part.index, error_code=code, base_offset=-1 if code else 0)
        return answer

    def _append(self, name: str, place: TopicPartition, batch: BatchView) -> int:
        assert batch.transactional
        known = self._producers.get((place, batch.producer_id))
        if known is not None and batch.producer_epoch < known.epoch:
            return 47
        if known is None or known.open_values is None or known.epoch != batch.producer_epoch:
            numbers = {"name": name, "level": LEVEL}
            reply = self._settled(self.desk.add(batch.producer_id, batch.producer_epoch, place, **numbers))
            if reply.code:
                return 47 if reply.code == 90 else int(reply.code)
            if batch.base_sequence != 0:
                return 45
            known = self._producers[place, batch.producer_id] = WrittenTransactions(
                batch.producer_epoch, open_values=[]
            )
        assert known.open_values is not None
        if batch.base_sequence in known.known:
            return 0
        if batch.base_sequence != known.next_sequence:
            return 45
        values = [record.value for record in batch.records()]
        known.known.add(batch.base_sequence)
        known.next_sequence += len(values)
        known.open_values += [value for value in values if value is not None]
        return 0
