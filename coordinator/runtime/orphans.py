"""Positions of topics that are no more: which topics those are, and what is told of what went with them."""

from collections import Counter
from collections.abc import Mapping

from muster.coordinator.core.model.core_events import TopicsChanged
from muster.coordinator.core.requests.offsets import is_orphaned

ORPHANS_NAMED = 5
"""Topics that are named of those whose positions a load has dropped."""


def recreated_topics(before: Mapping[str, bytes], now: Mapping[str, bytes]) -> tuple[str, ...]:
    """Topics with another id than they had: deleted and created between two looks at the catalog.

    >>> recreated_topics({"t": b"1", "u": b"2"}, {"t": b"3", "v": b"4"})
    ('t',)
    """
    return tuple(topic for topic, topic_id in before.items() if now.get(topic, topic_id) != topic_id)


def describe_dropped_orphans(committed_to: Mapping[tuple[str, bytes], int], topics: TopicsChanged | None) -> str:
    """What is told of the positions that a load drops; empty when there are none, or nobody has told of the topics."""
    if topics is None:
        return ""
    dropped = Counter[str]()
    for (topic, topic_id), count in committed_to.items():
        if is_orphaned(topic, topic_id, topics.partitions, topics.ids):
            dropped[topic] += count
    if not dropped:
        return ""
    named = ", ".join(f"{topic} ({count})" for topic, count in dropped.most_common(ORPHANS_NAMED))
    more = f" and of {len(dropped) - ORPHANS_NAMED} more" if len(dropped) > ORPHANS_NAMED else ""
    return f"positions were dropped, whose topics are gone or were made anew since they were committed: {named}{more}"
