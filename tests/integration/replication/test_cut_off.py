"""Nodes that are cut off from each other, or from ZooKeeper, while clients reach all of them: one coordinator at a time
says that all is well, producers lose nothing, and a group stays as it was (CL-G4, CL-G5, CL-C2)."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from muster.coordinator.errors import ErrorCode
from tests.support.cluster_cuts import ZOOKEEPER, Cuts, cluster_with_cuts
from tests.support.cluster_nodes import ClusterNodes
from tests.support.group_coordinators import LONG, coordinator_of, standing
from tests.support.kafka.client import KafkaClient
from tests.support.kafka.stage import stage
from tests.support.numbered_records import Numbered
from tests.support.pace import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

BEAT_S, OFTEN = 0.02, 20


@pytest.fixture
def cluster(zookeeper: str, tmp_path: Path) -> Iterator[tuple[ClusterNodes, Cuts]]:
    with cluster_with_cuts(tmp_path, zookeeper, {"group.initial.rebalance.delay.ms": "300"}) as both:
        yield both


class Beat(NamedTuple):
    """A heartbeat that was answered with "all is well": by whom, and when it was sent and answered."""

    answered_s: float
    sent_s: float
    node: int


class Beats:
    """Heartbeats of one member to each node at once, whoever coordinates its group."""

    def __init__(self, cluster: ClusterNodes, group: str, generation: int, member: str) -> None:
        self._member = {"group_id": group, "generation_id": generation, "member_id": member}
        self._addresses = {number: node.kafka_address for number, node in cluster.nodes.items()}
        self.well: list[Beat] = []

    async def until_another(self, than: int) -> None:
        """Send them until another node has said several times that all is well."""
        self._often = asyncio.Event()
        tasks = [asyncio.create_task(self._beat(node, than)) for node in self._addresses]
        try:
            async with asyncio.timeout(60):
                await self._often.wait()
        finally:
            for task in tasks:
                task.cancel()

    async def _beat(self, node: int, old: int) -> None:
        host, port = self._addresses[node].rsplit(":", 1)
        async with KafkaClient(host, int(port)) as client:
            while True:
                sent_s = time.monotonic()
                answer = await client.ask("Heartbeat", 1, **self._member)
                if answer.error_code == ErrorCode.NONE:
                    self.well.append(Beat(time.monotonic(), sent_s, node))
                    if sum(beat.node != old for beat in self.well) >= OFTEN:
                        self._often.set()
                await asyncio.sleep(BEAT_S)

    def check(self, old: int) -> None:
        """Nobody was told so by the old coordinator who asked it after the new one had said so."""
        first_s = min(beat.answered_s for beat in self.well if beat.node != old)
        assert [beat for beat in self.well if beat.node == old and beat.sent_s > first_s] == []
        assert len({beat.node for beat in self.well}) == 2


@pytest.mark.parametrize("nodes_too", [False, True], ids=["from ZooKeeper", "from all but clients"])
def test_a_coordinator_that_is_cut_off_says_no_more_that_all_is_well(
    cluster: tuple[ClusterNodes, Cuts], nodes_too: bool
) -> None:
    nodes, cuts = cluster
    work = Numbered(nodes)
    with stage(nodes, "range") as play:
        play.start("confluent", **LONG, socket_ms="3000")
        play.start("grpc", **LONG)
        play.until_shared(*play.workers)
        before, owned = standing(nodes, play.group), [worker.assigned for worker in play.workers]
        old = coordinator_of(nodes, play.group)
        beats = Beats(nodes, play.group, before.generation, before.members[0])
        work.begin(600)
        cuts.cut(old, ZOOKEEPER, *(number for number in nodes.nodes if nodes_too and number != old))
        asyncio.run(beats.until_another(old))
        beats.check(old)
        work.finish()
        play.send(50)
        play.until_all_read()
        assert standing(nodes, play.group) == before
        cuts.mend()
        work.finish()
        work.send(600)
        work.until_in_sync()
        assert standing(nodes, play.group) == before
        assert [worker.assigned for worker in play.workers] == owned
    work.check()


def test_a_leader_without_its_followers_acknowledges_nothing_until_it_has_them_again(
    cluster: tuple[ClusterNodes, Cuts],
) -> None:
    """It is not passed by, for ZooKeeper sees it: what was sent to it is acknowledged once the network is whole."""
    nodes, cuts = cluster
    work = Numbered(nodes)
    work.send(600)
    work.until_in_sync()
    # The controller is left to the others: who is cut off from it takes nobody out of sync.
    leader = next(each for each in map(work.leader_of, range(6)) if each != nodes.controller())
    acked = len(work.acked)
    others = [number for number in nodes.nodes if number != leader]
    cuts.cut(leader, *others)
    work.begin(600)
    led = {partition for partition in range(6) if work.leader_of(partition) == leader}
    until(lambda: work.acknowledged() >= acked + (6 - len(led)) * 100, nodes.log_tail)
    assert {partition for partition, offset in list(work.acked)[acked:]} & led == set()
    cuts.mend()
    work.finish()
    work.until_in_sync()
    work.check()
