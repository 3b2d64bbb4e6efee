"""Positions in ZooKeeper, at the coordinator and in both, and the way from one to the other under load."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest
from kazoo.client import KazooClient

from muster.client import Producer
from muster.client.calls.group_calls import GroupCalls
from muster.client.calls.transport import Transport
from muster.client.config import ClientConfig, load
from muster.client.types import OffsetAndMetadata, TopicPartition
from muster.coordinator.zookeeper.local_ensemble import LocalEnsemble
from tests.era.mixed_group import MixedGroup, RecordStream
from tests.era.releases import SCALA
from tests.support.node import NodeProcess, running_node
from tests.support.zookeeper.consumers import create, fill, plain

pytestmark = pytest.mark.integration

T = TypeVar("T")
BUSY = 6
IDLE = BUSY
"""The last partition: read to its end before the group moves, and nothing happens in it meanwhile."""
IDLE_END = 10
DUAL = {"offsets_storage": "kafka", "dual_commit_enabled": "true"}
KAFKA = {"offsets_storage": "kafka", "dual_commit_enabled": "false"}
ZOOKEEPER = {"offsets_storage": "zookeeper"}


names = (f"moved-{number}" for number in count())


@pytest.fixture(scope="module")
def connect(zookeeper_server: LocalEnsemble) -> str:
    return f"{zookeeper_server.connect}/era-offsets"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, connect: str) -> Iterator[NodeProcess]:
    settings = {"kafka.listeners": "127.0.0.1:0", "zookeeper.connect": connect}
    with running_node(tmp_path_factory.mktemp("era") / "node", settings) as node:
        yield node


class MovingGroup(MixedGroup):
    """Two members of an old release and one of ours, restarted one by one with other properties."""

    def __init__(
        self, folder: Path, zookeeper: str, client: KazooClient, node: NodeProcess, release: str, topic: str
    ) -> None:
        super().__init__(folder, zookeeper, client)
        self.topic = topic
        self.node = node
        self.release = release

    def start(self, name: str, how: dict[str, str]) -> None:
        if name == "p":
            self.start_own(name, self.topic, **how)
        else:
            self.start_old(self.release, name, "--topic", self.topic, **how)

    def restart_one_by_one(self, how: dict[str, str]) -> None:
        for name in ("m", "p", "x"):
            if name == "p":
                self.close_own(name)
            else:
                self.stop_old(name)
            self.start(name, how)
            assert set(self.settle(BUSY + 1)) == {"m", "p", "x"}

    def kept_by_coordinator(self) -> dict[int, int]:
        return read_kept(self.node, self.group_id)


def read_kept(node: NodeProcess, group_id: str) -> dict[int, int]:
    """Partition -> position of those that have one at the coordinator, whatever ZooKeeper has."""

    async def ask(calls: GroupCalls) -> dict[int, int]:
        found = await calls.committed(None)
        return {tp.partition: place.offset for tp, place in found.items() if place is not None}

    return ask_coordinator(node, group_id, ask)


def ask_coordinator(node: NodeProcess, group_id: str, ask: Callable[[GroupCalls], Awaitable[T]]) -> T:
    async def run() -> T:
        transport = Transport(load(ClientConfig, {"bootstrap.servers": node.address}, {}))
        try:
            return await ask(GroupCalls(transport, group_id))
        finally:
            await transport.close()

    return asyncio.run(run())


STORES = {"zookeeper": ZOOKEEPER, "dual": DUAL, "kafka": KAFKA}
BEGINS = {"zookeeper": (20, 50), "dual": (50, 50), "kafka": (50, 20)}
"""Where a consumer begins with positions (20, 50) in ZooKeeper and (50, 20) at the coordinator."""
COUNT = 60


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("release", SCALA)
def test_a_lone_consumer_begins_and_commits_where_it_says(
    tmp_path: Path, node: NodeProcess, connect: str, release: str, store: str
) -> None:
    create(node, **{(topic := next(names)): 2})
    fill(node, topic, 2, 2 * COUNT)
    begins = BEGINS[store]
    wanted = {number for number in range(2 * COUNT) if number // 2 >= begins[number % 2]}
    with plain(connect) as client, MixedGroup(tmp_path, connect, client) as group:
        for partition, offset in enumerate((20, 50)):
            client.create(f"{group.path}/offsets/{topic}/{partition}", str(offset).encode(), makepath=True)
        places = {TopicPartition(topic, number): OffsetAndMetadata(at) for number, at in enumerate((50, 20))}
        ask_coordinator(node, group.group_id, lambda calls: calls.commit(places, None))
        group.start_old(release, "m", "--topic", topic, **STORES[store])
        group.wait_for(lambda: len(group.read) >= len(wanted), "it reads to the end")
        group.stop_old("m")
        assert group.read == Counter(wanted)
        begun = (50, 20) if store == "zookeeper" else (COUNT, COUNT)
        assert read_kept(node, group.group_id) == dict(enumerate(begun))
        begun = (20, 50) if store == "kafka" else (COUNT, COUNT)
        assert group.positions() == {(topic, number): at for number, at in enumerate(begun)}


@pytest.mark.parametrize("release", ["0.8.2.2", "0.10.2.2"])
def test_no_position_is_lost_and_no_record_is_read_twice_on_the_way_out_of_zookeeper(
    tmp_path: Path, node: NodeProcess, connect: str, release: str
) -> None:
    create(node, **{(topic := next(names)): BUSY + 1})
    with plain(connect) as client:
        with Producer({"bootstrap.servers": node.address}) as producer:
            for _ in range(IDLE_END):
                producer.produce(topic, value=b"-1", partition=IDLE)
        with MovingGroup(tmp_path, connect, client, node, release, topic) as group:
            group.begin_at(topic, BUSY)
            client.create(f"{group.path}/offsets/{topic}/{IDLE}", str(IDLE_END).encode(), makepath=True)
            with RecordStream(node, **{topic: BUSY}) as stream:
                for name in ("m", "p", "x"):
                    group.start(name, ZOOKEEPER)
                group.settle(BUSY + 1)
                assert group.kept_by_coordinator() == {}
                group.restart_one_by_one(DUAL)
                before = group.positions()
                group.restart_one_by_one(KAFKA)
            assert group.drain(stream.sent) == []
            assert group.positions()[topic, IDLE] == IDLE_END
            for name in ("m", "x"):
                group.stop_old(name)
            group.close_own("p")
            kept = group.kept_by_coordinator()
            in_zookeeper = group.positions()
        ends = {number: stream.sent // BUSY + (number < stream.sent % BUSY) for number in range(BUSY)}
        assert kept == ends | {IDLE: IDLE_END}
        assert all(before[tp] <= in_zookeeper[tp] <= kept[tp[1]] for tp in before)
        assert sum(in_zookeeper.values()) < sum(kept.values()), "nobody writes to ZooKeeper any more"
