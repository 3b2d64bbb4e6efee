"""What changed between two assignments: the ledger's and the simulator's account of moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

Shares: TypeAlias = Mapping[str, Mapping[str, Sequence[int]]]


class OwnerMove(NamedTuple):
    """One partition that changed hands; `source` is None when it had no owner, `target` when it has none."""

    topic: str
    partition: int
    source: str | None
    target: str | None


def list_moves(before: Shares, after: Shares) -> list[OwnerMove]:
    """Partitions whose owner differs, ordered by topic and partition.

    >>> list_moves({"a": {"t": [0, 1]}}, {"a": {"t": [0]}, "b": {"t": [1]}})
    [OwnerMove(topic='t', partition=1, source='a', target='b')]
    """
    was, now = owner_of(before), owner_of(after)
    return [
        OwnerMove(topic, partition, was.get((topic, partition)), now.get((topic, partition)))
        for topic, partition in sorted(was.keys() | now.keys())
        if was.get((topic, partition)) != now.get((topic, partition))
    ]


def owner_of(shares: Shares) -> dict[tuple[str, int], str]:
    """{(topic, partition): member}."""
    return {
        (topic, partition): member
        for member, share in shares.items()
        for topic, partitions in share.items()
        for partition in partitions
    }
