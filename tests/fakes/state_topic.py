"""A state topic on one fake broker: batches as bytes."""

from collections import deque
from collections.abc import Callable
from typing import Any

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend.shard_ownership.shard_log import ProducerEpoch
from muster.storage.records.batch import BatchView, read_batches
from tests.fakes.kafka_partition import Partition
from tests.fakes.upstream_broker import HANG_UP, UpstreamBroker, metadata

WELL = 0


class Stored:
    """The bytes of a partition. What is taken is decided by the model that a real broker was asked beside."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self._model = Partition()

    @property
    def end(self) -> int:
        return self._model.end

    def append(self, data: bytes) -> tuple[int, int]:
        """Code and offset: of a batch that is here already the offset it has."""
        (batch,) = read_batches(data)
        assert batch.crc_ok
        end = self.end
        records = [(b"", b"")] * (batch.last_offset_delta + 1)
        acked = self._model.append(
            ProducerEpoch(batch.producer_id, batch.producer_epoch), batch.base_sequence, records, 0
        )
        if self.end > end:
            self.batches.append(end.to_bytes(8, "big") + data[8:])
        return acked.code, acked.offset

    @property
    def read(self) -> list[BatchView]:
        return list(read_batches(b"".join(self.batches)))


class StateTopic:
    """Answers for `broker`. `codes`: said of the next Produce requests instead of taking them; `acks_to_lose`: how many
    are taken and not answered; `configs`: of the topic; `exists`: whether it is there before it is made."""

    def __init__(self, broker: UpstreamBroker, topic: str, partitions: int, *, exists: bool = True) -> None:
        self.topic = topic
        self.parts = [Stored() for _ in range(partitions)]
        self.exists = exists
        self.codes: deque[int] = deque()
        self.acks_to_lose = 0
        self.made: list[Any] = []
        self.refusal = 0
        """A code that CreateTopics is answered with."""
        self.configs = {"cleanup.policy": "compact", "min.insync.replicas": "2", "max.message.bytes": "8388608"}
        self.broker_id = 1
        self._broker = broker
        self._epochs: dict[str, int] = {}
        self.before_produce: Callable[[], Any] = lambda: None
        broker.answers |= {
            "Metadata": self._metadata,
            "FindCoordinator": lambda request: struct("FindCoordinatorResponse")(
                node_id=self.broker_id, host=broker.address.host, port=broker.address.port
            ),
            "InitProducerId": self._init,
            "Produce": self._produce,
            "Fetch": self._fetch,
            "ListOffsets": self._ends,
            "CreateTopics": self._create,
            "DescribeConfigs": self._describe,
            "DescribeTransactions": self._describe_transaction,
        }

    def _metadata(self, request: Any) -> Any:
        leaders = dict.fromkeys(range(len(self.parts)), (self.broker_id, 1))
        told = metadata({self.broker_id: self._broker.address}, {self.topic: leaders if self.exists else {}})
        if not self.exists:
            told.topics[0].error_code = 3
        return told

    def remembers(self, *names: str) -> None:
        """These transactional ids were used before."""
        self._epochs.update(dict.fromkeys(names, 0))

    def _describe_transaction(self, request: Any) -> Any:
        (name,) = request.transactional_ids
        code = 0 if name in self._epochs else 105
        state = struct("DescribeTransactionsResponse.transaction_states")(error_code=code, transactional_id=name)
        return struct("DescribeTransactionsResponse")(transaction_states=[state])

    def _init(self, request: Any) -> Any:
        name = request.transactional_id
        self._epochs[name] = self._epochs.get(name, -1) + 1
        producer = 100 + list(self._epochs).index(name)
        return struct("InitProducerIdResponse")(producer_id=producer, producer_epoch=self._epochs[name])

    async def _produce(self, request: Any) -> Any:
        wait = self.before_produce()
        if wait is not None:
            await wait
        code = self.codes.popleft() if self.codes else WELL
        made = struct("ProduceResponse.responses.partition_responses")
        told = []
        for each in request.topic_data[0].partition_data:
            said, offset = (code, -1) if code else self.parts[each.index].append(bytes(each.records))
            told.append(made(index=each.index, error_code=said, base_offset=offset))
        if self.acks_to_lose:
            self.acks_to_lose -= 1
            return HANG_UP
        return struct("ProduceResponse")(
            responses=[struct("ProduceResponse.responses")(name=self.topic, partition_responses=told)]
        )

    def _fetch(self, request: Any) -> Any:
        (asked,) = request.topics[0].partitions
        part = self.parts[asked.partition]
        wanted = [
            data for data, batch in zip(part.batches, part.read, strict=True) if batch.next_offset > asked.fetch_offset
        ]
        made = struct("FetchResponse.responses.partitions")(
            partition_index=asked.partition, high_watermark=part.end, log_start_offset=0, records=b"".join(wanted[:3])
        )
        return struct("FetchResponse")(
            responses=[struct("FetchResponse.responses")(topic=self.topic, partitions=[made])]
        )

    def _ends(self, request: Any) -> Any:
        made = struct("ListOffsetsResponse.topics.partitions")
        told = [
            made(
                partition_index=each.partition_index,
                offset=0 if each.timestamp == -2 else self.parts[each.partition_index].end,
            )
            for each in request.topics[0].partitions
        ]
        return struct("ListOffsetsResponse")(
            topics=[struct("ListOffsetsResponse.topics")(name=self.topic, partitions=told)]
        )

    def _create(self, request: Any) -> Any:
        if not self.refusal and not request.validate_only:
            self.made.append(request.topics[0])
            self.exists = True
        told = struct("CreateTopicsResponse.topics")(name=request.topics[0].name, error_code=self.refusal)
        return struct("CreateTopicsResponse")(topics=[told])

    def _describe(self, request: Any) -> Any:
        made = struct("DescribeConfigsResponse.results.configs")
        configs = [made(name=name, value=value) for name, value in self.configs.items()]
        result = struct("DescribeConfigsResponse.results")(configs=configs)
        return struct("DescribeConfigsResponse")(results=[result])
