"""One row for all partitions: topics in order, partition p of topic t at base[t] + p."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = "NDArray[np.signedinteger[Any]]"


@dataclass(frozen=True)
class Axis:
    """All partitions of some topics in one row."""

    topics: tuple[str, ...]
    base: NDArray[np.int64]  # one longer than topics; the last is the number of partitions

    @classmethod
    def of(cls, topics: Sequence[str], counts: Mapping[str, int]) -> Axis:
        base = np.zeros(len(topics) + 1, dtype=np.int64)
        np.cumsum([counts[topic] for topic in topics], out=base[1:])
        return cls(tuple(topics), base)

    @property
    def size(self) -> int:
        return int(self.base[-1])

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        return np.diff(self.base)

    @cached_property
    def place(self) -> dict[str, int]:
        return {topic: number for number, topic in enumerate(self.topics)}

    @cached_property
    def topic_of(self) -> NDArray[np.int32]:
        """Topic number of each partition on the axis."""
        return np.repeat(np.arange(len(self.topics), dtype=np.int32), self.counts)

    def split(self, row: Ints) -> dict[str, list[int]]:
        """Sorted positions on the axis as {topic: [partitions]}."""
        if not len(row):
            return {}
        topics = np.searchsorted(self.base, row, side="right") - 1
        cuts = np.flatnonzero(np.diff(topics)) + 1
        starts = [0, *cuts.tolist()]
        numbers = (row - self.base[topics]).tolist()
        ends = [*starts[1:], len(numbers)]
        which = topics[starts].tolist()
        return {self.topics[topic]: numbers[start:end] for topic, start, end in zip(which, starts, ends, strict=True)}
