"""A group moves its positions from ZooKeeper to its coordinator and back, one consumer after the other, under load."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.client import Consumer, Producer
from muster.client.calls.group_calls import GroupCalls
from muster.client.calls.transport import Transport
from muster.client.config import ClientConfig, load
from tests.integration.conftest import Run
from tests.support.node import NodeProcess
from tests.support.zookeeper.consumers import create, era_node, era_properties, fill, plain, wait_for

PARTITIONS = 6
MEMBERS = 3
STORES = {
    "in ZooKeeper": {"offsets.storage": "zookeeper"},
    "on the way up": {"offsets.storage": "kafka", "dual.commit.enabled": True},
    "in the log": {"offsets.storage": "kafka", "dual.commit.enabled": False},
    "on the way down": {"offsets.storage": "zookeeper", "dual.commit.enabled": True},
}


@pytest.fixture
def node(tmp_path: Path, zookeeper: str) -> Iterator[NodeProcess]:
    with era_node(tmp_path, zookeeper) as node:
        # The last partition has records from before only: nothing happens in it while the group moves.
        create(node, t=PARTITIONS + 1)
        yield node


class Group:
    """Three consumers in turn of one thread, what they read, and records that keep coming."""

    def __init__(self, node: NodeProcess, zookeeper: str) -> None:
        self.node = node
        self.zookeeper = zookeeper
        self.members: list[Consumer] = []
        self.read: Counter[tuple[int, int]] = Counter()
        self.sent = 0

    def start(self, store: str) -> Consumer:
        # With a position that got lost it would begin anew, and read everything again.
        properties = era_properties(self.zookeeper, auto_offset_reset="earliest", auto_commit_interval_ms=200)
        member = Consumer({**properties, **STORES[store]})
        member.subscribe("t")
        return member

    def send(self, count: int) -> None:
        fill(self.node, "t", PARTITIONS, count, first=self.sent)
        self.sent += count

    def pump(self, *more: Consumer) -> None:
        for member in [*self.members, *more]:
            self.read.update((m.partition, m.offset) for m in member.consume(100, 0.02))

    def settle(self) -> None:
        def shared() -> bool:
            self.pump()
            owned = [member.assignment() for member in self.members]
            return all(owned) and sum(map(len, owned)) == PARTITIONS + 1

        wait_for(shared, "everybody has a share")

    def restart_one_by_one(self, store: str) -> None:
        for number in range(len(self.members)):
            self.send(60)
            self.pump()
            self.members[number].close()
            self.members[number] = self.start(store)
            self.settle()

    def drain(self) -> None:
        def everything() -> bool:
            self.pump()
            return sum(1 for partition, _ in self.read if partition < PARTITIONS) == self.sent

        wait_for(everything, "all records")


def test_no_position_is_lost_on_the_way_to_the_log_and_back(node: NodeProcess, zookeeper: str, run: Run) -> None:
    group = Group(node, zookeeper)
    with plain(zookeeper) as client:
        # Everything begins at 0, on record; the idle partition has been read to its end.
        for partition in range(PARTITIONS + 1):
            client.create(f"/consumers/g/offsets/t/{partition}", b"0", makepath=True)
        with Producer({"bootstrap.servers": node.address}) as producer:
            for _ in range(10):
                producer.produce("t", value=b"idle", partition=PARTITIONS)
            producer.flush()
        client.set(f"/consumers/g/offsets/t/{PARTITIONS}", b"10")

        def in_nodes() -> dict[int, int]:
            return {p: int(client.get(f"/consumers/g/offsets/t/{p}")[0]) for p in range(PARTITIONS + 1)}

        group.members = [group.start("in ZooKeeper") for _ in range(MEMBERS)]
        group.settle()
        for store in ("on the way up", "in the log"):
            group.restart_one_by_one(store)
        group.drain()
        for member in group.members:
            member.commit()
        before = in_nodes()
        at = log_positions(node, run)
        assert at == dict.fromkeys(range(PARTITIONS), group.sent // PARTITIONS) | {PARTITIONS: 10}
        assert before[PARTITIONS] == 10
        group.send(60)
        group.drain()
        for member in group.members:
            member.commit()
        assert in_nodes() == before, "nobody writes to ZooKeeper any more"

        for store in ("on the way down", "in ZooKeeper"):
            group.restart_one_by_one(store)
        group.drain()
        for member in group.members:
            member.close()
        assert in_nodes() == dict.fromkeys(range(PARTITIONS), group.sent // PARTITIONS) | {PARTITIONS: 10}
    again = sorted(record for record, times in group.read.items() if times > 1)
    assert again == [], "no position was lost, and everybody left in order"
    assert not [record for record in group.read if record[0] == PARTITIONS]


def log_positions(node: NodeProcess, run: Run) -> dict[int, int]:
    """What the coordinator has, without what ZooKeeper has."""
    found: dict[int, int] = {}

    async def story() -> None:
        transport = Transport(load(ClientConfig, {"bootstrap.servers": node.address}, {}))
        committed = await GroupCalls(transport, "g").committed(None)
        found.update({tp.partition: position.offset for tp, position in committed.items() if position is not None})
        await transport.close()

    run(story)
    return found
