"""Without rates the figure is that of KEDA's Kafka scaler, for any offsets; with them it stays in its bounds."""

from math import ceil, isqrt

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.observability.scaler.replica_rules import (
    NOTHING,
    GroupSample,
    ScalerMemory,
    bound_replicas,
    decide_replicas,
    is_active,
)
from muster.coordinator.observability.scaler.trigger_metadata import ScalerTrigger


def seen(rows: list[tuple[int, int]], members: int = 1, produced: float | None = None) -> GroupSample:
    """Rows of (committed, waiting records)."""
    committed = np.array([at for at, _ in rows], np.int64)
    ends = np.maximum(committed, 0) + np.array([lag for _, lag in rows], np.int64)
    positions = np.maximum(committed, 0)
    return GroupSample(("t",) * len(rows), np.arange(len(rows)), committed, positions, ends, members, False, produced)


def as_keda(trigger: ScalerTrigger, rows: list[tuple[int, int]]) -> tuple[int, int]:
    """getTotalLag of pkg/scalers/kafka_scaler.go at its first poll, in our words: (lag, lag with what is stuck).

    One thing differs on purpose: limitToPartitionsWithLag grants a partition that is empty no replica.
    """
    lags = []
    for committed, waiting in rows:
        if committed != NOTHING:
            lags.append(waiting)
        elif trigger.scale_to_zero_on_invalid_offset:
            lags.append(0)
        else:
            lags.append(waiting if trigger.earliest else 1)
    everything = total = sum(lags)
    partitions, threshold = len(rows), trigger.lag_threshold
    if not trigger.allow_idle_consumers or trigger.limit_to_partitions_with_lag or trigger.ensure_even_distribution:
        most = partitions
        if trigger.ensure_even_distribution:
            factors = sorted(
                {f for n in range(1, isqrt(partitions) + 1) if partitions % n == 0 for f in (n, partitions // n)}
            )
            total = next((f for f in factors if f * threshold >= total), partitions) * threshold
        if trigger.limit_to_partitions_with_lag:
            most = sum(lag > 0 and waiting > 0 for lag, (_, waiting) in zip(lags, rows, strict=True))
        if total // threshold > most:
            total = most * threshold
    return total, everything


rows_of = st.lists(st.tuples(st.integers(-1, 50), st.integers(0, 200)), min_size=1, max_size=24)
triggers = st.builds(
    ScalerTrigger,
    st.just("g"),
    st.just("t"),
    lag_threshold=st.integers(1, 40),
    activation_lag_threshold=st.integers(0, 300),
    earliest=st.booleans(),
    allow_idle_consumers=st.booleans(),
    scale_to_zero_on_invalid_offset=st.booleans(),
    exclude_persistent_lag=st.booleans(),
    limit_to_partitions_with_lag=st.booleans(),
    ensure_even_distribution=st.booleans(),
).filter(
    lambda each: (
        not (each.limit_to_partitions_with_lag and (each.allow_idle_consumers or each.ensure_even_distribution))
    )
)


@given(triggers, rows_of)
def test_the_figure_is_keda_s(trigger: ScalerTrigger, rows: list[tuple[int, int]]) -> None:
    total, everything = as_keda(trigger, rows)
    figure = decide_replicas(trigger, seen(rows), ScalerMemory(), 0)
    most = bound_replicas(trigger, figure.lag)
    if most is not None and total // trigger.lag_threshold == most:
        total = most * trigger.lag_threshold  # KEDA lets the rest pass, and so one replica more than partitions.
    assert (figure.value, figure.lag.all) == (total, everything)
    assert is_active(trigger, seen(rows), ScalerMemory(), 0) == (everything > trigger.activation_lag_threshold)


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 100), st.integers(0, 9)), min_size=1, max_size=40),
    st.integers(1, 600),
    st.integers(0, 4),
)
def test_a_figure_by_rates_stays_within_the_partitions_and_its_steps(
    polls: list[tuple[int, int, int]], drain_s: int, step: int
) -> None:
    trigger = ScalerTrigger("g", lag_threshold=7, drain_target_s=drain_s, max_step=step)
    memory, now_ms, at, before = ScalerMemory(), 0, 0, None
    for read, waiting, members in polls:
        now_ms, at = now_ms + 15_000, at + read
        rows = [(at, waiting), (0, 0), (0, 0)]
        value = decide_replicas(trigger, seen(rows, members, produced=read / 15), memory, now_ms).value
        if not step:
            assert value % 7 == 0 or not members
            assert 0 <= ceil(value / 7) <= max(3, members)
        elif before is not None:
            assert abs(value - before) <= step * 7
        before = value
