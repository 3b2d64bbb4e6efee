"""Many callers, one write and one fsync: what arrives in a turn of the loop is appended and flushed together."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, TypeAlias

from muster.storage.broker.record_log import AppendableLog
from muster.storage.config import TopicSettings
from muster.storage.errors import StorageError
from muster.storage.files import Buffer
from muster.storage.logs.append_fast_path import NO_GUARDS, framings
from muster.storage.logs.log import Log
from muster.storage.logs.producer_state import MarkerToWrite
from muster.storage.logs.transactions import TransactionGuard
from muster.storage.records.validation import needs_thread
from muster.storage.types import Appended, TopicPartition

Promise: TypeAlias = "tuple[asyncio.Future[Any], Any]"
"""Who waits, and what to answer once all before it is durable."""

Waiting: TypeAlias = dict[TopicPartition, list[Promise]]

LOOKERS = 2
"""Threads that look into batches which the loop has no time for."""

TOGETHER = 32
"""Appends of a partition in one write, between two looks at whether the loop has done enough of them."""

WALKED_PER_TURN = 8192
"""Records that the loop looks at one by one in a turn, about; the rest is for threads."""


PARTITIONS_PER_TURN = 100
"""Partitions that a turn of the loop appends to: each is a write to a file of its own, of 20 to 30 us."""


@dataclass(eq=False, slots=True)
class PendingAppend:
    """Batches to be appended, and who waits for that."""

    batches: Buffer
    done: "asyncio.Future[Appended]"
    durable: bool
    guard: TransactionGuard | None = None
    looked_by: TopicSettings | None = None
    """The settings by which a thread has looked into them: a log made anew, or set otherwise, has others."""


Arrived: TypeAlias = "list[PendingAppend]"


def append_each(
    to: AppendableLog,
    topic: str,
    partition: int,
    arrived: Sequence[Buffer],
    now_ms: int,
    *,
    looked: bool = False,
    at_once: bool = False,
    guards: Mapping[int, TransactionGuard] | None = None,
) -> list[Appended | StorageError]:
    """Append the batches of several callers, in their order. A refusal of one does not affect the others.

    The result is that of `append` called for each, in fewer writes. With `at_once` it ends before batches that take
    time to look into (see `needs_thread`). `guards` are those of first batches of transactions, by their place.
    """
    done: list[Appended | StorageError] = []
    while len(done) < len(arrived):
        try:
            log = to.log(topic, partition)
            to.check_writable(topic)
            left = {place - len(done): guard for place, guard in guards.items()} if guards else NO_GUARDS
            done += log.append_each(arrived[len(done) :], now_ms, looked, left)
            if len(done) < len(arrived):
                if at_once and needs_thread(arrived[len(done)], log.settings):
                    break
                guard = guards.get(len(done)) if guards else None
                done.append(log.append(arrived[len(done)], now_ms, guard=guard, looked=looked))
        except StorageError as error:
            done.append(error)
    return done


class GroupCommit:
    """Appends at the end of the turn and flushes off the event loop.

    One round of flushes runs at a time, and serves all who waited for it when it began. Futures may be cancelled by
    whoever loses interest; what was to be appended still is.
    """

    def __init__(self, broker: AppendableLog, clock_ms: Callable[[], int], *, workers: int = 4) -> None:
        self._broker = broker
        self._clock_ms = clock_ms
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="fsync")
        self._workers = workers
        self._lookers = ThreadPoolExecutor(max_workers=LOOKERS, thread_name_prefix="look")
        self._arrived: dict[TopicPartition, Arrived] = {}
        # Behind the first batch of a partition that a thread looks into all others wait: their order counts.
        self._held: dict[TopicPartition, Arrived] = {}
        self._waiting: Waiting = {}
        # Shares of the round under way that are not back yet.
        self._under_way = 0
        self._turn_due = False
        self._quiet: asyncio.Future[None] | None = None

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The one it lives on, from the first call on. To ask each time costs a system call before Python 3.12."""
        return asyncio.get_running_loop()

    def append(
        self,
        partition: TopicPartition,
        batches: Buffer,
        *,
        durable: bool = True,
        guard: TransactionGuard | None = None,
    ) -> "asyncio.Future[Appended]":
        """Append whole batches, in the order of the calls (see `Broker.append`).

        Done once they are as durable as the topic's settings promise, or, not `durable`, once they are in the log.
        Fails with the StorageError of the append or of the flush.
        """
        loop = self.loop
        done: asyncio.Future[Appended] = loop.create_future()
        others = self._arrived.get(partition)
        if others is None:
            self._arrived[partition] = [PendingAppend(batches, done, durable, guard)]
        else:
            others.append(PendingAppend(batches, done, durable, guard))
        if not self._turn_due:
            self._turn_soon(loop)
        return done

    def append_marker(self, partition: TopicPartition, marker: MarkerToWrite) -> "asyncio.Future[None]":
        """End what a producer has open in this partition (see `Log.append_marker`). Done once that is durable.

        Raises StorageError where nothing was written; see `flushed` for what may fail after that.
        """
        self._broker.append_marker(*partition, marker, self._clock_ms())
        return self.flushed(partition)

    def flushed(self, partition: TopicPartition) -> "asyncio.Future[None]":
        """Done once all appended to the partition before this call is as durable as its settings promise.

        Fails with the StorageError of the flush, or UnknownTopicOrPartition when the topic went meanwhile.
        """
        loop = self.loop
        done: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(partition, []).append((done, None))
        if not self._turn_due:
            self._turn_soon(loop)
        return done

    def _turn_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        # Whoever is ready to run now comes first, and can join.
        self._turn_due = True
        loop.call_soon(self._turn, loop)

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self._turn_due = False
        self._append_arrived()
        if self._arrived:
            self._turn_soon(loop)
        if self._waiting and not self._under_way:
            self._begin_round(loop)

    def _append_arrived(self) -> None:
        """Those that have waited longest, as many as a turn may; others arrive behind them meanwhile."""
        now_ms = self._clock_ms()
        enough = framings.walked + WALKED_PER_TURN
        for partition in list(islice(self._arrived, PARTITIONS_PER_TURN)):
            lot = self._arrived.pop(partition)
            if partition in self._held:
                self._held[partition] += lot
            else:
                self._append(partition, lot, now_ms, enough)

    def _append(self, partition: TopicPartition, lot: Arrived, now_ms: int, enough: int) -> None:
        """Append up to the first that a thread has to look into; it and those behind are held till then."""
        try:
            log: Log | None = self._broker.log(*partition)
        except StorageError:
            log = None  # The append will say why.
        place = 0
        while place < len(lot):
            ready, looked = _ready(lot, place, log, hurry=framings.walked >= enough)
            done = self._append_ready(partition, ready, now_ms, looked)
            place += done
            if log is not None and (not ready or done < len(ready)):
                self._hold(partition, lot[place:], log, now_ms)
                return

    def _append_ready(self, partition: TopicPartition, lot: Arrived, now_ms: int, looked: bool) -> int:
        """How many of them were appended or refused; the next takes time to look into."""
        results = self._results(partition, lot, now_ms, looked)
        for arrival, result in zip(lot, results, strict=False):
            if not isinstance(result, Appended):
                _settle([(arrival.done, None)], result)
            elif arrival.durable:
                self._waiting.setdefault(partition, []).append((arrival.done, result))
            else:
                _settle([(arrival.done, result)], None)
                # Nobody waits, but only a flush lets it be read.
                self._waiting.setdefault(partition, [])
        return len(results)

    def _results(
        self, partition: TopicPartition, lot: Arrived, now_ms: int, looked: bool
    ) -> Sequence[Appended | Exception]:
        try:
            batches = [arrival.batches for arrival in lot]
            guards = {place: arrival.guard for place, arrival in enumerate(lot) if arrival.guard is not None}
            return append_each(
                self._broker, *partition, batches, now_ms, looked=looked, at_once=not looked, guards=guards
            )
        except Exception as error:
            # A bug: those who wait must hear of it.
            return [error] * len(lot)

    # -- looking into batches in a thread -------------------------------------------------------------------

    def _hold(self, partition: TopicPartition, lot: Arrived, log: Log, now_ms: int) -> None:
        self._held[partition] = lot
        unseen = [
            arrival
            for arrival in lot
            if arrival.looked_by is not log.settings and needs_thread(arrival.batches, log.settings)
        ]
        unseen = unseen or lot[:TOGETHER]
        self._lookers.submit(self._validate_arrivals, self.loop, partition, unseen, log, now_ms)

    def _validate_arrivals(
        self, loop: asyncio.AbstractEventLoop, partition: TopicPartition, unseen: Arrived, log: Log, now_ms: int
    ) -> None:
        """In a thread."""
        settings = log.settings
        refusals: dict[PendingAppend, Exception] = {}
        for arrival in unseen:
            try:
                log.look_into(arrival.batches, now_ms)
            except Exception as error:
                # Whatever it is, who waits must hear of it.
                refusals[arrival] = error
        loop.call_soon_threadsafe(self._looked, loop, partition, unseen, settings, refusals)

    def _looked(
        self,
        loop: asyncio.AbstractEventLoop,
        partition: TopicPartition,
        seen: Arrived,
        settings: TopicSettings,
        refusals: dict[PendingAppend, Exception],
    ) -> None:
        for arrival in seen:
            arrival.looked_by = settings
        _settle_each(refusals)
        lot = [arrival for arrival in self._held.pop(partition) if arrival not in refusals]
        # In front of what has arrived meanwhile.
        self._arrived[partition] = lot + self._arrived.get(partition, [])
        if not self._turn_due:
            self._turn_soon(loop)
        self._grow_quiet()

    def _begin_round(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting, self._waiting = self._waiting, {}
        due = [partition for partition in waiting if self._must_flush(partition, waiting[partition])]
        self._under_way = min(self._workers, len(due))
        for start in range(self._under_way):
            share = {partition: waiting[partition] for partition in due[start :: self._workers]}
            self._pool.submit(self._flush, loop, share)

    def _must_flush(self, partition: TopicPartition, promises: list[Promise]) -> bool:
        """False once those who wait are answered: their topic promises no flush, or has gone."""
        try:
            if self._broker.log(*partition).waits_for_flush:
                return True
        except StorageError as error:
            _settle(promises, error)
        else:
            _settle(promises, None)
        return False

    def _flush(self, loop: asyncio.AbstractEventLoop, share: Waiting) -> None:
        """In a thread of the pool."""
        outcomes = [(promises, self._outcome(partition)) for partition, promises in share.items()]
        loop.call_soon_threadsafe(self._came_back, loop, outcomes)

    def _outcome(self, partition: TopicPartition) -> Exception | None:
        try:
            self._broker.flush([partition])
        except Exception as error:
            # Whatever it is, those who wait must hear of it.
            return error
        return None

    def _came_back(
        self, loop: asyncio.AbstractEventLoop, outcomes: Iterable[tuple[list[Promise], Exception | None]]
    ) -> None:
        for promises, error in outcomes:
            _settle(promises, error)
        self._under_way -= 1
        if self._under_way:
            return
        if self._waiting and not self._turn_due:
            self._turn_soon(loop)
        self._grow_quiet()

    def _grow_quiet(self) -> None:
        if self._quiet:
            self._quiet.set_result(None)
            self._quiet = None

    async def close(self) -> None:
        """Append what has arrived, finish the rounds under way and let the threads go."""
        while self._turn_due or self._under_way or self._waiting or self._held:
            if self._under_way or self._held:
                self._quiet = self.loop.create_future()
                await self._quiet
            else:
                await asyncio.sleep(0)
        self._pool.shutdown(wait=False)
        self._lookers.shutdown(wait=False)


def _ready(lot: Arrived, place: int, log: Log | None, *, hurry: bool) -> tuple[Arrived, bool]:
    """What of a lot may be appended together from this place on, and whether a thread has looked into it.

    Nothing in a `hurry`, if none has. What takes time to look into the append itself leaves, for it reads the header.
    """
    together = lot[place : place + TOGETHER]
    if log is None or not log.looks:
        return together, False
    seen = [arrival.looked_by is log.settings for arrival in together]
    looked = seen[0]
    if hurry and not looked:
        return [], False
    return (together if seen.count(looked) == len(seen) else together[: seen.index(not looked)]), looked


def _settle_each(refusals: dict[PendingAppend, Exception]) -> None:
    for arrival, error in refusals.items():
        _settle([(arrival.done, None)], error)


def _settle(promises: Iterable[Promise], error: Exception | None) -> None:
    for done, result in promises:
        if done.done():
            continue  # Whoever waited has gone.
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)
