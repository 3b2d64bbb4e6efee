"""Fetch for consumers from before Kafka 0.11 (versions 0 to 3), which read older message formats.

Nobody of today pays for it: clients take the highest version that both sides know.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from muster.coordinator.kafka.dispatch import KafkaCall
from muster.storage.errors import StorageError
from muster.storage.records.down_conversion import convert_down

CURRENT_FORMAT_SINCE: Final = 4
"""From this version on batches leave as they lie on disk."""
MAGIC_1_SINCE: Final = 2

MAX_CONVERTED_BYTES: Final = 55 << 20
"""Bytes of messages in one answer, beside the one message that a partition may have more."""

MAX_REPEATED_FETCHES: Final = 100
"""So many times a partition is read on where nothing but emptied batches lay."""


class ConvertibleResponse(Protocol):
    """What is looked at of an answer."""

    @property
    def responses(self) -> Sequence[Any]: ...


AnyFetchResponse = TypeVar("AnyFetchResponse", bound=ConvertibleResponse)


async def convert_to_older_format(
    answer: AnyFetchResponse, request: Any, call: KafkaCall, again: Callable[[Any], Awaitable[AnyFetchResponse]]
) -> AnyFetchResponse:
    """The answer in the request's format, converted off the loop. `again` fetches for a request that was moved on."""
    magic = int(call.api_version >= MAGIC_1_SINCE)
    for _ in range(MAX_REPEATED_FETCHES):
        parts = [
            (asked, part)
            for topic, told in zip(request.topics, answer.responses, strict=True)
            for asked, part in zip(topic.partitions, told.partitions, strict=True)
        ]
        if not any(len(part.records) for _, part in parts):
            break
        if not await asyncio.to_thread(_convert, parts, magic, min(request.max_bytes, MAX_CONVERTED_BYTES)):
            break
        answer = await again(request)
    return answer


def _convert(parts: list[tuple[Any, Any]], magic: int, room: int) -> bool:
    """Put older messages in place of the batches; whether all were empty, and the request now asks behind them."""
    moved = False
    found = 0
    for asked, part in parts:
        if not len(part.records):
            continue
        most = max(asked.partition_max_bytes, 1)
        try:
            if found >= room:
                part.records = b""
                continue
            part.records, reached = convert_down(part.records, magic, asked.fetch_offset, min(most, room - found))
        except StorageError as damaged:
            part.error_code, part.records = damaged.code, b""
            continue
        found += len(part.records)
        if not part.records and reached > asked.fetch_offset:
            asked.fetch_offset, moved = reached, True
    return moved and not found
