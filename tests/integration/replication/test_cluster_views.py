"""What three real nodes tell of themselves, each of all: metadata, coordinators, lags of logs that others lead."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc
import httpx
import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka.admin import AdminClient, NewTopic

from muster.client import Admin
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.rpc.v1 import externalscaler_service_pb2 as keda
from muster.coordinator.rpc.v1.ledger_pb2 import RebalanceOutcome
from muster.coordinator.zookeeper.local_ensemble import LocalEnsemble
from tests.support.cluster_nodes import ClusterNodes, running_cluster
from tests.support.kafka.client import KafkaClient
from tests.support.stubs import ExternalScalerStub

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

PARTITIONS, GROUP = 6, "readers"
NODES = (1, 2, 3)
COMPLETED = RebalanceOutcome.REBALANCE_OUTCOME_COMPLETED
SHOWN = {
    "http.listeners": "127.0.0.1:0",
    "scaler.enable": "true",
    "group.consumer.assignors": "uniform,lag",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
}


@pytest.fixture(scope="module")
def cluster(zookeeper_server: LocalEnsemble, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterNodes]:
    chroot = f"{zookeeper_server.connect}/views-{uuid4().hex[:8]}"
    with running_cluster(tmp_path_factory.mktemp("nodes"), chroot, settings=SHOWN) as running:
        fill(running, "t")
        yield running


def fill(cluster: ClusterNodes, topic: str) -> None:
    """Make it, with one copy of each partition and one record more in each than in the one before."""
    admin = AdminClient({"bootstrap.servers": cluster.kafka_address})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    producer = KafkaProducer({"bootstrap.servers": cluster.kafka_address})
    for number in range(PARTITIONS):
        for _ in range(number + 1):
            producer.produce(topic, b"record", partition=number)
    assert producer.flush(30) == 0


def ask_each(cluster: ClusterNodes, api: str, version: int, **fields: object) -> list[Any]:
    async def all_of_them() -> list[Any]:
        answers = []
        for number in NODES:
            host, _, port = cluster.nodes[number].kafka_address.rpartition(":")
            async with KafkaClient(host, int(port)) as client:
                answers.append(await client.ask(api, version, **fields))
        return answers

    return asyncio.run(all_of_them())


def test_each_node_tells_of_all_nodes_all_topics_and_one_controller(cluster: ClusterNodes) -> None:
    metadata = ask_each(cluster, "Metadata", 12, topics=None)
    described = ask_each(cluster, "DescribeCluster", 1)
    addresses = [(number, cluster.nodes[number].kafka_address) for number in NODES]
    for answer in (*metadata, *described):
        ids = [getattr(each, "broker_id", None) or each.node_id for each in answer.brokers]
        assert [(at, f"{each.host}:{each.port}") for at, each in zip(ids, answer.brokers, strict=True)] == addresses
    assert len({answer.controller_id for answer in (*metadata, *described)}) == 1
    assert len({answer.cluster_id for answer in (*metadata, *described)}) == 1
    tables = [{topic.name: topic.partitions for topic in answer.topics} for answer in metadata]
    assert tables[0] == tables[1] == tables[2]
    assert {part.leader_id for part in tables[0]["t"]} == {*NODES}, "one copy each, on all nodes"
    assert {part.error_code for parts in tables[0].values() for part in parts} == {0}


def committed(cluster: ClusterNodes) -> int:
    """The group's coordinator, after it has taken a commit for each partition."""
    [found] = {answer.coordinators[0].node_id for answer in coordinators(cluster)}
    part = struct("OffsetCommitRequest.topics.partitions")
    parts = [part(partition_index=number, committed_offset=1, committed_metadata="") for number in range(PARTITIONS)]
    topics = [struct("OffsetCommitRequest.topics")(name="t", partitions=parts)]
    answers = ask_each(cluster, "OffsetCommit", 8, group_id=GROUP, topics=topics)
    codes = [{part.error_code for part in answer.topics[0].partitions} for answer in answers]
    assert codes == [{0 if number == found else 16} for number in NODES]
    return found


def coordinators(cluster: ClusterNodes) -> list[Any]:
    return ask_each(cluster, "FindCoordinator", 4, key_type=0, coordinator_keys=[GROUP])


def test_a_group_is_its_coordinators_and_its_lag_counts_logs_of_all_nodes(cluster: ClusterNodes) -> None:
    coordinator = committed(cluster)
    listed = ask_each(cluster, "ListGroups", 4)
    assert [answer.error_code for answer in listed] == [0, 0, 0]
    assert [GROUP in {row.group_id for row in answer.groups} for answer in listed] == [
        number == coordinator for number in NODES
    ]
    for number in NODES:
        with Admin({"bootstrap.servers": cluster.nodes[number].address}) as admin:
            lags = admin.group_lag(GROUP)
            assert [(each.log_end, each.lag) for each in lags] == [(at + 1, at) for at in range(PARTITIONS)]


def test_settings_of_a_group_are_had_from_any_node(cluster: ClusterNodes) -> None:
    """As Kafka's tools ask for them."""
    path = "IncrementalAlterConfigsRequest.resources"
    for number in NODES:
        value = str(1_000 * number)
        row = struct(f"{path}.configs")(name="handoff.timeout.ms", config_operation=0, value=value)
        resource = struct(path)(resource_type=32, resource_name=GROUP, configs=[row])
        altered = ask_each(cluster, "IncrementalAlterConfigs", 1, resources=[resource])
        assert [answer.responses[0].error_code for answer in altered] == [0, 0, 0]
        wanted = struct("DescribeConfigsRequest.resources")(
            resource_type=32, resource_name=GROUP, configuration_keys=["handoff.timeout.ms"]
        )
        for answer in ask_each(cluster, "DescribeConfigs", 4, resources=[wanted]):
            assert (answer.results[0].error_code, answer.results[0].configs[0].value) == (0, value)
    # Kafka's admin client asks one node, whichever has least to do, which groups have settings.
    for answer in ask_each(cluster, "ListConfigResources", 1, resource_types=[32]):
        assert (answer.error_code, [row.resource_name for row in answer.config_resources]) == (0, [GROUP])


def test_the_page_of_a_group_is_at_its_coordinator(cluster: ClusterNodes) -> None:
    coordinator = committed(cluster)
    path = f"/api/v1/groups/{GROUP}/lag"
    for number in NODES:
        answer = httpx.get(f"http://{cluster.nodes[number].http}{path}")
        if number != coordinator:
            assert answer.status_code == 307
            assert answer.headers["location"] == f"http://{cluster.nodes[coordinator].http}{path}"
            answer = httpx.get(answer.headers["location"])
        assert answer.status_code == 200
        assert sorted(row["lag"] for row in answer.json()) == [*range(PARTITIONS)]


def test_a_scaler_is_told_the_same_by_every_node(cluster: ClusterNodes) -> None:
    committed(cluster)
    rule = {"consumerGroup": GROUP, "topic": "t", "lagThreshold": "1", "allowIdleConsumers": "true"}
    ref = keda.ScaledObjectRef(name="worker", namespace="default", scalerMetadata=rule)
    gone = keda.ScaledObjectRef(name="worker", namespace="default", scalerMetadata=rule | {"topic": "none"})
    for node in cluster.nodes.values():
        with grpc.insecure_channel(node.address) as channel:
            stub = ExternalScalerStub(channel)
            found = stub.GetMetrics(keda.GetMetricsRequest(scaledObjectRef=ref), timeout=30).metricValues[0]
            assert found.metricValue == sum(range(PARTITIONS))
            assert stub.IsActive(ref, timeout=30).result
            assert next(iter(stub.StreamIsActive(ref, timeout=30))).result
            with pytest.raises(grpc.RpcError, match="there is no topic 'none'") as refusal:
                stub.IsActive(gone, timeout=30)
            assert refusal.value.code() is grpc.StatusCode.NOT_FOUND


def test_an_assignor_by_lag_waits_for_what_other_nodes_say_of_their_logs(cluster: ClusterNodes) -> None:
    """Of a topic that nobody has measured yet."""
    fill(cluster, "unseen")
    given = {"bootstrap.servers": cluster.kafka_address, "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    consumer = KafkaConsumer(given | {"group.id": "by-lag", "group.remote.assignor": "lag"})
    consumer.subscribe(["unseen"])
    read = [0] * PARTITIONS
    while sum(read) < PARTITIONS * (PARTITIONS + 1) // 2:
        message = consumer.poll(30)
        assert message is not None, "its plan did not come"
        assert message.error() is None
        read[message.partition()] += 1
    consumer.close()
    assert read == [number + 1 for number in range(PARTITIONS)]
    with Admin({"bootstrap.servers": cluster.address}) as admin:
        joined = admin.explain("by-lag")[-1]
    assert (joined.number, joined.protocol_name, joined.outcome) == (1, "lag", COMPLETED), joined
    logs = [Path(f"{node.data}.log").read_text() for node in cluster.nodes.values()]
    assert not any("assignor_failed" in log for log in logs), "its first plan was one"
