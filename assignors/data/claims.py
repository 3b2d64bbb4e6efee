"""Who rightfully owns a partition when members' claims disagree (KAFKA-12984, KAFKA-13419, KAFKA-14639)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster.assignors.data.values import Member

NOBODY = -1


def rightful_owners(topics: Mapping[str, int], members: Sequence[Member]) -> dict[tuple[str, int], str]:
    """{(topic, partition): member id}: the newest generation wins, a tie at the top is nobody's.

    Claims to partitions that do not exist, and winners who no longer subscribe, count for nothing.
    """
    held = owner_table(topics, members)
    return {
        (topic, partition): members[owner].id
        for topic, table in held.items()
        for partition, owner in enumerate(table)
        if owner != NOBODY
    }


def owner_table(topics: Mapping[str, int], members: Sequence[Member]) -> dict[str, list[int]]:
    """{topic: owner by partition}, owners as indices into `members`; topics nobody claims are left out."""
    table: dict[str, list[int]] = {}
    newest: dict[str, list[int]] = {}
    for index, member in enumerate(members):
        generation = member.generation
        for topic, partitions in (member.owned or {}).items():
            holders = table.get(topic)
            if holders is None:
                count = topics.get(topic, 0)
                holders = table[topic] = [NOBODY] * count
                newest[topic] = [_BEFORE_ALL] * count
            since = newest[topic]
            # A partition that one member lists twice is no conflict; nearly always it lists one.
            for partition in partitions if len(partitions) == 1 else set(partitions):
                if not 0 <= partition < len(holders):
                    continue
                if generation > since[partition]:
                    since[partition] = generation
                    holders[partition] = index
                elif generation == since[partition]:
                    holders[partition] = NOBODY
    _lose(table, members)
    return table


def _lose(table: dict[str, list[int]], members: Sequence[Member]) -> None:
    """Who no longer subscribes to a topic has lost it."""
    wanted = {topics: frozenset(topics) for topics in {member.topics for member in members}}
    everywhere = frozenset.intersection(*wanted.values()) if wanted else frozenset()
    for topic, holders in table.items():
        if topic in everywhere:
            continue
        lost = {index for index in set(holders) if index != NOBODY and topic not in wanted[members[index].topics]}
        if lost:
            table[topic] = [NOBODY if index in lost else index for index in holders]


def raw_claims(members: Sequence[Member]) -> dict[tuple[str, int], set[str]]:
    """Every claim as reported, right or wrong: a member that claims a partition may still be reading it."""
    claimed: dict[tuple[str, int], set[str]] = {}
    for member in members:
        for topic, partitions in (member.owned or {}).items():
            for partition in partitions:
                claimed.setdefault((topic, partition), set()).add(member.id)
    return claimed


def find_claimants(members: Iterable[Member], asked: Mapping[str, set[int]]) -> dict[tuple[str, int], str | None]:
    """Who claims each partition that is asked for, right or wrong; None where several do."""
    found: dict[tuple[str, int], str | None] = {}
    for member in members:
        owned = member.owned
        if not owned:
            continue
        for topic, partitions in asked.items():
            for partition in owned.get(topic, ()):
                if partition in partitions and found.setdefault((topic, partition), member.id) != member.id:
                    found[topic, partition] = None
    return found


_BEFORE_ALL = -(1 << 40)
