"""Each node's part: it reads `__security` from its leader as far as that is committed, and has changes appended there.

What was read stays in force while the leader is away. Where it turns out that the leader's log is another than what was
read (an unclean election cut some of it off), all is read anew, and takes the place of what was in force at once.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import structlog

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.leading import PLACE, SecurityLeader
from muster.coordinator.replication.io.wire.links import NodeLinks
from muster.coordinator.replication.io.wire.reaching import LinkBroken, LinkError
from muster.coordinator.replication.io.wire.words import (
    SecurityChange,
    SecurityQuery,
    SecurityRecords,
    SecurityUpdate,
    SecurityUpdateResult,
)
from muster.coordinator.replication.protocol.facts import NO_EPOCH, NO_NODE_ID
from muster.coordinator.replication.protocol.image import ClusterImage
from muster.coordinator.security.facts import SecurityRecord
from muster.coordinator.security.records import decode_security_record
from muster.storage.records.batch import BatchView, read_batches

WAIT_MS: Final = 500
"""For news. Who is silent for longer than this and a bit is asked anew."""
DEADLINE_S: Final = 2.0
WRITE_DEADLINE_S: Final = 7.0
"""A little more than the leader gives a write."""
RETRY_S: Final = 0.1
ANEW_AFTER_S: Final = 3_600.0
"""Who has heard nothing for so long reads all anew: what was taken away meanwhile may leave no trace some time later
(`delete.retention.ms`)."""
BEFORE_ALL: Final = -1
AT_ONCE: Final = 16 << 10
"""Bytes of records that are read on the loop, in about a millisecond; more are read beside it."""

log = structlog.get_logger("muster.security")


class SecurityBook(Protocol):
    """Where it goes."""

    def begin(self) -> None:
        """All of it comes now, from its beginning. What is in force stays so until `complete`."""

    def take(self, changes: Sequence[SecurityRecord]) -> None:
        """The next ones."""

    def complete(self) -> None:
        """What has come since `begin` is in force, and nothing else; so is what comes from now on."""


class SecurityFollower:
    """Lives on the event loop. `run` ends only with an error, by which the node may not go on: what cannot be read
    would leave it without knowing who may do what (`Unreadable`)."""

    def __init__(
        self,
        me: int,
        image: ClusterImage,
        leading: SecurityLeader,
        links: Callable[[], NodeLinks],
        clock_s: Callable[[], float],
        look: Callable[[], None] = lambda: None,
    ) -> None:
        """links: makes some of its own; what waits holds up what is asked behind it. clock_s: monotonic. look: called
        twice a second or so."""
        self._look = look
        self._me = me
        self._image = image
        self._leading = leading
        self._reading, self._writing = links(), links()
        self._clock_s = clock_s
        self._offset = BEFORE_ALL
        self._last_epoch = NO_EPOCH
        self._until: int | None = None
        """Where what is read anew is whole."""
        self._heard_s = clock_s()
        self._progress = asyncio.Event()
        self.why = "it is not asked yet"
        """What the last question came to, where that is nothing."""

    async def run(self, book: SecurityBook) -> None:
        """Raises Unreadable."""
        while True:
            self._look()
            if self._clock_s() - self._heard_s > ANEW_AFTER_S:
                self._offset, self._last_epoch = BEFORE_ALL, NO_EPOCH
            try:
                read = await self._read(self._reading, WAIT_MS)
                portions = await self._apart(read)
            except LinkError as error:
                self.why = str(error)
                await asyncio.sleep(RETRY_S)
                continue
            if read.error:
                self.why = f"its leader answers {read.error.name}"
                await asyncio.sleep(RETRY_S)
                continue
            self._heard_s = self._clock_s()
            await self._take(book, read, portions)

    async def latest(self) -> None:
        """Have taken in all that anybody wrote before this call. Raises LinkError."""
        while True:
            read = await self._read(self._writing, 0)
            if read.error:
                raise LinkError(f"the leader of {PLACE} answers {read.error.name}")
            if not read.anew:
                await self.reaches(read.end)
                return
            await self._progress.wait()

    async def reaches(self, end: int) -> None:
        """When all below `end` is in force here."""
        while self._offset < end or self._until is not None:
            await self._progress.wait()

    async def write(self, changes: Sequence[SecurityChange]) -> SecurityUpdateResult:
        """What was decided by all that is in force here. Raises LinkError where nobody knows what came of it."""
        changed = SecurityUpdate(self._offset, self._last_epoch, tuple(changes))
        leader = self._leader()
        if leader == NO_NODE_ID or self._until is not None:
            return SecurityUpdateResult(ErrorCode.LEADER_NOT_AVAILABLE)
        if leader == self._me:
            return await self._leading.write(changed)
        link = await self._writing.to(leader)
        return await link.write_security(changed, deadline_s=WRITE_DEADLINE_S)

    def close(self) -> None:
        self._reading.close()
        self._writing.close()

    def _leader(self) -> int:
        view = self._image.partition(PLACE)
        return NO_NODE_ID if view is None else view.leader

    async def _read(self, links: NodeLinks, wait_ms: int) -> SecurityRecords:
        """Raises LinkError."""
        leader, asked = self._leader(), SecurityQuery(self._offset, self._last_epoch, wait_ms)
        if leader == NO_NODE_ID:
            return SecurityRecords(ErrorCode.LEADER_NOT_AVAILABLE)
        if leader == self._me:
            return await self._leading.read(asked)
        link = await links.to(leader)
        return await link.read_security(asked, deadline_s=wait_ms / 1000 + DEADLINE_S)

    async def _apart(self, read: SecurityRecords) -> "Sequence[SecurityPortion]":
        """What came, read beside the loop where it is much. Raises Broken, Unreadable."""
        offset = read.start if read.anew else self._offset
        if len(read.records) <= AT_ONCE:
            return split_records(read.records, offset)
        return await asyncio.to_thread(split_records, read.records, offset)

    async def _take(self, book: SecurityBook, read: SecurityRecords, portions: "Sequence[SecurityPortion]") -> None:
        if read.anew:
            if self._offset != BEFORE_ALL:
                log.warning("who may do what is read anew: it is not what it was", offset=self._offset)
            # A new leader may not know yet how far it is committed: what it has may all have been acknowledged.
            self._offset, self._last_epoch, self._until = read.start, NO_EPOCH, read.end
            book.begin()
        elif self._until is not None:
            self._until = min(self._until, read.end)  # of what was not committed, another leader may have less
        for number, portion in enumerate(portions):
            if number:
                await asyncio.sleep(0)
            if portion.changes:
                book.take(portion.changes)
            self._offset, self._last_epoch = portion.next_offset, portion.leader_epoch
        if self._until is not None and self._offset >= self._until:
            self._until = None
            book.complete()
        self._progress.set()
        self._progress = asyncio.Event()


class SecurityPortion(NamedTuple):
    """What was written at once, or the rest of it."""

    next_offset: int
    leader_epoch: int
    changes: Sequence[SecurityRecord]


def split_records(records: bytes, offset: int) -> Sequence[SecurityPortion]:
    """What lies at an offset and behind it. Raises Broken, Unreadable."""
    found = []
    for batch in sound_batches(records):
        if batch.next_offset <= offset:
            continue
        changes: list[SecurityRecord] = []
        if not batch.control:
            changes = [
                decode_security_record(record.key or b"", record.value)
                for record in batch.records()
                if record.offset >= offset
            ]
        found.append(SecurityPortion(batch.next_offset, batch.leader_epoch, changes))
    return found


def sound_batches(records: bytes) -> Sequence[BatchView]:
    """Raises Broken."""
    batches = list(read_batches(records))
    for batch in batches:
        if not batch.crc_ok or batch.lost:
            raise LinkBroken(f"{PLACE} at offset {batch.base_offset} came damaged")
    return batches
