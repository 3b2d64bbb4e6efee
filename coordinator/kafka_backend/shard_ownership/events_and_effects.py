"""What happens to the shards of a node, and what their state machine asks for in return.

Effects are performed in order. `request` of an effect is repeated by the event that answers it, and nothing is
answered twice. An answer whose number is no longer awaited is dropped, so the caller may answer late. A request
that cannot be completed (no connection, deadline) is answered by `RequestWithoutAnswer` or `ProduceLost`; the
machine retries after a back-off of its own, and the caller never retries by itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from muster.coordinator.kafka_backend.shard_ownership.shard_assignment import ShardAssignment
from muster.coordinator.kafka_backend.shard_ownership.shard_log import (
    NO_PRODUCER,
    BatchResult,
    LogBatch,
    NewRecord,
    OwnerRecord,
    ProducerEpoch,
    RetryReason,
    ShardBatch,
    ShardRecord,
    TransactionalClient,
)

# Effects: what the caller has to do
# ----------------------------------


@dataclass(frozen=True, slots=True)
class InitProducer:
    """InitProducerId v2+ for `{cluster}.shard-{shard}`, at its transaction coordinator. -> ProducerInitialized,
    RequestWithoutAnswer.

    The edge asks FindCoordinator of key type 1 first where it does not know that one, and again after 14, 15, 16 and
    after a lost connection: a new cluster makes `__transaction_state` by that only.
    """

    shard: int
    request: int


@dataclass(frozen=True, slots=True)
class FindLogEnd:
    """ListOffsets of the latest offset, read_uncommitted, at the partition's leader. -> LogEndFound,
    RequestWithoutAnswer."""

    shard: int
    request: int


@dataclass(frozen=True, slots=True)
class FetchLog:
    """Fetch from `offset` on, read_uncommitted, what one answer holds; nothing is wanted from `upto` on, though a
    batch that begins before it may be brought whole, and more does no harm. -> Fetched, RequestWithoutAnswer."""

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

    before: the owner whose turn was the last; None: there was none. fenced_records: how many were passed over. pending:
    transactions that were open at the end (KB-E4), by producer id. waited_ms: for KB-F6. repaired: keys. gave_up: why
    this process itself gave it up, where it served it before.
    """

    owner: OwnerRecord
    before: OwnerRecord | None
    cause: TakeoverCause
    assigned_ms: int
    owned_ms: int
    served_ms: int
    fenced_records: int = 0
    repaired: int = 0
    waited_ms: int = 0
    pending: tuple[int, ...] = ()
    gave_up: str = ""


@dataclass(frozen=True, slots=True)
class ServeShard:
    """The shard is this node's: `ShardAppend`s are taken from now on, and may_answer tells whether answers may
    leave."""

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
    leader. -> ClientBatchAnswered, RequestWithoutAnswer."""

    shard: int
    request: int
    batch: ShardBatch
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class DescribeProducer:
    """KB-E3: DescribeProducers at the partition's leader. -> ProducerDescribed, RequestWithoutAnswer."""

    shard: int
    request: int
    producer_id: int


@dataclass(frozen=True, slots=True)
class ClientWriteOutcome:
    """What became of the `AppendClientOffsets` of this token: Kafka's code; 0: it is in the log, at this offset and the
    next ones, and waits for its marker."""

    shard: int
    token: int
    code: int
    offset: int = -1


@dataclass(frozen=True, slots=True)
class FollowLog:
    """KB-E4: Fetch from `offset` on, as `FetchLog` does, and wait a while for something to come. -> Fetched,
    RequestWithoutAnswer."""

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
    """Send `ShardsTick` then; replaces an earlier wish."""

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


# Events: what has happened
# -------------------------


@dataclass(frozen=True, slots=True)
class ShardsAssigned:
    """A SyncGroup was answered 0 and its share taken (act.Assign): exactly these shards are this node's now.

    assignment: the whole map, for whoever asks for owners. What is gone from the share was given up by
    `RevokeShards` before.
    """

    shards: frozenset[int]
    assignment: ShardAssignment


@dataclass(frozen=True, slots=True)
class RevokeShards:
    """These must be let go of in good order (KB-F8); `ShardsLetGo(token)` when they are. deadline_ms: after it,
    anyhow."""

    token: int
    shards: frozenset[int]
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class MembershipLost:
    """The membership is over: whatever this node had may be another's. why: for people."""

    why: str


@dataclass(frozen=True, slots=True)
class Synced:
    """A SyncGroup sent at sent_ms, not later than its first byte, was answered 0."""

    sent_ms: int


@dataclass(frozen=True, slots=True)
class LeaseHeartbeatAnswered:
    """A Heartbeat sent at sent_ms, not later than its first byte, was answered so."""

    sent_ms: int
    code: int


@dataclass(frozen=True, slots=True)
class NodeFenced:
    """The nodes' group said FENCED_INSTANCE_ID (82): another process has this node's id (KB-F2).

    address: that of the other one, as far as DescribeGroups told.
    """

    address: str = ""


@dataclass(frozen=True, slots=True)
class TopicLost:
    """The state topic is gone, is another one of that name, or has another number of partitions. why: for people."""

    why: str


@dataclass(frozen=True, slots=True)
class TopicFound:
    """It is there as it should be, after all. another: it is not the one of before, and an operator has said that it
    counts from now on."""

    another: bool = False


# Answers.


@dataclass(frozen=True, slots=True)
class RequestWithoutAnswer:
    """No answer to a request of a shard: no connection, no leader, a deadline. detail: for people."""

    shard: int
    request: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ProducerInitialized:
    """InitProducerId's answer."""

    shard: int
    request: int
    code: int
    producer: ProducerEpoch = NO_PRODUCER


@dataclass(frozen=True, slots=True)
class LogEndFound:
    """ListOffsets' answer: the partition's end (high watermark)."""

    shard: int
    request: int
    code: int
    offset: int = -1


@dataclass(frozen=True, slots=True)
class LogFetched:
    """What a Fetch brought, in order. start_offset: where the log begins, for OFFSET_OUT_OF_RANGE (1).

    No batches and code 0: there was nothing up to next_offset, or nothing yet where that is the offset asked for.
    """

    shard: int
    request: int
    code: int
    batches: Sequence[LogBatch] = ()
    next_offset: int = -1
    start_offset: int = 0


@dataclass(frozen=True, slots=True)
class LoadFinished:
    """The engine has taken in all that `ApplyRecords` named so far; it can serve the shard."""

    shard: int
    request: int


@dataclass(frozen=True, slots=True)
class LeadersFound:
    """Metadata: who leads which shard's partition; -1, or not there: nobody."""

    request: int
    leaders: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class BatchesProduced:
    """An answer to a Produce request: of each shard in it."""

    broker: int
    request: int
    results: Mapping[int, BatchResult]


@dataclass(frozen=True, slots=True)
class ProduceLost:
    """The connection was lost, or nothing came in time: nobody knows what became of it."""

    broker: int
    request: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ClientBatchAnswered:
    """Produce's answer about a client's batch, and the offset of its first record; -1: not told."""

    shard: int
    request: int
    code: int
    offset: int = -1


@dataclass(frozen=True, slots=True)
class ProducerDescribed:
    """DescribeProducers' answer about one producer; all of it -1: the broker knows nothing of it. open_at: the offset
    where its open transaction begins; -1: it has none."""

    shard: int
    request: int
    code: int
    epoch: int = -1
    last_sequence: int = -1
    open_at: int = -1


ShardAnswer: TypeAlias = (
    ProducerInitialized
    | LogEndFound
    | LogFetched
    | LoadFinished
    | RequestWithoutAnswer
    | ClientBatchAnswered
    | ProducerDescribed
)
"""To what was asked for one shard."""


# The node's own.


class ShardAppend(NamedTuple):
    """What one turn of the engine decided for a shard. position: the number of this append, rising by one.

    size: of the keys and values, in bytes.
    """

    shard: int
    records: Sequence[NewRecord]
    size: int
    position: int


@dataclass(frozen=True, slots=True)
class TurnDecided:
    """A turn of the engine is over: what it decided, for each shard. Where one broker leads them it leaves together."""

    appends: Sequence[ShardAppend]


@dataclass(frozen=True, slots=True)
class AppendClientOffsets:
    """Write these in a client's name (KB-E2): they were allowed to be in its transaction. token: repeated by the
    `ClientWriteOutcome`, which does not come where the shard goes before (`Unload`). size: of the keys and values, in
    bytes."""

    shard: int
    token: int
    client: TransactionalClient
    records: Sequence[NewRecord]
    size: int


@dataclass(frozen=True, slots=True)
class ShardsTick:
    """The moment of the last `WakeShardsAt` has come. A tick too many does no harm."""


ShardEvent: TypeAlias = (
    ShardsAssigned
    | RevokeShards
    | MembershipLost
    | Synced
    | LeaseHeartbeatAnswered
    | NodeFenced
    | TopicLost
    | TopicFound
    | RequestWithoutAnswer
    | ProducerInitialized
    | LogEndFound
    | LogFetched
    | LoadFinished
    | LeadersFound
    | BatchesProduced
    | ProduceLost
    | TurnDecided
    | AppendClientOffsets
    | ClientBatchAnswered
    | ProducerDescribed
    | ShardsTick
)


def retry_reason_of(
    event: ProducerInitialized | LogEndFound | LogFetched | LoadFinished | RequestWithoutAnswer,
) -> RetryReason | None:
    """Why an answer is none of use; None: it is."""
    if isinstance(event, RequestWithoutAnswer):
        return RetryReason(0, event.detail)
    return None if isinstance(event, LoadFinished) or not event.code else RetryReason(event.code)
