"""Random lives of a log of a cluster against a list: led, followed, cut, begun anew, killed at any call to the disk.

Whatever a crash leaves, the log and what it says of its epochs fit together, and nothing that was flushed is missing.
"""

import random
from collections.abc import Callable
from typing import NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from muster.storage.broker.broker import Broker
from muster.storage.logs import replica
from muster.storage.logs.log import Log
from muster.storage.records.batch import decode_records, read_batches
from muster.storage.types import Topic
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, open_broker, values
from tests.unit.storage.workload import Killed

SETTINGS = {"log__segment__bytes": 350, "log__index__interval__bytes": 80, "log__segment__delete__delay__ms": 0}
PLACE = ("t", 0)


class Batch(NamedTuple):
    """Records [base, end) of one leader epoch."""

    base: int
    end: int
    epoch: int
    text: bytes

    def sent(self) -> bytes:
        texts = [b"%s.%d" % (self.text, number) for number in range(self.end - self.base)]
        return batch(*texts, key=b"k", base_offset=self.base, leader_epoch=self.epoch)


def found_in(log: Log) -> list[Batch]:
    """What a follower would be sent of the whole log."""
    found: list[Batch] = []
    offset = log.start_offset
    while offset < log.end_offset:
        data = replica.fetch_as_replica(log, offset, 300).records
        batches = list(read_batches(data))
        if not batches:
            break
        for view in batches:
            records = list(decode_records(bytes(view.data), view.base_offset))
            (text, *_) = (value or b"" for value in values(records))
            found.append(Batch(view.base_offset, view.next_offset, view.leader_epoch, text.removesuffix(b".0")))
        offset = batches[-1].next_offset
    return found


class ReplicaModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryFiles()
        self.disk.now_ms = T0
        self.broker: Broker = open_broker(self.disk, **SETTINGS)
        self.batches: list[Batch] = []
        self.start = self.end = self.flushed = self.high = self.sent = 0
        # The newest that anybody has led; the controller never gives one twice.
        self.epoch = -1
        self.holes = False
        self.dies_after: int | None = None

    @initialize(holes=st.booleans())
    def hold(self, holes: bool) -> None:
        self.holes = holes
        configs = {"cleanup.policy": "compact"} if holes else {}
        assert self.broker.host([Topic("t", bytes(16), 4, configs, False, (0,))]) == {}

    @property
    def log(self) -> Log:
        return self.broker.log(*PLACE)

    # -- what happens to a log ----------------------------------------------------------------------------

    @rule(more=st.integers(1, 2))
    def lead(self, more: int) -> None:
        epoch = self.epoch + more
        if self.survives(lambda: replica.start_leading(self.log, epoch), self.batches, self.flushed):
            self.epoch = epoch
            assert replica.end_offset_for_epoch(self.log, epoch) == (epoch, self.end)
            assert self.log.epochs.entries[-1] == (epoch, self.end)

    @precondition(lambda self: self.epoch >= 0 and not self.log.following)
    @rule(count=st.integers(1, 3))
    def append(self, count: int) -> None:
        made = self.made(self.end, count, self.log.leader_epoch)
        sent = made._replace(base=0, end=count).sent()
        if self.survives(lambda: self.log.append(sent, T0), [*self.batches, made], self.flushed):
            self.put([made])

    @rule(counts=st.lists(st.integers(1, 3), min_size=1, max_size=4), gap=st.integers(0, 5), risen=st.integers(0, 3))
    def append_as_follower(self, counts: list[int], gap: int, risen: int) -> None:
        """Batches of a leader, some with a hole before them, the last of them of a newer epoch."""
        coming: list[Batch] = []
        end, epoch = self.end, max(replica.last_leader_epoch(self.log), 0)
        for place, count in enumerate(counts):
            base = end + (gap if self.holes and place % 2 else 0)
            epoch += risen if place == len(counts) - 1 else 0
            coming.append(self.made(base, count, epoch))
            end = base + count
        sent = b"".join(each.sent() for each in coming)
        half = sent + self.made(end, 1, epoch).sent()[:70]

        def append() -> None:
            replica.start_following(self.log)
            replica.append_as_follower(self.log, half, T0)

        if self.survives(append, [*self.batches, *coming], self.flushed):
            self.put(coming)
            self.epoch = max(self.epoch, epoch)

    @rule()
    def flush(self) -> None:
        if self.survives(self.broker.flush, self.batches, self.flushed):
            self.flushed = self.end

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        target = int(self.start + part * (self.end - self.start))
        left = [each for each in self.batches if each.end <= target]
        if self.survives(lambda: self.broker.truncate(*PLACE, target), self.batches, min(self.flushed, target)):
            end = self.log.end_offset
            assert (left[-1].end if left else self.start) <= end <= target
            self.batches, self.end = left, end
            self.flushed, self.high = end, min(self.high, end)

    @rule(past=st.integers(0, 9))
    def begin_anew(self, past: int) -> None:
        at = self.end + past
        if self.survives(lambda: self.broker.begin_anew(*PLACE, at), self.batches, 0):
            self.batches, self.start, self.end, self.flushed, self.high = [], at, at, at, at
            assert replica.last_leader_epoch(self.log) == -1

    @rule(part=st.floats(0, 1))
    def advance_start(self, part: float) -> None:
        offset = int(self.start + part * (self.end - self.start))
        replica.advance_start(self.log, offset)
        self.start, self.high = max(self.start, offset), max(self.high, offset)

    @rule(part=st.floats(0, 1.2))
    def tell(self, part: float) -> None:
        told = int(part * self.end)
        self.log.tell_high_watermark(told)
        self.high = max(self.high, self.start, min(told, self.end))
        self.broker.checkpoint_high_watermarks()

    # -- ends of a process --------------------------------------------------------------------------------

    @precondition(lambda self: self.dies_after is None)
    @rule(calls=st.integers(0, 14))
    def die_soon(self, calls: int) -> None:
        """The next change is cut short by a crash, after so many calls to the disk."""
        self.dies_after = calls

    def survives(self, change: Callable[[], object], after: list[Batch], sure: int) -> bool:
        """Whether the change came to its end; else what is left is between what was and `after`, `sure` with it."""
        if self.dies_after is None:
            change()
            return True
        first, self.dies_after = self.disk.calls + self.dies_after, None

        def fault(operation: str, path: str) -> None:
            if self.disk.calls > first:
                raise Killed

        self.disk.fault = fault
        try:
            change()
        except Killed:
            self.crash(self.disk.calls, after, sure)
            return False
        self.disk.fault = None
        return True

    @rule(seed=st.integers(0, 2**32))
    def lose_power(self, seed: int) -> None:
        self.crash(seed, self.batches, self.flushed)

    @rule()
    def kill(self) -> None:
        self.disk.kill()
        self.reopen(self.batches, self.end)

    @rule()
    def stop_and_start(self) -> None:
        self.broker.close()
        self.reopen(self.batches, self.end)
        assert self.log.high_watermark == self.high

    def crash(self, seed: int, after: list[Batch], sure: int) -> None:
        rng = random.Random(seed)
        self.disk.crash(lambda choices: rng.choice(list(choices)))
        self.reopen(after, sure)

    def reopen(self, after: list[Batch], sure: int) -> None:
        """What was flushed below `sure` is there; besides it, a beginning of what may be."""
        self.broker = open_broker(self.disk, **SETTINGS)
        assert self.broker.unclean is False
        log = self.log
        assert log.failure is None
        found = found_in(log)
        possible = max(after, self.batches, key=len)
        kept = [each for each in possible if each.end > log.start_offset]
        assert found == kept[: len(found)]
        assert log.end_offset >= min(sure, self.end) or sure <= self.start
        self.batches, self.start, self.end = found, log.start_offset, log.end_offset
        assert self.end == (found[-1].end if found else self.start)
        self.flushed, self.high = self.end, log.high_watermark

    # -- the list -----------------------------------------------------------------------------------------

    def made(self, base: int, count: int, epoch: int) -> Batch:
        self.sent += 1
        return Batch(base, base + count, epoch, b"%d" % self.sent)

    def put(self, coming: list[Batch]) -> None:
        self.batches = [*self.batches, *coming]
        self.end = coming[-1].end
        self.flushed = max(self.flushed, self.log.durable_offset)

    # -- what always holds --------------------------------------------------------------------------------

    @invariant()
    def the_log_is_the_list(self) -> None:
        if PLACE[0] not in self.broker.topics():
            return
        log = self.log
        self.flushed = max(self.flushed, log.durable_offset)
        assert (log.start_offset, log.end_offset) == (self.start, self.end)
        assert log.kept_end == log.durable_offset <= self.end
        assert found_in(log) == [each for each in self.batches if each.end > self.start]

    @invariant()
    def epochs_say_who_wrote_what(self) -> None:
        if PLACE[0] not in self.broker.topics():
            return
        log, present = self.log, [each for each in self.batches if each.end > self.start]
        for each in present:
            assert log.epochs.at(max(each.base, self.start)) == log.epochs.at(each.end - 1) == each.epoch
        numbers, starts = [epoch for epoch, _ in log.epochs.entries], [start for _, start in log.epochs.entries]
        assert numbers == sorted(set(numbers))
        assert starts == sorted(set(starts))
        assert all(start <= self.end for start in starts)
        assert (
            replica.last_leader_epoch(log) == present[-1].epoch
            if present
            else replica.last_leader_epoch(log) <= self.epoch
        )
        for asked in range(-1, max(numbers, default=0) + 2):
            self.ends_as_records_say(asked, present, *replica.end_offset_for_epoch(log, asked))

    def ends_as_records_say(self, asked: int, present: list[Batch], epoch: int, end: int) -> None:
        if epoch < 0:
            assert asked < 0 or all(each.epoch < asked for each in present)
            return
        assert epoch <= asked
        assert all(each.epoch <= epoch for each in present if max(each.base, self.start) < end)
        assert all(each.epoch > asked for each in present if max(each.base, self.start) >= end)

    @invariant()
    def readers_see_what_is_committed(self) -> None:
        if PLACE[0] not in self.broker.topics():
            return
        log = self.log
        assert self.start <= log.high_watermark == self.high <= self.end
        seen = list(read_batches(log.fetch(self.start, 1 << 20).records))
        assert all(view.base_offset < self.high for view in seen)


TestReplicaModel = ReplicaModel.TestCase
TestReplicaModel.settings = settings(
    max_examples=40, stateful_step_count=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
