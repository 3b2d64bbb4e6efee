"""A group's committed positions over time, without Spark: one partition of `__consumer_offsets` holds a group."""

from collections.abc import Mapping
from typing import Any

from muster.client import Admin, Consumer
from muster.client.types import TopicPartition
from muster.coordinator.core.model.core_records import OffsetDeleted, OffsetStored
from muster.coordinator.runtime.codec_init import decode_group
from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.runtime.record_fields import MalformedRecord
from muster.coordinator.runtime.router import partition_for
from muster.spark.pipelines.recorded import RecordedPosition

OFFSETS_TOPIC = "__consumer_offsets"
POLL_S = 1.0
MAX_IDLE_POLLS = 30
MAX_RECORDS = 50_000_000
"""Of one partition; a log with more is better read by Spark."""


def read_positions(
    admin: Admin, properties: Mapping[str, Any], group: str
) -> tuple[dict[tuple[str, int], list[RecordedPosition]], int]:
    """What the group committed, partition by partition, oldest first, and how many records could not be read.

    As far back as compaction has left it. ValueError when the log is too long for one reader, TimeoutError when the
    node stops answering.
    """
    count = admin.list_topics(include_internal=True).get(OFFSETS_TOPIC, 0)
    if not count:
        return {}, 0
    place = TopicPartition(OFFSETS_TOPIC, partition_for(group, count))
    end = admin.list_offsets({place: -1})[place].offset
    start = admin.list_offsets({place: -2})[place].offset
    if end - start > MAX_RECORDS:
        raise ValueError(
            f"{place[0]}-{place[1]} has {end - start} records; at most {MAX_RECORDS} are read without Spark"
        )
    found: dict[tuple[str, int], list[RecordedPosition]] = {}
    malformed = 0
    with Consumer({**properties, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([place])
        consumer.seek(place, start)
        idle = 0
        while consumer.position(place) < end:
            messages = consumer.consume(1_000, POLL_S)
            malformed += sum(not note_position(found, group, KeyValue(m.key or b"", m.value)) for m in messages)
            idle = 0 if messages else idle + 1
            if idle == MAX_IDLE_POLLS:
                at = consumer.position(place)
                raise TimeoutError(
                    f"{place[0]}-{place[1]}: nothing came after offset {at} for {idle} s; expected {end}"
                )
    return found, malformed


def note_position(found: dict[tuple[str, int], list[RecordedPosition]], group: str, stored: KeyValue) -> bool:
    """Whether the record could be read; a tombstone has the time of the commit before it."""
    try:
        record = decode_group(stored)
    except MalformedRecord:
        return False
    match record:
        case OffsetStored(of, topic, partition, value) if of == group:
            mine = found.setdefault((topic, partition), [])
            mine.append(RecordedPosition(max(value.commit_timestamp_ms, mine[-1].at_ms if mine else 0), value.offset))
        case OffsetDeleted(of, topic, partition) if of == group and (topic, partition) in found:
            mine = found[topic, partition]
            mine.append(RecordedPosition(mine[-1].at_ms, None))
    return True
