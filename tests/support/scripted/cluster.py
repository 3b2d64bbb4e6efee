"""A cluster of gRPC nodes in the test's own process that does as the script says: leaders move, nodes go, answers lie.

All nodes share one truth (`Place`: leader, epoch, batches). A node may be made to tell something else, to refuse, to
keep silent, or to do what it is asked and break the connection before it answers.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from muster.storage.records.batch import decode_records, read_batches
from muster.storage.rpc.v1 import broker_service_pb2 as pb
from muster.storage.rpc.v1 import staging_service_pb2 as staging_pb
from tests.support.scripted.groups import Groups
from tests.support.scripted.node import Said, ScriptedNode

NOT_LEADER, OUT_OF_RANGE, UNKNOWN_TOPIC, NO_LEADER, FENCED, UNKNOWN_EPOCH = 6, 1, 3, 5, 74, 75
OUT_OF_ORDER = 45


@dataclass(slots=True)
class Place:
    """A partition, as all replicas have it. A batch: first offset, epoch, its bytes, how many records."""

    leader: int
    epoch: int = 0
    batches: list[tuple[int, int, bytes, int]] = field(default_factory=list)
    seen: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """By producer id and epoch: the next sequence number, and the offset of the last batch."""
    start: int = 0

    @property
    def end(self) -> int:
        return self.batches[-1][0] + self.batches[-1][3] if self.batches else self.start

    def diverges(self, offset: int, last: int) -> tuple[int, int] | None:
        """Where who has read up to `offset`, under epoch `last` at the end, parts from it (KIP-595)."""
        known = [epoch for _, epoch, _, _ in self.batches if epoch <= last]
        common = max(known, default=last if not self.batches else -1)
        end = max((base + count for base, epoch, _, count in self.batches if epoch <= last), default=self.start)
        return None if common == last and end >= offset else (common, end)


class ScriptedCluster(Groups):
    """`lonely`: a single node that shares no cluster."""

    def __init__(self, nodes: int = 3, *, lonely: bool = False) -> None:
        self.nodes = {number: ScriptedNode(number, self) for number in range(1, nodes + 1)}
        self.topics: dict[str, list[Place]] = {}
        super().__init__(self.nodes, self.topics, lonely=lonely)
        self.said: list[Said] = []
        self.refusal = NOT_LEADER
        """What who does not lead says."""
        self.hints = True
        """And whether it says who does."""
        self._producers = 0
        self._gone: set[int] = set()
        self._appended = asyncio.Event()

    # The script

    def topic(self, name: str, *leaders: int) -> list[Place]:
        places = self.topics[name] = [Place(leader) for leader in leaders]
        return places

    def lead(self, name: str, partition: int, node: int) -> None:
        """Another leader, or the same again: an epoch begins."""
        place = self.topics[name][partition]
        place.leader, place.epoch = node, place.epoch + 1
        self._wake()

    def unclean(self, name: str, partition: int, node: int, keep: int) -> None:
        """A leader that has the records before `keep` only."""
        place = self.topics[name][partition]
        place.batches = [batch for batch in place.batches if batch[0] + batch[3] <= keep]
        self.lead(name, partition, node)

    def goes(self, number: int) -> None:
        """The node is no more, for whoever asks for metadata; it is taken off the line by `die`."""
        self._gone.add(number)

    def calls(self, name: str, *nodes: int) -> list[Said]:
        """Those of this name that reached these nodes; without any, all."""
        return [said for said in self.said if said.name == name and (not nodes or said.node in nodes)]

    def values(self, name: str, partition: int = 0) -> list[bytes | None]:
        """What is in the log."""
        found: list[bytes | None] = []
        for base, _, data, _ in self.topics[name][partition].batches:
            found += [record.value for record in decode_records(memoryview(data), base)]
        return found

    def append(self, name: str, partition: int, data: bytes) -> int:
        """Batches into the log, as its leader does; the offset of the first."""
        place = self.topics[name][partition]
        first = place.end
        for view in read_batches(memoryview(data)):
            base = place.end
            raw = bytearray(view.data[: view.size])
            raw[0:8] = base.to_bytes(8, "big")
            raw[12:16] = place.epoch.to_bytes(4, "big")
            place.batches.append((base, place.epoch, bytes(raw), view.last_offset_delta + 1))
        self._wake()
        return first

    def _wake(self) -> None:
        self._appended.set()
        self._appended = asyncio.Event()

    # What nodes answer

    async def _metadata(self, node: ScriptedNode, request: pb.MetadataRequest) -> pb.MetadataResponse:
        answer = pb.MetadataResponse(cluster_id="scripted")
        if not self._lonely:
            answer.controller_id = min(self.nodes)
        for each in self.nodes.values():
            if each.lives and each.node_id not in self._gone:
                answer.brokers.add(node_id=each.node_id, host="127.0.0.1", port=each.port)
        for name in self.topics if request.all_topics else request.topics:
            if name not in self.topics:
                answer.topics.add(name=name, error_code=UNKNOWN_TOPIC)
                continue
            line = answer.topics.add(name=name, topic_id=name.encode().ljust(16, b"."))
            for number, place in enumerate(self.topics[name]):
                leads = place.leader in self.nodes
                line.partitions.add(
                    partition_index=number,
                    leader_id=place.leader if leads else -1,
                    leader_epoch=place.epoch,
                    error_code=0 if leads else NO_LEADER,
                )
        return answer

    def _led(self, node: ScriptedNode, topic: str, number: int, result: Any) -> Place | None:
        """The place, if the node leads it; otherwise the result says why not."""
        place = (self.topics.get(topic) or [])[number : number + 1]
        if not place:
            result.error_code = UNKNOWN_TOPIC
            return None
        if place[0].leader != node.node_id:
            result.error_code = self.refusal
            if self.hints and "current_leader" in result.DESCRIPTOR.fields_by_name and place[0].leader in self.nodes:
                result.current_leader.leader_id = place[0].leader
                result.current_leader.leader_epoch = place[0].epoch
            return None
        return place[0]

    async def _produce(self, node: ScriptedNode, request: pb.ProduceRequest) -> pb.ProduceResponse:
        answer = pb.ProduceResponse()
        for topic in request.topic_data:
            line = answer.responses.add(name=topic.name)
            for data in topic.partition_data:
                result = line.partition_responses.add(index=data.index, base_offset=-1)
                place = self._led(node, topic.name, data.index, result)
                if place is not None:
                    self._take(topic.name, data, place, result)
        return answer

    def _take(self, topic: str, data: pb.ProducePartition, place: Place, result: pb.ProducePartitionResult) -> None:
        (view,) = read_batches(memoryview(data.records))
        producer = (view.producer_id, view.producer_epoch)
        if view.producer_id >= 0:
            expected, last = place.seen.get(producer, (0, -1))
            if view.base_sequence + view.count == expected:
                result.base_offset = last
                return
            if view.base_sequence != expected:
                result.error_code = OUT_OF_ORDER
                return
        result.base_offset = self.append(topic, data.index, data.records)
        place.seen[producer] = (view.base_sequence + view.count, result.base_offset)

    async def _fetch(self, node: ScriptedNode, request: pb.FetchRequest) -> pb.FetchResponse:
        deadline = asyncio.get_running_loop().time() + request.max_wait_ms / 1000
        while True:
            waiting = self._appended
            answer, enough = pb.FetchResponse(), False
            for topic in request.topics:
                line = answer.responses.add(topic=topic.topic)
                for part in topic.partitions:
                    result = line.partitions.add(partition_index=part.partition)
                    enough |= self._read(node, topic.topic, part, result)
            left = deadline - asyncio.get_running_loop().time()
            if enough or left <= 0:
                return answer
            try:
                await asyncio.wait_for(waiting.wait(), left)
            except TimeoutError:
                return answer

    async def _multifetch(self, node: ScriptedNode, request: pb.MultiFetchRequest) -> pb.MultiFetchResponse:
        answer = pb.MultiFetchResponse()
        for part in request.fetches:
            line = answer.results.add(topic=part.topic)
            line.result.partition_index = part.partition
            self._read(node, part.topic, part, line.result)
        return answer

    def _read(
        self,
        node: ScriptedNode,
        topic: str,
        part: pb.FetchPartition | pb.MultiFetchPartition,
        result: pb.FetchPartitionResult,
    ) -> bool:
        """Whether that is news."""
        place = self._led(node, topic, part.partition, result)
        if place is None:
            return True
        if part.HasField("current_leader_epoch") and part.current_leader_epoch not in (-1, place.epoch):
            result.error_code = FENCED if part.current_leader_epoch < place.epoch else UNKNOWN_EPOCH
            return True
        if part.HasField("last_fetched_epoch") and part.last_fetched_epoch >= 0:
            parts = place.diverges(part.fetch_offset, part.last_fetched_epoch)
            if parts is not None:
                result.diverging_epoch.epoch, result.diverging_epoch.end_offset = parts
                return True
        if not place.start <= part.fetch_offset <= place.end:
            result.error_code = OUT_OF_RANGE
            return True
        result.high_watermark = result.last_stable_offset = place.end
        result.log_start_offset = place.start
        held = [data for base, _, data, count in place.batches if base + count > part.fetch_offset]
        while len(held) > 1 and sum(map(len, held)) > part.partition_max_bytes:
            held.pop()
        result.records = b"".join(held)
        return bool(result.records)

    async def _listoffsets(self, node: ScriptedNode, request: pb.ListOffsetsRequest) -> pb.ListOffsetsResponse:
        answer = pb.ListOffsetsResponse()
        for topic in request.topics:
            line = answer.topics.add(name=topic.name)
            for part in topic.partitions:
                result = line.partitions.add(partition_index=part.partition_index, offset=-1, timestamp=-1)
                place = self._led(node, topic.name, part.partition_index, result)
                if place is not None:
                    result.offset = place.end if part.timestamp == -1 else place.start
        return answer

    async def _deleterecords(self, node: ScriptedNode, request: pb.DeleteRecordsRequest) -> pb.DeleteRecordsResponse:
        answer = pb.DeleteRecordsResponse()
        for topic in request.topics:
            line = answer.topics.add(name=topic.name)
            for part in topic.partitions:
                result = line.partitions.add(partition_index=part.partition_index, low_watermark=-1)
                place = self._led(node, topic.name, part.partition_index, result)
                if place is not None:
                    place.start = result.low_watermark = part.offset
        return answer

    async def _initproducerid(self, node: ScriptedNode, request: pb.InitProducerIdRequest) -> pb.InitProducerIdResponse:
        self._producers += 1
        return pb.InitProducerIdResponse(producer_id=1000 + self._producers, producer_epoch=0)

    async def _stagerecords(
        self, node: ScriptedNode, request: staging_pb.StageRecordsRequest
    ) -> staging_pb.StageRecordsResponse:
        """Taken, and not looked at again."""
        return staging_pb.StageRecordsResponse(position=request.position + 1)

    async def _commitstaged(
        self, node: ScriptedNode, request: staging_pb.CommitStagedRequest
    ) -> staging_pb.CommitStagedResponse:
        return staging_pb.CommitStagedResponse()


@asynccontextmanager
async def scripted(nodes: int = 3, *, lonely: bool = False) -> AsyncIterator[ScriptedCluster]:
    """Nodes 1, 2, ... that serve."""
    cluster = ScriptedCluster(nodes, lonely=lonely)
    await asyncio.gather(*(node.start() for node in cluster.nodes.values()))
    try:
        yield cluster
    finally:
        for node in cluster.nodes.values():
            node.awake.set()
        await asyncio.gather(*(node.die() for node in cluster.nodes.values()))
