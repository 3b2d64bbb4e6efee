"""Events and actions of a ZooKeeper-based consumer, beyond those of every member.

The event with the same token answers a request; `RequestFailed` can answer any. At most one request is outstanding.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from muster.assignors.api import TopicPartition
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.member_types import Partitions
from muster.client.members.zookeeper_assignment import (
    ClaimedShare,
    ConsumerGroupView,
    GroupRegistration,
    ZookeeperSession,
)

# Heard


@dataclass(frozen=True, slots=True)
class SessionChanged:
    """After LOST every ephemeral node of the session is gone; the next CONNECTED is another session."""

    link: ZookeeperSession


@dataclass(frozen=True, slots=True)
class WatchFired:
    """Something may have changed. `what` says which watch it was: members, topics, partitions, brokers, session."""

    what: str


@dataclass(frozen=True, slots=True)
class ConsumerRegistered:
    token: int
    consumer_id: str


@dataclass(frozen=True, slots=True)
class GroupRead:
    token: int
    view: ConsumerGroupView


@dataclass(frozen=True, slots=True)
class GroupUnreadable:
    """The group was read, but a node holds what no writer of that era writes; trying again may find it mended."""

    token: int
    detail: str


@dataclass(frozen=True, slots=True)
class OwnersReleased:
    token: int


@dataclass(frozen=True, slots=True)
class OwnersClaimed:
    """`conflicts`: who holds what could not be claimed; the rest was. `stamp` grows with every claim made anywhere."""

    token: int
    conflicts: Mapping[TopicPartition, str]
    stamp: int


@dataclass(frozen=True, slots=True)
class ConsumerWithdrawn:
    token: int


ZookeeperAnswer: TypeAlias = (
    ConsumerRegistered
    | GroupRead
    | GroupUnreadable
    | OwnersReleased
    | OwnersClaimed
    | ConsumerWithdrawn
    | ev.RequestFailed
)
ZookeeperEvent: TypeAlias = ev.CommonEvent | ev.Revoked | SessionChanged | WatchFired | ZookeeperAnswer

# Asked for


@dataclass(frozen=True, slots=True)
class CreateRegistration:
    """Create the ephemeral node under `ids` with a fresh id, and see that it is the only one of this session.

    An earlier one may be there: of another subscription, or of an attempt whose answer was lost. Nobody would claim
    what falls to such a ghost.
    """

    token: int
    registration: GroupRegistration


@dataclass(frozen=True, slots=True)
class ReadGroup:
    """Read members, partitions and brokers, and set a watch on each list. `afresh`: have the server catch up first."""

    token: int
    afresh: bool


@dataclass(frozen=True, slots=True)
class ReleaseOwners:
    """Delete these owner nodes, as far as they are this session's."""

    token: int
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class ClaimOwners:
    """Create an owner node for each; one that is this session's already counts as created."""

    token: int
    consumer_id: str
    share: ClaimedShare


@dataclass(frozen=True, slots=True)
class WithdrawConsumer:
    """Delete these owner nodes and whatever this session has under `ids`: others may go on at once."""

    token: int
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class RebalanceGivenUp:
    """All retries met other owners, or another obstacle. Not the end: the next watch starts anew.

    `holders`: partition -> who held it at the last attempt.
    """

    message: str
    holders: Mapping[TopicPartition, str]


ZookeeperAction: TypeAlias = (
    CreateRegistration
    | ReadGroup
    | ReleaseOwners
    | ClaimOwners
    | WithdrawConsumer
    | RebalanceGivenUp
    | act.Revoke
    | act.Lost
    | act.Assign
    | act.Fail
    | act.Closed
    | act.WakeMemberAt
    | act.Abandon
)
