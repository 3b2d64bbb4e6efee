"""The facts of Kafka's protocol that every handler shares: served APIs and their versions, and refusals.

`APIS` lists what a node serves, by itself or in a cluster: enough for every client of today, and no more. The
authorized operations (KIP-430) are those of a node without an authorizer, where a caller may do everything that Kafka
lists for the kind of resource; with one, `authorization/` computes them.

The exceptions are refusals for what the protocol lets a client ask for and a node cannot do. `short` bounds the
length of names that are stored; how many elements a request lists is checked by its decoder.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from muster.coordinator.edge.request_limits import MAX_NAME_CHARS, describe_too_long
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.storage.errors import StorageError


@dataclass(frozen=True, slots=True)
class Api:
    """One API. `parks`: the connection's later requests wait for its answer, as in Kafka.

    It may take long, or be so large next to its request that many at once would fill the node's memory. `parks_long`:
    they wait only if it is not begun whole at once.
    """

    key: int
    name: str
    first: int
    last: int
    advertised_first: int = -1
    """The first version that ApiVersions tells of, where that is not the first one served."""
    parks: bool = False
    parks_long: bool = False

    @property
    def first_advertised(self) -> int:
        return self.first if self.advertised_first < 0 else self.advertised_first

    def serves(self, version: int) -> bool:
        return self.first <= version <= self.last


APIS: Final = (
    Api(0, "Produce", 0, 9, parks_long=True),
    Api(1, "Fetch", 0, 12, parks=True),
    Api(2, "ListOffsets", 0, 10, parks=True),
    Api(3, "Metadata", 0, 12, parks=True),
    Api(8, "OffsetCommit", 0, 9),
    Api(9, "OffsetFetch", 0, 9, parks=True),
    Api(10, "FindCoordinator", 0, 4, parks=True),
    Api(11, "JoinGroup", 0, 9, parks=True),
    Api(12, "Heartbeat", 0, 4),
    Api(13, "LeaveGroup", 0, 5),
    Api(14, "SyncGroup", 0, 5, parks=True),
    Api(15, "DescribeGroups", 0, 6, parks=True),
    Api(16, "ListGroups", 0, 5, parks=True),
    Api(17, "SaslHandshake", 0, 1, parks=True),
    Api(18, "ApiVersions", 0, 3),
    Api(19, "CreateTopics", 0, 7, parks=True),
    Api(20, "DeleteTopics", 0, 6, parks=True),
    Api(21, "DeleteRecords", 0, 2, parks=True),
    Api(22, "InitProducerId", 0, 4),
    Api(23, "OffsetForLeaderEpoch", 2, 4),
    Api(29, "DescribeAcls", 0, 3, parks=True),
    Api(30, "CreateAcls", 0, 3, parks=True),
    Api(31, "DeleteAcls", 0, 3, parks=True),
    Api(32, "DescribeConfigs", 0, 4, parks=True),
    Api(33, "AlterConfigs", 0, 2, parks=True),
    Api(35, "DescribeLogDirs", 1, 4, parks=True),
    Api(36, "SaslAuthenticate", 0, 2, parks=True),
    Api(37, "CreatePartitions", 0, 3, parks=True),
    Api(42, "DeleteGroups", 0, 2),
    Api(43, "ElectLeaders", 0, 2, parks=True),
    Api(44, "IncrementalAlterConfigs", 0, 1, parks=True),
    Api(45, "AlterPartitionReassignments", 0, 1, parks=True),
    Api(46, "ListPartitionReassignments", 0, 0, parks=True),
    Api(47, "OffsetDelete", 0, 0),
    Api(48, "DescribeClientQuotas", 0, 1, parks=True),
    Api(49, "AlterClientQuotas", 0, 1, parks=True),
    Api(50, "DescribeUserScramCredentials", 0, 0, parks=True),
    Api(51, "AlterUserScramCredentials", 0, 0, parks=True),
    Api(60, "DescribeCluster", 0, 1, parks=True),
    Api(61, "DescribeProducers", 0, 0, parks=True),
    Api(66, "ListTransactions", 0, 1, parks=True),
    Api(68, "ConsumerGroupHeartbeat", 0, 1),
    Api(69, "ConsumerGroupDescribe", 0, 1, parks=True),
    Api(74, "ListConfigResources", 0, 1, parks=True),
)

FIRST_VERSIONS_OF_TODAY: Final = {
    "Produce": 3,
    "Fetch": 4,
    "ListOffsets": 1,
    "OffsetCommit": 2,
    "OffsetFetch": 1,
    "JoinGroup": 2,
    "CreateTopics": 2,
    "DeleteTopics": 1,
    "DescribeAcls": 1,
    "CreateAcls": 1,
    "DeleteAcls": 1,
    "DescribeConfigs": 1,
}
"""Where Kafka 4 begins (KIP-896): nothing older than its own 2.1 needs what comes before."""


READ_ONLY_APIS: Final = frozenset(
    {
        *("ListOffsets", "Metadata", "OffsetFetch", "FindCoordinator", "DescribeConfigs"),
        *("DescribeGroups", "ConsumerGroupDescribe", "DescribeProducers", "DescribeTransactions"),
    }
)
"""APIs that change nothing, wait for no other client, and name as many things as a request holds. Of their large
requests a few at a time are read and answered."""


def without_old_clients(apis: Iterable[Api]) -> tuple[Api, ...]:
    """What is left of them where only clients of Kafka 2.1 and later are served."""
    return tuple(_api_of_today(api) for api in apis)


def _api_of_today(api: Api) -> Api:
    first = max(api.first, FIRST_VERSIONS_OF_TODAY.get(api.name, 0))
    # librdkafka before 2.6 compresses only if Produce is told of from 0 on, which is why Kafka 4 does (KAFKA-18659).
    return replace(api, first=first, advertised_first=0 if api.name == "Produce" else api.advertised_first)


TRANSACTION_APIS: Final = (
    Api(24, "AddPartitionsToTxn", 0, 5),
    Api(25, "AddOffsetsToTxn", 0, 3),
    Api(26, "EndTxn", 0, 3),
    Api(27, "WriteTxnMarkers", 1, 2, parks=True),
    Api(28, "TxnOffsetCommit", 0, 3),
    Api(65, "DescribeTransactions", 0, 0, parks=True),
)
"""What a node serves besides that coordinates transactional ids."""

RAISES_EPOCH: Final = 2
"""The `transaction.version` from which on the end of each transaction raises its producer's epoch (KIP-890)."""
TRANSACTION_VERSION: Final = "transaction.version"
LAST_VERSIONS: Final = {
    "Produce": 12,
    "InitProducerId": 5,
    "AddOffsetsToTxn": 4,
    "EndTxn": 5,
    "TxnOffsetCommit": 5,
    "ListTransactions": 2,
}
"""Up to where a node goes that coordinates transactional ids with RAISES_EPOCH."""
LAST_VERSIONS_BEFORE: Final = LAST_VERSIONS | {"Produce": 11, "EndTxn": 4, "TxnOffsetCommit": 4}


def transactional_apis(level: int) -> tuple[Api, ...]:
    """What a node serves that coordinates transactional ids with this `transaction.version`."""
    last = LAST_VERSIONS if level >= RAISES_EPOCH else LAST_VERSIONS_BEFORE
    return tuple(replace(api, last=last.get(api.name, api.last)) for api in (*APIS, *TRANSACTION_APIS))


API_VERSIONS: Final = 18
PRODUCE: Final = 0
HEARTBEAT: Final = 12
SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
UNSUPPORTED_VERSION: Final = 35


# Authorized operations (KIP-430)
# -------------------------------

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = range(3, 9)
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = range(9, 13)

OPERATIONS_NOT_REQUESTED: Final = -(1 << 31)


def operation_bits(*operations: int) -> int:
    """Kafka's form of a set of operations.

    >>> operation_bits(READ, DELETE)
    72
    """
    return sum(1 << operation for operation in operations)


GROUP_OPERATIONS: Final = operation_bits(READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
TOPIC_OPERATIONS: Final = operation_bits(READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
CLUSTER_OPERATIONS: Final = operation_bits(
    CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE
)


# Refusals that only Kafka's protocol has
# ---------------------------------------


class LeaderNotAvailable(StorageError):
    """A topic is being made, and nobody leads it yet."""

    code = 5
    name = "LEADER_NOT_AVAILABLE"


class ReplicaFetchRefused(StorageError):
    """A client's door was asked as only a replica may ask, which reads what is not committed yet."""

    code = 31
    name = "CLUSTER_AUTHORIZATION_FAILED"


class TransactionsNotSupported(StorageError):
    """Transactions are not coordinated here. The code is one that every client takes as final."""

    code = 53
    name = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


class TransactionAbortable(StorageError):
    """A partition is not in the transaction, which has to be aborted (KIP-1050)."""

    code = 120
    name = "TRANSACTION_ABORTABLE"


class ConcurrentTransactions(StorageError):
    """The transaction before is not complete yet. Clients from Produce 12 on know it, and send again."""

    code = 51
    name = "CONCURRENT_TRANSACTIONS"


class InvalidReplicaAssignment(StorageError):
    """Partitions assigned by hand to other nodes than this one, or not numbered from 0."""

    code = 39
    name = "INVALID_REPLICA_ASSIGNMENT"


class FetchSessionIdNotFound(StorageError):
    """A fetch session that was never opened: none are here."""

    code = 70
    name = "FETCH_SESSION_ID_NOT_FOUND"


class UnknownTopicId(StorageError):
    """No topic has this id."""

    code = 100
    name = "UNKNOWN_TOPIC_ID"


class UnsupportedTimestamp(StorageError):
    """A look-up that stands for something this node does not have, such as tiered storage."""

    code = 35
    name = "UNSUPPORTED_VERSION"


def refuse_transactions(transactional_id: str) -> TransactionsNotSupported:
    return TransactionsNotSupported(
        f"transactional.id '{transactional_id}' needs a transaction coordinator, which this node has none of. "
        "Leave it out: an idempotent producer needs none."
    )


def refuse_replica(replica_id: int) -> StorageError | None:
    """The refusal of who calls itself a replica: nodes have a door of their own."""
    if replica_id < 0:
        return None
    return ReplicaFetchRefused(
        f"replica_id is {replica_id}; expected -1, for nodes ask each other at inter.broker.listeners."
    )


# Length of stored names
# ----------------------


def check_length(field: str, value: str) -> str:
    """The value, if it can be stored. Raises CoordinatorError."""
    if len(value) > MAX_NAME_CHARS:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, describe_too_long(field, len(value)))
    return value


def check_optional_length(field: str, value: str | None) -> str | None:
    return None if value is None else check_length(field, value)


def check_lengths(**values: str | None) -> None:
    """As `check_length` of each, by its field; the first that is too long is told."""
    for field, value in values.items():
        if value is not None and len(value) > MAX_NAME_CHARS:
            check_length(field, value)
