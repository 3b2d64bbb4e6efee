"""CL-A10: a node that dies while it publishes what it had goes on with the next start, wherever that was."""

from contextlib import suppress

import pytest

from muster.coordinator.replication.io.admin import topic_adoption
from muster.coordinator.replication.io.admin.topic_adoption import adopt_topics
from muster.coordinator.zookeeper import layout as paths
from muster.coordinator.zookeeper.cluster import cluster_layout
from muster.coordinator.zookeeper.cluster.cluster_writes import MultiStep
from muster.coordinator.zookeeper.errors import ConnectionLost
from muster.coordinator.zookeeper.session import ZooKeeperSession
from tests.fakes.memory_files import MemoryFiles
from tests.integration.conftest import Run
from tests.integration.zookeeper.test_zookeeper_session import session
from tests.unit.storage.logs import T0, batch, open_broker

PARTITIONS = 7


@pytest.mark.parametrize("done", range(5))
def test_a_node_that_dies_between_two_of_a_topic_s_multis_publishes_the_rest_with_its_epochs(
    zookeeper: str, run: Run, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    """done: multis before it dies. The controller would have made the states that are missing, at epoch 0."""
    monkeypatch.setattr(topic_adoption, "MOST_STEPS", 4)
    commit, left = topic_adoption.commit_steps, [done]

    async def dies(zk: ZooKeeperSession, steps: list[MultiStep]) -> None:
        if not left[0]:
            raise ConnectionLost("killed")
        left[0] -= 1
        await commit(zk, steps)

    async def story() -> None:
        broker = open_broker(MemoryFiles())
        broker.create_topic("large", PARTITIONS)
        for number in range(PARTITIONS):
            broker.append("large", number, batch(b"x", leader_epoch=5), T0)
        epochs = [broker.log("large", number).leader_epoch for number in range(PARTITIONS)]
        async with session(zookeeper) as zk:
            monkeypatch.setattr(topic_adoption, "commit_steps", dies)
            with suppress(ConnectionLost):
                await adopt_topics(zk, broker, 1)
            monkeypatch.setattr(topic_adoption, "commit_steps", commit)
            await adopt_topics(zk, broker, 1)
            for number in range(PARTITIONS):
                path = paths.partition_state_path("large", number)
                found = await zk.get(path)
                assert found is not None, f"{number} of {PARTITIONS}"
                state = cluster_layout.read_state(path, found.data, found.version)
                assert (state.leader_epoch, state.isr) == (epochs[number], (1,))
            assert await zk.get(topic_adoption.ADOPTING) is None
            assert await adopt_topics(zk, broker, 1) == []
        broker.close()

    run(story)
