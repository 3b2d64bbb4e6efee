"""CL-G9: what an unclean election of a shard cost is told of the takeover, once the node that had it is back."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.election_ledger import PLACE
from muster.coordinator.replication.protocol.cluster_metadata import ClusterTopic, ReplicaAssignment
from tests.integration.replication.test_shards import fetched, stable, until_fetched, until_recorded
from tests.support.shard_sides import DIARY, GROUPS, SHARD, ShardSides

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

UNSAFE = {**GROUPS.configs, "min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
PAIR = (ReplicaAssignment((1, 2)), ReplicaAssignment((2, 1)))
LOST = 3


async def unclean(sides: ShardSides) -> None:
    groups, diary = (replace(each, partitions=PAIR, configs=UNSAFE) for each in (GROUPS, DIARY))
    sides.standing.make(
        groups, diary, ClusterTopic(PLACE.topic, b"e" * 16, (ReplicaAssignment((3, 2)),), {"min.insync.replicas": "1"})
    )
    old = await sides.coordinator()
    await until_fetched(sides, old)
    member = (await stable(old))[0]
    assert await member.commit(old, 1) is ErrorCode.NONE
    follower = sides.nodes[1]
    await sides.kill(follower)
    for offset in range(10, 10 + LOST):
        assert await member.commit(old, offset) is ErrorCode.NONE
    await sides.kill(old.node)
    await sides.start(follower)
    new = await sides.coordinator()
    assert (await until_fetched(sides, new)) == (ErrorCode.NONE, 1), "what was committed meanwhile is gone"
    [moved, *_] = await until_recorded(sides, new)
    assert (moved.moved_to, moved.cut) == (2, 0), "nobody knows yet"
    await sides.start(old.node)
    await sides.until(lambda: new.node.side.replicas.leaders[SHARD].in_sync.committed == (1, 2))
    while not await new.node.side.elections.cost(SHARD, moved.epoch):
        sides.happened.clear()
        await sides.happened.wait()
    await new.coordinating._cuts.check_losses()
    assert (await until_recorded(sides, new))[0].cut == LOST
    assert (await fetched(new))[1] == 1


def test_g9_what_an_unclean_election_cost_is_told_of_the_takeover(tmp_path: Path) -> None:
    async def run() -> None:
        async with ShardSides(tmp_path) as sides:
            await unclean(sides)

    asyncio.run(run())
