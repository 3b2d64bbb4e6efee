"""The lags that an assignor on the coordinator is given."""

from collections.abc import Sequence

import pytest

from muster.assignors.api import Member, Snapshot
from muster.coordinator.core.model import events
from muster.coordinator.core.model.plan import PlanRequest, compute_plan
from muster.coordinator.core.model.types import CommittedOffset, Limits
from muster.coordinator.core.shard import Shard
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.ports import LastKnownExtent, LogFailed, LogNotReady
from muster.coordinator.runtime.shards import ShardWork
from muster.coordinator.server.backend.assignor_inputs import LOOKUPS_PER_TURN, add_lags, compute_lags
from tests.fakes.memory_group_log import MemoryGroupLog


def asked(count: int) -> tuple[ShardWork, Engine, Shard]:
    """A plan by lags of a topic with so many partitions, and what it is asked of."""
    engine = Engine(MemoryGroupLog(1), 1, Limits(), Shard)
    engine.load(0)
    core = engine.core(0)
    assert isinstance(core, Shard)
    core.step(events.TopicsChanged({"t": count}, (), {"t": bytes(15) + b"\1"}), 0)
    return ShardWork(0, 0, PlanRequest("g", 1, "lag", Snapshot({"t": count}, [Member("m", ("t",))]))), engine, core


def commit(core: Shard, offset: int) -> None:
    core.step(events.OffsetCommit(1, "g", "", None, -1, {("t", 0): CommittedOffset(offset)}, None), 0)


def test_ends_of_many_partitions_are_looked_up_in_a_thread_and_commits_are_those_of_the_turn() -> None:
    work, engine, core = asked(LOOKUPS_PER_TURN + 1)
    commit(core, 40)
    looks: list[int] = []

    def span(topic: str, partition: int) -> tuple[int, int]:
        looks.append(partition)
        return 0, 100

    rest = add_lags(work, engine, span)
    assert looks == []
    assert not isinstance(rest, ShardWork)
    commit(core, 70)
    request = rest().request
    assert isinstance(request, PlanRequest)
    assert request.snapshot.lags == {"t": [60, *[100] * LOOKUPS_PER_TURN]}
    assert looks == [*range(LOOKUPS_PER_TURN + 1)]


def test_those_of_few_partitions_are_there_at_once() -> None:
    work, engine, _ = asked(LOOKUPS_PER_TURN)
    whole = add_lags(work, engine, lambda topic, partition: (0, 3))
    assert isinstance(whole, ShardWork)
    assert isinstance(whole.request, PlanRequest)
    assert whole.request.snapshot.lags == {"t": [3] * LOOKUPS_PER_TURN}


def test_lag_counts_from_the_commit_and_without_one_from_the_start() -> None:
    commits = {0: 45, 1: 5}
    found = compute_lags(
        Snapshot({"t": 3}, []), lambda topic, number: commits.get(number), lambda topic, number: (10, 50)
    )
    assert found == {"t": [5, 40, 40]}


class Elsewhere:
    """Ends that other nodes are asked for: known after a wait, if `answers`."""

    def __init__(self, *, answers: bool = True) -> None:
        self.asked: set[int] = set()
        self._known: set[int] = set()
        self._answers = answers
        self.waits = 0

    def span(self, topic: str, partition: int) -> tuple[int, int]:
        self.asked.add(partition)
        if partition in self._known:
            return 10, 50
        raise LogNotReady(f"{topic}-{partition} is not known yet", self._wait)

    def _wait(self) -> None:
        self.waits += 1
        self._known |= self.asked if self._answers else set()


@pytest.mark.parametrize("count", [2, LOOKUPS_PER_TURN + 1])
def test_ends_that_other_nodes_know_are_waited_for_by_a_thread_all_together(count: int) -> None:
    work, engine, core = asked(count)
    commit(core, 20)
    elsewhere = Elsewhere()
    rest = add_lags(work, engine, elsewhere.span)
    assert not isinstance(rest, ShardWork)
    assert elsewhere.waits == 0, "nobody waits in the turn"
    commit(core, 45)
    request = rest().request
    assert isinstance(request, PlanRequest)
    assert request.snapshot.lags == {"t": [30, *[40] * (count - 1)]}, "by the commits of the turn that asked"
    assert (elsewhere.waits, elsewhere.asked) == (1, {*range(count)})


@pytest.mark.parametrize("count", [2, LOOKUPS_PER_TURN + 1])
def test_ends_that_nobody_tells_in_time_are_a_log_that_cannot_be_read(count: int) -> None:
    work, engine, _ = asked(count)
    rest = add_lags(work, engine, Elsewhere(answers=False).span)
    assert not isinstance(rest, ShardWork)
    with pytest.raises(LogFailed, match="t-0 is not known yet"):
        rest()


class Leaders:
    """Others who say where logs end, as far as they do."""

    def __init__(self, *told: tuple[int, int] | None) -> None:
        self.told = told
        self.asked: list[list[tuple[str, int]]] = []

    def __call__(self, places: Sequence[tuple[str, int]]) -> Sequence[tuple[int, int] | None]:
        self.asked.append(list(places))
        return self.told


def planned_with(leaders: Leaders) -> Snapshot:
    work, engine, core = asked(len(leaders.told))
    commit(core, 20)
    rest = add_lags(work, engine, lambda topic, partition: (0, 0), leaders)
    assert not isinstance(rest, ShardWork)
    assert leaders.asked == [], "nobody is asked in the turn"
    commit(core, 45)
    request = rest().request
    assert isinstance(request, PlanRequest)
    assert leaders.asked == [[("t", partition) for partition in range(len(leaders.told))]], "all in one question"
    return request.snapshot


def test_t5_lags_by_what_leaders_say() -> None:
    snapshot = planned_with(Leaders((10, 50), (10, 50)))
    assert (snapshot.lags, snapshot.stale) == ({"t": [30, 40]}, {})


def test_t5_what_a_leader_does_not_say_in_time_is_what_was_known_and_marked() -> None:
    snapshot = planned_with(Leaders((10, 50), LastKnownExtent(10, 40), (0, 7)))
    assert (snapshot.lags, snapshot.stale) == ({"t": [30, 30, 7]}, {"t": [1]})
    assert Snapshot.from_json(snapshot.to_json()) == snapshot


def test_t5_where_nobody_has_ever_said_it_the_plan_goes_by_count_and_says_so() -> None:
    snapshot = planned_with(Leaders((10, 50), None, LastKnownExtent(0, 7)))
    assert (snapshot.lags, snapshot.stale) == (None, {"t": [1]})
    assert compute_plan(PlanRequest("g", 1, "lag", snapshot)) == {"m": {"t": (0, 1, 2)}}
