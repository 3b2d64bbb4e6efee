"""How far the node's private logs were durable when their last write was acknowledged.

The recovery points of all logs are written once in a while: what comes behind them, and cannot be read after a crash,
is cut off as the torn end of a write that nobody counted on. Of a private log nothing that was acknowledged may be
missing without a word (a denial among it), so that its point is written with each of its writes.
"""

from collections.abc import Iterable, Mapping

from muster.storage.checkpoint import write_offsets
from muster.storage.files import Files
from muster.storage.logs.log import Log
from muster.storage.topics.data_dir import PRIVATE_POINTS
from muster.storage.types import TopicPartition


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
