"""What nodes ask each other: the table of APIs with their versions, and requests and answers as values.

Kafka's wire protocol where it knows node epochs (Fetch, AlterPartition, ControlledShutdown, OffsetForLeaderEpoch) and
for transactions (AddPartitionsToTxn, WriteTxnMarkers), and nine messages of Muster's own. What concerns the controller
are values of `replication.protocol`. `PeerDesk` is the port that answers.
"""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.handlers.transaction_batches import PartitionCodes
from muster.coordinator.kafka.protocol import API_VERSIONS, Api
from muster.coordinator.replication.protocol.cluster_metadata import NO_EPOCH, ClusterState, ImageVersion
from muster.coordinator.replication.protocol.controller.events_and_effects import (
    AlterPartitionResult,
    IsrItem,
    OfflineReplica,
    ShutdownResult,
)
from muster.coordinator.replication.protocol.replica_fetch import FetchAnswer, FetchRequest
from muster.coordinator.transactions.events import PartitionAddition
from muster.coordinator.transactions.records import TopicPartition
from muster.storage.logs.producer_state import MarkerToWrite

# The table of APIs
# -----------------

FETCH: Final = 1
CONTROLLED_SHUTDOWN: Final = 7
OFFSET_FOR_LEADER_EPOCH: Final = 23
ADD_PARTITIONS_TO_TXN: Final = 24
WRITE_TXN_MARKERS: Final = 27
ALTER_PARTITION: Final = 56
CLUSTER_STATE: Final = 1000
NOTE_ELECTIONS: Final = 1001
READ_SECURITY: Final = 1002
WRITE_SECURITY: Final = 1003
LOG_ENDS: Final = 1004
GROUPS_WITH_SETTINGS: Final = 1005
PROVE_NODE: Final = 1006
NOTE_ABORTS: Final = 1007
READ_ABORTS: Final = 1008

MOST_REQUEST_BYTES: Final = 32 << 20
"""Of one request, without its length: more is neither sent nor taken."""

# Who waits for long, or may get much, holds up what comes behind on its connection.
NODE_APIS: Final = (
    Api(FETCH, "Fetch", 15, 15, parks=True),
    Api(CONTROLLED_SHUTDOWN, "ControlledShutdown", 3, 3),
    Api(API_VERSIONS, "ApiVersions", 0, 3),
    Api(OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", 4, 4),
    Api(ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn", 5, 5, parks=True),
    Api(WRITE_TXN_MARKERS, "WriteTxnMarkers", 2, 2, parks=True),
    Api(ALTER_PARTITION, "AlterPartition", 3, 3),
    Api(CLUSTER_STATE, "ClusterState", 0, 0, parks=True),
    Api(NOTE_ELECTIONS, "NoteElections", 0, 0, parks=True),
    Api(READ_SECURITY, "ReadSecurity", 0, 0, parks=True),
    Api(WRITE_SECURITY, "WriteSecurity", 0, 0, parks=True),
    Api(LOG_ENDS, "LogEnds", 0, 0),
    Api(GROUPS_WITH_SETTINGS, "GroupsWithSettings", 0, 0, parks=True),
    Api(PROVE_NODE, "ProveNode", 0, 0),
    Api(NOTE_ABORTS, "NoteAborts", 0, 0, parks=True),
    Api(READ_ABORTS, "ReadAborts", 0, 0, parks=True),
)

VERSION_OF: Final = {api.name: api.last for api in NODE_APIS}
KEY_OF: Final = {api.name: api.key for api in NODE_APIS}

NAME_THE_CLUSTER: Final = frozenset({API_VERSIONS, FETCH, CLUSTER_STATE})
"""Those whose requests say themselves which cluster is meant, and the first, which is for everybody."""

NOT_EVERYWHERE: Final = frozenset({PROVE_NODE, ADD_PARTITIONS_TO_TXN, WRITE_TXN_MARKERS, NOTE_ABORTS, READ_ABORTS})
"""What nodes of the first version do not serve: a node talks to them all the same, while a cluster is upgraded."""

BEFORE_PROOF: Final = frozenset({API_VERSIONS, PROVE_NODE})
"""What is asked before a caller has proved that it is a node (CL-N4)."""


def client_id_of(cluster_id: str, node: int) -> str:
    """How a node calls itself in the header of its requests, some of which say nowhere else which cluster is meant.

    >>> client_id_of("Zm9v", 2)
    'Zm9v/2'
    """
    return f"{cluster_id}/{node}"


def cluster_of(client_id: str) -> str:
    """
    >>> cluster_of("Zm9v/2"), cluster_of("consumer-1")
    ('Zm9v', '')
    """
    return client_id.rpartition("/")[0]


# Requests and answers as values
# ------------------------------


class NodeName(NamedTuple):
    """Who asks: a node id, and the node epoch that it believes to have."""

    id: int
    epoch: int


class PeerFetch(NamedTuple):
    """A follower's fetch, as its node's session has it; times in ms, sizes in bytes."""

    request: FetchRequest
    max_wait_ms: int
    min_bytes: int


class EpochQuery(NamedTuple):
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


class ElectionEntry(NamedTuple):
    """A record for the ledger of elections."""

    key: bytes
    value: bytes


class AbortRecord(NamedTuple):
    """A record for `__aborts`: a transactional id, and the entry in JSON."""

    key: bytes
    value: bytes


class AbortsQuery(NamedTuple):
    """The latest entries of a transactional id, at most so many."""

    transactional_id: str
    most: int


class AbortValues(NamedTuple):
    """Entries in JSON, the newest first. error: why there are none."""

    error: ErrorCode = ErrorCode.NONE
    values: tuple[bytes, ...] = ()


class SecurityQuery(NamedTuple):
    """What is committed of `__security` from an offset on? last_epoch: of the batch before it, as the asker read it,
    NO_EPOCH for who has read nothing. Whoever has read all waits for `max_wait_ms`."""

    offset: int
    last_epoch: int = NO_EPOCH
    max_wait_ms: int = 0


class SecurityRecords(NamedTuple):
    """Offsets of the leader's log. records: whole committed batches; may begin before what was asked. anew: what the
    asker has read is not what is there (any more); it begins again at `start`."""

    error: ErrorCode = ErrorCode.NONE
    start: int = -1
    high_watermark: int = -1
    end: int = -1
    anew: bool = False
    records: bytes = b""


class SecurityChange(NamedTuple):
    """A record of `__security`. value: None takes the key away."""

    key: bytes
    value: bytes | None


class SecurityUpdate(NamedTuple):
    """Changes that were decided by what is below `base`, whose last batch is of `last_epoch`."""

    base: int
    last_epoch: int
    changes: tuple[SecurityChange, ...]


class SecurityUpdateResult(NamedTuple):
    """NONE: committed, below `end`. INVALID_UPDATE_VERSION: there is more than the changes rest on, up to `end`."""

    error: ErrorCode
    end: int = -1


class LogEndsQuery(NamedTuple):
    """Logs, by topic id and partition. earliest: where they begin, instead of where what is committed ends."""

    earliest: bool
    places: tuple[tuple[bytes, int], ...]


class PartitionLogEnd(NamedTuple):
    topic_id: bytes
    partition: int
    offset: int


class GroupsWithSettings(NamedTuple):
    """Those that the answering node coordinates. error: why it cannot tell all of them."""

    error: ErrorCode = ErrorCode.NONE
    groups: tuple[str, ...] = ()


class TransactionDesk(Protocol):
    """A node's part in transactions: as coordinator of transactional ids, and as leader of partitions (TX-N)."""

    async def add_partitions(self, addition: PartitionAddition) -> PartitionCodes:
        """What the coordinator of the transaction says of each partition; NOT_COORDINATOR elsewhere."""
        ...

    async def write_marker(
        self, marker: MarkerToWrite, partitions: Sequence[TopicPartition], topic_ids: Mapping[str, bytes]
    ) -> PartitionCodes:
        """End what the producer has open there: NONE once the marker is committed, NOT_LEADER_OR_FOLLOWER elsewhere,
        REQUEST_TIMED_OUT where that takes long, which whoever asked is to know soon. topic_ids: of the topics that are
        meant, as far as they are known; UNKNOWN_TOPIC_OR_PARTITION where another one has that name here."""
        ...

    async def note_aborts(self, records: tuple[AbortRecord, ...]) -> ErrorCode:
        """NONE once the records are committed in `__aborts`, which this node leads."""
        ...

    async def read_aborts(self, asked: AbortsQuery) -> AbortValues:
        """Of the leader of `__aborts`; NOT_LEADER_OR_FOLLOWER elsewhere."""
        ...


class PeerDesk(TransactionDesk, Protocol):
    """Who answers at the door between nodes. A request whose node is gone is cancelled where it waits.

    There are no rules in the door: it has looked at form and cluster id, and at nothing else.
    """

    def topic_name(self, topic_id: bytes) -> str | None:
        """Of the topic that has this id; None where there is none. What is fetched of such a one never gets to the
        desk: the door answers UNKNOWN_TOPIC_ID (100)."""
        ...

    def fetch(self, asked: PeerFetch) -> Awaitable[FetchAnswer]:
        """What there is to tell of the session's partitions, each at most once. The answer leaves when it is done. A
        future costs least, and is cancelled where nobody wants it any more."""
        ...

    async def epochs(self, node: int, asked: tuple[EpochQuery, ...]) -> list[EpochEnd]:
        """One for each, in their order. `node` is who asks."""
        ...

    async def alter_partition(self, node: NodeName, items: tuple[IsrItem, ...]) -> AlterPartitionResult: ...

    async def controlled_shutdown(self, node: NodeName) -> ShutdownResult: ...

    async def cluster_state(
        self, node: NodeName, known: ImageVersion, offline: tuple[OfflineReplica, ...], max_wait_ms: int
    ) -> ClusterState:
        """What is new since `known`, within `max_wait_ms`."""
        ...

    async def note(self, records: tuple[ElectionEntry, ...]) -> ErrorCode:
        """NONE once the records are committed in the ledger of elections, which this node leads."""
        ...

    async def read_security(self, asked: SecurityQuery) -> SecurityRecords:
        """Of the leader of `__security`; NOT_LEADER_OR_FOLLOWER elsewhere."""
        ...

    async def write_security(self, changed: SecurityUpdate) -> SecurityUpdateResult:
        """All of it or nothing, if nothing came in between."""
        ...

    def log_ends(self, asked: LogEndsQuery) -> list[PartitionLogEnd]:
        """Of those that this node leads, and of which it knows."""
        ...

    async def groups_with_settings(self) -> GroupsWithSettings: ...
