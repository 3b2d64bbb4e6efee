"""Which node coordinates a group, and the GroupCoordinator service of a node that coordinates some of them.

`ClusterImageView` is the cluster's image in the terms of the listeners (`edge.cluster`): nodes, topics, leaders, and
the coordinator of a group. It is read again with each question, because the image changes.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from muster.coordinator.core.model import effects, events
from muster.coordinator.edge.cluster_view import ClusterView, NodeAddress, OtherNodes, coordinates_shard
from muster.coordinator.errors import ErrorCode, NodeShuttingDown, Overloaded
from muster.coordinator.replication.io.wire.node_api import GroupsWithSettings
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_NODE_ID,
    OFFSETS,
    ClusterImage,
    ClusterNodeStatus,
    NodeView,
    PartitionView,
    TopicPartition,
    TopicView,
)
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.cluster_backend.metadata_service import CUT_OFF
from muster.coordinator.server.driver.driver import EngineDriver
from muster.coordinator.server.rpc_dispatch import RpcCall
from muster.coordinator.server.services.group_coordinator import GroupServiceContext, RoutedGroupCoordinator
from muster.storage.topics.catalog import PRIVATE_TOPICS

# The image in the terms of the listeners
# ---------------------------------------


class PublicTopics(Mapping[str, TopicView]):
    """The topics that somebody besides nodes may know of."""

    __slots__ = ("_topics",)

    def __init__(self, topics: Mapping[str, TopicView]) -> None:
        self._topics = topics

    def __getitem__(self, name: str) -> TopicView:
        if name in PRIVATE_TOPICS:
            raise KeyError(name)
        return self._topics[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._topics if name not in PRIVATE_TOPICS)

    def __len__(self) -> int:
        return len(self._topics) - len(PRIVATE_TOPICS & self._topics.keys())


class ClusterImageView:
    """Asked anew each time: the image changes under it."""

    def __init__(self, me: int, image: ClusterImage, cut_off: Callable[[], bool] = lambda: False) -> None:
        self._me = me
        self._image = image
        self._cut_off = cut_off
        self.elsewhere: OtherNodes | None = None

    @property
    def me(self) -> int:
        return self._me

    @property
    def controller(self) -> int:
        return self._image.controller if self._lives(self._image.controller) else NO_NODE_ID

    @property
    def cut_off(self) -> bool:
        return self._cut_off()

    def nodes(self, listener: str) -> list[NodeAddress]:
        seen = (node_listening_on(node, listener) for node in sorted(self._image.live(), key=lambda node: node.id))
        return [node for node in seen if node is not None]

    def topics(self) -> Mapping[str, TopicView]:
        topics = self._image.topics
        return topics if topics.keys().isdisjoint(PRIVATE_TOPICS) else PublicTopics(topics)

    def partition(self, topic: str, number: int) -> PartitionView | None:
        return None if topic in PRIVATE_TOPICS else self._image.partition(TopicPartition(topic, number))

    def offline(self, view: PartitionView) -> list[int]:
        return [node for node in view.replicas if not self._lives(node)]

    def coordinator(self, shard: int, listener: str) -> NodeAddress | None:
        view = self.partition(OFFSETS, shard)
        node = None if view is None else self._image.nodes.get(view.leader)
        return None if node is None or not self._lives(node.id) else node_listening_on(node, listener)

    def _lives(self, node_id: int) -> bool:
        node = self._image.nodes.get(node_id)
        return node is not None and node.status is not ClusterNodeStatus.GONE


def node_listening_on(node: NodeView, listener: str) -> NodeAddress | None:
    """Where it listens for those who speak this; None where it does not."""
    return next(
        (NodeAddress(node.id, each.host, each.port, node.rack) for each in node.endpoints if each.listener == listener),
        None,
    )


# The GroupCoordinator service (CL-G1)
# ------------------------------------


class ClusterEnds(Protocol):
    """See `RemoteLogEnds`."""

    @property
    def untried(self) -> bool: ...

    async def known(self) -> None: ...


class ClusterGroupCoordinator(RoutedGroupCoordinator):
    """As its base, whose shards go with the partitions that nodes lead.

    `ends` knows where logs end of which there is no copy here.
    """

    def __init__(self, cluster: ClusterView, context: GroupServiceContext, ends: ClusterEnds | None = None) -> None:
        super().__init__(cluster, context, cut_off=CUT_OFF)
        self._ends = ends

    async def offset_fetch(self, request: pb.OffsetFetchRequest, call: RpcCall) -> pb.OffsetFetchResponse:
        """Where an end is asked for that nobody has asked for of late, its leader is waited for, once."""
        answer = await super().offset_fetch(request, call)
        if not request.include_log_offsets or self._ends is None or not self._ends.untried:
            return answer
        await self._ends.known()
        return await super().offset_fetch(request, call)


async def groups_with_settings(driver: EngineDriver, cluster: ClusterView, shards: int) -> GroupsWithSettings:
    """Of the groups that this node coordinates; a code where one of their shards cannot tell."""
    here = [shard for shard in range(shards) if coordinates_shard(cluster, shard)]
    questions = [(shard, events.ListSettings(driver.next_id())) for shard in here]
    try:
        replies = await driver.ask_all(questions, effects.ListSettingsReply)
    except (NodeShuttingDown, Overloaded):
        return GroupsWithSettings(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    refused = next((reply.code for reply in replies if reply.code is not ErrorCode.NONE), ErrorCode.NONE)
    return GroupsWithSettings(refused, tuple(group for reply in replies for group in reply.group_ids))
