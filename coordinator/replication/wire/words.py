"""What nodes ask and answer, as values. What concerns the controller is `coordinator.cluster`'s own."""

from typing import NamedTuple, Protocol

from muster.coordinator.cluster.controller.effects import IsrAltered, ShutdownAnswered
from muster.coordinator.cluster.controller.events import IsrItem, Offline
from muster.coordinator.cluster.facts import NO_EPOCH
from muster.coordinator.cluster.image import ClusterState, Known
from muster.coordinator.cluster.replicas.messages import FetchAnswer, FetchRequest
from muster.coordinator.errors import ErrorCode


class NodeName(NamedTuple):
    """Who asks: a node id, and the node epoch that it believes to have."""

    id: int
    epoch: int


class FetchAsked(NamedTuple):
    """A follower's fetch, as its node's session has it; times in ms, sizes in bytes."""

    request: FetchRequest
    max_wait_ms: int
    min_bytes: int


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


class Noted(NamedTuple):
    """A record for the ledger of elections."""

    key: bytes
    value: bytes


class Desk(Protocol):
    """Who answers at the door between nodes. A request whose node is gone is cancelled where it waits.

    There are no rules in the door: it has looked at form and cluster id, and at nothing else.
    """

    def topic_name(self, topic_id: bytes) -> str | None:
        """Of the topic that has this id; None where there is none. What is fetched of such a one never gets to the
        desk: the door answers UNKNOWN_TOPIC_ID (100)."""
        ...

    async def fetch(self, asked: FetchAsked) -> FetchAnswer:
        """What there is to tell of the session's partitions, each at most once. The answer leaves when this returns."""
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

    async def note(self, records: tuple[Noted, ...]) -> ErrorCode:
        """NONE once the records are committed in the ledger of elections, which this node leads."""
        ...
