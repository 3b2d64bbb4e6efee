"""What the admin client answers with."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.assignors.api import JsonValue
from muster.coordinator.observability.read_model.groups import (
    Canary,
    CanaryGuardStatus,
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
    "ReservedShare",
    "TokenDescription",
    "TopicDescription",
    "UserDescription",
]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """`topic_id` is 32 hexadecimal digits."""

    name: str
    partitions: int
    topic_id: str
    internal: bool = False
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UserDescription:
    """`mechanisms`: how the user may log in; `iterations`: of SCRAM, 0 without it."""

    name: str
    mechanisms: tuple[str, ...]
    iterations: int


@dataclass(frozen=True, slots=True)
class TokenDescription:
    """Of an API token; times by the node's wall clock, None: without an end."""

    token_id: str
    name: str
    principal: str
    created_ms: int
    expires_ms: int | None


@dataclass(frozen=True, slots=True)
class NodeCondition:
    """Something that is wrong with a node. `since_ms` is epoch milliseconds; `impairs` a gRPC service, or empty."""

    name: str
    sentence: str
    since_ms: int
    count: int
    impairs: str


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """How a node is. `now_ms` is its clock; a figure is None where the node, or its operating system, does not tell."""

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


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What an operator has set for a group. `version` counts the changes; 0: nothing is set.

    `defaults` has every setting that the node knows, and what holds while it is not set.
    """

    version: int
    values: Mapping[str, JsonValue]
    defaults: Mapping[str, JsonValue] = field(default_factory=dict)
    suspended: str = ""
    """Why `assignor` has no effect until it is set again, and because of which client; empty: it has."""


@dataclass(frozen=True, slots=True)
class HoldResult:
    """What a verb did, or would do, in one sentence with figures, and what is held then."""

    sentence: str
    holds: GroupHolds
