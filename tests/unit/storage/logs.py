"""What the tests of the log share: a broker on a disk in memory, batches, and reading it all back."""

from collections.abc import Iterable
from typing import Any

from muster.storage.broker.broker import Broker
from muster.storage.config import LogSettings
from muster.storage.logs.log import Log
from muster.storage.logs.transactions import TransactionGuard
from muster.storage.records.batch import decode_records, encode_batch, read_batches
from muster.storage.types import Record
from tests.fakes.memory_files import MemoryFiles

T0 = 1_700_000_000_000


def open_broker(files: MemoryFiles, **settings: Any) -> Broker:
    return Broker(
        "/data",
        LogSettings.from_properties({name.replace("__", "."): str(value) for name, value in settings.items()}),
        files,
        clock_ms=lambda: T0,
        random_bytes=lambda count: bytes(range(count)),
    )


def batch(*values: bytes | None, key: bytes | None = None, at: int = T0, **how: Any) -> bytes:
    return encode_batch([(at, key, value, ()) for value in values], **how)


def guard_for(log: Log, data: bytes, level: int = 0) -> TransactionGuard | None:
    """The guard with which a batch may begin its transaction: as though the coordinator had agreed at once."""
    first = next(read_batches(data))
    return log.make_guard(first.producer_id, first.producer_epoch, sequence=first.base_sequence, level=level)


def read_all(log: Log, start: int | None = None, most: int = 300) -> list[Record]:
    """Every record from `start` on, in small fetches, as a consumer would."""
    offset = log.start_offset if start is None else start
    found: list[Record] = []
    while offset < log.high_watermark:
        data = log.fetch(offset, most).records
        batches = list(read_batches(data))
        if not batches:
            break
        found += decode_records(data, offset)
        offset = batches[-1].next_offset
    return found


def values(records: Iterable[Record]) -> list[bytes | None]:
    return [record.value for record in records]
