"""Writes the markers that end transactions into the logs of this node, and says what became of each.

What several transactions need is appended together and made durable by one round of flushes in a thread; what comes
meanwhile is in the next round. A log that fails is told as an error of its partitions and holds nobody else up.
Partitions of `__consumer_offsets` are the groups' engine's, which writes the marker between its own records (TX-G4);
each of them is asked for by itself, and reported when it has been written.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from muster.coordinator.edge.background_tasks import RestartedTask, SupervisedTasks
from muster.coordinator.kafka.handlers.transaction_markers import STORAGE_FAILED, EndPositions, code_of
from muster.coordinator.runtime.replay import GROUPS_TOPIC
from muster.coordinator.transactions.effects import SendMarkers
from muster.coordinator.transactions.events import MarkersWritten
from muster.coordinator.transactions.records import TopicPartition
from muster.storage.broker.broker import Broker
from muster.storage.errors import StorageError
from muster.storage.logs.producer_state import MarkerToWrite

MARKERS_PER_TURN: Final = 100
"""Appends between two turns of the loop: each is a write to a file of its own."""

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
        self._flushing = threading.Lock()
        self._clock_ms = clock_ms
        self._report = report
        self._asked: list[SendMarkers] = []
        self._work = asyncio.Event()
        self._rounds = RestartedTask("transaction markers", self._write_rounds)

    def start(self) -> None:
        self._rounds.start()

    async def stop(self) -> None:
        """What is not written yet is asked for again when the shard is loaded next."""
        await self._rounds.stop()
        await self._ending.close()
        await asyncio.to_thread(self._flush, ())  # behind one that is under way

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
        for done, (number, place, content) in enumerate(markers_of(asked), start=1):
            if self._is_wanted(asked[number], place):
                found[number][place] = self._append(place, content)
            if not done % MARKERS_PER_TURN:
                await asyncio.sleep(0)
        written = {place for results in found for place, error in results.items() if not error}
        failed = await asyncio.to_thread(self._flush, sorted(written))
        topics = self._broker.topics()
        for each, results in zip(asked, found, strict=True):
            told = {place: error or failed.get(place, 0) for place, error in results.items()}
            gone = frozenset(place for place in told if place[0] not in topics)
            self._report(MarkersWritten(each.transactional_id, each.life, each.number, told, gone))

    def _append(self, place: TopicPartition, content: MarkerToWrite) -> int:
        """Kafka's error number, 0 for none."""
        try:
            self._broker.append_marker(*place, content, self._clock_ms())
        except (StorageError, OSError) as error:
            return code_of(error)
        return 0

    def _flush(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Error numbers of those that are not durable. In a thread."""
        failed: dict[TopicPartition, int] = {}
        with self._flushing:
            for place in places:
                try:
                    self._broker.flush([place])
                except (StorageError, OSError) as error:
                    failed[place] = code_of(error)
        return failed


def markers_of(asked: Sequence[SendMarkers]) -> Iterator[tuple[int, TopicPartition, MarkerToWrite]]:
    """Each marker and where it goes, behind the number of who asks for it."""
    for number, each in enumerate(asked):
        content = content_of(each)
        for place in each.partitions:
            yield number, place, content


def content_of(asked: SendMarkers) -> MarkerToWrite:
    return MarkerToWrite(asked.producer_id, asked.epoch, asked.commit, asked.coordinator_epoch, asked.level)
