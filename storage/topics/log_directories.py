"""Makes, opens, sets aside, removes and closes the partition directories of a data directory.

Many are handled together, with one flush for all, and some at the same time: the work waits for the disk more than it
computes. As in Kafka, the directory of a partition that the catalog does not name, and whose name is needed, gets the
suffix `-stray`. It holds all that it held, it is named in the log, and no program removes it.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, count
from typing import Any, TypeVar

from muster.storage.config import LogSettings, TopicSettings
from muster.storage.errors import StorageError
from muster.storage.files import Files, remove_tree
from muster.storage.logs.loader import (
    LogCheckpoint,
    create_log,
    flush_recovered,
    list_segment_bases,
    open_log,
    read_topic_id,
)
from muster.storage.logs.log import Log
from muster.storage.logs.segment import OpenSegments, segment_path
from muster.storage.topics.catalog import TopicPlan, format_id
from muster.storage.types import Topic, TopicPartition

# Work on many partitions
# -----------------------

Result = TypeVar("Result")

THREADS = 2
"""One waits for the disk while the other computes; more would wait for each other's turn in the interpreter."""

SHARE = 16
"""Partitions that a thread takes at once: to hand one over costs as much as to make one."""


def run_together(work: Callable[..., Result], items: Sequence[tuple[Any, ...]], *, few: int = 256) -> list[Result]:
    """What `work` makes of each item's parts, in the items' order; fewer than `few` are done here, one by one.

    The first error is raised, once whatever had begun has ended.

    >>> run_together(pow, [(2, 3), (3, 2)])
    [8, 9]
    """
    if len(items) < few:
        return [work(*item) for item in items]

    def share(start: int) -> list[Result]:
        return [work(*item) for item in items[start : start + SHARE]]

    with ThreadPoolExecutor(THREADS, thread_name_prefix="partitions") as pool:
        return list(chain.from_iterable(pool.map(share, range(0, len(items), SHARE))))


# Stray directories
# -----------------

STRAY = "-stray"
_NO_ID = "unknown"
_LONGEST_NAME = 255

logger = logging.getLogger("muster.storage")


def partition_directory(data_dir: str, tp: TopicPartition) -> str:
    return f"{data_dir}/{tp[0]}-{tp[1]}"


def clear_way(files: Files, data_dir: str, tp: TopicPartition) -> None:
    """The partition is to be made, yet its directory is there: never take over its records, nor remove any."""
    directory = partition_directory(data_dir, tp)
    if _holds_records(files, directory):
        set_aside_directory(files, data_dir, tp)
    else:
        remove_tree(files, directory)  # left by a creation that did not come to its end


def _holds_records(files: Files, directory: str) -> bool:
    for base in list_segment_bases(files, directory):
        file = files.open(segment_path(directory, base, ".log"), writable=False)
        try:
            if file.size():
                return True
        finally:
            file.close()
    return False


def set_aside_directory(files: Files, data_dir: str, tp: TopicPartition) -> str:
    """Give a partition's directory the name of a stray, durably; that name."""
    directory = partition_directory(data_dir, tp)
    name = _free_name(files.names(data_dir), tp, read_topic_id(files, directory) or _NO_ID)
    files.rename(directory, f"{data_dir}/{name}")
    files.sync_dir(data_dir)
    logger.warning(
        "%s holds records of a partition that this node is not to have: they are kept in %s/%s, and nothing "
        "removes them but you.", directory, data_dir, name,
    )  # fmt: skip
    return name


def _free_name(taken: Sequence[str], tp: TopicPartition, topic_id: str) -> str:
    for number in count(1):
        end = f"-{tp[1]}.{topic_id}{f'.{number}' if number > 1 else ''}{STRAY}"
        name = tp[0][: _LONGEST_NAME - len(end)] + end
        if name not in taken:
            return name
    raise AssertionError("names do not end")


def find_stray(names: Sequence[str], number: int, topic_id: str) -> str | None:
    """Under which of these names a partition of the topic with this id is kept as a stray."""
    return next((name for name in names if name.endswith(f"-{number}.{topic_id}{STRAY}")), None)


# All logs of a data directory
# ----------------------------

FEW_PARTITIONS = 8
"""From so many on, partitions are flushed together: one flush of the file system, not two of each partition."""

TOLD_AT_ONCE = 256
"""Of logs that are made."""


def open_logs(
    files: Files,
    data_dir: str,
    topics: Iterable[Topic],
    settings: LogSettings,
    opened: OpenSegments,
    *,
    clean: bool,
    points: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, int],
    marks: Mapping[TopicPartition, int],
) -> tuple[list[Log], dict[TopicPartition, StorageError]]:
    """The logs, all that was found in them durable, and why the others could not be opened.

    marks: the high watermarks of logs of a cluster.
    """

    def one(tp: TopicPartition, of_topic: TopicSettings, topic_id: str, told: bool) -> Log | StorageError:
        directory = partition_directory(data_dir, tp)
        try:
            checkpoint = LogCheckpoint(clean, points.get(tp, 0), starts.get(tp, 0), marks.get(tp, 0) if told else None)
            return open_log(
                files, directory, tp, of_topic, opened, checkpoint, topic_id=topic_id, told=told, sync=False
            )
        except (FileNotFoundError, NotADirectoryError):
            return _gone(directory, tp)
        except StorageError as error:
            logger.error("%s", error)
            return error

    wanted = []
    for topic in topics:
        facts = (settings.for_topic(topic.configs), format_id(topic.id), topic.held is not None)
        wanted += [((topic.name, number), *facts) for number in topic.here]
    found = run_together(one, wanted)
    logs = [log for log in found if isinstance(log, Log)]
    _flush_found(files, data_dir, [log for log in logs if log.recovered.unflushed])
    return logs, {tp: log for (tp, *_), log in zip(wanted, found, strict=True) if isinstance(log, StorageError)}


def _gone(directory: str, tp: TopicPartition) -> StorageError:
    return StorageError(
        f"The directory {directory} of partition {tp[0]}-{tp[1]} is gone. Restore it from a copy; in a cluster it is "
        "made anew from another node's, once nobody counts on this one."
    )


def _flush_found(files: Files, data_dir: str, logs: Sequence[Log]) -> None:
    """A dead process may have written what it never flushed: from now on that counts as durable."""
    if len(logs) >= FEW_PARTITIONS:
        files.sync_all(data_dir)
    else:
        for log in logs:
            flush_recovered(log.segment_list.active)


def make_logs(
    files: Files, data_dir: str, plan: TopicPlan, opened: OpenSegments, now_ms: int, made: Callable[[int], None]
) -> list[Log]:
    """The new logs of a plan, empty. From FEW_PARTITIONS on none is flushed for itself: that is the caller's then.

    `made` hears how many there are more, every now and then.
    """
    wanted = [((plan.topic.name, number),) for number in range(plan.first, plan.topic.partitions)]
    topic_id, sync = format_id(plan.topic.id), len(wanted) < FEW_PARTITIONS

    def one(tp: TopicPartition) -> Log:
        directory = partition_directory(data_dir, tp)
        if files.is_dir(directory):
            clear_way(files, data_dir, tp)
        return create_log(files, directory, tp, plan.settings, opened, now_ms=now_ms, topic_id=topic_id, sync=sync)

    logs: list[Log] = []
    for start in range(0, len(wanted), TOLD_AT_ONCE):
        some = run_together(one, wanted[start : start + TOLD_AT_ONCE])
        logs += some
        made(len(some))
    return logs


def remove_logs(files: Files, data_dir: str, partitions: Iterable[TopicPartition]) -> None:
    """Remove the directories of these partitions, as far as they are there."""

    def one(directory: str) -> None:
        if files.is_dir(directory):
            remove_tree(files, directory)

    run_together(one, [(partition_directory(data_dir, tp),) for tp in partitions])


def close_logs(files: Files, data_dir: str, logs: Sequence[Log]) -> bool:
    """Close the logs; whether all went in order, and what they wrote down is durable. OSError when it is not."""
    many = len(logs) >= FEW_PARTITIONS
    clean = all(run_together(_close, [(log, not many) for log in logs]))
    if many:
        files.sync_all(data_dir)
    return clean


def _close(log: Log, sync: bool) -> bool:
    try:
        log.close(sync=sync)
    except (OSError, StorageError) as error:
        logger.error("Closing %s-%d failed: %s", *log.partition, error)
        return False
    return log.failure is None
