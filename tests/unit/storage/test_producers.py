"""Idempotent producers and transactions, before and after a restart."""

from typing import Any

import pytest

from muster.storage import errors
from muster.storage.broker.broker import Broker
from muster.storage.logs import producer_state
from muster.storage.logs.producer_state import is_fence
from muster.storage.records.markers import encode_marker
from muster.storage.types import AbortedTransaction, AppendOrigin
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, guard_for, open_broker

SMALL = {"log__segment__bytes": 400}


def made() -> tuple[MemoryFiles, Broker]:
    disk = MemoryFiles()
    broker = open_broker(disk, **SMALL)
    broker.create_topic("t", 1)
    return disk, broker


def send(
    broker: Broker, sequence: int, *, count: int = 1, epoch: int = 0, number: int = 9, **how: Any
) -> tuple[int, int]:
    data = batch(*[b"x"] * count, producer_id=number, producer_epoch=epoch, base_sequence=sequence, **how)
    guard = guard_for(broker.log("t", 0), data) if how.get("transactional") else None
    done = broker.append("t", 0, data, T0, guard=guard)
    broker.flush()
    return done.base_offset, done.last_offset


def mark(broker: Broker, *, commit: bool, number: int = 9, epoch: int = 0, coordinator: int = 0) -> None:
    data = encode_marker(
        commit=commit, producer_id=number, producer_epoch=epoch, coordinator_epoch=coordinator, timestamp_ms=T0
    )
    broker.append("t", 0, data, T0, origin=AppendOrigin.COORDINATOR)
    broker.flush()


def reopened(disk: MemoryFiles, broker: Broker, *, clean: bool) -> Broker:
    if clean:
        broker.close()
    else:
        disk.kill()
    return open_broker(disk, **SMALL)


def test_a_repeated_batch_is_answered_with_its_old_offsets() -> None:
    _, broker = made()
    first = [send(broker, 2 * n, count=2) for n in range(5)]
    assert [send(broker, 2 * n, count=2) for n in range(5)] == first
    assert broker.end_offset("t", 0) == 10
    send(broker, 10)
    with pytest.raises(errors.OutOfOrderSequence):
        send(broker, 0, count=2)


def several(*sequences: int, count: int = 2, epoch: int = 0, number: int = 9, **how: Any) -> bytes:
    """One batch of `count` records for each sequence."""
    return b"".join(
        batch(*[b"x"] * count, producer_id=number, producer_epoch=epoch, base_sequence=sequence, **how)
        for sequence in sequences
    )


@pytest.mark.parametrize("batches", range(2, 10))
@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("after", [0, 1, 4])
def test_batches_that_came_together_and_come_again_get_their_old_offsets(
    batches: int, transactional: bool, after: int
) -> None:
    """Their answer was lost. Of more than five the node remembers the last ones; others may have come since."""
    disk = MemoryFiles()
    broker = open_broker(disk)
    broker.create_topic("t", 1)
    data = several(*range(0, 2 * batches, 2), transactional=transactional)
    guard = guard_for(broker.log("t", 0), data) if transactional else None
    done = broker.append("t", 0, data, T0, guard=guard)
    for more in range(after):
        broker.append("t", 0, several(2 * (batches + more), transactional=transactional), T0)
    broker.flush()
    end = broker.end_offset("t", 0)
    again = broker.append("t", 0, data, T0)
    assert (again.base_offset, again.last_offset) == (done.base_offset, done.last_offset) == (0, 2 * batches - 1)
    assert broker.end_offset("t", 0) == end
    if not transactional:
        disk.kill()
        broker = open_broker(disk)
        again = broker.append("t", 0, data, T0)
        assert (again.base_offset, again.last_offset) == (0, 2 * batches - 1)


def test_batches_of_two_producers_that_came_together_get_their_old_offsets() -> None:
    _, broker = made()
    data = several(0, 2) + several(0, number=8) + several(4) + several(2, number=8)
    done = broker.append("t", 0, data, T0)
    again = broker.append("t", 0, data, T0)
    assert (again.base_offset, again.last_offset) == (done.base_offset, done.last_offset) == (0, 9)


@pytest.mark.parametrize(
    "mixed",
    [
        pytest.param(several(0, 4), id="the second one is new"),
        pytest.param(several(2, 4), id="the first one is old"),
        pytest.param(several(0, 2, number=8), id="another producer has them"),
        pytest.param(several(0, 2, count=1), id="they are smaller"),
        pytest.param(several(2, 0), id="the other way round"),
        pytest.param(several(0, 2) + batch(b"x"), id="with one of nobody"),
        pytest.param(several(0, 2, epoch=1), id="of another epoch"),
    ],
)
def test_batches_that_did_not_come_together_are_no_repetition(mixed: bytes) -> None:
    _, broker = made()
    broker.append("t", 0, several(0, 2), T0)
    try:
        done = broker.append("t", 0, mixed, T0)
    except (errors.DuplicateSequence, errors.OutOfOrderSequence):
        assert broker.end_offset("t", 0) == 4
    else:
        assert done.base_offset == 4, "they are new"


def test_batches_that_came_one_by_one_with_others_between_are_no_repetition() -> None:
    _, broker = made()
    broker.append("t", 0, several(0), T0)
    broker.append("t", 0, several(0, number=8), T0)
    broker.append("t", 0, several(2), T0)
    with pytest.raises(errors.DuplicateSequence, match="sequence 0 again, along with batches that did not come with"):
        broker.append("t", 0, several(0, 2), T0)


@pytest.mark.parametrize("clean", [True, False])
def test_the_last_batch_is_known_after_a_restart(clean: bool) -> None:
    disk, broker = made()
    offsets = [send(broker, n) for n in range(12)]
    again = reopened(disk, broker, clean=clean)
    assert send(again, 11) == offsets[11]
    assert send(again, 12) == (12, 12)


@pytest.mark.parametrize("sent", range(1, 14))
def test_the_last_five_batches_are_known_after_a_crash_wherever_a_segment_ends(sent: int) -> None:
    """A snapshot has one of each: what a client sent again was written twice, or refused."""
    disk, broker = made()
    offsets: dict[int, list[tuple[int, int]]] = {8: [], 9: []}
    for n in range(sent):
        for number, of in offsets.items():
            of.append(send(broker, 2 * n, count=2, number=number))
    again = reopened(disk, broker, clean=False)
    end = again.end_offset("t", 0)
    for number, of in offsets.items():
        for n in range(max(sent - 5, 0), sent):
            assert send(again, 2 * n, count=2, number=number) == of[n]
        if sent > 5:
            with pytest.raises(errors.OutOfOrderSequence):
                send(again, 2 * (sent - 6), count=2, number=number)
    assert again.end_offset("t", 0) == end
    assert send(again, 2 * sent, count=2) == (end, end + 1)


def test_batches_of_an_older_epoch_are_no_part_of_the_newer_one_after_a_crash() -> None:
    disk, broker = made()
    for n in range(6):
        send(broker, n)
    send(broker, 0, epoch=1)
    for n in range(6):  # seals the segment that has it
        send(broker, n, number=7)
    again = reopened(disk, broker, clean=False)
    with pytest.raises(errors.InvalidProducerEpoch):
        send(again, 5)
    assert send(again, 0, epoch=1) == (6, 6)
    assert send(again, 1, epoch=1) == (13, 13)


def test_batches_further_back_than_the_tail_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "TAIL_BYTES", 100)
    disk, broker = made()
    offsets = [send(broker, n) for n in range(12)]
    for n in range(40):
        send(broker, n, number=7)
    again = reopened(disk, broker, clean=False)
    assert send(again, 11) == offsets[11], "the snapshot has it"
    with pytest.raises(errors.OutOfOrderSequence):
        send(again, 10)


def test_snapshots_are_made_anew_when_they_are_lost_or_damaged() -> None:
    for hurt in ("lost", "damaged", "older"):
        disk, broker = made()
        for n in range(12):
            send(broker, n)
        broker.close()
        snapshots = [name for name in disk.names("/data/t-0") if name.endswith(".snapshot")]
        assert len(snapshots) >= 2
        oldest = disk.content(f"/data/t-0/{snapshots[0]}")
        for name in snapshots:
            match hurt:
                case "lost":
                    disk.remove(f"/data/t-0/{name}")
                case "damaged":
                    disk.put(f"/data/t-0/{name}", disk.content(f"/data/t-0/{name}")[:-2])
                case "older":
                    disk.put(f"/data/t-0/{name}", oldest)
        again = open_broker(disk, **SMALL)
        assert send(again, 11) == (11, 11)


def test_sequences_have_no_holes_and_wrap() -> None:
    _, broker = made()
    send(broker, 2**31 - 2, count=2)
    assert send(broker, 0) == (2, 2)
    for wrong in (0, 2, 5):
        if wrong == 0:
            assert send(broker, wrong) == (2, 2)
        else:
            with pytest.raises(errors.OutOfOrderSequence, match="expected 1"):
                send(broker, wrong)


def test_a_newer_epoch_takes_over_and_begins_at_zero() -> None:
    _, broker = made()
    send(broker, 0)
    with pytest.raises(errors.OutOfOrderSequence, match="expected 0"):
        send(broker, 1, epoch=1)
    send(broker, 0, epoch=1)
    with pytest.raises(errors.InvalidProducerEpoch, match="epoch 1 has taken over"):
        send(broker, 1, epoch=0)


def test_idle_producers_are_forgotten_unless_in_a_transaction() -> None:
    _, broker = made()
    send(broker, 0, number=1)
    send(broker, 0, number=2, transactional=True)
    log = broker.log("t", 0)
    log.forget_producers(T0 + 86_400_001, 86_400_000, lambda fence: True)
    assert list(log.producers.producers) == [2]


@pytest.mark.parametrize("clean", [True, False, None])
def test_readers_of_committed_records_wait_for_the_marker(clean: bool | None) -> None:
    disk, broker = made()
    send(broker, 0, transactional=True)
    send(broker, 0, number=8, transactional=True)
    send(broker, 0, number=7)
    mark(broker, commit=False, number=8)
    if clean is not None:
        broker = reopened(disk, broker, clean=clean)
    log = broker.log("t", 0)
    assert (log.last_stable_offset, log.high_watermark) == (0, 4)
    assert log.fetch(0, 10_000, committed=True).records == b""
    assert log.list_offset(-1, committed=True) == (0, -1)
    mark(broker, commit=True)
    assert log.last_stable_offset == 5
    assert log.fetch(0, 10_000, committed=True).aborted == (AbortedTransaction(8, 1),)
    if clean is not None:
        log = reopened(disk, broker, clean=clean).log("t", 0)
        assert log.fetch(0, 10_000, committed=True).aborted == (AbortedTransaction(8, 1),)


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_that_is_not_flushed_yet_ends_nothing_for_readers(commit: bool) -> None:
    """Its offset is the high watermark until then: what a crash may take away must not have been shown."""
    _, broker = made()
    send(broker, 0, count=2, transactional=True)
    log = broker.log("t", 0)
    marker = encode_marker(commit=commit, producer_id=9, producer_epoch=0, coordinator_epoch=0, timestamp_ms=T0)
    broker.append("t", 0, marker, T0, origin=AppendOrigin.COORDINATOR)
    assert (log.high_watermark, log.last_stable_offset) == (2, 0)
    assert log.fetch(0, 10_000, committed=True).records == b""
    broker.flush()
    assert (log.high_watermark, log.last_stable_offset) == (3, 3)
    assert log.fetch(0, 10_000, committed=True).aborted == (() if commit else (AbortedTransaction(9, 0),))


def test_a_replaced_transaction_coordinator_is_fenced() -> None:
    _, broker = made()
    send(broker, 0, transactional=True)
    mark(broker, commit=True, coordinator=4)
    with pytest.raises(errors.TransactionCoordinatorFenced, match="expected 4"):
        mark(broker, commit=True, coordinator=3)


def test_a_plain_batch_inside_a_transaction_is_refused() -> None:
    _, broker = made()
    send(broker, 0, transactional=True)
    with pytest.raises(errors.InvalidTxnState, match="open transaction"):
        send(broker, 1)


def test_producer_ids_are_never_given_twice() -> None:
    disk, broker = made()
    given = [broker.next_producer_id()[0] for _ in range(3)]
    again = reopened(disk, broker, clean=False)
    given += [again.next_producer_id()[0] for _ in range(3)]
    assert len(set(given)) == 6
    assert again.next_producer_id(given[0], 3) == (given[0], 4)
    assert again.next_producer_id(given[0], 32766)[1] == 0


def test_a_fence_is_told_from_a_producer_by_its_id() -> None:
    disk, broker = made()
    given = [broker.next_fence_id(), broker.next_fence_id()]
    given.append(reopened(disk, broker, clean=False).next_fence_id())
    assert len(set(given)) == 3
    assert all(map(is_fence, given))
    assert not is_fence(broker.next_producer_id()[0])
