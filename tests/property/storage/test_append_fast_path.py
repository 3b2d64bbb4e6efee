"""An append that the fast path takes leaves the same answer and the same bytes as `Log.append`'s long way."""

from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.storage.broker.broker import Broker
from muster.storage.errors import InvalidTxnState, StorageError
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, guard_for, open_broker

Arrival: TypeAlias = tuple[str, int, int, int]
"""What kind of batch, its number of records, how far its timestamps are from now, and by how much the clock goes on."""

DAY_MS = 86_400_000
KINDS = (
    "good",
    "good",
    "good",
    "spoiled",
    "magic",
    "length",
    "delta",
    "producer",
    "two",
    "empty",
    "deltas",
    "gzip",
    "control",
    "large",
    "transactional",
    "numbered",
    "numbered",
    "numbered",
    "numbered: repeat",
    "numbered: gap",
    "numbered: transactional",
    "later epoch",
    "other",
)
SPOILED_AT = {"spoiled": -2, "magic": 16, "length": 11, "delta": 26}
ARRIVALS = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.integers(1, 4),
        st.sampled_from([0, 0, 0, -1, -40, 1, 3_599_999, 3_600_001, -2 * DAY_MS]),
        st.sampled_from([0, 1, 50]),
    ),
    min_size=1,
    max_size=30,
)


PRODUCERS = {"numbered": (9, 0), "later epoch": (9, 1), "other": (10, 0)}


class NextSequences:
    """Numbered batches of a few producers: mostly the next one, now and then a repeat, a gap or another epoch."""

    def __init__(self) -> None:
        self._next: dict[tuple[int, int], int] = {}

    def made(self, kind: str, count: int, at_ms: int) -> bytes | None:
        values = [b"%d" % number for number in range(count)]
        name, _, how = kind.partition(": ")
        if name not in PRODUCERS:
            return None
        producer_id, epoch = PRODUCERS[name]
        sequence = self._next.get((producer_id, epoch), 0)
        if how == "repeat":
            sequence = max(0, sequence - count)
        elif how == "gap":
            sequence += 1
        elif how != "transactional":
            self._next[producer_id, epoch] = sequence + count
        return batch(
            *values,
            at=at_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=how == "transactional",
        )


def made(kind: str, count: int, at_ms: int) -> bytes:
    values = [b"%d" % number for number in range(count)]
    match kind:
        case "spoiled" | "magic" | "length" | "delta":
            data = bytearray(batch(*values, at=at_ms))
            data[SPOILED_AT[kind]] ^= 1
            return bytes(data)
        case "producer":
            return batch(*values, at=at_ms, producer_id=7, producer_epoch=0, base_sequence=0)
        case "two":
            return batch(*values, at=at_ms) * 2
        case "empty":
            return b""
        case "deltas":
            return batch(*values, at=at_ms, last_offset_delta=count + 1)
        case "gzip":
            return batch(*values, at=at_ms, codec="gzip")
        case "control":
            return batch(*values, at=at_ms, control=True, producer_id=1, producer_epoch=0)
        case "transactional":
            return batch(*values, at=at_ms, transactional=True)
        case "large":
            return batch(b"x" * 300 * count, at=at_ms)
        case _:
            return batch(*values, at=at_ms)


def opened(disk: MemoryFiles, fast: bool) -> Broker:
    """Small segments, dense indexes and narrow limits, so that every condition of the fast path is met and missed."""
    broker = open_broker(
        disk,
        log__segment__bytes=900,
        log__index__interval__bytes=150,
        log__message__timestamp__before__max__ms=DAY_MS,
        message__max__bytes=400,
    )
    broker.create_topic("t", 1)
    log = broker.log("t", 0)
    assert log._short_way is not None
    if not fast:
        log._short_way = None
    return broker


def answer_of(broker: Broker, data: bytes, now_ms: int, looked: bool) -> Any:
    try:
        return broker.log("t", 0).append(data, now_ms, looked=looked)
    except StorageError as error:
        return type(error), str(error)


@settings(max_examples=100)
@given(ARRIVALS, st.booleans())
def test_the_fast_path_writes_what_the_long_way_writes(arrivals: list[Arrival], looked: bool) -> None:
    """`looked`: the records of a batch were checked before, so the header alone decides."""
    disks = MemoryFiles(), MemoryFiles()
    fast, slow = opened(disks[0], fast=True), opened(disks[1], fast=False)
    now_ms, numbered = T0, NextSequences()
    for kind, count, age_ms, later_ms in arrivals:
        now_ms += later_ms
        data = numbered.made(kind, count, now_ms + age_ms) or made(kind, count, now_ms + age_ms)
        assert answer_of(fast, data, now_ms, looked) == answer_of(slow, data, now_ms, looked)
    known = [broker.log("t", 0).producers.describe([7, 9, 10]) for broker in (fast, slow)]
    assert known[0] == known[1]
    contents = []
    for broker, disk in zip((fast, slow), disks, strict=True):
        broker.close()
        contents.append({name: disk.content(f"/data/t-0/{name}") for name in disk.names("/data/t-0")})
    assert contents[0] == contents[1]


@pytest.mark.parametrize("fast", [True, False])
def test_a_batch_outside_its_producers_open_transaction_is_refused_either_way(fast: bool) -> None:
    log = opened(MemoryFiles(), fast).log("t", 0)
    log.append(batch(b"before", producer_id=7, producer_epoch=0, base_sequence=0), T0)
    begun = batch(b"in", producer_id=7, producer_epoch=0, base_sequence=1, transactional=True)
    log.append(begun, T0, guard=guard_for(log, begun))
    with pytest.raises(InvalidTxnState):
        log.append(batch(b"outside", producer_id=7, producer_epoch=0, base_sequence=2), T0)
