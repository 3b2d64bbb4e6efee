"""What the node adds to a plan's inputs: topics and their ids, log ends, lags and rates, of one moment.

An assignor that asks for lags gets ends and commits of the turn in which the shard asked. Of many partitions, or
where another node has to say, a thread looks them up. When the log of a partition is away the plan fails: a plan by
guessed lags would look like one by real ones. A shadow (a canary's or the balance's trial plan) gets the same lags,
or the sampler's last look, which costs nothing here.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isnan
from typing import TYPE_CHECKING, Protocol

import numpy as np

from muster.assignors.api import Snapshot
from muster.assignors.data.values import readable_lag
from muster.coordinator.core.model.effects import MeasureLoad
from muster.coordinator.core.model.events import LoadMeasured
from muster.coordinator.core.model.plan import PlanRequest, loadable_name, wants_lags
from muster.coordinator.core.model.records import MeasuredRates
from muster.coordinator.core.model.shadow_scoring import ShadowRequest
from muster.coordinator.core.shard import Shard
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.ports import LastKnownExtent, LogFailed, LogNotReady
from muster.coordinator.runtime.shards import ShardWork
from muster.storage.broker.record_log import LogOffsets
from muster.storage.errors import NotKnownYet, StorageError

if TYPE_CHECKING:
    from muster.coordinator.observability.history.group_history import GroupHistory, PartitionRates
    from muster.coordinator.server.monitoring.group_sampling import GroupObservation
    from muster.coordinator.server.monitoring.load_meter import LoadMeter, LogExtents


# Lags
# ----

LogSpanOf = Callable[[str, int], tuple[int, int]]
"""The first offset of a partition, and the one after its last. Raises LogFailed where they cannot be known, and
LogNotReady where another node is being asked."""

LOOKUPS_PER_TURN = 500
"""Partitions whose logs are looked up in the loop's turn: some microseconds each."""

DeferredWork = Callable[[], ShardWork]
"""What is left to do for some work, for a thread; it looks at nothing that shards change. Raises as they do."""


MeasuredSpans = Callable[[Sequence[tuple[str, int]]], Sequence[tuple[int, int] | None]]
"""The same of many partitions, where others are to say: a `LastKnownExtent` of what nobody said in time, None of what
nobody
has ever said. It waits, so it is for a thread, and raises nothing."""


def add_lags(
    work: ShardWork, engine: Engine, span: LogSpanOf, measured: MeasuredSpans | None = None
) -> ShardWork | DeferredWork:
    """The work with the lags of this moment, where its assignor asks for them and has none yet.

    Called in the turn in which the shard asked: nobody can commit in between. Of many partitions the ends are for a
    thread to look up, and all that are `measured`. Raises LogFailed when the log of a partition is away: a plan by
    guessed lags would look like one by real ones.
    """
    request = work.request
    shard = engine.core(work.shard)
    if not (isinstance(request, PlanRequest) and isinstance(shard, Shard) and wants_lags(request.assignor)):
        return work
    if request.snapshot.lags is not None:
        return work
    asked, snapshot = request, request.snapshot
    committed = committed_offsets_now(shard, asked.group_id)

    def whole() -> ShardWork:
        lags = compute_lags(snapshot, committed, span)
        return replace(work, request=replace(asked, snapshot=replace(snapshot, lags=lags)))

    if measured is None:
        return run_now_or_later(whole, snapshot.topics)
    ask = measured

    def asked_for() -> ShardWork:
        lags, stale = measured_lags(snapshot.topics, committed, ask)
        return replace(work, request=replace(asked, snapshot=replace(snapshot, lags=lags, stale=stale)))

    return asked_for


MeasuredLags = tuple[dict[str, list[int]] | None, dict[str, list[int]]]
"""Lags by topic and partition; and which of them rest on what was known before."""


def measured_lags(
    counts: Mapping[str, int], committed: Callable[[str, int], int | None], measured: MeasuredSpans
) -> MeasuredLags:
    """The lags as far as others say where logs end. Where they never said it of some partition there are none at all,
    and these are the ones that lack: a plan goes by count then, for one by guessed lags would look like one by real
    ones."""
    places = [(topic, partition) for topic, count in counts.items() for partition in range(count)]
    lags: dict[str, list[int]] = {topic: [] for topic in counts}
    stale: dict[str, list[int]] = {}
    unknown: dict[str, list[int]] = {}
    for (topic, partition), span in zip(places, measured(places), strict=True):
        if span is None:
            unknown.setdefault(topic, []).append(partition)
            continue
        if isinstance(span, LastKnownExtent):
            stale.setdefault(topic, []).append(partition)
        lags[topic].append(readable_lag(committed(topic, partition), *span))
    return (None, unknown) if unknown else (lags, stale)


def run_now_or_later(whole: DeferredWork, counts: Mapping[str, int]) -> ShardWork | DeferredWork:
    """Of many partitions others would wait, as for what another node is to say."""
    if sum(counts.values()) > LOOKUPS_PER_TURN:
        return partial(run_waiting_once, whole)
    try:
        return whole()
    except LogNotReady as not_yet:
        return partial(wait_and_run, not_yet, whole)


def run_waiting_once(whole: DeferredWork) -> ShardWork:
    """For a thread: what other nodes are asked for is waited for once."""
    try:
        return whole()
    except LogNotReady as not_yet:
        return wait_and_run(not_yet, whole)


def wait_and_run(not_yet: LogNotReady, whole: DeferredWork) -> ShardWork:
    not_yet.wait()
    return whole()


def committed_offsets_now(shard: Shard, group_id: str) -> Callable[[str, int], int | None]:
    """What the group has committed by now, whatever it commits later."""
    stored = dict(shard.state.offsets.get(group_id, {}))

    def committed(topic: str, partition: int) -> int | None:
        found = stored.get((topic, partition))
        return None if found is None else found.offset

    return committed


def compute_lags(
    snapshot: Snapshot, committed: Callable[[str, int], int | None], span: LogSpanOf
) -> dict[str, list[int]]:
    """All are looked at before any that is not known yet is said to
    be: each look lets another node be asked."""
    missing: list[LogNotReady] = []

    def lag(topic: str, partition: int) -> int:
        try:
            both = span(topic, partition)
        except LogNotReady as not_yet:
            missing.append(not_yet)
            return 0
        return readable_lag(committed(topic, partition), *both)

    lags = {topic: [lag(topic, partition) for partition in range(count)] for topic, count in snapshot.topics.items()}
    if missing:
        raise missing[0]
    return lags


def make_load_meter(
    engine: Engine, logs: "LogExtents", now_ms: Callable[[], int]
) -> Callable[[MeasureLoad], AsyncIterator[LoadMeasured]]:
    """Measures the load of groups, from when the first one asks for it: nothing is imported before."""
    made: list[LoadMeter] = []

    def measure(asked: MeasureLoad) -> AsyncIterator[LoadMeasured]:
        if not made:
            from muster.coordinator.server.monitoring.load_meter import LoadMeter

            made.append(LoadMeter(engine, logs, now_ms))
        return made[0].pieces(asked)

    return measure


# Inputs of shadow plans
# ----------------------

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


# Topics of the log
# -----------------


class CatalogTopic(Protocol):
    @property
    def id(self) -> bytes: ...

    @property
    def partitions(self) -> int: ...


class CatalogSource(Protocol):
    """A broker, as far as it is asked here."""

    def topics(self) -> Mapping[str, CatalogTopic]: ...


def topic_ids(broker: CatalogSource) -> dict[str, bytes]:
    """None of a topic that matches no pattern, whatever it is called."""
    return {name: topic.id for name, topic in broker.topics().items() if topic.id}


def partition_counts(broker: CatalogSource) -> dict[str, int]:
    return {name: topic.partitions for name, topic in broker.topics().items()}


def span_of_log(broker: LogOffsets, topic: str, partition: int) -> tuple[int, int]:
    """Where a partition's log begins and ends. Raises LogFailed where there is none, or it is damaged; LogNotReady
    where another node is to say."""
    try:
        return broker.start_offset(topic, partition), broker.high_watermark(topic, partition)
    except NotKnownYet as error:
        raise LogNotReady(str(error), error.wait) from error
    except StorageError as error:
        raise LogFailed(str(error)) from error
