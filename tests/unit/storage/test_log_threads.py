"""Readers, a flusher and a compactor beside the appending thread."""

import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from muster.storage.broker.broker import Broker
from muster.storage.config import LogSettings
from muster.storage.errors import OffsetOutsideLog
from muster.storage.logs.log import Log
from muster.storage.logs.retention import apply_retention, retention_policies
from muster.storage.logs.segment import Segment
from muster.storage.records.batch import decode_records, encode_batch
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, open_broker

NOW_MS = 1_700_000_000_000
APPENDS = 400
CUTS = 25


class Worker(threading.Thread):
    """Repeats a step until told to stop; keeps what went wrong."""

    def __init__(self, step: Callable[[], None], stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.step, self.stop = step, stop
        self.error: BaseException | None = None
        self.done = 0

    def run(self) -> None:
        try:
            while not self.stop.is_set() or not self.done:
                self.step()
                self.done += 1
        except BaseException as error:
            self.error = error


def open_real(tmp_path: Path) -> Broker:
    broker = Broker(tmp_path / "d", LogSettings.from_properties({"log.segment.bytes": "4000"}))
    broker.create_topic("plain", 1, {"retention.bytes": "20000"})
    broker.create_topic("keyed", 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    return broker


def read_plain(broker: Broker) -> None:
    log = broker.log("plain", 0)
    offset = log.start_offset
    while True:
        try:
            data = log.fetch(offset, 3000).records
        except OffsetOutsideLog:
            assert offset < log.start_offset
            return
        records = list(decode_records(data, offset))
        if not records:
            return
        assert [(r.offset, r.value) for r in records] == [(n, b"%d" % n) for n in range(offset, records[-1].offset + 1)]
        offset = records[-1].offset + 1


def read_keyed(broker: Broker) -> None:
    log = broker.log("keyed", 0)
    offset, seen = 0, -1
    while data := log.fetch(offset, 3000).records:
        for record in decode_records(data, offset):
            assert record.offset > seen
            assert record.value == b"%d" % record.offset
            seen = record.offset
        if seen < offset:
            return
        offset = seen + 1


def test_nobody_reads_anything_short_or_mixed(tmp_path: Path) -> None:
    broker = open_real(tmp_path)
    stop = threading.Event()
    workers = [
        Worker(lambda: read_plain(broker), stop),
        Worker(lambda: read_keyed(broker), stop),
        Worker(lambda: broker.flush(), stop),
        Worker(lambda: broker.compact(NOW_MS) and None, stop),
    ]
    for worker in workers:
        worker.start()
    for number in range(APPENDS):
        text = b"%d" % number
        broker.append("plain", 0, encode_batch([(NOW_MS, None, text, ())]), NOW_MS)
        broker.append("keyed", 0, encode_batch([(NOW_MS, b"k%d" % (number % 5), text, ())]), NOW_MS)
        if number % 50 == 0:
            apply_retention(broker.log("plain", 0), retention_policies(), NOW_MS)
    broker.flush()
    stop.set()
    for worker in workers:
        worker.join(60)
        assert worker.error is None
        assert worker.done > 0
    broker.compact(NOW_MS)
    keyed = broker.log("keyed", 0)
    latest: dict[bytes | None, bytes | None] = {}
    offset = 0
    while offset < keyed.end_offset:
        for record in decode_records(keyed.fetch(offset, 1 << 20).records, offset):
            latest[record.key] = record.value
            offset = record.offset + 1
    assert latest == {b"k%d" % (n % 5): b"%d" % n for n in range(APPENDS - 5, APPENDS)}
    broker.close()
    again = Broker(tmp_path / "d", LogSettings.from_properties({"log.segment.bytes": "4000"}))
    assert again.recovered() == {}
    assert again.end_offset("plain", 0) == APPENDS
    again.close()


def test_a_reader_between_any_two_steps_of_an_append_sees_the_log_before_or_after_it() -> None:
    """Runs the reader at every line of `Segment.note_row`, where another thread might come in."""
    broker = open_broker(MemoryFiles(), log__flush__interval__messages=1000, log__index__interval__bytes=5000)
    broker.create_topic("t", 1)
    log = broker.log("t", 0)
    seen: list[int] = []

    def look() -> None:
        for offset in range(log.end_offset):
            # What the index names may be believed or not: both ways of reading must hold.
            log.segment_list.active.one_each = offset % 2 == 0
            found = list(decode_records(log.fetch(offset, 1 << 20).records))
            assert [record.value for record in found] == [b"%05d" % n * 400 for n in range(offset, log.end_offset)]
            seen.append(offset)

    def at_line(frame: FrameType, event: str, arg: object) -> Any:
        look()
        return at_line

    def at_call(frame: FrameType, event: str, arg: object) -> Any:
        return at_line if frame.f_code is Segment.note_row.__code__ else None

    before = sys.gettrace()
    for number in range(20):
        data = batch(b"%05d" % number * 400)
        sys.settrace(at_call)
        try:
            broker.append("t", 0, data, T0)
        finally:
            sys.settrace(before)
    assert set(seen) == set(range(19))
    assert log.segment_list.active.entries > 3


class Histories:
    """What a log held after each cut: a reader may see any one of the states during its read, and no mixture."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.broker, self.topic = broker, topic
        self.states: list[list[bytes]] = [[]]
        # How much each state began with, and which one the last cut that came to its end has left.
        self.cuts = [0]
        self.current = 0

    @property
    def log(self) -> Log:
        return self.broker.log(self.topic, 0)

    def append(self, text: bytes) -> None:
        self.states[-1].append(text)
        self.broker.append(self.topic, 0, encode_batch([(NOW_MS, None, text, ())]), NOW_MS)

    def cut(self, offset: int) -> None:
        self.cuts.append(offset)
        self.states.append(self.states[-1][:offset])
        self.broker.truncate(self.topic, 0, offset)
        self.current += 1

    def read(self, offset: int) -> int:
        """Fetch once and compare; where the next fetch goes on."""
        first = self.current
        try:
            records = list(decode_records(self.log.fetch(offset, 2500).records, offset))
        except OffsetOutsideLog:
            assert offset > min(self.cuts[first:])
            return 0
        texts = [record.value for record in records]
        assert [record.offset for record in records] == list(range(offset, offset + len(records)))
        assert any(texts == state[offset : offset + len(texts)] for state in self.states[first:])
        return offset + len(records) if records else 0


def test_readers_during_truncation_see_the_log_before_or_after_it(tmp_path: Path) -> None:
    told = {"log.segment.bytes": "4000", "log.flush.interval.messages": "1000000"}
    broker = Broker(tmp_path / "d", LogSettings.from_properties(told))
    broker.create_topic("cut", 1)
    told_by = Histories(broker, "cut")
    rng = random.Random(7)
    stop = threading.Event()
    places = {"one": 0, "two": 0}

    def step(name: str) -> None:
        places[name] = told_by.read(places[name])

    def search() -> None:
        assert told_by.log.list_offset(NOW_MS)[0] in (0, -1)

    workers = [Worker(lambda: step("one"), stop), Worker(lambda: step("two"), stop), Worker(search, stop)]
    for worker in workers:
        worker.start()
    for turn in range(CUTS):
        while told_by.log.end_offset < 120:
            told_by.append(b"%d of turn %d" % (told_by.log.end_offset, turn) * 3)
        # Now and then so deep that whole segments go, and once in a while into the middle of nothing.
        told_by.cut(rng.choice([119, 100, rng.randrange(120)]))
    stop.set()
    for worker in workers:
        worker.join(60)
        assert worker.error is None
        assert worker.done > 0
    offset = 0
    while offset < told_by.log.end_offset:
        offset = told_by.read(offset)
    broker.close()


def test_a_log_that_is_cut_between_any_two_lines_of_a_read_gives_what_it_holds_then() -> None:
    """Cuts and appends anew at each line of the reader's way through the log."""
    broker = open_broker(MemoryFiles(), log__flush__interval__messages=1000, log__segment__bytes=1500)
    broker.create_topic("t", 1)
    told_by = Histories(broker, "t")
    for number in range(40):
        told_by.append(b"%d at first" % number * 5)
    line = cut_at = 0

    def at_line(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal line
        line += 1
        if line == cut_at:
            sys.settrace(None)
            told_by.cut(17)
            for number in range(17, 40 + cut_at % 3):
                told_by.append(b"%d after the cut at line %d" % (number, cut_at) * (3 + cut_at % 3))
        return at_line

    def at_call(frame: FrameType, event: str, arg: object) -> Any:
        return at_line if "/storage/" in frame.f_code.co_filename else None

    before = sys.gettrace()
    for offset in (3, 17, 20, 39):
        cut_at = 0
        while line >= cut_at:
            line, cut_at = 0, cut_at + 1
            told_by.log.segment_list.active.one_each = bool(cut_at % 2)
            sys.settrace(at_call)
            try:
                told_by.read(offset)
            finally:
                sys.settrace(before)
        assert cut_at > 20
