"""Writes the markers that end transactions into the logs of this node, and says what became of each.

What several transactions need is appended together, in one write for each log, and made durable by one round of flushes
in a thread; what comes meanwhile is in the next round. A log that fails is told as an error of its partitions and holds
nobody else up.
Partitions of `__consumer_offsets` are the groups' engine's, which writes the marker between its own records (TX-G4);
each of them is asked for by itself, and reported when it has been written.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, TypeAlias

from muster.coordinator.edge.background_tasks import RestartedTask, SupervisedTasks
from muster.coordinator.kafka.handlers.transaction_markers import STORAGE_FAILED, EndPositions, code_of
from muster.coordinator.kafka.handlers.transactions import is_partition
from muster.coordinator.runtime.replay import GROUPS_TOPIC
from muster.coordinator.server.driver.driver import JobThread
from muster.coordinator.transactions.effects import SendMarkers
from muster.coordinator.transactions.events import MarkersWritten
from muster.coordinator.transactions.records import TopicPartition
from muster.storage.broker.broker import Broker
from muster.storage.errors import StorageError
from muster.storage.logs.producer_state import MarkerToWrite

MARKERS_PER_TURN: Final = 100
"""Markers that are appended between two turns of the loop: each may be for a file of its own."""
MARKERS_SORTED: Final = 1_000
"""Markers among which those for one log are looked for."""

IsWanted: TypeAlias = Callable[[SendMarkers, TopicPartition], bool]
"""Whether its coordinator still waits for this marker."""


def want_all(asked: SendMarkers, place: TopicPartition) -> bool:
    """The default of `MarkerWriter`."""
    return True


class MarkerWriter:
    """Belongs to the loop that starts it. `report` is told what became of the markers of each `SendMarkers`, of some of
    them at a time."""

    def __init__(
        self,
        broker: Broker,
        clock_ms: Callable[[], int],
        end_positions: EndPositions,
        report: Callable[[MarkersWritten], None],
        is_wanted: IsWanted = want_all,
    ) -> None:
        """is_wanted: asked as each marker is appended. While it waited its topic may have been deleted and made again:
        it would end the next transaction of its producer there (TX-C15)."""
        self._broker = broker
        self._is_wanted = is_wanted
        self._end_positions = end_positions
        self._ending = SupervisedTasks()
        self._flusher: JobThread[MarkerFlush] | None = None
        self._flushed: asyncio.Future[Mapping[TopicPartition, int]] | None = None
        """What comes of the round of flushes that was begun last."""
        self._clock_ms = clock_ms
        self._report = report
        self._asked: list[SendMarkers] = []
        self._work = asyncio.Event()
        self._rounds = RestartedTask("transaction markers", self._write_rounds)

    def start(self) -> None:
        self._flusher = JobThread("marker-flusher", asyncio.get_running_loop(), self._flush_ended)
        self._rounds.start()

    async def stop(self) -> None:
        """What is not written yet is asked for again when the shard is loaded next."""
        await self._rounds.stop()
        await self._ending.close()
        if self._flushed is not None:
            await asyncio.wait([self._flushed])  # a round that was under way still writes
        if self._flusher is not None:
            self._flusher.close()
            self._flusher = None

    def without_leader(self) -> int:
        """A node by itself leads every partition."""
        return 0

    def write(self, asked: SendMarkers) -> None:
        """Have these markers written in the next round, and those for groups' positions by their engine."""
        records = tuple(place for place in asked.partitions if place[0] != GROUPS_TOPIC)
        for topic, shard in asked.partitions:
            if topic == GROUPS_TOPIC:
                self._ending.start(self._end(asked, shard), "positions of a transaction")
        if records:
            self._asked.append(replace(asked, partitions=records))
            self._work.set()

    async def _end(self, asked: SendMarkers, shard: int) -> None:
        error = STORAGE_FAILED
        try:
            error = await self._end_positions(shard, content_of(asked))
        finally:
            place = (GROUPS_TOPIC, shard)
            self._report(MarkersWritten(asked.transactional_id, asked.life, asked.number, {place: error}))

    async def _write_rounds(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            asked, self._asked = self._asked, []
            try:
                await self._write_round(asked)
            except BaseException:
                self._asked = asked + self._asked  # a repetition changes nothing (TX-L5)
                self._work.set()
                raise

    async def _write_round(self, asked: Sequence[SendMarkers]) -> None:
        found: list[dict[TopicPartition, int]] = [{} for _ in asked]
        in_turn = 0
        for place, some in markers_of(asked):
            wanted = [each for each in some if self._is_wanted(asked[each[0]], place)]
            codes = self._append(place, [content for _, content in wanted])
            for (number, _), code in zip(wanted, codes, strict=True):
                found[number][place] = code
            in_turn += len(some)
            if in_turn >= MARKERS_PER_TURN:
                in_turn = 0
                await asyncio.sleep(0)
        failed = await self._flush({place for results in found for place, error in results.items() if not error})
        for each, results in zip(asked, found, strict=True):
            told, gone = results, frozenset[TopicPartition]()
            if failed or any(results.values()):
                topics = self._broker.topics()
                told = {place: error or failed.get(place, 0) for place, error in results.items()}
                gone = frozenset(place for place in told if not is_partition(place, topics))
            self._report(MarkersWritten(each.transactional_id, each.life, each.number, told, gone))

    def _append(self, place: TopicPartition, contents: Sequence[MarkerToWrite]) -> list[int]:
        """Kafka's error number for each, 0 for none."""
        try:
            done = self._broker.append_markers(*place, contents, self._clock_ms())
        except (StorageError, OSError) as error:
            return [code_of(error)] * len(contents)
        return [code_of(each) if isinstance(each, Exception) else 0 for each in done]

    async def _flush(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Error numbers of those that are not durable."""
        assert self._flusher is not None, "rounds begin with `start`"
        self._flushed = asyncio.get_running_loop().create_future()
        self._flusher.submit(MarkerFlush(self._broker, sorted(places)))
        return await asyncio.shield(self._flushed)

    def _flush_ended(self, job: "MarkerFlush", error: BaseException | None) -> None:
        done = self._flushed
        assert done is not None, "one was begun"
        if error is None:
            done.set_result(job.failed)
        else:
            done.set_exception(error)


class MarkerFlush:
    """One round of flushes. `failed`: error numbers of the logs that are not durable."""

    def __init__(self, broker: Broker, places: Sequence[TopicPartition]) -> None:
        self._broker = broker
        self._places = places
        self.failed: dict[TopicPartition, int] = {}

    def run(self) -> None:
        """In a thread."""
        for place in self._places:
            try:
                self._broker.flush([place])
            except (StorageError, OSError) as error:
                self.failed[place] = code_of(error)


def markers_of(
    asked: Sequence[SendMarkers],
) -> Iterator[tuple[TopicPartition, Sequence[tuple[int, MarkerToWrite]]]]:
    """The markers for each log, each with the number of who asks for it. So many markers at a time, as one round may
    ask for a million, and nobody has a turn while they are sorted."""
    every = ((number, place) for number, each in enumerate(asked) for place in each.partitions)
    contents = [content_of(each) for each in asked]
    while some := tuple(islice(every, MARKERS_SORTED)):
        found: dict[TopicPartition, list[tuple[int, MarkerToWrite]]] = {}
        for number, place in some:
            found.setdefault(place, []).append((number, contents[number]))
        for place, markers in found.items():
            for first in range(0, len(markers), MARKERS_PER_TURN):
                yield place, markers[first : first + MARKERS_PER_TURN]


def content_of(asked: SendMarkers) -> MarkerToWrite:
    return MarkerToWrite(asked.producer_id, asked.epoch, asked.commit, asked.coordinator_epoch, asked.level)
