"""Transactions of a log in every order: what holds readers back, what they are told was aborted, and all of it again
after the log was loaded from any of its snapshots."""

from itertools import pairwise
from typing import TypeAlias

from hypothesis import event, given, settings
from hypothesis import strategies as st

from muster.storage.logs.log import Log
from muster.storage.logs.producer_state import MarkerToWrite, load_producers
from muster.storage.logs.segment import AbortedEntry, overlapping_aborted
from muster.storage.logs.transactions import NOTHING_UNSTABLE, UnstableTransactions
from muster.storage.records.batch import read_batches
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, guard_for, open_broker

# The last stable offset
# ----------------------

Step: TypeAlias = tuple[str, int]
"""What happens next: a producer begins, or ends with a marker, or the high watermark moves on by so much."""

STEPS = st.lists(
    st.tuples(st.sampled_from(["begin", "end", "flush"]), st.integers(0, 9)),
    max_size=60,
)


@given(STEPS)
def test_the_oldest_is_the_least_of_all_that_hold_readers_back(steps: list[Step]) -> None:
    ours = UnstableTransactions()
    open_: dict[int, int] = {}
    ended: dict[int, int] = {}
    holders: list[int] = []
    """Of each time so far the first offset of the oldest that was open from then on."""
    high = 0
    for offset, (what, number) in enumerate(steps):
        match what:
            case "begin" if number not in open_:
                open_[number] = offset
                ours.begin(offset, number, offset)
            case "end" if number in open_:
                first = open_.pop(number)
                ended[first] = offset
                held = (holders.index(first), True) if first in holders else None
                assert ours.end(first, offset, offset) == held
            case _:
                high = min(high + number, offset)
        holding = [*open_.values(), *(first for first, marker in ended.items() if marker >= high)]
        assert ours.settle(high) == ours.first == min(holding, default=NOTHING_UNSTABLE)
        assert ours.oldest_open() == min(open_.values(), default=NOTHING_UNSTABLE)
        assert list(ours.open()) == sorted((first, number) for number, first in open_.items())
        holders.append(ours.oldest_open())


# A log with transactions
# -----------------------

SMALL = {"log__segment__bytes": 500, "log__index__interval__bytes": 100}
PRODUCERS = 4
LIVES = st.lists(
    st.tuples(
        st.sampled_from(["data", "data", "data", "commit", "abort", "plain", "flush"]), st.integers(0, PRODUCERS - 1)
    ),
    max_size=50,
)


class Model:
    """What was written: of each offset with data its producer, and the fate of its transaction once it is known."""

    def __init__(self) -> None:
        self.holder: dict[int, int] = {}
        self.fate: dict[int, str] = {}
        self.spans: list[tuple[int, int, int]] = []
        """(first offset, marker's offset, producer) of each transaction; the marker's is 2^62 while it is open."""
        self.open: dict[int, list[int]] = {}
        self.sequences = [0] * PRODUCERS
        self.aborted: list[AbortedEntry] = []
        self.keys: dict[int, int] = {}

    def live(self, log: Log, what: str, number: int) -> None:
        match what:
            case "flush":
                log.flush()
            case "plain":
                offset = log.append(batch(b"plain", key=b"%d" % number), T0).base_offset
                self.keys[offset] = number
                self.holder[offset], self.fate[offset] = -1, "commit"
            case "data":
                sent = batch(
                    b"x",
                    key=b"%d" % (self.sequences[number] % 3),
                    producer_id=number,
                    producer_epoch=0,
                    base_sequence=self.sequences[number],
                    transactional=True,
                )
                offset = log.append(sent, T0, guard=guard_for(log, sent)).base_offset
                self.keys[offset] = self.sequences[number] % 3
                self.sequences[number] += 1
                self.open.setdefault(number, []).append(offset)
                self.holder[offset] = number
            case _:
                marker = MarkerToWrite(number, 0, what == "commit", 0)
                at = log.append_marker(marker, T0).base_offset
                offsets = self.open.pop(number, [])
                self.fate |= dict.fromkeys(offsets, what)
                if offsets:
                    self.spans.append((offsets[0], at, number))
                if offsets and what == "abort":
                    oldest = min((others[0] for others in self.open.values()), default=at + 1)
                    self.aborted.append(AbortedEntry(number, offsets[0], at, oldest))

    def stable_below(self, high: int) -> int:
        """By a scan of everything."""
        still = [offsets[0] for offsets in self.open.values()]
        return min([high, *still, *(first for first, marker, _ in self.spans if marker >= high)])


def committed_records(log: Log, most_bytes: int) -> list[int]:
    """The offsets that a reader of committed records keeps, as clients filter: a producer's data from the first offset
    of an aborted transaction on, until its marker."""
    kept: list[int] = []
    offset = log.start_offset
    while offset < log.last_stable_offset:
        answer = log.fetch(offset, most_bytes, committed=True)
        coming = sorted(answer.aborted, key=lambda each: each.first_offset)
        dropped: set[int] = set()
        for each in read_batches(answer.records):
            while coming and coming[0].first_offset <= each.last_offset:
                dropped.add(coming.pop(0).producer_id)
            if each.control:
                dropped.discard(each.producer_id)
            elif not (each.transactional and each.producer_id in dropped):
                kept += [found.offset for found in each.records() if found.offset >= offset]
            following = each.next_offset
        offset = following
    return kept


def wanted(model: Model, stable: int) -> list[int]:
    return [offset for offset, fate in sorted(model.fate.items()) if fate == "commit" and offset < stable]


def aborted_in(log: Log) -> list[AbortedEntry]:
    return [entry for segment in log.segments for entry in segment.aborted]


@settings(max_examples=60)
@given(LIVES, st.integers(1, 700), st.booleans())
def test_readers_get_what_was_committed_and_nothing_else(life: list[Step], most_bytes: int, clean: bool) -> None:
    disk = MemoryFiles()
    broker = open_broker(disk, **SMALL)
    broker.create_topic("t", 1)
    log, model = broker.log("t", 0), Model()
    for what, number in life:
        model.live(log, what, number)
        assert log.last_stable_offset == model.stable_below(log.high_watermark)
    log.flush()
    for _ in range(2):
        stable = log.last_stable_offset
        assert stable == model.stable_below(log.end_offset)
        assert aborted_in(log) == model.aborted
        assert committed_records(log, most_bytes) == wanted(model, stable)
        broker.close() if clean else disk.kill()
        broker = open_broker(disk, **SMALL)
        log = broker.log("t", 0)
    assert log.open_transactions() == sorted(log.open_transactions(), key=lambda each: each.first_offset)
    assert {each.producer_id for each in log.open_transactions()} == set(model.open)


@settings(max_examples=40)
@given(LIVES)
def test_a_snapshot_tells_what_a_scan_tells_at_every_cut_and_high_watermark(life: list[Step]) -> None:
    """Of a log of a cluster, too, whose high watermark may lie before the newest snapshots."""
    disk = MemoryFiles()
    broker = open_broker(disk, **SMALL)
    broker.create_topic("t", 1)
    log, model = broker.log("t", 0), Model()
    for what, number in life:
        model.live(log, what, number)
    log.flush()
    segments = list(log.segments)
    for cut in range(1, len(segments) + 1):
        kept = segments[:cut]
        ends = kept[-1].next_offset
        for high in range(ends + 1):
            loaded = load_producers(kept, high)
            scanned = Model()
            for span in [*model.spans, *((offsets[0], 1 << 62, number) for number, offsets in model.open.items())]:
                if span[0] < ends:
                    scanned.spans.append(span if span[1] < ends else (span[0], 1 << 62, span[2]))
            assert min(high, loaded.unstable.settle(high)) == scanned.stable_below(high)
        assert [entry for segment in kept for entry in segment.aborted] == [
            entry for entry in model.aborted if entry.last_offset < ends
        ]


COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "0"}


def must_read_the_newest(log: Log, model: Model, most_bytes: int) -> dict[int, int]:
    """By key the offset of its newest committed record."""
    stable = log.last_stable_offset
    assert stable == model.stable_below(log.high_watermark)
    committed = wanted(model, stable)
    newest = {model.keys[offset]: offset for offset in committed}
    assert set(newest.values()) <= set(committed_records(log, most_bytes)) <= set(committed)
    return newest


@settings(max_examples=150)
@given(LIVES, LIVES, st.integers(1, 700), st.booleans())
def test_after_a_compaction_readers_get_the_newest_of_what_was_committed(
    before: list[Step], after: list[Step], most_bytes: int, reopen: bool
) -> None:
    """Compaction leaves holes: where a fetch begins, and in which segment what it returns lies, are two questions."""
    disk = MemoryFiles()
    broker = open_broker(disk, **SMALL)
    broker.create_topic("t", 1, COMPACT)
    log, model = broker.log("t", 0), Model()
    for life in (before, after):
        for what, number in life:
            model.live(log, what, number)
        log.flush()
        newest = must_read_the_newest(log, model, most_bytes)
        log.roll(T0)
        while broker.compact(T0 + 10):
            pass
        if reopen:
            broker.close()
            broker = open_broker(disk, **SMALL)
            log = broker.log("t", 0)
        assert must_read_the_newest(log, model, most_bytes) == newest
    event(f"{len(newest)} keys")


# Which aborted transactions overlap
# ----------------------------------


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=24), st.sets(st.integers(0, 12), max_size=3))
def test_the_look_up_finds_what_a_full_scan_finds(life: list[tuple[int, bool]], cuts: set[int]) -> None:
    """Of every range. Each step begins a producer's transaction, or ends it, aborted or not."""
    open_: dict[int, int] = {}
    entries: list[AbortedEntry] = []
    for offset, (number, aborted) in enumerate(life):
        if number not in open_:
            open_[number] = offset
        else:
            first = open_.pop(number)
            if aborted:
                entries.append(AbortedEntry(number, first, offset, min(open_.values(), default=offset + 1)))
    bounds = [0, *sorted(min(cut, len(entries)) for cut in cuts), len(entries)]
    lists = [entries[first:last] for first, last in pairwise(bounds)]
    for start in range(len(life) + 1):
        for until in range(start, len(life) + 1):
            scanned = [entry for entry in entries if entry.last_offset >= start and entry.first_offset < until]
            assert overlapping_aborted(lists, start, until) == scanned
