"""What nodes ask and answer, as values. What concerns the controller is `coordinator.cluster`'s own."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from muster.coordinator.cluster.controller.effects import IsrAltered, ShutdownAnswered
from muster.coordinator.cluster.controller.events import IsrItem, Offline
from muster.coordinator.cluster.facts import NO_EPOCH, NOBODY
from muster.coordinator.cluster.image import ClusterState, Known
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.emitting import Buffer
from muster.coordinator.replication.sessions import Opened, Part


class NodeName(NamedTuple):
    """Who asks: a node id, and the node epoch that it believes to have."""

    id: int
    epoch: int


class FetchAsked(NamedTuple):
    """A follower's fetch. opened: its session, and what of that this request named; what it did not name it asks for
    as before. Sizes in bytes."""

    node: NodeName
    opened: Opened
    max_wait_ms: int
    min_bytes: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Diverging:
    """Where both logs part: the largest epoch that both know, and its end in the leader's log."""

    epoch: int = NO_EPOCH
    end_offset: int = -1


@dataclass(frozen=True, slots=True)
class CurrentLeader:
    leader_id: int = NOBODY
    leader_epoch: int = NO_EPOCH


@dataclass(slots=True)
class Found:
    """What a leader answers for one partition. `part` is that of the session."""

    part: Part
    error_code: int = 0
    high_watermark: int = -1
    log_start_offset: int = -1
    records: Buffer = b""
    """Whole batches as they lie in the log."""
    diverging_epoch: Diverging | None = None
    current_leader: CurrentLeader | None = None
    last_stable_offset: int = -1
    aborted_transactions: None = None
    """The last two mean nothing to a replica."""

    @property
    def partition_index(self) -> int:
        return self.part.partition


class Told(NamedTuple):
    """What a follower was answered for one partition. `records` is a view of the answer's bytes, not looked into."""

    topic_id: bytes
    partition: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    records: Buffer
    diverging: Diverging | None
    current_leader: CurrentLeader | None


class FetchTold(NamedTuple):
    """A leader's answer. Of partitions that are not in it there is nothing new."""

    error_code: int
    session_id: int
    found: list[Told]


class EpochAsked(NamedTuple):
    """Where does `epoch` end? `leader_epoch`: which the asker believes in; NO_EPOCH: any."""

    topic: str
    partition: int
    leader_epoch: int
    epoch: int


class EpochEnd(NamedTuple):
    """The largest epoch not above the one asked for, and its end; (-1, -1) if that is not known."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    epoch: int = NO_EPOCH
    end: int = -1


class Desk(Protocol):
    """Who answers at the door between nodes. A request whose node is gone is cancelled where it waits.

    There are no rules in the door: it has looked at form, cluster id and session, and at nothing else.
    """

    async def fetch(self, asked: FetchAsked) -> list[Found]:
        """What of the session's partitions there is to tell, each at most once. What the follower has been told
        already is left out by the door, but for the first answer of a session. The answer leaves when this returns."""
        ...

    async def epochs(self, node: int, asked: tuple[EpochAsked, ...]) -> list[EpochEnd]:
        """One for each, in their order. `node` is who asks."""
        ...

    async def alter_partition(self, node: NodeName, items: tuple[IsrItem, ...]) -> IsrAltered: ...

    async def controlled_shutdown(self, node: NodeName) -> ShutdownAnswered: ...

    async def cluster_state(
        self, node: NodeName, known: Known, offline: tuple[Offline, ...], max_wait_ms: int
    ) -> ClusterState:
        """What is new since `known`, within `max_wait_ms`."""
        ...
