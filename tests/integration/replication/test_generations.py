"""A member of every generation loses its coordinator, which is killed or stands still, and hears nothing (CL-K4,
CL-G7).

All groups are of one shard, so that one node coordinates them all: it is struck once, and each generation is asked.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from muster.client import Admin, Consumer, Producer, Worker
from muster.client.errors import ClientError
from muster.client.types import GroupMetadata
from muster.coordinator.rpc.v1.ledger_pb2 import RebalanceCause
from muster.coordinator.runtime.shards import partition_for
from muster.coordinator.zookeeper.local_ensemble import LocalEnsemble
from tests.support.cluster_nodes import SHARDS, ClusterNodes, running_cluster
from tests.support.pace import Patience

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

PATIENCE_S = 60.0
PARTITIONS: Final = 4
SHARD: Final = 1
SESSION_MS: Final = 20_000
"""Well above what a failover takes here, on a busy machine too: undisturbed is who has that (CL-K4)."""

NODE = {
    "group.initial.rebalance.delay.ms": "100",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.assignment.interval.ms": "0",
}
CLASSIC: Final = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 500}

GENERATIONS: dict[str, dict[str, Any]] = {
    "eager": CLASSIC | {"partition_assignment_strategy": "range", "group_membership": "poll"},
    "cooperative": CLASSIC | {"partition_assignment_strategy": "cooperative-sticky", "group_membership": "poll"},
    "static": CLASSIC | {"partition_assignment_strategy": "range", "group_membership": "poll"},
    "pushed": CLASSIC | {"partition_assignment_strategy": "cooperative-sticky", "group_membership": "push"},
    "kip-848": {"group_protocol": "consumer", "group_membership": "poll"},
    "pushed kip-848": {"group_protocol": "consumer", "group_membership": "push"},
    "central": {"group_protocol": "central", "session_timeout_ms": SESSION_MS},
    "worker": CLASSIC,
    "zookeeper": {"group_protocol": "zookeeper", "offsets_storage": "kafka", "rebalance_backoff_ms": 300},
}


class Standing(NamedTuple):
    """What may not change because a coordinator does."""

    identities: tuple[GroupMetadata, ...]
    owned: tuple[frozenset[Any], ...]
    rebalances: int


class Group:
    """Two members, and what they were told to let go of."""

    def __init__(self, cluster: ClusterNodes, generation: str, how: str) -> None:
        base = f"{generation.replace(' ', '-')}-{how}"
        self.name = next(name for n in count() if partition_for(name := f"{base}-{n}", SHARDS) == SHARD)
        self.topic = f"of-{self.name}"
        self.told: list[object] = []
        self.read = 0
        self._cluster = cluster
        self._generation = generation
        self.members: list[Any] = []

    def join(self, connect: str) -> None:
        """Once the topic is there."""
        generation = self._generation
        settings = GENERATIONS[generation] | ({"zookeeper_connect": connect} if generation == "zookeeper" else {})
        if generation == "worker":
            self.members = [self._worker(settings) for _ in range(2)]
        else:
            static = [{"group_instance_id": f"i{n}"} if generation == "static" else {} for n in range(2)]
            self.members = [self._consumer(settings | more) for more in static]

    def _worker(self, settings: dict[str, Any]) -> Worker:
        made = Worker(bootstrap_servers=self._cluster.address, group_id=self.name, **settings)
        made.join(resources=[f"r{n}" for n in range(PARTITIONS)], on_lose=self._gone)
        return made

    def _consumer(self, settings: dict[str, Any]) -> Consumer:
        given = {"auto_offset_reset": "earliest", "enable_auto_commit": False} | settings
        if settings.get("group_protocol") != "zookeeper":
            given["bootstrap_servers"] = self._cluster.address
        made = Consumer(group_id=self.name, **given)
        made.subscribe([self.topic], on_revoke=self._gone, on_lost=self._gone)
        return made

    def _gone(self, *told: object) -> None:
        self.told.append(told)

    def poll(self) -> None:
        for member in self.members:
            if isinstance(member, Worker):
                member.poll(0.005)
            else:
                self.read += len(member.consume(100, 0.005))

    @property
    def shared(self) -> bool:
        owned = self._owned()
        return all(len(each) == PARTITIONS / 2 for each in owned) and len(frozenset().union(*owned)) == PARTITIONS

    def _owned(self) -> tuple[frozenset[Any], ...]:
        return tuple(
            frozenset(member.owned() if isinstance(member, Worker) else member.assignment()) for member in self.members
        )

    def has_read(self, records: int) -> bool:
        return self.read >= records or isinstance(self.members[0], Worker)

    def commit(self) -> None:
        for member in self.members:
            if isinstance(member, Consumer):
                member.commit()

    def standing(self, admin: Admin) -> Standing:
        identities = [
            member.group_metadata() if isinstance(member, Worker) else member.consumer_group_metadata()
            for member in self.members
        ]
        return Standing(tuple(identities), self._owned(), len(admin.explain(self.name)))

    def close(self) -> None:
        for member in self.members:
            member.close()


class Play:
    """All generations at once."""

    def __init__(self, cluster: ClusterNodes, connect: str, stack: ExitStack, how: str) -> None:
        self.cluster = cluster
        self.admin = stack.enter_context(Admin({"bootstrap.servers": cluster.address}))
        self._producer = stack.enter_context(Producer({"bootstrap.servers": cluster.address}))
        self._sent = 0
        self._until_whole()
        self.groups: dict[str, Group] = {}
        for generation in GENERATIONS:
            group = self.groups[generation] = Group(cluster, generation, how)
            if generation != "worker":
                self.admin.create_topic(group.topic, PARTITIONS)
            stack.callback(group.close)
            group.join(connect)
        self.until(lambda group: group.shared, "both members have half")
        self.send_and_read()
        for group in self.groups.values():
            group.told.clear()

    def _until_whole(self) -> None:
        patience = Patience(PATIENCE_S)
        while True:
            told = self.admin.describe_cluster()
            if len(self.admin.nodes()) == len(self.cluster.nodes) and not told.under_replicated_count:
                return
            assert patience.lasts(), self.cluster.log_tail()
            time.sleep(0.05)

    def until(self, condition: Callable[[Group], bool], what: str) -> None:
        patience = Patience(PATIENCE_S)
        while missing := [name for name, group in self.groups.items() if not condition(group)]:
            assert patience.lasts(), f"{missing}: not within {PATIENCE_S} s: {what}\n{self.cluster.log_tail()}"
            for group in self.groups.values():
                group.poll()

    def send_and_read(self) -> None:
        """Records for everybody, which are read and committed."""
        for group in self.groups.values():
            for number in range(PARTITIONS * 5 if not isinstance(group.members[0], Worker) else 0):
                self._producer.produce(group.topic, b"%d" % number, partition=number % PARTITIONS)
        self._producer.flush(PATIENCE_S)
        self._sent += PARTITIONS * 5
        self.until(lambda group: group.has_read(self._sent), f"{self._sent} records were read")
        for group in self.groups.values():
            patience = Patience(PATIENCE_S)
            while True:
                try:
                    group.commit()
                    break
                except ClientError:
                    assert patience.lasts(), f"{group.name} to commit"
                    self._poll_all()

    def _poll_all(self) -> None:
        for group in self.groups.values():
            group.poll()

    def standings(self) -> dict[str, Standing]:
        return {generation: group.standing(self.admin) for generation, group in self.groups.items()}

    def coordinator(self) -> int:
        address = self.admin.describe_group(self.groups["eager"].name).coordinator
        return next(number for number, node in self.cluster.nodes.items() if node.address == address)


class Struck(NamedTuple):
    node: int
    play: Play
    before: dict[str, Standing]
    after: dict[str, Standing]


@pytest.fixture(scope="module")
def connect(zookeeper_server: LocalEnsemble) -> str:
    return f"{zookeeper_server.connect}/generations"


@pytest.fixture(scope="module")
def cluster(connect: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterNodes]:
    with running_cluster(Path(tmp_path_factory.mktemp("cluster")), connect, settings=NODE) as running:
        yield running


@pytest.fixture(scope="module", params=["killed", "frozen"])
def struck(request: pytest.FixtureRequest, cluster: ClusterNodes, connect: str) -> Iterator[Struck]:
    """The coordinator of all groups was struck, others took over, and it came back."""
    with ExitStack() as stack:
        play = Play(cluster, connect, stack, request.param)
        before, node = play.standings(), play.coordinator()
        if request.param == "killed":
            cluster.nodes[node].kill()
        else:
            cluster.freeze(node)
        play.send_and_read()
        assert play.coordinator() != node
        if request.param == "killed":
            cluster.nodes[node].start()
        else:
            cluster.thaw(node)
        play.send_and_read()
        play.until(lambda group: group.shared, "all have what they had")
        yield Struck(node, play, before, play.standings())


@pytest.mark.parametrize("generation", [name for name in GENERATIONS if name != "zookeeper"])
def test_a_member_outlives_its_coordinator_undisturbed(struck: Struck, generation: str) -> None:
    group = struck.play.groups[generation]
    assert struck.after[generation] == struck.before[generation]
    assert group.told == []
    assert struck.node in {move.from_node for move in struck.play.admin.moves(group.name)}


def test_a_group_of_the_zookeeper_era_rebalances_as_its_own_rule_says_and_its_ledger_goes_on(struck: Struck) -> None:
    """Members of that era share anew whenever a broker comes or goes. Nobody has another id or other partitions for it,
    and who watches since tells of nothing else (CL-G10); of what happened as it began it says that it did not see
    why."""
    before, after = struck.before["zookeeper"], struck.after["zookeeper"]
    group = struck.play.groups["zookeeper"]
    assert after.owned == before.owned
    assert [each.member_id for each in after.identities] == [each.member_id for each in before.identities]
    new = struck.play.admin.explain(group.name)[: after.rebalances - before.rebalances]
    meant = {RebalanceCause.REBALANCE_CAUSE_BROKERS_CHANGED, RebalanceCause.REBALANCE_CAUSE_UNSPECIFIED}
    others = [entry for entry in new if entry.cause not in meant]
    assert others == []
