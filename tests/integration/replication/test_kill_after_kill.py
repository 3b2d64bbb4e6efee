"""Nodes are killed and stopped one after another while records come: what was acknowledged is on all of them at the end
(checkers 1 and 14 of the simulator, over real logs and links)."""

import asyncio
import random
from pathlib import Path

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import ClusterTopic, ReplicaAssignment, TopicPartition
from muster.storage.logs.log import Log
from muster.storage.records.batch import decode_records
from tests.support.sides import Sides

pytestmark = pytest.mark.integration

PLACES = [TopicPartition("orders", number) for number in range(4)]
ORDERS = ClusterTopic(
    "orders",
    b"o" * 16,
    tuple(map(ReplicaAssignment, ((1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 3, 2)))),
    {"min.insync.replicas": "2"},
    version=0,
)
ROUNDS = 6
BETWEEN = 12
"""Records acknowledged between two rounds."""


class Producer:
    """acks=all, to whoever leads; `acked` is what was acknowledged."""

    def __init__(self, sides: Sides, place: TopicPartition) -> None:
        self.acked: list[bytes] = []
        self.over = False
        self._sides = sides
        self._place = place

    async def run(self) -> None:
        number = 0
        while not self.over:
            leader = await self._sides.leader(self._place)
            value = f"{self._place}:{number}".encode()
            number += 1
            if await leader.produce(self._place, value) is ErrorCode.NONE:
                self.acked.append(value)
            else:
                await asyncio.sleep(0.002)


def committed(log: Log) -> list[bytes | None]:
    found: list[bytes | None] = []
    offset = 0
    while offset < log.high_watermark:
        records = list(decode_records(log.fetch(offset, 1 << 20).records, offset))
        found += [record.value for record in records]
        offset = records[-1].offset + 1
    return found


async def round_of(sides: Sides, rng: random.Random) -> None:
    """One or two nodes end, in one way or the other, and come back."""
    down = [rng.choice(sides.up)]
    if rng.random() < 0.3:
        await sides.stop(down[0])
    else:
        await sides.kill(down[0])
    if rng.random() < 0.3:
        down.append(rng.choice(sides.up))
        await sides.kill(down[1])
    for node in down:
        await sides.start(node)


def is_settled(sides: Sides, place: TopicPartition) -> bool:
    ends = {end for node in sides for end in (node.log(place).high_watermark, node.log(place).end_offset)}
    return len(sides.standing.states[place].isr) == 3 and len(ends) == 1


@pytest.mark.parametrize("seed", [1, 2])
def test_what_was_acknowledged_is_on_all_of_them_at_the_end(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)

    async def run() -> None:
        async with Sides(tmp_path) as sides:
            sides.standing.make(ORDERS)
            producers = [Producer(sides, place) for place in PLACES]
            running = [asyncio.create_task(each.run()) for each in producers]
            for number in range(ROUNDS):
                await sides.until(lambda wanted=number: all(len(each.acked) > wanted * BETWEEN for each in producers))  # type: ignore[misc]
                await round_of(sides, rng)
            for producer in producers:
                producer.over = True
            await asyncio.gather(*running)
            for place, producer in zip(PLACES, producers, strict=True):
                await sides.until(lambda place=place: is_settled(sides, place))  # type: ignore[misc]
                first, *others = (committed(node.log(place)) for node in sides)
                assert all(each == first for each in others)
                assert not set(producer.acked) - set(first)
            assert not any(node.side.failure.done() for node in sides)

    asyncio.run(run())
