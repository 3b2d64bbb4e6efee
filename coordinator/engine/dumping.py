"""A shard of the state topic for people: each batch, who wrote it, and whether it counts (KB-S6)."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from muster.coordinator.engine.reading import seen
from muster.coordinator.engine.starting import UNKNOWN_TOPIC
from muster.coordinator.engine.upstream.errors import Refused, UpstreamError
from muster.coordinator.engine.upstream.reach import Reach
from muster.coordinator.engine.upstream.records import load, span
from muster.coordinator.engine.upstream.upstream import Upstream
from muster.coordinator.engine.upstream.view import View
from muster.coordinator.ownership.facts import Record, read_owner
from muster.coordinator.ownership.voids import Replay, Seen
from muster.storage.records.batch import BatchView

PATIENCE_S = 30.0
SHOWN_BYTES = 200
"""Of a key, and of a value."""


async def dump(
    reach: Reach, topic: str, shard: int, tell: Callable[[dict[str, Any]], None], *, records: bool = False
) -> None:
    """Tell each batch of the shard as a row, oldest first. Raises UpstreamError."""
    upstream = Upstream(reach)
    try:
        check(await upstream.refresh([topic]), topic, shard)
        start, upto = await span(upstream, topic, shard)
        replay = Replay()
        async for batches in load(upstream, topic, shard, start, upto, deadline_s=PATIENCE_S):
            for row in await asyncio.to_thread(rows_of, replay, batches, records):
                tell(row)
    finally:
        upstream.close()


def check(view: View, topic: str, shard: int) -> None:
    """Raises UpstreamError for a shard that is not there."""
    known = view.topics.get(topic)
    if known is None or known.code:
        raise Refused(f"asking for the topic {topic}", UNKNOWN_TOPIC if known is None else known.code)
    if shard not in known.parts:
        raise UpstreamError(f"{topic} has no shard {shard}; expected 0 to {len(known.parts) - 1}")


def rows_of(replay: Replay, batches: Iterable[BatchView], records: bool) -> list[dict[str, Any]]:
    return [row_of(replay, batch, records) for batch in seen(batches)]


def row_of(replay: Replay, batch: Seen, records: bool) -> dict[str, Any]:
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
    owner = next((found for record in batch.records if (found := read_owner(record)) is not None), None)
    if owner is not None:
        row |= {"is": "owner", "turn": owner.turn, "node": owner.node, "instance": owner.instance}
    if records:
        row["content"] = [content_of(record) for record in batch.records]
    return row


def content_of(record: Record) -> dict[str, Any]:
    return {"offset": record.offset, "key": shown(record.key), "value": shown(record.value)}


def shown(data: bytes | None) -> str | None:
    """Text as it is, other bytes by their numbers; long ones cut.

    >>> shown(b'{"group":"g"}'), shown(b"\\x00\\x01g"), shown(None)
    ('{"group":"g"}', '\\\\x00\\\\x01g', None)
    """
    if data is None:
        return None
    cut = data[:SHOWN_BYTES].decode("utf-8", "backslashreplace")
    text = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in cut)
    return text if len(data) <= SHOWN_BYTES else f"{text}... ({len(data)} bytes)"
