"""A shard of the state topic for people: each batch, who wrote it, and whether it counts (KB-S6)."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from muster.coordinator.kafka_backend.reading import log_batches_of
from muster.coordinator.kafka_backend.shard_ownership.facts import ShardRecord, decode_owner_record
from muster.coordinator.kafka_backend.shard_ownership.voids import LogBatch, ShardReplay
from muster.coordinator.kafka_backend.starting import UNKNOWN_TOPIC
from muster.coordinator.kafka_backend.upstream.errors import UpstreamError, UpstreamRefused
from muster.coordinator.kafka_backend.upstream.reach import UpstreamAddress
from muster.coordinator.kafka_backend.upstream.records import log_span, read_log
from muster.coordinator.kafka_backend.upstream.upstream import Upstream
from muster.coordinator.kafka_backend.upstream.view import UpstreamMetadata
from muster.storage.records.batch import BatchView

PATIENCE_S = 30.0
SHOWN_BYTES = 200
"""Of a key, and of a value."""


async def dump_shard_log(
    reach: UpstreamAddress, topic: str, shard: int, tell: Callable[[dict[str, Any]], None], *, records: bool = False
) -> None:
    """Tell each batch of the shard as a row, oldest first. Raises UpstreamError."""
    upstream = Upstream(reach)
    try:
        check_shard(await upstream.refresh([topic]), topic, shard)
        start, upto = await log_span(upstream, topic, shard)
        replay = ShardReplay()
        async for batches in read_log(upstream, topic, shard, start, upto, deadline_s=PATIENCE_S):
            for row in await asyncio.to_thread(rows_of, replay, batches, records):
                tell(row)
    finally:
        upstream.close()


def check_shard(view: UpstreamMetadata, topic: str, shard: int) -> None:
    """Raises UpstreamError for a shard that is not there."""
    known = view.topics.get(topic)
    if known is None or known.code:
        raise UpstreamRefused(f"asking for the topic {topic}", UNKNOWN_TOPIC if known is None else known.code)
    if shard not in known.parts:
        raise UpstreamError(f"{topic} has no shard {shard}; expected 0 to {len(known.parts) - 1}")


def rows_of(replay: ShardReplay, batches: Iterable[BatchView], records: bool) -> list[dict[str, Any]]:
    return [row_of(replay, batch, records) for batch in log_batches_of(batches)]


def row_of(replay: ShardReplay, batch: LogBatch, records: bool) -> dict[str, Any]:
    """One batch, judged by all that came before it: a later owner record makes nothing void that counted."""
    voids = replay.voids
    replay.take(batch)
    row: dict[str, Any] = {
        "offset": batch.base_offset,
        "to": batch.next_offset - 1,
        "producer": f"{batch.producer.id}/{batch.producer.epoch}",
        "records": len(batch.records),
    }
    if batch.marker is not None:
        row["is"] = "commit marker" if batch.marker else "abort marker"
    elif batch.transactional:
        row["is"] = "of a transaction"
    else:
        row["is"] = "void" if replay.voids > voids else "counts"
    owner = next((found for record in batch.records if (found := decode_owner_record(record)) is not None), None)
    if owner is not None:
        row |= {"is": "owner", "turn": owner.turn, "node": owner.node, "instance": owner.instance}
    if records:
        row["content"] = [content_of(record) for record in batch.records]
    return row


def content_of(record: ShardRecord) -> dict[str, Any]:
    return {"offset": record.offset, "key": show_bytes(record.key), "value": show_bytes(record.value)}


def show_bytes(data: bytes | None) -> str | None:
    """Text as it is, other bytes by their numbers; long ones cut.

    >>> show_bytes(b'{"group":"g"}'), show_bytes(b"\\x00\\x01g"), show_bytes(None)
    ('{"group":"g"}', '\\\\x00\\\\x01g', None)
    """
    if data is None:
        return None
    cut = data[:SHOWN_BYTES].decode("utf-8", "backslashreplace")
    text = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in cut)
    return text if len(data) <= SHOWN_BYTES else f"{text}... ({len(data)} bytes)"
