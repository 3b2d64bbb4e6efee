"""Who rightfully owns a partition when members' claims disagree (KAFKA-12984, KAFKA-13419, KAFKA-14639)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster.assignors.data.values import Member

NOBODY = -1


def owners(topics: Mapping[str, int], members: Sequence[Member]) -> dict[tuple[str, int], str]:
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
            count = topics.get(topic, 0)
            if topic not in table:
                table[topic] = [NOBODY] * count
                newest[topic] = [_BEFORE_ALL] * count
            _claim(table[topic], newest[topic], partitions, index, generation)
    wanted = [frozenset(member.topics) for member in members]
    for topic, holders in table.items():
        lost = {index for index in set(holders) if index != NOBODY and topic not in wanted[index]}
        if lost:
            table[topic] = [NOBODY if index in lost else index for index in holders]
    return table


def raw_claims(members: Sequence[Member]) -> dict[tuple[str, int], set[str]]:
    """Every claim as reported, right or wrong: a member that claims a partition may still be reading it."""
    claimed: dict[tuple[str, int], set[str]] = {}
    for member in members:
        for topic, partitions in (member.owned or {}).items():
            for partition in partitions:
                claimed.setdefault((topic, partition), set()).add(member.id)
    return claimed


_BEFORE_ALL = -(1 << 40)


def _claim(holders: list[int], newest: list[int], partitions: Iterable[int], index: int, generation: int) -> None:
    count = len(holders)
    claimed = set(partitions)  # A partition listed twice by one member is no conflict.
    for partition in claimed:
        if not 0 <= partition < count:
            continue
        if generation > newest[partition]:
            newest[partition] = generation
            holders[partition] = index
        elif generation == newest[partition]:
            holders[partition] = NOBODY
