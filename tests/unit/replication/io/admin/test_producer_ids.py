"""Producer ids in blocks (CL-A4): never twice, and without a wait where the next block is there in time."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from muster.coordinator.replication.io.admin.producer_ids import NoProducerIdsYet, ProducerIdBlocks
from muster.coordinator.zookeeper.cluster.cluster_layout import ProducerIdBlock
from muster.coordinator.zookeeper.cluster.cluster_watches import ProducerIdsExhausted
from muster.coordinator.zookeeper.errors import ConnectionLost
from muster.storage.logs.producer_state import FENCES_FROM, MAX_EPOCH

SIZE = 10


class Ensemble:
    """Gives blocks of ten, while it is not held."""

    def __init__(self) -> None:
        self.taken = 0
        self.open = asyncio.Event()
        self.open.set()
        self.failures: list[Exception] = []

    async def take(self) -> ProducerIdBlock:
        await self.open.wait()
        if self.failures:
            raise self.failures.pop()
        self.taken += 1
        return ProducerIdBlock(1, (self.taken - 1) * SIZE, self.taken * SIZE - 1)

    async def connected(self) -> None:
        await self.open.wait()


def play(story: Callable[[Ensemble, ProducerIdBlocks], Awaitable[None]]) -> None:
    async def run() -> None:
        ensemble = Ensemble()
        blocks = ProducerIdBlocks(ensemble.take, ensemble.connected)
        await blocks.fetch_first_block()
        async with asyncio.timeout(20):
            await story(ensemble, blocks)
        await blocks.close()

    asyncio.run(run())


def test_the_next_block_is_there_before_it_is_needed() -> None:
    async def story(ensemble: Ensemble, blocks: ProducerIdBlocks) -> None:
        await asyncio.sleep(0)
        ensemble.open.clear()  # from here on nothing is answered
        assert [blocks.fresh() for _ in range(SIZE)] == list(range(SIZE))
        assert ensemble.taken == 2
        assert [await blocks.next() for _ in range(SIZE)] == list(range(SIZE, 2 * SIZE))
        with pytest.raises(NoProducerIdsYet):
            blocks.fresh()
        waiting = [asyncio.ensure_future(blocks.next()) for _ in range(3)]
        await asyncio.sleep(0)
        ensemble.failures.append(ConnectionLost("lost"))
        ensemble.open.set()
        assert sorted([await each for each in waiting]) == [20, 21, 22]

    play(story)


def test_a_producer_that_has_an_id_gets_its_next_epoch() -> None:
    async def story(ensemble: Ensemble, blocks: ProducerIdBlocks) -> None:
        assert blocks.new_ids(-1, -1) == (0, 0)
        assert blocks.new_ids(5_000, 3) == (5_000, 4)
        assert blocks.new_ids(5_000, MAX_EPOCH - 1) == (1, 0)
        assert blocks.new_fence() == FENCES_FROM + 2

    play(story)


def test_that_there_are_none_left_is_said_to_who_waits() -> None:
    async def story(ensemble: Ensemble, blocks: ProducerIdBlocks) -> None:
        await asyncio.sleep(0)
        ensemble.failures.append(ProducerIdsExhausted("all taken"))
        for _ in range(2 * SIZE):
            await blocks.next()
        with pytest.raises(ProducerIdsExhausted):
            await blocks.next()

    play(story)
