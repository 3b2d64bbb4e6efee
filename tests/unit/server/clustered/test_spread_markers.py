"""Markers go to whoever leads their partitions, and count once they are committed there (TX-N5)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.handlers.transaction_batches import NodeMarker
from muster.coordinator.kafka.handlers.transaction_markers import RequestedMarkers
from muster.coordinator.replication.protocol.cluster_metadata import TopicPartition
from muster.coordinator.server.cluster_backend import cluster_transactions
from muster.coordinator.server.cluster_backend.cluster_transactions import (
    CommittedAppends,
    LedMarkers,
    SpreadMarkers,
)
from muster.coordinator.server.transactions.marker_writer import MARKERS_PER_TURN
from muster.coordinator.transactions.effects import SendMarkers
from muster.coordinator.transactions.events import MarkersWritten
from muster.storage.errors import InvalidProducerEpoch, NotEnoughReplicas
from muster.storage.logs.producer_state import MarkerToWrite

ME, OTHER, NOBODY = 1, 2, -1
MARKER = MarkerToWrite(7, 3, commit=True, coordinator_epoch=4, level=2)
END = 10
PATIENCE_S = 60
OLD_ID, NEW_ID = b"o" * 16, b"n" * 16


class Cluster:
    """What a node knows, of which it leads what `leaders` says."""

    def __init__(self, leaders: Mapping[tuple[str, int], int]) -> None:
        self.leaders = leaders
        self.now_ms = 0
        self.refusals: dict[tuple[str, int], Exception] = {}
        self.appended: list[tuple[str, int]] = []
        self.grew: list[TopicPartition] = []
        self.waits: dict[TopicPartition, asyncio.Future[ErrorCode]] = {}
        self.sent: list[tuple[int, tuple[tuple[str, int], ...]]] = []
        self.ids_sent: list[dict[str, bytes]] = []
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
            image=SimpleNamespace(partition=lambda place: "its state" if tuple(place) in leaders else None),
            committing=SimpleNamespace(wait=self._wait),
            grown=self.grew.extend,
            unwritable=lambda place, why: False,
        )
        topics = {topic: SimpleNamespace(id=OLD_ID, partitions=1_000) for topic, _ in leaders}
        records: Any = SimpleNamespace(append_marker=self._append, topics=lambda: topics)
        self.topics = topics
        appends = CommittedAppends(records, side, lambda: 0)
        self.here = LedMarkers(records, RequestedMarkers(records, appends.append, self._end_positions))
        others: Any = SimpleNamespace(write_markers=self._write_elsewhere)
        self.spread = SpreadMarkers(side, self.here, others, self._hear, lambda: self.now_ms)

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
        self, node: int, marker: NodeMarker, places: Sequence[tuple[str, int]]
    ) -> dict[tuple[str, int], int]:
        self.sent.append((node, tuple(places)))
        self.ids_sent.append(dict(marker.topic_ids))
        return dict.fromkeys(places, 0)

    def asked(self, *places: tuple[str, int]) -> SendMarkers:
        return SendMarkers("A", 1, 2, 7, 3, True, 4, 2, places, {"t": OLD_ID, "never asked for": NEW_ID})

    async def write(
        self,
        marker: MarkerToWrite,
        *places: tuple[str, int],
        topic_ids: Mapping[str, bytes] = MappingProxyType({}),
        patience_s: float = PATIENCE_S,
    ) -> dict[tuple[str, int], int]:
        """What a node is told that asks by the door."""
        return await self.here.write_marker(marker, places, topic_ids, patience_s)

    async def end(self, place: tuple[str, int], code: ErrorCode = ErrorCode.NONE) -> None:
        """The marker that was appended last is committed, or never will be; all who are to know it do."""
        self.waits[TopicPartition(*place)].set_result(code)
        for _ in range(5):
            await asyncio.sleep(0)

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


def test_markers_that_wait_for_a_leader_are_counted_until_there_is_one_or_nobody_asks_any_more() -> None:
    """Kafka's UnknownDestinationQueueSize."""
    leaders = {("t", 0): NOBODY, ("t", 1): NOBODY, ("t", 2): OTHER}

    async def story(cluster: Cluster) -> None:
        await cluster.results(("t", 0), ("t", 1), ("t", 2), ("gone", 0))
        assert cluster.spread.without_leader() == 2
        cluster.now_ms = 1_500
        leaders["t", 0] = OTHER
        cluster.told.clear()
        await cluster.results(("t", 0), ("t", 1))
        assert cluster.spread.without_leader() == 1
        cluster.now_ms = 3_500
        assert cluster.spread.without_leader() == 1
        cluster.now_ms = 3_501  # this node coordinates it no more
        assert cluster.spread.without_leader() == 0

    play(story, leaders)


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
        assert cluster.ids_sent == [{"t": OLD_ID}]
        assert cluster.grew == [TopicPartition("t", 0)]

    play(story, leaders)


def test_a_partition_whose_topic_is_gone_is_told_as_that() -> None:
    async def story(cluster: Cluster) -> None:
        assert await cluster.results(("gone", 0)) == {("gone", 0): 3}
        assert cluster.told[0].gone == {("gone", 0)}

    play(story, {("t", 0): ME})


def test_a_partition_that_its_topic_has_no_more_is_told_as_gone() -> None:
    """The topic was deleted and made again with fewer partitions: nobody will ever lead this one."""

    async def story(cluster: Cluster) -> None:
        assert await cluster.results(("t", 0), ("t", 3)) == {("t", 0): 0, ("t", 3): 3}
        assert [each.gone for each in cluster.told if ("t", 3) in each.results] == [{("t", 3)}]

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


def test_what_is_not_committed_in_time_is_asked_for_again_and_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_transactions, "PATIENCE_S", 0.01)
    place = ("t", 0)

    async def story(cluster: Cluster) -> None:
        cluster.commits_at_once = False
        assert await cluster.results(place) == {place: ErrorCode.REQUEST_TIMED_OUT}
        await cluster.end(place)
        cluster.told.clear()
        assert await cluster.results(place) == {place: 0}
        assert cluster.appended == [place]
        cluster.commits_at_once = True
        cluster.told.clear()
        assert await cluster.results(place) == {place: 0}
        assert cluster.appended == [place, place], "its outcome was told: whoever asks once more has it written"

    play(story, {place: ME})


def test_a_slow_partition_holds_no_answer_up_twice() -> None:
    """Its markers are written without waiting, and all others in the same request are answered."""
    slow, other = ("t", 0), ("t", 1)

    async def story(cluster: Cluster) -> None:
        cluster.commits_at_once = False
        first = asyncio.ensure_future(cluster.write(MARKER, slow, other, patience_s=0.01))
        await cluster.until(lambda: len(cluster.waits) == 2)
        await cluster.end(other)
        assert await first == {slow: 7, other: 0}
        never = PATIENCE_S
        assert await cluster.write(MARKER._replace(producer_id=8), slow, patience_s=never) == {slow: 7}
        assert await cluster.write(MARKER, slow, patience_s=never) == {slow: 7}
        assert cluster.appended == [slow, other, slow]
        await cluster.end(slow)
        assert await cluster.write(MARKER._replace(producer_id=8), slow, patience_s=never) == {slow: 0}

    play(story, {slow: ME, other: ME})


def test_a_marker_that_ends_badly_is_written_again() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.commits_at_once = False
        assert await cluster.write(MARKER, ("t", 0), patience_s=0.01) == {("t", 0): 7}
        await cluster.end(("t", 0), ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert await cluster.write(MARKER, ("t", 0)) == {("t", 0): 6}
        cluster.commits_at_once = True
        assert await cluster.write(MARKER, ("t", 0)) == {("t", 0): 0}
        assert cluster.appended == [("t", 0)] * 2

    play(story, {("t", 0): ME})


def test_outcomes_that_nobody_asks_for_again_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_transactions, "MOST_UNDER_WAY", 2)
    places = [("t", number) for number in range(3)]

    async def story(cluster: Cluster) -> None:
        cluster.commits_at_once = False
        for place in places:
            assert await cluster.write(MARKER, place, patience_s=0.001) == {place: 7}
        cluster.commits_at_once = True
        for place in (places[2], places[0]):
            await cluster.end(place)
            assert await cluster.write(MARKER, place) == {place: 0}
        assert cluster.appended == [*places, places[0]], "another one is written of the oldest"

    play(story, dict.fromkeys(places, ME))


def test_no_marker_is_written_into_a_topic_that_was_made_again_under_its_name() -> None:
    """At level 0 it would end the next transaction of its producer there (TX-C15)."""

    async def story(cluster: Cluster) -> None:
        cluster.topics["t"].id = NEW_ID
        assert await cluster.results(("t", 0), ("u", 0)) == {("t", 0): 3, ("u", 0): 0}
        assert cluster.appended == [("u", 0)]
        assert await cluster.write(MARKER, ("t", 0), topic_ids={"t": NEW_ID}) == {("t", 0): 0}

    play(story, {("t", 0): ME, ("u", 0): ME})


def test_the_outcome_of_a_marker_is_that_of_its_topic_and_of_no_later_one() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.commits_at_once = False
        assert await cluster.write(MARKER, ("t", 0), topic_ids={"t": OLD_ID}, patience_s=0.001) == {("t", 0): 7}
        await cluster.end(("t", 0))
        cluster.commits_at_once, cluster.topics["t"].id = True, NEW_ID
        assert await cluster.write(MARKER, ("t", 0), topic_ids={"t": NEW_ID}) == {("t", 0): 0}
        assert cluster.appended == [("t", 0)] * 2

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
