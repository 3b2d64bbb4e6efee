"""What can happen to a shard of transactional ids. A request has a `request_id` and is answered exactly once.

Producer ids that a decision may need come with the event (`fresh_id`): the shard never draws any itself. Times are in
milliseconds. `level` is the `transaction.version` by which a client speaks: 0 or 2 (KIP-890).
"""

from collections.abc import Mapping, Set
from dataclasses import field
from typing import Final, TypeAlias

from muster.coordinator.transactions.records import NO_EPOCH, NO_PRODUCER_ID, TopicPartition
from muster.coordinator.values import frozen_value

RequestId: TypeAlias = int
TimerKey: TypeAlias = tuple[str, ...]
"""("timeout", id), ("wait", id), ("markers", id), ("expiry",)."""

NO_CONNECTION = -1
"""The request came by no numbered connection, so its order is not checked."""


# Requests
# --------


@frozen_value
class RequestOrigin:
    """Who sent a request, for explanations; empty where it is not known.

    address: the host it came from. software: name and version, as its client says them. client_id: the client's name.
    """

    address: str = ""
    software: str = ""
    client_id: str = ""


NO_ORIGIN: Final = RequestOrigin()


@frozen_value
class InitProducerId:
    """A producer asks for its producer id and epoch. One that names none is a new instance, which fences the others.

    connection: its number on this node; a later connection has a higher one.
    """

    request_id: RequestId
    transactional_id: str
    timeout_ms: int
    fresh_id: int
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH
    connection: int = NO_CONNECTION
    client: RequestOrigin = NO_ORIGIN


@frozen_value
class AddPartitions:
    """These partitions join the transaction; with `verify_only` it is only asked whether they are in it."""

    request_id: RequestId
    transactional_id: str
    producer_id: int
    epoch: int
    partitions: tuple[TopicPartition, ...]
    level: int = 0
    verify_only: bool = False
    connection: int = NO_CONNECTION


@frozen_value
class PartitionAddition:
    """What the leader of partitions asks the coordinator of a transaction before their logs take its records in.

    verify_only: it asks whether they are in the transaction, for a client of level 0; else they join it, of level 2.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: tuple[TopicPartition, ...]
    verify_only: bool

    def as_request(self, request_id: RequestId) -> AddPartitions:
        return AddPartitions(
            request_id,
            self.transactional_id,
            self.producer_id,
            self.epoch,
            self.partitions,
            level=0 if self.verify_only else 2,
            verify_only=self.verify_only,
        )


@frozen_value
class EndTxn:
    """The producer commits or aborts its transaction. `fresh_id` is used at level 2 from epoch 32766 on only."""

    request_id: RequestId
    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    fresh_id: int = NO_PRODUCER_ID
    level: int = 0
    connection: int = NO_CONNECTION
    client: RequestOrigin = NO_ORIGIN


@frozen_value
class TerminateTransaction:
    """An operator ends the open transaction, if there is one, and fences the producer (KIP-1152)."""

    request_id: RequestId
    transactional_id: str
    fresh_id: int
    client: RequestOrigin = NO_ORIGIN


@frozen_value
class DescribeTransaction:
    request_id: RequestId
    transactional_id: str


@frozen_value
class ListTransactions:
    """Which ids the shard has. An empty filter lets everything pass; `open_longer_than_ms` below 0 too."""

    request_id: RequestId
    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    open_longer_than_ms: int = -1


@frozen_value
class OrphanFound:
    """A log of this node has an open transaction of this producer. The node asks every shard (TX-C14)."""

    request_id: RequestId
    producer_id: int
    epoch: int
    partition: TopicPartition


TransactionRequest: TypeAlias = (
    InitProducerId
    | AddPartitions
    | EndTxn
    | TerminateTransaction
    | DescribeTransaction
    | ListTransactions
    | OrphanFound
)


# Everything else
# ---------------


@frozen_value
class MarkersWritten:
    """What became of the markers that a `SendMarkers` of this life and number asked for, by partition.

    results: Kafka's error numbers; 0 once the marker is durable. gone: those whose topic does not exist any more.
    """

    transactional_id: str
    life: int
    number: int
    results: Mapping[TopicPartition, int]
    gone: frozenset[TopicPartition] = frozenset()


@frozen_value
class TopicsDeleted:
    """The catalog has changed. topics: those that were deleted since. present: names that it has now; one that was
    deleted may be there again. ids: of those that are there, 16 bytes each."""

    topics: frozenset[str]
    present: Set[str] = frozenset()
    ids: Mapping[str, bytes] = field(default_factory=dict)


@frozen_value
class ProducerIdDrawn:
    """The answer to a `ProducerIdWanted`."""

    transactional_id: str
    fresh_id: int


@frozen_value
class TransactionTimer:
    """A timer is due. `deadline_ms` is the one it was set to; one that has been set again since is ignored."""

    key: TimerKey
    deadline_ms: int


@frozen_value
class TransactionsStoodStill:
    """The node could not receive anything for a while: every deadline moves by `moved_ms`."""

    moved_ms: int


@frozen_value
class TransactionsLoaded:
    """The log has been replayed; the shard decides from here on.

    life: of this shard on this node, higher with each load. coordinator_epoch: the leader epoch of its partition.
    newest_connection: the number of the newest connection there was then; requests by it or an older one may have been
    overtaken in an earlier life. orphans_follow: requests are refused as loading until `OrphansSearched`.
    """

    life: int = 0
    coordinator_epoch: int = 0
    newest_connection: int = NO_CONNECTION
    orphans_follow: bool = False


@frozen_value
class OrphansSearched:
    """Every `OrphanFound` of this load has been submitted before."""


@frozen_value
class UnloadTransactions:
    """The shard moves away: whoever waits is refused, and no timer is set any more."""


@frozen_value
class ForgetRequest:
    """The client of this request is gone: it waits no longer."""

    request_id: RequestId


@frozen_value
class ExpireIds:
    """A slice of the hourly look for ids that nobody uses. What is left of it comes back in the next turn."""

    transactional_ids: tuple[str, ...] = field(repr=False)


TransactionEvent: TypeAlias = (
    TransactionRequest
    | MarkersWritten
    | TopicsDeleted
    | ProducerIdDrawn
    | TransactionTimer
    | TransactionsStoodStill
    | TransactionsLoaded
    | OrphansSearched
    | UnloadTransactions
    | ForgetRequest
    | ExpireIds
)
