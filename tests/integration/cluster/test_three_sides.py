"""Three nodes over loopback and real logs: what was acknowledged outlives the leader's node (D2, F5, L3, C2)."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from muster.coordinator.cluster.facts import Assignment, Topic, TopicPartition
from muster.coordinator.errors import ErrorCode
from muster.storage.logs.log import Log
from muster.storage.records.batch import decode_records
from tests.support.sides import Sides

pytestmark = pytest.mark.integration

PLACE = TopicPartition("orders", 0)
ORDERS = Topic("orders", b"o" * 16, (Assignment((1, 2, 3)),), {"min.insync.replicas": "2"}, version=0)


def play(directory: Path, story: Callable[[Sides], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Sides(directory) as sides:
            sides.standing.make(ORDERS)
            await story(sides)

    asyncio.run(run())


def read(log: Log) -> list[bytes | None]:
    """Whatever of it is committed."""
    return [record.value for record in decode_records(log.fetch(log.start_offset, 1 << 24).records, log.start_offset)]


def in_sync(sides: Sides) -> set[int]:
    return set(sides.standing.states[PLACE].isr)


def values(name: str, count: int) -> list[bytes]:
    return [f"{name}{number}".encode() for number in range(count)]


def test_what_is_acknowledged_is_on_all_and_committed(tmp_path: Path) -> None:
    async def story(sides: Sides) -> None:
        leader = await sides.leader(PLACE)
        assert leader.id == 1
        await sides.until(lambda: in_sync(sides) == {1, 2, 3})
        for value in values("a", 20):
            assert await leader.produce(PLACE, value) is ErrorCode.NONE
            kept = sorted(node.log(PLACE).durable_offset for node in sides)
            assert kept[0] == leader.log(PLACE).end_offset, "flushed on every replica in sync"
        await sides.until(lambda: all(node.log(PLACE).high_watermark == 20 for node in sides))
        assert [read(node.log(PLACE)) for node in sides] == [values("a", 20)] * 3

    play(tmp_path, story)


def test_nothing_acknowledged_is_lost_with_the_leader_which_comes_back_and_gives_up_what_it_had_alone(
    tmp_path: Path,
) -> None:
    async def story(sides: Sides) -> None:
        old = await sides.leader(PLACE)
        for value in values("a", 10):
            assert await old.produce(PLACE, value) is ErrorCode.NONE
        old.write(PLACE, *values("nobody", 5))
        await sides.kill(old)
        new = await sides.leader(PLACE)
        assert new.id != old.id
        for value in values("b", 10):
            assert await new.produce(PLACE, value) is ErrorCode.NONE
        assert in_sync(sides) == {2, 3}
        assert read(new.log(PLACE)) == values("a", 10) + values("b", 10)

        await sides.start(old)
        assert old.log(PLACE).end_offset == 15
        await sides.until(lambda: in_sync(sides) == {1, 2, 3})
        assert await new.produce(PLACE, b"last") is ErrorCode.NONE
        await sides.until(lambda: all(node.log(PLACE).high_watermark == 21 for node in sides))
        expected = values("a", 10) + values("b", 10) + [b"last"]
        assert [read(node.log(PLACE)) for node in sides] == [expected] * 3
        epochs = [node.log(PLACE).epochs.entries for node in sides]
        assert epochs == [[(0, 0), (1, 10)]] * 3

    play(tmp_path, story)


def test_with_fewer_than_the_least_in_sync_nothing_is_acknowledged_until_one_is_back(tmp_path: Path) -> None:
    """L2, D3."""

    async def story(sides: Sides) -> None:
        leader = await sides.leader(PLACE)
        assert await leader.produce(PLACE, b"a") is ErrorCode.NONE
        others = [node for node in sides if node is not leader]
        for node in others:
            await sides.kill(node)
        await sides.until(lambda: leader.side.replicas.leaders[PLACE].isr == (leader.id,))
        assert await leader.produce(PLACE, b"b") is ErrorCode.NOT_ENOUGH_REPLICAS
        await sides.start(others[0])
        await sides.until(lambda: len(leader.side.replicas.leaders[PLACE].isr) == 2)
        assert await leader.produce(PLACE, b"c") is ErrorCode.NONE
        assert read(leader.log(PLACE)) == [b"a", b"c"]

    play(tmp_path, story)
