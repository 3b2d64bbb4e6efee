"""What a consumer subscribed to: topic names, and patterns that begin with ^."""

import logging
import re
from collections.abc import Iterable, Sequence

from muster.client.calls.catalog import PartitionCounts, match_topics
from muster.client.config import ConsumerConfig
from muster.client.errors import ClientError, IllegalState
from muster.client.members.assign import compile_pattern as compiled_re2
from muster.client.membership.seam import Interest
from muster.client.zookeeper_config import ZNODE_NAME, is_znode_name

MAX_TOPICS = 10_000
NAMES_SHOWN = 5
WARNED_ELSEWHERE = ("zookeeper", "central")

log = logging.getLogger("muster.client")


class TopicSubscription:
    """Names and patterns as they were given last. `resolved_there`: somebody else finds a pattern's topics."""

    def __init__(self, catalog: PartitionCounts, config: ConsumerConfig, resolved_there: bool) -> None:
        self._catalog = catalog
        self._config = config
        self._resolved_there = resolved_there
        self._names: frozenset[str] = frozenset()
        self._patterns: tuple[re.Pattern[str], ...] = ()
        self._black_list = False
        self._missed: set[str] = set()

    @property
    def looks_for_topics(self) -> bool:
        """Whether new topics may change what is subscribed to, and it is for the consumer to look."""
        return bool(self._patterns) and not self._resolved_there

    @property
    def _in_zookeeper(self) -> bool:
        return self._config.group_protocol == "zookeeper"

    def change(self, topics: Sequence[str], black_list: bool = False) -> None:
        if len(topics) > MAX_TOPICS:
            raise IllegalState(f"{len(topics)} topics are too many; at most {MAX_TOPICS} can be subscribed to")
        names = frozenset(topic for topic in topics if not topic.startswith("^"))
        patterns = tuple(compile_topic_pattern(topic) for topic in topics if topic.startswith("^"))
        if black_list and (names or not patterns or not self._in_zookeeper):
            raise IllegalState(
                "black_list=True takes patterns that begin with ^ and nothing else, with group.protocol=zookeeper; "
                f"got {', '.join(map(repr, topics)) or 'no topics'} with {self._config.group_protocol}"
            )
        if names and patterns and self._in_zookeeper:
            raise IllegalState(
                "a consumer of the ZooKeeper era subscribes by names or by patterns, not by both: "
                f"{', '.join(map(repr, topics))}; give one kind"
            )
        if self._in_zookeeper:
            if strange := [name for name in topics if name in names and not is_znode_name(name)]:
                raise IllegalState(f"a topic is a znode in ZooKeeper, {ZNODE_NAME}; got {strange[0]!r}")
            check_shared_patterns(patterns)
        self._names, self._patterns, self._black_list = names, patterns, black_list

    def given(self) -> set[str]:
        """Names and patterns, as they were given."""
        return {*self._names, *(pattern.pattern for pattern in self._patterns)}

    async def tell_what_is_missing(self) -> None:
        """Say in the log which topics do not exist, of each once: a consumer that reads nothing looks like an idle one.

        Not where another node than the one that is asked may have the topic, or where the coordinator tells it.
        """
        if self._config.group_protocol in WARNED_ELSEWHERE or not (names := self._names - self._missed):
            return
        try:
            missing = sorted(names - (await self._catalog.fetch(names)).keys())
        except ClientError as error:
            log.warning("%s", error)
            return
        self._missed.update(missing)
        if missing:
            log.warning("%s", describe_missing_topics(missing))

    async def interest(self) -> Interest:
        """What it comes to now: names alone where the consumer itself resolves patterns."""
        if not self.looks_for_topics:
            return Interest(tuple(sorted(self._names)), self._regex, self._black_list)
        everything = await self._catalog.fetch_all(include_internal=not self._config.exclude_internal_topics)
        return Interest(tuple(sorted(self._names | match_topics(self._patterns, everything))))

    @property
    def _regex(self) -> str:
        """The patterns as one expression that matches whole names."""
        return "|".join(f"(?:{pattern.pattern}).*" for pattern in self._patterns)


def describe_missing_topics(missing: Sequence[str]) -> str:
    """
    >>> describe_missing_topics(["orders"])
    "no such topic: 'orders'; nothing can be read of it before it is created (muster topics create orders)"
    """
    names = ", ".join(map(repr, missing[:NAMES_SHOWN]))
    more = f" and {len(missing) - NAMES_SHOWN} more" if len(missing) > NAMES_SHOWN else ""
    them, are = ("it", "it is") if len(missing) == 1 else ("them", "they are")
    create = f"muster topics create {missing[0]}"
    return f"no such topic: {names}{more}; nothing can be read of {them} before {are} created ({create})"


def check_shared_patterns(patterns: Iterable[re.Pattern[str]]) -> None:
    """Every consumer of a group in ZooKeeper resolves the patterns of all others, so what one cannot read stops all."""
    for pattern in patterns:
        try:
            compiled_re2(pattern.pattern)
        except ValueError as error:
            raise IllegalState(f"{pattern.pattern!r} is not a regular expression in RE2 syntax: {error}") from None


def compile_topic_pattern(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise IllegalState(f"{pattern!r} is not a regular expression: {error}") from None
