"""Notes in `__aborts` which transactions the coordinator ended by itself, and knows the latest of them.

An entry is written as soon as the decision is durable, so no producer waits for it: what cannot be written waits, is
tried again, and is lost beyond MOST_WAITING. Losses are counted, and a condition tells of them. A node that dies in
between loses the entry, and not the transaction's end.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Final, Protocol

import structlog

from muster.coordinator.edge.background_tasks import RestartedTask
from muster.coordinator.runtime.abort_records import (
    ABORTS_TOPIC,
    RETENTION_MS,
    AbortEntry,
    decode_abort,
    encode_abort,
    split_by_size,
)
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.runtime.ports import Entry
from muster.storage.broker.broker import Broker
from muster.storage.broker.requests import LogRequests, NewTopic
from muster.storage.errors import StorageError
from muster.storage.logs.log import Log
from muster.storage.records.batch import encode_turn, read_batches
from muster.storage.types import AppendOrigin

MOST_WAITING: Final = 1_000
"""Entries that wait to be written."""
MOST_KNOWN: Final = 10_000
"""The latest entries, which are kept in memory: of this node's own, and of those that were read."""
WRITTEN_AT_ONCE: Final = 50
BATCH_BYTES: Final = 512 << 10
READ_BYTES: Final = 1 << 20
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
LOSS_TOLD_MS: Final = 3_600_000
"""How long a condition tells of a loss."""

PLACE: Final = (ABORTS_TOPIC, 0)

UNWRITTEN: Final = "transaction-aborts-unwritten"
LOST: Final = "transaction-aborts-lost"

log = structlog.get_logger("muster.transactions")


class AbortLog(Protocol):
    """Where the entries are kept. Both raise StorageError or OSError."""

    async def write(self, entries: Sequence[AbortEntry]) -> None:
        """Durable on return."""

    async def read_latest(self, transactional_id: str, most: int) -> list[AbortEntry]:
        """Those of this id that are durable, whoever wrote them, newest first; none where there is no log yet."""


class AbortJournal:
    """Belongs to the loop that starts it. `lost`: entries that were given up, since the node started."""

    def __init__(self, kept: AbortLog, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._kept = kept
        self._pause = pause
        self._conditions: Conditions | None = None
        self._waiting: deque[AbortEntry] = deque()
        self._known: deque[AbortEntry] = deque(maxlen=MOST_KNOWN)
        self._work = asyncio.Event()
        self._writes = RestartedTask("entries of __aborts", self._write_all)
        self.lost = 0
        self.unread = ""
        """Why what is durable could not be read the last time; empty: it could."""

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def start(self, conditions: Conditions | None) -> None:
        self._conditions = conditions
        self._writes.start()

    async def stop(self) -> None:
        """Write what waits, if that can be done now."""
        await self._writes.stop()
        try:
            while self._waiting:
                await self._write_some()
        except (StorageError, OSError) as error:
            log.warning("aborts of transactions were not noted", entries=len(self._waiting), why=str(error))

    def note(self, entry: AbortEntry) -> None:
        """Have it written as soon as that can be done."""
        self._known.append(entry)
        if len(self._waiting) >= MOST_WAITING:
            self.lost += 1
            self._tell_loss()
            return
        self._waiting.append(entry)
        self._work.set()

    async def latest_of(self, transactional_id: str, most: int) -> list[AbortEntry]:
        """Those of this id, newest first: what this node ended, and what is in the log, whichever node wrote it."""
        found = [each for each in reversed(self._known) if each.transactional_id == transactional_id]
        try:
            found += await self._kept.read_latest(transactional_id, most)
            self.unread = ""
        except (StorageError, OSError) as error:
            self.unread = str(error)
        # What this node wrote is in both, and an end of the node may have written it twice.
        return sorted(dict.fromkeys(found), key=lambda entry: -entry.at_ms)[:most]

    async def _write_all(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            await self._work.wait()
            try:
                await self._write_some()
            except (StorageError, OSError) as error:
                self._tell_trouble(str(error))
                await self._pause(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                continue
            pause_s = FIRST_PAUSE_S
            if not self._waiting:
                self._work.clear()
                if self._conditions is not None:
                    self._conditions.clear(UNWRITTEN)

    async def _write_some(self) -> None:
        """The entry that is oldest, and some more; they wait until they are durable."""
        some = list(islice(self._waiting, WRITTEN_AT_ONCE))
        await self._kept.write(some)
        for _ in some:
            self._waiting.popleft()

    def _tell_trouble(self, why: str) -> None:
        if self._conditions is not None:
            self._conditions.report(
                UNWRITTEN,
                f"{len(self._waiting)} aborts of transactions wait to be noted in {ABORTS_TOPIC}: {why}. "
                f"Transactions go on. The node tries again; what comes beyond {MOST_WAITING} is not noted, and after a "
                "restart `muster transactions explain` does not know why those ended",
            )

    def _tell_loss(self) -> None:
        if self._conditions is not None:
            self._conditions.report(
                LOST,
                f"{self.lost} aborts of transactions are not noted in {ABORTS_TOPIC}, because {MOST_WAITING} were "
                "waiting to be written. After a restart `muster transactions explain` does not know why those ended",
                lasting_ms=LOSS_TOLD_MS,
            )


def aborts_topic() -> NewTopic:
    configs = {"cleanup.policy": "delete", "retention.ms": str(RETENTION_MS), "segment.bytes": str(16 << 20)}
    return NewTopic(ABORTS_TOPIC, 1, configs, internal=True)


class AbortReader:
    """Reads `__aborts` as it grows, as far as it is committed in this node's log, and keeps the latest entries."""

    def __init__(self, broker: Broker, most: int = MOST_KNOWN) -> None:
        self._broker = broker
        self._found: deque[AbortEntry] = deque(maxlen=most)
        self._offset = -1
        """The next record to read; -1: nothing was read."""
        self._log: Log | None = None
        self._cuts = 0
        self._reading = asyncio.Lock()

    async def read_latest(self, transactional_id: str, most: int) -> list[AbortEntry]:
        """See `AbortLog`; a thread reads. Raises StorageError, OSError."""
        async with self._reading:
            await asyncio.to_thread(self._read_on)
            found = (each for each in reversed(self._found) if each.transactional_id == transactional_id)
            return list(islice(found, most))

    def _read_on(self) -> None:
        log = self._broker.log(*PLACE)
        most = self._found.maxlen
        assert most is not None, "it is bounded"
        end = log.high_watermark
        if log is not self._log or log.cuts.seen != self._cuts:  # what was read may have been cut away
            self._log, self._cuts, self._offset = log, log.cuts.seen, -1
            self._found.clear()
        offset = max(self._offset, log.start_offset, end - most)
        while offset < end:
            batches = list(read_batches(self._broker.fetch(*PLACE, offset, READ_BYTES).records))
            if not batches:
                raise OSError(f"{ABORTS_TOPIC}-0 cannot be read at offset {offset}, but it ends at {end}")
            values = (record.value for batch in batches for record in batch.records() if record.offset >= offset)
            self._found += [entry for value in values if value is not None and (entry := decode_abort(value))]
            self._offset = offset = batches[-1].next_offset


class BrokerAbortLog:
    """`__aborts` in this node's own log; made with the first entry."""

    def __init__(self, broker: Broker, requests: Callable[[], LogRequests], clock_ms: Callable[[], int]) -> None:
        self._broker = broker
        self._requests = requests
        self._clock_ms = clock_ms
        self._reader = AbortReader(broker)

    async def write(self, entries: Sequence[AbortEntry]) -> None:
        if ABORTS_TOPIC not in self._broker.topics():
            (made,) = await self._requests().topics.create([aborts_topic()])
            if isinstance(made, StorageError):
                raise made
        append_aborts(self._broker, [encode_abort(entry) for entry in entries], self._clock_ms())
        await asyncio.to_thread(self._broker.flush, [PLACE])

    async def read_latest(self, transactional_id: str, most: int) -> list[AbortEntry]:
        if ABORTS_TOPIC not in self._broker.topics():
            return []
        return await self._reader.read_latest(transactional_id, most)


def append_aborts(broker: Broker, records: Sequence[Entry], now_ms: int) -> None:
    """In batches that any log takes. Raises StorageError."""
    for portion in split_by_size(records, BATCH_BYTES):
        broker.append(*PLACE, encode_turn(portion, now_ms), now_ms, origin=AppendOrigin.COORDINATOR)
