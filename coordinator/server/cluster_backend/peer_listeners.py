"""The clients' listeners of nodes: which addresses a node advertises, and how it asks other nodes there.

A node asks others by gRPC as any client does: for the settings of groups that they coordinate, and for what they
report of them.
"""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import grpc
from google.protobuf.message import Message

from muster.coordinator.config.tls import REPLICATION
from muster.coordinator.config.values import WILDCARD_HOSTS, Address, format_address, is_loopback
from muster.coordinator.core.model.effects import SettingsReply
from muster.coordinator.core.model.events import AlterSettings, DescribeSettings
from muster.coordinator.edge.background_tasks import SupervisedTasks
from muster.coordinator.edge.cluster_view import (
    FORWARDED_HEADER,
    GRPC,
    HTTP,
    ClientAddresses,
    ClusterView,
    ForwardedAnswer,
    NodeAddress,
    format_node_address,
)
from muster.coordinator.errors import ErrorCode, SubjectNotFound, TemporarilyUnknown, error_code_of
from muster.coordinator.replication.io.remote_log_ends import LogEndsClient
from muster.coordinator.replication.protocol.cluster_metadata import NodeEndpoint
from muster.coordinator.rpc.v1.coordinator_service_pb2 import (
    AlterGroupSettingsRequest,
    AlterGroupSettingsResponse,
    DescribeGroupSettingsRequest,
    DescribeGroupSettingsResponse,
)
from muster.coordinator.zookeeper.layout import GRPC_ENDPOINT, PLAINTEXT

if TYPE_CHECKING:
    from muster.coordinator.server.security.listener_certificates import NodeCertificates


# Addresses that a node advertises
# --------------------------------


def client_endpoints(doors: ClientAddresses) -> tuple[NodeEndpoint, ...]:
    """All of them, Kafka's first, which tools of that era take for the only one."""
    kafka = None if doors.kafka is None else NodeEndpoint(PLAINTEXT, *doors.kafka)
    told = (kafka, NodeEndpoint(GRPC_ENDPOINT, *doors.grpc), http_address(doors.http, doors.grpc))
    return tuple(door for door in told if door is not None)


def http_address(bound: Address | None, advertised: Address) -> NodeEndpoint | None:
    """The page's, for a node that is advertised (gRPC's door) at this address; None where others cannot reach it.

    >>> http_address(Address("0.0.0.0", 9291), Address("node-1", 9290))
    NodeEndpoint(listener='HTTP', host='node-1', port=9291)
    >>> http_address(Address("10.0.0.1", 9291), Address("node-1", 9290)).host
    '10.0.0.1'
    >>> http_address(Address("127.0.0.1", 9291), Address("node-1", 9290)) is None
    True
    >>> http_address(Address("127.0.0.1", 9291), Address("127.0.0.1", 9290)).port
    9291
    """
    if bound is None or (is_loopback(bound.host) and not is_loopback(advertised.host)):
        return None
    anywhere = bound.host in WILDCARD_HOSTS or is_loopback(bound.host)
    return NodeEndpoint(HTTP, advertised.host if anywhere else bound.host, bound.port)


def addresses_by_listener(doors: ClientAddresses) -> dict[str, str]:
    """Where clients reach this node, HOST:PORT by door, for the map of nodes over somebody's Kafka."""
    http = http_address(doors.http, doors.grpc)
    found = {"grpc": doors.grpc, "kafka": doors.kafka, "http": None if http is None else (http.host, http.port)}
    return {door: format_address(*at) for door, at in found.items() if at is not None}


# Questions to other nodes by gRPC
# --------------------------------

OPTIONS: Final = (("grpc.enable_http_proxy", 0),)
"""Nodes reach each other without a proxy that is meant for others."""

PATIENCE_S: Final = 2.0


GROUPS: Final = "/coordinator.rpc.v1.GroupCoordinator/"

SettingsAnswer: TypeAlias = DescribeGroupSettingsResponse | AlterGroupSettingsResponse
Credentials = Callable[[], grpc.ChannelCredentials | None]


class PeerChannels:
    """To the gRPC doors of other nodes. `credentials`: for the next connection; None: in the clear."""

    def __init__(self, cluster: ClusterView, credentials: Credentials = lambda: None) -> None:
        self._cluster = cluster
        self._credentials = credentials
        self._channels: dict[int, tuple[NodeAddress, grpc.aio.Channel]] = {}
        self._closing = SupervisedTasks()

    async def close(self) -> None:
        for _, channel in self._channels.values():
            await channel.close()
        self._channels.clear()
        await self._closing.close()

    def to(self, node: int) -> grpc.aio.Channel | None:
        """One for each node, for as long as it is where it was."""
        where = next((each for each in self._cluster.nodes(GRPC) if each.node_id == node), None)
        known = self._channels.get(node)
        if known is not None and known[0] == where:
            return known[1]
        if known is not None:
            del self._channels[node]
            self._let_go(known[1])
        if where is None:
            return None
        credentials = self._credentials()
        channel = (
            grpc.aio.insecure_channel(format_node_address(where), OPTIONS)
            if credentials is None
            else grpc.aio.secure_channel(format_node_address(where), credentials, OPTIONS)
        )
        self._channels[node] = where, channel
        return channel

    def _let_go(self, channel: grpc.aio.Channel) -> None:
        """Once what is under way by it is answered, or given up: one that is closed at once ends the tasks of those who
        wait, as if they had been cancelled."""
        self._closing.start(channel.close(2 * PATIENCE_S), "close a connection to another node")


class PeerGroupClient:
    """See `edge.cluster.Elsewhere`."""

    def __init__(self, cluster: ClusterView, channels: PeerChannels, by_door: LogEndsClient | None) -> None:
        self._cluster = cluster
        self._channels = channels
        self._by_door = by_door

    async def with_settings(self, node: int) -> tuple[ErrorCode, tuple[str, ...]]:
        assert self._by_door is not None, "nodes of such a cluster have one"
        return await self._by_door.groups_with_settings(node)

    async def settings(self, shard: int, event: DescribeSettings | AlterSettings) -> SettingsReply:
        node = self._cluster.coordinator(shard, GRPC)
        channel = None if node is None or node.node_id == self._cluster.me else self._channels.to(node.node_id)
        if channel is None:
            return SettingsReply(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "nobody coordinates this group right now; try again"
            )
        request, answer = forwarded_call(event)
        call: Any = channel.unary_unary(
            f"{GROUPS}{request.DESCRIPTOR.name.removesuffix('Request')}",
            type(request).SerializeToString,
            answer.FromString,
        )
        try:
            said: SettingsAnswer = await call(request, timeout=PATIENCE_S)
        except grpc.aio.AioRpcError as error:
            why = f"the coordinator of this group did not answer: {error.details()}"
            return SettingsReply(ErrorCode.COORDINATOR_NOT_AVAILABLE, why)
        return settings_reply(said)

    async def forwarded(
        self, node: int, method: str, request: Message, answer: type[ForwardedAnswer]
    ) -> ForwardedAnswer:
        channel = self._channels.to(node)
        if channel is None:
            raise TemporarilyUnknown(f"node {node}, which coordinates the group, is gone; ask again")
        reads: Any = answer
        call: Any = channel.unary_unary(method, type(request).SerializeToString, reads.FromString)
        try:
            said: ForwardedAnswer = await call(request, timeout=PATIENCE_S, metadata=((FORWARDED_HEADER, "1"),))
        except grpc.aio.AioRpcError as error:
            refusal = SubjectNotFound if error.code() is grpc.StatusCode.NOT_FOUND else TemporarilyUnknown
            raise refusal(f"node {node}, which coordinates the group: {error.details()}") from error
        return said


def forwarded_call(event: DescribeSettings | AlterSettings) -> tuple[Message, type[SettingsAnswer]]:
    """The call that asks the same, and what answers it."""
    if isinstance(event, DescribeSettings):
        return DescribeGroupSettingsRequest(group_id=event.group_id), DescribeGroupSettingsResponse
    request = AlterGroupSettingsRequest(
        group_id=event.group_id,
        set={name: json.dumps(value) for name, value in event.set.items()},
        unset=event.unset,
        expected_version=event.expected_version,
        validate_only=event.validate_only,
        reason=event.operator,
    )
    return request, AlterGroupSettingsResponse


def settings_reply(answer: SettingsAnswer) -> SettingsReply:
    code = error_code_of(int(answer.error_code))
    return SettingsReply(
        ErrorCode.COORDINATOR_NOT_AVAILABLE if code is ErrorCode.NOT_COORDINATOR else code,
        answer.error_message,
        answer.version,
        {name: json.loads(text) for name, text in answer.settings.items()},
        {name: json.loads(text) for name, text in answer.defaults.items()},
        answer.suspended,
    )


def peer_credentials(certificates: "NodeCertificates | None") -> Credentials:
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
