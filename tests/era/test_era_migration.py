"""The way out of ZooKeeper in four steps, by consumers of old releases and ours together, while records keep coming."""

import asyncio
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from muster.client import Producer
from muster.client.calls.group_calls import GroupCalls
from muster.client.calls.transport import Transport
from muster.client.config import ClientConfig, load
from tests.era.mixed_group import MixedGroup, RecordStream
from tests.support.node import NodeProcess, running_node
from tests.support.zookeeper.consumers import create, plain

pytestmark = pytest.mark.integration

BUSY = 6
IDLE = BUSY
"""The last partition: read to its end before the group moves, and nothing happens in it meanwhile."""
IDLE_END = 10
DUAL = {"offsets_storage": "kafka", "dual_commit_enabled": "true"}
KAFKA = {"offsets_storage": "kafka", "dual_commit_enabled": "false"}
ZOOKEEPER = {"offsets_storage": "zookeeper"}


class MovingGroup(MixedGroup):
    """Two members of an old release and one of ours, restarted one by one with other properties."""

    def __init__(self, folder: Path, zookeeper: str, client: KazooClient, node: NodeProcess, release: str) -> None:
        super().__init__(folder, zookeeper, client)
        self.node = node
        self.release = release

    def start(self, name: str, how: dict[str, str]) -> None:
        if name == "p":
            self.start_own(name, "t", **how)
        else:
            self.start_old(self.release, name, "--topic", "t", **how)

    def restart_one_by_one(self, how: dict[str, str]) -> None:
        for name in ("m", "p", "x"):
            if name == "p":
                self.close_own(name)
            else:
                self.stop_old(name)
            self.start(name, how)
            assert set(self.settle(BUSY + 1)) == {"m", "p", "x"}

    def kept_by_coordinator(self) -> dict[int, int]:
        """Partition -> position, of those that have one there, whatever ZooKeeper has."""

        async def ask() -> dict[int, int]:
            transport = Transport(load(ClientConfig, {"bootstrap.servers": self.node.address}, {}))
            found = await GroupCalls(transport, self.group_id).committed(None)
            await transport.close()
            return {tp.partition: place.offset for tp, place in found.items() if place is not None}

        return asyncio.run(ask())


@pytest.mark.parametrize("release", ["0.8.2.2", "0.10.2.2"])
def test_no_position_is_lost_and_no_record_is_read_twice_on_the_way_out_of_zookeeper(
    tmp_path: Path, zookeeper: str, release: str
) -> None:
    settings = {"kafka.listeners": "127.0.0.1:0", "zookeeper.connect": zookeeper}
    with running_node(tmp_path / "node", settings) as node, plain(zookeeper) as client:
        create(node, t=BUSY + 1)
        with Producer({"bootstrap.servers": node.address}) as producer:
            for _ in range(IDLE_END):
                producer.produce("t", value=b"-1", partition=IDLE)
        with MovingGroup(tmp_path, zookeeper, client, node, release) as group:
            group.begin_at("t", BUSY)
            client.create(f"/consumers/{group.group_id}/offsets/t/{IDLE}", str(IDLE_END).encode(), makepath=True)
            with RecordStream(node, t=BUSY) as stream:
                for name in ("m", "p", "x"):
                    group.start(name, ZOOKEEPER)
                group.settle(BUSY + 1)
                assert group.kept_by_coordinator() == {}
                group.restart_one_by_one(DUAL)
                before = group.positions()
                group.restart_one_by_one(KAFKA)
            assert group.drain(stream.sent) == []
            assert group.positions()["t", IDLE] == IDLE_END
            for name in ("m", "x"):
                group.stop_old(name)
            group.close_own("p")
            kept = group.kept_by_coordinator()
            in_zookeeper = group.positions()
        ends = {number: stream.sent // BUSY + (number < stream.sent % BUSY) for number in range(BUSY)}
        assert kept == ends | {IDLE: IDLE_END}
        assert all(before[tp] <= in_zookeeper[tp] <= kept[tp[1]] for tp in before)
        assert sum(in_zookeeper.values()) < sum(kept.values()), "nobody writes to ZooKeeper any more"
