"""The Broker service over somebody's Kafka (KB-G2): topics and offsets are told; records are for Kafka's own
clients."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from muster.coordinator.edge.cluster import GRPC, Cluster
from muster.coordinator.engine.upstream.errors import UpstreamError, named_code
from muster.coordinator.engine.upstream.records import ends
from muster.coordinator.engine.upstream.topics import described_topic
from muster.coordinator.engine.upstream.upstream import Upstream
from muster.coordinator.server.engined.logs import UpstreamLogs
from muster.storage.broker.requests import LogRequests
from muster.storage.errors import NotLeaderOrFollower, StorageError
from muster.storage.rpc.v1 import broker_service_pb2 as pb
from muster.storage.service.answers import Asked, code_of, fetched, produced
from muster.storage.service.broker import ROOM, BrokerService
from muster.storage.service.fetch_frames import Part
from muster.storage.service.shape import bounded

KAFKA = "kafka"
"""What `NodeMetadata.records` says."""


class UpstreamRecords(BrokerService):
    """As its base; produces and fetches are refused, each partition in words."""

    _broker: UpstreamLogs

    def __init__(
        self,
        requests: LogRequests,
        upstream: Upstream,
        cluster: Cluster,
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

    async def metadata(self, request: pb.MetadataRequest, call: object) -> pb.MetadataResponse:
        """Each node answers for all topics alike; the records are led elsewhere altogether."""
        await self._met()
        answer = await super().metadata(request, call)
        answer.controller_id = self._cluster.controller
        if nodes := self._cluster.nodes(GRPC):
            del answer.brokers[:]
            answer.brokers.extend(
                pb.NodeMetadata(node_id=node.node_id, host=node.host, port=node.port) for node in nodes
            )
        for each in answer.brokers:
            each.records, each.records_bootstrap = KAFKA, self._bootstrap
        return answer

    async def describe_configs(self, request: pb.DescribeConfigsRequest, call: object) -> pb.DescribeConfigsResponse:
        if not request.topics:
            return await super().describe_configs(request, call)
        bounded("topics", len(request.topics))
        return pb.DescribeConfigsResponse(
            results=[await self._configs_of(name) for name in dict.fromkeys(request.topics)]
        )

    async def _configs_of(self, name: str) -> pb.DescribedConfigs:
        try:
            self._broker.topic(name)
            found = await described_topic(self._upstream, name)
        except StorageError as error:
            return pb.DescribedConfigs(topic=name, error_code=code_of(error), error_message=str(error))
        except UpstreamError as error:
            away = StorageError(f"The upstream cannot be asked: {error}. Try again.")
            return pb.DescribedConfigs(topic=name, error_code=code_of(away), error_message=str(away))
        configs = [pb.ConfigEntry(name=each.name, value=each.value, is_default=not each.own) for each in found]
        return pb.DescribedConfigs(topic=name, configs=configs)

    def _leader_epoch(self, name: str, number: int) -> int:
        return -1

    async def produce(self, request: pb.ProduceRequest, call: object) -> pb.ProduceResponse:
        bounded("partitions", sum(len(topic.partition_data) for topic in request.topic_data))
        asked = [(topic.name, data.index) for topic in request.topic_data for data in topic.partition_data]
        return produced(request, [self._refusal(*place) for place in asked])

    async def _long_poll(
        self, asked: Sequence[Asked], request: pb.FetchRequest | pb.MultiFetchRequest, room: int
    ) -> list[Part]:
        bounded("partitions", len(asked))
        return [fetched(topic, part.partition, self._refusal(topic, part.partition)) for topic, part in asked]

    def _refusal(self, topic: str, partition: int) -> StorageError:
        try:
            self._broker.log(topic, partition)
        except StorageError as refusal:
            return refusal
        raise AssertionError("this node has no log")

    # -- offsets ------------------------------------------------------------------------------------------------------

    async def list_offsets(self, request: pb.ListOffsetsRequest, call: object) -> pb.ListOffsetsResponse:
        """Asked of the leaders at once, all partitions of a leader and a moment together."""
        bounded("partitions", sum(len(topic.partitions) for topic in request.topics))
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
        response = pb.ListOffsetsResponse()
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
            written = await ends(self._upstream, leader, list(places), timestamp)
        except UpstreamError as error:
            return dict.fromkeys(places, StorageError(f"The upstream cannot be asked: {error}. Try again."))
        found: dict[tuple[str, int], int | StorageError] = {}
        for place in places:
            told = written[place]
            if told.code:
                found[place] = NotLeaderOrFollower(
                    f"Asked where {place[0]}-{place[1]} ends, its leader says {named_code(told.code)}. Try again."
                )
            else:
                found[place] = told.offset
        return found


def _listed(part: pb.ListOffsetsPartition, told: int | StorageError) -> pb.ListOffsetsPartitionResult:
    result = pb.ListOffsetsPartitionResult(partition_index=part.partition_index, offset=-1, timestamp=-1)
    if isinstance(told, StorageError):
        result.error_code, result.error_message = code_of(told), str(told)
    else:
        result.offset = told
    return result
