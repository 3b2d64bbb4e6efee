"""What is known of how the transactions of an id ended: from the coordinator, from `__aborts`, and from the logs.

The coordinator knows the ends of this life of its shard. An end whose decision was made in an earlier life is told
apart by its time and producer id: an entry of `__aborts` with both says why. How long a transaction held readers back
is asked of this node's logs alone (TX-E3, TX-E4). `TransactionTally` counts ends for metrics; the states of ids are
counted by the shards with each fact, so a scrape looks at no id (TX-E5).
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.kafka.handlers.transactions import TransactionService
from muster.coordinator.observability.views.transactions import (
    NEW_EPOCH,
    ORPHAN,
    PRODUCER,
    UNKNOWN,
    CurrentTransaction,
    ExplainedEnd,
    HeldOffset,
    IdHistory,
    explain_id,
)
from muster.coordinator.runtime.abort_records import AbortEntry
from muster.coordinator.server.transactions.abort_journal import AbortJournal
from muster.coordinator.server.transactions.stable_offset_watch import StableOffsetWatch
from muster.coordinator.transactions.effects import (
    AddPartitionsReply,
    DescribeTransactionReply,
    EndCause,
    EndDecision,
    TransactionEnd,
)
from muster.coordinator.transactions.events import AddPartitions, DescribeTransaction
from muster.coordinator.transactions.records import NO_EPOCH, NO_TIME, TopicPartition, TransactionState
from muster.coordinator.transactions.state import REMEMBERED_ENDS
from muster.storage.broker.broker import Broker
from muster.storage.errors import StorageError
from muster.storage.logs.transactions import StableHold

if TYPE_CHECKING:
    from muster.coordinator.observability.metrics.instruments import Timing, TransactionFigures

HOLDS_TOLD: Final = 100
"""Of one transaction, the longest ones."""
PLACES_LOOKED_AT: Final = 1_000
"""Partitions of an open transaction whose logs are asked."""

CAUSES: Final = {EndCause.CLIENT: PRODUCER, EndCause.BUMPED: NEW_EPOCH, EndCause.UNKNOWN: UNKNOWN}
"""Those that are told otherwise than the coordinator calls them."""
COMPLETE: Final = {
    TransactionState.COMPLETE_COMMIT.title: True,
    TransactionState.COMPLETE_ABORT.title: False,
}
PREPARED: Final = {TransactionState.PREPARE_COMMIT.title: True, TransactionState.PREPARE_ABORT.title: False}
NO_REPLY: Final = DescribeTransactionReply()


class TransactionHistory:
    """Of the ids that a node coordinates."""

    def __init__(
        self,
        service: TransactionService,
        aborts: AbortJournal,
        broker: Broker,
        clock_ms: Callable[[], int],
    ) -> None:
        self._service = service
        self._aborts = aborts
        self._broker = broker
        self._clock_ms = clock_ms

    async def read(self, transactional_id: str) -> tuple[DescribeTransactionReply | None, IdHistory, list[str]]:
        """The coordinator's answer, if it knows the id, what is known besides, and all of it in sentences.

        Raises CoordinatorError; of an id that nothing is known of, TRANSACTIONAL_ID_NOT_FOUND.
        """
        reply = await self._service.ask(
            transactional_id, lambda number: DescribeTransaction(number, transactional_id), DescribeTransactionReply
        )
        if reply.code not in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
            raise CoordinatorError(reply.code, reply.message)
        entries = await self._aborts.latest_of(transactional_id, REMEMBERED_ENDS)
        if reply.code and not entries:
            raise CoordinatorError(reply.code, reply.message)
        state = NO_REPLY if reply.code else reply
        known = IdHistory(
            transactional_id,
            self._clock_ms(),
            state.known_since_ms,
            await self._current(state, entries),
            await self._with_holds(merge_ends(state, entries, self._exists)),
            self._aborts.unread,
        )
        return None if reply.code else reply, known, explain_id(known)

    def _exists(self, place: str) -> bool:
        topic, _, number = place.rpartition("-")
        found = self._broker.topics().get(topic)
        return found is not None and number.isdecimal() and int(number) < found.partitions

    async def _current(
        self, reply: DescribeTransactionReply, entries: Sequence[AbortEntry]
    ) -> CurrentTransaction | None:
        if reply.state in PREPARED:
            end = end_under_way(reply, entries)
        elif reply.state == TransactionState.ONGOING.title:
            end = None
        else:
            return None
        holds, behind_others = await asyncio.to_thread(self._holds_now, reply)
        return CurrentTransaction(
            reply.started_ms,
            reply.timeout_ms,
            sum(map(len, reply.partitions.values())),
            reply.client,
            tuple(sorted(holds, key=lambda hold: -hold.behind)),
            behind_others,
            end,
            tuple(f"{topic}-{number}" for topic, number in reply.unmarked),
            reply.unmarked_count,
        )

    def _holds_now(self, reply: DescribeTransactionReply) -> tuple[list[HeldOffset], int]:
        """What it holds back now, and in how many of its partitions an older transaction does. In a thread."""
        holds, behind_others, now_ms = list[HeldOffset](), 0, self._clock_ms()
        for place in islice(places_of(reply), PLACES_LOOKED_AT):
            try:
                log = self._broker.log(*place)
            except StorageError:
                continue  # another node leads it, or it is gone
            hold = log.current_hold()
            if hold is None:
                continue
            if hold.producer_id != reply.producer_id:
                behind_others += any(each.producer_id == reply.producer_id for each in log.open_transactions())
                continue
            held_ms = now_ms - hold.since_ms if hold.since_ms >= 0 else NO_TIME
            behind = log.high_watermark - log.last_stable_offset
            holds.append(HeldOffset(*place, hold.first_offset, held_ms, hold.exactly, hold.records, behind))
        return holds, behind_others

    async def _with_holds(self, ends: Sequence[ExplainedEnd]) -> list[ExplainedEnd]:
        numbers = {end.producer_id for end in ends if end.completed_ms >= 0}
        found = {number: await asyncio.to_thread(self._broker.holds.of_producer, number) for number in numbers}
        return [add_holds(end, found.get(end.producer_id, ())) for end in ends]


def places_of(reply: DescribeTransactionReply) -> Iterable[TopicPartition]:
    return ((topic, number) for topic, numbers in reply.partitions.items() for number in numbers)


# Ends
# ----


def merge_ends(
    reply: DescribeTransactionReply, entries: Sequence[AbortEntry], exists: Callable[[str], bool]
) -> list[ExplainedEnd]:
    """The last ends, newest first: those that the coordinator remembers, then those that only `__aborts` has.

    Of an id whose shard was loaded since, its record says how the last one ended, and no more.
    """
    left = {(entry.producer_id, entry.at_ms): entry for entry in reversed(entries)}
    if reply.state in PREPARED:
        left.pop((reply.producer_id, reply.updated_ms), None)
    told = [explain_end(end, left.pop((end.producer_id, end.decided_ms), None)) for end in reply.ends]
    earlier = sorted(left.values(), key=lambda entry: -entry.at_ms)
    if not told and reply.state in COMPLETE:
        told.append(explain_stored(reply, earlier))
        earlier = [entry for entry in earlier if not is_of_stored(entry, reply)]
    told += [explain_entry(entry, exists) for entry in earlier]
    return told[:REMEMBERED_ENDS]


def cause_of(decision: EndDecision) -> str:
    return CAUSES.get(decision.cause, decision.cause.value)


def explain_end(end: TransactionEnd, entry: AbortEntry | None) -> ExplainedEnd:
    """One that the coordinator remembers. entry: of the same one, which knows why where it was decided earlier."""
    decision = end.decision
    known = decision.cause is not EndCause.UNKNOWN or entry is None
    return ExplainedEnd(
        end.producer_id,
        decision.epoch if known or entry is None else entry.epoch,
        end.committed,
        cause_of(decision) if known or entry is None else entry.cause,
        end.decided_ms,
        end.completed_ms,
        decision.by if known or entry is None else entry.by,
        decision.of if known or entry is None else entry.of,
        end.started_ms,
        end.timeout_ms,
        decision.stood_still_ms if known or entry is None else entry.stood_still_ms,
        end.partitions,
    )


def end_under_way(reply: DescribeTransactionReply, entries: Sequence[AbortEntry]) -> ExplainedEnd:
    """One that is decided and not complete."""
    end = TransactionEnd(
        reply.producer_id,
        reply.epoch,
        PREPARED[reply.state],
        reply.decision or EndDecision(),
        reply.started_ms,
        reply.updated_ms,
        NO_TIME,
        reply.timeout_ms,
        sum(map(len, reply.partitions.values())),
    )
    same = (entry for entry in entries if (entry.producer_id, entry.at_ms) == (end.producer_id, end.decided_ms))
    return explain_end(end, next(same, None))


def is_of_stored(entry: AbortEntry, reply: DescribeTransactionReply) -> bool:
    """Whether the entry is of the transaction whose completion the id's record tells: it has the same beginning."""
    return not COMPLETE[reply.state] and entry.started_ms == reply.started_ms and entry.started_ms >= 0


def explain_stored(reply: DescribeTransactionReply, entries: Sequence[AbortEntry]) -> ExplainedEnd:
    """What the record of a Complete says of the transaction that it completed, in an earlier life of the shard."""
    for entry in entries:
        if is_of_stored(entry, reply):
            return explain_entry(entry, lambda place: False, completed_ms=reply.updated_ms)
    return ExplainedEnd(
        reply.producer_id,
        NO_EPOCH,
        COMPLETE[reply.state],
        UNKNOWN,
        NO_TIME,
        reply.updated_ms,
        started_ms=reply.started_ms,
        timeout_ms=reply.timeout_ms,
    )


def explain_entry(entry: AbortEntry, exists: Callable[[str], bool], completed_ms: int = NO_TIME) -> ExplainedEnd:
    """One that only `__aborts` knows."""
    place = next(iter(entry.partitions), "")
    return ExplainedEnd(
        entry.producer_id,
        entry.epoch,
        False,
        entry.cause,
        entry.at_ms,
        completed_ms,
        entry.by,
        entry.of,
        entry.started_ms,
        entry.timeout_ms,
        entry.stood_still_ms,
        entry.partition_count,
        place if entry.cause == ORPHAN and exists(place) else "",
    )


def add_holds(end: ExplainedEnd, found: Iterable[tuple[TopicPartition, StableHold]]) -> ExplainedEnd:
    """With the holds of its producer that ended between its decision and its completion: its markers ended them."""
    mine = [
        HeldOffset(*place, hold.first_offset, hold.held_ms, hold.exactly, hold.records)
        for place, hold in found
        if 0 <= end.decided_ms <= hold.until_ms <= end.completed_ms
        and (end.epoch == NO_EPOCH or hold.epoch == end.epoch)
    ]
    mine.sort(key=lambda hold: (-hold.held_ms, hold.topic, hold.partition))
    return replace(end, holds=tuple(mine[:HOLDS_TOLD])) if mine else end


# Counts
# ------

TOLD_STATES: Final = tuple(state for state in TransactionState if state <= TransactionState.COMPLETE_ABORT)
"""Those that are ever written."""


class TransactionTally:
    """Of one node, since it was started. with_partitions: whether series of single partitions are wanted."""

    def __init__(self, *, with_partitions: bool) -> None:
        self._with_partitions = with_partitions
        self._ends: Counter[tuple[str, str]] = Counter()
        self._seconds: Timing | None = None
        """From the first end on: a node without transactions needs no instruments."""
        self._verification_failures = 0

    def note_end(self, end: TransactionEnd) -> None:
        """A transaction is complete."""
        self._ends["committed" if end.committed else "aborted", cause_of(end.decision)] += 1
        if 0 <= end.started_ms <= end.completed_ms:
            self._timed().took((end.completed_ms - end.started_ms) / 1_000)

    def _timed(self) -> "Timing":
        if self._seconds is None:
            from muster.coordinator.observability.metrics.instruments import LONG_BOUNDS, Timing

            self._seconds = Timing(LONG_BOUNDS)
        return self._seconds

    def note_orphan(self) -> None:
        """An open transaction of a log was aborted that no coordinator would have ended."""
        self._ends["aborted", ORPHAN] += 1

    def note_verification(self, asked: AddPartitions, reply: AddPartitionsReply) -> None:
        """Count the partitions that are not in the transaction, of a question whether they are."""
        if asked.verify_only and (reply.code or any(reply.partitions.values())):
            refused = (reply.partitions.get(place, reply.code) for place in asked.partitions)
            self._verification_failures += sum(map(bool, refused))

    def figures(
        self,
        shards: Iterable[Mapping[TransactionState, int]],
        watch: StableOffsetWatch,
        aborts: AbortJournal,
        without_leader: int,
    ) -> "TransactionFigures":
        """shards: how many ids of each are in each state. without_leader: see `MarkerWriting`."""
        states: Counter[str] = Counter({state.title: 0 for state in TOLD_STATES})
        for counts in shards:
            for state, count in counts.items():
                states[state.title] += count
        from muster.coordinator.observability.metrics.instruments import TransactionFigures

        return TransactionFigures(
            states,
            self._ends,
            self._timed(),
            watch.lags() if self._with_partitions else {},
            len(watch.late),
            without_leader,
            self._verification_failures,
            aborts.lost,
        )
