"""The sampler: what it sees, what it lets go, and that others have their turns. The engine is real, the clock told."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from muster import long_work
from muster.coordinator.core.model.events import DeleteGroup, OffsetCommit, TopicsChanged, Unload
from muster.coordinator.core.model.types import CommittedOffset, Limits
from muster.coordinator.observability.history import group_history as bounds
from muster.coordinator.observability.history.group_health import CommitWindows
from muster.coordinator.observability.history.group_history import GroupHistory
from muster.coordinator.observability.read_model.group_mapper import map_commits
from muster.coordinator.observability.read_model.groups import TopicPartition
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.ports import LogFailed
from muster.coordinator.runtime.shards import ShardStatus, partition_for
from muster.coordinator.server.monitoring import group_sampling
from muster.coordinator.server.monitoring.group_sampling import GroupSampler
from muster.coordinator.server.monitoring.load_meter import PARTITIONS_PER_SLICE, PositionReader
from muster.coordinator.server.services.group_coordinator import add_sampled_commits
from tests.fakes.log_extents import SaidExtents
from tests.fakes.memory_group_log import MemoryGroupLog

SHARDS = 4
SAMPLE_MS = 10_000
ID = bytes(16)


class World:
    """An engine with groups, logs whose ends are told, and a clock that stands until it is moved."""

    def __init__(self) -> None:
        self.log = MemoryGroupLog(SHARDS)
        self.engine = Engine(self.log, SHARDS, Limits())
        self.ids = {"t": ID}
        self.engine.submit_all(TopicsChanged({"t": 5_000}, ids=self.ids))
        self.engine.load(0)
        self.ends: dict[tuple[str, int], int] = {}
        self.now_ms = 1_000
        self.requests = 0
        self.looked: list[int] = []
        self.starts: dict[tuple[str, int], int] = {}
        self.looking = PositionReader(self.engine, SaidExtents(self.ends_of, self.starts))
        self.sampling = GroupSampler(GroupHistory(SAMPLE_MS), self.looking, lambda: self.now_ms, lambda: dict(self.ids))

    @property
    def history(self) -> GroupHistory:
        return self.sampling.history

    def ends_of(self, places: Sequence[tuple[str, int]]) -> list[int]:
        self.looked.append(len(places))
        return [self.ends.get(place, -1) for place in places]

    def commit(self, group_id: str, offsets: dict[int, int]) -> None:
        self.requests += 1
        found = {("t", partition): CommittedOffset(offset) for partition, offset in offsets.items()}
        self.submit(group_id, OffsetCommit(self.requests, group_id, "", None, -1, found))

    def submit(self, group_id: str, event: OffsetCommit | DeleteGroup) -> None:
        self.engine.submit(partition_for(group_id, SHARDS), event)
        self.turn()

    def turn(self) -> None:
        self.engine.turn(self.now_ms)
        job = self.engine.flush_job()
        if job is not None:
            job.run()
            self.engine.flushed(job)
        self.engine.take_released()

    def sample(self, after_ms: int = SAMPLE_MS) -> None:
        self.now_ms += after_ms
        asyncio.run(self.sampling.sample())


@pytest.fixture
def world() -> World:
    return World()


def written(world: World, partitions: Iterable[int], end: int) -> None:
    world.ends.update({("t", partition): end for partition in partitions})


def test_lags_and_rates_of_every_group(world: World) -> None:
    written(world, [0, 1], 100)
    world.commit("a", {0: 10, 1: 20})
    world.commit("b", {1: 99})
    world.sample()
    assert {group: world.history.lag(group) for group in world.history.groups} == {"a": 170, "b": 1}
    for end in (200, 300, 400):
        written(world, [0, 1], end)
        world.commit("a", {0: end // 2 - 40, 1: end // 2 - 30})
        world.sample()
    assert world.history.trend("a") == 20.0 - 10.0


def test_how_often_a_group_commits_and_how_its_positions_moved(world: World) -> None:
    """Both positions three times within ten seconds, of which a look sees the last."""
    written(world, [0, 1], 100)
    world.commit("a", {0: 0, 1: 0})
    world.sample()
    for step in range(1, 4):
        for each in range(3):
            world.commit("a", {0: 10 * step + each, 1: step})
        world.sample()
    answer = pb.OffsetFetchResponse()
    answer.topics.add(name="t").partitions.add(partition_index=0, committed_offset=32, commit_timestamp_ms=31_000)
    asyncio.run(add_sampled_commits(answer, world.history, "a"))
    found = map_commits(answer)
    assert found.traffic is not None
    assert (found.traffic.records, found.traffic.rate) == (18, 0.6)
    assert [sample.offset for sample in found.trails[TopicPartition("t", 0)].samples] == [0, 12, 22, 32]
    world.submit("a", DeleteGroup(99, "a"))
    shard = world.engine.core(partition_for("a", SHARDS))
    assert shard is not None
    assert shard.state.commit_counts == {}, "nothing is kept of groups that are gone"


def test_records_that_retention_removed_are_no_lag(world: World) -> None:
    """A group 4,990 records behind, of which 4,985 are gone, has 5 to read."""
    written(world, [0, 1], 5_000)
    world.starts.update({("t", 0): 5_000, ("t", 1): 4_995})
    world.commit("a", {0: 5, 1: 10})
    world.sample()
    rates = world.history.rates("a")
    assert rates is not None
    assert (world.history.lag("a"), rates.lag_now.tolist()) == (5, [0, 5])


def test_a_deleted_group_goes_and_so_do_deleted_positions(world: World) -> None:
    written(world, [0, 1], 100)
    world.commit("a", {0: 10, 1: 20})
    world.commit("b", {0: 0})
    world.sample()
    world.submit("b", DeleteGroup(99, "b"))
    world.sample()
    assert world.history.groups == ("a",)
    assert world.history.lag("a") == 170


def test_a_topic_made_anew_takes_the_old_one_s_positions_along(world: World) -> None:
    written(world, [0], 100)
    world.commit("a", {0: 10})
    world.sample()
    world.ids = {"t": bytes([1] * 16)}
    world.engine.submit_all(TopicsChanged({"t": 1}, ("t",), world.ids))
    world.turn()
    world.commit("a", {0: 1})
    written(world, [0], 1_000)
    world.sample()
    rates = world.history.rates("a")
    assert rates is not None
    assert str(rates.produced[0]) == "nan"
    assert world.history.lag("a") == 999


def test_a_shard_that_failed_keeps_its_history_and_one_that_is_unloaded_does_not(world: World) -> None:
    written(world, [0], 100)
    world.commit("a", {0: 10})
    world.sample()
    shard = partition_for("a", SHARDS)
    world.engine.submit(shard, OffsetCommit(500, "a", "", None, -1, {("t", 0): CommittedOffset(11)}))
    world.engine.turn(world.now_ms)
    job = world.engine.flush_job()
    assert job is not None
    world.engine.flush_failed(job, LogFailed("no such disk"))
    assert world.engine.status(shard) is ShardStatus.FAILED
    world.sample()
    assert world.history.lag("a") == 90
    assert len(world.history.lag_series("a")[0]) == 1
    world.engine.submit(shard, Unload())
    world.turn()
    assert world.engine.status(shard) is ShardStatus.UNLOADED
    world.sample()
    assert world.history.groups == ()


def test_a_large_group_is_looked_at_in_pieces_between_which_others_have_their_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_work, "SLICE_S", 0.0)
    written(world, range(2_000), 10)
    world.commit("a", dict.fromkeys(range(2_000), 4))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            if turns == 7:  # In the middle of the sample: what is looked at afterwards is seen as it is then.
                world.commit("a", {1_999: 9})
            await asyncio.sleep(0)

    async def both() -> None:
        beside = asyncio.create_task(others())
        await world.sampling.sample()
        beside.cancel()

    asyncio.run(both())
    assert turns > 7
    assert world.looked == [PARTITIONS_PER_SLICE] * 4
    assert world.history.lag("a") == 1_999 * 6 + 1


def test_a_large_group_is_judged_in_pieces_and_its_table_is_made_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[int] = []
    tables: list[int] = []
    judge, zeros = bounds.judge_health, bounds.np.zeros

    def judging(seen: CommitWindows, lag: bounds.Ints, now_ms: int, allowed_lag: int) -> bounds.Ints:
        judged.append(len(lag))
        return judge(seen, lag, now_ms, allowed_lag)

    def making(size: int, *how: Any) -> Any:
        if size >= PARTITIONS_PER_SLICE:
            tables.append(size)
        return zeros(size, *how)

    monkeypatch.setattr(bounds, "judge_health", judging)
    monkeypatch.setattr(bounds.np, "zeros", making)
    written(world, range(2_000), 10)
    world.commit("a", dict.fromkeys(range(2_000), 4))
    for _ in range(2):
        world.sample()
    assert judged == [PARTITIONS_PER_SLICE] * 8
    assert tables == [2_000]
    assert world.history.last_health("a") == world.history.last_health("a")
    assert judged == [PARTITIONS_PER_SLICE] * 8  # nothing is judged when somebody asks
    assert world.history.last_health("a") == world.history.health("a", world.now_ms)


def test_a_group_that_goes_in_the_middle_of_its_sample(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_work, "SLICE_S", 0.0)
    written(world, range(2_000), 10)
    world.commit("a", dict.fromkeys(range(2_000), 4))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            if turns == 7:
                world.submit("a", DeleteGroup(999, "a"))
                while world.engine.pending:
                    world.turn()
            await asyncio.sleep(0)

    async def both() -> None:
        beside = asyncio.create_task(others())
        await world.sampling.sample()
        beside.cancel()

    asyncio.run(both())
    world.sample()
    assert world.history.groups == ()


def test_what_there_is_no_room_for_is_refused_largest_first_and_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MAX_PARTITIONS", 30)
    monkeypatch.setattr(group_sampling, "admit_groups", lambda sizes: bounds.admit_groups(sizes, most_partitions=30))
    written(world, range(40), 10)
    world.commit("large", dict.fromkeys(range(40), 0))
    world.commit("small", dict.fromkeys(range(20), 0))
    world.sample()
    assert world.history.groups == ("small",)
    assert world.history.notice.startswith("1 of the largest groups with 40 partitions have no history")
    world.submit("large", DeleteGroup(77, "large"))
    world.sample()
    assert world.history.notice == ""


class Told(GroupSampler):
    """It says when a sample went well."""

    settled: asyncio.Event

    async def sample(self) -> None:
        await super().sample()
        self.settled.set()


def test_a_sample_that_fails_is_not_the_last(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    written(world, [0], 100)
    world.commit("a", {0: 10})
    answers = [RuntimeError("once"), None]

    def ids() -> dict[str, bytes]:
        if (error := answers.pop(0)) is not None:
            raise error
        return world.ids

    async def run() -> None:
        history = GroupHistory(1)
        # Each look at the clock takes a while: the next sample is always due.
        ticks = iter(range(1_000, 10_000_000, 5))
        watched = Told(history, world.looking, lambda: next(ticks), ids)
        watched.settled = asyncio.Event()
        watched.start()
        await watched.settled.wait()
        watched.stop()
        assert history.lag("a") == 90

    asyncio.run(run())


def test_ends_that_other_nodes_are_to_say_are_waited_for_and_commits_are_those_of_the_moment_after() -> None:
    """Of a part of the logs the lag would look like that of a group that keeps up."""
    world = World()
    world.commit("g", {0: 5, 1: 5})

    async def ahead(places: Sequence[TopicPartition]) -> None:
        world.ends = dict.fromkeys(places, 100)
        world.commit("g", {1: 60})

    world.sampling = GroupSampler(
        GroupHistory(SAMPLE_MS),
        PositionReader(world.engine, SaidExtents(world.ends_of, ahead=ahead)),
        lambda: world.now_ms,
        lambda: dict(world.ids),
    )
    world.sample()
    assert world.history.lag("g") == 95 + 40
