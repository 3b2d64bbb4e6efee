"""What happens to the shards of a node. `request` repeats the number of the effect that is answered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from muster.coordinator.kafka_backend.shard_ownership.facts import (
    NO_PRODUCER,
    BatchResult,
    NewRecord,
    ProducerEpoch,
    RetryReason,
    TransactionalClient,
)
from muster.coordinator.kafka_backend.shard_ownership.shard_assignment import ShardAssignment
from muster.coordinator.kafka_backend.shard_ownership.voids import LogBatch


@dataclass(frozen=True, slots=True)
class ShardsAssigned:
    """A SyncGroup was answered 0 and its share taken (act.Assign): exactly these shards are this node's now.

    deal: the whole map, for whoever asks for owners. What is gone from the share was given up by `RevokeShards` before.
    """

    shards: frozenset[int]
    deal: ShardAssignment


@dataclass(frozen=True, slots=True)
class RevokeShards:
    """These must be let go of in good order (KB-F8); `LetGo(token)` when they are. deadline_ms: after it, anyhow."""

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
    """The engine has taken in all that `Apply` named so far; it can serve the shard."""

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
    `TxnOutcome`, which does not come where the shard goes before (`Unload`). size: of the keys and values, in bytes."""

    shard: int
    token: int
    client: TransactionalClient
    records: Sequence[NewRecord]
    size: int


@dataclass(frozen=True, slots=True)
class ShardsTick:
    """The moment of the last `WakeAt` has come. A tick too many does no harm."""


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
