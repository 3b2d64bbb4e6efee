"""What a node of a cluster tells of it: figures by Kafka's names. A node on its own has none of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class ClusterFigures:
    """At one moment. Of partitions that this node leads, and of what it decided as controller, since it began."""

    under_replicated: int = 0
    under_min_isr: int = 0
    offline: int = 0
    """Told by the controller only."""
    controllers: int = 0
    elections: int = 0
    elections_s: float = 0.0
    unclean: int = 0
    isr_shrinks: int = 0
    isr_expands: int = 0
    max_lag: int = 0
    """Records between what is committed at a leader and what is here, of the copy that is furthest behind."""
    undone: int = 0
    """Records that unclean elections cost this node's copies."""


class LedPartitionFigures(NamedTuple):
    """A partition that this node leads."""

    is_preferred: bool
    replicas: int
    in_sync: int


class ClusterFiguresSource(Protocol):
    """A node's cluster, to be looked at."""

    def figures(self) -> ClusterFigures: ...

    def led(self, topic: str, partitions: range) -> Sequence[LedPartitionFigures | None]:
        """Of each: None where another node leads it, or nobody."""
