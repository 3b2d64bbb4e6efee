"""Our own clients at three real nodes: leaders and coordinators are killed, frozen, stopped; nobody joins again."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muster.client import Admin, Consumer, Producer, RecordMetadata
from muster.client.errors import Refused, TopicExists
from muster.coordinator.zookeeper.local_ensemble import LocalEnsemble
from tests.support.cluster_nodes import ClusterNodes, running_cluster
from tests.support.pace import Patience

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

PARTITIONS = 6
PATIENCE_S = 60.0
SESSION_MS = 30_000
TIMED_OUT, TOO_FEW_NODES = 7, 38


@pytest.fixture(scope="module")
def cluster(zookeeper_server: LocalEnsemble, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterNodes]:
    """One for all, each test with a topic of its own: whoever kills a node starts it again."""
    chroot = f"{zookeeper_server.connect}/our-clients"
    with running_cluster(Path(tmp_path_factory.mktemp("cluster")), chroot) as running:
        yield running


class Work:
    """A producer of numbered records, and a member that reads and commits them; both begin at node 1 alone."""

    def __init__(self, cluster: ClusterNodes, name: str, protocol: str = "classic") -> None:
        self._cluster = cluster
        self.name = name
        bootstrap = cluster.nodes[1].address
        self.admin = Admin(bootstrap_servers=bootstrap)
        self._make()
        self.acked: dict[tuple[int, int], bytes] = {}
        self.failed: list[Exception] = []
        self.lost: list[object] = []
        self.read: dict[tuple[int, int], bytes | None] = {}
        self.twice = 0
        self._next = 0
        self._producer = Producer(bootstrap_servers=bootstrap)
        timeout = {"session_timeout_ms": SESSION_MS} if protocol != "consumer" else {}
        self.member = Consumer(
            bootstrap_servers=bootstrap,
            group_id=name,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **timeout,
        )
        self.member.subscribe([name], on_revoke=self._gone, on_lost=self._gone)
        self.send(60)
        self.catch_up()
        self.was = self.member.consumer_group_metadata()

    def _make(self) -> None:
        """The topic: once all nodes are live, and the one that is asked has a session at ZooKeeper."""
        patience = Patience(PATIENCE_S)
        while True:
            assert patience.lasts(), f"only {self.admin.nodes()} are live; {self._cluster.log_tail()}"
            try:
                self.admin.create_topic(self.name, PARTITIONS, replication_factor=len(self._cluster.nodes))
            except TopicExists:
                return
            except Refused as error:
                if error.code not in (TIMED_OUT, TOO_FEW_NODES):
                    raise
            else:
                return

    def _gone(self, *told: object) -> None:
        self.lost.append(told)

    def send(self, count: int) -> None:
        """So many; returns once all are acknowledged, or have failed."""
        for number in range(self._next, self._next + count):
            self._producer.produce(
                self.name, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._answered(b"%d" % number)
            )
        self._next += count
        self._producer.flush(PATIENCE_S)

    def _answered(self, value: bytes) -> Callable[[Exception | None, RecordMetadata | None], None]:
        def answered(error: Exception | None, where: RecordMetadata | None) -> None:
            if error is not None or where is None:
                self.failed.append(error or AssertionError("neither an error nor a place"))
            else:
                self.acked[where.partition, where.offset] = value

        return answered

    def catch_up(self) -> None:
        """Until the member has read what was acknowledged; then it commits."""
        patience = Patience(PATIENCE_S)
        while not self.acked.keys() <= self.read.keys():
            missing = sorted(self.acked.keys() - self.read.keys())[:5]
            assert patience.lasts(), f"{missing} were not read; {self._cluster.log_tail()}"
            for message in self.member.consume(500, 0.1):
                place = (message.partition, message.offset)
                self.twice += place in self.read
                self.read[place] = message.value
        self.member.commit()

    def leader_of(self, partition: int) -> int:
        """As the producer knows it, who has just written there."""
        leader = self._producer._core.transport.leaders.leader((self.name, partition))  # type: ignore[arg-type]
        return leader.node_id

    def check(self) -> None:
        assert self.failed == []
        assert len(self.acked) == self._next
        assert {place: value for place, value in self.acked.items() if self.read.get(place) != value} == {}
        assert len(set(self.read.values())) == len(self.read), "a record was written twice"
        assert (self.twice, self.lost) == (0, [])
        assert self.member.consumer_group_metadata() == self.was

    def close(self) -> None:
        self.member.close()
        self._producer.close()
        self.admin.close()


def test_each_node_is_killed_in_turn_and_no_member_hears_of_it(cluster: ClusterNodes) -> None:
    """CL-K3, CL-K4 and CL-K6: leader and coordinator are all of them at some time, the only bootstrap server first."""
    works = [Work(cluster, f"killed-{protocol}", protocol) for protocol in ("classic", "consumer", "central")]

    def go_on(count: int) -> None:
        for work in works:
            work.send(count)
        for work in works:
            work.catch_up()

    for victim in cluster.nodes.values():
        victim.kill()
        go_on(120)
        victim.start()
        go_on(60)
    for work in works:
        work.check()
        work.close()


def test_a_frozen_node_is_left_for_the_next_leader(cluster: ClusterNodes) -> None:
    """CL-K3: it takes what is sent to it, and says nothing."""
    work = Work(cluster, "frozen")
    frozen = work.leader_of(0)
    cluster.freeze(frozen)
    work.send(120)
    work.catch_up()
    assert work.leader_of(0) != frozen
    cluster.thaw(frozen)
    work.send(60)
    work.catch_up()
    work.check()
    work.close()


def test_a_rolling_restart_under_load_costs_nobody_anything(cluster: ClusterNodes) -> None:
    """CL-T4, with records under way all the time."""
    work = Work(cluster, "rolling")
    over = threading.Event()

    def keep_on() -> None:
        while not over.is_set():
            work.send(12)

    sender = threading.Thread(target=keep_on)
    sender.start()
    for node in cluster.nodes.values():
        assert node.stop() == 0
        node.start()
    over.set()
    sender.join()
    work.catch_up()
    work.check()
    work.close()


def test_operators_are_answered_by_whoever_is_left(cluster: ClusterNodes) -> None:
    """CL-K3: groups of all nodes, records and offsets at their leaders, by a client that knew one node only."""
    work = Work(cluster, "operated")
    cluster.nodes[1].kill()
    with Admin(bootstrap_servers=cluster.nodes[2].address) as admin:
        several = [f"several-{number}" for number in range(6)]
        for number, group in enumerate(several):
            admin.alter_offsets(group, {(work.name, 0): number})
        assert {work.name, *several} <= {group.group_id for group in admin.list_groups()}
        ends = admin.list_offsets({(work.name, number): -1 for number in range(PARTITIONS)})
        assert sum(at.offset for at in ends.values()) == len(work.acked)
        marks = admin.delete_records({(work.name, number): 2 for number in range(PARTITIONS)})
        assert set(marks.values()) == {2}
        admin.delete_groups(several)
        assert {group.group_id for group in admin.list_groups()} & {work.name, *several} == {work.name}
    cluster.nodes[1].start()
    work.close()
