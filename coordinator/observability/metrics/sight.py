"""What of a node is looked at for an answer: cores and logs, as they are at this moment."""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from muster.coordinator.core.shard import Shard
from muster.coordinator.observability.history.history import PartitionRates

SLICE: Final = 200
"""Partitions that one piece of work goes through: a millisecond or so."""


class SeriesSource(Protocol):
    """The node, to be looked at. Nothing of it may be kept between two pieces of work."""

    def cores(self) -> Iterable[Shard]:
        """The shards that are loaded."""

    def whole(self) -> bool:
        """Whether all of them are."""

    def partitions(self) -> Mapping[str, int]:
        """The number of partitions by topic, internal ones included."""

    def ends(self, topic: str, partitions: range) -> list[int]:
        """Where each of these partitions ends for readers; -1 where its log cannot tell."""

    def starts(self, topic: str, partitions: range) -> list[int]:
        """Where each begins; -1 where its log cannot tell."""

    def rates(self, group_id: str) -> PartitionRates | None:
        """How much is written to each partition that the group reads, as seen over time; None: not known yet."""

    def sizes(self, topic: str, partitions: range) -> int:
        """Bytes of their segments, together."""
