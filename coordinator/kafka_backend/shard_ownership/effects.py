"""What is to be done, in order. `request` is repeated by the event that answers; nothing is answered twice."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from muster.coordinator.kafka_backend.shard_ownership.facts import OwnerRecord, ProducerEpoch, ShardBatch, ShardRecord


@dataclass(frozen=True, slots=True)
class InitProducer:
    """InitProducerId v2+ for `{cluster}.shard-{shard}`, at its transaction coordinator. -> ProducerGiven, Failed.

    The edge asks FindCoordinator of key type 1 first where it does not know that one, and again after 14, 15, 16 and
    after a lost connection: a new cluster makes `__transaction_state` by that only.
    """

    shard: int
    request: int


@dataclass(frozen=True, slots=True)
class FindLogEnd:
    """ListOffsets of the latest offset, read_uncommitted, at the partition's leader. -> EndTold, Failed."""

    shard: int
    request: int


@dataclass(frozen=True, slots=True)
class FetchLog:
    """Fetch from `offset` on, read_uncommitted, what one answer holds; nothing is wanted from `upto` on, though a
    batch that begins before it may be brought whole, and more does no harm. -> Fetched, Failed."""

    shard: int
    request: int
    offset: int
    upto: int


@dataclass(frozen=True, slots=True)
class ApplyRecords:
    """Records that count, oldest first: to the shard's loader. first: of a load that begins anew."""

    shard: int
    records: Sequence[ShardRecord]
    first: bool = False


@dataclass(frozen=True, slots=True)
class FinishLoad:
    """No more records come: let the engine load what was applied. -> Applied."""

    shard: int
    request: int


class TakeoverCause(StrEnum):
    """Why a shard changed hands (KB-F9)."""

    NODE_LOST = "node lost"
    NODE_DRAINING = "node draining"
    NODE_JOINED = "node joined"
    NODE_RESTARTED = "node restarted"
    FENCED = "fenced"
    FIRST = "first"
    """Nobody had it before."""


@dataclass(frozen=True, slots=True)
class AcquisitionReport:
    """How a shard was taken, for log, metrics and the ledger (KB-F9; key `{"shard":i,"turn":t}`).

    before: the owner whose turn was the last; None: there was none. voids: records passed over. pending: transactions
    that were open at the end (KB-E4), by producer id. waited_ms: for KB-F6. repaired: keys. gave_up: why
    this process itself gave it up, where it served it before.
    """

    owner: OwnerRecord
    before: OwnerRecord | None
    cause: TakeoverCause
    assigned_ms: int
    owned_ms: int
    served_ms: int
    voids: int = 0
    repaired: int = 0
    waited_ms: int = 0
    pending: tuple[int, ...] = ()
    gave_up: str = ""


@dataclass(frozen=True, slots=True)
class ServeShard:
    """The shard is this node's: `Append`s are taken from now on, and may_answer tells whether answers may leave."""

    shard: int
    report: AcquisitionReport


@dataclass(frozen=True, slots=True)
class RefuseRequests:
    """No new requests for the shard: NOT_COORDINATOR (KB-F8). What is under way goes on."""

    shard: int


@dataclass(frozen=True, slots=True)
class UnloadShard:
    """The shard is not this node's, or not now: whoever waits hears NOT_COORDINATOR, what was not acknowledged is
    forgotten. why: for people. again: it is still dealt to this node and is taken anew by itself."""

    shard: int
    why: str
    again: bool = False
    other: OwnerRecord | None = None
    """Who has it, where that is known (KB-F5)."""


@dataclass(frozen=True, slots=True)
class ReleaseAnswers:
    """KB-A1: the shard's appends up to this position are acknowledged: their answers may leave, while the lease
    holds."""

    shard: int
    position: int


@dataclass(frozen=True, slots=True)
class ShardsLetGo:
    """KB-F8: nothing of what `Revoke(token)` named is held any more; the membership may go on to its rejoin."""

    token: int


@dataclass(frozen=True, slots=True)
class Produce:
    """One Produce request, acks=all, at most one batch a partition; at most one request to a broker is under way.

    timeout_ms is Produce's own. The edge waits a second longer for the answer. -> Produced, ProduceLost.
    """

    broker: int
    request: int
    batches: tuple[ShardBatch, ...]
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class FindLeaders:
    """Metadata of the state topic. -> Leaders; where no broker answers: Leaders with nothing."""

    request: int


@dataclass(frozen=True, slots=True)
class WriteClientBatch:
    """KB-E2: one Produce request of this one batch, acks=all, with its client's transactional id, at the partition's
    leader. -> TxnAnswered, Failed."""

    shard: int
    request: int
    batch: ShardBatch
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class DescribeProducer:
    """KB-E3: DescribeProducers at the partition's leader. -> ProducerTold, Failed."""

    shard: int
    request: int
    producer_id: int


@dataclass(frozen=True, slots=True)
class ClientWriteOutcome:
    """What became of the `AppendTxn` of this token: Kafka's code; 0: it is in the log, at this offset and the next
    ones, and waits for its marker."""

    shard: int
    token: int
    code: int
    offset: int = -1


@dataclass(frozen=True, slots=True)
class FollowLog:
    """KB-E4: Fetch from `offset` on, as `FetchLog` does, and wait a while for something to come. -> Fetched, Failed."""

    shard: int
    request: int
    offset: int


@dataclass(frozen=True, slots=True)
class TransactionPending:
    """KB-E4: these were met in the log, and their producer's transaction has no marker. Comes before the shard's
    `ServeShard`, and is to be told before anybody asks for positions."""

    shard: int
    producer_id: int
    records: Sequence[ShardRecord]


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """KB-E4: the log has the marker of a transaction that was open. records: those of it that count from here on,
    oldest first; of one that aborts none do."""

    shard: int
    producer: ProducerEpoch
    committed: bool
    records: Sequence[ShardRecord]
    offset: int
    """The marker's."""


@dataclass(frozen=True, slots=True)
class StopProcess:
    """KB-F2: this process must end, with exit code 5."""

    sentence: str


@dataclass(frozen=True, slots=True)
class WakeShardsAt:
    """Send `Tick` then; replaces an earlier wish."""

    at_ms: int


ShardEffect: TypeAlias = (
    InitProducer
    | FindLogEnd
    | FetchLog
    | ApplyRecords
    | FinishLoad
    | ServeShard
    | RefuseRequests
    | UnloadShard
    | ReleaseAnswers
    | ShardsLetGo
    | Produce
    | FindLeaders
    | WriteClientBatch
    | DescribeProducer
    | ClientWriteOutcome
    | FollowLog
    | TransactionPending
    | TransactionEnded
    | StopProcess
    | WakeShardsAt
)
