"""The gRPC services of a node over an existing Kafka, as far as they differ from those of a node with a log of its own.

The Broker service answers topics and offsets; records are for Kafka's own clients (KB-G2). The GroupCoordinator
service names the owner of a group's shard. `muster cluster drain` makes the node itself tell the nodes' group that
it wants no shards. Exactly-once sinks and fences in logs need a log of the node's own, and are refused (KB-G3).
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from muster.coordinator.edge.cluster_view import GRPC, ClusterView
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.kafka_backend.shard_ownership.shard_assignment import ShardAssignment
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamError, describe_code
from muster.coordinator.kafka_backend.upstream.record_requests import list_offsets
from muster.coordinator.kafka_backend.upstream.topic_requests import describe_topic_configs
from muster.coordinator.kafka_backend.upstream.topic_watch import UpstreamLogEnds
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.rpc.v1 import (
    cluster_service_pb2 as cluster_pb,
)
from muster.coordinator.rpc.v1 import (
    coordinator_service_pb2 as coordinator_pb,
)
from muster.coordinator.rpc.v1 import (
    fence_service_pb2,
)
from muster.coordinator.server.backend import fencing
from muster.coordinator.server.kafka_backend.upstream_logs import UpstreamLog
from muster.coordinator.server.rpc_dispatch import RpcCall
from muster.coordinator.server.services.group_coordinator import (
    NO_TRANSACTIONS,
    GroupCoordinator,
    GroupServiceContext,
    RoutedGroupCoordinator,
)
from muster.coordinator.server.services.group_responses import to_error_code
from muster.storage.broker.requests import RecordRequests
from muster.storage.errors import NotLeaderOrFollower, StorageError, check_entry_count
from muster.storage.rpc.v1 import broker_service_pb2 as broker_pb
from muster.storage.rpc.v1 import staging_service_pb2 as staging_pb
from muster.storage.service.broker_service import (
    ROOM,
    Asked,
    BrokerService,
    error_code_of,
    fetch_result,
    produce_response,
)
from muster.storage.service.fetch_frames import FetchResultFrame

# Broker (KB-G2)
# --------------

KAFKA = "kafka"
"""What `NodeMetadata.records` says."""


class UpstreamRecords(BrokerService):
    """As its base; produces and fetches are refused, each partition in words."""

    _broker: UpstreamLog

    def __init__(
        self,
        requests: RecordRequests,
        upstream: Upstream,
        cluster: ClusterView,
        *,
        node_id: int,
        bootstrap: str,
        advertised: Callable[[], tuple[str, int]],
        met: Callable[[], Awaitable[None]],
        room: Callable[[Any], int] = lambda call: ROOM,
    ) -> None:
        """bootstrap: HOST:PORT,HOST:PORT of the upstream, for clients; empty: they are not sent there.
        met: returns once the node knows the others, or waits no longer; who asks which nodes there are before that
        waits with it."""
        super().__init__(requests, node_id=node_id, advertised=advertised, room=room)
        self._upstream = upstream
        self._cluster = cluster
        self._bootstrap = bootstrap
        self._met = met

    async def metadata(self, request: broker_pb.MetadataRequest, call: object) -> broker_pb.MetadataResponse:
        """Each node answers for all topics alike; the records are led elsewhere altogether."""
        await self._met()
        answer = await super().metadata(request, call)
        answer.controller_id = self._cluster.controller
        if nodes := self._cluster.nodes(GRPC):
            del answer.brokers[:]
            answer.brokers.extend(
                broker_pb.NodeMetadata(node_id=node.node_id, host=node.host, port=node.port) for node in nodes
            )
        if self._bootstrap:
            for each in answer.brokers:
                each.records, each.records_bootstrap = KAFKA, self._bootstrap
        return answer

    async def describe_configs(
        self, request: broker_pb.DescribeConfigsRequest, call: object
    ) -> broker_pb.DescribeConfigsResponse:
        if not request.topics:
            return await super().describe_configs(request, call)
        check_entry_count("topics", len(request.topics))
        return broker_pb.DescribeConfigsResponse(
            results=[await self._configs_of(name) for name in dict.fromkeys(request.topics)]
        )

    async def _configs_of(self, name: str) -> broker_pb.DescribedConfigs:
        try:
            self._broker.topic(name)
            found = await describe_topic_configs(self._upstream, name)
        except StorageError as error:
            return broker_pb.DescribedConfigs(topic=name, error_code=error_code_of(error), error_message=str(error))
        except UpstreamError as error:
            away = StorageError(f"The upstream cannot be asked: {error}. Try again.")
            return broker_pb.DescribedConfigs(topic=name, error_code=error_code_of(away), error_message=str(away))
        configs = [broker_pb.ConfigEntry(name=each.name, value=each.value, is_default=not each.own) for each in found]
        return broker_pb.DescribedConfigs(topic=name, configs=configs)

    def _leader_epoch(self, name: str, number: int) -> int:
        return -1

    async def produce(self, request: broker_pb.ProduceRequest, call: object) -> broker_pb.ProduceResponse:
        check_entry_count("partitions", sum(len(topic.partition_data) for topic in request.topic_data))
        asked = [(topic.name, data.index) for topic in request.topic_data for data in topic.partition_data]
        return produce_response(request, [self._broker.record_refusal(*place) for place in asked])

    async def _long_poll(
        self, asked: Sequence[Asked], request: broker_pb.FetchRequest | broker_pb.MultiFetchRequest, room: int
    ) -> list[FetchResultFrame]:
        check_entry_count("partitions", len(asked))
        return [
            fetch_result(topic, part.partition, self._broker.record_refusal(topic, part.partition))
            for topic, part in asked
        ]

    # -- offsets ------------------------------------------------------------------------------------------------------

    async def list_offsets(self, request: broker_pb.ListOffsetsRequest, call: object) -> broker_pb.ListOffsetsResponse:
        """Asked of the leaders at once, all partitions of a leader and a moment together."""
        check_entry_count("partitions", sum(len(topic.partitions) for topic in request.topics))
        asked: dict[tuple[int, int], list[tuple[str, int]]] = {}
        told: dict[tuple[str, int, int], int | StorageError] = {}
        for topic in request.topics:
            for part in topic.partitions:
                place = topic.name, part.partition_index
                try:
                    asked.setdefault((self._leader(*place), part.timestamp), []).append(place)
                except StorageError as error:
                    told[*place, part.timestamp] = error
        for (leader, timestamp), places in asked.items():
            found = await self._list_offsets(leader, places, timestamp)
            told |= {(*place, timestamp): answer for place, answer in found.items()}
        response = broker_pb.ListOffsetsResponse()
        for topic in request.topics:
            parts = topic.partitions
            listed = [_listed(part, told[topic.name, part.partition_index, part.timestamp]) for part in parts]
            response.topics.add(name=topic.name, partitions=listed)
        return response

    def _leader(self, topic: str, partition: int) -> int:
        self._broker.topic(topic)
        leader = self._broker.leader_of(topic, partition)[0]
        if leader < 0:
            raise NotLeaderOrFollower(f"Nobody leads {topic}-{partition} in the upstream by now. Try again.")
        return leader

    async def _list_offsets(
        self, leader: int, places: Sequence[tuple[str, int]], timestamp: int
    ) -> dict[tuple[str, int], int | StorageError]:
        try:
            written = await list_offsets(self._upstream, leader, list(places), timestamp)
        except UpstreamError as error:
            return dict.fromkeys(places, StorageError(f"The upstream cannot be asked: {error}. Try again."))
        found: dict[tuple[str, int], int | StorageError] = {}
        for place in places:
            told = written[place]
            if told.code:
                found[place] = NotLeaderOrFollower(
                    f"Asked where {place[0]}-{place[1]} ends, its leader says {describe_code(told.code)}. Try again."
                )
            else:
                found[place] = told.offset
        return found


def _listed(part: broker_pb.ListOffsetsPartition, told: int | StorageError) -> broker_pb.ListOffsetsPartitionResult:
    result = broker_pb.ListOffsetsPartitionResult(partition_index=part.partition_index, offset=-1, timestamp=-1)
    if isinstance(told, StorageError):
        result.error_code, result.error_message = error_code_of(told), str(told)
    else:
        result.offset = told
    return result


# GroupCoordinator (KB-G1)
# ------------------------

CUT_OFF: Final = (
    "this node has heard nothing of the nodes' group in the upstream for too long: which node coordinates a group may "
    "be known to all but it; ask another node, or again later"
)


class UpstreamPositions(GroupCoordinator):
    """As its base; where logs end that nobody has asked about of late is asked of their leaders."""

    ends: UpstreamLogEnds

    async def offset_fetch(
        self, request: coordinator_pb.OffsetFetchRequest, call: RpcCall
    ) -> coordinator_pb.OffsetFetchResponse:
        answer = await super().offset_fetch(request, call)
        unknown = [
            (topic.name, part.partition_index)
            for topic in answer.topics
            for part in topic.partitions
            if not part.HasField("log_end_offset")
        ]
        if not request.include_log_offsets or not unknown:
            return answer
        await self.ends.ahead(unknown)
        return await super().offset_fetch(request, call)


class UpstreamGroups(UpstreamPositions, RoutedGroupCoordinator):
    """met: returns once the node knows the others, or waits no longer; who asks for a coordinator before that waits
    with it."""

    def __init__(
        self,
        cluster: ClusterView,
        context: GroupServiceContext,
        *,
        ends: UpstreamLogEnds,
        met: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(cluster, context, cut_off=CUT_OFF)
        self.ends = ends
        self._met = met

    async def find_coordinator(
        self, request: coordinator_pb.FindCoordinatorRequest, call: RpcCall
    ) -> coordinator_pb.FindCoordinatorResponse:
        await self._met()
        return await super().find_coordinator(request, call)


# Cluster: muster cluster drain (KB-F8)
# -------------------------------------

PATIENCE_MS: Final = 60_000
MOST_PATIENCE_MS: Final = 600_000
CALLS: Final = frozenset({"DrainNode"})
"""Of the Cluster service, what a node offers that is one of many over a Kafka."""


class CanDrain(Protocol):
    """`NodesGroup`, as far as it is asked here."""

    assignment: ShardAssignment

    def drain(self) -> None: ...

    def undrain(self) -> None: ...

    async def drained(self, patience_s: float) -> frozenset[int]: ...


class DrainService:
    """Answered for the node itself; for another one with where that is."""

    def __init__(self, nodes: CanDrain, cluster: ClusterView, state_topic: str) -> None:
        self._nodes = nodes
        self._cluster = cluster
        self._topic = state_topic

    async def drain_node(self, request: cluster_pb.DrainNodeRequest, call: RpcCall) -> cluster_pb.DrainNodeResponse:
        """Answered once others have what the node had."""
        refusal = self._refusal(request.node_id, undrain=request.undrain)
        if refusal is not None:
            return refusal
        if request.undrain:
            self._nodes.undrain()
            return cluster_pb.DrainNodeResponse()
        self._nodes.drain()
        patience_ms = request.timeout_ms if request.timeout_ms > 0 else PATIENCE_MS
        left = await self._nodes.drained(min(patience_ms, MOST_PATIENCE_MS) / 1_000)
        answer = cluster_pb.DrainNodeResponse()
        for shard in sorted(left):
            answer.still_leads.add(topic=self._topic, partition=shard)
        return answer

    def _refusal(self, node: int, *, undrain: bool) -> cluster_pb.DrainNodeResponse | None:
        if node != self._cluster.me:
            return self._of_another(node)
        takers = [
            each.node for each in self._nodes.assignment.nodes.values() if each.node != node and not each.draining
        ]
        if takers or undrain:
            return None
        return cluster_pb.DrainNodeResponse(
            error_code=to_error_code(ErrorCode.INVALID_REQUEST),
            error_message=f"node {node} is the only one that takes shards, and would keep them; start another "
            "node first",
        )

    def _of_another(self, node: int) -> cluster_pb.DrainNodeResponse:
        known = {each.node_id: f"{each.host}:{each.port}" for each in self._cluster.nodes(GRPC)}
        if node in known:
            return cluster_pb.DrainNodeResponse(
                error_code=to_error_code(ErrorCode.NOT_COORDINATOR),
                error_message=f"node {node} drains itself; ask it, at {known[node]}",
            )
        return cluster_pb.DrainNodeResponse(
            error_code=to_error_code(ErrorCode.RESOURCE_NOT_FOUND),
            error_message=f"node {node} is not known; expected one of {sorted(known)}",
        )


# Staging and Fencing: refused (KB-G3)
# ------------------------------------

CODE: Any = int(ErrorCode.UNSUPPORTED_VERSION)
BUNDLED = "it needs a node that keeps records itself (engine=bundled)"


OF_THAT_KAFKA: Final = f"{NO_TRANSACTIONS[0].upper()}{NO_TRANSACTIONS[1:]}."
"""What to do about a transactional id (KB-G3)."""


class RefusedStaging:
    """The Staging service, KB-G3: what Spark's exactly-once sink writes by."""

    def __init__(self) -> None:
        self._sentence = (
            f"Records of an exactly-once sink cannot be staged here: this node's engine is a Kafka, and {BUNDLED}. "
            "Write to that Kafka with Spark's own Kafka sink instead."
        )

    async def keep_up(self) -> None:
        """There is nothing to be kept."""

    async def stage_records(
        self, request: staging_pb.StageRecordsRequest, call: object
    ) -> staging_pb.StageRecordsResponse:
        return staging_pb.StageRecordsResponse(error_code=CODE, error_message=self._sentence)

    async def commit_staged(
        self, request: staging_pb.CommitStagedRequest, call: object
    ) -> staging_pb.CommitStagedResponse:
        return staging_pb.CommitStagedResponse(error_code=CODE, error_message=self._sentence)

    async def abort_staged(
        self, request: staging_pb.AbortStagedRequest, call: object
    ) -> staging_pb.AbortStagedResponse:
        return staging_pb.AbortStagedResponse(error_code=CODE, error_message=self._sentence)

    async def topics_of(self, request: object) -> set[str]:
        return set()

    async def close(self) -> None:
        """Nothing is under way."""


class RefusedFencing:
    """The Fencing service: a fence is a line in each log, and these logs are Kafka's."""

    def __init__(self) -> None:
        self._refusal = CoordinatorError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"a fence cannot be put up here: this node's engine is a Kafka, and {BUNDLED}; use a transactional "
            "producer of that Kafka",
        )

    async def claim_fence(
        self, request: fence_service_pb2.ClaimFenceRequest, call: object
    ) -> fence_service_pb2.ClaimFenceResponse:
        return fencing.build_fence_refusal(self._refusal)
