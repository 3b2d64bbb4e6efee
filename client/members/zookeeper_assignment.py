"""What a ZooKeeper-based consumer reads of its group, and the assignment that it computes from it.

Every member computes the assignment alone, with the range or round-robin algorithm of Kafka 0.8.2 to 1.1. The
members' shares are disjoint if all of them read the same group by the same rules, and only then. Two consecutive views
also tell the cause of a rebalance, as far as a member can know it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import TypeAlias

import re2

from muster.assignors.api import TopicPartition
from muster.assignors.builtin.roundrobin import java_hash, partition_hash
from muster.coordinator.core.model import rights
from muster.coordinator.core.model.types import Cause

# Group view and settings
# -----------------------

ClaimedShare: TypeAlias = dict[TopicPartition, int]
"""Partition -> the number of the stream that reads it."""

STATIC, WHITE_LIST, BLACK_LIST = "static", "white_list", "black_list"


@dataclass(frozen=True, slots=True)
class GroupRegistration:
    """What a member's node in `ids` says: topic -> streams, or one expression -> streams with a list pattern."""

    subscription: Mapping[str, int]
    pattern: str = STATIC


def build_registration(topics: Iterable[str], regex: str, black_list: bool, streams: int) -> GroupRegistration:
    """Topics by name, or one expression. Raises ValueError for both at once: a registration has one pattern.

    >>> build_registration(("b", "a"), "", False, 1)
    GroupRegistration(subscription={'a': 1, 'b': 1}, pattern='static')
    """
    names = sorted(set(topics))
    if names and regex:
        raise ValueError(
            f"a consumer of the ZooKeeper era subscribes by names or by patterns, not by both: {', '.join(names)} and "
            f"{regex!r}; give one kind"
        )
    if regex:
        return GroupRegistration({regex: streams}, BLACK_LIST if black_list else WHITE_LIST)
    return GroupRegistration(dict.fromkeys(names, streams))


@dataclass(frozen=True, slots=True)
class ConsumerGroupView:
    """Everything that an assignment depends on, as one member read it: it may be older than what another one read."""

    members: Mapping[str, GroupRegistration] = field(default_factory=dict)
    partitions: Mapping[str, int] = field(default_factory=dict)
    """Partition counts of the topics that members subscribe to; of all topics when one of them has a pattern."""
    brokers: tuple[int, ...] = ()


INTERNAL = "__"
OFFSETS_TOPIC, TRANSACTIONS_TOPIC = "__consumer_offsets", "__transaction_state"


@dataclass(frozen=True, slots=True)
class EraRules:
    """Where the releases of Kafka differ in a member's share. No registration shows the release of a member.

    Sources: `RoundRobinAssignor`, `TopicAndPartition`, `TopicFilter` and `Topic` of each release; `tests/era` compares
    shares with theirs.
    """

    internal_topics: frozenset[str] | None = None
    """The topics that no pattern selects; None: all that begin with two underscores."""
    unequal_round_robin: bool = False
    """Whether the turn passes over threads that do not read a topic, instead of failing."""
    dashed_order: bool = False
    """Whether round robin orders partitions by the hash of "topic-partition", not by that of "[topic,partition]"."""

    def excludes(self, topic: str) -> bool:
        """Whether a topic is internal."""
        return topic.startswith(INTERNAL) if self.internal_topics is None else topic in self.internal_topics

    def hash_partition(self, topic: str, partition: int) -> int:
        """What round robin orders by."""
        return java_hash(f"{topic}-{partition}") if self.dashed_order else partition_hash(topic, partition)


OWN_RULES = EraRules()
"""Of a group without consumers of Kafka; with names and equal subscriptions also those of 0.8.2 to 0.11."""


def find_era_rules(version: str) -> EraRules:
    """The rules of a release, patch levels included. Raises ValueError for one without such consumers.

    >>> find_era_rules("0.10.2.2").unequal_round_robin, find_era_rules("1.1").dashed_order
    (True, True)
    """
    found = re.fullmatch(r"([01])\.(\d{1,2})(\.\d{1,2}){0,2}", version)
    release = (int(found[1]), int(found[2])) if found else (0, 0)
    if not (0, 8) <= release <= (1, 1):
        raise ValueError("expected a release of Kafka that has ZooKeeper-based consumers, 0.8.2 to 1.1")
    internal = {OFFSETS_TOPIC, TRANSACTIONS_TOPIC} if release >= (0, 11) else {OFFSETS_TOPIC}
    return EraRules(frozenset(internal), release >= (0, 10), release >= (1, 0))


@dataclass(frozen=True, slots=True)
class ZookeeperMemberSettings:
    """How this consumer takes part. `rebalance_retries` are attempts after the first one."""

    group_id: str
    strategy: str = "range"
    rebalance_retries: int = 4
    rebalance_backoff_ms: int = 2_000
    session_timeout_ms: int = 6_000
    exclude_internal_topics: bool = True
    streams: int = 1
    rules: EraRules = OWN_RULES

    @property
    def patience_ms(self) -> int:
        """How long a rebalance waits for somebody else's claim to go, all retries together."""
        return self.rebalance_retries * self.rebalance_backoff_ms


class ZookeeperSession(Enum):
    """The session with ZooKeeper: in touch, out of touch but alive, or over."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class ZookeeperStrategy(Enum):
    """`partition.assignment.strategy` of that era."""

    RANGE = "range"
    ROUNDROBIN = "roundrobin"


def check_retry_time(settings: ZookeeperMemberSettings) -> str:
    """What to say at start-up about retries that a dead owner outlives, with the arithmetic; "" when there is room.

    A member that dies leaves its owner nodes behind until its session ends. A rebalance that gives up before that
    fails for a reason that would have gone away by itself.

    >>> check_retry_time(ZookeeperMemberSettings("g", rebalance_retries=4, rebalance_backoff_ms=1000))
    'rebalance.max.retries=4 x rebalance.backoff.ms=1000 = 4000 ms is shorter than \
zookeeper.session.timeout.ms=6000: the claims of a dead member outlive every attempt, and rebalances fail after it; \
raise one of the two until there is more than 9000 ms'
    >>> check_retry_time(ZookeeperMemberSettings("g", rebalance_retries=5))
    ''
    """
    timeout_ms = settings.session_timeout_ms
    ample_ms = timeout_ms * 3 // 2
    if settings.patience_ms >= ample_ms:
        return ""
    product = (
        f"rebalance.max.retries={settings.rebalance_retries} x rebalance.backoff.ms={settings.rebalance_backoff_ms}"
        f" = {settings.patience_ms} ms"
    )
    session = f"zookeeper.session.timeout.ms={timeout_ms}"
    if settings.patience_ms < timeout_ms:
        return (
            f"{product} is shorter than {session}: the claims of a dead member outlive every attempt, and rebalances "
            f"fail after it; raise one of the two until there is more than {ample_ms} ms"
        )
    return (
        f"{product} is near {session}: ZooKeeper may take half as long again to end a session, and then a rebalance "
        f"after a death fails; raise one of the two until there is more than {ample_ms} ms"
    )


# Assignment
# ----------

Thread = tuple[str, int]
"""(consumer id, stream number)."""


def compute_share(
    consumer_id: str,
    view: ConsumerGroupView,
    strategy: ZookeeperStrategy,
    exclude_internal: bool = True,
    rules: EraRules = OWN_RULES,
) -> ClaimedShare:
    """The partitions of one member, each with the stream that reads it.

    Raises ValueError when what the group registered has no answer: an expression that cannot be read, or a round
    robin over unequal subscriptions.
    """
    wanted = {
        member: resolve_topics(member, registration, view.partitions, exclude_internal, rules)
        for member, registration in view.members.items()
    }
    if strategy is ZookeeperStrategy.ROUNDROBIN:
        return assign_round_robin(consumer_id, wanted, view.partitions, rules)
    mine = wanted.get(consumer_id, {})
    return {
        tp: stream
        for topic in sorted(mine)
        for tp, stream in assign_ranges(consumer_id, topic, list_threads(topic, wanted), view.partitions.get(topic, 0))
    }


def restrict_to_own_topics(
    consumer_id: str, view: ConsumerGroupView, exclude_internal: bool, rules: EraRules
) -> ConsumerGroupView:
    """The view without the topics that this member does not read: what happens to them is nothing to it.

    Raises ValueError when its own expression cannot be read.
    """
    mine = resolve_topics(consumer_id, view.members[consumer_id], view.partitions, exclude_internal, rules)
    counts = {topic: count for topic, count in view.partitions.items() if topic in mine}
    return ConsumerGroupView(view.members, counts, view.brokers)


def resolve_topics(
    member: str,
    registration: GroupRegistration,
    partitions: Mapping[str, int],
    exclude_internal: bool,
    rules: EraRules = OWN_RULES,
) -> dict[str, int]:
    """Topic -> streams, with the one expression of a list resolved among the topics there are."""
    if registration.pattern == STATIC:
        return dict(registration.subscription)
    found: dict[str, int] = {}
    for regex, streams in registration.subscription.items():
        try:
            pattern = compile_pattern(normalize_expression(regex))
        except ValueError as error:
            raise ValueError(f"{member} subscribes to {regex!r}, which is not a regular expression: {error}") from error
        for topic in partitions:
            if exclude_internal and rules.excludes(topic):
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
    consumer_id: str, wanted: Mapping[str, Mapping[str, int]], partitions: Mapping[str, int], rules: EraRules
) -> ClaimedShare:
    """All partitions in the order of their hash, dealt to all threads in turn."""
    readers = {
        topic: list_threads(topic, wanted) for topic in sorted({each for some in wanted.values() for each in some})
    }
    if not rules.unequal_round_robin:
        check_equal_subscriptions(readers)
    threads = sort_threads({thread for some in readers.values() for thread in some})
    reading = {topic: frozenset(some) for topic, some in readers.items()}
    order = sorted(
        ((topic, number) for topic in readers for number in range(partitions.get(topic, 0))),
        key=lambda tp: (rules.hash_partition(*tp), tp),
    )
    share: ClaimedShare = {}
    turn = 0
    for topic, number in order:
        while (thread := threads[turn % len(threads)]) not in reading[topic]:
            turn += 1
        turn += 1
        if thread[0] == consumer_id:
            share[topic, number] = thread[1]
    return share


def check_equal_subscriptions(readers: Mapping[str, list[Thread]]) -> None:
    """Raise ValueError unless all topics are read by the same threads: so round robin until 0.9 wants it."""
    for topic, threads in readers.items():
        first = next(iter(readers))
        if threads != readers[first]:
            raise ValueError(
                "partition.assignment.strategy=roundrobin needs the same topics and the same number of streams per "
                f"topic on every member; {first!r} is read by {format_threads(readers[first])}, "
                f"{topic!r} by {format_threads(threads)}; "
                "use range, or make the subscriptions equal"
            )


def list_threads(topic: str, wanted: Mapping[str, Mapping[str, int]]) -> list[Thread]:
    """The threads that read a topic, in the order of their names."""
    return sort_threads((member, stream) for member, topics in wanted.items() for stream in range(topics.get(topic, 0)))


def sort_threads(threads: Iterable[Thread]) -> list[Thread]:
    """In the order of their names: stream 10 comes before stream 2."""
    return sorted(threads, key=lambda thread: f"{thread[0]}-{thread[1]}")


def format_threads(threads: list[Thread]) -> str:
    return ", ".join(f"{member}-{stream}" for member, stream in threads) or "nobody"


def normalize_expression(regex: str) -> str:
    """An expression as the era's consumers read a registered one (`TopicFilter`): a comma is a `|`.

    >>> normalize_expression(" 'orders, bills' ")
    'orders|bills'
    """
    return re.sub(r"^[\"']+|[\"']+$", "", regex.strip().replace(",", "|").replace(" ", ""))


@lru_cache(maxsize=256)
def compile_pattern(regex: str) -> "re2._Regexp[str]":
    """The expression, ready to match; every read of the group asks for it again. Raises ValueError."""
    return rights.compile_pattern(regex)


# Cause of a rebalance
# --------------------

MAX_NAMES = 5


def find_rebalance_cause(
    before: ConsumerGroupView | None, now: ConsumerGroupView, consumer_id: str
) -> tuple[Cause, str]:
    """The cause and its detail; the most telling one when several things changed at once.

    >>> from muster.client.members.zookeeper_assignment import GroupRegistration
    >>> one, two = ConsumerGroupView({"a": GroupRegistration({"t": 1})}), ConsumerGroupView({x: GroupRegistration({"t":
    ... 1}) for x in "ab"})
    >>> find_rebalance_cause(one, two, "a")
    (<Cause.MEMBER_JOINED: 1>, 'b joined')
    """
    if before is None:
        return Cause.MEMBER_JOINED, f"{consumer_id} joined"
    came, gone = set(now.members) - set(before.members), set(before.members) - set(now.members)
    changed = {each for each in now.members if each in before.members and now.members[each] != before.members[each]}
    details = [
        f"{shorten_names(names)} {verb}"
        for names, verb in ((came, "joined"), (gone, "left, or its session ended"), (changed, "changed"))
        if names
    ]
    if came or gone:
        return Cause.MEMBER_JOINED if came else Cause.MEMBER_LEFT, "; ".join(details)
    if changed:
        return Cause.MEMBER_METADATA_CHANGED, "; ".join(details)
    topics = sorted({*before.partitions, *now.partitions})
    counts = [(topic, before.partitions.get(topic, 0), now.partitions.get(topic, 0)) for topic in topics]
    if moved := [f"{topic} {old} -> {new}" for topic, old, new in counts if old != new]:
        return Cause.PARTITIONS_CHANGED, shorten_names(set(moved))
    if before.brokers != now.brokers:
        return Cause.BROKERS_CHANGED, f"brokers {list(before.brokers)} -> {list(now.brokers)}"
    return Cause.UNSPECIFIED, ""


def shorten_names(names: set[str]) -> str:
    """All of a few names, the first of many."""
    listed = ", ".join(sorted(names)[:MAX_NAMES])
    return listed if len(names) <= MAX_NAMES else f"{listed} and {len(names) - MAX_NAMES} more"
