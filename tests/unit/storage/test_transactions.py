"""What a log takes in of a transaction, and what readers of committed records see of it (TX-L...)."""

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from crc32c import crc32c

from muster.storage import errors
from muster.storage.broker.broker import Broker
from muster.storage.broker.fetches import FetchLimits
from muster.storage.broker.group_commit import GroupCommit
from muster.storage.broker.requests import LogRequests
from muster.storage.logs import log as log_module
from muster.storage.logs import transactions
from muster.storage.logs.log import Log
from muster.storage.logs.producer_state import MAX_EPOCH, LocalProducerIds, MarkerToWrite
from muster.storage.logs.replica import append_as_follower, start_leading
from muster.storage.logs.retention import apply_retention, retention_policies
from muster.storage.logs.segment import MAX_TIMESTAMP
from muster.storage.logs.transactions import OpenTransaction, TransactionGuard
from muster.storage.records.batch import encode_batch
from muster.storage.records.markers import encode_marker
from muster.storage.types import AbortedTransaction, AppendOrigin
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, open_broker
from tests.unit.storage.replicas import held, sent

SMALL = {"log__segment__bytes": 400}
ME = 9


def opened(disk: MemoryFiles | None = None, **settings: Any) -> Broker:
    broker = open_broker(disk or MemoryFiles(), **(settings or SMALL))
    if "t" not in broker.topics():
        broker.create_topic("t", 1)
    return broker


def data_of(sequence: int, *, epoch: int = 0, number: int = ME, count: int = 1, **how: Any) -> bytes:
    how.setdefault("transactional", True)
    return batch(*[b"x"] * count, producer_id=number, producer_epoch=epoch, base_sequence=sequence, **how)


def begin(log: Log, sequence: int = 0, *, epoch: int = 0, number: int = ME, level: int = 0, **how: Any) -> int:
    """The first batch of a transaction, to which the coordinator has agreed; its offset."""
    guard = log.make_guard(number, epoch, sequence=sequence, level=level)
    return log.append(data_of(sequence, epoch=epoch, number=number, **how), T0, guard=guard).base_offset


def end(
    log: Log, *, commit: bool = True, epoch: int = 0, number: int = ME, coordinator: int = 0, level: int = 0
) -> int:
    return log.append_marker(MarkerToWrite(number, epoch, commit, coordinator, level), T0).base_offset


def marker_at(offset: int, *, commit: bool) -> bytes:
    """As a leader sends it."""
    marker = encode_marker(commit=commit, producer_id=ME, producer_epoch=0, coordinator_epoch=0, timestamp_ms=T0)
    return offset.to_bytes(8, "big") + marker[8:12] + bytes(4) + marker[16:]


def stable(log: Log) -> int:
    log.flush()
    return log.last_stable_offset


# TX-L1, TX-L2: who appends
# -------------------------


def offsets_batch(count: int = 2, epoch: int = 0, number: int = ME) -> bytes:
    """What the group coordinator writes of a transaction: records without sequences."""
    rows = [(T0, b"key", b"offset", ())] * count
    return encode_batch(rows, producer_id=number, producer_epoch=epoch, transactional=True)


def append_offsets(log: Log, **how: Any) -> int:
    guard = log.make_guard(how.get("number", ME), how.get("epoch", 0))
    return log.append(offsets_batch(**how), T0, origin=AppendOrigin.COORDINATOR, guard=guard).base_offset


@pytest.mark.parametrize("clean", [True, False, None])
def test_records_without_sequences_are_repeats_of_nothing_and_have_no_last_sequence(clean: bool | None) -> None:
    disk = MemoryFiles()
    broker = opened(disk)
    log = broker.log("t", 0)
    assert [append_offsets(log) for _ in range(9)] == list(range(0, 18, 2))
    if clean is not None:
        log.flush()
        broker.close() if clean else disk.kill()
        log = opened(disk).log("t", 0)
    (known,) = log.list_producers()
    assert (known.last_sequence, known.txn_first_offset) == (-1, 0)
    assert log.last_of_producers() == {ME: (17, 0)}
    assert append_offsets(log) == 18
    end(log, epoch=1)
    with pytest.raises(errors.InvalidProducerEpoch):
        append_offsets(log)


def test_only_the_node_itself_may_leave_sequences_out() -> None:
    log = opened().log("t", 0)
    with pytest.raises(errors.InvalidRecord, match="sequence -1"):
        log.append(offsets_batch(), T0, guard=log.make_guard(ME, 0))


def test_a_follower_takes_what_its_leader_took_without_a_guard() -> None:
    log = opened().log("t", 0)
    sent = data_of(7)
    append_as_follower(log, sent[:12] + bytes(4) + sent[16:], T0)
    assert log.open_transactions() == [OpenTransaction(ME, 0, 0)]


# TX-L3: the first batch of a transaction
# ---------------------------------------


def test_a_transaction_begins_with_a_guard_only() -> None:
    log = opened().log("t", 0)
    with pytest.raises(errors.InvalidTxnState, match="coordinator was not asked"):
        log.append(data_of(0), T0)
    begin(log)
    assert log.make_guard(ME, 0) is None, "it is open: nobody has to be asked"
    log.append(data_of(1), T0)
    end(log)
    with pytest.raises(errors.InvalidTxnState):
        log.append(data_of(2), T0)
    begin(log, 2)
    assert log.open_transactions() == [OpenTransaction(ME, 0, 3)]


@pytest.mark.parametrize(
    ("what", "holds"),
    [
        ("nothing", True),
        ("marker", False),
        ("marker of level 2 with the guard's epoch", True),
        ("marker of level 2 with another epoch", False),
        ("marker of somebody else", True),
        ("first batch", False),
        ("dropped", False),
        ("cut", False),
        ("led in a later epoch", False),
    ],
)
def test_what_makes_a_guard_void(what: str, holds: bool) -> None:
    """Late data of one transaction must not become part of the next one."""
    broker = opened()
    log = broker.log("t", 0)
    log.append(batch(b"a"), T0)
    log.append(batch(b"b"), T0)
    guard = log.make_guard(ME, 5, sequence=0)
    assert guard is not None
    match what:
        case "marker":
            end(log, epoch=5)
        case "marker of level 2 with the guard's epoch":
            end(log, epoch=5, level=2)
        case "marker of level 2 with another epoch":
            end(log, epoch=4, level=2)
        case "marker of somebody else":
            end(log, epoch=5, number=8)
        case "first batch":
            begin(log, epoch=5)
            end(log, epoch=5)
        case "dropped":
            log.drop_guard(guard)
        case "cut":
            log.flush()
            broker.truncate("t", 0, 1)
        case "led in a later epoch":
            start_leading(log, 3)
        case _:
            pass
    before = log.end_offset
    if holds:
        log.append(data_of(0, epoch=5), T0, guard=guard)
        assert log.open_transactions() == [OpenTransaction(ME, 5, before)]
    else:
        sequence = 1 if what == "first batch" else 0
        with pytest.raises(errors.InvalidTxnState):
            log.append(data_of(sequence, epoch=5), T0, guard=guard)
        assert log.end_offset == before
    log.drop_guard(guard)


@pytest.mark.parametrize("ended", [False, True])
def test_what_waited_over_a_marker_is_no_part_of_the_next_transaction(ended: bool) -> None:
    """At level 0 the epoch is the same, and what a coordinator writes has no sequences by which it could be told."""
    log = opened().log("t", 0)
    late = log.make_guard(ME, 0)

    def append_late() -> None:
        log.append(offsets_batch(), T0, origin=AppendOrigin.COORDINATOR, guard=late)

    append_offsets(log)
    if ended:
        end(log)
        append_offsets(log)
        with pytest.raises(errors.InvalidTxnState, match="was ended while its records waited"):
            append_late()
    else:
        append_late()
    assert log.end_offset == (5 if ended else 4)


def test_a_guard_is_for_its_producer_epoch_and_log() -> None:
    log, other = opened().log("t", 0), opened().log("t", 0)
    guards = [log.make_guard(8, 0), log.make_guard(ME, 1), other.make_guard(ME, 0)]
    for guard in guards:
        with pytest.raises(errors.InvalidTxnState):
            log.append(data_of(0), T0, guard=guard)


def test_the_checks_come_in_their_order() -> None:
    """A known batch, then the epoch, then the transaction, then sequences."""
    log = opened().log("t", 0)
    begin(log, epoch=3, count=2)
    end(log, epoch=3)
    assert log.append(data_of(0, epoch=3, count=2), T0).base_offset == 0, "the answer was lost: it says so again"
    with pytest.raises(errors.InvalidProducerEpoch):
        log.append(data_of(7, epoch=2), T0)
    with pytest.raises(errors.InvalidTxnState):
        log.append(data_of(7, epoch=3), T0)
    with pytest.raises(errors.OutOfOrderSequence):
        begin(log, 7, epoch=3)
    assert begin(log, 2, epoch=3) == 3


@pytest.mark.parametrize(("waiting", "sent"), [(0, 1), (4, 9), (2**31 - 1, 0)])
def test_a_higher_sequence_waits_for_a_lower_one_whose_coordinator_has_not_answered(waiting: int, sent: int) -> None:
    log = opened().log("t", 0)
    lower = log.make_guard(ME, 0, sequence=waiting)
    assert lower is not None
    other = log.make_guard(8, 0, sequence=waiting)
    assert other is not None
    higher = log.make_guard(ME, 0, sequence=sent)
    with pytest.raises(errors.OutOfOrderSequence, match=f"sequence {waiting} still waits"):
        log.append(data_of(sent), T0, guard=higher)
    log.append(data_of(waiting), T0, guard=lower)
    assert log.open_transactions() == [OpenTransaction(ME, 0, 0)]
    with pytest.raises(errors.InvalidTxnState):
        log.append(data_of(sent, epoch=1), T0, guard=other)


@pytest.mark.parametrize("level", [0, 2])
def test_several_batches_of_one_append_begin_a_transaction_by_the_guard_of_the_first(level: int) -> None:
    log = opened().log("t", 0)
    several = data_of(0) + data_of(1, count=2) + data_of(3)
    other = log.make_guard(ME, 0, sequence=0, level=level)
    guard = log.make_guard(ME, 0, sequence=0, level=level)
    with pytest.raises(errors.OutOfOrderSequence, match="sequence 0 still waits"):
        log.append(several, T0, guard=guard)  # another append has the sequence too, and its coordinator may agree yet
    assert other is not None
    log.drop_guard(other)
    assert log.append(several, T0, guard=guard).base_offset == 0
    assert log.append(data_of(4), T0).base_offset == 4


def test_whoever_gives_up_is_not_waited_for() -> None:
    log = opened().log("t", 0)
    lower, higher = log.make_guard(ME, 0, sequence=0), log.make_guard(ME, 0, sequence=1)
    assert lower is not None
    log.drop_guard(lower)
    log.append(data_of(1), T0, guard=higher)


def test_there_are_only_so_many_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "MOST_GUARDS", 3)
    log = opened().log("t", 0)
    guards = [log.make_guard(number, 0) for number in (1, 1, 2)]
    with pytest.raises(errors.NotEnoughReplicas, match="try again"):
        log.make_guard(3, 0)
    assert isinstance(guards[2], TransactionGuard)
    log.drop_guard(guards[2])
    log.drop_guard(guards[2])
    log.make_guard(3, 0)
    with pytest.raises(errors.NotEnoughReplicas):
        log.make_guard(3, 0)
    end(log, number=1)
    assert [log.make_guard(4, 0) is not None for _ in range(2)] == [True, True]


def test_guards_pass_through_the_group_commit() -> None:
    async def story() -> None:
        broker = opened()
        log = broker.log("t", 0)
        commit = GroupCommit(broker, lambda: T0)
        guard = log.make_guard(ME, 0, sequence=0)
        sent = [
            commit.append(("t", 0), batch(b"plain")),
            commit.append(("t", 0), data_of(0), guard=guard),
            commit.append(("t", 0), data_of(1)),
            commit.append(("t", 0), data_of(0, number=8)),
        ]
        results = await asyncio.gather(*sent, return_exceptions=True)
        assert [getattr(result, "base_offset", type(result)) for result in results] == [
            0,
            1,
            2,
            errors.InvalidTxnState,
        ]
        await commit.close()
        broker.close()

    asyncio.run(story())


def test_a_produce_brings_its_guards_by_partition() -> None:
    async def story() -> None:
        broker = opened()
        broker.create_topic("u", 1)
        requests = LogRequests.standalone(broker)
        guard = broker.log("t", 0).make_guard(ME, 0)
        assert guard is not None
        parts = [("t", 0, data_of(0)), ("u", 0, data_of(0))]
        results = await requests.produce(parts, -1, 0, {("t", 0): guard})
        assert [getattr(result, "base_offset", type(result)) for result in results] == [0, errors.InvalidTxnState]
        await requests.close()
        broker.close()

    asyncio.run(story())


# TX-L5: markers
# --------------

EPOCH = errors.InvalidProducerEpoch


@pytest.mark.parametrize(
    ("open_at", "known", "level", "epoch", "refusal"),
    [
        # The log's epoch is `known`; a transaction is open there, or none is.
        (True, 5, 0, 4, EPOCH),
        (True, 5, 0, 5, None),
        (True, 5, 0, 6, None),
        (True, 5, 1, 5, None),
        (True, 5, 2, 4, EPOCH),
        (True, 5, 2, 5, EPOCH),
        (True, 5, 2, 6, None),
        (True, MAX_EPOCH, 2, MAX_EPOCH, None),
        (False, 5, 0, 4, EPOCH),
        (False, 5, 0, 5, None),
        (False, 5, 2, 4, EPOCH),
        (False, 5, 2, 5, None),
        (False, 5, 2, 6, None),
        (False, MAX_EPOCH, 2, MAX_EPOCH, None),
        (False, -1, 2, 0, None),
    ],
)
def test_which_epoch_a_marker_may_have(
    open_at: bool, known: int, level: int, epoch: int, refusal: type[Exception] | None
) -> None:
    log = opened().log("t", 0)
    if known >= 0:
        begin(log, epoch=known)
    if known >= 0 and not open_at:
        end(log, epoch=known)
    before = log.end_offset
    if refusal is not None:
        with pytest.raises(refusal, match=f"carries epoch {epoch}"):
            end(log, epoch=epoch, level=level, commit=False)
        assert log.end_offset == before
        return
    end(log, epoch=epoch, level=level, commit=False)
    assert not log.open_transactions()
    aborted = [entry for segment in log.segments for entry in segment.aborted]
    assert len(aborted) == open_at, "a marker that ends nothing leaves no entry"
    assert log.list_producers()[0].epoch == epoch


@pytest.mark.parametrize("level", [0, 2])
def test_a_former_coordinator_writes_no_more_markers(level: int) -> None:
    log = opened().log("t", 0)
    begin(log)
    end(log, epoch=1, coordinator=4)
    begin(log, epoch=1)
    with pytest.raises(errors.TransactionCoordinatorFenced, match="expected 4"):
        end(log, epoch=2, coordinator=3, level=level)
    assert log.open_transactions() == [OpenTransaction(ME, 1, 2)]
    end(log, epoch=2, coordinator=4, level=level)
    assert not log.open_transactions()


def test_a_marker_that_is_written_again_changes_nothing_for_readers() -> None:
    log = opened().log("t", 0)
    begin(log)
    end(log, epoch=1, commit=False, level=2)
    end(log, epoch=1, commit=False, coordinator=2, level=2)
    log.flush()
    assert (log.last_stable_offset, log.high_watermark) == (3, 3)
    assert log.fetch(0, 10_000, committed=True).aborted == (AbortedTransaction(ME, 0),)


# TX-L6: sequences of a transaction
# ---------------------------------


@pytest.mark.parametrize("before", ["nothing", "marker", "batch"])
def test_with_level_2_the_first_batch_of_an_epoch_has_sequence_0(before: str) -> None:
    log = opened().log("t", 0)
    if before == "batch":
        begin(log)
    if before != "nothing":
        end(log, epoch=1, level=2)
    with pytest.raises(errors.OutOfOrderSequence, match="expected 0"):
        begin(log, 4, epoch=1, level=2)
    begin(log, 0, epoch=1, level=2)


def test_below_level_2_an_unknown_producer_may_go_on_where_it_was() -> None:
    """Its batches may have been given up by retention."""
    assert begin(opened().log("t", 0), 4) == 0


def test_an_append_holds_transactional_batches_of_one_producer() -> None:
    log = opened().log("t", 0)
    with pytest.raises(errors.InvalidProducerIdMapping, match="several producers"):
        log.append(data_of(0) + data_of(0, number=8), T0, guard=log.make_guard(ME, 0))
    assert log.end_offset == 0
    log.append(data_of(0) + data_of(1), T0, guard=log.make_guard(ME, 0))
    assert log.open_transactions() == [OpenTransaction(ME, 0, 0)]


# TX-L7, TX-L8: what readers see
# ------------------------------


@pytest.mark.parametrize(
    ("steps", "seen"),
    [
        # b1: producer 1 begins, d1: goes on, c1 and a1: its marker, p: plain record, f: flush. After each the offset.
        ("b1 f", [0, 0]),
        ("b1 f p f c1", [0, 0, 0, 0, 0]),
        ("b1 f c1 f", [0, 0, 0, 2]),
        ("b1 b2 f c2 f c1 f", [0, 0, 0, 0, 0, 0, 4]),
        ("b1 b2 f a1 f p f c2 f", [0, 0, 0, 0, 1, 1, 1, 1, 5]),
        ("p b1 f c1 b1 f", [0, 0, 1, 1, 1, 3]),
        ("b1 c1 b2 c2 f b1 f", [0, 0, 0, 0, 4, 4, 4]),
        ("b2 b1 f c2 b2 f c1 f", [0, 0, 0, 0, 0, 1, 1, 3]),
    ],
)
def test_the_last_stable_offset_after_each_step(steps: str, seen: list[int]) -> None:
    """It follows what is flushed: between a marker's append and its flush the transaction is as good as open."""
    log = opened(log__segment__bytes=1 << 20).log("t", 0)
    sequences = dict.fromkeys((1, 2), 0)
    told = []
    for step in steps.split():
        number = int(step[1:] or 0)
        match step[0]:
            case "b":
                begin(log, sequences[number], number=number)
                sequences[number] += 1
            case "c" | "a":
                end(log, commit=step[0] == "c", number=number)
            case "p":
                log.append(batch(b"plain"), T0)
            case _:
                log.flush()
        told.append(log.last_stable_offset)
    assert told == seen


def test_records_that_were_given_up_hold_nobody_back() -> None:
    disk = MemoryFiles()
    broker = opened(disk)
    log = broker.log("t", 0)
    begin(log)
    for _ in range(9):
        log.append(batch(b"plain"), T0)
    assert stable(log) == 0
    assert broker.delete_records("t", 0, 6) == 6
    assert (log.last_stable_offset, log.high_watermark) == (6, 10)
    assert log.fetch(6, 10_000, committed=True).records == b""
    assert log.list_offset(-1, committed=True) == (6, -1)
    broker.close()
    log = opened(disk).log("t", 0)
    assert log.last_stable_offset == 6
    assert end(log, commit=False) == 10, "the marker is written all the same"
    assert stable(log) == 11


def test_retention_goes_past_an_open_transaction() -> None:
    broker = open_broker(MemoryFiles(), **SMALL)
    broker.create_topic("t", 1, {"retention.bytes": "500"})
    log = broker.log("t", 0)
    begin(log)
    for _ in range(30):
        log.append(batch(b"plain"), T0)
    log.flush()
    assert apply_retention(log, retention_policies(), T0)
    assert 0 < log.start_offset == log.last_stable_offset < log.high_watermark
    assert log.open_transactions() == [OpenTransaction(ME, 0, 0)]
    end(log)
    assert stable(log) == log.high_watermark == 32


def test_looked_up_by_time_nothing_lies_at_or_past_the_last_stable_offset() -> None:
    log = opened().log("t", 0)
    log.append(batch(b"before", at=T0), T0)
    begin(log, at=T0 + 1)
    log.append(batch(b"behind", at=T0 + 2), T0)
    log.flush()
    asked = (T0, T0 + 1, T0 + 2, MAX_TIMESTAMP)
    assert [log.list_offset(time)[0] for time in asked] == [0, 1, 2, 2]
    assert [log.list_offset(time, committed=True)[0] for time in asked] == [0, -1, -1, -1]
    end(log)
    log.flush()
    assert [log.list_offset(time, committed=True)[0] for time in asked] == [0, 1, 2, 2]


def test_what_has_ended_is_not_kept_where_nobody_reads() -> None:
    log = opened(log__segment__bytes=1 << 20).log("t", 0)
    begin(log)
    end(log)
    log.flush()
    begin(log, number=8)
    assert end(log, number=8) == 3
    assert log.producers.unstable.first == 2


@pytest.mark.parametrize("by", ["marker", "deletion"])
def test_a_fetch_of_committed_records_that_waits_is_woken_when_they_become_so(by: str) -> None:
    async def story() -> None:
        broker = opened()
        log = broker.log("t", 0)
        begin(log)
        log.append(batch(b"plain"), T0)
        log.flush()
        requests = LogRequests.standalone(broker)
        committed = FetchLimits(min_bytes=1, max_bytes=0, committed=True)
        waiting = asyncio.create_task(requests.fetch([("t", 0, 0, 0)], committed, 3_600_000))
        for _ in range(20):
            await asyncio.sleep(0)
        assert requests.parked == 1
        if by == "marker":
            end(log)
            log.flush()
        else:
            await requests.delete_records([("t", 0, 2)], 0)
        (found,) = await waiting
        assert isinstance(found, errors.OffsetOutsideLog) if by == "deletion" else found.records
        await requests.close()
        broker.close()

    asyncio.run(asyncio.wait_for(story(), 30))


def test_what_was_aborted_is_named_where_it_lies_and_not_for_all_of_the_log() -> None:
    """A fetch that reads little names few, however much was aborted behind it."""
    log = opened(log__segment__bytes=1 << 20, log__index__interval__bytes=200).log("t", 0)
    for number in range(100):
        begin(log, number=number)
        end(log, number=number, commit=False)
    log.flush()
    found = log.fetch(100, 300, committed=True)
    assert AbortedTransaction(50, 100) in found.aborted
    assert len(found.aborted) < 12
    everything = log.fetch(0, 1 << 20, committed=True)
    assert len(everything.aborted) == 100


def test_what_was_aborted_is_named_for_a_fetch_that_begins_in_a_hole() -> None:
    """A leader's compaction may have left one before the segment in which the next record lies."""
    log = held().log("t", 0)
    append_as_follower(log, sent(b"plain", at=0), T0)
    begun = sent(b"x", at=5, producer_id=ME, producer_epoch=0, base_sequence=0, transactional=True)
    append_as_follower(log, begun + marker_at(6, commit=False), T0)
    log.tell_high_watermark(7)
    assert [segment.base_offset for segment in log.segments] == [0, 5]
    for offset in (0, 1, 3, 5, 6):
        found = log.fetch(offset, 10_000, committed=True)
        assert found.aborted == (() if offset == 0 else (AbortedTransaction(ME, 5),)), offset


# TX-L10, TX-L11: after a restart
# -------------------------------


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("hurt", [None, 0, 1, 2])
def test_what_was_aborted_is_known_after_a_restart_wherever_it_lies(clean: bool, hurt: int | None) -> None:
    """Of segments before the newest snapshot it was forgotten: readers of committed records got aborted ones."""
    disk = MemoryFiles()
    broker = opened(disk)
    log = broker.log("t", 0)
    named = []
    for number in range(12):
        named.append(AbortedTransaction(number, begin(log, number=number)))
        if number:  # so that some begin in one segment and end in the next
            end(log, number=number - 1, commit=False)
    end(log, number=11, commit=False)
    log.flush()
    assert len(log.segments) > 4
    broker.close() if clean else disk.kill()
    if hurt is not None:
        index = sorted(name for name in disk.names("/data/t-0") if name.endswith(".txnindex"))[hurt]
        disk.put(f"/data/t-0/{index}", disk.content(f"/data/t-0/{index}")[:-1])
    log = opened(disk).log("t", 0)
    found = [entry for segment in log.segments for entry in segment.aborted]
    assert [(entry.producer_id, entry.first_offset) for entry in found] == named
    assert log.fetch(0, 1, committed=True).aborted[0] == named[0]


def test_a_snapshot_knows_more_of_producers_than_damaged_records_before_it() -> None:
    disk = MemoryFiles()
    broker = opened(disk)
    log = broker.log("t", 0)
    begin(log, number=1)
    end(log, number=1, commit=False)
    for number in range(2, 12):
        begin(log, number=number)
        end(log, number=number, commit=number % 2 == 0)
    log.flush()
    known, open_ = log.list_producers(), log.open_transactions()
    aborted = [segment.aborted for segment in log.segments]
    assert aborted[0]
    broker.close()
    for suffix in (".log", ".txnindex"):
        path = f"/data/t-0/{0:020d}{suffix}"
        disk.put(path, b"\xff" * 20 + disk.content(path)[20:])
    log = opened(disk).log("t", 0)
    assert (log.list_producers(), log.open_transactions()) == (known, open_)
    assert [segment.aborted for segment in log.segments] == [[], *aborted[1:]]


def test_a_copy_that_is_cut_or_opened_holds_back_what_is_not_committed() -> None:
    """Its high watermark may lie before the newest snapshot, which does not tell what has ended since."""
    disk = MemoryFiles()
    broker = held(disk)
    log = broker.log("t", 0)
    begun = sent(b"x", at=0, producer_id=ME, producer_epoch=0, base_sequence=0, transactional=True)
    append_as_follower(log, begun + marker_at(1, commit=True), T0)
    for offset in range(2, 20):
        append_as_follower(log, sent(b"plain", at=offset), T0)
    log.flush()
    log.tell_high_watermark(1)
    assert log.last_stable_offset == 0
    broker.truncate("t", 0, 15)
    assert (log.end_offset, log.high_watermark, log.last_stable_offset) == (15, 1, 0)
    assert len(log.segments) > 3
    broker.checkpoint()
    broker.close()
    log = held(disk).log("t", 0)
    assert (log.end_offset, log.high_watermark, log.last_stable_offset) == (15, 1, 0)
    log.tell_high_watermark(2)
    assert log.last_stable_offset == 2


def test_a_snapshot_has_the_bytes_of_kafka_s() -> None:
    """Version 1: of each producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch and
    first offset of the open transaction, behind version, CRC-32C and count."""
    log = opened().log("t", 0)
    begin(log, 7, number=8, count=2)
    append_offsets(log)
    end(log, number=8, epoch=1, coordinator=4, commit=False, level=2)
    body = (
        "00000002"
        "0000000000000008 0001 ffffffff ffffffffffffffff 00000000 0000018bcfe56800 00000004 ffffffffffffffff"
        "0000000000000009 0000 ffffffff 0000000000000003 00000001 0000018bcfe56800 ffffffff 0000000000000002"
    )
    data = bytes.fromhex(body)
    assert log.producers.snapshot() == b"\x00\x01" + crc32c(data).to_bytes(4, "big") + data


@pytest.mark.parametrize("at_once", [1, 2, 500])
def test_producers_are_told_with_what_is_open(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened().log("t", 0)
    begin(log, 3)
    end(log, epoch=1, coordinator=7, level=2)
    begin(log, 0, epoch=1, number=ME, level=2, count=2)
    log.append(data_of(5, number=4, transactional=False), T0)
    monkeypatch.setattr(log_module, "PRODUCERS_AT_ONCE", at_once)
    assert [tuple(known) for known in log.list_producers()] == [(4, 0, 5, T0, -1, -1), (ME, 1, 1, T0, 7, 2)]


def test_two_threads_are_never_given_one_producer_id() -> None:
    """Both come while the next block is being written down."""
    disk, both = MemoryFiles(), threading.Barrier(2)

    def meet(operation: str, path: str) -> None:
        if "producer-id-block" in path:
            with contextlib.suppress(threading.BrokenBarrierError):
                both.wait(0.2)

    disk.make_dir("/d")
    disk.fault = meet
    ids = LocalProducerIds(disk, "/d")
    with ThreadPoolExecutor(2) as pool:
        given = list(pool.map(lambda _: ids.next(-1, -1)[0], range(2)))
    assert len(set(given)) == 2
