"""`__security`: one compacted partition of the node's log with users, tokens, access control lists and quotas.

`SecurityStore` is the state and its only writer, one change at a time; a change is in force as soon as it is durable.
It lives on the event loop; `load` may run in a thread before that. A topic that cannot be read keeps the node from
starting, since nobody could say who may do what. Other backends keep the state elsewhere: see its subclasses.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import structlog

from muster.coordinator.edge.background_tasks import BackgroundTask, log_undone
from muster.coordinator.errors import ErrorCode
from muster.coordinator.security.records import UnreadableSecurityRecord, decode_security_record, encode_security_record
from muster.coordinator.security.state import SecurityKey, SecurityRecord, SecurityState, SecurityValue
from muster.storage.broker.broker import Broker
from muster.storage.broker.requests import wall_clock_ms
from muster.storage.errors import DataDirectoryError, StorageError
from muster.storage.logs.log import Log
from muster.storage.records.batch import encode_turn, read_batches
from muster.storage.types import AppendOrigin

SECURITY_TOPIC: Final = "__security"
PLACE: Final = (SECURITY_TOPIC, 0)
CONFIGS: Final = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20), "max.message.bytes": str(8 << 20)}
READ_BYTES: Final = 4 << 20
MOST_CHANGES: Final = 10_000
MOST_BYTES: Final = 4 << 20
"""Of one write."""
MOST_AT_ONCE: Final = 100
"""Changes of one of several writes, so that the loop does not turn them into bytes for long."""

logger = structlog.get_logger("muster.security")

Record: TypeAlias = tuple[bytes, bytes | None, int | None]
SecurityRead: TypeAlias = Mapping[SecurityKey, SecurityValue | None]
SettledResult = TypeVar("SettledResult")


class SecurityDamaged(DataDirectoryError):
    """What lies in `__security` cannot be read, so that nobody knows who may do what: the node does not start."""


class SecurityUnavailable(StorageError):
    """Who may do what cannot be changed just now: nothing was. What is in force stays so."""

    code = 15
    name = "COORDINATOR_NOT_AVAILABLE"


class SecurityWriteTimedOut(SecurityUnavailable):
    """Whether it was changed is not known."""

    code = 7
    name = "REQUEST_TIMED_OUT"


class ConcurrentSecurityChange(Exception):
    """Somebody else has changed what a change rests on: it is to be decided anew."""


class SecurityStore:
    """The state, and its only writer. It lives on the node's event loop; `load` may run in a thread before that."""

    keeps_users: bool = True
    """Whether users are kept here; otherwise whoever asks them for passwords has them."""
    quotas_elsewhere: frozenset[str] = frozenset()
    """Quotas of what does not pass here, or of what others charge for: nobody would keep them."""

    def __init__(self, disk: Broker | None) -> None:
        """disk: the broker with the private log; None: a subclass keeps its records elsewhere."""
        self.state = SecurityState()
        self._kept_on = disk
        self._writing = asyncio.Lock()
        self._listeners: list[Callable[[Sequence[SecurityRecord]], None]] = []
        self._broken = ""
        self._under_way: set[asyncio.Task[None]] = set()
        """Writes; the event loop itself keeps no task alive."""

    def load(self) -> None:
        """Read what there is; make the topic where there is none. Blocks. Raises SecurityDamaged, StorageError."""
        if self._broker.private_log(*PLACE) is None:
            self._broker.create_topic(SECURITY_TOPIC, 1, CONFIGS, internal=True)
        self.read()
        self._note()

    def read(self) -> None:
        """What there is. Blocks. Raises SecurityDamaged, StorageError."""
        self._log.flush()
        for changes in self._read():
            self.state.apply(changes)

    @property
    def _broker(self) -> Broker:
        assert self._kept_on is not None, "a store that is kept elsewhere overrides what needs it"
        return self._kept_on

    @property
    def _log(self) -> Log:
        log = self._broker.private_log(*PLACE)
        assert log is not None, "it was made"
        return log

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call this after every change."""
        self._listeners.append(lambda changes: changed())

    def on_changes(self, changed: Callable[[Sequence[SecurityRecord]], None]) -> None:
        """The same, for who wants to know what has changed."""
        self._listeners.append(changed)

    async def known(self) -> None:
        """When all that is kept is in force."""

    async def settled(self, change: Callable[[], Awaitable[SettledResult]]) -> SettledResult:
        """What a change comes to that is decided by the state, and then written. Where others write as well it is
        decided by all that they have written, and again if they come in between."""
        return await change()

    async def write(self, changes: Sequence[SecurityRecord]) -> None:
        """All of it, or nothing; durable, and in force, on return. Raises ValueError, StorageError.

        After a write that the disk has failed nobody knows what a restart would find: further ones are refused. Whoever
        is cancelled meanwhile (a client that hung up) leaves the write to come to its end: what is durable is in force.
        """
        if len(changes) > MOST_CHANGES:
            raise ValueError(f"{len(changes)} changes at once; expected at most {MOST_CHANGES}")
        records = [(*encode_security_record(change), None) for change in changes]
        if not records:
            return
        if (size := sum(map(size_of, records))) > MOST_BYTES:
            raise ValueError(f"the changes take {size} bytes together; expected at most {MOST_BYTES}")
        await self._to_its_end(records, changes, self._seen(changes))

    async def write_all(self, changes: Sequence[SecurityRecord]) -> None:
        """However many, in as many writes as they take. Of what the disk fails a part may stand. Raises ValueError,
        StorageError.
        """
        seen = self._seen(changes)
        for portion in split_changes(changes):
            await self._to_its_end(*portion, seen)

    def _seen(self, changes: Sequence[SecurityRecord]) -> SecurityRead:
        """What they rest on, where somebody else could have changed it since."""
        return {}

    async def _to_its_end(
        self, records: Sequence[Record], changes: Sequence[SecurityRecord], seen: SecurityRead
    ) -> None:
        writing = asyncio.create_task(self._write(records, changes, seen))
        self._under_way.add(writing)
        writing.add_done_callback(self._under_way.discard)
        await asyncio.shield(writing)

    async def _write(self, records: Sequence[Record], changes: Sequence[SecurityRecord], seen: SecurityRead) -> None:
        async with self._writing:
            if self._broken:
                raise StorageError(f"who may do what cannot be changed until the node is restarted: {self._broken}")
            now_ms = wall_clock_ms()
            log = self._log
            log.append(encode_turn(records, now_ms), now_ms, origin=AppendOrigin.COORDINATOR)
            try:
                await asyncio.to_thread(self._flush, log)
            except (StorageError, OSError) as error:
                self._broken = str(error)
                raise StorageError(f"{SECURITY_TOPIC}: {error}") from error
            self._in_force(changes)

    def _in_force(self, changes: Sequence[SecurityRecord]) -> None:
        self.state.apply(changes)
        for changed in self._listeners:
            changed(changes)

    def stop(self) -> None:
        """Nothing is asked of it any more."""

    def reset(self) -> None:
        """Give up all of it, of a node that is stopped. Blocks. Raises StorageError."""
        self._broker.empty_private(*PLACE)

    def _flush(self, log: Log) -> None:
        """Blocks. Raises StorageError."""
        log.flush()
        self._note()

    def _note(self) -> None:
        """How far it goes, so that damage is never taken for the torn end of a write. It is durable without that."""
        try:
            self._broker.private_written()
        except OSError as error:
            logger.warning("the end of the log could not be saved", topic=SECURITY_TOPIC, why=str(error))

    def _read(self) -> Iterator[Iterable[SecurityRecord]]:
        log = self._log
        offset, end = log.start_offset, log.end_offset
        while offset < end:
            following = offset
            for batch in read_batches(log.fetch(offset, READ_BYTES).records):
                following = batch.next_offset
                if not batch.crc_ok or batch.lost:
                    raise self._damaged(batch.base_offset, "its bytes are damaged")
                if batch.control:
                    continue
                try:
                    yield [decode_security_record(record.key or b"", record.value) for record in batch.records()]
                except UnreadableSecurityRecord as error:
                    raise self._damaged(batch.base_offset, str(error)) from error
            if following <= offset:
                raise self._damaged(offset, f"nothing can be read, but it ends at {end}")
            offset = following

    def _damaged(self, offset: int, why: str) -> SecurityDamaged:
        return SecurityDamaged(
            f"{SECURITY_TOPIC}-0 at offset {offset}: {why}; the node does not start without knowing who may do what; "
            "restore the data directory from a copy, or give up all users, tokens, lists and quotas with "
            "'muster storage reset-security' and make them anew ('muster log dump --records' shows what can be read)"
        )


# The state of all nodes of a cluster
# -----------------------------------

MOST_TRIES: Final = 20
"""Of a change that others come in between of."""


class SecurityFollowingEnded(Exception):
    """Of what never ends."""


class FollowedSecurityStore(SecurityStore):
    """One of many: each node follows the one log of the cluster, and whoever changes something has first read all that
    anybody wrote before. A subclass knows the log: how it is followed, caught up with and written."""

    def __init__(self, disk: Broker | None) -> None:
        super().__init__(disk)
        self._following_failed: Callable[[BaseException], None] = log_undone
        self._follower = BackgroundTask(lambda error: self._following_failed(error))

    def stop(self) -> None:
        self._follower.cancel()

    async def settled(self, change: Callable[[], Awaitable[SettledResult]]) -> SettledResult:
        for _ in range(MOST_TRIES):
            await self._catch_up()
            try:
                return await change()
            except ConcurrentSecurityChange:
                await self._step_aside()
        raise SecurityUnavailable("others change the same again and again; try again")

    def _follow(self, read: Callable[[], Coroutine[Any, Any, None]], failed: Callable[[BaseException], None]) -> None:
        """read: takes in what the log has, and ends with an error alone. failed: hears why the node may not go on:
        without the log it would decide by rights that count no more."""

        async def for_ever() -> None:
            await read()
            raise SecurityFollowingEnded

        self._following_failed = failed
        self._follower.start(for_ever(), "changes of who may do what")

    def _seen(self, changes: Sequence[SecurityRecord]) -> SecurityRead:
        return {change.key: self.state.value(change.key) for change in changes}

    async def _catch_up(self) -> None:
        """All that anybody has written by now is in force here on return. Raises SecurityUnavailable."""
        raise NotImplementedError

    async def _step_aside(self) -> None:
        """Somebody else has changed the same: before it is tried again."""


# Sizes, and codes for clients
# ----------------------------


def error_code_for(error: Exception) -> ErrorCode:
    """What clients are told who asked for a change that failed: where there is a point in it, to try again."""
    return ErrorCode(error.code) if isinstance(error, SecurityUnavailable) else ErrorCode.UNKNOWN_SERVER_ERROR


def size_of(record: Record) -> int:
    return len(record[0]) + len(record[1] or b"")


def split_changes(changes: Iterable[SecurityRecord]) -> Iterator[tuple[list[Record], list[SecurityRecord]]]:
    """The same, in order, as many together as one write may have. Raises ValueError for one that is too large."""
    records: list[Record] = []
    portion: list[SecurityRecord] = []
    size = 0
    for change in changes:
        record = (*encode_security_record(change), None)
        of_one = size_of(record)
        if portion and (len(portion) >= MOST_AT_ONCE or size + of_one > MOST_BYTES):
            yield records, portion
            records, portion, size = [], [], 0
        records.append(record)
        portion.append(change)
        size += of_one
    if portion:
        yield records, portion
