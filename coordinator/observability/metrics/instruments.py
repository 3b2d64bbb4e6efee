"""What is counted as it happens, and the figures of a cluster and of the Kafka backend at one moment.

Counting is an increment in an array; nothing is looked up or built for a request. A component that counts is given
an instrument, or None where no one asks for metrics, and then counts nothing. Only a node of a cluster has cluster
figures (by Kafka's names); only a node over a Kafka has the figures of that backend.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

# Instruments
# -----------

BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the buckets of short times, in seconds."""

FASTEST: Final = BOUNDS[0]

LONG_BOUNDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0)
"""The same of rebalances and their phases."""


class Timing:
    """How often something took how long: buckets by upper bound, and the sum of seconds."""

    __slots__ = ("bounds", "buckets", "seconds")

    def __init__(self, bounds: tuple[float, ...] = BOUNDS) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.seconds = 0.0

    def bucket_of(self, seconds: float) -> int:
        return bisect_left(self.bounds, seconds)

    def took(self, seconds: float) -> None:
        self.buckets[self.bucket_of(seconds)] += 1
        self.seconds += seconds

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def cumulative(self) -> list[tuple[str, int]]:
        """(upper bound, how many took at most so long), as histograms are written.

        >>> timing = Timing((0.1, 1.0)); timing.took(0.1); timing.took(7); timing.cumulative()
        [('0.1', 1), ('1.0', 1), ('+Inf', 2)]
        """
        reached, rows = 0, []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.buckets, strict=True):
            reached += count
            rows.append((bound, reached))
        return rows


class RequestMeter(Timing):
    """The requests of one API at one door. `others` counts the answers that are no plain yes, by code."""

    __slots__ = ("others", "untimed")

    def __init__(self) -> None:
        super().__init__()
        self.others: Counter[int | str] = Counter()
        """A number of Kafka's errors, or the name of a gRPC status."""
        self.untimed = 0
        """Streams that have ended: how long one is open is no matter of speed."""

    def answered(self, seconds: float, code: int) -> None:
        """The same for most requests, and cheap: nearly all are in the first bucket."""
        self.buckets[0 if seconds <= FASTEST else bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds
        if code:
            self.others[code] += 1

    def refused(self, seconds: float, status: str) -> None:
        """The call ended without an answer."""
        self.took(seconds)
        self.others[status] += 1

    def ended(self, status: str = "") -> None:
        """A stream has: by itself, or with this status."""
        self.untimed += 1
        if status:
            self.others[status] += 1

    def by_code(self) -> dict[int | str, int]:
        """How many answers by code; 0 is a plain yes."""
        return {0: self.count + self.untimed - self.others.total(), **self.others}


class Instruments:
    """One node's. All methods belong to its loop's thread."""

    def __init__(self) -> None:
        self.meters: dict[tuple[str, str], RequestMeter] = {}
        """(door, API) -> its requests."""
        self.turns = Timing()
        self.flushes = Timing()
        self.flushed_records = 0
        self.assignor_errors: Counter[str] = Counter()
        self.conversions: Counter[str] = Counter()
        """API -> partitions whose records were converted for clients from before Kafka 0.11."""

    def meter(self, door: str, api: str) -> RequestMeter:
        """Where this door counts the requests of this API."""
        return self.meters.setdefault((door, api), RequestMeter())


# Figures of a cluster
# --------------------


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
    unproven: int = 0
    """Connections between nodes that ended for want of a proof."""


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


# Figures of the Kafka backend
# ----------------------------


@dataclass(frozen=True, slots=True)
class TransactionFigures:
    """Of a node that coordinates transactional ids, at one moment. Counters count since the node began."""

    states: Mapping[str, int] = field(default_factory=dict)
    """Ids in each state."""
    ends: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By result (committed, aborted) and cause."""
    seconds: Timing = field(default_factory=Timing)
    """From the beginning of a transaction until its markers were durable."""
    stable_lags: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Records that readers of committed records cannot reach, of partitions with an open transaction."""
    late_partitions: int = 0
    unknown_destinations: int = 0
    verification_failures: int = 0
    aborts_lost: int = 0


@dataclass(frozen=True, slots=True)
class KafkaBackendFigures:
    """At one moment. Counters count since the node began."""

    appends: Timing = field(default_factory=Timing)
    """How long what a shard wrote took to be acknowledged, from its request on."""
    unacked: Mapping[int, int] = field(default_factory=dict)
    """Bytes, by shard."""
    owned: int = 0
    fenced: int = 0
    fenced_records: int = 0
    errors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By API and code."""
    proxied: Mapping[str, int] = field(default_factory=dict)
    """Bytes, by direction."""
    proxy_connections: int = 0
    foreign_members: Mapping[str, int] = field(default_factory=dict)
    """By group."""
    topics_unseen: int = 0
    pending_positions: int = 0
    """In clients' transactions that have not ended."""
    oldest_pending_ms: int = 0
    """For so long the oldest of them waits."""
