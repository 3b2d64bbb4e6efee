"""One shard: the transactional ids of one partition of `__transaction_state`. `step` decides what an event means. Pure.

`HANDLERS` maps each event type to its handler. A refusal is one answer and changes nothing. `apply` makes a recorded
fact true, live and in replay.

A coordinator request that comes by an older connection than one with the same producer id and epoch has been overtaken
by its own repetition: it is not performed, and its connection is closed (TX-C12).
"""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.transactions import ends, producers
from muster.coordinator.transactions.effects import (
    TRANSACTION_REPLIES,
    AddPartitionsReply,
    DescribeTransactionReply,
    EndCause,
    EndTxnReply,
    InitProducerIdReply,
    ListedTransaction,
    ListTransactionsReply,
    ProducerIdWanted,
    SendMarkers,
    TransactionEffects,
    transaction_refusal,
)
from muster.coordinator.transactions.events import (
    NO_CONNECTION,
    NO_ORIGIN,
    AddPartitions,
    DescribeTransaction,
    EndTxn,
    ExpireIds,
    ForgetRequest,
    InitProducerId,
    ListTransactions,
    MarkersWritten,
    OrphanFound,
    OrphansSearched,
    ProducerIdDrawn,
    TerminateTransaction,
    TimerKey,
    TopicsDeleted,
    TransactionEvent,
    TransactionsLoaded,
    TransactionsStoodStill,
    TransactionTimer,
    UnloadTransactions,
)
from muster.coordinator.transactions.records import (
    LAST_CLIENT_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    TopicPartition,
    TransactionExpired,
    TransactionRecord,
    TransactionState,
)
from muster.coordinator.transactions.state import (
    TransactionalId,
    TransactionLimits,
    TransactionsState,
    TransactionStep,
    apply_transaction,
    not_yet_complete,
)

ONGOING = TransactionState.ONGOING
ASK_AGAIN_MS: Final = 1_000
"""How long a producer id that was asked for may take before it is asked for again."""


# Order of requests
# -----------------

Ordered = InitProducerId | AddPartitions | EndTxn
LIVE_KEYS: Final = 4


def overtaken_reply(
    event: Ordered, state: TransactionsState
) -> InitProducerIdReply | AddPartitionsReply | EndTxnReply | None:
    """The answer to a request that was overtaken; None: it is in order."""
    if not is_ordered(event, state):
        return None
    known = state.ids.get(event.transactional_id)
    newest = state.reign_connection + 1
    if known is not None:
        newest = max(newest, known.connections.get((event.producer_id, event.epoch), NO_CONNECTION))
    if event.connection >= newest:
        return None
    code, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, "the same producer has sent requests by a newer connection"
    if isinstance(event, InitProducerId):
        return InitProducerIdReply(code, message, close_connection=True)
    if isinstance(event, EndTxn):
        return EndTxnReply(code, message, close_connection=True)
    return AddPartitionsReply(code, message, close_connection=True)


def is_ordered(event: Ordered, state: TransactionsState) -> bool:
    """Whether the order of connections means anything: nodes ask on behalf of clients by connections of their own."""
    by_a_node = isinstance(event, AddPartitions) and (event.verify_only or event.level >= 2)
    return state.limits.newest_connection and event.connection != NO_CONNECTION and not by_a_node


def remember_connection(event: Ordered, state: TransactionsState) -> None:
    """Keep the newest connection of what may still be repeated: requests with older epochs are refused anyway."""
    known = state.ids.get(event.transactional_id)
    if known is None or not is_ordered(event, state):
        return
    known.connections[event.producer_id, event.epoch] = event.connection
    if len(known.connections) > LIVE_KEYS:
        stored = known.stored
        live = {
            (NO_PRODUCER_ID, NO_EPOCH),
            (stored.producer_id, stored.epoch),
            (stored.producer_id, stored.epoch - 1),
            (stored.previous_producer_id, LAST_CLIENT_EPOCH),
        }
        known.connections = {key: number for key, number in known.connections.items() if key in live}


# Questions
# ---------

UNMARKED_TOLD: Final = 100
"""Partitions without a durable marker that an answer names."""


def describe_transaction(event: DescribeTransaction, step: TransactionStep) -> None:
    if not event.transactional_id:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, "the transactional id is empty; expected 1 byte or more")
    known = step.state.ids.get(event.transactional_id)
    if known is None:
        raise CoordinatorError(
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"there is no transactional id {event.transactional_id!r}"
        )
    stored, markers = known.stored, known.markers
    reply = DescribeTransactionReply(
        state=stored.state.title,
        timeout_ms=stored.timeout_ms,
        started_ms=stored.started_ms,
        producer_id=stored.producer_id,
        epoch=stored.epoch,
        partitions=stored.partitions,
        ends=tuple(known.ends or ()),
        updated_ms=stored.updated_ms,
        client=known.newest,
        decision=known.decision if stored.state.prepared else None,
        unmarked=() if markers is None else tuple(islice(markers.waiting, UNMARKED_TOLD)),
        unmarked_count=0 if markers is None else len(markers.waiting),
        known_since_ms=step.state.loaded_ms,
    )
    step.reply(event.request_id, reply)


def list_transactions(event: ListTransactions, step: TransactionStep) -> None:
    titles = {state.title for state in TransactionState}
    listed = [
        ListedTransaction(transactional_id, known.stored.producer_id, known.stored.state.title)
        for transactional_id, known in step.state.ids.items()
        if is_wanted(known, event, step.now_ms)
    ]
    unknown = tuple(state for state in event.states if state not in titles)
    step.reply(event.request_id, ListTransactionsReply(transactions=tuple(listed), unknown_states=unknown))


def is_wanted(known: TransactionalId, event: ListTransactions, now_ms: int) -> bool:
    stored = known.stored
    if event.states and stored.state.title not in event.states:
        return False
    if event.producer_ids and stored.producer_id not in event.producer_ids:
        return False
    open_since_ms = stored.started_ms if stored.state is ONGOING or stored.state.prepared else now_ms
    return event.open_longer_than_ms < 0 or now_ms - open_since_ms > event.open_longer_than_ms


# Time
# ----


def fire_timer(event: TransactionTimer, step: TransactionStep) -> None:
    if step.state.deadlines.get(event.key) != event.deadline_ms:
        return
    del step.state.deadlines[event.key]
    kind = event.key[0]
    if kind == "expiry":
        step.out.chores.append(ExpireIds(tuple(step.state.ids)))
        step.arm(event.key, step.now_ms + step.limits.expiration_check_ms)
        return
    known = step.state.ids.get(event.key[1])
    if known is None:
        return
    if kind == "timeout":
        end_in_time(known, NO_PRODUCER_ID, step)
    elif kind == "markers":
        ends.repeat_markers(known, step)
    else:
        end_patience(known, step)


def end_in_time(known: TransactionalId, fresh_id: int, step: TransactionStep) -> None:
    """Abort a transaction that is open for too long. Where its epochs are used up a producer id is asked for first."""
    stored = known.stored
    if stored.state is not ONGOING:
        return
    if stored.epoch >= LAST_CLIENT_EPOCH and fresh_id == NO_PRODUCER_ID:
        known.wants_id = True
        step.out.notices.append(ProducerIdWanted(stored.transactional_id))
        step.arm(("timeout", stored.transactional_id), step.now_ms + ASK_AGAIN_MS)
        return
    ends.abort_by_coordinator(known, EndCause.TIMED_OUT, NO_ORIGIN, fresh_id, step)


def take_fresh_id(event: ProducerIdDrawn, step: TransactionStep) -> None:
    known = step.state.ids.get(event.transactional_id)
    if known is not None and known.wants_id:
        end_in_time(known, event.fresh_id, step)


def end_patience(known: TransactionalId, step: TransactionStep) -> None:
    """Requests that have waited long enough are refused."""
    due = [each for each in known.waiting if each.until_ms <= step.now_ms]
    known.waiting = [each for each in known.waiting if each.until_ms > step.now_ms]
    for each in due:
        refusal = transaction_refusal(each.request, not_yet_complete(known.stored))
        step.reply(each.request.request_id, refusal)
    await_next(known, step)


def await_next(known: TransactionalId, step: TransactionStep) -> None:
    key = ("wait", known.stored.transactional_id)
    if known.waiting:
        step.arm(key, min(each.until_ms for each in known.waiting))
    else:
        step.disarm(key)


def expire_slice(event: ExpireIds, step: TransactionStep) -> None:
    """Forget ids that nobody has used for so long; the rest of the slice is left for a later turn."""
    now, later = event.transactional_ids[: step.limits.slice_ids], event.transactional_ids[step.limits.slice_ids :]
    for transactional_id in now:
        known = step.state.ids.get(transactional_id)
        if known is not None and known.stored.state.idle and is_unused(known, step):
            step.keep(TransactionExpired(transactional_id))
    if later:
        step.out.chores.append(ExpireIds(later))


def is_unused(known: TransactionalId, step: TransactionStep) -> bool:
    return step.now_ms - known.stored.updated_ms >= step.limits.expiration_ms


def stand_still(event: TransactionsStoodStill, step: TransactionStep) -> None:
    step.state.still_ms += event.moved_ms
    for key in step.state.deadlines:
        step.state.deadlines[key] += event.moved_ms


# A life of the shard
# -------------------


def load(event: TransactionsLoaded, step: TransactionStep) -> None:
    """Go on where the log ends: decided transactions get their markers again, open ones their timers (TX-C11)."""
    state = step.state
    state.life, state.coordinator_epoch = event.life, event.coordinator_epoch
    state.reign_connection, state.searching = event.newest_connection, event.orphans_follow
    state.loaded_ms = step.now_ms
    for known in step.open_ids():
        stored = known.stored
        if stored.state.prepared:
            ends.begin_markers(known, stored.places, step)
        else:
            heard_ms = step.now_ms + min(stored.timeout_ms, step.limits.unheard_ms)
            due_ms = max(step.past(stored.started_ms) + stored.timeout_ms, heard_ms)
            step.arm(("timeout", stored.transactional_id), due_ms)
    step.arm(("expiry",), step.now_ms + step.limits.expiration_check_ms)


def end_search(event: OrphansSearched, step: TransactionStep) -> None:
    if step.state.searching:
        step.state.searching = False
        ends.send_recovered_markers(step)


def unload(event: UnloadTransactions, step: TransactionStep) -> None:
    for known in step.open_ids():  # Nothing waits for an id that is complete.
        for each in known.waiting:
            refusal = transaction_refusal(each.request, CoordinatorError(ErrorCode.NOT_COORDINATOR))
            step.reply(each.request.request_id, refusal)
        known.waiting.clear()
    for key in list(step.state.deadlines):
        step.disarm(key)


def forget_request(event: ForgetRequest, step: TransactionStep) -> None:
    transactional_id = step.state.parked.pop(event.request_id, None)
    known = step.state.ids.get(transactional_id or "")
    if known is not None:
        known.waiting = [each for each in known.waiting if each.request.request_id != event.request_id]
        await_next(known, step)


HANDLERS: Final[dict[type[Any], Callable[[Any, TransactionStep], None]]] = {
    InitProducerId: producers.init_producer_id,
    AddPartitions: producers.add_partitions,
    EndTxn: ends.end_transaction,
    TerminateTransaction: producers.terminate_transaction,
    DescribeTransaction: describe_transaction,
    ListTransactions: list_transactions,
    OrphanFound: producers.take_orphan,
    MarkersWritten: ends.take_markers,
    TopicsDeleted: ends.forget_topics,
    ProducerIdDrawn: take_fresh_id,
    TransactionTimer: fire_timer,
    TransactionsStoodStill: stand_still,
    TransactionsLoaded: load,
    OrphansSearched: end_search,
    UnloadTransactions: unload,
    ForgetRequest: forget_request,
    ExpireIds: expire_slice,
}

QUESTIONS: Final = (DescribeTransaction, ListTransactions)


class TransactionShard:
    """One partition of `__transaction_state`. `index` is its number, for messages only.

    >>> shard = TransactionShard(TransactionLimits(), 0)
    >>> effects = shard.step(InitProducerId(1, "billing", 60_000, fresh_id=7), now_ms=0)
    >>> effects.replies[0][1].producer_id, effects.replies[0][1].epoch, effects.records[0].state.title
    (7, 0, 'Empty')
    """

    __slots__ = ("index", "state")

    def __init__(self, limits: TransactionLimits, index: int) -> None:
        self.index = index
        self.state = TransactionsState(limits)

    @property
    def deadlines(self) -> Mapping[TimerKey, int]:
        """When each timer is due, ms; kept here and nowhere else."""
        return self.state.deadlines

    def apply(self, record: TransactionRecord) -> None:
        """Make a recorded fact true again (replay)."""
        apply_transaction(self.state, record)

    def waits_for(self, asked: SendMarkers, place: TopicPartition) -> bool:
        """Whether a marker that was asked for is still to be written: its partition may be gone, and there again."""
        known = self.state.ids.get(asked.transactional_id)
        markers = None if known is None else known.markers
        current = markers is not None and (asked.life, asked.number) == (self.state.life, markers.number)
        return markers is not None and current and place in markers.waiting

    def writes_nothing(self, event: TransactionEvent) -> bool:
        """Whether a request can be told in advance to leave no record."""
        return isinstance(event, QUESTIONS) or (isinstance(event, AddPartitions) and event.verify_only)

    def step(self, event: TransactionEvent, now_ms: int) -> TransactionEffects:
        """Decide what an event means. A refusal is one answer and changes nothing."""
        step = TransactionStep(self.state, now_ms)
        try:
            self._handle(event, step)
        except CoordinatorError as refusal:
            assert not step.out.decided, "a request was refused after something had been decided"
            assert type(event) in TRANSACTION_REPLIES, f"{event} is no request, and was refused"
            step.reply(event.request_id, transaction_refusal(event, refusal))  # type: ignore[union-attr]
        while step.completed:
            self._resume(step.completed.pop(0), step)
        return step.out

    def _handle(self, event: TransactionEvent, step: TransactionStep) -> None:
        if self.state.searching and type(event) in TRANSACTION_REPLIES and not isinstance(event, OrphanFound):
            raise CoordinatorError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the coordinator is still loading; try again shortly"
            )
        if isinstance(event, Ordered):
            overtaken = overtaken_reply(event, self.state)
            if overtaken is not None:
                step.reply(event.request_id, overtaken)
                return
            remember_connection(event, self.state)
        HANDLERS[type(event)](event, step)
        if isinstance(event, InitProducerId):
            remember_connection(event, self.state)

    def _resume(self, known: TransactionalId, step: TransactionStep) -> None:
        """The transaction is complete: the next one may have begun. Decide what has waited, in order of arrival."""
        producers.join_next_places(known, step)
        waiting, known.waiting = known.waiting, []
        for each in waiting:
            try:
                producers.decide_again(each, known, step)
            except CoordinatorError as refusal:
                step.reply(each.request.request_id, transaction_refusal(each.request, refusal))
        await_next(known, step)
