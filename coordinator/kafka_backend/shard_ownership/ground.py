"""What the takings of a node's shards stand on: its settings, its lease, its queues, and where effects go."""

from dataclasses import dataclass, field

from muster.coordinator.kafka_backend.shard_ownership.append_queues import AppendLimits, AppendQueues
from muster.coordinator.kafka_backend.shard_ownership.effects import ShardEffect
from muster.coordinator.kafka_backend.shard_ownership.lease import Lease
from muster.coordinator.kafka_backend.shard_ownership.losses import LogLosses
from muster.coordinator.kafka_backend.shard_ownership.shard_assignment import ShardAssignment


@dataclass(frozen=True, slots=True)
class OwnershipSettings:
    """wall_ms: what the wall's clock shows at moment 0 of the node's; for people, in owner records."""

    node: int
    instance: str
    address: str = ""
    kafka: str = ""
    session_timeout_ms: int = 10_000
    owner_refresh_ms: int = 21_600_000
    wall_ms: int = 0
    limits: AppendLimits = field(default_factory=AppendLimits)


class OwnershipContext:
    """gave_up: why this node stopped serving shards that it may take again. topic_lost: why no shard may be taken; "":
    they may."""

    __slots__ = ("_number", "appends", "deal", "gave_up", "lease", "losses", "now_ms", "out", "settings", "topic_lost")

    def __init__(self, settings: OwnershipSettings) -> None:
        self.settings = settings
        self.lease = Lease(settings.session_timeout_ms)
        self.appends = AppendQueues(settings.limits)
        self.deal = ShardAssignment()
        self.gave_up: dict[int, str] = {}
        self.losses = LogLosses()
        self.topic_lost = ""
        self.now_ms = 0
        self.out: list[ShardEffect] = []
        self._number = 0

    def number(self) -> int:
        """Of the next request of a shard."""
        self._number += 1
        return self._number

    @property
    def may_write(self) -> bool:
        """KB-F7: whether a producer may be begun, and appends may leave."""
        return self.lease.holds(self.now_ms)
