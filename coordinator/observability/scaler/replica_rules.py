"""How many replicas a group should have. Pure: the group at this moment, earlier decisions, and the time go in.

Without `drainTargetSeconds` the figure is what KEDA's Kafka scaler makes of the same lag (kafka_scaler.go), held
while the group rebalances. With it the figure is made from rates: as many consumers as keep up with what is written
and work off the backlog in that time. Such a figure goes up when more is needed, and down only to a fifth above the
most that was needed in the last half hour, so that load that comes and goes within it causes no scaling back and
forth. As long as it is unknown what one consumer can do (the group was never busy, the node has just started), the
present replicas stay.
"""

from collections import deque
from dataclasses import dataclass, field
from math import ceil, isqrt

import numpy as np
from numpy.typing import NDArray

from muster.coordinator.observability.scaler.trigger_metadata import ScalerTrigger

Ints = NDArray[np.int64]

NOTHING = -1
"""Nothing is committed."""
STUCK_MS = 30_000
"""An offset that has not moved for so long while records wait is stuck (KEDA: since its last poll, 30 s by default)."""
HELD_AT_MOST_MS = 600_000
"""A rebalance that takes longer is no reason any more to keep the figure of before."""
STEP_MS = 60_000
"""With `maxStep`: how long after a step the next may follow."""
CALM_MS = 1_800_000
"""How far back the need is remembered before the figure goes down."""
MEASURED_MS = 10_000
"""The shortest stretch over which consumption is measured: consumers commit every 5 s by default."""
WEIGHT = 0.3
"""Of the latest stretch, in what one consumer can do."""
BUSY_S = 15.0
"""Consumers with less than so many seconds of work before them may be waiting for records: they show no capacity."""
ABOVE = 1.2
"""How far above the most that was needed the figure stays when it goes down: fewer drain a burst more slowly."""
SPARE = 1.1
"""A need this far above whole replicas is what is planned for: rates are not exact."""


@dataclass(frozen=True, slots=True)
class GroupSample:
    """A group at one moment: columns of one length, a row for each partition that counts.

    `produced` is what is written to them a second, None while that is not known.
    """

    topics: tuple[str, ...]
    partitions: Ints
    committed: Ints
    """NOTHING where nothing is."""
    positions: Ints
    """Where the group goes on reading (`reading_position`)."""
    ends: Ints
    members: int
    rebalancing: bool
    produced: float | None = None
    deploying: bool = False
    """Members are being started anew, one by one, with the coordinator's knowledge."""


@dataclass(frozen=True, slots=True)
class ScaledLag:
    """`counted` is what is scaled by, `all` what makes the group active: what is stuck may be left out of the first."""

    counted: int
    all: int
    partitions: int
    with_lag: int


@dataclass(frozen=True, slots=True)
class ReplicaFigure:
    """What is answered: `value` over lagThreshold, rounded up, replicas. `held` says why it is that of before."""

    value: float
    lag: ScaledLag
    held: str = ""


@dataclass(slots=True)
class ScalerMemory:
    """What was decided before, for one ScaledObject."""

    value: float | None = None
    held_since_ms: int | None = None
    stepped_ms: int | None = None
    moved: tuple[Ints, Ints] | None = None
    """The offsets as they were last seen, and since when each stands there."""
    measured: tuple[int, int, int] | None = None
    """When consumption was last looked at, how far it was, by how many members."""
    capacity: float | None = None
    """Records a second that one consumer can read."""
    needs: deque[tuple[int, int]] = field(default_factory=deque)
    """When how many replicas were needed: falling, as only the most of what is left counts."""


def decide_replicas(trigger: ScalerTrigger, seen: GroupSample, memory: ScalerMemory, now_ms: int) -> ReplicaFigure:
    """The figure of now. The memory takes in what was seen."""
    lag = lag_of(trigger, seen, memory, now_ms)
    _measure(seen, lag, memory, now_ms)
    if is_held(trigger, seen, memory, now_ms):
        assert memory.value is not None
        return ReplicaFigure(memory.value, lag, "the group rebalances" if seen.rebalancing else "a deploy is on")
    wanted = _by_rates(trigger, seen, lag, memory, now_ms)
    value = figure_by_lag(trigger, lag) if wanted is None else float(wanted * trigger.lag_threshold)
    memory.value = _stepped(trigger, seen, value, memory, now_ms)
    return ReplicaFigure(memory.value, lag)


def is_held(trigger: ScalerTrigger, seen: GroupSample, memory: ScalerMemory, now_ms: int) -> bool:
    """Whether the figure of before counts, because the group rebalances, or is being deployed."""
    if not (seen.rebalancing or seen.deploying):
        memory.held_since_ms = None
        return False
    if not trigger.hold_during_rebalance or memory.value is None:
        return False
    if seen.deploying:
        return True  # the coordinator ends it
    if memory.held_since_ms is None:
        memory.held_since_ms = now_ms
    return now_ms - memory.held_since_ms < HELD_AT_MOST_MS


def is_active(trigger: ScalerTrigger, seen: GroupSample, memory: ScalerMemory, now_ms: int) -> bool:
    """Whether there is work, or a figure is held. Nothing is remembered but since when it is: only `decide_replicas`
    decides.
    """
    lag = lag_of(trigger, seen, None, now_ms)
    return lag.all > trigger.activation_lag_threshold or is_held(trigger, seen, memory, now_ms)


def lag_of(trigger: ScalerTrigger, seen: GroupSample, memory: ScalerMemory | None, now_ms: int) -> ScaledLag:
    """By the rules of KEDA's Kafka scaler, but only what can still be read counts.

    Where nothing is committed and consumers begin at the end (`latest`), KEDA counts one record, so that a consumer
    comes before there is something to miss. An empty partition is one for good until then: `excludePersistentLag`
    leaves it out at once, and `limitToPartitionsWithLag` grants it no replica.
    """
    absent = seen.committed == NOTHING
    readable = np.maximum(seen.ends - seen.positions, 0)
    if trigger.scale_to_zero_on_invalid_offset:
        unread = np.zeros_like(readable)
    else:
        unread = readable if trigger.earliest else np.ones_like(readable)
    everything = np.where(absent, unread, readable)
    counted = everything
    if trigger.exclude_persistent_lag and memory is not None:
        counted = np.where(_stuck(seen, memory, now_ms) | (readable == 0), 0, everything)
    with_lag = int(((counted > 0) & (readable > 0)).sum())
    return ScaledLag(int(counted.sum()), int(everything.sum()), len(counted), with_lag)


def figure_by_lag(trigger: ScalerTrigger, lag: ScaledLag) -> float:
    """KEDA's figure: the lag itself, bounded so that there are not more replicas than partitions.

    KEDA cuts the quotient off before it compares, and may end up with one more: 22 over 7 on three partitions.
    """
    counted, threshold = lag.counted, trigger.lag_threshold
    if trigger.ensure_even_distribution:
        counted = round_to_even_share(-(-counted // threshold), lag.partitions) * threshold
    most = bound_replicas(trigger, lag)
    return float(counted if most is None else min(counted, most * threshold))


def bound_replicas(trigger: ScalerTrigger, lag: ScaledLag) -> int | None:
    """The most replicas that have something to do; None: as many as one likes."""
    if trigger.limit_to_partitions_with_lag:
        return lag.with_lag
    return None if trigger.allow_idle_consumers and not trigger.ensure_even_distribution else lag.partitions


def round_to_even_share(wanted: int, partitions: int) -> int:
    """The fewest replicas, at least `wanted`, to which the partitions can be dealt out evenly.

    >>> [round_to_even_share(wanted, 12) for wanted in (0, 1, 5, 7, 13)]
    [1, 1, 6, 12, 12]
    """
    below = [number for number in range(1, isqrt(partitions) + 1) if partitions % number == 0]
    factors = sorted({*below, *(partitions // number for number in below)})
    return next((factor for factor in factors if factor >= wanted), partitions)


def _stuck(seen: GroupSample, memory: ScalerMemory, now_ms: int) -> NDArray[np.bool_]:
    """Partitions whose offset has not moved for a while, however often that is asked."""
    offsets, since = seen.committed, np.full(len(seen.committed), now_ms)
    if memory.moved is not None and len(memory.moved[0]) == len(offsets):
        since = np.where(memory.moved[0] == offsets, memory.moved[1], now_ms)
    memory.moved = (offsets, since)
    found: NDArray[np.bool_] = now_ms - since >= STUCK_MS
    return found


def _measure(seen: GroupSample, lag: ScaledLag, memory: ScalerMemory, now_ms: int) -> None:
    """What one consumer can do: from a stretch in which as many were there all the time, none of them short of work."""
    read, workers = int(np.maximum(seen.committed, 0).sum()), min(seen.members, lag.partitions)
    before = memory.measured
    if seen.rebalancing or not workers:
        memory.measured = None
        return
    if before is None or before[2] != workers:
        memory.measured = (now_ms, read, workers)
        return
    passed_ms = now_ms - before[0]
    if passed_ms < MEASURED_MS:
        return
    memory.measured = (now_ms, read, workers)
    if read <= before[1]:  # Nothing was read, or offsets were set back.
        return
    rate = (read - before[1]) * 1_000 / passed_ms
    each = rate / workers
    if lag.all >= BUSY_S * rate:
        memory.capacity = each if memory.capacity is None else memory.capacity * (1 - WEIGHT) + each * WEIGHT
    elif memory.capacity is not None:
        memory.capacity = max(memory.capacity, each)


def _by_rates(
    trigger: ScalerTrigger, seen: GroupSample, lag: ScaledLag, memory: ScalerMemory, now_ms: int
) -> int | None:
    """None: not asked for, or nothing to go by."""
    if not trigger.drain_target_s:
        return None
    if memory.capacity and seen.produced is not None:
        need = (seen.produced + lag.counted / trigger.drain_target_s) / memory.capacity
        wanted = ceil(need * SPARE)
    elif seen.members:
        wanted = seen.members
    else:
        return None
    before = 0 if memory.value is None else round(memory.value / trigger.lag_threshold)
    wanted = _calm(wanted, before, memory, now_ms)
    if trigger.ensure_even_distribution:
        wanted = round_to_even_share(wanted, lag.partitions)
    most = bound_replicas(trigger, lag)
    return wanted if most is None else min(wanted, most)


def _calm(wanted: int, before: int, memory: ScalerMemory, now_ms: int) -> int:
    """What is wanted, or what was wanted before as far as the last half hour gives reason for it."""
    needs = memory.needs
    while needs and needs[-1][1] <= wanted:
        needs.pop()
    needs.append((now_ms, wanted))
    while now_ms - needs[0][0] > CALM_MS:
        needs.popleft()
    return max(wanted, min(before, round(needs[0][1] * ABOVE)))


def _stepped(trigger: ScalerTrigger, seen: GroupSample, value: float, memory: ScalerMemory, now_ms: int) -> float:
    """Not further from the figure of before than `maxStep` allows, and that not more often than once a minute."""
    before = memory.value
    if not trigger.max_step:
        return value
    if before is None:
        before = float(seen.members * trigger.lag_threshold)
    most = trigger.max_step * trigger.lag_threshold
    if memory.stepped_ms is not None and now_ms - memory.stepped_ms < STEP_MS:
        return before
    stepped = min(max(value, before - most), before + most)
    if stepped != before:
        memory.stepped_ms = now_ms
    return stepped
