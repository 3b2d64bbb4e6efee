"""How far behind a group is, for an assignor that the coordinator runs, or for its balance: ends and commits of one
moment."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from muster.assignors.api import Snapshot
from muster.coordinator.core.model.core_events import LoadMeasured
from muster.coordinator.core.model.effects import MeasureLoad
from muster.coordinator.core.model.plan import PlanRequest, wants_lags
from muster.coordinator.core.shard import Shard
from muster.coordinator.runtime.answers import ShardWork
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.ports import LastKnownExtent, LogNotReady

if TYPE_CHECKING:
    from muster.coordinator.observability.history.history import Place
    from muster.coordinator.server.monitoring.loads import LoadMeter
    from muster.coordinator.server.monitoring.looking import AwaitEnds

LogSpanOf = Callable[[str, int], tuple[int, int]]
"""The first offset of a partition, and the one after its last. Raises LogFailed where they cannot be known, and
NotYet where another node is being asked."""

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
        lags[topic].append(lag_of(span, committed(topic, partition)))
    return (None, unknown) if unknown else (lags, stale)


def lag_of(span: tuple[int, int], offset: int | None) -> int:
    """Without a commit, everything that is there counts."""
    first, end = span
    return max(0, end - (first if offset is None else max(offset, first)))


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
        return lag_of(both, committed(topic, partition))

    lags = {topic: [lag(topic, partition) for partition in range(count)] for topic, count in snapshot.topics.items()}
    if missing:
        raise missing[0]
    return lags


def make_load_meter(
    engine: Engine,
    ends: "Callable[[Sequence[Place]], list[int]]",
    now_ms: Callable[[], int],
    ahead: "AwaitEnds | None" = None,
) -> Callable[[MeasureLoad], AsyncIterator[LoadMeasured]]:
    """Measures the load of groups, from when the first one asks for it: nothing is imported before."""
    made: list[LoadMeter] = []

    def measure(asked: MeasureLoad) -> AsyncIterator[LoadMeasured]:
        if not made:
            from muster.coordinator.server.monitoring.loads import LoadMeter

            made.append(LoadMeter(engine, ends, now_ms, ahead))
        return made[0].pieces(asked)

    return measure
