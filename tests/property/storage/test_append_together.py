"""What several callers bring in one turn ends up as if each had appended alone: same answers, bytes and look-ups."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from muster.storage.broker.broker import Broker
from muster.storage.broker.group_commit import append_each
from muster.storage.errors import StorageError
from muster.storage.logs.log import Log
from muster.storage.records.batch import encode_turn, read_batches
from muster.storage.types import Appended, AppendOrigin
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, open_broker, read_all

GOOD, SPOILED, PRODUCER, TWO, EMPTY = range(5)
arrivals = st.lists(
    st.tuples(
        st.sampled_from([GOOD, GOOD, GOOD, SPOILED, PRODUCER, TWO, EMPTY]), st.integers(0, 40), st.integers(1, 3)
    ),
    min_size=1,
    max_size=25,
)


def made(kind: int, age: int, count: int) -> bytes:
    values = [b"%d" % age] * count
    match kind:
        case 1:
            good = batch(*values, at=T0 - age)
            return good[:-1] + bytes([good[-1] ^ 1])
        case 2:
            return batch(*values, at=T0 - age, producer_id=7, producer_epoch=0, base_sequence=0)
        case 3:
            return batch(*values, at=T0 - age) + batch(b"second", at=T0)
        case 4:
            return b""
        case _:
            return batch(*values, at=T0 - age)


def opened(disk: MemoryFiles) -> Broker:
    # Small segments and dense indexes, so that rolls and entries fall between the arrivals.
    broker = open_broker(disk, log__segment__bytes=900, log__index__interval__bytes=150)
    if "t" not in broker.topics():
        broker.create_topic("t", 1)
    return broker


def told(results: list[Appended | StorageError]) -> list[Any]:
    return [result if isinstance(result, Appended) else (type(result), str(result)) for result in results]


def one_by_one(broker: Broker, lot: list[bytes]) -> list[Appended | StorageError]:
    results: list[Appended | StorageError] = []
    for data in lot:
        try:
            results.append(broker.append("t", 0, data, T0))
        except StorageError as error:
            results.append(error)
    return results


@given(st.lists(arrivals, min_size=1, max_size=4))
def test_together_is_as_one_by_one(turns: list[list[tuple[int, int, int]]]) -> None:
    disks = MemoryFiles(), MemoryFiles()
    together, alone = (opened(disk) for disk in disks)
    for turn in turns:
        lot = [made(*arrival) for arrival in turn]
        assert told(append_each(together, "t", 0, lot, T0)) == told(one_by_one(alone, lot))
    for broker in (together, alone):
        broker.flush()
    must_be_alike(together, alone)
    for broker in (together, alone):
        broker.close()
    must_be_alike(*(opened(disk) for disk in disks))


@given(st.lists(st.lists(st.integers(1, 400), min_size=1, max_size=12), min_size=1, max_size=4))
def test_so_are_records_of_the_nodes_own(turns: list[list[int]]) -> None:
    """Of a compacted topic, as those of transactional ids are; some fill a segment."""
    disks = MemoryFiles(), MemoryFiles()
    brokers = [open_broker(disk, log__segment__bytes=900, log__index__interval__bytes=150) for disk in disks]
    for each in brokers:
        each.create_topic("t", 1, {"cleanup.policy": "compact"}, internal=True)
    together, alone = brokers
    for turn, sizes in enumerate(turns):
        lot = [encode_turn([(b"k", bytes(size), None)], T0 + turn) for size in sizes]
        together.append_own("t", 0, lot, T0 + turn)
        for data in lot:
            alone.append("t", 0, data, T0 + turn, origin=AppendOrigin.COORDINATOR)
    for each in brokers:
        each.flush()
    must_be_alike(together, alone)
    heads = read_batches(together.fetch("t", 0, 0, 1 << 20).records)
    assert all(each.count == 1 for each in heads)


def indexed(log: Log) -> list[list[tuple[int, int]]]:
    """Of each segment: (relative last offset, position) of the batches that its index names."""
    indexes = [segment.index() for segment in log.segment_list.all]
    return [list(zip(index.offsets, index.positions, strict=True)) for index in indexes]


def must_be_alike(together: Broker, alone: Broker) -> None:
    logs = [broker.log("t", 0) for broker in (together, alone)]
    assert not together.recovered()
    assert logs[0].end_offset == logs[1].end_offset
    assert read_all(logs[0]) == read_all(logs[1])
    assert indexed(logs[0]) == indexed(logs[1]), "whoever reads from anywhere looks at few headers"
    # A turn may share an entry of the time index; look-ups must not tell.
    for time in [-3, *range(T0 - 42, T0 + 2)]:
        assert logs[0].list_offset(time) == logs[1].list_offset(time)


def test_a_full_disk_refuses_what_does_not_fit_and_nothing_else_is_lost() -> None:
    disk = MemoryFiles()
    broker = open_broker(disk)
    broker.create_topic("t", 1)
    broker.append("t", 0, batch(b"first"), T0)
    writes = []

    def fault(operation: str, path: str) -> None:
        if operation == "write" and path.endswith(".log"):
            writes.append(path)
            if len(writes) <= 2:
                raise OSError(28, "No space left on device")

    disk.fault = fault
    results = append_each(broker, "t", 0, [batch(b"%d" % number) for number in range(4)], T0)
    disk.fault = None
    assert [isinstance(result, StorageError) for result in results] == [True, True, False, False]
    broker.flush()
    assert [record.value for record in read_all(broker.log("t", 0))] == [b"first", b"2", b"3"]
