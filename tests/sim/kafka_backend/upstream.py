"""What a simulated process has for an upstream: requests as the real client makes them, answered by models."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from muster.coordinator.config import Address
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as fx
from muster.coordinator.kafka_backend.shard_ownership.shard_log import LogBatch, ProducerEpoch, ShardBatch
from muster.coordinator.kafka_backend.upstream.protocol import Unreached
from muster.coordinator.kafka_backend.upstream.upstream_client import (
    GROUP,
    NO_LEADER,
    PartitionMetadata,
    TopicMetadata,
    UpstreamMetadata,
)
from muster.storage.records.batch import encode_batch, read_batches
from tests.fakes.kafka_group import Joined, State, Synced

if TYPE_CHECKING:
    from tests.sim.kafka_backend.whole import WholeNode

BROKERS = {broker: Address("kafka", 9092 + broker) for broker in range(3)}
REQUEST_MS = 1_000
"""After so long a connection is known to be lost."""

Reply = Callable[[Any], None]


class SimUpstream:
    """As `Upstream`, as far as `Owning` and `NodesGroup` ask it."""

    def __init__(self, node: "WholeNode", topic: str) -> None:
        self._node, self._world, self._topic = node, node.world, topic
        self.view = UpstreamMetadata("upstream", 0, BROKERS)
        self.lines = self

    def count(self, api: str, code: int) -> None:
        """Nobody looks at figures here."""

    def hang_up(self, purpose: str) -> None:
        """No connection holds up another here."""

    def leader(self, topic: str, partition: int) -> int:
        leader = self.view.leader(topic, partition)
        if leader == NO_LEADER:
            raise Unreached("nobody leads it")
        return leader

    async def refresh(self, topics: Sequence[str]) -> UpstreamMetadata:
        leaders = await self._asked(lambda reply: reply([part.leader for part in self._world.partitions]), REQUEST_MS)
        parts = {shard: PartitionMetadata(leader, -1) for shard, leader in enumerate(leaders)}
        self.view = UpstreamMetadata("upstream", 0, BROKERS, {self._topic: TopicMetadata(b"", parts)})
        return self.view

    async def ask_broker(self, broker: int, api: str, request: Any, *, waits_s: float = 0.0, **_: Any) -> Any:
        return await self._asked(self._at_broker(broker, api, request), REQUEST_MS + waits_s * 1000)

    def ask_then(self, broker: int, api: str, request: Any, tell: Reply, *, waits_s: float = 0.0, **_: Any) -> None:
        self._asked_then(self._at_broker(broker, api, request), REQUEST_MS + waits_s * 1000, tell)

    def _at_broker(self, broker: int, api: str, request: Any) -> Callable[[Reply], None]:
        asked = {
            "Produce": self._produce,
            "Fetch": self._fetch,
            "ListOffsets": self._ends,
            "DescribeProducers": self._producers,
        }[api]
        return lambda reply: asked(broker, request, reply)

    async def ask_coordinator(
        self, kind: int, key: str, api: str, request: Any, *, waits_s: float = 0.0, **_: Any
    ) -> Any:
        if kind != GROUP:
            return await self._asked(lambda reply: reply(self._init(key)), REQUEST_MS)
        at_group = {
            "JoinGroup": self._join,
            "SyncGroup": self._sync,
            "Heartbeat": self._heartbeat,
            "LeaveGroup": self._leave,
            "DescribeGroups": self._describe,
        }[api]
        return await self._asked(lambda reply: at_group(request, reply), REQUEST_MS + waits_s * 1000)

    async def _asked(self, at_kafka: Callable[[Reply], None], patience_ms: float) -> Any:
        """The answer. Raises Unreached where it was lost, or does not come."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def tell(word: Any) -> None:
            if answer.done():
                return
            if isinstance(word, Unreached):
                answer.set_exception(word)
            else:
                answer.set_result(word)

        self._asked_then(at_kafka, patience_ms, tell)
        return await answer

    def _asked_then(self, at_kafka: Callable[[Reply], None], patience_ms: float, tell: Reply) -> None:
        """tell: hears once the answer, or Unreached."""
        node, world = self._node, self._world
        told = [False]

        def heard(word: Any) -> None:
            if not told[0]:
                told[0] = True
                tell(word)

        def failed() -> None:
            heard(Unreached("the connection was lost"))

        def replied(word: Any) -> None:
            if not world.back(node, lambda: heard(word)):
                node.later(REQUEST_MS, failed)

        if not world.forth(node, lambda: at_kafka(replied)):
            node.later(REQUEST_MS, failed)
        node.later(patience_ms, failed)

    # The state topic.

    def _init(self, key: str) -> Any:
        if code := self._world.trouble():
            return struct("InitProducerIdResponse")(error_code=code)
        producer = self._world.transactions.init_producer(key.rpartition(".")[2], self._world.whole_ms)
        return struct("InitProducerIdResponse")(producer_id=producer.id, producer_epoch=producer.epoch)

    def _produce(self, broker: int, request: Any, reply: Reply) -> None:
        batches = []
        for each in request.topic_data[0].partition_data:
            (view,) = read_batches(bytes(each.records))
            records = [(record.key or b"", record.value, None) for record in view.records()]
            producer = ProducerEpoch(view.producer_id, view.producer_epoch)
            batches.append(ShardBatch(each.index, producer, view.base_sequence, records, 0, 0))

        def answered(results: Any) -> None:
            made = struct("ProduceResponse.responses.partition_responses")
            parts = [
                made(index=shard, error_code=acked.code, base_offset=acked.offset) for shard, acked in results.items()
            ]
            topic = struct("ProduceResponse.responses")(name=self._topic, partition_responses=parts)
            reply(struct("ProduceResponse")(responses=[topic]))

        if request.transactional_id is None:
            self._world.brokers.produce(self._node, fx.Produce(broker, 0, tuple(batches), 0), answered)
            return
        (batch,) = batches
        write = fx.WriteClientBatch(batch.shard, 0, batch, 0)
        self._world.brokers.write_txn(write, lambda acked: answered({batch.shard: acked}))

    def _producers(self, broker: int, request: Any, reply: Reply) -> None:
        (shard,) = request.topics[0].partition_indexes
        made = struct("DescribeProducersResponse.topics.partitions.active_producers")
        active = [
            made(
                producer_id=number,
                producer_epoch=known.told[0],
                last_sequence=known.told[1],
                current_txn_start_offset=known.told[2],
            )
            for number, known in self._world.partitions[shard].producers.items()
        ]
        part = struct("DescribeProducersResponse.topics.partitions")(
            partition_index=shard, error_code=self._world.away(shard), active_producers=active
        )
        topic = struct("DescribeProducersResponse.topics")(name=self._topic, partitions=[part])
        reply(struct("DescribeProducersResponse")(topics=[topic]))

    def _fetch(self, broker: int, request: Any, reply: Reply) -> None:
        made = [self._fetched(asked.partition, asked.fetch_offset) for asked in request.topics[0].partitions]
        topic = struct("FetchResponse.responses")(topic=self._topic, partitions=made)
        reply(struct("FetchResponse")(responses=[topic]))

    def _fetched(self, shard: int, offset: int) -> Any:
        code, part = self._world.away(shard), self._world.partitions[shard]
        batches, _ = part.fetch(offset)
        return struct("FetchResponse.responses.partitions")(
            partition_index=shard,
            error_code=code,
            high_watermark=part.committed,
            records=b"" if code else b"".join(map(self._world.wire, batches)),
        )

    def _ends(self, broker: int, request: Any, reply: Reply) -> None:
        (asked,) = request.topics[0].partitions
        shard = asked.partition_index
        made = struct("ListOffsetsResponse.topics.partitions")(
            partition_index=shard, error_code=self._world.away(shard), offset=self._world.partitions[shard].committed
        )
        topic = struct("ListOffsetsResponse.topics")(name=self._topic, partitions=[made])
        reply(struct("ListOffsetsResponse")(topics=[topic]))

    # The nodes' group.

    def _join(self, request: Any, reply: Reply) -> None:
        def answered(word: Joined) -> None:
            made = struct("JoinGroupResponse.members")
            reply(
                struct("JoinGroupResponse")(
                    error_code=word.code,
                    generation_id=word.generation,
                    protocol_type=request.protocol_type,
                    protocol_name=request.protocols[0].name,
                    leader=word.leader,
                    skip_assignment=word.skip_assignment,
                    member_id=word.member_id,
                    members=[
                        made(member_id=each.member_id, group_instance_id=each.instance, metadata=each.metadata)
                        for each in word.members
                    ],
                )
            )

        metadata = bytes(request.protocols[0].metadata)
        world = self._world
        world.group.join(request.member_id, request.group_instance_id, metadata, world.group_ms, answered)

    def _sync(self, request: Any, reply: Reply) -> None:
        def answered(word: Synced) -> None:
            reply(struct("SyncGroupResponse")(error_code=word.code, assignment=word.assignment))

        plans = {each.member_id: bytes(each.assignment) for each in request.assignments}
        world = self._world
        world.group.sync(
            request.member_id, request.group_instance_id, request.generation_id, plans, world.group_ms, answered
        )

    def _heartbeat(self, request: Any, reply: Reply) -> None:
        world = self._world
        code = world.group.heartbeat(
            request.member_id, request.group_instance_id, request.generation_id, world.group_ms
        )
        reply(struct("HeartbeatResponse")(error_code=code))

    def _leave(self, request: Any, reply: Reply) -> None:
        (member,) = request.members
        code = self._world.group.leave(member.member_id, member.group_instance_id, self._world.group_ms)
        reply(struct("LeaveGroupResponse")(error_code=code))

    def _describe(self, request: Any, reply: Reply) -> None:
        group = self._world.group
        made = struct("DescribeGroupsResponse.groups.members")
        members = [
            made(
                member_id=each.id,
                group_instance_id=each.instance,
                client_host="/host",
                member_metadata=each.metadata if group.state is State.STABLE else b"",
            )
            for each in group.members.values()
        ]
        named = "PreparingRebalance" if group.state is State.PREPARING else group.state.name
        told = struct("DescribeGroupsResponse.groups")(group_id=request.groups[0], group_state=named, members=members)
        reply(struct("DescribeGroupsResponse")(groups=[told]))


def wire_of(batch: LogBatch, marks: bool | None) -> bytes:
    """A batch of the model as a broker would send it."""
    named = {
        "base_offset": batch.base_offset,
        "producer_id": batch.producer.id,
        "producer_epoch": batch.producer.epoch,
        "base_sequence": 0,
        "transactional": batch.transactional,
        "last_offset_delta": batch.next_offset - 1 - batch.base_offset,
    }
    if marks is not None:
        return encode_batch([(0, b"\0\0\0" + bytes([marks]), b"\0" * 6, ())], control=True, **named)
    records = [(0, record.key, record.value, ()) for record in batch.records]
    return encode_batch(records, offset_deltas=[each.offset - batch.base_offset for each in batch.records], **named)
