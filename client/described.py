"""Results of the admin client."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.assignors.api import JsonValue
from muster.client.types import TopicPartition
from muster.coordinator.observability.read_model.commit_history import (
    CommitHistory,
    CommitTraffic,
    CommitTrail,
    SeenPosition,
)
from muster.coordinator.observability.read_model.groups import (
    Canary,
    CanaryGuardStatus,
    ForecastMove,
    GroupBalance,
    GroupControls,
    GroupDescription,
    GroupFence,
    GroupHolds,
    GroupListing,
    GroupProgress,
    HeldDrain,
    HeldPin,
    MemberDescription,
    PartitionLag,
    ReservedShare,
)

__all__ = [
    "Canary",
    "CanaryGuardStatus",
    "CommitHistory",
    "CommitTraffic",
    "CommitTrail",
    "ForecastMove",
    "GroupBalance",
    "GroupControls",
    "GroupDescription",
    "GroupFence",
    "GroupHolds",
    "GroupListing",
    "GroupProgress",
    "GroupSettings",
    "HeldDrain",
    "HeldPin",
    "HoldResult",
    "MemberDescription",
    "NodeCondition",
    "NodeStatus",
    "PartitionLag",
    "ProducerDescription",
    "ReservedShare",
    "SeenPosition",
    "TokenDescription",
    "TopicDescription",
    "TransactionDescription",
    "TransactionListing",
    "UserDescription",
]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic. `topic_id` is 32 hexadecimal digits; `configs` are the settings that the topic overrides."""

    name: str
    partitions: int
    topic_id: str
    internal: bool = False
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UserDescription:
    """A user. `mechanisms`: of SASL, with which the user may log in; `iterations`: of SCRAM, 0 without it."""

    name: str
    mechanisms: tuple[str, ...]
    iterations: int


@dataclass(frozen=True, slots=True)
class TokenDescription:
    """An API token. Times are epoch milliseconds of the node's clock; `expires_ms` is None if it does not expire."""

    token_id: str
    name: str
    principal: str
    created_ms: int
    expires_ms: int | None


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    """A producer that a partition's log knows.

    `coordinator_epoch` is that of its newest marker, -1 without one; `last_sequence` and `last_timestamp_ms` are those
    of its newest batch, -1 without one. `transaction_start_offset` is None where it has no transaction open there.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start_offset: int | None


@dataclass(frozen=True, slots=True, order=True)
class TransactionListing:
    """A transactional id. `coordinator_id`: the node that coordinates it."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id and its transaction.

    `start_time_ms` is epoch milliseconds, None where no transaction is open. `client_address` and `client_software` are
    those of the newest instance of its producer; empty where none has been heard since the node started.
    """

    transactional_id: str
    coordinator_id: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None
    partitions: tuple[TopicPartition, ...]
    client_address: str = ""
    client_software: str = ""


@dataclass(frozen=True, slots=True)
class NodeCondition:
    """A problem of a node. `since_ms` is epoch milliseconds; `impairs` names a gRPC service, or is empty.

    `warning`: nothing is wrong yet, and the node is healthy; the sentence says what would be lost, and when.
    """

    name: str
    sentence: str
    since_ms: int
    count: int
    impairs: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class FailedLogins:
    """Logins that failed from one address, and why the newest of them did."""

    door: str
    address: str
    count: int
    why: str


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The state of a node. `now_ms` is its clock. Figures that the node or its system does not know are None."""

    now_ms: int | None
    conditions: tuple[NodeCondition, ...]
    open_descriptors: int | None = None
    descriptor_limit: int | None = None
    resident_bytes: int | None = None
    memory_bytes: int | None = None
    disk_free_bytes: int | None = None
    disk_total_bytes: int | None = None
    loop_late_ms: int | None = None
    stalls: int | None = None
    stalled_ms: int | None = None
    started_at_ms: int | None = None
    failed_logins: tuple[FailedLogins, ...] = ()
    """Of the last ten minutes, by listener and address, most first."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings of a group that operators have set. `version` counts the changes; 0: none was made.

    `defaults` has the default of every setting that the node knows.
    """

    version: int
    values: Mapping[str, JsonValue]
    defaults: Mapping[str, JsonValue] = field(default_factory=dict)
    suspended: str = ""
    """Why `assignor` has no effect until it is set again, and which client caused that; else empty."""


@dataclass(frozen=True, slots=True)
class HoldResult:
    """The result of a change of overrides: one sentence with figures, and the overrides that are active then."""

    sentence: str
    holds: GroupHolds
    moves: tuple[ForecastMove, ...] | None = None
    """What changes hands for it; None where nothing is known, as of a group that its own members plan."""
