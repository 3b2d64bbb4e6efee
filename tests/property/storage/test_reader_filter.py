"""The filter of readers of committed records, against a list of each record and its fate.

Five producers in any order, batches of any size, fetches that are cut anywhere and begin anywhere, and the cleaner
between any two of them: a reader gets committed records only, each once, and all that compaction had to leave.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from hypothesis import event, given, settings
from hypothesis import strategies as st

from muster.client.records.partition_state import find_batch_end
from muster.storage.broker.broker import Broker
from muster.storage.logs.log import Log
from muster.storage.logs.producer_state import MarkerToWrite
from muster.storage.records.batch import decode_records, encode_batch
from muster.storage.records.markers import build_aborted_filter
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, guard_for, open_broker

SMALL = {"log__segment__bytes": 700, "log__index__interval__bytes": 100}
COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "0"}
PRODUCERS = 5
PLAIN = PRODUCERS
"""Writes outside of transactions, with a producer id of its own."""

Step: TypeAlias = tuple[str, int, int]
"""What is done, by which producer, and how many records it has."""

STEPS = st.tuples(
    st.sampled_from(["data", "data", "data", "commit", "commit", "abort", "abort", "plain"]),
    st.integers(0, PRODUCERS - 1),
    st.integers(1, 4),
)
ENDS = st.lists(st.tuples(st.sampled_from(["commit", "abort", "plain"]), st.integers(0, PRODUCERS - 1), st.just(1)))
"""How what is open ends: without it most lives would be held back by one transaction of their beginning."""

LIVES = st.builds(
    lambda steps, ends: steps + ends,
    st.lists(STEPS, min_size=12, max_size=60),
    ENDS | st.permutations([("commit", 0, 1), ("abort", 1, 1), ("commit", 2, 1), ("abort", 3, 1), ("commit", 4, 1)]),
)


@dataclass
class WrittenLog:
    """A log, and of each record its offset, its key and whether it counts: None while its transaction is open."""

    log: Log
    rows: list[tuple[int, int]] = field(default_factory=list)
    fate: dict[int, bool | None] = field(default_factory=dict)
    open: dict[int, list[int]] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)

    def live(self, what: str, number: int, count: int) -> None:
        if what in ("commit", "abort"):
            self.log.append_marker(MarkerToWrite(number, 0, what == "commit", 0), T0)
            self.fate |= dict.fromkeys(self.open.pop(number, []), what == "commit")
            return
        transactional = what == "data"
        writer = number if transactional else PLAIN
        first = self.sequences.get(writer, 0)
        self.sequences[writer] = first + count
        keys = [(first + each) % 4 for each in range(count)]
        sent = encode_batch(
            [(T0, b"%d" % key, b"%d" % writer, ()) for key in keys],
            producer_id=writer,
            producer_epoch=0,
            base_sequence=first,
            transactional=transactional,
        )
        base = self.log.append(sent, T0, guard=guard_for(self.log, sent) if transactional else None).base_offset
        offsets = range(base, base + count)
        self.rows += zip(offsets, keys, strict=True)
        self.fate |= dict.fromkeys(offsets, None if transactional else True)
        if transactional:
            self.open.setdefault(writer, []).extend(offsets)

    def committed(self, start: int) -> list[int]:
        """What a reader from there gets, by the fates alone: it waits at the first record that has none yet."""
        found = []
        for offset, _ in self.rows:
            if self.fate[offset] is None:
                break
            if self.fate[offset] and offset >= start:
                found.append(offset)
        return found

    def newest(self) -> set[int]:
        """Of what is readable the last record of each key: compaction has to leave it."""
        keys = dict(self.rows)
        return set({keys[offset]: offset for offset in self.committed(0)}.values())


def fetch_once(log: Log, position: int, most_bytes: int) -> tuple[list[int], int]:
    """One fetch as the consumer makes it: the offsets of its records, and where the next one begins."""
    answer = log.fetch(position, most_bytes, committed=True)
    records = memoryview(answer.records)
    drops = build_aborted_filter(answer.aborted)
    return [record.offset for record in decode_records(records, position, drops)], find_batch_end(records, position)


def read_all(log: Log, position: int, cuts: list[int]) -> list[int]:
    """Up to the last stable offset, in fetches of at most so many bytes each."""
    found: list[int] = []
    for turn in range(10_000):
        if position >= log.last_stable_offset:
            return found
        records, following = fetch_once(log, position, cuts[turn % len(cuts)])
        assert following > position, "each fetch brings a whole batch"
        found += records
        position = following
    raise AssertionError("no end")


def open_log(compacted: bool) -> tuple[Broker, WrittenLog]:
    broker = open_broker(MemoryFiles(), **SMALL)
    broker.create_topic("t", 1, COMPACT if compacted else {})
    return broker, WrittenLog(broker.log("t", 0))


CUTS = st.lists(st.integers(1, 900) | st.integers(900, 9_000), min_size=1, max_size=8)


@settings(max_examples=150)
@given(LIVES, CUTS, st.just(0) | st.integers(0, 200))
def test_a_reader_gets_exactly_the_records_whose_fate_is_committed(life: list[Step], cuts: list[int], at: int) -> None:
    broker, written = open_log(compacted=False)
    for step in life:
        written.live(*step)
    written.log.flush()
    start = at % (written.log.last_stable_offset + 1)
    wanted = written.committed(start)
    assert read_all(written.log, start, cuts) == wanted
    event(f"{'some' if False in written.fate.values() else 'nothing'} aborted, {'some' if wanted else 'nothing'} read")
    broker.close()


@settings(max_examples=150)
@given(LIVES, LIVES, CUTS, st.lists(st.booleans(), min_size=1, max_size=8))
def test_compaction_between_two_fetches_shows_nothing_aborted_and_hides_nothing_that_is_newest(
    before: list[Step], after: list[Step], cuts: list[int], cleans: list[bool]
) -> None:
    broker, written = open_log(compacted=True)
    log = written.log
    found: list[int] = []
    position = 0
    for life in (before, after):
        for step in life:
            written.live(*step)
        log.flush()
        for turn in range(10_000):
            if cleans[turn % len(cleans)]:
                log.roll(T0)
                while broker.compact(T0 + 10):
                    pass
            if position >= log.last_stable_offset:
                break
            records, position = fetch_once(log, position, cuts[turn % len(cuts)])
            found += records
    committed = written.committed(0)
    assert found == sorted(set(found)), "each once, in order"
    assert written.newest() <= set(found) <= set(committed)
    event(f"{'fewer than' if len(found) < len(committed) else 'all'} committed")
    broker.close()
