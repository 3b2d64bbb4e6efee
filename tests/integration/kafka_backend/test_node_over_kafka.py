"""A node whose state is in a real Kafka: members of each generation, kill -9, what it refuses, and how it stops."""

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.request import urlopen

import grpc
import pytest

from muster.client import Admin, Consumer, Worker
from muster.client.errors import ClientError
from muster.client.types import GroupMetadata, TopicPartition
from muster.coordinator.config import parse_address
from muster.coordinator.kafka_backend.upstream import record_requests as records_of
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamAddress
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.rpc.v1 import fence_service_pb2 as fence_pb
from muster.storage.records.batch import encode_written
from muster.storage.rpc.v1 import broker_service_pb2 as broker_pb
from muster.storage.rpc.v1 import staging_service_pb2 as staging_pb
from tests.support.kafka_backend.served import SHARDS, make_topics, over
from tests.support.node import MUSTER, NodeProcess, running_node
from tests.support.pace import Patience
from tests.support.stubs import BrokerStub, FencingStub, StagingStub

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

PATIENCE_S = 60.0
PARTITIONS: Final = 4
SESSION_MS: Final = 30_000
"""Well above what a restart takes here, on a busy machine too."""

CLASSIC: Final = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 300}
GENERATIONS: Final[dict[str, dict[str, Any]]] = {
    "eager": CLASSIC | {"partition_assignment_strategy": "range", "group_membership": "poll"},
    "cooperative": CLASSIC | {"partition_assignment_strategy": "cooperative-sticky", "group_membership": "poll"},
    "static": CLASSIC | {"partition_assignment_strategy": "range", "group_membership": "poll"},
    "pushed": CLASSIC | {"partition_assignment_strategy": "cooperative-sticky", "group_membership": "push"},
    "kip-848": {"group_protocol": "consumer", "group_membership": "poll"},
    "pushed kip-848": {"group_protocol": "consumer", "group_membership": "push"},
    "central": {"group_protocol": "central", "session_timeout_ms": SESSION_MS, "auto_offset_reset": "earliest"},
}
NODE: Final = {
    "group_consumer_session_timeout_ms": str(SESSION_MS),
    "group_consumer_min_session_timeout_ms": "1000",
    "group_consumer_min_heartbeat_interval_ms": "200",
    "group_consumer_heartbeat_interval_ms": "300",
    "group_consumer_assignment_interval_ms": "0",
    "http_listeners": "127.0.0.1:0",
}


class Reader:
    """A member that has to be a consumer; its records are in that Kafka, and there are none."""

    def __init__(self, given: dict[str, Any], lost: list[TopicPartition]) -> None:
        self._consumer = Consumer(**given)
        self._consumer.subscribe(["orders"], on_revoke=lambda _, partitions, event: lost.extend(partitions))
        self.told: set[str] = set()

    def poll(self, timeout_s: float) -> None:
        try:
            self._consumer.consume(1, timeout_s)
        except ClientError as error:
            self.told.add(str(error))

    def owned(self) -> frozenset[TopicPartition]:
        return frozenset(self._consumer.assignment())

    def group_metadata(self) -> GroupMetadata:
        return self._consumer.consumer_group_metadata()

    def close(self) -> None:
        self._consumer.close()


class Group:
    """Workers of one generation, and what they were told to let go of."""

    def __init__(self, address: str, generation: str) -> None:
        self.name, self.generation, self._address = f"of-{generation.replace(' ', '-')}", generation, address
        self.lost: list[TopicPartition] = []
        self.workers: list[Worker | Reader] = []

    def grow(self) -> None:
        named = {"group_instance_id": f"i{len(self.workers)}"} if self.generation == "static" else {}
        given = {"bootstrap_servers": self._address, "group_id": self.name} | GENERATIONS[self.generation] | named
        if self.generation == "central":
            self.workers.append(Reader(given, self.lost))
            return
        worker = Worker(**given)
        worker.join(topics=["orders"], on_lose=lambda _, partition, event: self.lost.append(partition))
        self.workers.append(worker)

    def poll(self) -> None:
        for worker in self.workers:
            worker.poll(0.005)

    @property
    def shared(self) -> bool:
        owned = [partition for worker in self.workers for partition in worker.owned()]
        return len(owned) == len(set(owned)) == PARTITIONS and all(worker.owned() for worker in self.workers)

    def identities(self) -> list[GroupMetadata]:
        return [worker.group_metadata() for worker in self.workers]


def until(
    holds: Callable[[], bool], what: str, node: NodeProcess, meanwhile: Callable[[], object] = lambda: None
) -> None:
    patience = Patience(PATIENCE_S)
    while not holds():
        assert patience.lasts(), f"not within {PATIENCE_S} s: {what}\n{node.log_tail()}"
        meanwhile()
        time.sleep(0.01)


@pytest.fixture(scope="module")
def node(real_kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    make_topics(real_kafka.address, {"orders": PARTITIONS})
    settings = over(real_kafka.address, "served", **NODE)
    with running_node(Path(tmp_path_factory.mktemp("over") / "node"), settings) as running:
        until(lambda: probe(running) == 200, "all shards are served", running)
        yield running


@pytest.fixture
def admin(node: NodeProcess) -> Iterator[Admin]:
    with Admin(bootstrap_servers=node.address) as admin:
        yield admin


def probe(node: NodeProcess) -> int:
    """Whether it is ready, by HTTP's code."""
    try:
        with urlopen(f"http://{node.http}/readyz", timeout=10) as answer:
            return int(answer.status)
    except OSError as error:
        return int(getattr(error, "code", 0))


class Standing(NamedTuple):
    """What may not change because the node does."""

    identities: list[GroupMetadata]
    owned: list[frozenset[TopicPartition]]
    rebalances: int


def standing(group: Group, admin: Admin) -> Standing:
    owned = [frozenset(worker.owned()) for worker in group.workers]
    return Standing(group.identities(), owned, len(admin.explain(group.name)))


def test_members_of_each_generation_outlive_a_killed_node(node: NodeProcess, admin: Admin) -> None:
    groups = [Group(node.address, generation) for generation in GENERATIONS]
    try:
        for group in groups:
            group.grow()
            group.grow()

        def poll() -> None:
            for group in groups:
                group.poll()

        until(lambda: all(group.shared for group in groups), "each has its share", node, poll)
        commit = {TopicPartition("orders", part): 7 + part for part in range(PARTITIONS)}
        admin.alter_offsets("by-hand", commit)
        before = {group.generation: standing(group, admin) for group in groups}
        for group in groups:
            group.lost.clear()

        node.kill()
        node.start()
        until(lambda: probe(node) == 200, "all shards are served again", node, poll)
        assert {group.generation: standing(group, admin) for group in groups} == before
        assert [group.generation for group in groups if group.lost] == []
        assert {place: found.offset for place, found in admin.group_offsets("by-hand").items()} == commit

        for group in groups:  # who speaks to the new process is known to it: one more of them, one more rebalance
            group.grow()
        until(lambda: all(group.shared for group in groups), "each has its share again", node, poll)
        for group in groups:
            told = [then.member_id for then in before[group.generation].identities]
            assert [now.member_id for now in group.identities()[:2]] == told, group.generation
    finally:
        for group in groups:
            for worker in group.workers:
                worker.close()


def test_topics_are_made_elsewhere_and_the_place_is_said(node: NodeProcess, admin: Admin) -> None:
    for refused in (lambda: admin.create_topic("more", 1), lambda: admin.delete_topics(["orders"])):
        with pytest.raises(ClientError, match="Topics are made, changed and removed in the Kafka cluster at"):
            refused()


def test_topics_and_the_ends_of_logs_are_the_upstreams(node: NodeProcess, admin: Admin) -> None:
    kafka = node.settings["engine"].removeprefix("kafka://")
    assert "orders" in admin.list_topics()
    described = admin.describe_topic("orders")
    assert (described.partitions, described.configs["cleanup.policy"]) == (PARTITIONS, "delete")
    write(kafka, "orders", 3, 5)
    listed = admin.list_offsets({TopicPartition("orders", 3): -1, TopicPartition("orders", 2): -2})
    assert {place.partition: found.offset for place, found in listed.items()} == {3: 5, 2: 0}
    admin.alter_offsets("lags", {TopicPartition("orders", 3): 2})
    assert [(row.partition.partition, row.lag) for row in admin.group_lag("lags")] == [(3, 3)]
    made = f"made-{time.monotonic_ns()}"
    make_topics(kafka, {made: 2})
    until(lambda: made in admin.list_topics(), "a topic that was made is seen", node)


def test_what_needs_a_log_of_the_nodes_own_is_refused(node: NodeProcess) -> None:
    with grpc.insecure_channel(node.address) as channel:
        staging = StagingStub(channel)
        for answer in (
            staging.StageRecords(staging_pb.StageRecordsRequest(sink="s", attempt="a")),
            staging.CommitStaged(staging_pb.CommitStagedRequest(sink="s")),
        ):
            assert (answer.error_code, "engine=bundled" in answer.error_message) == (35, True)
        claimed = FencingStub(channel).ClaimFence(fence_pb.ClaimFenceRequest(group_id="g", member_id="m", topic="t"))
        assert (claimed.error_code, "engine=bundled" in claimed.error_message) == (35, True)
        partition = broker_pb.ProducePartition(
            index=0, records=encode_written([(b"k", b"v", None)], 0, producer=(-1, -1, -1))
        )
        topic = broker_pb.ProduceTopic(name="orders", partition_data=[partition])
        produced = BrokerStub(channel).Produce(broker_pb.ProduceRequest(acks=-1, topic_data=[topic]))
        [refused] = produced.responses[0].partition_responses
        told = BrokerStub(channel).Metadata(broker_pb.MetadataRequest(all_topics=True))
    where = node.settings["engine"].removeprefix("kafka://")
    assert f"are written and read in the Kafka cluster at {where}" in refused.error_message
    assert [(each.records, each.records_bootstrap) for each in told.brokers] == [
        ("kafka", node.settings["engine"].removeprefix("kafka://"))
    ]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"offsets.topic.num.partitions": "5"},
            "offsets.topic.num.partitions is 5, but the upstream's served.state has 4",
        ),
        (
            {"engine.kafka.node.id.base": "1"},
            "has a broker of id 1, and Muster's nodes are told to clients as 1 and above",
        ),
        ({"engine.kafka.state.replication.factor": "2"}, "min.insync.replicas of the upstream's served.state is 1"),
        (
            {"engine": "kafka://127.0.0.1:1"},
            "engine is kafka://127.0.0.1:1, but no broker of the upstream at 127.0.0.1:1",
        ),
    ],
)
def test_an_upstream_that_will_not_do_is_refused_at_the_start(
    node: NodeProcess, given: dict[str, str], sentence: str
) -> None:
    settings = {**node.settings, "http.listeners": ""} | given
    command = [MUSTER, "serve", "--listen", "127.0.0.1:0"]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (ended.returncode, sentence in ended.stderr) == (1, True), ended.stderr


def test_a_page_and_figures_are_there(node: NodeProcess) -> None:
    for path in ("/", "/topics", "/topics/orders", "/ledger", "/nodes", "/metrics"):
        with urlopen(f"http://{node.http}{path}", timeout=30) as answer:
            assert answer.status == 200, path
            told = answer.read().decode()
    assert f"\nmuster_engine_owned_shards {float(SHARDS)}\n" in told
    assert '\nmuster_engine_append_seconds_bucket{le="+Inf"} ' in told


def test_what_was_decided_is_kept_by_a_node_that_is_asked_to_stop(node: NodeProcess, admin: Admin) -> None:
    admin.alter_offsets("last", {TopicPartition("orders", 0): 99})
    assert node.stop() == 0
    node.start()
    until(lambda: probe(node) == 200, "all shards are served again", node)
    assert [found.offset for found in admin.group_offsets("last").values()] == [99]


def write(kafka: str, topic: str, partition: int, records: int) -> None:
    """As any producer of that Kafka does."""

    async def produce() -> None:
        upstream = Upstream(UpstreamAddress((parse_address(kafka),)))
        try:
            await upstream.refresh([topic])
            batch = encode_written([(b"k", b"v", 0)] * records, 1_700_000_000_000, producer=(-1, -1, -1))
            told = await records_of.produce(
                upstream, upstream.leader(topic, partition), {(topic, partition): batch}, 5_000
            )
            assert told[topic, partition].code == 0
        finally:
            upstream.close()

    asyncio.run(produce())
