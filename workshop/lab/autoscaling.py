"""A deployment that is scaled, in virtual time: load, consumers that take a while to start, a rebalance each time.

Two scalers see the same load through the same Kubernetes: KEDA's Kafka rules, and ours by rates. Counted is what an
operator feels: how often the number of replicas turns around, how far the group falls behind, what it costs.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, cos, exp, pi
from random import Random

import numpy as np

from muster.coordinator.observability.history.group_history import GroupHistory, Sample
from muster.coordinator.observability.scaler.replica_rules import GroupSample, ScalerMemory, decide_replicas
from muster.coordinator.observability.scaler.trigger_metadata import ScalerTrigger

PARTITIONS = 24
READS = 100.0
"""Records a second that one consumer can read."""
START_S = 20
REBALANCE_S = 3
COMMIT_S = 5
SAMPLE_S = 10
SYNC_S = 15
"""How often the autoscaler of Kubernetes asks. Its other defaults follow: tolerance, the window before it goes down,
how many pods it may add at once.
"""
TOLERANCE = 0.1
DOWN_WINDOW_S = 300
MOST_PODS_ADDED = 4
TURNS_S = 1_800

MUSTER = ScalerTrigger("g", "t", lag_threshold=1_000, drain_target_s=120)
BEHIND_S = 120


@dataclass(frozen=True, slots=True)
class WriteLoad:
    """Records written a second, by the second."""

    name: str
    seconds: int
    rate: Callable[[int], float]


@dataclass(frozen=True, slots=True)
class ScalingRun:
    """What came of a trace."""

    replicas: tuple[int, ...]
    """By the second."""
    changes: int
    reversals: int
    """Changes that undo the direction of the one before."""
    reversals_30min: int
    """The most of them in any half hour."""
    peak_lag: int
    behind_s: int
    """Seconds in which more waited than is written in two minutes."""
    replica_hours: float


def make_loads(seed: int = 1) -> list[WriteLoad]:
    """Load that doubles, and doubles again; a day; a minute of fivefold load every 12 minutes; noise."""
    random = Random(seed)
    noise = [exp(random.gauss(-0.08, 0.4)) for _ in range(2 * 360)]

    def doubling(at: int) -> float:
        return 220.0 if at < 1_200 else 440.0 if at < 4_800 else 880.0

    def day(at: int) -> float:
        return 650.0 - 550.0 * cos(2 * pi * at / 86_400)

    def bursts(at: int) -> float:
        return 1_500.0 if at % 720 < 60 else 300.0

    def noisy(at: int) -> float:
        return 600.0 * noise[at // 10]

    return [
        WriteLoad("load that doubles", 7_200, doubling),
        WriteLoad("a day", 86_400, day),
        WriteLoad("bursts", 7_200, bursts),
        WriteLoad("noise", 7_200, noisy),
    ]


def run_deployment(
    trace: WriteLoad, trigger: ScalerTrigger, *, minimum: int = 1, maximum: int = PARTITIONS
) -> ScalingRun:
    """The deployment under this load, scaled by this trigger. It begins with three consumers that keep up."""
    world = _World(trace)
    memory, kubernetes = ScalerMemory(), _Kubernetes(minimum, maximum)
    for now_s in range(trace.seconds):
        world.second(now_s)
        if now_s % SYNC_S == 0:
            value = decide_replicas(trigger, world.seen(now_s), memory, now_s * 1_000).value
            world.scale(kubernetes.wants(world.wanted, value / trigger.lag_threshold, now_s), now_s)
    return world.summarize_run()


class _World:
    def __init__(self, trace: WriteLoad) -> None:
        self._trace = trace
        self._history = GroupHistory(SAMPLE_S * 1_000)
        self._written = self._read = self._committed = 0.0
        self._starting: deque[int] = deque()
        """When each pod that starts is there."""
        self._members = 3
        self._settled_s = 0
        self.wanted = 3
        self._replicas: list[int] = []
        self._lags: list[float] = []

    def second(self, now_s: int) -> None:
        while self._starting and self._starting[0] <= now_s:
            self._starting.popleft()
            self._members += 1
            self._settled_s = now_s + REBALANCE_S
        self._written += self._trace.rate(now_s)
        if now_s >= self._settled_s:
            self._read = min(self._written, self._read + READS * min(self._members, PARTITIONS))
        if now_s % COMMIT_S == 0:
            self._committed = self._read
        if now_s % SAMPLE_S == 0:
            places = [("t", number) for number in range(PARTITIONS)]
            ends, committed = _spread_over_partitions(self._written), _spread_over_partitions(self._committed)
            self._history.record_sample("g", Sample(places, ends, committed, [now_s] * PARTITIONS), now_s * 1_000)
            self._history.settle("g", now_s * 1_000)
        self._replicas.append(self.wanted)
        self._lags.append(self._written - self._read)

    def scale(self, wanted: int, now_s: int) -> None:
        more = wanted - self.wanted
        self._starting.extend([now_s + START_S] * more)
        for _ in range(-more):  # Those that have not started go first.
            if self._starting:
                self._starting.pop()
            else:
                self._members -= 1
                self._settled_s = now_s + REBALANCE_S
        self.wanted = wanted

    def seen(self, now_s: int) -> GroupSample:
        rates = self._history.rates("g")
        produced = None if rates is None or np.isnan(rates.produced).any() else float(rates.produced.sum())
        committed, ends = (
            np.array(_spread_over_partitions(self._committed)),
            np.array(_spread_over_partitions(self._written)),
        )
        rebalancing = now_s < self._settled_s
        return GroupSample(
            ("t",) * PARTITIONS,
            np.arange(PARTITIONS),
            committed,
            committed,
            ends,
            self._members,
            rebalancing,
            produced,
        )

    def summarize_run(self) -> ScalingRun:
        ways = [
            (at, later - earlier) for at, (earlier, later) in enumerate(pairwise(self._replicas)) if later != earlier
        ]
        turns = [at for (_, before), (at, after) in pairwise(ways) if before * after < 0]
        return ScalingRun(
            replicas=tuple(self._replicas),
            changes=len(ways),
            reversals=len(turns),
            reversals_30min=max((sum(at <= other < at + TURNS_S for other in turns) for at in turns), default=0),
            peak_lag=int(max(self._lags)),
            behind_s=sum(lag > BEHIND_S * self._trace.rate(at) for at, lag in enumerate(self._lags)),
            replica_hours=sum(self._replicas) / 3_600,
        )


class _Kubernetes:
    """Its HorizontalPodAutoscaler for an AverageValue, with the defaults."""

    def __init__(self, minimum: int, maximum: int) -> None:
        self._minimum, self._maximum = minimum, maximum
        self._recommended: deque[tuple[int, int]] = deque()

    def wants(self, now: int, replicas: float, now_s: int) -> int:
        wanted = now if abs(replicas / now - 1) <= TOLERANCE else ceil(replicas)
        wanted = min(max(wanted, self._minimum), self._maximum)
        self._recommended.append((now_s, wanted))
        while self._recommended[0][0] <= now_s - DOWN_WINDOW_S:
            self._recommended.popleft()
        if wanted > now:
            return min(wanted, max(2 * now, now + MOST_PODS_ADDED))
        return min(now, max(each for _, each in self._recommended))


def _spread_over_partitions(total: float) -> list[int]:
    """Dealt out over the partitions."""
    whole = int(total)
    return [whole // PARTITIONS + (number < whole % PARTITIONS) for number in range(PARTITIONS)]


def keda_trigger(lag_threshold: int) -> ScalerTrigger:
    """KEDA's Kafka rules: no rates, nothing held."""
    return ScalerTrigger("g", "t", lag_threshold=lag_threshold, hold_during_rebalance=False)
