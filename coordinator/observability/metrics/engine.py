"""What a node over somebody's Kafka tells of it. Other nodes have none of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.coordinator.observability.metrics.instruments import Timing


@dataclass(frozen=True, slots=True)
class KafkaBackendFigures:
    """At one moment. Counters count since the node began."""

    appends: Timing = field(default_factory=Timing)
    """How long what a shard wrote took to be acknowledged, from its request on."""
    unacked: Mapping[int, int] = field(default_factory=dict)
    """Bytes, by shard."""
    owned: int = 0
    fenced: int = 0
    voids: int = 0
    errors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By API and code."""
    proxied: Mapping[str, int] = field(default_factory=dict)
    """Bytes, by direction."""
    proxy_connections: int = 0
    foreign_members: Mapping[str, int] = field(default_factory=dict)
    """By group."""
    topics_unseen: int = 0
    pending_positions: int = 0
    """In clients' transactions that have not ended."""
    oldest_pending_ms: int = 0
    """For so long the oldest of them waits."""
