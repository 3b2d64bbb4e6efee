"""How a transaction ends: what an EndTxn means in each state, the decision, its markers, and the completion.

The decision is a Prepare record. Markers leave once it is durable; the Complete record follows once every marker is.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.transactions.effects import (
    NOT_KNOWN,
    AbortNoted,
    EndCause,
    EndDecision,
    EndTxnReply,
    MarkerTrouble,
    SendMarkers,
    TransactionEnd,
)
from muster.coordinator.transactions.events import EndTxn, MarkersWritten, RequestOrigin, TopicsDeleted
from muster.coordinator.transactions.records import (
    COMPLETES,
    LAST_CLIENT_EPOCH,
    LAST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    TopicPartition,
    TransactionState,
    TransactionStored,
)
from muster.coordinator.transactions.state import (
    MarkerRound,
    TransactionalId,
    TransactionStep,
    check_producer,
    find_id,
    not_yet_complete,
    remember_end,
    wrong_epoch,
    wrong_producer,
)

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
COMMITTED, ABORTED = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT


# What an EndTxn means
# --------------------


class EndMeaning(Enum):
    """What an EndTxn leads to: a decision, the answer of before, or a refusal."""

    DECIDE = "the open transaction is decided"
    DECIDE_EMPTY = "an abort without a transaction: it is decided, and complete, at once"
    REPEATED = "it has been done: the answer again"
    FENCED = "refused with PRODUCER_FENCED"
    NOT_OPEN = "refused with INVALID_TXN_STATE"


MEANING_BY_EPOCH: Final[Mapping[tuple[TransactionState, bool], tuple[EndMeaning, EndMeaning]]] = {
    (EMPTY, False): (EndMeaning.FENCED, EndMeaning.DECIDE_EMPTY),
    (EMPTY, True): (EndMeaning.FENCED, EndMeaning.NOT_OPEN),
    (ABORTED, False): (EndMeaning.REPEATED, EndMeaning.DECIDE_EMPTY),
    (ABORTED, True): (EndMeaning.NOT_OPEN, EndMeaning.NOT_OPEN),
    (COMMITTED, False): (EndMeaning.NOT_OPEN, EndMeaning.DECIDE_EMPTY),
    (COMMITTED, True): (EndMeaning.REPEATED, EndMeaning.NOT_OPEN),
    (ONGOING, False): (EndMeaning.FENCED, EndMeaning.DECIDE),
    (ONGOING, True): (EndMeaning.FENCED, EndMeaning.DECIDE),
}
"""Level 2: (state, commit) -> what it means with the epoch before the current one, and with the current one (TX-C7)."""

MEANING_BY_STATE: Final[Mapping[tuple[TransactionState, bool], EndMeaning]] = {
    (EMPTY, False): EndMeaning.NOT_OPEN,
    (EMPTY, True): EndMeaning.NOT_OPEN,
    (ABORTED, False): EndMeaning.REPEATED,
    (ABORTED, True): EndMeaning.NOT_OPEN,
    (COMMITTED, False): EndMeaning.NOT_OPEN,
    (COMMITTED, True): EndMeaning.REPEATED,
    (ONGOING, False): EndMeaning.DECIDE,
    (ONGOING, True): EndMeaning.DECIDE,
}
"""Level 0: (state, commit) -> what it means. Its epoch is the current one in any case."""


def end_transaction(event: EndTxn, step: TransactionStep) -> None:
    known = find_id(event.transactional_id, step.state)
    meaning = meaning_of_raised(event, known) if event.level >= 2 else meaning_of_plain(event, known)
    if meaning is EndMeaning.FENCED:
        raise wrong_epoch(known.stored, event.epoch)
    if meaning is EndMeaning.NOT_OPEN:
        raise CoordinatorError(
            ErrorCode.INVALID_TXN_STATE,
            f"transactional id {event.transactional_id!r} is in {known.stored.state.title}: there is no transaction to "
            f"{'commit' if event.commit else 'abort'}",
        )
    if meaning is not EndMeaning.REPEATED:
        known.newest, known.fencing = event.client, False
        note_decision(known, EndCause.CLIENT, event.client, step)
        epoch = known.stored.epoch
        if event.level >= 2:
            known.last_epoch = epoch
            epoch = min(epoch + 1, LAST_EPOCH)
        decide_end(known, event.commit, epoch, event.level, event.fresh_id, step)
    step.reply(event.request_id, EndTxnReply(ErrorCode.NONE, "", *next_producer(known.stored)))


def next_producer(stored: TransactionStored) -> tuple[int, int]:
    """The producer id and epoch by which the next transaction is written."""
    if stored.next_producer_id != NO_PRODUCER_ID:
        return stored.next_producer_id, 0
    return stored.producer_id, stored.epoch


def meaning_of_raised(event: EndTxn, known: TransactionalId) -> EndMeaning:
    """Level 2: each end raises the epoch, so a repeated request is told by it."""
    stored = known.stored
    if stored.state.prepared:
        raise not_yet_complete(stored)
    if event.producer_id == stored.producer_id and event.epoch in (stored.epoch, stored.epoch - 1):
        current = event.epoch == stored.epoch
    elif event.producer_id == stored.producer_id:
        return EndMeaning.FENCED
    elif is_rotated(stored, event.producer_id, event.epoch):
        current = False
    else:
        raise wrong_producer(stored, event.producer_id)
    if known.fencing and not current:
        return EndMeaning.FENCED
    return MEANING_BY_EPOCH[stored.state, event.commit][current]


def is_rotated(stored: TransactionStored, producer_id: int, epoch: int) -> bool:
    """Whether the current producer id has just taken the place of this one, whose epochs are used up."""
    return producer_id == stored.previous_producer_id and epoch >= LAST_CLIENT_EPOCH and stored.epoch == 0


def meaning_of_plain(event: EndTxn, known: TransactionalId) -> EndMeaning:
    """Level 0: the epoch stays, so a repeated request is told by the state alone."""
    check_producer(known, event.producer_id, event.epoch)
    if known.stored.state.prepared:
        raise not_yet_complete(known.stored)
    return MEANING_BY_STATE[known.stored.state, event.commit]


# The decision
# ------------


def note_decision(known: TransactionalId, cause: EndCause, by: RequestOrigin, step: TransactionStep) -> None:
    """Why the transaction is about to be decided."""
    still_ms = step.state.still_ms - known.still_ms if known.stored.state is ONGOING else 0
    known.decision = EndDecision(cause, by, known.newest, known.stored.epoch, still_ms)


def decide_end(
    known: TransactionalId, commit: bool, epoch: int, level: int, fresh_id: int, step: TransactionStep
) -> None:
    """Keep the Prepare. `epoch` is what the markers carry; at the last one `fresh_id` replaces the producer id."""
    stored = known.stored
    exhausted = epoch >= LAST_EPOCH
    if exhausted and fresh_id == NO_PRODUCER_ID:
        raise ValueError(
            f"transactional id {stored.transactional_id!r} needs a fresh producer id; the event brings none"
        )
    left = [place for place in stored.places if place not in known.gone]
    step.move(
        known,
        TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
        stored.partitions if not known.gone else keep_places(stored.partitions, known.gone),
        (stored.producer_id, epoch),
        stored.started_ms if stored.state is ONGOING else step.now_ms,
        level,
        next_producer_id=fresh_id if exhausted else NO_PRODUCER_ID,
    )
    known.gone.clear()
    known.wants_id = False
    step.disarm(("timeout", stored.transactional_id))
    begin_markers(known, left, step)


def keep_places(partitions: Mapping[str, tuple[int, ...]], gone: set[TopicPartition]) -> dict[str, tuple[int, ...]]:
    left = {
        topic: tuple(number for number in numbers if (topic, number) not in gone)
        for topic, numbers in partitions.items()
    }
    return {topic: numbers for topic, numbers in left.items() if numbers}


def abort_by_coordinator(
    known: TransactionalId, cause: EndCause, by: RequestOrigin, fresh_id: int, step: TransactionStep
) -> None:
    """Abort the open transaction with a raised epoch, whatever the level: nothing late gets in any more (TX-C9).

    Of an abort that fences, no client ever gets the raised epoch. After any other one, the producer may ask for it.
    """
    stored = known.stored
    note_decision(known, cause, by, step)
    decision = known.decision
    known.fencing = cause in (EndCause.FENCED, EndCause.OPERATOR)
    known.last_epoch = NO_EPOCH if known.fencing else stored.epoch
    open_ms, places = step.now_ms - step.past(stored.started_ms), tuple(stored.places)
    decide_end(known, False, min(stored.epoch + 1, LAST_EPOCH), step.limits.level, fresh_id, step)
    if cause is not EndCause.BUMPED:
        step.out.notices.append(
            AbortNoted(
                stored.transactional_id,
                stored.producer_id,
                decision,
                stored.started_ms,
                open_ms,
                stored.timeout_ms,
                places,
                step.now_ms,
            )
        )


# Markers
# -------

DONE: Final = frozenset({0, 35, 43})
"""NONE; UNSUPPORTED_VERSION and UNSUPPORTED_FOR_MESSAGE_FORMAT: the log is of a Kafka that keeps no transactions."""
NO_SUCH_PARTITION: Final = 3
RETRIED: Final = frozenset({NO_SUCH_PARTITION, 6, 7, 13, 14, 15, 16, 19, 20, 56})
"""The partition is elsewhere, or cannot be written just now: again, without a word."""
HIGHER_EPOCH: Final = 47
OTHER_COORDINATOR: Final = 52

FIRST_PAUSE_MS: Final = 100
LONGEST_PAUSE_MS: Final = 1_000


def begin_markers(known: TransactionalId, places: Iterable[TopicPartition], step: TransactionStep) -> None:
    """Send a marker to each of these partitions; without any the transaction is complete.

    While orphans are told nothing is sent: some of them may show that a marker is there, or that one more is wanted.
    """
    step.state.rounds += 1
    known.markers = MarkerRound(step.state.rounds, dict.fromkeys(places))
    if not known.markers.waiting:
        complete_end(known, step)
    elif not step.state.searching:
        send_markers(known, tuple(known.markers.waiting), step)


def send_recovered_markers(step: TransactionStep) -> None:
    """Every orphan has been told: send what a load has left to be sent."""
    for known in step.open_ids():
        if known.markers is not None:
            send_markers(known, tuple(known.markers.waiting), step)


def send_markers(known: TransactionalId, places: tuple[TopicPartition, ...], step: TransactionStep) -> None:
    stored, markers, topic_ids = known.stored, known.markers, step.state.topic_ids
    assert markers is not None, f"transactional id {stored.transactional_id!r} has no markers under way"
    step.out.notices.append(
        SendMarkers(
            stored.transactional_id,
            step.state.life,
            markers.number,
            stored.producer_id,
            stored.epoch,
            stored.state is TransactionState.PREPARE_COMMIT,
            step.state.coordinator_epoch,
            stored.client_level,
            places,
            {topic: topic_ids[topic] for topic in stored.partitions if topic in topic_ids},
        )
    )


def take_markers(event: MarkersWritten, step: TransactionStep) -> None:
    """Count the markers that are durable; those of an earlier life or transaction of the id mean nothing."""
    known = step.state.ids.get(event.transactional_id)
    markers = None if known is None else known.markers
    if known is None or markers is None or (event.life, event.number) != (step.state.life, markers.number):
        return
    slow = False
    for place, error in event.results.items():
        if place not in markers.waiting:
            continue
        if error in DONE or error == HIGHER_EPOCH or (error == NO_SUCH_PARTITION and place in event.gone):
            del markers.waiting[place]
            markers.again.pop(place, None)
        else:
            markers.again[place] = None
            slow = slow or error not in RETRIED
        if error not in DONE and error not in RETRIED:
            step.out.notices.append(MarkerTrouble(event.transactional_id, place, error, trouble_text(error)))
    after_markers(known, markers, step)
    if markers.again:
        pause_ms = LONGEST_PAUSE_MS if slow else min(FIRST_PAUSE_MS << min(markers.failures, 8), LONGEST_PAUSE_MS)
        markers.failures += 1
        step.arm(("markers", event.transactional_id), step.now_ms + pause_ms)


def trouble_text(error: int) -> str:
    if error == HIGHER_EPOCH:
        return "a marker of a higher epoch has ended the transaction there; only a marker written by hand does that"
    if error == OTHER_COORDINATOR:
        return "a newer coordinator has written there; the marker is sent again as long as this one is in charge"
    return f"error {error}; the marker is sent again in {LONGEST_PAUSE_MS} ms"


def skip_marker(known: TransactionalId, place: TopicPartition, step: TransactionStep) -> None:
    """The marker is known to be in that log, for there is something behind it."""
    if known.markers is not None and place in known.markers.waiting:
        del known.markers.waiting[place]
        known.markers.again.pop(place, None)
        after_markers(known, known.markers, step)


def after_markers(known: TransactionalId, markers: MarkerRound, step: TransactionStep) -> None:
    if not markers.waiting:
        step.disarm(("markers", known.stored.transactional_id))
        complete_end(known, step)


def repeat_markers(known: TransactionalId, step: TransactionStep) -> None:
    """The pause after a failure is over."""
    markers = known.markers
    if markers is not None and markers.again:
        again = tuple(markers.again)
        markers.again.clear()
        send_markers(known, again, step)


def join_markers(known: TransactionalId, place: TopicPartition, step: TransactionStep) -> None:
    """A partition that the decided transaction does not name gets its marker too."""
    if known.markers is not None and place not in known.markers.waiting:
        known.markers.waiting[place] = None
        if not step.state.searching:
            send_markers(known, (place,), step)


def forget_topics(event: TopicsDeleted, step: TransactionStep) -> None:
    """Nothing can be written to a deleted topic: its markers count as written, now or when the transaction ends.

    Where it is there again under its name, records that nobody was asked about may be in it, and need a marker.
    """
    step.state.topic_ids = event.ids
    for known in step.open_ids():
        partitions = known.stored.partitions
        places = [(topic, number) for topic in partitions.keys() & event.topics for number in partitions[topic]]
        if known.stored.state is ONGOING:
            known.gone = {place for place in known.gone.union(places) if place[0] not in event.present}
        else:
            for place in sorted(places):
                skip_marker(known, place, step)


# The completion
# --------------


def complete_end(known: TransactionalId, step: TransactionStep) -> None:
    """Keep the Complete: every marker is durable. Whoever waited for it is decided at the end of the step."""
    stored, decision = known.stored, known.decision
    step.move(known, COMPLETES[stored.state], {}, next_producer(stored), stored.started_ms, stored.client_level)
    known.markers, known.decision = None, NOT_KNOWN
    end = TransactionEnd(
        stored.producer_id,
        stored.epoch,
        stored.state is TransactionState.PREPARE_COMMIT,
        decision,
        stored.started_ms,
        stored.updated_ms,
        step.now_ms,
        stored.timeout_ms,
        stored.size,
    )
    remember_end(step.state, known, end)
    step.out.notices.append(end)
    step.completed.append(known)
