"""The state of a shard of transactional ids, and one step over it.

Hard state is the newest record of each id; `apply_transaction` is its only writer, live and in replay. Everything else
here is soft: it may die with the process.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.transactions.effects import (
    NOT_KNOWN,
    EndDecision,
    TransactionEffects,
    TransactionEnd,
    TransactionReply,
)
from muster.coordinator.transactions.events import (
    NO_CONNECTION,
    NO_ORIGIN,
    AddPartitions,
    InitProducerId,
    RequestId,
    RequestOrigin,
    TerminateTransaction,
    TimerKey,
)
from muster.coordinator.transactions.records import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    TopicPartition,
    TransactionExpired,
    TransactionRecord,
    TransactionState,
    TransactionStored,
    check_move,
)
from muster.coordinator.values import frozen_value

REMEMBERED_ENDS: Final = 20
"""Ends that are remembered of each id."""

MAX_TRANSACTION_PARTITIONS: Final = 20_000
"""Partitions of one transaction. All of them are in one record, which no step may take more than 5 ms to write."""

ENDS_OF_SHARD: Final = 2_000
"""Ends that are remembered of all ids of a shard; the oldest are forgotten first."""


@frozen_value
class TransactionLimits:
    """Bounds and settings of the coordinator, in ms and counts.

    level: the node's own `transaction.version`. patience_ms: how long a request may wait for the transaction before it
    to complete. unheard_ms: after a load no transaction times out earlier than this, or its timeout, whichever is less.
    newest_connection: whether requests of a client are refused that came by an older connection than its newest.
    """

    level: int = 2
    max_timeout_ms: int = 900_000
    expiration_ms: int = 604_800_000
    expiration_check_ms: int = 3_600_000
    patience_ms: int = 100
    unheard_ms: int = 10_000
    max_ids: int = 100_000
    max_partitions: int = MAX_TRANSACTION_PARTITIONS
    max_waiting: int = 100
    newest_connection: bool = True
    slice_ids: int = 1_000


PatientRequest: TypeAlias = InitProducerId | TerminateTransaction | AddPartitions


@frozen_value
class WaitingRequest:
    """A request that waits for the transaction before it to complete."""

    request: PatientRequest
    until_ms: int


@dataclass(slots=True)
class MarkerRound:
    """The markers of one decided transaction that are not known to be durable yet."""

    number: int
    waiting: dict[TopicPartition, None]
    again: dict[TopicPartition, None] = field(default_factory=dict)
    """Those of them that failed, until they are sent again."""
    failures: int = 0


@dataclass(slots=True)
class TransactionalId:
    """One id. `stored` is the hard state, the rest is soft.

    last_epoch: the epoch before the current one, if the producer that has the current one had it (KIP-360).
    fencing: the current epoch only fences; no client is ever given it. gone: partitions of the open transaction whose
    topic has been deleted. newest: the instance that was given an epoch last, or ended a transaction since.
    """

    stored: TransactionStored
    last_epoch: int = NO_EPOCH
    fencing: bool = False
    wants_id: bool = False
    """The open transaction is over time, and waits for a producer id."""
    decision: EndDecision = NOT_KNOWN
    """Of the transaction that is decided and not complete."""
    newest: RequestOrigin = NO_ORIGIN
    still_ms: int = 0
    """`TransactionsState.still_ms` when the open transaction began."""
    connections: dict[tuple[int, int], int] = field(default_factory=dict)
    """(producer id, epoch) -> the newest connection that brought a request with them."""
    waiting: list[WaitingRequest] = field(default_factory=list)
    markers: MarkerRound | None = None
    gone: set[TopicPartition] = field(default_factory=set)
    next_places: dict[TopicPartition, None] = field(default_factory=dict)
    """Partitions where the next transaction has begun already, though this one is not complete."""
    ends: deque[TransactionEnd] | None = None
    """The last ones, newest first."""


@dataclass(slots=True)
class TransactionsState:
    """The transactional ids of one partition of `__transaction_state`."""

    limits: TransactionLimits
    ids: dict[str, TransactionalId] = field(default_factory=dict)
    by_producer: dict[int, str] = field(default_factory=dict)
    """Current producer id, and the next one where it is decided -> transactional id."""
    open: dict[str, None] = field(default_factory=dict)
    """Ids with a transaction that is open or decided, and not complete: what most rounds over ids need to look at."""
    counts: dict[TransactionState, int] = field(default_factory=dict)
    """How many ids are in each state."""
    deadlines: dict[TimerKey, int] = field(default_factory=dict)
    parked: dict[RequestId, str] = field(default_factory=dict)
    """Request that waits -> transactional id."""
    life: int = 0
    coordinator_epoch: int = 0
    reign_connection: int = NO_CONNECTION
    """Connections up to this one are older than this life of the shard."""
    rounds: int = 0
    loaded_ms: int = 0
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    """Of the topics that there are, as the shard was told last."""
    still_ms: int = 0
    """For how long the node stood still in this life, all together."""
    last_ends: deque[tuple[str, TransactionEnd]] = field(default_factory=deque)
    """Those that are remembered, of all ids, oldest first; some may be forgotten by their id already."""
    searching: bool = False
    """Orphans are still being told; until then requests are refused as loading."""


def remember_end(state: TransactionsState, known: TransactionalId, end: TransactionEnd) -> None:
    """Keep it among the last ends of the id and of the shard."""
    if known.ends is None:
        known.ends = deque(maxlen=REMEMBERED_ENDS)
    known.ends.appendleft(end)
    state.last_ends.append((known.stored.transactional_id, end))
    if len(state.last_ends) > ENDS_OF_SHARD:
        transactional_id, oldest = state.last_ends.popleft()
        owner = state.ids.get(transactional_id)
        if owner is not None and owner.ends and owner.ends[-1] is oldest:
            owner.ends.pop()


def apply_transaction(state: TransactionsState, record: TransactionRecord) -> None:
    """Make a recorded fact true. Tombstones of unknown ids and repeated facts are normal: logs are compacted."""
    known = state.ids.get(record.transactional_id)
    counts = state.counts
    if known is not None:
        counts[known.stored.state] -= 1
        state.by_producer.pop(known.stored.producer_id, None)
        state.by_producer.pop(known.stored.next_producer_id, None)
    if isinstance(record, TransactionExpired):
        state.ids.pop(record.transactional_id, None)
        state.open.pop(record.transactional_id, None)
        return
    counts[record.state] = counts.get(record.state, 0) + 1
    if record.state.idle:
        state.open.pop(record.transactional_id, None)
    else:
        state.open[record.transactional_id] = None
    if known is None:
        state.ids[record.transactional_id] = TransactionalId(record)
    else:
        known.stored = record
    state.by_producer[record.producer_id] = record.transactional_id
    if record.next_producer_id != NO_PRODUCER_ID:
        state.by_producer[record.next_producer_id] = record.transactional_id


@dataclass(slots=True)
class TransactionStep:
    """One step under way: the state, the time, and what it wants of the runtime."""

    state: TransactionsState
    now_ms: int
    out: TransactionEffects = field(default_factory=TransactionEffects)
    completed: list[TransactionalId] = field(default_factory=list)
    """Ids whose transaction has become complete in this step: their waiting requests are decided at its end."""

    @property
    def limits(self) -> TransactionLimits:
        return self.state.limits

    def keep(self, record: TransactionRecord) -> None:
        """The fact is true from here on, and goes into the log with this step."""
        known = self.state.ids.get(record.transactional_id)
        if isinstance(record, TransactionStored):
            check_move(record.transactional_id, None if known is None else known.stored.state, record.state)
        apply_transaction(self.state, record)
        self.out.records.append(record)

    def move(
        self,
        known: TransactionalId,
        state: TransactionState,
        partitions: Mapping[str, tuple[int, ...]],
        producer: tuple[int, int],
        started_ms: int,
        client_level: int,
        *,
        timeout_ms: int | None = None,
        next_producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        """Keep the id's next record. producer: its id and epoch from here on; the record names the id before, too.
        timeout_ms: None: as it is."""
        before = known.stored
        record = TransactionStored(
            before.transactional_id,
            *producer,
            before.timeout_ms if timeout_ms is None else timeout_ms,
            state,
            partitions,
            self.now_ms,
            started_ms,
            before.producer_id,
            next_producer_id,
            client_level,
        )
        self.keep(record)

    def open_ids(self) -> list[TransactionalId]:
        """Those with a transaction that is open or decided. A list: what is done to them may complete some."""
        return [self.state.ids[name] for name in self.state.open]

    def reply(self, request_id: RequestId, reply: TransactionReply) -> None:
        self.state.parked.pop(request_id, None)
        self.out.replies.append((request_id, reply))

    def arm(self, key: TimerKey, at_ms: int) -> None:
        """Fire `key` at that time; arming again replaces."""
        self.state.deadlines[key] = at_ms
        self.out.timers[key] = at_ms

    def disarm(self, key: TimerKey) -> None:
        if self.state.deadlines.pop(key, None) is not None:
            self.out.timers[key] = None

    def past(self, stored_ms: int) -> int:
        """A time that the log tells of. One still to come is of a clock that was set back since: it counts as now."""
        return min(stored_ms, self.now_ms)


def find_id(transactional_id: str, state: TransactionsState) -> TransactionalId:
    """The id that a request names. Raises CoordinatorError where it is empty, or not known."""
    if not transactional_id:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, "the transactional id is empty; expected 1 byte or more")
    known = state.ids.get(transactional_id)
    if known is None:
        raise CoordinatorError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"transactional id {transactional_id!r} is not known; initialize it first",
        )
    return known


def check_producer(known: TransactionalId, producer_id: int, epoch: int) -> None:
    """Raises CoordinatorError unless these are the current ones."""
    stored = known.stored
    if producer_id != stored.producer_id:
        raise wrong_producer(stored, producer_id)
    if epoch != stored.epoch:
        raise wrong_epoch(stored, epoch)


def wrong_producer(stored: TransactionStored, producer_id: int) -> CoordinatorError:
    return CoordinatorError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"transactional id {stored.transactional_id!r} has another producer id than {producer_id}; initialize it again",
    )


def wrong_epoch(stored: TransactionStored, epoch: int) -> CoordinatorError:
    return CoordinatorError(
        ErrorCode.PRODUCER_FENCED,
        f"epoch {epoch} of transactional id {stored.transactional_id!r} is not the current one: a newer producer has "
        "taken over, or the coordinator ended the transaction; this one has to stop",
    )


def not_yet_complete(stored: TransactionStored) -> CoordinatorError:
    return CoordinatorError(
        ErrorCode.CONCURRENT_TRANSACTIONS,
        f"the transaction before of id {stored.transactional_id!r} is still in {stored.state.title}; try again shortly",
    )
