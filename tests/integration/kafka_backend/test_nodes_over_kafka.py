"""Several nodes over a real Kafka, as processes: members go where their group is, and outlive whoever is struck."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from muster.cli.main import main
from muster.client import Admin, Worker
from muster.client.types import GroupMetadata, TopicPartition
from muster.coordinator.runtime.shards import partition_for
from tests.support.kafka_backend.served import SHARDS, make_topics, over
from tests.support.node import NodeProcess
from tests.support.pace import Patience

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

PATIENCE_S = 90.0
PARTITIONS: Final = 4
LEASE_MS: Final = 3_000
SESSION_MS: Final = 45_000
"""Well above what a failover takes here, on a busy machine too."""

NODE: Final = {
    "engine_kafka_session_timeout_ms": str(LEASE_MS),
    "engine_kafka_heartbeat_interval_ms": "300",
    "group_consumer_session_timeout_ms": str(SESSION_MS),
    "group_consumer_min_heartbeat_interval_ms": "200",
    "group_consumer_heartbeat_interval_ms": "300",
    "group_consumer_assignment_interval_ms": "0",
}
KINDS: Final[dict[str, dict[str, Any]]] = {
    "classic": {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 300, "group_membership": "poll"},
    "pushed": {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 300, "group_membership": "push"},
    "kip-848": {"group_protocol": "consumer", "group_membership": "poll"},
}


class Nodes:
    """Two of them; `start` and `end` each by its number."""

    def __init__(self, kafka: str, cluster: str, place: Path) -> None:
        self.nodes = {
            number: NodeProcess(place / f"n{number}", {**over(kafka, cluster, **NODE), "node.id": str(number)})
            for number in (1, 2)
        }

    def __getitem__(self, number: int) -> NodeProcess:
        return self.nodes[number]

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes.values())

    def log_tail(self) -> str:
        return "\n".join(f"-- {number}\n{node.log_tail()}" for number, node in self.nodes.items())

    def until(self, holds: Callable[[], bool], what: str, meanwhile: Callable[[], object] = lambda: None) -> None:
        patience = Patience(PATIENCE_S)
        while not holds():
            assert patience.lasts(), f"not within {PATIENCE_S} s: {what}\n{self.log_tail()}"
            meanwhile()
            time.sleep(0.01)


@pytest.fixture(scope="module")
def nodes(real_kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    make_topics(real_kafka.address, {"orders": PARTITIONS})
    both = Nodes(real_kafka.address, "two", Path(tmp_path_factory.mktemp("two")))
    with ExitStack() as stack:
        for node in both.nodes.values():
            stack.callback(node.stop)
            node.start()
        with Admin(bootstrap_servers=both.bootstrap) as admin:
            both.until(lambda: owners(both, admin) == {1, 2}, "both have shards")
        yield both


def names() -> list[str]:
    """A group of each shard."""
    return [next(name for n in count() if partition_for(name := f"g{n}", SHARDS) == shard) for shard in range(SHARDS)]


def owner(nodes: Nodes, admin: Admin, group: str) -> int:
    address = admin.describe_group(group).coordinator
    return next((number for number, node in nodes.nodes.items() if node.address == address), 0)


def owners(nodes: Nodes, admin: Admin) -> set[int]:
    for name in names():
        admin.alter_offsets(name, {TopicPartition("orders", 0): 1})
    return {owner(nodes, admin, name) for name in names()}


class Group:
    """Two workers of one kind, in a group of a given shard."""

    def __init__(self, nodes: Nodes, kind: str, shard: int, how: str) -> None:
        base = f"{kind}-{how}"
        self.name = next(name for n in count() if partition_for(name := f"{base}-{n}", SHARDS) == shard)
        self.lost: list[TopicPartition] = []
        self.workers = [Worker(bootstrap_servers=nodes.bootstrap, group_id=self.name, **KINDS[kind]) for _ in range(2)]
        for worker in self.workers:
            worker.join(topics=["orders"], on_lose=lambda _, partition, event: self.lost.append(partition))

    def poll(self) -> None:
        for worker in self.workers:
            worker.poll(0.005)

    @property
    def shared(self) -> bool:
        owned = [partition for worker in self.workers for partition in worker.owned()]
        return len(owned) == len(set(owned)) == PARTITIONS and all(worker.owned() for worker in self.workers)

    def identities(self) -> list[GroupMetadata]:
        return [worker.group_metadata() for worker in self.workers]


@pytest.mark.parametrize("how", ["killed", "stopped", "frozen", "drained"])
def test_members_outlive_the_owner_of_their_shard(nodes: Nodes, how: str) -> None:
    with ExitStack() as stack:
        admin = stack.enter_context(Admin(bootstrap_servers=nodes.bootstrap))
        nodes.until(lambda: owners(nodes, admin) == {1, 2}, "both have shards")
        struck = 2
        shard = next(n for n, name in enumerate(names()) if owner(nodes, admin, name) == struck)
        groups = [Group(nodes, kind, shard, how) for kind in KINDS]

        def poll() -> None:
            for group in groups:
                group.poll()

        for group in groups:
            for worker in group.workers:
                stack.callback(worker.close)
        nodes.until(lambda: all(group.shared for group in groups), "each has its share", poll)
        admin.alter_offsets(f"by-hand-{how}", {TopicPartition("orders", 1): 5})
        before = {group.name: (group.identities(), len(admin.explain(group.name))) for group in groups}
        for group in groups:
            group.lost.clear()

        if how == "killed":
            nodes[struck].kill()
        elif how == "stopped":
            assert nodes[struck].stop() == 0
        elif how == "drained":
            assert main(["cluster", "drain", str(struck), "--bootstrap", nodes[1].address]) == 0
        else:
            nodes[struck].freeze()
        survivor = stack.enter_context(Admin(bootstrap_servers=nodes[1].address))
        nodes.until(
            lambda: all(owner(nodes, survivor, name) == 1 for name in names()), "the other one has all shards", poll
        )
        after = {group.name: (group.identities(), len(survivor.explain(group.name))) for group in groups}
        assert after == before
        assert [found.offset for found in survivor.group_offsets(f"by-hand-{how}").values()] == [5]
        for group in groups:
            moves = survivor.moves(group.name)
            assert (moves[0].from_node, moves[0].to_node) == (struck, 1), moves
        if how == "frozen":
            nodes[struck].thaw()
        elif how == "drained":
            assert main(["cluster", "undrain", str(struck), "--bootstrap", nodes[1].address]) == 0
        else:
            nodes[struck].start()
        nodes.until(lambda: owners(nodes, admin) == {1, 2}, "both have shards again", poll)
        nodes.until(lambda: all(group.shared for group in groups), "each has its share still", poll)
        assert [group.name for group in groups if group.lost] == []
        assert [group.identities() for group in groups] == [identities for identities, _ in before.values()]


def test_two_processes_of_one_node_id_do_not_both_run(nodes: Nodes, tmp_path: Path) -> None:
    """The later one has its place (KB-F2)."""
    first = nodes[2]
    later = NodeProcess(tmp_path / "later", dict(first.settings))
    later.start()
    try:
        assert first.wait(60) == 5
        assert "another process" in first.log_tail()
        assert f"{later.address} runs as node.id 2" in first.log_tail()
    finally:
        assert later.stop() == 0
        first.start()


def test_a_session_that_the_upstream_does_not_take_is_said(nodes: Nodes, tmp_path: Path) -> None:
    settings = {**nodes[1].settings, "node.id": "9", "engine.kafka.session.timeout.ms": "7200000"}
    node = NodeProcess(tmp_path / "nine", settings)
    node.start()
    assert node.wait(60) == 1
    assert "engine.kafka.session.timeout.ms is 7200000, which the upstream does not take" in node.log_tail()


def test_a_shard_that_moves_in_mid_rebalance_has_its_last_plan(nodes: Nodes) -> None:
    """As after a crash: who was joining joins again at the new owner, and nobody is removed (KB-H3)."""
    with ExitStack() as stack:
        admin = stack.enter_context(Admin(bootstrap_servers=nodes.bootstrap))
        nodes.until(lambda: owners(nodes, admin) == {1, 2}, "both have shards")
        shard = next(n for n, name in enumerate(names()) if owner(nodes, admin, name) == 2)
        group = next(name for n in count() if partition_for(name := f"mid-{n}", SHARDS) == shard)

        def worker() -> Worker:
            made = Worker(
                bootstrap_servers=nodes.bootstrap,
                group_id=group,
                **KINDS["classic"] | {"partition_assignment_strategy": "range"},
            )
            stack.callback(made.close)
            made.join(topics=["orders"])
            return made

        first = worker()
        nodes.until(lambda: len(first.owned()) == PARTITIONS, "the first has all", lambda: first.poll(0.005))
        planned = admin.describe_group(group)
        second = worker()
        nodes.until(
            lambda: admin.describe_group(group).state != "Stable",
            "the second is waited with",
            lambda: second.poll(0.005),
        )
        nodes[2].kill()
        survivor = stack.enter_context(Admin(bootstrap_servers=nodes[1].address))
        nodes.until(lambda: owner(nodes, survivor, group) == 1, "the other one has the shard")
        taken = survivor.describe_group(group)
        assert taken.generation == planned.generation
        # The second may be joining there already, with nothing yet.
        kept = next(member for member in taken.members if member.member_id == planned.leader)
        assert [kept.assignment] == [member.assignment for member in planned.members]
        moves = survivor.moves(group)
        assert (moves[0].from_node, moves[0].to_node) == (2, 1)
        assert moves[0].members >= 1, "of all groups of the shard"
        nodes[2].start()

        def both() -> None:
            first.poll(0.005)
            second.poll(0.005)

        nodes.until(lambda: {len(first.owned()), len(second.owned())} == {PARTITIONS // 2}, "each has its half", both)
        assert first.group_metadata().member_id == planned.leader
