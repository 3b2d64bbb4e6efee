"""What may wait for the disk is read in a thread, what lies in memory at once, and nothing unchecked is served."""

import asyncio
import threading
from itertools import product
from typing import Any

import pytest

from muster.storage.broker import fetches, requests
from muster.storage.broker.broker import Broker
from muster.storage.errors import LogDamaged
from muster.storage.files import NotAtHand
from muster.storage.logs.log_reads import MEMORY_TAIL_BYTES
from muster.storage.logs.segment import WALK_BYTES
from muster.storage.records.batch import read_batches
from muster.storage.rpc.v1 import broker_service_pb2 as pb
from muster.storage.service.broker_service import BrokerService
from tests.fakes.memory_files import MemoryFiles
from tests.support.turns import turns_of_others
from tests.unit.storage.logs import T0, batch, open_broker
from tests.unit.storage.test_broker_service import fetch, play, results
from tests.unit.storage.test_log_tools import flip

SMALL_SEGMENTS = {"log__segment__bytes": 1024}
LONG = b"x" * 300


def reading_threads(disk: MemoryFiles) -> list[bool]:
    """Of each read of a log from now on, whether the loop did it itself."""
    own: list[bool] = []
    loop = threading.get_ident()

    def note(operation: str, path: str) -> None:
        if operation == "read" and path.endswith((".log", "index")):
            own.append(threading.get_ident() == loop)

    disk.fault = note
    return own


def filled(broker: Broker, count: int = 12, partition: int = 0) -> None:
    for number in range(count):
        broker.append("t", partition, batch(LONG, at=T0 + number), T0 + number)
    broker.flush()


def base_offsets(found: list[Any]) -> list[int]:
    return [next(read_batches(part.records)).base_offset for part in found]


@pytest.mark.parametrize("cold", [False, True])
def test_an_old_segment_is_read_in_a_thread_where_the_disk_is_waited_for(cold: bool) -> None:
    disk = MemoryFiles()
    disk.cold = lambda path: cold

    async def story(service: BrokerService, broker: Broker) -> None:
        filled(broker)
        own = reading_threads(disk)
        tail = results(await service.fetch(fetch(("t", 0, 11)), None))
        assert own == [True] * len(own) != []
        own.clear()
        old = results(await service.fetch(fetch(("t", 0, 2)), None))
        assert own == [not cold] * len(own) != []
        assert base_offsets(tail + old) == [11, 2]

    play(story, disk, **SMALL_SEGMENTS)


def test_only_what_comes_from_the_slow_disk_on_is_read_in_a_thread_and_nothing_twice() -> None:
    disk = MemoryFiles()
    disk.cold = lambda path: "t-1/" in path

    async def story(service: BrokerService, broker: Broker) -> None:
        for partition in range(3):
            filled(broker, partition=partition)
        own = reading_threads(disk)
        found: set[tuple[bool, ...]] = set()
        for _ in range(3):  # each begins with the next partition
            old = results(await service.fetch(fetch(("t", 0, 2), ("t", 1, 2), ("t", 2, 2)), None))
            assert base_offsets(old) == [2, 2, 2]
            found.add(tuple(own))
            own.clear()
        loop, thread = (True, True), (False, False)  # where it is, and the records
        assert found == {loop + thread + thread, thread * 3, loop * 2 + thread}

    play(story, disk, **SMALL_SEGMENTS)


def test_what_has_to_be_opened_is_opened_in_a_thread() -> None:
    disk = MemoryFiles()

    async def story(service: BrokerService, broker: Broker) -> None:
        filled(broker)
        assert broker.log("t", 0).segments[0].let_go()
        own = reading_threads(disk)
        for expected in (False, True):
            (old,) = results(await service.fetch(fetch(("t", 0, 1)), None))
            assert own == [expected] * len(own) != []
            assert len(old.records) > 300
            own.clear()

    play(story, disk, **SMALL_SEGMENTS)


def test_what_a_former_process_wrote_is_looked_at_in_a_thread_and_at_hand_afterwards() -> None:
    disk = MemoryFiles()
    before = open_broker(disk)
    before.create_topic("t", 1)
    filled(before, 3)
    before.close()
    log = open_broker(disk).log("t", 0)
    segment = log.segments[0]
    for opened in (segment.file, segment.index, segment.index):
        opened()
        with pytest.raises(NotAtHand):
            log.fetch(0, 1000, at_hand=1 << 20)
    found = log.fetch(0, 1 << 20)
    assert log.fetch(0, 1 << 20, at_hand=1 << 20) == found
    segment._index = None  # as when it has let go of both, and a reader has opened the file alone
    with pytest.raises(NotAtHand):
        log.fetch(0, 1 << 20, at_hand=1 << 20)


def test_a_great_deal_is_read_in_a_thread_though_it_lies_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryFiles()
    monkeypatch.setattr(fetches, "AT_ONCE_BYTES", 2 * WALK_BYTES)

    async def story(service: BrokerService, broker: Broker) -> None:
        for number in range(20):
            broker.append("t", 0, batch(b"x" * 20_000, at=T0 + number), T0)
        broker.append("t", 0, batch(b"x", at=T0), T0)
        broker.flush()
        own = reading_threads(disk)
        for most, at_once in ((2 * WALK_BYTES, True), (4 * WALK_BYTES, False)):
            (old,) = results(await service.fetch(fetch(("t", 0, 1), most=most), None))
            assert own[-1] == at_once
            assert len(old.records) == most

    play(story, disk, log__segment__bytes=400_000)


@pytest.mark.parametrize(("turn", "pauses", "pauses_of_ten"), [(1, 2, 9), (1 << 20, 0, 0)])
def test_others_have_their_turn_when_much_has_been_read(
    turn: int, pauses: int, pauses_of_ten: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "TURN_BYTES", turn)
    monkeypatch.setattr(fetches, "_SMALL_BYTES", 1)

    async def story(service: BrokerService, broker: Broker) -> None:
        for partition in range(3):
            filled(broker, partition=partition)
        several = asyncio.ensure_future(service.fetch(fetch(("t", 0, 2), ("t", 1, 2), ("t", 2, 2)), None))
        assert 0 <= await turns_of_others(several) - pauses <= 2
        assert base_offsets(results(several.result())) == [2, 2, 2]
        # Nor do many requests together make one long turn.
        ten = [asyncio.ensure_future(service.fetch(fetch(("t", 0, 2)), None)) for _ in range(10)]
        assert 0 <= await turns_of_others(asyncio.gather(*ten)) - pauses_of_ten <= 3
        assert [base_offsets(results(one.result())) for one in ten] == [[2]] * 10

    play(story, **SMALL_SEGMENTS)


@pytest.mark.parametrize("cold", [False, True])
def test_damage_is_told_alike_wherever_it_is_found(cold: bool) -> None:
    disk = MemoryFiles()
    disk.cold = lambda path: cold

    async def story(service: BrokerService, broker: Broker) -> None:
        filled(broker)
        log = broker.log("t", 0)
        flip(disk, log.segments[0].path(), 16)  # the magic of the first batch
        own = reading_threads(disk)
        (refused,) = results(await service.fetch(fetch(("t", 0, 0)), None))
        assert own == [not cold] * len(own) != []
        assert refused.error_code == LogDamaged.code
        assert "magic" in refused.error_message
        assert not refused.records

    play(story, disk, **SMALL_SEGMENTS)


def test_what_a_former_process_wrote_is_checked_in_a_thread() -> None:
    disk = MemoryFiles()
    before = open_broker(disk)
    before.create_topic("t", 1)
    filled(before, 3)
    before.close()
    broker = open_broker(disk)
    log = broker.log("t", 0)
    assert not log.near.has_offset(0)
    assert not log.near.has_offset(2)
    assert log.near.has_offset(3), "there is nothing to be read"
    broker.append("t", 0, batch(LONG), T0)
    broker.flush()
    assert not log.near.has_offset(2)
    assert log.near.has_offset(3)


def test_a_log_is_near_as_far_back_as_the_bound_and_no_further() -> None:
    broker = open_broker(MemoryFiles())
    broker.create_topic("t", 1)
    log = broker.log("t", 0)
    data = batch(b"x" * (64 << 10))
    for number in range(3 * MEMORY_TAIL_BYTES // len(data)):
        log.append(data, T0)
        log.flush()
        bound = next(offset for offset in range(log.end_offset + 1) if log.near.has_offset(offset))
        behind = (log.end_offset - bound) * len(data)
        assert behind <= 1.3 * MEMORY_TAIL_BYTES
        assert behind >= min(number * len(data), MEMORY_TAIL_BYTES) - 2 * len(data)


def test_a_search_by_time_is_done_in_a_thread_and_ends_are_known() -> None:
    disk = MemoryFiles()

    async def story(service: BrokerService, broker: Broker) -> None:
        filled(broker)
        own = reading_threads(disk)
        request = pb.ListOffsetsRequest()
        for timestamp in (-1, T0 + 3, -2, -3):
            request.topics.add(name="t").partitions.add(partition_index=0, timestamp=timestamp)
        answer = await service.list_offsets(request, None)
        found = [part.offset for topic in answer.topics for part in topic.partitions]
        assert found == [12, 3, 0, 11]
        assert own == [False] * len(own) != []

    play(story, disk, **SMALL_SEGMENTS)


@pytest.mark.parametrize(("first", "second"), list(product(range(4), repeat=2)))
def test_what_lies_between_two_checked_reads_counts_as_unchecked(first: int, second: int) -> None:
    """Wherever two readers have read: a batch that neither has seen is not served damaged."""
    for damaged in {0, 1, 2, 3} - {first, second}:
        disk = MemoryFiles()
        before = open_broker(disk)
        before.create_topic("t", 1)
        filled(before, 4)
        before.close()
        log = open_broker(disk).log("t", 0)
        size = log.size // 4
        assert {len(log.fetch(each, 1).records) for each in (first, second)} == {size}
        flip(disk, log.segments[0].path(), damaged * size + 100)
        with pytest.raises(LogDamaged):
            log.fetch(damaged, 1)
