"""The Broker service over somebody's Kafka (KB-G2): topics and offsets are told; records are for Kafka's own
clients."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from muster.coordinator.edge.cluster import GRPC, ClusterView
from muster.coordinator.kafka_backend.upstream.errors import UpstreamError, describe_code
from muster.coordinator.kafka_backend.upstream.records import list_offsets
from muster.coordinator.kafka_backend.upstream.topics import describe_topic_configs
from muster.coordinator.kafka_backend.upstream.upstream import Upstream
from muster.coordinator.server.kafka_backend.upstream_logs import UpstreamLogs
from muster.storage.broker.requests import LogRequests
from muster.storage.errors import NotLeaderOrFollower, StorageError
from muster.storage.rpc.v1 import broker_service_pb2 as broker_pb
from muster.storage.service.answers import Asked, error_code_of, fetch_result, produce_response
from muster.storage.service.broker import ROOM, BrokerService
from muster.storage.service.fetch_frames import FetchResultFrame
from muster.storage.shape import check_entry_count

KAFKA = "kafka"
"""What `NodeMetadata.records` says."""


class UpstreamRecords(BrokerService):
    """As its base; produces and fetches are refused, each partition in words."""

    _broker: UpstreamLogs

    def __init__(
        self,
        requests: LogRequests,
        upstream: Upstream,
        cluster: ClusterView,
        *,
        node_id: int,
        bootstrap: str,
        advertised: Callable[[], tuple[str, int]],
        met: Callable[[], Awaitable[None]],
        room: Callable[[Any], int] = lambda call: ROOM,
    ) -> None:
        """bootstrap: HOST:PORT,HOST:PORT of the upstream, for clients. met: returns once the node knows the others, or
        waits no longer; who asks which nodes there are before that waits with it."""
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
        return produce_response(request, [self._refusal(*place) for place in asked])

    async def _long_poll(
        self, asked: Sequence[Asked], request: broker_pb.FetchRequest | broker_pb.MultiFetchRequest, room: int
    ) -> list[FetchResultFrame]:
        check_entry_count("partitions", len(asked))
        return [fetch_result(topic, part.partition, self._refusal(topic, part.partition)) for topic, part in asked]

    def _refusal(self, topic: str, partition: int) -> StorageError:
        try:
            self._broker.log(topic, partition)
        except StorageError as refusal:
            return refusal
        raise AssertionError("this node has no log")

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
            found = await self._ask(leader, places, timestamp)
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

    async def _ask(
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
