"""What may wait for the disk is read in a thread, what was written lately at once, and nothing unchecked is served."""

import threading
from itertools import product

import pytest

from muster.storage.broker.broker import Broker
from muster.storage.errors import LogDamaged
from muster.storage.logs.nearness import NEAR_BYTES
from muster.storage.records.batch import read_batches
from muster.storage.rpc.v1 import broker_service_pb2 as pb
from muster.storage.service.broker import BrokerService
from tests.fakes.memory_files import MemoryFiles
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


def filled(broker: Broker, count: int = 12) -> None:
    for number in range(count):
        broker.append("t", 0, batch(LONG, at=T0 + number), T0 + number)
    broker.flush()


def test_a_fetch_from_an_old_segment_is_read_in_a_thread_and_one_from_the_end_is_not() -> None:
    disk = MemoryFiles()

    async def story(service: BrokerService, broker: Broker) -> None:
        filled(broker)
        own = reading_threads(disk)
        (tail,) = results(await service.fetch(fetch(("t", 0, 11)), None))
        assert own == [True] * len(own) != []
        own.clear()
        (old,) = results(await service.fetch(fetch(("t", 0, 2)), None))
        assert own == [False] * len(own) != []
        assert next(read_batches(tail.records)).base_offset == 11
        assert next(read_batches(old.records)).base_offset == 2

    play(story, disk, **SMALL_SEGMENTS)


def test_what_a_former_process_wrote_is_checked_in_a_thread() -> None:
    disk = MemoryFiles()
    before = open_broker(disk)
    before.create_topic("t", 1)
    filled(before, 3)
    before.close()
    broker = open_broker(disk)
    log = broker.log("t", 0)
    assert not log.near.holds(0)
    assert not log.near.holds(2)
    assert log.near.holds(3), "there is nothing to be read"
    broker.append("t", 0, batch(LONG), T0)
    broker.flush()
    assert not log.near.holds(2)
    assert log.near.holds(3)


def test_a_log_is_near_as_far_back_as_the_bound_and_no_further() -> None:
    broker = open_broker(MemoryFiles())
    broker.create_topic("t", 1)
    log = broker.log("t", 0)
    data = batch(b"x" * (64 << 10))
    for number in range(3 * NEAR_BYTES // len(data)):
        log.append(data, T0)
        log.flush()
        bound = next(offset for offset in range(log.end_offset + 1) if log.near.holds(offset))
        behind = (log.end_offset - bound) * len(data)
        assert behind <= 1.3 * NEAR_BYTES
        assert behind >= min(number * len(data), NEAR_BYTES) - 2 * len(data)


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
