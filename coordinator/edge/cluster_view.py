"""What a node's listeners know of the other nodes: who leads, who coordinates, where clients reach them.

A node on its own has None in the place of a `ClusterView`. What a view shows may be behind by as much as a poll
takes. `monotonic_ms` is the clock by which leases count: it goes on while the machine sleeps, so that what a leader
knew before is old afterwards.
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from muster.coordinator.config import Address
from muster.coordinator.config.values import format_address
from muster.storage.topics.catalog import PRIVATE_TOPICS

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from muster.coordinator.core.model.effects import SettingsReply
    from muster.coordinator.core.model.events import AlterSettings, DescribeSettings
    from muster.coordinator.errors import ErrorCode
    from muster.coordinator.replication.protocol.cluster_metadata import PartitionView, TopicView


ForwardedAnswer = TypeVar("ForwardedAnswer")

OFFSETS_TOPIC = "__consumer_offsets"
"""The topic whose partitions are the shards of groups: who leads one coordinates its groups."""

KAFKA, GRPC, HTTP = "PLAINTEXT", "GRPC", "HTTP"
"""Listeners, as registrations name them: Kafka's protocol, ours, and the page, whatever they are wrapped in."""

FORWARDED_HEADER = "muster-forwarded"
"""A header of calls that a node hands on."""

NO_NODE = -1
"""The leader of a partition that nobody leads, the controller where none is known."""


class NodeAddress(NamedTuple):
    """A node, and where clients of one listener reach it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def format_node_address(node: NodeAddress) -> str:
    """Its address as HOST:PORT."""
    return format_address(node.host, node.port)


class OtherNodes(Protocol):
    """Asks other nodes what clients may ask of any node."""

    async def settings(self, shard: int, event: "DescribeSettings | AlterSettings") -> "SettingsReply":
        """What the coordinator of the shard answers; COORDINATOR_NOT_AVAILABLE where none does."""

    async def with_settings(self, node: int) -> "tuple[ErrorCode, tuple[str, ...]]":
        """The groups with settings that the node coordinates; a code where it cannot tell all of them."""

    async def forwarded(
        self, node: int, method: str, request: "Message", answer: "type[ForwardedAnswer]"
    ) -> "ForwardedAnswer":
        """What that node answers to the same call by gRPC, which tells it by a header FORWARDED. Raises SubjectNotFound
        and TemporarilyUnknown, as it does, and TemporarilyUnknown where it does not answer."""


class ClusterView(Protocol):
    """What this node knows of its cluster; it may be behind by as much as a poll takes. Listeners go by the names that
    registrations have: `KAFKA`, `GRPC`, `HTTP`."""

    @property
    def me(self) -> int:
        """This node's id."""

    @property
    def elsewhere(self) -> OtherNodes | None:
        """Who asks other nodes; None where nobody does."""

    @property
    def controller(self) -> int:
        """The node id of the controller; NOBODY where none is known."""

    @property
    def cut_off(self) -> bool:
        """Whether this node hears of the others no more: who leads or coordinates may be known to all but it."""

    def nodes(self, listener: str) -> list[NodeAddress]:
        """The live nodes that have such a listener, by id."""

    def topics(self) -> "Mapping[str, TopicView]":
        """All topics of the cluster by name, internal and private ones as well: clients are told by
        `visible_topics`.
        """

    def partition(self, topic: str, number: int) -> "PartitionView | None":
        """Who leads it, and who has copies; None for what this node does not know."""

    def offline(self, view: "PartitionView") -> list[int]:
        """Of its replicas those whose nodes are not live."""

    def coordinator(self, shard: int, listener: str) -> NodeAddress | None:
        """Who coordinates the groups of a shard; None where nobody does, or nobody that has the listener."""


def coordinates_shard(cluster: ClusterView, shard: int) -> bool:
    """Whether the asking node coordinates the groups of a shard, as far as it knows."""
    view = cluster.partition(OFFSETS_TOPIC, shard)
    return view is not None and view.leader == cluster.me


def leader_address(cluster: ClusterView, topic: str, number: int, listener: str) -> NodeAddress | None:
    """Where the leader of a partition listens; None where there is none that lives and has the listener."""
    view = cluster.partition(topic, number)
    if view is None:
        return None
    return next((node for node in cluster.nodes(listener) if node.node_id == view.leader), None)


def visible_topics(cluster: ClusterView) -> "dict[str, TopicView]":
    """All topics that clients may hear of, by name."""
    return {name: topic for name, topic in cluster.topics().items() if name not in PRIVATE_TOPICS}


def visible_topic(cluster: ClusterView, name: str) -> "TopicView | None":
    return None if name in PRIVATE_TOPICS else cluster.topics().get(name)


# Clocks of leases
# ----------------

CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def monotonic_ms() -> int:
    """The one by which leases count. It goes on while the machine sleeps: what a leader knew before is old then."""
    return time.clock_gettime_ns(CLOCK) // 1_000_000


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


# Where this node's clients are sent
# ----------------------------------


class ClientAddresses(NamedTuple):
    """Where clients are told to go by gRPC and, if they can, by Kafka's protocol; and where HTTP listens."""

    grpc: Address
    kafka: Address | None
    http: Address | None
