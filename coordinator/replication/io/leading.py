"""The leader's part: others read what is committed, and what they change is appended if nothing came between.

No batch leaves that is not whole: a leader that finds its copy damaged leads no more (CL-F9), and another is elected.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import structlog

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.wire.words import (
    SecurityQuery,
    SecurityRecords,
    SecurityUpdate,
    SecurityUpdateResult,
)
from muster.coordinator.replication.protocol.facts import NO_EPOCH, SECURITY, TopicPartition
from muster.coordinator.replication.protocol.fetch_sessions import LedPartition
from muster.coordinator.replication.protocol.replicas import NodeReplicas
from muster.coordinator.security.records import UnreadableSecurityRecord, decode_security_record
from muster.storage.broker.broker import Broker
from muster.storage.errors import LogFenced, StorageError
from muster.storage.logs.log import Log
from muster.storage.records.batch import encode_turn, read_batches

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
        """appended: see `ClusterSide.appended`. happened: called after it has changed the replicas. `moved` is to be
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
        if records.end_offset != changed.base or has_diverged(led, records, changed.base, changed.last_epoch):
            return SecurityUpdateResult(ErrorCode.INVALID_UPDATE_VERSION, records.end_offset)
        try:
            records.append(batch, now_ms, trusted=True)
        except StorageError as error:
            log.warning("who may do what is not changed", error=str(error))
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
            if not start <= asked.offset <= end or has_diverged(led, records, asked.offset, asked.last_epoch):
                return SecurityRecords(ErrorCode.NONE, start, high, end, anew=True)
            found = bytes(records.fetch(asked.offset, READ_BYTES).records) if asked.offset < high else b""
            check_batches(found, asked.offset, high)
        except (StorageError, ValueError) as error:
            log.error("this node leads who may do what no more: its copy is damaged", error=str(error))
            records.failure = records.failure or LogFenced(str(error))  # it is looked at whole before it is used again
            self._replicas.broke(PLACE, str(error))
            self._happened()
            return SecurityRecords(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return SecurityRecords(ErrorCode.NONE, start, high, end, records=found)


def has_news(read: SecurityRecords, asked: SecurityQuery) -> bool:
    """Whether there is something that the asker does not know."""
    return bool(read.error) or read.anew or read.high_watermark > asked.offset


def has_diverged(led: LedPartition, records: Log, offset: int, last_epoch: int) -> bool:
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
