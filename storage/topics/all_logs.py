"""Make, open and close the logs of a data directory: together, with one flush for all where there are many."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from muster.storage.config import LogSettings, TopicSettings
from muster.storage.errors import StorageError
from muster.storage.files import Files, remove_tree
from muster.storage.logs.loader import create_log, flush_recovered, open_log
from muster.storage.logs.log import Log
from muster.storage.logs.open_files import OpenSegments
from muster.storage.topics.catalog import format_id
from muster.storage.topics.plans import TopicPlan
from muster.storage.topics.strays import clear_way, partition_directory
from muster.storage.topics.together import run_together
from muster.storage.types import Topic, TopicPartition

FEW_PARTITIONS = 8
"""From so many on, partitions are flushed together: one flush of the file system, not two of each partition."""

TOLD_AT_ONCE = 256
"""Of logs that are made."""

logger = logging.getLogger("muster.storage")


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
) -> tuple[list[Log], dict[TopicPartition, StorageError]]:
    """The logs, all that was found in them durable, and why the others could not be opened."""

    def one(tp: TopicPartition, of_topic: TopicSettings, topic_id: str, told: bool) -> Log | StorageError:
        directory = partition_directory(data_dir, tp)
        try:
            return open_log(
                files, directory, tp, of_topic, opened, clean=clean,
                recovery_point=points.get(tp, 0), start_offset=starts.get(tp, 0), topic_id=topic_id, told=told,
                sync=False,
            )  # fmt: skip
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
