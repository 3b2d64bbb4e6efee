"""What a step asks of the runtime: records to keep, answers and notices to release, timers to set. Nothing here acts.

Replies and notices leave once everything that was recorded before them is durable; `SendMarkers` is a notice for that
reason. `TRANSACTION_REPLIES` gives the type of answer to each request; a refusal is an answer with an error code.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeAlias

from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.transactions.events import (
    NO_ORIGIN,
    AddPartitions,
    DescribeTransaction,
    EndTxn,
    InitProducerId,
    ListTransactions,
    OrphanFound,
    RequestId,
    RequestOrigin,
    TerminateTransaction,
    TimerKey,
    TransactionEvent,
)
from muster.coordinator.transactions.records import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    TopicPartition,
    TransactionRecord,
)
from muster.coordinator.values import frozen_value

# Answers
# -------


@frozen_value
class InitProducerIdReply:
    """close_connection: nothing is sent, the connection is closed; the request was overtaken by one that came later."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH
    close_connection: bool = False


@frozen_value
class AddPartitionsReply:
    """`code` stands for every partition that `partitions` does not name; only a verification names any."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    partitions: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)
    close_connection: bool = False


@frozen_value
class EndTxnReply:
    """With NONE, the producer id and epoch for the next transaction."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH
    close_connection: bool = False


@frozen_value
class TerminateTransactionReply:
    code: ErrorCode = ErrorCode.NONE
    message: str = ""


class EndCause(Enum):
    """Why a transaction ended."""

    CLIENT = "client"
    TIMED_OUT = "timed out"
    FENCED = "fenced by a new instance"
    BUMPED = "the producer asked for a new epoch"
    OPERATOR = "operator"
    UNKNOWN = "unknown"
    """It was decided in an earlier life of the shard."""


@frozen_value
class EndDecision:
    """Why a transaction ends, and who decided it. Soft: after a replay it is not known.

    by: the client or operator that asked for it; NO_ORIGIN where the coordinator did. of: the newest instance of the
    producer that had the transaction. epoch: the one that its records carry; -1 where it is not known.
    """

    cause: EndCause = EndCause.UNKNOWN
    by: RequestOrigin = NO_ORIGIN
    of: RequestOrigin = NO_ORIGIN
    epoch: int = NO_EPOCH
    stood_still_ms: int = 0
    """How long the node stood still while the transaction was open."""


NOT_KNOWN: Final = EndDecision()


@frozen_value
class TransactionEnd:
    """One of the last ends of an id, for explanations. Times are milliseconds since 1970.

    marker_epoch: the one that its markers carry. started_ms: when it began, by the clock of the node then; one still to
    come at the decision is of a clock that was set back since. partitions: how many it had.
    """

    producer_id: int
    marker_epoch: int
    committed: bool
    decision: EndDecision
    started_ms: int
    decided_ms: int
    completed_ms: int
    timeout_ms: int
    partitions: int


@frozen_value
class DescribeTransactionReply:
    """`state` is Kafka's name. Times are -1 where no transaction is open. `ends`: the last ones, newest first.

    updated_ms: when the state began. client: the newest instance of the producer, where it has been heard since the
    load. decision: of a transaction that is decided and not complete. unmarked: partitions whose marker is not known
    to be durable, the first few of `unmarked_count`. known_since_ms: when the shard was loaded.
    """

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    state: str = "Dead"
    timeout_ms: int = 0
    started_ms: int = NO_TIME
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH
    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    ends: tuple[TransactionEnd, ...] = ()
    updated_ms: int = NO_TIME
    client: RequestOrigin = NO_ORIGIN
    decision: EndDecision | None = None
    unmarked: tuple[TopicPartition, ...] = ()
    unmarked_count: int = 0
    known_since_ms: int = NO_TIME


@frozen_value
class ListedTransaction:
    transactional_id: str
    producer_id: int
    state: str


@frozen_value
class ListTransactionsReply:
    """unknown_states: filters that name no state; they match nothing."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    transactions: tuple[ListedTransaction, ...] = ()
    unknown_states: tuple[str, ...] = ()


class OrphanVerdict(Enum):
    UNKNOWN = "this shard does not know the producer"
    TAKEN = "the partition is in the transaction, or gets its marker"
    HANGING = "no transaction will ever end it: abort it"


@frozen_value
class OrphanReply:
    """marker_epoch: the epoch that the marker of a hanging transaction has to carry. transactional_id: the one that has
    the producer id now; empty where no id does."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    verdict: OrphanVerdict = OrphanVerdict.UNKNOWN
    marker_epoch: int = NO_EPOCH
    transactional_id: str = ""


TransactionReply: TypeAlias = (
    InitProducerIdReply
    | AddPartitionsReply
    | EndTxnReply
    | TerminateTransactionReply
    | DescribeTransactionReply
    | ListTransactionsReply
    | OrphanReply
)

TRANSACTION_REPLIES: Mapping[type[Any], type[TransactionReply]] = {
    InitProducerId: InitProducerIdReply,
    AddPartitions: AddPartitionsReply,
    EndTxn: EndTxnReply,
    TerminateTransaction: TerminateTransactionReply,
    DescribeTransaction: DescribeTransactionReply,
    ListTransactions: ListTransactionsReply,
    OrphanFound: OrphanReply,
}
"""An event that is not in here is not a request."""


def transaction_refusal(request: Any, refusal: CoordinatorError) -> TransactionReply:
    return TRANSACTION_REPLIES[type(request)](refusal.code, refusal.message)


# Notices
# -------


@frozen_value
class SendMarkers:
    """Write COMMIT or ABORT of (producer_id, epoch) to these partitions and report back with `MarkersWritten`.

    Asked for again, with the same life and number, for partitions that could not be reached. coordinator_epoch: what
    the markers carry. level: the `transaction.version` by which logs check their epoch. topic_ids: of the topics that
    are meant, as far as they are known; another topic of that name gets no marker (TX-C15).
    """

    transactional_id: str
    life: int
    number: int
    producer_id: int
    epoch: int
    commit: bool
    coordinator_epoch: int
    level: int
    partitions: tuple[TopicPartition, ...]
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)


@frozen_value
class AbortNoted:
    """The coordinator aborted a transaction without being asked by its producer to. at_ms: when it was decided."""

    transactional_id: str
    producer_id: int
    decision: EndDecision
    started_ms: int
    open_ms: int
    timeout_ms: int
    partitions: tuple[TopicPartition, ...]
    at_ms: int


@frozen_value
class MarkerTrouble:
    """A marker met an error that is worth a line in the node's log."""

    transactional_id: str
    partition: TopicPartition
    error: int
    message: str


@frozen_value
class ProducerIdWanted:
    """The epochs of this id are used up and its transaction is over time: send a `ProducerIdDrawn`."""

    transactional_id: str


TransactionNotice: TypeAlias = SendMarkers | AbortNoted | MarkerTrouble | ProducerIdWanted | TransactionEnd
"""A `TransactionEnd` leaves once its completion is durable."""


@dataclass(slots=True)
class TransactionEffects:
    """What one step wants. `timers`: absolute times by key, None cancels. `chores`: events for later turns."""

    records: list[TransactionRecord] = field(default_factory=list)
    replies: list[tuple[RequestId, TransactionReply]] = field(default_factory=list)
    notices: list[TransactionNotice] = field(default_factory=list)
    timers: dict[TimerKey, int | None] = field(default_factory=dict)
    chores: list[TransactionEvent] = field(default_factory=list)

    @property
    def decided(self) -> bool:
        """Whether there is anything to be kept, told or done."""
        return any((self.records, self.replies, self.notices, self.timers, self.chores))
