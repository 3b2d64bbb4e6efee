"""A simulated node's disk with the real storage engine on it: logs, epochs, recovery, over files in memory.

A model goes along with each log, for the checkers, and to compare: what was flushed is there after a loss of power, and
no operation does anything else than the model's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from muster.coordinator.replication.io.replica_logs import StoredLog, StoredLogs
from muster.coordinator.replication.protocol.cluster_metadata import TopicPartition
from muster.coordinator.replication.protocol.node_replicas import ROOM_TO_LEAD, ROOM_TO_WRITE
from muster.coordinator.replication.protocol.replica_fetch import LogBroken, Records
from muster.storage.broker.broker import Broker
from muster.storage.config import LogSettings
from muster.storage.logs import replica
from muster.storage.records.batch import read_batches
from tests.fakes.memory_files import MemoryFiles
from tests.sim.replication.disk import Batch, Disk, SimLog
from tests.sim.replication.logs import LogModel
from tests.unit.storage.logs import T0, batch

SEGMENT_BYTES = 32_768
RECORD_BYTES = 150
"""A batch of one record is about so large: by it what is asked for is counted."""


@dataclass(frozen=True, slots=True)
class RealBatch(Batch):
    """The same records, as they lie in the leader's log."""

    data: bytes = b""


class RealLog(SimLog):
    """A log of the storage engine, with its model."""

    def __init__(self, disk: "RealDisk", place: TopicPartition, model: LogModel, stored: StoredLog) -> None:
        self.place = place
        self.model = model
        self._disk = disk
        self.stored = stored

    @property
    def start(self) -> int:
        return self.stored.start

    @property
    def end(self) -> int:
        return self.stored.end

    @property
    def kept(self) -> int:
        return self.stored.kept

    @property
    def high_watermark(self) -> int:  # type: ignore[override]
        return self.stored.high_watermark

    @property
    def last_epoch(self) -> int:
        return self.stored.last_epoch

    def lead(self, epoch: int) -> None:
        self._look(ROOM_TO_LEAD)
        self.stored.lead(epoch)
        self.model.become_leader(epoch)

    def end_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.stored.end_for_epoch(epoch)

    def epoch_at(self, offset: int) -> int:
        return self.stored.epoch_at(offset)

    def read(self, offset: int, max_bytes: int) -> Records:
        self._look()
        data = bytes(self.stored.read(offset, max(1, max_bytes >> 14) * RECORD_BYTES))  # type: ignore[call-overload]
        batches = list(read_batches(data))
        assert batches[0].base_offset == offset
        return RealBatch(offset, tuple(self.model.read(offset, batches[-1].next_offset - offset)), data)

    def append(self, epoch: int, values: Sequence[object]) -> None:
        self._look(ROOM_TO_WRITE)
        for value in values:
            self.stored.log.append(batch(repr(value).encode()), T0)
            self.model.append(epoch, [value])
        assert self.stored.log.leader_epoch == epoch
        self._is_like_its_model()

    def append_as_follower(self, records: Records) -> None:
        self._look(ROOM_TO_WRITE)
        assert isinstance(records, RealBatch)
        self.stored.append_as_follower(records.data)
        self.model.append_as_follower(records.at, records.entries)
        self._is_like_its_model()

    def cut(self, to: int) -> None:
        self._look()
        self._disk.gives(self.place, to)
        self.stored.cut(to)
        self.model.cut(to)
        self._is_like_its_model()

    def restart_at(self, at: int) -> None:
        self._look()
        self._disk.gives(self.place, at)
        self.stored.restart_at(at)
        self.model.begin_at(at)
        self._is_like_its_model()

    def advance_start(self, to: int) -> None:
        self._look()
        self.stored.advance_start(to)
        self.model.move_start(to)

    def tell_high_watermark(self, offset: int) -> None:
        self.stored.tell_high_watermark(offset)

    def flush(self, end: int) -> None:
        """All there is by now: more than the model would flush."""
        self._look()
        self.stored.flush()
        self.model.kept_end = self.stored.kept

    def _is_like_its_model(self) -> None:
        real, model = (self.start, self.end), (self.model.start, self.model.end)
        assert real == model, f"{self.place} goes from {real[0]} to {real[1]}, its model from {model[0]} to {model[1]}"


@dataclass(slots=True)
class RealDisk(Disk):
    files: MemoryFiles = field(default_factory=MemoryFiles)
    broker: Broker = field(init=False)
    stored: StoredLogs = field(init=False)

    def __post_init__(self) -> None:
        self._start()

    def _start(self) -> None:
        settings = LogSettings.from_properties({"log.segment.bytes": str(SEGMENT_BYTES)})
        self.broker = Broker("/data", settings, self.files, clock_ms=lambda: T0, random_bytes=lambda n: bytes(n))
        self.stored = StoredLogs(self.broker, lambda name: None, lambda: T0)

    def open(self, place: TopicPartition, topic_id: bytes) -> RealLog:
        if place in self.failing:
            raise LogBroken(f"{place}: the disk says EIO")
        stored = self.stored.open(place, topic_id)
        others = [each for each in self.models if each.topic == place.topic and self.models[each][0] != topic_id]
        for former in others:
            del self.models[former]  # all of a former topic is set aside at once
            self.logs.pop(former, None)
        held = self.models.get(place)
        if held is None or held[0] != topic_id:
            self.logs.pop(place, None)
            held = self.models[place] = (topic_id, LogModel())
        if place not in self.logs:
            self.logs[place] = RealLog(self, place, held[1], stored)
            self.logs[place]._is_like_its_model()  # type: ignore[attr-defined]
        return self.logs[place]  # type: ignore[return-value]

    def reopen(self, place: TopicPartition, topic_id: bytes) -> RealLog:
        """What is not flushed is given up."""
        if place in self.failing:
            raise LogBroken(f"{place}: the disk says EIO")
        if self.topic_id(place) == topic_id and place in self.logs:
            log = self.logs.pop(place)
            assert isinstance(log, RealLog)
            log.stored.cut(log.kept)
            log.model.lose_power(0)
        return self.open(place, topic_id)

    def delete(self, place: TopicPartition, topic_id: bytes) -> None:
        if self.topic_id(place) == topic_id:
            self.stored.delete(place, topic_id)
        Disk.delete(self, place, topic_id)

    def checkpoint(self) -> None:
        self.broker.checkpoint_high_watermarks()
        self.broker.checkpoint()

    def killed(self) -> None:
        self.logs.clear()
        self.files.kill()
        self._start_anew()

    def lost_power(self, rng: Random) -> None:
        self.logs.clear()
        self.files.crash(rng.choice)
        self._start_anew()

    def _start_anew(self) -> None:
        """What the next life finds: all that was flushed, and maybe more of what was written; nothing else."""
        self._start()
        for place, (topic_id, model) in self.models.items():
            assert self.stored.topic_id(place) == topic_id, f"{place} is not held any more"
            log = self.broker.log(*place)
            end = log.end_offset
            assert model.kept_end <= end <= model.end, f"{place} ends at {end}; {model.kept_end} was flushed"
            assert log.failure is None, log.failure
            self._compare(place, model, end)
            model.lose_power(end - model.kept_end)

    def _compare(self, place: TopicPartition, model: LogModel, end: int) -> None:
        log, offset = self.broker.log(*place), model.start
        while offset < end:
            for found in read_batches(replica.fetch_as_replica(log, offset, SEGMENT_BYTES).records):
                for record in found.records():
                    entry = model.records[record.offset - model.start]
                    assert record.value == repr(entry.value).encode(), f"{place} {record.offset}: {record.value!r}"
                    assert found.leader_epoch == entry.epoch
                offset = found.next_offset
