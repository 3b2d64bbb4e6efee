"""Who reads what in a group of the ZooKeeper era: each member computes it alone, from what it read.

Both algorithms are those of that era (range and round robin of Kafka 0.8.2 to 0.11); all members come to disjoint
shares when they have read the same, and only then.
"""

from collections.abc import Mapping
from functools import lru_cache

import re2

from muster.assignors.builtin.roundrobin_legacy import partition_hash
from muster.client.members.types import TopicPartition
from muster.client.members.zookeeper_types import (
    BLACK_LIST,
    STATIC,
    ClaimedShare,
    ConsumerGroupView,
    GroupRegistration,
    ZookeeperStrategy,
)
from muster.coordinator.core.model import patterns

INTERNAL = "__"

Thread = tuple[str, int]
"""(consumer id, stream number)."""


def compute_share(
    consumer_id: str, view: ConsumerGroupView, strategy: ZookeeperStrategy, exclude_internal: bool = True
) -> ClaimedShare:
    """The partitions of one member, each with the stream that reads it.

    Raises ValueError when what the group registered has no answer: an expression that cannot be read, or a round
    robin over unequal subscriptions.
    """
    wanted = {
        member: resolve_topics(member, registration, view.partitions, exclude_internal)
        for member, registration in view.members.items()
    }
    if strategy is ZookeeperStrategy.ROUNDROBIN:
        return assign_round_robin(consumer_id, wanted, view.partitions)
    mine = wanted.get(consumer_id, {})
    return {
        tp: stream
        for topic in sorted(mine)
        for tp, stream in assign_ranges(consumer_id, topic, list_threads(topic, wanted), view.partitions.get(topic, 0))
    }


def restrict_to_own_topics(consumer_id: str, view: ConsumerGroupView, exclude_internal: bool) -> ConsumerGroupView:
    """The view without the topics that this member does not read: what happens to them is nothing to it.

    Raises ValueError when its own expression cannot be read.
    """
    mine = resolve_topics(consumer_id, view.members[consumer_id], view.partitions, exclude_internal)
    counts = {topic: count for topic, count in view.partitions.items() if topic in mine}
    return ConsumerGroupView(view.members, counts, view.brokers)


def resolve_topics(
    member: str, registration: GroupRegistration, partitions: Mapping[str, int], exclude_internal: bool
) -> dict[str, int]:
    """Topic -> streams, with the one expression of a list resolved among the topics there are."""
    if registration.pattern == STATIC:
        return dict(registration.subscription)
    found: dict[str, int] = {}
    for regex, streams in registration.subscription.items():
        try:
            pattern = compile_pattern(regex)
        except ValueError as error:
            raise ValueError(f"{member} subscribes to {regex!r}, which is no regular expression: {error}") from error
        for topic in partitions:
            if exclude_internal and topic.startswith(INTERNAL):
                continue
            if (pattern.fullmatch(topic) is None) is (registration.pattern == BLACK_LIST):
                found[topic] = streams
    return found


def assign_ranges(consumer_id: str, topic: str, threads: list[Thread], count: int) -> list[tuple[TopicPartition, int]]:
    """Neighbouring partitions per thread; the first threads take one more each when it does not come out even.

    >>> assign_ranges("b", "t", [("a", 0), ("b", 0), ("c", 0)], 5)
    [(('t', 2), 0), (('t', 3), 0)]
    """
    each, rest = divmod(count, len(threads))
    mine = []
    for place, (member, stream) in enumerate(threads):
        if member == consumer_id:
            first = each * place + min(place, rest)
            mine += [((topic, first + number), stream) for number in range(each + (1 if place < rest else 0))]
    return mine


def assign_round_robin(
    consumer_id: str, wanted: Mapping[str, Mapping[str, int]], partitions: Mapping[str, int]
) -> ClaimedShare:
    """All partitions in the order of Java's hash of "[topic,partition]", dealt to all threads in turn."""
    topics = sorted({topic for subscription in wanted.values() for topic in subscription})
    if not topics:
        return {}
    threads = list_threads(topics[0], wanted)
    for topic in topics:
        if list_threads(topic, wanted) != threads:
            raise ValueError(
                "partition.assignment.strategy=roundrobin needs the same topics and the same number of streams per "
                f"topic on every member; {topics[0]!r} is read by {format_threads(threads)}, "
                f"{topic!r} by {format_threads(list_threads(topic, wanted))}; "
                "use range, or make the subscriptions equal"
            )
    order = sorted(
        ((topic, number) for topic in topics for number in range(partitions.get(topic, 0))),
        key=lambda tp: (partition_hash(*tp), tp),
    )
    dealt = ((tp, threads[place % len(threads)]) for place, tp in enumerate(order))
    return {tp: stream for tp, (member, stream) in dealt if member == consumer_id}


def list_threads(topic: str, wanted: Mapping[str, Mapping[str, int]]) -> list[Thread]:
    """The threads that read a topic, in the order of their names: stream 10 comes before stream 2."""
    threads = [(member, stream) for member, topics in wanted.items() for stream in range(topics.get(topic, 0))]
    return sorted(threads, key=lambda thread: f"{thread[0]}-{thread[1]}")


def format_threads(threads: list[Thread]) -> str:
    return ", ".join(f"{member}-{stream}" for member, stream in threads) or "nobody"


@lru_cache(maxsize=256)
def compile_pattern(regex: str) -> "re2._Regexp[str]":
    """The expression, ready to match; every read of the group asks for it again. Raises ValueError."""
    return patterns.compile_pattern(regex)
