"""Which topics a member may be given and may know of, and the regular expressions that stand for topic names.

The edge sends a member's rights with each of its joins; nothing is looked up here. A plan of the coordinator gives no
topic to a member that may not read it, and a pattern matches no topic that its member may not describe. Plans made by
clients are their own: as in Kafka, only the fetch is refused.

Patterns use RE2 syntax, so that matching takes linear time regardless of who wrote the expression.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

import re2

from muster.coordinator.values import frozen_value

# Patterns
# --------

MAX_REGEX_CHARS = 4_096
MAX_REGEX_MEMORY = 1 << 20
"""Bytes that one compiled expression and its matching may take."""


def compile_pattern(regex: str) -> "re2._Regexp[str]":
    """The expression, ready to match. Raises ValueError saying what is wrong with it."""
    if len(regex) > MAX_REGEX_CHARS:
        raise ValueError(f"it has {len(regex)} characters; at most {MAX_REGEX_CHARS} are accepted")
    options = re2.Options()
    options.max_mem = MAX_REGEX_MEMORY
    options.log_errors = False
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        why = error.args[0] if error.args else "unreadable"
        raise ValueError(why.decode("utf-8", "replace") if isinstance(why, bytes) else str(why)) from error


# Rights
# ------

TOLD: Final = 3
"""Topics that a sentence names."""
REMEMBERED: Final = 64
"""Selections that are kept: members of one principal subscribe alike."""


@dataclass(frozen=True, slots=True)
class TopicNames:
    """A set of topics: some by name, some by how they begin, or every one."""

    literal: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    every: bool = False

    def __contains__(self, topic: str) -> bool:
        return self.every or topic in self.literal or topic.startswith(self.prefixes)


NONE: Final = TopicNames()


@dataclass(frozen=True, slots=True)
class TopicRights:
    """Of one principal at one address, as `who` has it. What is denied is denied, whatever is allowed."""

    who: str
    read: TopicNames = NONE
    never_read: TopicNames = NONE
    describe: TopicNames = NONE
    never_describe: TopicNames = NONE
    ruled: TopicNames | None = None
    """The topics that any list names at all, where the others are everybody's; None: they are nobody's."""

    def may_read(self, topic: str) -> bool:
        return topic not in self.never_read and (topic in self.read or self._free(topic))

    def may_describe(self, topic: str) -> bool:
        return topic not in self.never_describe and (topic in self.describe or self._free(topic))

    def _free(self, topic: str) -> bool:
        return self.ruled is not None and topic not in self.ruled


Rights: TypeAlias = TopicRights | None
"""None: everything, for nobody is asked; or of a member that has not been heard since the log was read."""


@frozen_value
class RightsAnew:
    """The lists have changed, and so what these may: of everybody the edge has spoken of, as far as it is otherwise."""

    rights: Mapping[str, TopicRights]
    """By `who`."""


def readable_topics(rights: Rights, topics: frozenset[str]) -> frozenset[str]:
    """Those that may be given to the member."""
    return topics if rights is None else describable_topics(rights, topics)


@lru_cache(REMEMBERED)
def describable_topics(rights: TopicRights, topics: frozenset[str]) -> frozenset[str]:
    return frozenset(topic for topic in topics if rights.may_read(topic) and rights.may_describe(topic))


def refreshed_rights(rights: Rights, event: RightsAnew) -> Rights:
    """What the member may from now on."""
    return rights if rights is None else event.rights.get(rights.who, rights)


def describe_rights_change(before: frozenset[str], now: frozenset[str]) -> str:
    """In words.

    >>> describe_rights_change(frozenset({"a", "b"}), frozenset({"b", "c"}))
    'may no longer read a, and may read c'
    """
    lost, won = before - now, now - before
    parts = [f"may no longer read {name_some(lost)}"] * bool(lost) + [f"may read {name_some(won)}"] * bool(won)
    return ", and ".join(parts)


def name_some(topics: frozenset[str]) -> str:
    more = f" and {len(topics) - TOLD} more" if len(topics) > TOLD else ""
    return ", ".join(sorted(topics)[:TOLD]) + more
