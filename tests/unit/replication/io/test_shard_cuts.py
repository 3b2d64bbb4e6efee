"""CL-G9: what an unclean election cost a shard gets into its diary once those who cut their copies have told it."""

import asyncio

from muster.coordinator.replication.io.shards.takeover_records import LOOKS_AFTER, ShardLosses
from muster.coordinator.replication.protocol.cluster_metadata import (
    OFFSETS,
    ClusterImage,
    PartitionView,
    TopicPartition,
    TopicView,
)

SHARD, EPOCH = 3, 8


class Stage:
    def __init__(self, unclean_epoch: int = EPOCH) -> None:
        self.image = ClusterImage()
        self.unclean_epoch = unclean_epoch
        self.in_sync(2)
        self.known = 0
        self.asked: list[tuple[TopicPartition, int]] = []
        self.recorded: list[tuple[int, int, int]] = []
        self.served = True
        self.cuts = ShardLosses(self.image, self.cost, self.found)

    def in_sync(self, *isr: int) -> None:
        view = PartitionView(2, EPOCH, 0, isr, (), (1, 2), unclean_epoch=self.unclean_epoch)
        self.image.topics[OFFSETS] = TopicView(b"o" * 16, OFFSETS, partitions={SHARD: view})

    async def cost(self, unit: TopicPartition, epoch: int) -> int:
        self.asked.append((unit, epoch))
        return self.known

    def found(self, shard: int, epoch: int, records: int) -> bool:
        if self.served:
            self.recorded.append((shard, epoch, records))
        return self.served

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            asyncio.run(self.cuts.check_losses())


def test_g9_it_is_noted_once_it_is_known_and_again_only_when_it_is_more() -> None:
    stage = Stage()
    stage.cuts.gained(SHARD)
    stage.look(2)
    assert (stage.recorded, set(stage.asked)) == ([], {(TopicPartition(OFFSETS, SHARD), EPOCH)})
    stage.known, stage.served = 13, False
    stage.look()
    stage.served = True
    stage.look(2)
    assert stage.recorded == [(SHARD, EPOCH, 13)]
    stage.known = 15
    stage.look(2)
    assert stage.recorded[1:] == [(SHARD, EPOCH, 15)]


def test_g9_nobody_looks_on_when_all_are_in_sync_or_the_shard_is_gone_or_nothing_was_unclean() -> None:
    stage = Stage()
    stage.cuts.gained(SHARD)
    stage.look(2 * LOOKS_AFTER)
    stage.in_sync(1, 2)
    stage.asked.clear()
    stage.look(2 * LOOKS_AFTER)
    assert len(stage.asked) == LOOKS_AFTER
    stage.cuts.gained(SHARD)
    stage.cuts.lost(SHARD)
    clean = Stage(unclean_epoch=-1)
    clean.cuts.gained(SHARD)
    for each in (stage, clean):
        each.asked.clear()
        each.look()
        assert each.asked == []
