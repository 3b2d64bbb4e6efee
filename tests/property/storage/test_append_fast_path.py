"""An append that the fast path takes leaves the same answer and the same bytes as `Log.append`'s long way."""

from typing import Any, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.storage.broker.broker import Broker
from muster.storage.errors import StorageError
from tests.fakes.memory_files import MemoryFiles
from tests.unit.storage.logs import T0, batch, open_broker

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
    now_ms = T0
    for kind, count, age_ms, later_ms in arrivals:
        now_ms += later_ms
        data = made(kind, count, now_ms + age_ms)
        assert answer_of(fast, data, now_ms, looked) == answer_of(slow, data, now_ms, looked)
    contents = []
    for broker, disk in zip((fast, slow), disks, strict=True):
        broker.close()
        contents.append({name: disk.content(f"/data/t-0/{name}") for name in disk.names("/data/t-0")})
    assert contents[0] == contents[1]
