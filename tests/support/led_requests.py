"""What is asked of a node that leads two topics, and how a story of it is played."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from muster.coordinator.replication.protocol.cluster_metadata import TopicPartition
from muster.storage.broker.fetches import FetchLimits
from muster.storage.errors import StorageError
from muster.storage.files import Buffer
from muster.storage.records.batch import decode_records
from muster.storage.types import Appended
from tests.support.led_side import ORDERS, LedSide, partition, topic
from tests.support.pace import pace
from tests.unit.storage.logs import batch

PATIENCE_S = 20
ALL, ONE, NO_ACKS = -1, 1, 0
PAID = TopicPartition("paid", 0)
Part = tuple[str, int, Buffer]


def play(story: Callable[[LedSide], Awaitable[None]], *, epoch: int = 3, **settings: object) -> None:
    """A node that leads `orders` and `paid`."""

    async def run() -> None:
        side = LedSide(
            topic(partition(epoch=epoch)), topic(partition(epoch=epoch), name="paid", topic_id=b"p" * 16), **settings
        )
        try:
            async with asyncio.timeout(PATIENCE_S * pace()):
                await story(side)
        finally:
            await side.requests.close()

    asyncio.run(run())


def begin(
    side: LedSide, *values: bytes, acks: int = ALL, place: TopicPartition = ORDERS, timeout_ms: int = 0, **how: Any
) -> "asyncio.Future[Appended]":
    (begun,) = side.requests.begin_produce([(*place, batch(*values, **how))], acks, timeout_ms)
    return begun


async def turn() -> None:
    """What has arrived is appended."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def refusal(begun: "asyncio.Future[Appended]") -> StorageError:
    with pytest.raises(StorageError) as refused:
        await begun
    return refused.value


async def read(side: LedSide, offset: int = 0, max_wait_ms: int = 0) -> Any:
    (found,) = await side.requests.fetch([(*ORDERS, offset, 0)], FetchLimits(1, 1 << 20, False), max_wait_ms)
    if isinstance(found, StorageError):
        return found
    return [record.value for record in decode_records(found.records, offset)], found.high_watermark
