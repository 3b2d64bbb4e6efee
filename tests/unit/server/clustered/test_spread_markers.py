"""Markers go to whoever leads their partitions, and count once they are committed there (TX-N5)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import TopicPartition
from muster.coordinator.server.cluster_backend import cluster_transactions
from muster.coordinator.server.cluster_backend.cluster_transactions import LedMarkers, SpreadMarkers
from muster.coordinator.server.transactions.marker_writer import MARKERS_PER_TURN
from muster.coordinator.transactions.effects import SendMarkers
from muster.coordinator.transactions.events import MarkersWritten
from muster.storage.errors import InvalidProducerEpoch, NotEnoughReplicas
from muster.storage.logs.producer_state import MarkerToWrite

ME, OTHER, NOBODY = 1, 2, -1
MARKER = MarkerToWrite(7, 3, commit=True, coordinator_epoch=4, level=2)
END = 10


class Cluster:
    """What a node knows, of which it leads what `leaders` says."""

    def __init__(self, leaders: Mapping[tuple[str, int], int]) -> None:
        self.leaders = leaders
        self.refusals: dict[tuple[str, int], Exception] = {}
        self.appended: list[tuple[str, int]] = []
        self.grew: list[TopicPartition] = []
        self.waits: dict[TopicPartition, asyncio.Future[ErrorCode]] = {}
        self.sent: list[tuple[int, tuple[tuple[str, int], ...]]] = []
        self.ended: list[int] = []
        self.told: list[MarkersWritten] = []
        self.commits_at_once = True
        self.happened = asyncio.Event()
        side: Any = SimpleNamespace(
            replicas=SimpleNamespace(
                me=ME,
                leader_of=lambda place: (leaders.get(tuple(place), NOBODY), 0),
                led={TopicPartition(*place): SimpleNamespace(log=SimpleNamespace(end=END)) for place in leaders},
            ),
            image=SimpleNamespace(topics={topic: None for topic, _ in leaders}),
            committing=SimpleNamespace(wait=self._wait),
            grown=self.grew.extend,
            unwritable=lambda place, why: False,
        )
        records: Any = SimpleNamespace(append_marker=self._append)
        self.here = LedMarkers(records, side, self._end_positions, lambda: 0)
        others: Any = SimpleNamespace(write_markers=self._write_elsewhere)
        self.spread = SpreadMarkers(side, self.here, others, self._hear)

    def _append(self, topic: str, number: int, marker: MarkerToWrite, now_ms: int) -> Any:
        if (refusal := self.refusals.get((topic, number))) is not None:
            raise refusal
        self.appended.append((topic, number))
        return SimpleNamespace(last_offset=END)

    def _wait(self, place: TopicPartition, end: int) -> "asyncio.Future[ErrorCode]":
        done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.waits[place] = done
        self.happened.set()
        if self.commits_at_once:
            done.set_result(ErrorCode.NONE)
        return done

    def _hear(self, written: MarkersWritten) -> None:
        self.told.append(written)
        self.happened.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.happened.clear()
            await self.happened.wait()

    async def _end_positions(self, shard: int, marker: MarkerToWrite) -> int:
        self.ended.append(shard)
        return 0

    async def _write_elsewhere(
        self, node: int, marker: MarkerToWrite, places: Sequence[tuple[str, int]]
    ) -> dict[tuple[str, int], int]:
        self.sent.append((node, tuple(places)))
        return dict.fromkeys(places, 0)

    def asked(self, *places: tuple[str, int]) -> SendMarkers:
        return SendMarkers("A", 1, 2, 7, 3, True, 4, 2, places)

    async def results(self, *places: tuple[str, int]) -> dict[tuple[str, int], int]:
        self.spread.write(self.asked(*places))
        await self.until(lambda: sum(len(each.results) for each in self.told) >= len(places))
        return {place: code for each in self.told for place, code in each.results.items()}


def play(story: Callable[[Cluster], Awaitable[None]], leaders: Mapping[tuple[str, int], int]) -> None:
    async def run() -> None:
        cluster = Cluster(leaders)
        await story(cluster)
        await cluster.spread.stop()

    asyncio.run(run())


def test_each_goes_to_its_leader_and_what_nobody_leads_is_asked_for_again() -> None:
    leaders = {("t", 0): ME, ("t", 1): OTHER, ("t", 2): NOBODY, ("__consumer_offsets", 3): ME}

    async def story(cluster: Cluster) -> None:
        found = await cluster.results(("t", 0), ("t", 1), ("t", 2), ("__consumer_offsets", 3))
        assert found == {
            ("t", 0): 0,
            ("t", 1): 0,
            ("t", 2): ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ("__consumer_offsets", 3): 0,
        }
        assert (cluster.appended, cluster.ended) == ([("t", 0)], [3])
        assert cluster.sent == [(OTHER, (("t", 1),))]
        assert cluster.grew == [TopicPartition("t", 0)]

    play(story, leaders)


def test_a_partition_whose_topic_is_gone_is_told_as_that() -> None:
    async def story(cluster: Cluster) -> None:
        assert await cluster.results(("gone", 0)) == {("gone", 0): 3}
        assert cluster.told[0].gone == {("gone", 0)}

    play(story, {("t", 0): ME})


def test_what_the_log_found_is_told_once_all_that_it_has_is_committed() -> None:
    """A leader that was passed by may have records of a later epoch that will be cut away."""

    async def story(cluster: Cluster) -> None:
        cluster.refusals["t", 0] = InvalidProducerEpoch("a later one")
        cluster.refusals["t", 1] = InvalidProducerEpoch("a later one")
        cluster.refusals["t", 2] = NotEnoughReplicas("one alone")
        cluster.commits_at_once = False
        cluster.spread.write(cluster.asked(("t", 0), ("t", 1), ("t", 2)))
        await cluster.until(lambda: len(cluster.waits) == 2)
        assert cluster.told == []
        cluster.waits[TopicPartition("t", 0)].set_result(ErrorCode.NONE)
        cluster.waits[TopicPartition("t", 1)].set_result(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await cluster.until(lambda: bool(cluster.told))
        assert cluster.told[0].results == {("t", 0): 47, ("t", 1): 6, ("t", 2): 19}

    play(story, {("t", number): ME for number in range(3)})


def test_what_is_not_committed_in_time_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_transactions, "PATIENCE_S", 0.01)

    async def story(cluster: Cluster) -> None:
        cluster.commits_at_once = False
        assert await cluster.here.write_marker(MARKER, [("t", 0)]) == {("t", 0): ErrorCode.REQUEST_TIMED_OUT}
        assert cluster.waits[TopicPartition("t", 0)].cancelled()

    play(story, {("t", 0): ME})


def test_very_many_are_written_in_portions_of_which_each_is_reported() -> None:
    places = [("t", number) for number in range(2 * MARKERS_PER_TURN + 1)]

    async def story(cluster: Cluster) -> None:
        assert set((await cluster.results(*places)).values()) == {0}
        assert [len(each.results) for each in cluster.told] == [MARKERS_PER_TURN, MARKERS_PER_TURN, 1]

    play(story, dict.fromkeys(places, ME))


def test_a_mistake_of_the_program_leaves_no_marker_unreported() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.refusals["t", 0] = ValueError("a mistake")
        assert await cluster.results(("t", 0)) == {("t", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER}

    play(story, {("t", 0): ME})
