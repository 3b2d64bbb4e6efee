"""Asks other nodes of a cluster where logs end, at their gRPC doors, as any client does."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import grpc
import structlog

from muster.coordinator.config.security.tls import REPLICATION
from muster.coordinator.edge.cluster import GRPC, Cluster, NodeAt, at
from muster.storage.rpc.v1.broker_service_pb2 import ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic

LIST_OFFSETS: Final = "/storage.rpc.v1.Broker/ListOffsets"
OPTIONS: Final = (("grpc.enable_http_proxy", 0),)
"""Nodes reach each other without a proxy that is meant for others."""

PATIENCE_S: Final = 2.0

if TYPE_CHECKING:
    from muster.coordinator.server.security.tls.listeners import Certificates

Place = tuple[str, int]
Credentials = Callable[[], grpc.ChannelCredentials | None]

log = structlog.get_logger("muster.cluster")


class AsksByGrpc:
    """See `replication.ends.Ask`. `credentials`: for the next connection; None: in the clear."""

    def __init__(self, cluster: Cluster, credentials: Credentials = lambda: None) -> None:
        self._cluster = cluster
        self._credentials = credentials
        self._channels: dict[int, tuple[NodeAt, grpc.aio.Channel]] = {}

    async def __call__(self, node: int, places: Sequence[Place], timestamp: int) -> Mapping[Place, int]:
        channel = await self._to(node)
        if channel is None:
            return {}
        request = ListOffsetsRequest()
        topics: dict[str, ListOffsetsTopic] = {}
        for topic, number in places:
            if topic not in topics:
                topics[topic] = request.topics.add(name=topic)
            topics[topic].partitions.add(partition_index=number, timestamp=timestamp)
        ask = channel.unary_unary(LIST_OFFSETS, ListOffsetsRequest.SerializeToString, ListOffsetsResponse.FromString)
        try:
            answer: ListOffsetsResponse = await ask(request, timeout=PATIENCE_S)
        except grpc.aio.AioRpcError as error:
            log.debug("a node does not say where logs end", node=node, why=error.details())
            return {}
        return {
            (topic.name, part.partition_index): part.offset
            for topic in answer.topics
            for part in topic.partitions
            if not part.error_code
        }

    async def close(self) -> None:
        for _, channel in self._channels.values():
            await channel.close()
        self._channels.clear()

    async def _to(self, node: int) -> grpc.aio.Channel | None:
        """One for each node, for as long as it is where it was."""
        where = next((each for each in self._cluster.nodes(GRPC) if each.node_id == node), None)
        known = self._channels.get(node)
        if known is not None and known[0] == where:
            return known[1]
        if known is not None:
            del self._channels[node]
            await known[1].close()
        if where is None:
            return None
        credentials = self._credentials()
        channel = (
            grpc.aio.insecure_channel(at(where), OPTIONS)
            if credentials is None
            else grpc.aio.secure_channel(at(where), credentials, OPTIONS)
        )
        self._channels[node] = where, channel
        return channel


def credentials_of(certificates: "Certificates | None") -> Credentials:
    """What this node shows and believes at the gRPC doors of others, where they speak TLS as its own does: the same as
    at the door between nodes, if that has certificates, too."""
    own = None if certificates is None else certificates.of("grpc")
    if certificates is None or own is None:
        return lambda: None
    shown = certificates.of(REPLICATION) or own

    def made() -> grpc.ChannelCredentials:
        now = shown.material
        return grpc.ssl_channel_credentials(now.trusted or None, now.key, now.chain)

    return made
