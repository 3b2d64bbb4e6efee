"""Refusals that only Kafka's protocol has words for: what it lets a client ask for and one node cannot do."""

from muster.storage.errors import StorageError


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
