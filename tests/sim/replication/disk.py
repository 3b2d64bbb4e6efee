"""A simulated node's data directory: what outlives its process, and what does not outlive a loss of power."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from muster.coordinator.replication.protocol.cluster_metadata import TopicPartition
from muster.coordinator.replication.protocol.node_replicas import ROOM_TO_LEAD, ROOM_TO_WRITE
from muster.coordinator.replication.protocol.replica_fetch import LogBroken, LogCorrupt, Records
from tests.sim.replication.logs import Entry, LogModel

HASTY = "hasty"
"""A topic that acknowledges before it flushes (`flush.messages` above 1): what it has is flushed every now and then."""


PLENTY = 1 << 40


class Given(NamedTuple):
    """Records that a copy gave up, by a cut or because it began anew: what lay from that offset on."""

    place: TopicPartition
    topic_id: bytes
    at: int
    entries: tuple[Entry, ...]


class NoRoom(LogBroken):
    """The disk is full: nothing is wrong with what is on it."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Records on their way: where they begin, and what they are."""

    at: int
    entries: Sequence[Entry]

    def __len__(self) -> int:
        return len(self.entries)


class SimLog:
    """`LogModel` as the replicas want it. Its high watermark lives in memory; the checkpoint is what a start finds."""

    def __init__(self, disk: "Disk", place: TopicPartition, model: LogModel) -> None:
        self.place = place
        self.model = model
        self.high_watermark = max(model.start, min(model.checkpointed_high_watermark, model.end))
        self._disk = disk

    @property
    def start(self) -> int:
        return self.model.start

    @property
    def end(self) -> int:
        return self.model.end

    @property
    def kept(self) -> int:
        return self._disk.kept(self.place)

    @property
    def last_epoch(self) -> int:
        return self.model.last_epoch

    def lead(self, epoch: int) -> None:
        self._look(ROOM_TO_LEAD)
        self.model.become_leader(epoch)

    def end_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.model.end_offset_for_epoch(epoch)

    def epoch_at(self, offset: int) -> int:
        return self.model.epoch_at(offset) if self.model.start <= offset < self.model.end else -1

    def read(self, offset: int, max_bytes: int) -> Records:
        self._look()
        if self.place in self._disk.corrupt:
            raise LogCorrupt(f"{self.place}: a batch has a wrong checksum", self.place)
        return Batch(offset, tuple(self.model.read(offset, max(1, max_bytes >> 14))))

    def append(self, epoch: int, values: Sequence[object]) -> None:
        self._look(ROOM_TO_WRITE)
        self.model.append(epoch, values)

    def append_as_follower(self, records: Records) -> None:
        self._look(ROOM_TO_WRITE)
        assert isinstance(records, Batch)
        if records.at != self.model.end:
            raise AssertionError(
                f"{self.place}: records from {records.at} on were given to a log that ends at {self.end}"
            )
        self.model.append_as_follower(records.at, records.entries)

    def cut(self, to: int) -> None:
        self._look()
        self._disk.gives(self.place, to)
        self.model.cut(to)
        self.high_watermark = min(self.high_watermark, self.model.end)

    def restart_at(self, at: int) -> None:
        self._look()
        self._disk.gives(self.place, at)
        self.model.begin_at(at)
        self.high_watermark = at

    def advance_start(self, to: int) -> None:
        self._look()
        self.model.move_start(to)
        self.high_watermark = max(self.high_watermark, self.model.start)

    def tell_high_watermark(self, offset: int) -> None:
        self.high_watermark = max(self.model.start, min(offset, self.model.end))

    def flush(self, end: int) -> None:
        """What had been written up to `end` when the flush began is kept."""
        self._look()
        if self.place.topic == HASTY:
            return
        self.model.kept_end = max(self.model.kept_end, min(end, self.model.end))

    def _look(self, wanted: int = 0) -> None:
        """wanted: so many bytes are to be written."""
        if self.place in self._disk.failing:
            raise LogBroken(f"{self.place}: the disk says EIO")
        if why := self._disk.no_room(wanted):
            raise NoRoom(f"{self.place}: {why}")


@dataclass(slots=True)
class Disk:
    """`Logs` of one node. directory: its id; a new disk has another."""

    directory: str
    models: dict[TopicPartition, tuple[bytes, LogModel]] = field(default_factory=dict)
    failing: set[TopicPartition] = field(default_factory=set)
    corrupt: set[TopicPartition] = field(default_factory=set)
    """Of which some records cannot be read, though the log can be opened."""
    room: int = PLENTY
    """Bytes that it takes yet: what is written takes none of them, a fault does."""
    unclean: bool = False
    """It lost power while it had a log that acknowledges before it flushes, and the cluster does not reckon with that
    yet (CL-Z4). It is written there, beside the directory's id."""
    given: list[Given] = field(default_factory=list)
    deleted: list[tuple[TopicPartition, bytes]] = field(default_factory=list)
    logs: dict[TopicPartition, SimLog] = field(default_factory=dict)

    def kept(self, place: TopicPartition) -> int:
        """How far a log counts: as far as it is flushed, or, where that is not waited for, to its end."""
        model = self.models[place][1]
        return model.end if place.topic == HASTY else model.kept_end

    def gives(self, place: TopicPartition, at: int) -> None:
        topic_id, model = self.models[place]
        at = max(at, model.start)
        if at < model.end:
            self.given.append(Given(place, topic_id, at, tuple(model.read(at, model.end - at))))

    def held(self) -> Iterable[tuple[TopicPartition, bytes]]:
        return [(place, topic_id) for place, (topic_id, _) in self.models.items()]

    def topic_id(self, place: TopicPartition) -> bytes | None:
        found = self.models.get(place)
        return None if found is None else found[0]

    def open(self, place: TopicPartition, topic_id: bytes) -> SimLog:
        if place in self.failing:
            raise LogBroken(f"{place}: the disk says EIO")
        held = self.models.get(place)
        if held is not None and held[0] != topic_id:
            # A copy of an earlier topic of this name, which nobody called deleted yet: set aside.
            self.logs.pop(place, None)
            held = None
        if held is None:
            held = self.models[place] = (topic_id, LogModel())
        if place not in self.logs:
            self.logs[place] = SimLog(self, place, held[1])
        return self.logs[place]

    def reopen(self, place: TopicPartition, topic_id: bytes) -> SimLog:
        if place in self.failing:
            raise LogBroken(f"{place}: the disk says EIO")
        if self.topic_id(place) == topic_id and place in self.logs:
            high_watermark = self.logs.pop(place).high_watermark
            if place.topic != HASTY:  # Nobody gives up what counts though it is not flushed.
                self.models[place][1].lose_power(0)
            again = self.open(place, topic_id)
            again.tell_high_watermark(max(again.high_watermark, high_watermark))
        return self.open(place, topic_id)

    def no_room(self, wanted: int) -> str:
        return "" if wanted <= self.room else "no room"

    def delete(self, place: TopicPartition, topic_id: bytes) -> None:
        if self.topic_id(place) == topic_id:
            del self.models[place]
            self.logs.pop(place, None)
            self.deleted.append((place, topic_id))

    def checkpoint(self) -> None:
        """The high watermarks are written down; and nothing lies in memory for longer than that."""
        for log in self.logs.values():
            if log.place.topic == HASTY:
                log.model.flush()
            log.model.checkpointed_high_watermark = log.high_watermark

    def killed(self) -> None:
        """The process is gone; what it wrote is the operating system's to keep."""
        self.logs.clear()
        for _, model in self.models.values():
            model.forget_empty_epochs()

    def lost_power(self, rng: Random) -> None:
        """What was not flushed is gone, but for a part that happened to be written; the rest is torn off."""
        self.logs.clear()
        self.unclean = self.unclean or any(place.topic == HASTY for place in self.models)
        for _, model in self.models.values():
            model.lose_power(rng.randint(0, 3))
