"""A node that stops waits until those who lead its shards now have asked whether it has let go (CL-G5a)."""

import asyncio

import pytest

from muster.coordinator.replication.io.shards.lease_release import ShutdownRelease
from muster.coordinator.replication.io.shards.replicated_shards import shard_unit
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_NODE_ID,
    ClusterImage,
    ClusterState,
    PartitionView,
    TopicPartition,
    TopicView,
)

SHARDS = TopicPartition("__consumer_offsets", 0).topic


def led_by(*leaders: int) -> ClusterImage:
    """A shard for each of these."""
    views = {number: PartitionView(leader, 1, 1, (leader,), (), (1, 2, 3)) for number, leader in enumerate(leaders)}
    image = ClusterImage()
    image.apply(
        ClusterState(epoch=1, sequence=1, full=True, nodes=(), topics=(TopicView(b"i" * 16, SHARDS, {}, views),))
    )
    return image


@pytest.mark.parametrize("told", [0, 1, 2])
def test_all_who_lead_now_have_to_ask(told: int) -> None:
    last_word = ShutdownRelease(led_by(2, 3))
    last_word.owes([shard_unit(0), shard_unit(1)])
    for shard in range(told):
        last_word.confirm_release(shard_unit(shard))
    assert asyncio.run(last_word.given(0)) is (told == 2)


def test_it_is_over_as_soon_as_the_last_of_them_has_asked() -> None:
    async def story() -> bool:
        last_word = ShutdownRelease(led_by(2))
        last_word.owes([shard_unit(0)])
        waiting = asyncio.create_task(last_word.given(30))
        await asyncio.sleep(0)
        last_word.confirm_release(shard_unit(5))
        last_word.confirm_release(shard_unit(0))
        return await waiting

    assert asyncio.run(story())


def test_a_shard_that_nobody_can_lead_is_not_waited_for() -> None:
    last_word = ShutdownRelease(led_by(NO_NODE_ID))
    last_word.owes([shard_unit(0), shard_unit(7)])
    assert asyncio.run(last_word.given(0))
