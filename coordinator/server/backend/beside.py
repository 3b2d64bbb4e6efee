"""What a shadow is shown beside the recorded snapshot: lags where it asks for them, and rates to measure by."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isnan
from typing import TYPE_CHECKING

import numpy as np

from muster.assignors.api import Snapshot
from muster.coordinator.core.model.plan import loadable_name, wants_lags
from muster.coordinator.core.model.scoring import ShadowRequest
from muster.coordinator.core.model.values import MeasuredRates
from muster.coordinator.core.shard import Shard
from muster.coordinator.runtime.answers import ShardWork
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.server.backend.lags import (
    DeferredWork,
    LogSpanOf,
    MeasuredSpans,
    add_lags,
    committed_offsets_now,
    compute_lags,
    measured_lags,
    run_now_or_later,
)

if TYPE_CHECKING:
    from muster.coordinator.observability.history.history import GroupHistory, PartitionRates
    from muster.coordinator.server.monitoring.observing import GroupObservation


HOUR_MS = 3_600_000


def mean_lag_before(history: "GroupHistory | None", clock_ms: Callable[[], int], group_id: str) -> tuple[float, int]:
    """The mean of the group's total lag in the last hour, and over how many milliseconds of it that is known."""
    if history is None:
        return 0.0, 0
    times, lags = history.lag_series(group_id)
    now_ms = clock_ms()
    recent = lags[times >= now_ms - HOUR_MS]
    return (float(recent.mean()), now_ms - int(times[-len(recent)])) if len(recent) else (0.0, 0)


PARTITIONS_IN_ONE_TURN = 500
"""So many partitions of a group are gone through in the loop's turn."""


async def loads_now(history: "GroupHistory | None", clock_ms: Callable[[], int], group_id: str) -> MeasuredRates | None:
    """What each partition of the group carries, if it was looked at lately."""
    known = history.rates(group_id) if history is not None and history.fresh(group_id, clock_ms()) else None
    if known is None:
        return None
    return (
        loads_by_topic(known)
        if len(known.places) <= PARTITIONS_IN_ONE_TURN
        else await asyncio.to_thread(loads_by_topic, known)
    )


def loads_by_topic(known: "PartitionRates") -> MeasuredRates:
    """What has not been seen counts nothing."""
    seen: dict[str, tuple[list[float], list[int]]] = {}
    pace = np.nan_to_num(np.fmax(known.produced, known.consumed))
    for (topic, partition), rate, lag in zip(known.places, pace.tolist(), known.lag_now.tolist(), strict=True):
        rates, lags = seen.setdefault(topic, ([], []))
        missing = partition + 1 - len(rates)
        rates.extend([0.0] * missing)
        lags.extend([0] * missing)
        rates[partition], lags[partition] = rate, max(0, lag)
    return seen


def complete_work(
    work: ShardWork,
    engine: Engine,
    span: LogSpanOf,
    observing: "GroupObservation | None",
    measured: MeasuredSpans | None = None,
) -> ShardWork | DeferredWork:
    """What a shard wants computed, with what only the node knows. Raises LogFailed when a log is away. measured: where
    others are to say where logs end, instead of `span`."""
    if isinstance(work.request, ShadowRequest):
        return add_loads(work, engine, span, observing.history if observing is not None else None, measured)
    return add_lags(work, engine, span, measured)


def add_loads(
    work: ShardWork,
    engine: Engine,
    span: LogSpanOf,
    history: "GroupHistory | None",
    measured: MeasuredSpans | None = None,
) -> ShardWork | DeferredWork:
    """The work with lags and rates, as far as they are known.

    A shadow that plans by lags gets those of this moment, as the group's own assignor would; else the sampler's last
    look is enough, which costs nothing here. Raises LogFailed when a log is away that a lag is asked of.
    """
    request, shard = work.request, engine.core(work.shard)
    if not (isinstance(request, ShadowRequest) and isinstance(shard, Shard)):
        return work
    known = history.rates(request.group_id) if history is not None else None
    counts = {topic: shard.state.partitions[topic] for topic in request.topics & shard.state.partitions.keys()}
    if any(wants_lags(loadable_name(candidate.name, shard.state.limits)) for candidate in request.candidates):
        committed = committed_offsets_now(shard, request.group_id)
    else:
        committed = None
    asked = request

    def whole() -> ShardWork:
        lags: Mapping[str, Sequence[int]] | None = None
        if committed is not None and measured is not None:
            lags, _ = measured_lags(counts, committed, measured)
        elif committed is not None:
            lags = compute_lags(Snapshot(counts, []), committed, span)
        elif known is not None:
            seen = rows_by_topic(known, known.lag_now.tolist(), counts)
            lags = {topic: [int(lag) for lag in row] for topic, row in seen.items()}
        rates = None if known is None else rows_by_topic(known, known.produced.tolist(), counts)
        return replace(work, request=replace(asked, lags=lags, rates=rates))

    asks = committed is not None and measured is not None
    return whole if asks else run_now_or_later(whole, counts)


def rows_by_topic(
    known: "PartitionRates", figures: Sequence[float], counts: Mapping[str, int]
) -> dict[str, list[float]]:
    """A row for each topic; what has not been seen counts nothing."""
    rows = {topic: [0.0] * count for topic, count in counts.items()}
    for (topic, partition), figure in zip(known.places, figures, strict=True):
        if topic in rows and partition < counts[topic]:
            rows[topic][partition] = 0.0 if isnan(figure) else figure
    return rows
