"""Records that wait for the word that they count: the log's half of an exactly-once sink. Synchronous.

A writer whose work may be done twice (a task that is tried again, a driver that starts anew) does not append. Each
attempt stages its records in a file of its own, and one call decides which attempts make up batch N of a sink. From
then on, whatever crashes, exactly these records come into the log once, and batch N is closed for ever: who brings
it again is told so. Readers need no isolation level, for nothing that does not count ever enters a log.

A decided batch carries the sink's producer id. After a crash the log itself says how much of it had arrived.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

from muster.storage.broker.record_log import StagedLog
from muster.storage.config import LogSettings
from muster.storage.errors import InvalidRequest, OutOfOrderSequence, RecordListTooLarge, StorageError
from muster.storage.files import File, Files, RealFiles, remove_tree
from muster.storage.logs.replica import fetch_as_replica
from muster.storage.records.batch import MAX_SEQUENCE, read_batches
from muster.storage.records.validation import split_batches
from muster.storage.staging.staged_files import (
    STATE,
    Frame,
    SinkState,
    StagedTarget,
    StagingDecision,
    check_path_name,
    frame_batches,
    load_sink_state,
    read_frames,
    save_sink_state,
    seal_for_producer,
)
from muster.storage.topics.catalog import format_id
from muster.storage.types import AppendOrigin, TopicPartition

logger = logging.getLogger("muster.storage")

FOLDER = "staged"
_SCAN_BYTES = 1 << 20

Staged = Sequence[tuple[TopicPartition, bytes]]


class Staging:
    """The sinks of one node. One thread stages, decides and carries out; `save` and `sync` may run in others."""

    def __init__(self, broker: StagedLog, settings: LogSettings | None = None, files: Files | None = None) -> None:
        self._broker = broker
        self._settings = settings or broker.settings
        self._files: Files = files or RealFiles()
        self._root = f"{broker.data_dir}/{FOLDER}"
        self._sinks: dict[str, SinkState] = {}
        self._damaged: dict[str, StorageError] = {}
        self._staged_bytes = 0
        if self._files.is_dir(self._root):
            self._load()

    def _load(self) -> None:
        for name in self._files.names(self._root):
            path = f"{self._root}/{name}"
            try:
                state = load_sink_state(self._files, path)
            except StorageError as error:
                logger.error("%s", error)
                self._damaged[name] = error
                continue
            if state is not None:
                self._sinks[name] = state
            self._staged_bytes += sum(size for _, size, _ in self._attempts(name))

    # -- what is known ------------------------------------------------------------------------------------

    def undecided(self) -> list[str]:
        """Sinks with a decision that may not be carried out yet."""
        return [name for name, state in self._sinks.items() if state.decision is not None]

    def settled(self, sink: str, batch: int) -> bool:
        """Whether the batch is decided: nothing that is staged for it now will ever count."""
        state = self._sinks.get(sink)
        if state is None:
            return False
        return batch <= (state.decision.batch if state.decision else state.batch)

    def last_batch(self, sink: str) -> int:
        """The last batch that is in the log whole; -1 when there is none."""
        return self._sinks[sink].batch if sink in self._sinks else -1

    # -- staging ------------------------------------------------------------------------------------------

    def stage(
        self, sink: str, batch: int, attempt: str, position: int, records: Staged, now_ms: int, *, checked: bool = False
    ) -> int:
        """Add record batches to an attempt's file at `position`; where the file ends then. Not durable yet.

        `checked` says that `check` has been content with the records. A repeated call writes nothing.
        OutOfOrderSequence when the file is shorter than `position`: a crash took what was staged before, and the
        attempt has to begin anew.
        """
        path = self._path(sink, batch, attempt)
        if not checked:
            self.check(records, now_ms)
        buffers = [part for tp, batches in records for part in frame_batches(tp, batches)]
        size = sum(map(len, buffers))
        file = self._open(path)
        try:
            end = file.size()
            if position > end:
                raise OutOfOrderSequence(
                    f"Attempt {attempt} of sink {sink} goes on at byte {position}, but {end} bytes of it are there: "
                    "a crash took the others. Stage its records anew as another attempt."
                )
            if position + size <= end:
                return position + size  # The answer was lost, the records are here.
            self._make_room(size)
            file.write(buffers, size, position)
            self._staged_bytes += size
        except OSError as error:
            raise StorageError(f"Could not stage records in {path}: {error.strerror or error}.") from error
        finally:
            file.close()
        return position + size

    def _path(self, sink: str, batch: int, attempt: str) -> str:
        self._check_sink(sink, batch)
        check_path_name("attempt", attempt)
        return f"{self._root}/{sink}/{batch}/{attempt}"

    def _check_sink(self, sink: str, batch: int) -> None:
        check_path_name("sink", sink)
        if batch < 0:
            raise InvalidRequest(f"The batch of sink {sink} is {batch}; expected 0 or more.")
        if sink in self._damaged:
            raise self._damaged[sink]

    def check(self, records: Staged, now_ms: int) -> None:
        """Refuse now what the log would refuse later. From any thread; it may take its time."""
        for tp, batches in records:
            self._check(tp, batches, now_ms)

    def _check(self, tp: TopicPartition, batches: bytes, now_ms: int) -> None:
        self._broker.check_writable(tp[0])
        log = self._broker.log(*tp)
        log.look_into(batches, now_ms)
        settings = log.settings
        if any(fields[9] >= 0 for fields, _ in split_batches(memoryview(batches), settings)):
            raise InvalidRequest("A staged batch names a producer; expected none: the sink is its producer.")
        if len(batches) > settings.segment_bytes:
            raise RecordListTooLarge(
                f"{len(batches)} bytes staged at once do not fit into a segment of {settings.segment_bytes} "
                "(segment.bytes). Send less at once."
            )

    def _make_room(self, size: int) -> None:
        most = self._settings.sink_max_staged_bytes
        if self._staged_bytes + size > most:
            raise RecordListTooLarge(
                f"{self._staged_bytes} bytes are staged already, {size} more exceed sink.max.staged.bytes, which is "
                f"{most}. Write smaller batches, or raise it."
            )

    def _open(self, path: str) -> File:
        try:
            if not self._files.exists(path):
                folder = path.rsplit("/", 1)[0]
                if not self._files.is_dir(folder):
                    self._make_sink(folder)
            return self._files.open(path, create=True)
        except OSError as error:
            raise StorageError(f"Could not stage records in {path}: {error.strerror or error}.") from error

    def _make_sink(self, folder: str) -> None:
        sink = folder.rsplit("/", 1)[0]
        if not self._files.is_dir(sink):
            known = len(self._files.names(self._root)) if self._files.is_dir(self._root) else 0
            if known >= self._settings.max_sinks:
                raise InvalidRequest(
                    f"{known} sinks are known, which is the limit (max.sinks). Raise it, or wait until idle ones are "
                    "forgotten (sink.retention.ms)."
                )
        self._files.make_dir(folder)

    def sync(self, sink: str, batch: int, attempt: str, size: int) -> None:
        """Make an attempt of `size` bytes survive a power cut. From any thread."""
        path = self._path(sink, batch, attempt)
        try:
            file = self._files.open(path)
            try:
                if file.size() != size:
                    raise OutOfOrderSequence(
                        f"Attempt {attempt} of sink {sink} has {file.size()} bytes; expected {size}. Stage its records "
                        "anew as another attempt."
                    )
                file.sync()
            finally:
                file.close()
            folder = path
            for _ in range(4):  # the attempt, its batch, its sink, and the folder of them all
                folder = folder.rsplit("/", 1)[0]
                self._files.sync_dir(folder)
        except OSError as error:
            raise StorageError(f"Could not flush {path}: {error.strerror or error}.") from error

    # -- deciding -----------------------------------------------------------------------------------------

    def decided(self, sink: str, batch: int, attempts: Mapping[str, int]) -> SinkState:
        """The sink's state once these attempts (name: size) make up the batch; to be `save`d before it is believed.

        Refuses attempts that are not here whole, and partitions that are not there (any more).
        """
        self._check_sink(sink, batch)
        state = self._sinks.get(sink) or SinkState(producer_id=self._broker.next_producer_id()[0])
        tps: dict[TopicPartition, None] = {}
        for attempt, size in attempts.items():
            tps |= dict.fromkeys(frame.tp for frame in self._frames(sink, batch, attempt, size))
        targets = tuple(self._target(tp, state.producer_id) for tp in sorted(tps))
        decision = StagingDecision(batch=batch, attempts=dict(attempts), targets=targets)
        return state.model_copy(update={"decision": decision})

    def _frames(self, sink: str, batch: int, attempt: str, size: int) -> list[Frame]:
        path = self._path(sink, batch, attempt)
        if not self._files.exists(path):
            raise InvalidRequest(f"Attempt {attempt} of batch {batch} of sink {sink} was never staged here.")
        file = self._files.open(path, writable=False)
        try:
            found = file.size()
            if found < size:
                raise OutOfOrderSequence(
                    f"Attempt {attempt} of sink {sink} has {found} bytes, expected {size}: a crash took the rest."
                )
            return list(read_frames(file, size, path))
        finally:
            file.close()

    def _target(self, tp: TopicPartition, producer_id: int) -> StagedTarget:
        log = self._broker.log(*tp)
        known = log.producers.producers.get(producer_id)
        last = known.last.last_sequence if known and known.last else -1
        topic = self._broker.topic(tp[0])
        return StagedTarget(
            topic=tp[0],
            topic_id=format_id(topic.id),
            partition=tp[1],
            offset=log.end_offset,
            sequence=(last + 1) & MAX_SEQUENCE,
        )

    def topics_of(self, sink: str, batch: int, attempts: Sequence[str]) -> set[str]:
        """What attempts (none named: all) of a batch were staged for, as far as they are here. From any thread."""
        self._check_sink(sink, batch)
        folder = f"{self._root}/{sink}/{batch}"
        there = self._files.names(folder) if self._files.is_dir(folder) else ()
        found: set[str] = set()
        for attempt in attempts or there:
            path = self._path(sink, batch, attempt)
            if self._files.exists(path):
                file = self._files.open(path, writable=False)
                try:
                    found.update(frame.tp[0] for frame in read_frames(file, file.size(), path))
                finally:
                    file.close()
        return found

    def save(self, sink: str, state: SinkState) -> None:
        """Put a state on disk. From any thread; `adopt` it afterwards."""
        path = f"{self._root}/{sink}"
        try:
            if not self._files.is_dir(path):
                self._files.make_dir(path)
                self._files.sync_dir(self._root)
                self._files.sync_dir(self._broker.data_dir)
            save_sink_state(self._files, path, state)
        except OSError as error:
            raise StorageError(f"Could not write {path}/{STATE}: {error.strerror or error}.") from error

    def adopt(self, sink: str, state: SinkState) -> None:
        self._sinks[sink] = state

    # -- carrying out -------------------------------------------------------------------------------------

    def carry_out(self, sink: str, now_ms: int, *, fresh: bool) -> Iterator[TopicPartition]:
        """Append what is decided, one frame a step; which partitions got records, now or before. Not durable yet.

        Unless the decision is `fresh`, a part of it may be in the logs already, and they are asked.
        """
        state = self._sinks[sink]
        decision = state.decision
        assert decision is not None, "only a decision can be carried out"
        targets = {target.tp: target for target in decision.targets}
        there = dict.fromkeys(targets, (0, 0)) if fresh else self._there(targets, state.producer_id)
        yield from (tp for tp, (batches, _) in there.items() if batches)  # nobody may have waited for them yet
        sequences = {tp: target.sequence + there[tp][1] for tp, target in targets.items()}
        skip = {tp: batches for tp, (batches, _) in there.items()}
        for attempt, size in decision.attempts.items():
            path = self._path(sink, decision.batch, attempt)
            found = self._frames(sink, decision.batch, attempt, size)
            file = self._files.open(path, writable=False)
            try:
                for tp, at, length in found:
                    data = file.read(length, at)
                    ready, batches, records = seal_for_producer(data, skip[tp], state.producer_id, sequences[tp])
                    skip[tp] = 0 if batches else skip[tp] - sum(1 for _ in read_batches(data))
                    sequences[tp] += records
                    if batches:
                        self._broker.append(*tp, ready, now_ms, origin=AppendOrigin.COORDINATOR)
                        yield tp
            finally:
                file.close()

    def _there(
        self, targets: Mapping[TopicPartition, StagedTarget], producer_id: int
    ) -> dict[TopicPartition, tuple[int, int]]:
        """How many batches and records of a decision each log holds already."""
        found: dict[TopicPartition, tuple[int, int]] = {}
        for tp, target in targets.items():
            # A topic that was made anew since then takes the whole batch: what had arrived is gone with the old one.
            same = format_id(self._broker.topic(tp[0]).id) == target.topic_id
            first = target.offset if same else 0
            batches = records = 0
            log = self._broker.log(*tp)
            at = max(first, log.start_offset)
            while at < log.end_offset:  # committed or not: readers may not see all of it yet
                for batch in read_batches(fetch_as_replica(log, at, _SCAN_BYTES).records):
                    if batch.base_offset >= first and batch.producer_id == producer_id:
                        batches += 1
                        records += batch.count
                    at = batch.next_offset
            found[tp] = batches, records
        return found

    def finished(self, sink: str) -> SinkState:
        """The sink's state once its decision is carried out and flushed; to be `save`d, then `adopt`ed."""
        state = self._sinks[sink]
        assert state.decision is not None, "only a decision can be finished"
        return SinkState(batch=state.decision.batch, producer_id=state.producer_id)

    # -- clearing up --------------------------------------------------------------------------------------

    def clear(self, sink: str, until: int) -> None:
        """Remove what was staged for batches up to and with `until`, whether it counted or not."""
        self._remove(sink, lambda batch: batch <= until)

    def abort(self, sink: str, batch: int, attempts: Sequence[str]) -> None:
        """Remove attempts (none named: all) of a batch that is not decided."""
        self._check_sink(sink, batch)
        if self.settled(sink, batch):
            return
        if not attempts:
            self._remove(sink, lambda other: other == batch)
        for attempt in attempts:
            path = self._path(sink, batch, attempt)
            if self._files.exists(path):
                self._forget(path)

    def expire(self, now_ms: int) -> None:
        """Remove attempts that nobody decided about in time, and sinks that were idle for long."""
        if not self._files.is_dir(self._root):
            return
        old = now_ms - self._settings.sink_staged_retention_ms
        idle = now_ms - self._settings.sink_retention_ms
        for sink in self._files.names(self._root):
            state = self._sinks.get(sink)
            if sink in self._damaged or (state is not None and state.decision is not None):
                continue
            for path, _, written_ms in list(self._attempts(sink)):
                if written_ms < old:
                    self._forget(path)
            self._drop_empty(sink)
            self._drop_idle(sink, idle)

    def _drop_idle(self, sink: str, before_ms: int) -> None:
        path = f"{self._root}/{sink}"
        names = self._files.names(path)
        if names and (names != [STATE] or self._files.modified_ms(f"{path}/{STATE}") >= before_ms):
            return
        remove_tree(self._files, path)
        self._sinks.pop(sink, None)

    def _attempts(self, sink: str) -> Iterator[tuple[str, int, int]]:
        """Path, size and time of the last write of each attempt."""
        for batch in self._batches(sink):
            folder = f"{self._root}/{sink}/{batch}"
            for name in self._files.names(folder):
                path = f"{folder}/{name}"
                yield path, self._size(path), self._files.modified_ms(path)

    def _batches(self, sink: str) -> list[int]:
        path = f"{self._root}/{sink}"
        return [int(name) for name in self._files.names(path) if name.isdigit()] if self._files.is_dir(path) else []

    def _size(self, path: str) -> int:
        file = self._files.open(path, writable=False)
        try:
            return file.size()
        finally:
            file.close()

    def _remove(self, sink: str, which: Callable[[int], bool]) -> None:
        for path, _, _ in list(self._attempts(sink)):
            if which(int(path.split("/")[-2])):
                self._forget(path)
        self._drop_empty(sink)

    def _forget(self, path: str) -> None:
        self._staged_bytes -= self._size(path)
        self._files.remove(path)

    def _drop_empty(self, sink: str) -> None:
        for batch in self._batches(sink):
            folder = f"{self._root}/{sink}/{batch}"
            if not self._files.names(folder):
                self._files.remove_dir(folder)
