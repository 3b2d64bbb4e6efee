"""Who may write under a transactional id: producer ids, epochs, fencing, and the partitions of the open transaction."""

from collections.abc import Mapping
from enum import Enum

from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.transactions.effects import (
    AddPartitionsReply,
    EndCause,
    InitProducerIdReply,
    OrphanReply,
    OrphanVerdict,
    TerminateTransactionReply,
    transaction_refusal,
)
from muster.coordinator.transactions.ends import (
    abort_by_coordinator,
    is_rotated,
    join_markers,
    next_producer,
    skip_marker,
)
from muster.coordinator.transactions.events import (
    NO_ORIGIN,
    AddPartitions,
    InitProducerId,
    OrphanFound,
    TerminateTransaction,
)
from muster.coordinator.transactions.records import (
    LAST_CLIENT_EPOCH,
    LAST_EPOCH,
    MAX_ID_BYTES,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    TopicPartition,
    TransactionState,
    TransactionStored,
    join_partitions,
)
from muster.coordinator.transactions.state import (
    PatientRequest,
    TransactionalId,
    TransactionStep,
    WaitingRequest,
    check_producer,
    find_id,
    not_yet_complete,
    wrong_epoch,
)

ONGOING = TransactionState.ONGOING


# InitProducerId
# --------------


class Claim(Enum):
    """By what right a producer asks for an epoch."""

    NEW_INSTANCE = "it names none: it takes over, and fences whoever has the current epoch"
    OWN = "it has the current epoch, and wants the next one (KIP-360)"
    REPEATED = "it has been given the current epoch, and did not hear of it"


def init_producer_id(event: InitProducerId, step: TransactionStep) -> None:
    check_init(event, step)
    known = step.state.ids.get(event.transactional_id)
    if known is not None:
        give_epoch(known, event, step.now_ms + step.limits.patience_ms, step)
        return
    if len(step.state.ids) >= step.limits.max_ids:
        raise CoordinatorError(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            f"there are {len(step.state.ids)} transactional ids, as many as transaction.max.ids allows; try later",
        )
    fresh = TransactionStored(
        event.transactional_id,
        event.fresh_id,
        0,
        event.timeout_ms,
        TransactionState.EMPTY,
        updated_ms=step.now_ms,
        previous_producer_id=event.fresh_id,
    )
    step.keep(fresh)
    step.state.ids[event.transactional_id].newest = event.client
    step.reply(event.request_id, InitProducerIdReply(ErrorCode.NONE, "", event.fresh_id, 0))


def check_init(event: InitProducerId, step: TransactionStep) -> None:
    """Raises CoordinatorError for what no state could make right."""
    if (event.producer_id == NO_PRODUCER_ID) != (event.epoch == NO_EPOCH):
        raise CoordinatorError(
            ErrorCode.INVALID_REQUEST,
            f"producer id {event.producer_id} with epoch {event.epoch}; expected both, or neither (-1)",
        )
    if not 0 < len(event.transactional_id.encode()) <= MAX_ID_BYTES:
        raise CoordinatorError(
            ErrorCode.INVALID_REQUEST,
            f"a transactional id of {len(event.transactional_id.encode())} bytes; expected 1 to {MAX_ID_BYTES}",
        )
    if not 0 < event.timeout_ms <= step.limits.max_timeout_ms:
        raise CoordinatorError(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"transaction.timeout.ms={event.timeout_ms}; expected 1 to {step.limits.max_timeout_ms} "
            "(transaction.max.timeout.ms)",
        )


def terminate_transaction(event: TerminateTransaction, step: TransactionStep) -> None:
    if not event.transactional_id:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, "the transactional id is empty; expected 1 byte or more")
    known = step.state.ids.get(event.transactional_id)
    if known is None:
        raise CoordinatorError(
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"there is no transactional id {event.transactional_id!r}"
        )
    give_epoch(known, event, step.now_ms + step.limits.patience_ms, step)


def claim_of(known: TransactionalId, request: InitProducerId | TerminateTransaction) -> Claim:
    """Raises CoordinatorError for a producer that has been fenced."""
    stored = known.stored
    if isinstance(request, TerminateTransaction) or request.producer_id == NO_PRODUCER_ID:
        return Claim.NEW_INSTANCE
    if request.producer_id == stored.producer_id and request.epoch == stored.epoch:
        return Claim.OWN
    # While a transaction is open its producer has the current epoch: nothing was missed that could be repeated.
    before = request.producer_id == stored.producer_id or is_rotated(stored, request.producer_id, request.epoch)
    if stored.state is not ONGOING and before and request.epoch == known.last_epoch:
        return Claim.REPEATED
    raise wrong_epoch(stored, request.epoch)


def give_epoch(
    known: TransactionalId, request: InitProducerId | TerminateTransaction, until_ms: int, step: TransactionStep
) -> None:
    """Decide who has the id from here on. An open transaction is aborted first, and its completion waited for."""
    stored = known.stored
    if stored.state.prepared:
        await_completion(known, request, until_ms, step)
        return
    claim = claim_of(known, request)
    if stored.state is ONGOING:
        cause = EndCause.BUMPED if claim is Claim.OWN else EndCause.FENCED
        if isinstance(request, TerminateTransaction):
            cause = EndCause.OPERATOR
        abort_by_coordinator(known, cause, request.client, request.fresh_id, step)
        await_completion(known, request, until_ms, step)
        return
    if claim is not Claim.REPEATED:
        known.fencing = False
        known.last_epoch = stored.epoch if claim is Claim.OWN else NO_EPOCH
        rotates = stored.epoch >= LAST_CLIENT_EPOCH
        step.move(
            known,
            TransactionState.EMPTY,
            {},
            (request.fresh_id, 0) if rotates else (stored.producer_id, stored.epoch + 1),
            NO_TIME,
            0,
            timeout_ms=None if isinstance(request, TerminateTransaction) else request.timeout_ms,
            next_producer_id=stored.next_producer_id,
        )
    if isinstance(request, TerminateTransaction):
        known.newest = NO_ORIGIN
        step.reply(request.request_id, TerminateTransactionReply())
    else:
        known.newest = request.client
        given = known.stored
        step.reply(request.request_id, InitProducerIdReply(ErrorCode.NONE, "", given.producer_id, given.epoch))


def await_completion(known: TransactionalId, request: PatientRequest, until_ms: int, step: TransactionStep) -> None:
    """Decide the request again once the transaction is complete, or refuse it when its patience ends."""
    if until_ms <= step.now_ms or len(known.waiting) >= step.limits.max_waiting:
        step.reply(request.request_id, transaction_refusal(request, not_yet_complete(known.stored)))
        return
    known.waiting.append(WaitingRequest(request, until_ms))
    step.state.parked[request.request_id] = known.stored.transactional_id
    step.arm(("wait", known.stored.transactional_id), min(each.until_ms for each in known.waiting))


# Partitions
# ----------


def add_partitions(event: AddPartitions, step: TransactionStep) -> None:
    known = find_id(event.transactional_id, step.state)
    if event.verify_only:
        step.reply(event.request_id, verify_partitions(known, event))
    else:
        join_transaction(known, event, step.now_ms + step.limits.patience_ms, step)


def verify_partitions(known: TransactionalId, event: AddPartitions) -> AddPartitionsReply:
    check_producer(known, event.producer_id, event.epoch)
    if known.stored.state.prepared:
        raise not_yet_complete(known.stored)
    missing = missing_partitions(known.stored, event.partitions)
    return AddPartitionsReply(
        partitions={
            (topic, number): ErrorCode.TRANSACTION_ABORTABLE if number in missing.get(topic, ()) else ErrorCode.NONE
            for topic, number in event.partitions
        }
    )


def missing_partitions(stored: TransactionStored, places: tuple[TopicPartition, ...]) -> dict[str, set[int]]:
    """Those of the partitions that are not in the open transaction, by topic."""
    missing: dict[str, set[int]] = {}
    for topic, number in places:
        if topic in missing:
            missing[topic].add(number)
        else:
            missing[topic] = {number}
    if stored.state is ONGOING:
        for topic, numbers in missing.items():
            numbers.difference_update(stored.partitions.get(topic, ()))
    return {topic: numbers for topic, numbers in missing.items() if numbers}


def join_transaction(known: TransactionalId, event: AddPartitions, until_ms: int, step: TransactionStep) -> None:
    """Take partitions into the open transaction, or begin one with them. Clients of level 2 wait for a completion."""
    stored = known.stored
    if stored.state.prepared:
        if event.level >= 2:
            await_completion(known, event, until_ms, step)
            return
        raise not_yet_complete(stored)
    check_producer(known, event.producer_id, event.epoch)
    check_room(stored, len(event.partitions), step)
    missing = missing_partitions(stored, event.partitions)
    known.gone.difference_update(event.partitions)
    if missing:
        take_partitions(known, missing, event.level, step)
    step.reply(event.request_id, AddPartitionsReply())


def check_room(stored: TransactionStored, size: int, step: TransactionStep) -> None:
    """Raises CoordinatorError where a transaction would have more partitions than are possible."""
    if size > step.limits.max_partitions:
        raise CoordinatorError(
            ErrorCode.INVALID_REQUEST,
            f"the transaction of id {stored.transactional_id!r} would have {size} partitions; at most "
            f"{step.limits.max_partitions} are possible: commit more often, or write by several producers",
        )


def take_partitions(known: TransactionalId, added: Mapping[str, set[int]], level: int, step: TransactionStep) -> None:
    stored = known.stored
    begins = stored.state is not ONGOING
    check_room(stored, sum(map(len, added.values())) + (0 if begins else stored.size), step)
    started_ms = step.now_ms if begins else stored.started_ms
    step.move(
        known,
        ONGOING,
        join_partitions({} if begins else stored.partitions, added),
        (stored.producer_id, stored.epoch),
        started_ms,
        level if begins else max(level, stored.client_level),
        next_producer_id=stored.next_producer_id,
    )
    if begins:
        known.still_ms = step.state.still_ms
        known.gone.clear()
        step.arm(("timeout", stored.transactional_id), started_ms + stored.timeout_ms)


def take_orphan(event: OrphanFound, step: TransactionStep) -> None:
    """An open transaction of a log: it belongs to the id's present or next transaction, or hangs for ever (TX-C14).

    A shard that is not waiting for its orphans has lost no record: what is not in its transaction has ended meanwhile.
    """
    transactional_id = step.state.by_producer.get(event.producer_id)
    if transactional_id is None:
        step.reply(event.request_id, OrphanReply())
        return
    known = step.state.ids[transactional_id]
    stored = known.stored
    if stored.state.prepared and is_of_next(stored, event.producer_id, event.epoch):
        known.next_places[event.partition] = None
        skip_marker(known, event.partition, step)
    elif stored.state.prepared and is_of_decided(stored, event.epoch):
        join_markers(known, event.partition, step)
    elif not stored.state.prepared and event.epoch == stored.epoch:
        if step.state.searching:
            join_unrecorded(known, (event.partition,), step)
    else:
        marker_epoch = max(stored.epoch, min(event.epoch + 1, LAST_EPOCH))
        hanging = OrphanReply(
            verdict=OrphanVerdict.HANGING, marker_epoch=marker_epoch, transactional_id=transactional_id
        )
        step.reply(event.request_id, hanging)
        return
    step.reply(event.request_id, OrphanReply(verdict=OrphanVerdict.TAKEN))


def is_of_next(stored: TransactionStored, producer_id: int, epoch: int) -> bool:
    """Whether this writes the transaction after the decided one: the answer to its end has given that epoch already."""
    return stored.client_level >= 2 and (producer_id, epoch) == next_producer(stored)


def is_of_decided(stored: TransactionStored, epoch: int) -> bool:
    """Whether the decided transaction was written by that epoch. A raised epoch is carried by the markers only."""
    if stored.state is TransactionState.PREPARE_ABORT:
        return epoch <= stored.epoch
    return epoch == (stored.epoch - 1 if stored.client_level >= 2 else stored.epoch)


def join_unrecorded(known: TransactionalId, places: tuple[TopicPartition, ...], step: TransactionStep) -> None:
    """Data is in these partitions, and the record that would say so was lost: they join the present transaction."""
    missing = missing_partitions(known.stored, places)
    if missing:
        take_partitions(known, missing, known.stored.client_level if known.stored.state is ONGOING else 2, step)


def join_next_places(known: TransactionalId, step: TransactionStep) -> None:
    """The transaction is complete, and the next one has begun in these partitions."""
    if known.next_places:
        places = tuple(known.next_places)
        known.next_places.clear()
        join_unrecorded(known, places, step)


def decide_again(waiting: WaitingRequest, known: TransactionalId, step: TransactionStep) -> None:
    """Decide a request again that has waited for a completion."""
    if isinstance(waiting.request, AddPartitions):
        join_transaction(known, waiting.request, waiting.until_ms, step)
    else:
        give_epoch(known, waiting.request, waiting.until_ms, step)
