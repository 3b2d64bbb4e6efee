"""Who may write on behalf of a partition, in `__consumer_offsets`.

Key: int16 32008, group id, topic, int32 partition. Value: JSON, {"version": 1, "id": the producer id, "epoch": ...,
"former": [producer ids that were used up], "member": who claimed it last, "generation": ..., "claimed_at_ms": ...}.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from muster.coordinator.core.model.fences_records import FenceForgotten, FenceRecord, FenceStored
from muster.coordinator.runtime.ledger import VERSION, compact_json, first_validation_error
from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.runtime.record_fields import INT16, INT32, FieldReader, MalformedRecord, plain_string

FENCE_KEY = 32_008


class FenceValue(BaseModel):
    model_config = ConfigDict(strict=True)

    version: Literal[1]
    id: int
    epoch: int
    former: list[int]
    member: str
    generation: int
    claimed_at_ms: int


def encode_fence(record: FenceRecord) -> KeyValue:
    key = INT16.pack(FENCE_KEY) + plain_string(record.group_id) + plain_string(record.topic)
    key += INT32.pack(record.partition)
    if isinstance(record, FenceForgotten):
        return KeyValue(key, None)
    value = {
        "version": VERSION,
        "id": record.producer_id,
        "epoch": record.epoch,
        "former": list(record.former),
        "member": record.member_id,
        "generation": record.generation,
        "claimed_at_ms": record.claimed_at_ms,
    }
    return KeyValue(key, compact_json(value))


def decode_fence(key: FieldReader, value: bytes | None) -> FenceRecord:
    """The fact behind one record; `key` is read up to the kind. Raises MalformedRecord."""
    place = key.string(), key.string(), key.int32()
    key.end()
    if value is None:
        return FenceForgotten(*place)
    try:
        read = FenceValue.model_validate_json(value)
    except ValidationError as error:
        raise MalformedRecord(first_validation_error(error)) from error
    return FenceStored(
        *place, read.id, read.epoch, tuple(read.former), read.member, read.generation, read.claimed_at_ms
    )
