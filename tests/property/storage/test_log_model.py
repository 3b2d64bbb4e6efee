"""Random lives of a log against a list: whatever happens, it answers like the list."""

import random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from muster.storage.broker.broker import Broker
from muster.storage.errors import OffsetOutsideLog
from muster.storage.logs.retention import apply_retention, retention_policies
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, open_broker, read_all

SETTINGS = {"log__segment__bytes": 350, "log__index__interval__bytes": 80, "log__segment__delete__delay__ms": 0}


class LogModel(RuleBasedStateMachine):
    """A partition of a compacted and a plain topic, a list and a dict that say what they must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryFiles()
        self.disk.now_ms = T0
        self.broker: Broker = open_broker(self.disk, **SETTINGS)
        self.records: dict[int, bytes] = {}
        self.keyed: dict[bytes, tuple[int, bytes]] = {}
        self.flushed = self.end = self.start = 0
        self.sent = 0

    @initialize()
    def create(self) -> None:
        self.broker.create_topic("plain", 1, {"retention.bytes": "1500"})
        self.broker.create_topic("keyed", 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})

    @rule(count=st.integers(1, 4), size=st.integers(0, 60))
    def append(self, count: int, size: int) -> None:
        texts = [b"%d:" % (self.end + place) + b"x" * size for place in range(count)]
        done = self.broker.append("plain", 0, batch(*texts), T0)
        assert (done.base_offset, done.last_offset) == (self.end, self.end + count - 1)
        self.records.update(enumerate(texts, self.end))
        self.end += count

    @rule(key=st.integers(0, 3))
    def append_keyed(self, key: int) -> None:
        self.sent += 1
        text = b"v%d" % self.sent
        done = self.broker.append("keyed", 0, batch(text, key=b"k%d" % key), T0)
        self.broker.flush([("keyed", 0)])
        self.keyed[b"k%d" % key] = (done.base_offset, text)

    @rule()
    def flush(self) -> None:
        self.broker.flush()
        self.flushed = self.end

    @rule()
    def flush_and_compact(self) -> None:
        self.broker.flush()
        self.flushed = self.end
        self.broker.compact(T0)

    @rule()
    def apply_retention(self) -> None:
        apply_retention(self.broker.log("plain", 0), retention_policies(), T0)
        self.start = self.broker.start_offset("plain", 0)
        # Retention may roll, and a roll flushes.
        self.flushed = max(self.flushed, self.broker.high_watermark("plain", 0))

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        before = int(self.start + part * (self.flushed - self.start))
        self.start = max(self.start, before)
        assert self.broker.delete_records("plain", 0, before) == self.start

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        log = self.broker.log("plain", 0)
        target = int(self.start + part * (self.end - self.start))
        assert self.broker.truncate("plain", 0, target) == log.end_offset
        assert self.start <= log.end_offset <= max(target, self.start)
        if log.end_offset < self.end:
            self.end = self.flushed = log.end_offset
        self.records = {offset: text for offset, text in self.records.items() if offset < self.end}

    @rule()
    def close_and_open(self) -> None:
        self.broker.close()
        self.flushed = self.end
        self.reopen()

    @rule()
    def kill(self) -> None:
        self.disk.kill()
        self.reopen()
        self.keep_what_survived()

    @rule(seed=st.integers(0, 2**32))
    def crash(self, seed: int) -> None:
        rng = random.Random(seed)
        self.disk.crash(lambda choices: rng.choice(list(choices)))
        self.reopen()
        self.keep_what_survived()

    def reopen(self) -> None:
        self.broker = open_broker(self.disk, **SETTINGS)
        assert not any(state.damage for state in self.broker.recovered().values())

    def keep_what_survived(self) -> None:
        end = self.broker.end_offset("plain", 0)
        assert self.flushed <= end <= self.end
        self.end = self.flushed = end
        self.records = {offset: text for offset, text in self.records.items() if offset < end}
        start = self.broker.start_offset("plain", 0)
        assert start >= self.start
        self.start = start

    @invariant()
    def answers_like_the_list(self) -> None:
        if "plain" not in self.broker.topics():
            return
        log = self.broker.log("plain", 0)
        self.flushed = max(self.flushed, log.durable_offset)
        assert log.end_offset == self.end
        assert log.start_offset == self.start
        assert log.high_watermark == self.flushed <= self.end
        found = {record.offset: record.value for record in read_all(log)}
        assert found == {n: text for n, text in self.records.items() if self.start <= n < self.flushed}
        try:
            log.fetch(self.start - 1, 10)
        except OffsetOutsideLog:
            return
        raise AssertionError("an offset below the start was served")

    @invariant()
    def keeps_the_last_value_of_each_key(self) -> None:
        if "keyed" not in self.broker.topics():
            return
        latest = {r.key: (r.offset, r.value) for r in read_all(self.broker.log("keyed", 0))}
        assert latest == self.keyed


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
