"""The facts of a KIP-848 group, one per record type of `__consumer_offsets` (key types 3 to 8 and 16).

Each tombstone is a class of its own, so that replay is one match.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from muster.coordinator.core.model.types import Protocol

TopicId: TypeAlias = bytes
"""16 bytes of the catalog; a topic that is deleted and made again has another one."""

Shares: TypeAlias = Mapping[TopicId, frozenset[int]]
"""topic -> partitions"""

Epochs: TypeAlias = Mapping[TopicId, Mapping[int, int]]
"""topic -> partition -> the member epoch at which it was assigned (KIP-1251)"""


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """What a member that speaks the classic protocol brings into a KIP-848 group."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]


@dataclass(frozen=True, slots=True)
class ConsumerMemberStored:
    """Who the member is and what it wants (key type 5)."""

    group_id: str
    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicSide | None = None


@dataclass(frozen=True, slots=True)
class ConsumerMemberDeleted:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class GroupEpochStored:
    """The group epoch, and a hash of the topics it was raised for (key type 3)."""

    group_id: str
    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class GroupEpochDeleted:
    group_id: str


@dataclass(frozen=True, slots=True)
class TargetEpochStored:
    """The epoch the target belongs to, and when it was made (key type 6); time 0 lets the next one come at once."""

    group_id: str
    epoch: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class TargetEpochDeleted:
    group_id: str


@dataclass(frozen=True, slots=True)
class TargetStored:
    """What one member is to have (key type 7)."""

    group_id: str
    member_id: str
    partitions: Shares


@dataclass(frozen=True, slots=True)
class TargetDeleted:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class CurrentStored:
    """What one member has, and what it must give up first (key type 8)."""

    group_id: str
    member_id: str
    epoch: int
    previous_epoch: int
    state: int
    assigned: Epochs
    revoking: Epochs


@dataclass(frozen=True, slots=True)
class CurrentDeleted:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class RegexStored:
    """The topics a regular expression stands for (key type 16)."""

    group_id: str
    regex: str
    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class RegexDeleted:
    group_id: str
    regex: str


OF_ONE_MEMBER = ConsumerMemberDeleted | TargetDeleted | CurrentDeleted | RegexDeleted
"""Tombstones without which a record may stay for good: a group writes its epochs anew, and no member that is gone."""

ConsumerRecord: TypeAlias = (
    ConsumerMemberStored
    | ConsumerMemberDeleted
    | GroupEpochStored
    | GroupEpochDeleted
    | TargetEpochStored
    | TargetEpochDeleted
    | TargetStored
    | TargetDeleted
    | CurrentStored
    | CurrentDeleted
    | RegexStored
    | RegexDeleted
)
