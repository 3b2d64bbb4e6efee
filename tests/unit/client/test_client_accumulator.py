"""Batches: when they close, how room is bounded, and in which order they leave."""

import pytest

from muster.client.aio.producer import encode_bytes, measure_record
from muster.client.config import ProducerConfig, load
from muster.client.errors import BufferFull
from muster.client.records.accumulator import Accumulator
from muster.client.records.sender import split_into_requests
from muster.client.types import TopicPartition

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


def accumulator(**properties: object) -> tuple[Accumulator, list[None]]:
    wakes: list[None] = []
    config = load(ProducerConfig, None, {"linger_ms": 60_000, "batch_size": 100} | properties)
    return Accumulator(config, lambda: wakes.append(None)), wakes


def add(into: Accumulator, tp: TopicPartition, size: int, block_s: float = 0) -> None:
    into.add(tp, (0, None, b"x", ()), size, None, block_s)


def test_the_sender_is_woken_for_a_new_batch_not_for_each_record() -> None:
    records, wakes = accumulator()
    for _ in range(3):
        add(records, ZERO, 30)
    assert len(wakes) == 1


def test_a_batch_leaves_when_it_is_full_the_next_one_lingers() -> None:
    records, _ = accumulator()
    for _ in range(4):
        add(records, ZERO, 30)
    due, look_again = records.take_batches(set())
    assert [len(batch.records) for batch in due] == [3]
    assert look_again is None
    due, look_again = records.take_batches(set())
    assert due == []
    assert look_again is not None


def test_a_busy_partition_waits_and_the_others_do_not() -> None:
    records, _ = accumulator(linger_ms=0)
    add(records, ZERO, 10)
    add(records, ONE, 10)
    due, _ = records.take_batches({ZERO})
    assert [batch.tp for batch in due] == [ONE]


def test_flushing_lets_nothing_linger() -> None:
    records, _ = accumulator()
    add(records, ZERO, 10)
    assert records.take_batches(set())[0] == []
    records.begin_flush()
    assert len(records.take_batches(set())[0]) == 1


def test_room_is_bounded_and_comes_back() -> None:
    records, _ = accumulator(buffer_memory=1 << 16, batch_size=1 << 16)
    add(records, ZERO, 60_000)
    with pytest.raises(BufferFull, match="60000 of 65536 bytes"):
        add(records, ZERO, 10_000)
    records.begin_flush()
    (batch,), _ = records.take_batches(set())
    records.settled(batch)
    add(records, ZERO, 10_000)
    assert records.waiting == 1


def test_records_without_a_key_change_partition_from_batch_to_batch() -> None:
    records, _ = accumulator()
    chosen = []
    for _ in range(12):
        partition = records.sticky_partition("t", 3)
        add(records, TopicPartition("t", partition), 30)
        chosen.append(partition)
    assert set(chosen) == {0, 1, 2}
    assert chosen[0] == chosen[1]


def test_requests_are_cut_at_their_limit() -> None:
    records, _ = accumulator(linger_ms=0)
    for partition in range(5):
        add(records, TopicPartition("t", partition), 40)
    due, _ = records.take_batches(set())
    assert [len(group) for group in split_into_requests(due, 100)] == [2, 2, 1]


def test_sizes_count_everything_and_headers_are_bounded() -> None:
    assert measure_record(b"12345", b"123", (("h", b"12"),)) == 32 + 5 + 3 + 11
    with pytest.raises(RuntimeError, match="at most 1000"):
        measure_record(None, None, [("h", None)] * 1_001)


def test_only_bytes_and_text_are_taken() -> None:
    assert encode_bytes("key", bytearray(b"x")) == b"x"
    with pytest.raises(TypeError, match="the key is float"):
        encode_bytes("key", 1.5)  # type: ignore[arg-type]


def test_a_batch_that_is_too_large_becomes_two_that_know_who_waits_for_which_record() -> None:
    records, _ = accumulator(linger_ms=0)
    heard: list[str] = []
    for number, size in enumerate((10, 20, 31)):
        tell = (lambda n: lambda error, metadata: heard.append(f"{n}"))(number)
        records.add(ZERO, (number, None, b"x", ()), size, tell if number != 1 else None, 0)
    (batch,), _ = records.take_batches(set())
    first, second = records.split_batch(batch)
    assert [record[0] for record in first.records] == [0]
    assert [record[0] for record in second.records] == [1, 2]
    assert [place for place, _ in first.listeners] == [0]
    assert [place for place, _ in second.listeners] == [1]
    assert records.waiting == 2
    for half in (first, second):
        records.settled(half)
    assert (records.waiting, records.used) == (0, 0)
