"""Batches of `__consumer_offsets` as brokers write them, of any version."""

from collections.abc import Sequence

from muster.coordinator.core.model.records import Record
from muster.coordinator.core.model.types import RebalanceEntry, StoredOffset
from muster.coordinator.runtime.kafka_records import OFFSET_KEY_WRITTEN, TAGS_OF_TOPIC, encode
from muster.coordinator.runtime.record_fields import INT16, INT32, INT64, compact_string, plain_string
from muster.storage.records.batch import NewRecord, encode_batch

NOW_MS = 1_790_000_000_000


def position_key(group: str, topic: str = "t", partition: int = 0, version: int = OFFSET_KEY_WRITTEN) -> bytes:
    return INT16.pack(version) + plain_string(group) + plain_string(topic) + INT32.pack(partition)


def position_value(stored: StoredOffset, version: int = 3) -> bytes:
    """As versions 0 to 4 hold it; each has its own fields."""
    offset, epoch, metadata, committed_ms, expires_ms, topic_id = stored
    head = INT16.pack(version) + INT64.pack(offset) + (INT32.pack(epoch) if version >= 3 else b"")
    if version == 4:
        tags = TAGS_OF_TOPIC + topic_id if topic_id else b"\x00"
        return head + compact_string(metadata) + INT64.pack(committed_ms) + tags
    expiry = INT64.pack(-1 if expires_ms is None else expires_ms) if version == 1 else b""
    return head + plain_string(metadata) + INT64.pack(committed_ms) + expiry


def committed(
    group: str, partition: int = 0, offset: int = 1, at_ms: int = NOW_MS, *, topic: str = "t", version: int = 3
) -> NewRecord:
    """One position, committed when it is written."""
    value = position_value(StoredOffset(offset, 0, "", at_ms), version)
    return at_ms, position_key(group, topic, partition), value, ()


def facts(*records: Record, at_ms: int = NOW_MS) -> list[NewRecord]:
    """Records as Muster's own coordinator writes them, which are those of Kafka."""
    return [(at_ms, key, value, ()) for key, value, _ in encode(records).groups]


def batch(records: Sequence[NewRecord], base_offset: int = 0, **how: object) -> bytes:
    return encode_batch(records, base_offset=base_offset, **how)  # type: ignore[arg-type]


def end_marker(producer_id: int, base_offset: int, *, commits: bool) -> bytes:
    """Of a transaction."""
    key = INT16.pack(0) + INT16.pack(1 if commits else 0)
    record: NewRecord = (NOW_MS, key, bytes(6), ())
    return batch([record], base_offset, producer_id=producer_id, producer_epoch=0, transactional=True, control=True)


class Heard:
    """A sink that keeps what it is told."""

    def __init__(self) -> None:
        self.facts: list[Record] = []
        self.entries: list[tuple[str, RebalanceEntry]] = []

    def take_fact(self, fact: Record) -> None:
        self.facts.append(fact)

    def take_entry(self, group_id: str, entry: RebalanceEntry) -> None:
        self.entries.append((group_id, entry))
