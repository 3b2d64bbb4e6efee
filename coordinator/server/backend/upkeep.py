"""What a node does by the clock, and what it watches of its process: disk, descriptors, memory, and its data directory.

Upkeep runs the log's periodic work and compaction, and turns what it finds into conditions. Disk room is reported
before none is left; when little is left, or a log was refused, a small write is tried. Logs stay for long, so they
are frozen out of the garbage collector's reach.

Fatal errors: a data directory that is removed, moved or unmounted takes what is written along unnoticed, since open
files can be written and flushed after they were removed; the node would acknowledge what is never read again. So its
lock file, which is never made twice, is watched, and the node ends.
"""

import asyncio
import errno
import gc
import os
import resource
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from muster.coordinator.config import Settings
from muster.coordinator.edge.background_tasks import RestartedTask
from muster.coordinator.observability.views.formatting import size
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.node_status import Conditions, Metrics
from muster.coordinator.server.driver.clock import NodeClock
from muster.coordinator.server.node_events import (
    LogConditions,
    report_contained,
    update_disk_room_condition,
    update_lost_explanations_condition,
    update_starved_condition,
    update_upkeep_condition,
    update_write_condition,
)
from muster.coordinator.zookeeper.errors import ZooKeeperError
from muster.storage.broker.broker import Broker
from muster.storage.errors import DataDirectoryError, StorageError
from muster.storage.logs.log import Log
from muster.storage.topics.data_dir import LOCK

if TYPE_CHECKING:
    from muster.coordinator.server.security.listener_certificates import NodeCertificates


# Room on the disk
# ----------------

TRIED_BYTES = 64 << 10
"""What must still find room: a few turns of commits, with what the ledger tells of them."""

NOTHING = bytes(TRIED_BYTES)

TRIED_BELOW = 16 << 20
"""With more room than that nobody need try."""

TRIED_NAME = "room-probe"


class DiskUsage(Protocol):
    """As `shutil.disk_usage` tells it, in bytes: `free` is what this process may still take."""

    @property
    def total(self) -> int: ...

    @property
    def free(self) -> int: ...


class DiskRoom:
    """Looks how much room is left. It is short below `least_bytes` (0: never), and until a tenth more is free again.

    Segments come and go all the time, and must not begin and end the same trouble each second.
    """

    def __init__(
        self, directory: Path, least_bytes: int, look: Callable[[Path], DiskUsage] = shutil.disk_usage
    ) -> None:
        self._directory = directory
        self._least_bytes = least_bytes
        self._look = look
        self._short = False

    def shortage(self) -> str:
        """One sentence with the figures and what to do; empty while there is room, or nobody can tell. Any thread."""
        if not self._least_bytes:
            return ""
        try:
            usage = self._look(self._directory)
        except OSError:
            return ""  # Whoever reads or writes there will say what is wrong with it.
        enough = self._least_bytes * 11 // 10 if self._short else self._least_bytes
        self._short = usage.free < enough
        if not self._short:
            return ""
        percent = 100 * usage.free / usage.total if usage.total else 0.0
        return (
            f"{size(usage.free)} of {size(usage.total)} ({percent:.1f} %) are free where {self._directory} lies, less "
            f"than log.dirs.free.warn.bytes ({size(self._least_bytes)}): once it is full, appends and commits are "
            "refused; lower retention.ms or retention.bytes of large topics, delete topics, or give the disk more"
        )


class WriteProbe:
    """Tries whether anything can be written at all, once the figures say that little is left, or a log was refused.

    The figures alone do not tell: what is kept for root counts as none, and root may write there.
    """

    def __init__(
        self,
        directory: Path,
        look: Callable[[Path], DiskUsage] = shutil.disk_usage,
        take: Callable[[Path, int], None] | None = None,
    ) -> None:
        """`take` takes so many bytes of room in a directory, and gives them back. Raises OSError."""
        self._directory = directory
        self._look = look
        self._take = take or allocate_bytes

    def refusal(self, wanted: int = 0) -> str:
        """One sentence when the system takes nothing more; empty while it does, or nobody can tell. Any thread.

        `wanted`: so many bytes a log was refused; with them it is tried, whatever the figures say.
        """
        try:
            usage = self._look(self._directory)
            if wanted or usage.free < TRIED_BELOW:
                self._take(self._directory, max(wanted, TRIED_BYTES))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                return ""  # Whoever reads or writes there will say what is wrong with it.
            most = f"{size(wanted)} more" if wanted > TRIED_BYTES else "nothing more"
            can = "cannot" if wanted > TRIED_BYTES else "can"
            return (
                f"{most} {can} be written where {self._directory} lies: {error.strerror} ({size(usage.free)} of "
                f"{size(usage.total)} are free); appends, commits and joins that need more are refused until there is "
                "room: lower retention.ms or retention.bytes of large topics, delete topics, or give the disk more"
            )
        return ""


def allocate_bytes(directory: Path, wanted: int) -> None:
    """Raises OSError when the disk does not have so many bytes to give."""
    path = directory / TRIED_NAME
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        for begin in range(0, wanted, TRIED_BYTES):
            if os.write(fd, NOTHING[: wanted - begin]) < min(TRIED_BYTES, wanted - begin):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(fd)
        path.unlink()


# Resources of the process
# ------------------------

PROCESS = Path("/proc/self")
CONTROL_GROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


class LoopLag(Protocol):
    """Knows how late the event loop was when it was last asked."""

    @property
    def lag_ms(self) -> int: ...


class ProcessResources:
    """Looks when it is asked, and not before: a look lists a directory and reads three small files.

    What the operating system does not tell is left out.
    """

    def __init__(
        self,
        data_dir: Path | None,
        started_ms: int,
        loop: LoopLag,
        metrics: Metrics,
        process: Path = PROCESS,
        failed_logins: Callable[[], list[tuple[str, str, int, str]]] = list,
    ) -> None:
        """`failed_logins`: (door, address, how many, why) of the last ten minutes."""
        self._failed_logins = failed_logins
        self._data_dir = data_dir
        self._started_ms = started_ms
        self._loop = loop
        self._metrics = metrics
        self._process = process

    def measure_resources(self) -> pb.NodeResources:
        free, total = disk_bytes(self._data_dir)
        return pb.NodeResources(
            open_descriptors=open_descriptors(self._process),
            descriptor_limit=descriptor_limit(),
            resident_bytes=resident_bytes(self._process),
            memory_bytes=memory_bytes(),
            disk_free_bytes=free,
            disk_total_bytes=total,
            loop_late_ms=self._loop.lag_ms,
            stalls=self._metrics.stalls,
            stalled_ms=self._metrics.stalled_ms,
            started_at_ms=self._started_ms,
            failed_logins=[
                pb.FailedLogins(door=door, address=address, count=count, why=why)
                for door, address, count, why in self._failed_logins()
            ],
        )


def open_descriptors(process: Path) -> int | None:
    try:
        return len(os.listdir(process / "fd"))
    except OSError:
        return None


def descriptor_limit() -> int | None:
    """The soft limit; None where there is none."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else min(soft, 2**31 - 1)


def resident_bytes(process: Path) -> int | None:
    try:
        pages = (process / "statm").read_text().split()[1]
    except (OSError, IndexError):
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def memory_bytes(limits: tuple[Path, ...] = CONTROL_GROUP_LIMITS) -> int | None:
    """The smaller of the control group's limit and the machine's memory."""
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None
    for path in limits:
        try:
            limit = int(path.read_text())
        except (OSError, ValueError):  # "max" stands for none
            continue
        return min(limit, machine)
    return machine


def disk_bytes(directory: Path | None) -> tuple[int | None, int | None]:
    """Free bytes and all of them. Nobody can tell of no directory."""
    if directory is None:
        return None, None
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return None, None
    return usage.free, usage.total


# Long-lived logs and the garbage collector
# -----------------------------------------

FROZEN_AT_ONCE: Final = 256
"""Logs that have come to be, and are there yet, since the collector was last told to pass over what there is."""

ALL_LOOKED_AT: Final = 50_000
"""Logs that have gone since everything was last looked through. That holds everything up for as long as there are
objects: 50 ms for 10,000 partitions, seconds for millions of positions. So it is seldom, however much topics come and
go; what may stay as garbage until then is what was on its way at some 200 moments.
"""


class LogFreezer:
    """Hears of logs that are made and that go, one change of topics at a time, in the thread that makes them.

    Looking through 10,000 takes the collector a tenth of a second, in which nothing else goes on. What is garbage by
    then would stay for ever, so it is collected first: that looks at what is new since the last time.

    What is on its way at that moment (requests, connections) is passed over as well, and stays if it ends as garbage
    that only the collector finds. So topics that come and go do not count; and where very many have gone,
    everything is looked through.
    """

    def __init__(self) -> None:
        self._new = 0
        self._gone = 0

    def changed(self, count: int) -> None:
        """So many logs were made; negative: are gone."""
        self._new = max(0, self._new + count)
        self._gone += max(0, -count)
        if self._new >= FROZEN_AT_ONCE:
            if self._gone >= ALL_LOOKED_AT:
                gc.unfreeze()
                self._gone = 0
            self._new = 0
            gc.collect()
            gc.freeze()


ALL_EVERY_S: Final = 3_600.0
"""Between two looks through everything."""

SOONEST_S: Final = 300.0
"""The same, where memory grows."""

GROWTH: Final = 1.5
LEAST_GROWTH_BYTES: Final = 128 << 20
"""What the process may grow by before everything is looked through: by half of what it was, and this much."""


class SurvivorFreezer:
    """A callback of the collector (`gc.callbacks`): what a look has left behind, other than one at the youngest alone,
    is passed over by the next ones, or each would hold everything up for longer: half a second with 100,000 groups that
    are shown on a page, or with 5,000 members of one group. Nearly all of it goes without the collector; for the rest,
    one look an hour sees everything, and one where memory has grown by half.
    """

    def __init__(
        self,
        monotonic_s: Callable[[], float] = time.monotonic,
        resident: Callable[[], int] = lambda: resident_bytes(PROCESS) or 0,
    ) -> None:
        self._monotonic_s = monotonic_s
        self._resident = resident
        self._saw_all_s = monotonic_s()
        self._size = resident()

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        generation = info["generation"]
        if phase == "stop":
            if generation > YOUNGEST:
                gc.freeze()
        elif generation == OLDEST and self._is_due():
            gc.unfreeze()

    def _is_due(self) -> bool:
        since_s, size = self._monotonic_s() - self._saw_all_s, self._resident()
        grown = since_s >= SOONEST_S and size > GROWTH * self._size + LEAST_GROWTH_BYTES
        if not grown and since_s < ALL_EVERY_S:
            return False
        self._saw_all_s += since_s
        self._size = size
        return True


YOUNGEST, OLDEST = 0, 2
"""Generations of the collector."""


# Fatal errors
# ------------

log = structlog.get_logger("muster.node")


class DirectoryWatch:
    """Made while the directory is locked: its lock file, which is never made anew, says which directory it is."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = directory / LOCK
        self._known = identify_file(self._lock)

    def gone(self) -> DataDirectoryError | None:
        """What the node has to stop for; None while all is well, or nobody can tell. Any thread."""
        try:
            is_there = identify_file(self._lock) == self._known
        except (FileNotFoundError, NotADirectoryError):
            is_there = False
        except OSError:
            return None  # Whoever reads or writes there will say what is wrong with it.
        if is_there:
            return None
        return DataDirectoryError(
            f"The data directory {self._directory} was removed, moved or unmounted while the node ran, and what is "
            "written would be lost: the node stops. Bring the directory back and start the node; where it is lost, "
            "start it with an empty one: in a cluster it copies everything from the others, alone it begins anew."
        )


def identify_file(path: Path) -> tuple[int, int]:
    """Raises OSError."""
    found = os.stat(path)
    return found.st_dev, found.st_ino


class NodeIdInUse(Exception):
    """Another process runs as this node; the text says where, and what to do."""


def report_fatal_error(why: BaseException) -> None:
    """The node cannot go on. What happened around it is told in its own words; of a mistake of the program, where."""
    if isinstance(why, DataDirectoryError | ZooKeeperError | NodeIdInUse):
        log.error("the node cannot go on", why=str(why))
    else:
        log.error("the node cannot go on", exc_info=why)


TICK_S = 1.0
"""How often the log does its periodic work."""


class LossReporter(Protocol):
    def take_losses(self) -> list[str]:
        """See `BrokerGroupLog.take_losses`."""


class NodeUpkeep:
    """Two tasks on the loop that makes it, from then on until `stop`. What they find goes to the node's conditions;
    `fail` hears of what the node cannot go on with: it has no data directory any more."""

    def __init__(
        self,
        settings: Settings,
        clock: NodeClock,
        conditions: Conditions,
        broker: Broker,
        group_log: LossReporter,
        engine: Engine,
        fail: Callable[[BaseException], None],
        certificates: "NodeCertificates | None" = None,
    ) -> None:
        self._clock = clock
        self._conditions = conditions
        self._broker = broker
        self._group_log = group_log
        self._engine = engine
        self._pause_s = max(settings.cleaner_backoff_ms / 1000, TICK_S)
        self._fail = fail
        self._directory = DirectoryWatch(settings.data_dir)
        self._disk_room = DiskRoom(settings.data_dir, settings.log_dirs_free_warn_bytes)
        self._last_room, self._refusal = WriteProbe(settings.data_dir), ""
        self._log_troubles = LogConditions(broker.troubles, conditions)
        # A tick may take seconds, on a disk that is full above all; whoever asks meanwhile is told what a log met.
        conditions.before_each_look(self._carry_log_troubles)
        self._carried: Callable[[], None] = lambda: None
        self._certificates = certificates
        if certificates is not None:
            certificates.start(conditions)
        self._ticking = RestartedTask("log upkeep", self._tick)
        self._compacting = RestartedTask("compaction", self._compact)
        self._ticking.start()
        self._compacting.start()

    def carries(self, carry: Callable[[], None]) -> None:
        """Call this as well whenever what was found is carried over to the conditions."""
        self._carried = carry

    def stop(self) -> None:
        """Begin nothing more. A compaction's thread lets go of the log when the log is closed."""
        if self._certificates is not None:
            self._certificates.stop()
        self._ticking.cancel()
        self._compacting.cancel()

    async def _tick(self) -> None:
        """Flushes by age, checkpoints and retention in a thread; what only the appending one may do, log by log."""
        await self._attempt(self._look_at_room)  # a node that starts on a full disk says so from the first second on
        while True:
            await asyncio.sleep(TICK_S)
            if (gone := await asyncio.to_thread(self._directory.gone)) is not None:
                self._fail(gone)
                await asyncio.Event().wait()  # until it is stopped
            for step in (self._work_on_logs, self._look_at_room, self._carry_conditions):
                await self._attempt(step)

    async def _attempt(self, step: Callable[[], Awaitable[None]]) -> None:
        """Whatever goes wrong in it: what is due next must not be left undone for good."""
        try:
            await step()
        except Exception as error:
            log.error("the log's periodic work failed", exc_info=error)
            update_upkeep_condition(self._conditions, [repr(error)])

    def _carry_log_troubles(self) -> None:
        """Whoever asks what is wrong is answered, whatever goes wrong here."""
        try:
            self._log_troubles.carry()
        except Exception as error:
            log.error("the log's periodic work failed", exc_info=error)
            update_upkeep_condition(self._conditions, [repr(error)])

    async def _work_on_logs(self) -> None:
        aged: list[Log] = []
        tick = partial(self._broker.tick, self._clock.now_ms(), compacting=False, aged=aged)
        complaints = await asyncio.to_thread(tick)
        for old in aged:
            self._broker.roll_aged(old, self._clock.now_ms())
            await asyncio.sleep(0)
        update_upkeep_condition(self._conditions, complaints)

    async def _carry_conditions(self) -> None:
        update_lost_explanations_condition(self._conditions, self._group_log.take_losses())
        update_starved_condition(self._conditions, self._engine.starved)
        self._carry_log_troubles()
        self._carried()
        self._conditions.current()  # what has run out is told, though nobody asks

    async def _look_at_room(self) -> None:
        shortage = await asyncio.to_thread(self._disk_room.shortage)
        wanted = self._log_troubles.still_wanted()
        before, self._refusal = self._refusal, await asyncio.to_thread(self._last_room.refusal, wanted)
        update_disk_room_condition(self._conditions, shortage)
        if wanted and not self._refusal:
            self._log_troubles.found_room()
            before = before or "the log was refused room"
        update_write_condition(self._conditions, self._refusal, before)

    async def _compact(self) -> None:
        """One log at a time, in a thread: it may take minutes, and only the swap at its end holds up anybody."""
        while True:
            await asyncio.sleep(self._pause_s)
            try:
                await asyncio.to_thread(self._broker.compact, self._clock.now_ms())
            except (OSError, StorageError) as error:
                log.error("a log could not be compacted", why=str(error))
                update_upkeep_condition(self._conditions, [str(error)])
            except Exception as error:
                log.error("a log could not be compacted", exc_info=error)
                update_upkeep_condition(self._conditions, [repr(error)])


# What else is wrong
# ------------------


class ConditionLooks:
    """A task on the loop that makes it, from then on until `stop`: every `pause_s` it looks whether something is wrong
    that only looking tells. A look that fails leaves the others to be done."""

    def __init__(
        self, name: str, conditions: Conditions, certificates: "NodeCertificates | None", *, pause_s: float
    ) -> None:
        """name: of the task."""
        self._conditions = conditions
        self._certificates = certificates
        self._pause_s = pause_s
        if certificates is not None:
            certificates.start(conditions)
        self._ticking = RestartedTask(name, self._tick)
        self._ticking.start()

    def stop(self) -> None:
        if self._certificates is not None:
            self._certificates.stop()
        self._ticking.cancel()

    def looks(self) -> Iterator[Callable[[], object]]:
        """All that is to be looked at this time."""
        raise NotImplementedError

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._pause_s)
            for look in self.looks():
                try:
                    look()
                except Exception as error:  # the others, and the next time, must not be left undone for good
                    report_contained("looking what is wrong", error)
            self._conditions.current()  # what has run out is told, though nobody asks
