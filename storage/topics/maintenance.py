"""The work that a node does for its logs periodically: flushes that are due, checkpoints, retention, compaction.

Recovery points of all logs are written once in a while: what lies behind them and cannot be read after a crash is cut
off as the torn end of a write that was never acknowledged. For logs that only the node reads that would be too weak, so
theirs are written with each of their writes.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from muster.storage.config import LogSettings
from muster.storage.errors import CorruptMessage, DataDirectoryError, StorageError
from muster.storage.files import Files, read_checkpoint, write_offsets
from muster.storage.logs.compaction import compact_log, find_dirty_segments
from muster.storage.logs.log import Log
from muster.storage.logs.producer_state import OnRecord
from muster.storage.logs.retention import RetentionPolicy, apply_retention, retention_policies, unlink_retired_files
from muster.storage.topics.data_dir import CLEANER_POINTS, HIGH_WATERMARKS, LOG_STARTS, PRIVATE_POINTS, RECOVERY_POINTS
from muster.storage.types import TopicPartition

# Recovery points of private logs
# -------------------------------


def write_private_points(files: Files, data_dir: str, logs: Iterable[Log]) -> None:
    """Blocks until it is durable. Raises OSError."""
    logs = list(logs)
    points = {log.partition: log.recovery_point for log in logs}
    write_offsets(files, f"{data_dir}/{PRIVATE_POINTS}", points, {log.partition[0]: log.topic_id for log in logs})


def merge_furthest(
    points: Mapping[TopicPartition, int], others: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """
    >>> merge_furthest({("a", 0): 5}, {("a", 0): 7, ("b", 0): 1})
    {('a', 0): 7, ('b', 0): 1}
    """
    return dict(points) | {tp: max(offset, points.get(tp, 0)) for tp, offset in others.items()}


# Periodic work
# -------------

logger = logging.getLogger("muster.storage")

Marks: TypeAlias = tuple[dict[TopicPartition, int], dict[str, str]]
"""High watermarks, and the ids of their topics."""


def write_high_watermarks(files: Files, data_dir: str, logs: Iterable[Log], known: Marks | None = None) -> Marks:
    """The high watermarks of these logs, the file replaced as a whole, unless it says so already as far as is `known`.

    What it says now.
    """
    logs = list(logs)
    marks = {log.partition: log.high_watermark for log in logs if log.high_watermark}
    ids = {log.partition[0]: log.topic_id for log in logs}
    if known != (marks, ids):
        write_offsets(files, f"{data_dir}/{HIGH_WATERMARKS}", marks, ids)
    return marks, ids


def write_checkpoints(files: Files, data_dir: str, logs: Iterable[Log]) -> None:
    """The recovery points and log starts of these logs, each file replaced as a whole."""
    logs = list(logs)
    ids = {log.partition[0]: log.topic_id for log in logs}
    points = {log.partition: log.recovery_point for log in logs if log.recovery_point}
    starts = {log.partition: log.start_offset for log in logs if log.start_offset}
    write_offsets(files, f"{data_dir}/{RECOVERY_POINTS}", points, ids)
    write_offsets(files, f"{data_dir}/{LOG_STARTS}", starts, ids)


class LogMaintenance:
    """Knows what was done when. How far a log has been compacted it knows itself, so that no other can inherit it."""

    def __init__(self, files: Files, data_dir: str, settings: LogSettings) -> None:
        self._files = files
        self._data_dir = data_dir
        self._settings = settings
        self._last_done: dict[str, int] = {}
        self._complaints: list[str] = []
        # Until somebody says otherwise any fence may be needed.
        self.on_record: OnRecord = lambda fence: True
        # Held while a log is compacted, and while the cleaner's checkpoint is written.
        self._compacting = threading.Lock()
        self._at_work: Log | None = None
        self._writing_points = threading.Lock()
        # The high watermarks that are written down, as far as that is known.
        self._marks: Marks | None = None
        self.ticking = threading.Lock()

    def tick(self, logs: Sequence[Log], now_ms: int, *, compacting: bool, aged: list[Log] | None = None) -> list[str]:
        """Do what is due; a sentence for each piece of work that failed. One that fails holds up none of the others.

        In another thread than the appending one: with `aged` (see `upkeep.retain`).
        """
        with self.ticking:
            return self._tick(logs, now_ms, compacting, aged)

    def _tick(self, logs: Sequence[Log], now_ms: int, compacting: bool, aged: list[Log] | None) -> list[str]:
        self._complaints = []
        settings = self._settings
        sound = [log for log in logs if log.failure is None]
        for log in sound:
            since = log.unflushed_since_ms
            if since is not None and now_ms - since >= log.settings.flush_ms:
                self._try(log.flush, log)
        if self._due("checkpoint", now_ms, settings.flush_offset_checkpoint_interval_ms):
            for log in sound:
                if log.unflushed:  # Where no flush is promised none may come for long.
                    self._try(log.check_place, log)
            self._try(partial(self.checkpoint, logs))
        if self._due("retention", now_ms, settings.retention_check_interval_ms):
            asked: list[RetentionPolicy] = []
            self._try(lambda: asked.extend(retention_policies()))
            for log in sound if asked else ():
                self._try(partial(apply_retention, log, asked, now_ms, aged), log)
                self._try(partial(log.forget_producers, now_ms, settings.producer_id_expiration_ms, self.on_record))
        for log in sound:
            if log.doomed:
                self._try(partial(unlink_retired_files, log, now_ms), log)
        if compacting and self._due("cleaning", now_ms, settings.cleaner_backoff_ms):
            self._try(partial(self.compact, logs, now_ms))
        return self._complaints

    def retain_soon(self, now_ms: int) -> None:
        """Retention is due at the next tick."""
        self._last_done["retention"] = now_ms - self._settings.retention_check_interval_ms

    def _due(self, work: str, now_ms: int, interval_ms: int) -> bool:
        if now_ms - self._last_done.setdefault(work, now_ms) < interval_ms:
            return False
        self._last_done[work] = now_ms
        return True

    def checkpoint(self, logs: Iterable[Log]) -> None:
        """Write the recovery points, log starts and high watermarks down; in any thread."""
        with self._writing_points:
            staying = [log for log in logs if not log.retired]
            write_checkpoints(self._files, self._data_dir, staying)
            self._marks = write_high_watermarks(self._files, self._data_dir, staying)

    def checkpoint_high_watermarks(self, logs: Iterable[Log]) -> None:
        """Write the high watermarks down if they are others than last time; in any thread."""
        with self._writing_points:
            staying = [log for log in logs if not log.retired]
            self._marks = write_high_watermarks(self._files, self._data_dir, staying, self._marks)

    def _try(self, work: Callable[[], object], log: Log | None = None) -> None:
        try:
            work()
        except (StorageError, OSError) as error:
            if log is not None and log.retired:
                return  # It was removed meanwhile.
            self._complaints.append(str(error))
            logger.error("Upkeep of %s: %s", self._data_dir, error)
        except Exception as error:  # a bug, such as one of a retention policy: the other work must go on
            self._complaints.append(repr(error))
            logger.exception("Upkeep of %s", self._data_dir)

    def compact(self, logs: Sequence[Log], now_ms: int) -> TopicPartition | None:
        """Compact the log that needs it most; which one that was. One thread at a time; others wait."""
        with self._compacting:
            return self._compact(logs, now_ms)

    def _compact(self, logs: Sequence[Log], now_ms: int) -> TopicPartition | None:
        parts = [
            find_dirty_segments(log, log.cleaned_to, now_ms)
            for log in logs
            if log.settings.compacted and log.failure is None and not log.let_go and not log.uncleanable
        ]
        chosen = max((part for part in parts if part.due), key=lambda part: (part.overdue, part.ratio), default=None)
        if chosen is None:
            return None
        log = chosen.log
        self._at_work = log
        try:
            log.cleaned_to = compact_log(chosen, now_ms, self._settings.cleaner_dedupe_buffer_size)
        except CorruptMessage:
            # Damage does not heal: the rest of the node's logs must not wait for it.
            log.uncleanable = True
            raise
        finally:
            self._at_work = None
        with self._writing_points:
            staying = [each for each in logs if not each.retired]
            points = {each.partition: each.cleaned_to for each in staying if each.cleaned_to}
            ids = {each.partition[0]: each.topic_id for each in staying}
            write_offsets(self._files, f"{self._data_dir}/{CLEANER_POINTS}", points, ids)
        return log.partition

    def let_go(self, logs: Iterable[Log]) -> None:
        """Compact these logs no more; once this returns, nobody does."""
        going = list(logs)
        for log in going:
            log.let_go = True
        # Whoever begins with one of them after this look sees the flag before it changes anything.
        if self._at_work in going:
            with self._compacting:
                return

    def forget(self, gone: set[TopicPartition]) -> None:
        """Strike removed partitions off the checkpoints, which may be old ones that name no ids."""
        with self._writing_points:
            self._marks = None
            for name in (RECOVERY_POINTS, PRIVATE_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_POINTS):
                self._strike_off(f"{self._data_dir}/{name}", gone)

    def _strike_off(self, path: str, gone: set[TopicPartition]) -> None:
        try:
            known, owners = read_checkpoint(self._files, path)
        except DataDirectoryError as error:
            logger.error("%s", error)
            return
        kept = {tp: offset for tp, offset in known.items() if tp not in gone}
        if len(kept) < len(known):
            write_offsets(self._files, path, kept, owners)
