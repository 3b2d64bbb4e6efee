"""Between records of the state topic and what the core is told of clients' transactions. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from muster.coordinator.core.records import OffsetsStored, OffsetStored
from muster.coordinator.core.txn.events import Key, Place, TxnEnded, TxnOffsetsWritten
from muster.coordinator.core.types import StoredOffset
from muster.coordinator.ownership.effects import Ended, Waits
from muster.coordinator.ownership.facts import Record
from muster.coordinator.runtime.codec import decode_group, encode
from muster.coordinator.runtime.codec.fields import MalformedRecord
from muster.coordinator.runtime.ports import Entry, KeyValue

UNKNOWN_EPOCH = -1
"""A replay keeps what waits by producer ids; nobody needs more."""


def entries(group_id: str, offsets: Mapping[Place, StoredOffset]) -> list[Entry]:
    """One record for each, in their order. Raises ValueError for a string that Kafka's format cannot hold."""
    return encode([OffsetsStored(group_id, offsets)]).groups


def position(record: Record) -> OffsetStored | None:
    """None for what is no position: whoever may write to the topic may have put it there."""
    if record.key is None:
        return None
    try:
        found = decode_group(KeyValue(record.key, record.value, record.offset))
    except MalformedRecord:
        return None
    return found if isinstance(found, OffsetStored) else None


def waiting(effect: Waits) -> Iterator[TxnOffsetsWritten]:
    """What a replay met, and found no marker of: neighbours of one group together."""
    group_id, at = "", -1
    offsets: dict[Place, StoredOffset] = {}
    for record in effect.records:
        found = position(record)
        if found is None:
            continue
        if found.group_id != group_id or record.offset != at + len(offsets):
            if offsets:
                yield TxnOffsetsWritten(effect.producer_id, UNKNOWN_EPOCH, group_id, offsets, at)
            group_id, at, offsets = found.group_id, record.offset, {}
        offsets[found.topic, found.partition] = found.value
    if offsets:
        yield TxnOffsetsWritten(effect.producer_id, UNKNOWN_EPOCH, group_id, offsets, at)


def ended(effect: Ended) -> TxnEnded:
    return TxnEnded(*effect.producer, effect.committed, keys(effect.records), effect.offset)


def keys(records: Iterable[Record]) -> frozenset[Key]:
    found = (position(record) for record in records)
    return frozenset((each.group_id, each.topic, each.partition) for each in found if each is not None)
