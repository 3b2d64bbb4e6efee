"""Positions of topics that are no more: which topics those are, and what is told of what went with them."""

from collections import Counter
from collections.abc import Mapping, Sequence

from muster.coordinator.core.records import OffsetDeleted, Record

ORPHANS_NAMED = 5
"""Topics that are named of those whose positions a load has dropped."""


def made_anew(before: Mapping[str, bytes], now: Mapping[str, bytes]) -> tuple[str, ...]:
    """Topics with another id than they had: deleted and created between two looks at the catalog.

    >>> made_anew({"t": b"1", "u": b"2"}, {"t": b"3", "v": b"4"})
    ('t',)
    """
    return tuple(topic for topic, topic_id in before.items() if now.get(topic, topic_id) != topic_id)


def orphans_dropped(records: Sequence[Record]) -> str:
    """What is told of the positions that a load has dropped; empty when there are none."""
    dropped = Counter(record.topic for record in records if isinstance(record, OffsetDeleted))
    if not dropped:
        return ""
    named = ", ".join(f"{topic} ({count})" for topic, count in dropped.most_common(ORPHANS_NAMED))
    more = f" and of {len(dropped) - ORPHANS_NAMED} more" if len(dropped) > ORPHANS_NAMED else ""
    return f"positions were dropped, whose topics are gone or were made anew since they were committed: {named}{more}"
