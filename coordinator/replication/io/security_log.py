"""Users, tokens, ACLs and quotas of a whole cluster: `__security`, which one node leads and all nodes follow.

The leader hands out what is committed, and appends a change if nothing came between what it rests on and the end. No
batch leaves it that is not whole: a leader that finds its copy damaged gives up leading (CL-F9), and another node is
elected.

A node reads as far as the log is committed, and has its changes appended at the leader. What was read stays in force
while the leader is away. If the leader's log is another than what was read (an unclean election cut some of it off),
all of it is read again and replaces what was known.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

import structlog

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.wire.node_api import (
    SecurityChange,
    SecurityQuery,
    SecurityRecords,
    SecurityUpdate,
    SecurityUpdateResult,
)
from muster.coordinator.replication.io.wire.node_links import LinkBroken, LinkError, NodeLinks
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    NO_NODE_ID,
    SECURITY,
    ClusterImage,
    TopicPartition,
)
from muster.coordinator.replication.protocol.fetch_sessions import LedPartition
from muster.coordinator.replication.protocol.node_replicas import NodeReplicas
from muster.coordinator.security.records import UnreadableSecurityRecord, decode_security_record
from muster.coordinator.security.state import SecurityRecord
from muster.storage.broker.broker import Broker
from muster.storage.errors import LogFenced, StorageError
from muster.storage.logs.log import Log
from muster.storage.records.batch import BatchView, encode_turn, read_batches
from muster.storage.types import AppendOrigin

# The leader's part
# -----------------

PLACE: Final = TopicPartition(SECURITY, 0)

READ_BYTES: Final = 1 << 20
MOST_WAIT_MS: Final = 5_000
MOST_CHANGES: Final = 10_000
MOST_BYTES: Final = 4 << 20
"""Of one write."""
CHECKED_AT_ONCE: Final = 16 << 10
"""Bytes of changes that are looked at on the loop, in about a millisecond; more are looked at beside it."""
APPEND_DEADLINE_S: Final = 5.0
"""Within which a write is committed, or told of as one that may yet be."""

Appended: TypeAlias = Callable[[TopicPartition, int], Awaitable[ErrorCode]]

log = structlog.get_logger("muster.security")


class SecurityLeader:
    """Asked on every node; it answers for `__security` where this node leads that."""

    def __init__(
        self,
        broker: Broker,
        replicas: NodeReplicas,
        *,
        appended: Appended,
        wall_ms: Callable[[], int],
        happened: Callable[[], None],
    ) -> None:
        """appended: see `ReplicaManager.appended`. happened: called after it has changed the replicas. `moved` is to be
        called when more is committed, or the lead is lost."""
        self._happened = happened
        self._broker = broker
        self._replicas = replicas
        self._appended = appended
        self._wall_ms = wall_ms
        self._news = asyncio.Event()

    def moved(self, place: TopicPartition) -> None:
        if place == PLACE:
            self._news.set()
            self._news = asyncio.Event()

    async def read(self, asked: SecurityQuery) -> SecurityRecords:
        """See `words.Desk`."""
        try:
            async with asyncio.timeout(min(asked.max_wait_ms, MOST_WAIT_MS) / 1000):
                while not has_news(read := self._read(asked), asked):
                    await self._news.wait()
                return read
        except TimeoutError:
            return self._read(asked)

    async def write(self, changed: SecurityUpdate) -> SecurityUpdateResult:
        """See `words.Desk`."""
        if self._led() is None:
            return SecurityUpdateResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        now_ms = self._wall_ms()
        if changes_size(changed) <= CHECKED_AT_ONCE:
            batch = encode_changes(changed, now_ms)
        else:
            batch = await asyncio.to_thread(encode_changes, changed, now_ms)
        if batch is None:
            return SecurityUpdateResult(ErrorCode.INVALID_REQUEST)
        led = self._led()  # it may be led elsewhere by now
        if led is None:
            return SecurityUpdateResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if (refused := led.leader.may_append(-1)) is not ErrorCode.NONE:
            return SecurityUpdateResult(refused)
        records = self._records()
        if records.end_offset != changed.base or has_diverged(led, changed.base, changed.last_epoch):
            return SecurityUpdateResult(ErrorCode.INVALID_UPDATE_VERSION, records.end_offset)
        try:
            records.append(batch, now_ms, origin=AppendOrigin.COORDINATOR)
        except StorageError as error:
            log.warning("users and access control lists are not changed", error=str(error))
            return SecurityUpdateResult(ErrorCode.UNKNOWN_SERVER_ERROR)
        end = records.end_offset
        try:
            async with asyncio.timeout(APPEND_DEADLINE_S):
                return SecurityUpdateResult(await self._appended(PLACE, end), end)
        except TimeoutError:
            return SecurityUpdateResult(ErrorCode.REQUEST_TIMED_OUT, end)

    def _led(self) -> LedPartition | None:
        led = self._replicas.led.get(PLACE)
        return None if led is None or led.leader.over else led

    def _records(self) -> Log:
        found = self._broker.private_log(*PLACE)
        assert found is not None, "this node leads it"
        return found

    def _read(self, asked: SecurityQuery) -> SecurityRecords:
        led = self._led()
        if led is None:
            return SecurityRecords(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        records = self._records()
        try:
            start, high, end = records.start_offset, records.high_watermark, records.end_offset
            if not start <= asked.offset <= end or has_diverged(led, asked.offset, asked.last_epoch):
                return SecurityRecords(ErrorCode.NONE, start, high, end, anew=True)
            found = bytes(records.fetch(asked.offset, READ_BYTES).records) if asked.offset < high else b""
            check_batches(found, asked.offset, high)
        except (StorageError, ValueError) as error:
            log.error("this node no longer leads the security log: its replica is damaged", error=str(error))
            records.failure = records.failure or LogFenced(str(error))  # it is looked at whole before it is used again
            self._replicas.broke(PLACE, str(error))
            self._happened()
            return SecurityRecords(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return SecurityRecords(ErrorCode.NONE, start, high, end, records=found)


def has_news(read: SecurityRecords, asked: SecurityQuery) -> bool:
    """Whether there is something that the asker does not know."""
    return bool(read.error) or read.anew or read.high_watermark > asked.offset


def has_diverged(led: LedPartition, offset: int, last_epoch: int) -> bool:
    """Whether what somebody has read up to an offset is not what is there: an unclean election took some of it away."""
    if last_epoch == NO_EPOCH:
        return False
    epoch, end = led.log.end_for_epoch(last_epoch)
    return epoch != last_epoch or end < offset


def check_batches(found: bytes, offset: int, high: int) -> None:
    """Raises ValueError for what is not whole, or where there is nothing though there has to be."""
    following = offset
    for batch in read_batches(found):
        if not batch.crc_ok or batch.lost:
            raise ValueError(f"{PLACE} at offset {batch.base_offset}: its bytes are damaged")
        following = batch.next_offset
    if following <= offset < high:
        raise ValueError(f"{PLACE} at offset {offset}: nothing can be read, but it is committed up to {high}")


def changes_size(changed: SecurityUpdate) -> int:
    """Bytes."""
    return sum(len(each.key) + len(each.value or b"") for each in changed.changes)


def encode_changes(changed: SecurityUpdate, now_ms: int) -> bytes | None:
    """None for what not all nodes can read."""
    if not is_readable(changed):
        return None
    return encode_turn([(each.key, each.value, None) for each in changed.changes], now_ms)


def is_readable(changed: SecurityUpdate) -> bool:
    """Whether all nodes can read it: what they cannot would stop them."""
    changes = changed.changes
    if not 0 < len(changes) <= MOST_CHANGES:
        return False
    if changes_size(changed) > MOST_BYTES:
        return False
    try:
        for each in changes:
            decode_security_record(each.key, each.value)
    except UnreadableSecurityRecord as error:
        log.warning("another node writes what this one cannot read", error=str(error))
        return False
    return True


# Every node's part
# -----------------

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


class SecuritySink(Protocol):
    """Where it goes."""

    def begin_reload(self) -> None:
        """All of it comes now, from its beginning. What is in force stays so until `complete`."""

    def apply_changes(self, changes: Sequence[SecurityRecord]) -> None:
        """The next ones."""

    def complete(self) -> None:
        """What has come since `begin_reload` is in force, and nothing else; so is what comes from now on."""


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

    async def run(self, sink: SecuritySink) -> None:
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
            await self._apply_records(sink, read, portions)

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

    async def _apply_records(
        self, sink: SecuritySink, read: SecurityRecords, portions: "Sequence[SecurityPortion]"
    ) -> None:
        if read.anew:
            if self._offset != BEFORE_ALL:
                log.warning("the security log is read again: it has changed", offset=self._offset)
            # A new leader may not know yet how far it is committed: what it has may all have been acknowledged.
            self._offset, self._last_epoch, self._until = read.start, NO_EPOCH, read.end
            sink.begin_reload()
        elif self._until is not None:
            self._until = min(self._until, read.end)  # of what was not committed, another leader may have less
        for number, portion in enumerate(portions):
            if number:
                await asyncio.sleep(0)
            if portion.changes:
                sink.apply_changes(portion.changes)
            self._offset, self._last_epoch = portion.next_offset, portion.leader_epoch
        if self._until is not None and self._offset >= self._until:
            self._until = None
            sink.complete()
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
