"""What the coordinator tells a member of a central group to do. Orders are numbered along a member's stream."""

from dataclasses import dataclass
from typing import TypeAlias

from muster.coordinator.core.model.types import Cause

NOTHING_COMMITTED = -1


@dataclass(frozen=True, slots=True)
class Ping:
    """Answer at once, with the consumed offsets."""

    number: int


@dataclass(frozen=True, slots=True)
class StopFetcher:
    """Stop fetching, let the application know, then answer with the offsets."""

    number: int
    cause: Cause
    cause_detail: str
    rebalance_number: int


@dataclass(frozen=True, slots=True)
class StartFetcher:
    """Fetch exactly this: (topic, partition, offset), with NOTHING_COMMITTED where the member has to know better."""

    number: int
    generation: int
    partitions: tuple[tuple[str, int, int], ...]
    cause: Cause
    cause_detail: str
    rebalance_number: int


@dataclass(frozen=True, slots=True)
class RebalanceFailed:
    """All attempts failed, and everybody goes on with what is stored; or a topic is not to be had. Needs no answer."""

    number: int
    detail: str


Order: TypeAlias = Ping | StopFetcher | StartFetcher | RebalanceFailed
