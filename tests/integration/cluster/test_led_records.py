"""Produce and fetch at three nodes over loopback and real logs, as their doors ask for it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from muster.coordinator.cluster.facts import Assignment, Topic, TopicPartition
from muster.coordinator.replication.side import wall_ms
from muster.storage.broker.reads import Bounds
from muster.storage.errors import (
    StorageError,
)
from muster.storage.records.batch import decode_records
from muster.storage.types import Appended
from tests.support.sides import SideNode, Sides
from tests.unit.storage.logs import batch

pytestmark = pytest.mark.integration

ALL, ONE, NONE = -1, 1, 0
PLACE = TopicPartition("orders", 0)
ORDERS = Topic("orders", b"o" * 16, (Assignment((1, 2, 3)),), {"min.insync.replicas": "2"}, version=0)
PAID = Topic("paid", b"p" * 16, (Assignment((2, 3, 1)),), {"min.insync.replicas": "2"}, version=0)
ANYTHING = Bounds(1, 1 << 20, False)


def play(directory: Path, story: Callable[[Sides], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Sides(directory) as sides:
            sides.standing.make(ORDERS, PAID)
            await story(sides)

    asyncio.run(run())


async def produced(
    node: SideNode, *values: bytes, acks: int = ALL, timeout_ms: int = 0, place: TopicPartition = PLACE, **how: int
) -> Appended | StorageError:
    (result,) = await node.requests.produce([(*place, batch(*values, at=wall_ms(), **how))], acks, timeout_ms)
    return result


async def fetched(node: SideNode, offset: int, max_wait_ms: int = 0) -> list[bytes | None] | StorageError:
    (found,) = await node.requests.fetch([(*PLACE, offset, 0)], ANYTHING, max_wait_ms)
    if isinstance(found, StorageError):
        return found
    return [record.value for record in decode_records(found.records, offset)]


def in_sync(sides: Sides) -> set[int]:
    return set(sides.standing.states[PLACE].isr)


@pytest.mark.parametrize("acks", [ALL, ONE, NONE])
def test_what_is_produced_is_read_at_its_leader(tmp_path: Path, acks: int) -> None:
    async def story(sides: Sides) -> None:
        leader = await sides.leader(PLACE)
        for number in range(3):
            result = await produced(leader, b"%d" % number, acks=acks)
            assert isinstance(result, Appended)
            assert result.base_offset == number
        await sides.until(lambda: leader.log(PLACE).high_watermark == 3)
        assert await fetched(leader, 0) == [b"0", b"1", b"2"]

    play(tmp_path, story)
