"""Kafka's error codes for groups, and the exceptions that refuse.

A refusal is a normal step of the protocol: it becomes the `error_code` of one reply and leaves the state untouched.
Numbers and names are Kafka's (`org.apache.kafka.common.protocol.Errors`).
"""

from enum import IntEnum


class ErrorCode(IntEnum):
    """A refusal by its Kafka number. `retriable` says whether the same request may succeed later."""

    NONE = 0
    UNKNOWN_SERVER_ERROR = -1
    OFFSET_OUT_OF_RANGE = 1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    OPERATION_NOT_ATTEMPTED = 55
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INVALID_UPDATE_VERSION = 95
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    INELIGIBLE_REPLICA = 107
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    TRANSACTION_ABORTABLE = 120
    INVALID_REGULAR_EXPRESSION = 128
    GROUP_PLANS_ITSELF = 32_000
    """Ours, far from Kafka's numbers: its clients never get it."""

    @property
    def retriable(self) -> bool:
        return self in RETRIABLE

    @property
    def meaning(self) -> str:
        return MEANINGS.get(self, self.name.replace("_", " ").lower())


def error_code_of(number: int) -> ErrorCode:
    """What somebody else said, who may be of another version: a number that is not known here is a failure like any
    other.

    >>> error_code_of(27), error_code_of(12345)
    (<ErrorCode.REBALANCE_IN_PROGRESS: 27>, <ErrorCode.UNKNOWN_SERVER_ERROR: -1>)
    """
    return ErrorCode(number) if number in KNOWN else ErrorCode.UNKNOWN_SERVER_ERROR


KNOWN = frozenset(ErrorCode)

RETRIABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.INELIGIBLE_REPLICA,
    }
)

MEANINGS = {
    ErrorCode.NONE: "",
    ErrorCode.UNKNOWN_SERVER_ERROR: "the coordinator failed unexpectedly; its log says why",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "this node has no such topic or partition",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the offset's metadata is longer than offset.metadata.max.bytes",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still loading the group; try again shortly",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the group has no coordinator right now; look it up again",
    ErrorCode.NOT_COORDINATOR: "this node does not coordinate the group; look the coordinator up again",
    ErrorCode.ILLEGAL_GENERATION: "the generation is not the group's current one; join the group again",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "no offered protocol suits every member of the group",
    ErrorCode.INVALID_GROUP_ID: "the group id must not be empty",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group does not know this member; join with an empty member id",
    ErrorCode.INVALID_SESSION_TIMEOUT: "the session timeout is outside group.min/max.session.timeout.ms",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group is rebalancing; join again",
    ErrorCode.INVALID_REQUEST: "the request contradicts itself",
    ErrorCode.INVALID_PRODUCER_EPOCH: "another owner may write by now; this one has to stop",
    ErrorCode.INVALID_TXN_STATE: "no transaction is open that this could belong to; abort, then begin again",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the transactional id has another producer id, or none; initialize it again",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "the timeout must be above 0, and not above transaction.max.timeout.ms",
    ErrorCode.CONCURRENT_TRANSACTIONS: "the transaction before is still being completed; try again shortly",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "a newer transaction coordinator has written here; this one has to stop",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "nothing was done, because another part of the request failed",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "the node has as many transactional ids as it may; try again later",
    ErrorCode.PRODUCER_FENCED: "a newer producer with this transactional id has taken over; this one has to stop",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "there is no such transactional id",
    ErrorCode.TRANSACTION_ABORTABLE: "the partition is not in the transaction; abort it, then begin again",
    ErrorCode.NON_EMPTY_GROUP: "the group still has members; stop them first",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.MEMBER_ID_REQUIRED: "join again with the member id of this reply",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group already has group.max.size members",
    ErrorCode.FENCED_INSTANCE_ID: "another member has taken over this group instance id",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "a member of the group is subscribed to the topic; unsubscribe first",
    ErrorCode.GROUP_PLANS_ITSELF: "the group's own members make its plans; let the coordinator plan, or use KIP-848",
    ErrorCode.RESOURCE_NOT_FOUND: "there is no user, or token, of that name; list them",
    ErrorCode.DUPLICATE_RESOURCE: "a user is named twice in one request; name each once",
    ErrorCode.UNACCEPTABLE_CREDENTIAL: "a name, a password or its iterations are not what is taken; the message says",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "a transaction has offsets pending for this partition; try again",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset lies before the log's start or past its end",
    ErrorCode.LEADER_NOT_AVAILABLE: "nobody leads the partition right now; ask for the metadata again",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "this node does not lead the partition; ask for the metadata again",
    ErrorCode.REQUEST_TIMED_OUT: "it was not done in time, and may be done yet",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas asks for; nothing was written",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
        "it was written, and fewer replicas are in sync by now than min.insync.replicas asks for"
    ),
    ErrorCode.TOPIC_ALREADY_EXISTS: "there is a topic of this name already",
    ErrorCode.INVALID_PARTITIONS: "that many partitions cannot be",
    ErrorCode.INVALID_REPLICATION_FACTOR: "there are fewer nodes than copies asked for",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: (
        "the assignment names a node twice, or one that is not there, or lists of unequal length"
    ),
    ErrorCode.NOT_CONTROLLER: "this node is not the controller; look it up again",
    ErrorCode.FENCED_LEADER_EPOCH: "the leader epoch is an older one; ask for the metadata again",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "the leader epoch is newer than the one known here; try again shortly",
    ErrorCode.STALE_BROKER_EPOCH: "the node has registered anew since, or is not known yet",
    ErrorCode.OFFSET_NOT_AVAILABLE: (
        "the leader is new, and does not know yet how far its log counts; try again shortly"
    ),
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "the first replica is not live and in sync",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no replica is live that may lead",
    ErrorCode.ELECTION_NOT_NEEDED: "the leader is already the one that would be elected",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "the partition is not being moved",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "the request is meant for another cluster",
    ErrorCode.INELIGIBLE_REPLICA: "a replica may not be in sync: it is not live, goes down, or has registered anew",
}


class CoordinatorError(Exception):
    """The protocol says no. `code` is Kafka's; `message` gives the value, the expectation and the remedy."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(f"{code.name}: {message or code.meaning}")
        self.code = code
        self.message = message or code.meaning


class CallRefusal(Exception):
    """The call itself is refused (not the protocol's business); the text says what to do."""


class Overloaded(CallRefusal):
    """A limit of the node is reached. `retry_after_ms` is a hint for the client's next try."""

    def __init__(self, text: str, retry_after_ms: int = 1_000) -> None:
        super().__init__(text)
        self.retry_after_ms = retry_after_ms


class SubjectNotFound(CallRefusal):
    """What is asked about does not exist."""


class TemporarilyUnknown(CallRefusal):
    """It cannot be told at the moment; asking again later may help."""


class NodeShuttingDown(CallRefusal):
    """The node is shutting down and takes no new calls."""

    def __init__(self, text: str = "the node is shutting down; find the coordinator again") -> None:
        super().__init__(text)


class NotAuthenticated(CallRefusal):
    """Nobody has shown who they are, or they are that no longer. The text goes to the client: it says what to bring."""


class CallDenied(CallRefusal):
    """Whoever asks has no right to, and the answer has no place for a code. The text goes to them."""
