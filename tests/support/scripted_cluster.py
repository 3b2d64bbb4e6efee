"""A cluster of gRPC nodes in the test's own process that does as the script says: leaders move, nodes go, answers lie.

All nodes share one truth (`Place`: leader, epoch, batches). A node may be made to tell something else, to refuse, to
keep silent, or to do what it is asked and break the connection before it answers.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import grpc

from muster.coordinator.client.calls import methods
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as group_pb
from muster.storage.records.batch import decode_records, read_batches
from muster.storage.rpc.v1 import broker_service_pb2 as pb
from muster.storage.rpc.v1 import staging_service_pb2 as staging_pb

NOT_LEADER, OUT_OF_RANGE, UNKNOWN_TOPIC, NO_LEADER, FENCED, UNKNOWN_EPOCH = 6, 1, 3, 5, 74, 75
NO_COORDINATOR, NOT_COORDINATOR, OUT_OF_ORDER = 15, 16, 45
SERVED: Final = (
    methods.METADATA,
    methods.PRODUCE,
    methods.FETCH,
    methods.MULTI_FETCH,
    methods.LIST_OFFSETS,
    methods.DELETE_RECORDS,
    methods.INIT_PRODUCER_ID,
    methods.FIND_COORDINATOR,
    methods.OFFSET_COMMIT,
    methods.OFFSET_FETCH,
    methods.LIST_GROUPS,
    methods.DESCRIBE_GROUPS,
    methods.DELETE_GROUPS,
    methods.CONSUMER_GROUP_HEARTBEAT,
    methods.STAGE_RECORDS,
    methods.COMMIT_STAGED,
)


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


@dataclass(slots=True)
class Said:
    """A call that reached a node."""

    node: int
    name: str
    request: Any


class ScriptedNode:
    """One node. `truth` answers; `script` may answer in its place."""

    def __init__(self, node_id: int, cluster: "ScriptedCluster") -> None:
        self.node_id = node_id
        self.port = 0
        self.awake = asyncio.Event()
        """Not set: it takes calls and answers none, as if it were frozen."""
        self.awake.set()
        self.scripts: dict[str, list[Callable[[Any, Callable[[], Awaitable[Any]]], Awaitable[Any]]]] = {}
        self._cluster = cluster
        self._server: grpc.aio.Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def lives(self) -> bool:
        return self._server is not None

    def next(self, name: str, script: Callable[[Any, Callable[[], Awaitable[Any]]], Awaitable[Any]]) -> None:
        """Once: `script(request, truth)` answers the next call of this name."""
        self.scripts.setdefault(name, []).append(script)

    async def start(self) -> None:
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers((_Handlers(self),))
        bound = server.add_insecure_port(f"127.0.0.1:{self.port}")
        assert bound, f"port {self.port} is taken"
        self.port = bound
        await server.start()
        self._server = server

    async def die(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)

    async def answer(self, name: str, request: Any, context: grpc.aio.ServicerContext | None) -> Any:
        cluster = self._cluster
        cluster.said.append(Said(self.node_id, name, request))
        await self.awake.wait()

        async def truth() -> Any:
            return await getattr(cluster, f"_{name.lower()}")(self, request)

        scripts = self.scripts.get(name)
        answer = await (scripts.pop(0)(request, truth) if scripts else truth())
        if answer is BROKEN and context is not None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the connection broke")
        return answer


BROKEN: Final = object()
"""What a script answers for a connection that breaks before the answer."""


async def session(node: ScriptedNode, requests: AsyncIterator[Any]) -> AsyncIterator[group_pb.SessionResponse]:
    """A member's stream: it is welcome, and its heartbeats are answered like calls."""
    hello, number = group_pb.SessionHello(), 0
    async for request in requests:
        number += 1
        answer = group_pb.SessionResponse(sequence_number=number, request_number=request.request_number)
        if request.HasField("hello"):
            hello = request.hello
            answer.welcome.heartbeat_interval_ms = 60_000
        else:
            beat = request.consumer_group_heartbeat
            beat.group_id, beat.member_id = hello.group_id, hello.member_id
            answer.consumer_group_heartbeat.CopyFrom(await node.answer("ConsumerGroupHeartbeat", beat, None))
        yield answer


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, node: ScriptedNode) -> None:
        self._node = node

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        if details.method == methods.SESSION.path:

            async def converse(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
                async for answer in session(self._node, requests):
                    yield answer

            return grpc.stream_stream_rpc_method_handler(
                converse,
                request_deserializer=methods.SESSION.request.FromString,
                response_serializer=lambda answer: answer.SerializeToString(),
            )
        for method in SERVED:
            if method.path == details.method:

                async def handle(request: Any, context: Any, name: str = method.name) -> Any:
                    return await self._node.answer(name, request, context)

                return grpc.unary_unary_rpc_method_handler(
                    handle,
                    request_deserializer=method.request.FromString,
                    response_serializer=lambda answer: answer.SerializeToString(),
                )
        return None


class ScriptedCluster:
    """`lonely`: a single node that shares no cluster."""

    def __init__(self, nodes: int = 3, *, lonely: bool = False) -> None:
        self.nodes = {number: ScriptedNode(number, self) for number in range(1, nodes + 1)}
        self.topics: dict[str, list[Place]] = {}
        self.coordinators: dict[str, int | None] = {}
        self.committed: dict[tuple[str, str, int], tuple[int, int]] = {}
        self.epochs: dict[str, int] = {}
        """Member epochs of KIP-848 members."""
        self.joins: Counter[str] = Counter()
        self.interval_ms = 20
        """Between heartbeats, as coordinators tell it."""
        self.session_ms = 0
        """How long members are waited for, as they are told; 0: they are not."""
        self.said: list[Said] = []
        self.refusal = NOT_LEADER
        """What who does not lead says."""
        self.hints = True
        """And whether it says who does."""
        self._lonely = lonely
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

    # Groups

    def _coordinates(self, node: ScriptedNode, group: str) -> int:
        where = self.coordinators.get(group)
        return NO_COORDINATOR if where is None else 0 if where == node.node_id else NOT_COORDINATOR

    async def _findcoordinator(
        self, node: ScriptedNode, request: group_pb.FindCoordinatorRequest
    ) -> group_pb.FindCoordinatorResponse:
        where = self.coordinators.get(request.key)
        if where is None:
            return group_pb.FindCoordinatorResponse(error_code=NO_COORDINATOR, in_cluster=not self._lonely)
        port = self.nodes[where].port
        return group_pb.FindCoordinatorResponse(node_id=where, host="127.0.0.1", port=port, in_cluster=not self._lonely)

    async def _offsetcommit(
        self, node: ScriptedNode, request: group_pb.OffsetCommitRequest
    ) -> group_pb.OffsetCommitResponse:
        code = self._coordinates(node, request.group_id)
        for topic in request.topics if not code else ():
            for part in topic.partitions:
                at = (part.committed_offset, part.committed_leader_epoch)
                self.committed[request.group_id, topic.name, part.partition_index] = at
        return group_pb.OffsetCommitResponse(error_code=code)

    async def _offsetfetch(
        self, node: ScriptedNode, request: group_pb.OffsetFetchRequest
    ) -> group_pb.OffsetFetchResponse:
        code = self._coordinates(node, request.group_id)
        answer = group_pb.OffsetFetchResponse(error_code=code)
        for topic in request.topics if not code else ():
            line = answer.topics.add(name=topic.name)
            for number in topic.partition_indexes:
                offset, epoch = self.committed.get((request.group_id, topic.name, number), (-1, -1))
                row = line.partitions.add(partition_index=number, committed_offset=offset, committed_leader_epoch=epoch)
                place = self.topics[topic.name][number]
                if request.include_log_offsets and place.leader == node.node_id:
                    row.log_start_offset, row.log_end_offset = place.start, place.end
        return answer

    async def _listgroups(self, node: ScriptedNode, request: group_pb.ListGroupsRequest) -> group_pb.ListGroupsResponse:
        answer = group_pb.ListGroupsResponse(in_cluster=not self._lonely)
        for group, where in self.coordinators.items():
            if where == node.node_id:
                answer.groups.add(group_id=group, group_state="Stable", protocol_type="consumer", group_type="Classic")
        return answer

    async def _describegroups(
        self, node: ScriptedNode, request: group_pb.DescribeGroupsRequest
    ) -> group_pb.DescribeGroupsResponse:
        answer = group_pb.DescribeGroupsResponse()
        for group in request.groups:
            code = self._coordinates(node, group)
            answer.groups.add(group_id=group, error_code=code, group_state="" if code else "Stable")
        return answer

    async def _deletegroups(
        self, node: ScriptedNode, request: group_pb.DeleteGroupsRequest
    ) -> group_pb.DeleteGroupsResponse:
        answer = group_pb.DeleteGroupsResponse()
        for group in request.groups_names:
            code = self._coordinates(node, group)
            answer.results.add(group_id=group, error_code=code)
            if not code:
                del self.coordinators[group]
        return answer

    async def _consumergroupheartbeat(
        self, node: ScriptedNode, request: group_pb.ConsumerGroupHeartbeatRequest
    ) -> group_pb.ConsumerGroupHeartbeatResponse:
        """Whoever joins gets everything."""
        code = self._coordinates(node, request.group_id)
        answer = group_pb.ConsumerGroupHeartbeatResponse(error_code=code, member_id=request.member_id)
        if code:
            return answer
        answer.heartbeat_interval_ms = self.interval_ms
        answer.session_timeout_ms = self.session_ms
        if request.member_epoch == 0:
            self.joins[request.member_id] += 1
            self.epochs[request.member_id] = self.epochs.get(request.member_id, 0) + 1
            for name, places in self.topics.items():
                answer.assignment.topic_partitions.add(
                    topic_id=name.encode().ljust(16, b"."), topic_name=name, partitions=range(len(places))
                )
        answer.member_epoch = self.epochs.get(request.member_id, 1)
        return answer


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
