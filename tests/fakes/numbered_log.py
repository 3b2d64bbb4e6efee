"""A node that keeps numbered batches as Kafka's logs do, and loses requests and answers as it is told."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from muster.client.calls.methods import INIT_PRODUCER_ID, PRODUCE
from muster.client.errors import Unreachable
from muster.client.types import TopicPartition
from muster.storage.records.batch import read_batches
from muster.storage.rpc.v1 import broker_service_pb2 as pb


class Fate(Enum):
    """What becomes of one Produce request."""

    ANSWERED = "answered"
    REQUEST_LOST = "the request is lost"
    ANSWER_LOST = "the answer is lost"
    LATE = "the request arrives after the next one that is answered"
    OUT_OF_ORDER = "the log has lost count (retention, an unclean election)"
    TOO_LARGE = "the log refuses the batch"


REFUSALS = {Fate.OUT_OF_ORDER: 45, Fate.TOO_LARGE: 10}


@dataclass
class KnownProducer:
    epoch: int
    last: dict[int, int] = field(default_factory=dict)
    """The first sequence of each known batch, and its offset."""
    next_sequence: int = 0


class NumberedLog:
    """Stands in for `Transport.call`: one node with all partitions."""

    def __init__(self, fates: Iterator[Fate]) -> None:
        self.fates = fates
        self.values: dict[TopicPartition, list[bytes | None]] = {}
        self.given_ids = 0
        self.requests: list[pb.ProduceRequest] = []
        self._producers: dict[tuple[TopicPartition, int], KnownProducer] = {}
        self._late: list[pb.ProduceRequest] = []

    async def call(self, method: Any, request: Any, **given: Any) -> Any:
        if method is INIT_PRODUCER_ID:
            self.given_ids += 1
            return pb.InitProducerIdResponse(producer_id=self.given_ids, producer_epoch=0)
        assert method is PRODUCE, method
        self.requests.append(request)
        fate = next(self.fates, Fate.ANSWERED)
        if fate in REFUSALS:
            return refuse_all(request, REFUSALS[fate])
        if fate in (Fate.REQUEST_LOST, Fate.LATE):
            if fate is Fate.LATE:
                self._late.append(request)
            raise Unreachable("node:1", 1, "producing records")
        answer = self.append(request)
        if fate is Fate.ANSWER_LOST:
            raise Unreachable("node:1", 1, "producing records")
        late, self._late = self._late, []
        for each in late:
            self.append(each)
        return answer

    def append(self, request: pb.ProduceRequest) -> pb.ProduceResponse:
        answer = pb.ProduceResponse()
        for topic in request.topic_data:
            results = answer.responses.add(name=topic.name)
            for part in topic.partition_data:
                code, offset = self._append_batch(TopicPartition(topic.name, part.index), part.records)
                results.partition_responses.add(index=part.index, error_code=code, base_offset=offset)
        return answer

    def _append_batch(self, place: TopicPartition, data: bytes) -> tuple[int, int]:
        batch = next(read_batches(data))
        values = [record.value for record in batch.records()]
        line = self.values.setdefault(place, [])
        if batch.producer_id < 0:
            line += values
            return 0, len(line) - len(values)
        key = (place, batch.producer_id)
        known = self._producers.get(key)
        if known is not None and batch.producer_epoch < known.epoch:
            return 47, -1
        if known is None or batch.producer_epoch > known.epoch:
            if known is not None and batch.base_sequence != 0:
                return 45, -1
            known = self._producers[key] = KnownProducer(batch.producer_epoch, {}, batch.base_sequence)
        if batch.base_sequence in known.last:
            return 0, known.last[batch.base_sequence]
        if batch.base_sequence != known.next_sequence:
            return 45, -1
        offset = len(line)
        known.last[batch.base_sequence] = offset
        known.next_sequence += len(values)
        line += values
        return 0, offset


def refuse_all(request: pb.ProduceRequest, code: int) -> pb.ProduceResponse:
    answer = pb.ProduceResponse()
    for topic in request.topic_data:
        results = answer.responses.add(name=topic.name)
        for part in topic.partition_data:
            results.partition_responses.add(index=part.index, error_code=code)
    return answer
