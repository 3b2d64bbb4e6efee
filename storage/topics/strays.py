"""Directories of partitions that are in nobody's way: named, kept, and removed by no program.

As in Kafka, the directory of a partition that the catalog does not name, and for which there is another use of its
name, gets the suffix `-stray`. It holds all that it held; its topic's id is in its name, as far as that is known.
"""

import logging
from collections.abc import Sequence
from itertools import count

from muster.storage.files import Files, remove_tree
from muster.storage.logs.loader import list_segment_bases, read_topic_id
from muster.storage.logs.segment import segment_path
from muster.storage.types import TopicPartition

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
