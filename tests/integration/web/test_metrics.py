"""/metrics of a real node: what its groups and doors did is what is told of them."""

import asyncio
from pathlib import Path

import httpx
import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from muster.assignors.data.consumer_protocol import Subscription, encode_assignment, encode_subscription
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.node.node import CoordinatorNode
from tests.support.grpc_node import groups, join_request, new_member_id, serving
from tests.support.stubs import GroupCoordinatorStub

OPENMETRICS = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;q=0.1"

Found = dict[str, dict[frozenset[tuple[str, str]], float]]


def read(text: str) -> Found:
    found: Found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found


def value(found: Found, name: str, **labels: str) -> float:
    return found[name][frozenset(labels.items())]


async def scrape(node: CoordinatorNode, **headers: str) -> httpx.Response:
    assert node.http_bound is not None
    async with httpx.AsyncClient() as client:
        named = {name.replace("_", "-"): said for name, said in headers.items()}
        response = await client.get(f"http://{node.http_bound.host}:{node.http_bound.port}/metrics", headers=named)
    assert response.status_code == 200
    return response


async def a_member_of_two_partitions(node: CoordinatorNode, stub: GroupCoordinatorStub) -> str:
    """Group g: one member that has both partitions of topic t, and has committed nothing."""
    node.broker.create_topic("t", 2, {})
    member_id = await new_member_id(stub)
    joining = join_request(member_id)
    joining.protocols[0].metadata = encode_subscription(Subscription(version=1, topics=("t",)))
    joined = await stub.JoinGroup(joining)
    share = pb.SyncGroupAssignment(member_id=member_id, assignment=encode_assignment({"t": (0, 1)}))
    request = pb.SyncGroupRequest(
        group_id="g", generation_id=joined.generation_id, member_id=member_id, assignments=[share]
    )
    synced = await stub.SyncGroup(request)
    assert synced.error_code == 0
    return member_id


def test_what_a_group_and_the_doors_did(tmp_path: Path) -> None:
    async def run() -> None:
        async with groups(tmp_path, http_listeners="127.0.0.1:0", kafka_listeners="127.0.0.1:0") as (node, stub):
            member_id = await a_member_of_two_partitions(node, stub)
            beat = pb.HeartbeatRequest(group_id="g", member_id=member_id, generation_id=1)
            for _ in range(3):
                assert (await stub.Heartbeat(beat)).error_code == 0
            await stub.Heartbeat(pb.HeartbeatRequest(group_id="g", member_id="a stranger", generation_id=1))
            found = read((await scrape(node)).text)
        assert value(found, "kafka_consumergroup_members", consumergroup="g") == 1
        assert value(found, "kafka_consumergroup_lag", consumergroup="g", topic="t", partition="1") == -1
        assert value(found, "kafka_topic_partitions", topic="t") == 2
        assert value(found, "muster_group_rebalances_total", group="g", cause="member_joined") == 1
        assert value(found, "muster_group_partitions_moved_total", group="g", assignor="range") == 2
        assert value(found, "muster_group_rebalance_duration_seconds_count", group="g", protocol="classic") == 1
        assert value(found, "muster_group_unavailable_partition_seconds_total", group="g") >= 0
        assert value(found, "muster_group_unowned_partitions", group="g") == 0
        assert value(found, "muster_fenced_requests_total", group="g", reason="UNKNOWN_MEMBER_ID") == 1
        beats = {"door": "grpc", "api": "Heartbeat"}
        assert value(found, "muster_requests_total", **beats, code="NONE") == 3
        assert value(found, "muster_requests_total", **beats, code="UNKNOWN_MEMBER_ID") == 1
        assert value(found, "muster_request_duration_seconds_count", **beats) == 4
        assert value(found, "muster_request_duration_seconds_bucket", **beats, le="+Inf") == 4
        assert value(found, "muster_turn_duration_seconds_count") > 0
        assert value(found, "muster_flush_duration_seconds_count") > 0
        assert value(found, "muster_flushed_records_total") >= 2
        assert [value(found, "muster_shard_status", shard=str(n), status="active") for n in range(4)] == [1] * 4
        phases = {dict(labels)["phase"] for labels in found["muster_handoff_duration_seconds_count"]}
        assert phases == {"initial_delay", "plan", "settle"}
        assert value(found, "muster_connections", door="kafka") == 0
        assert value(found, "muster_unread_bytes", door="grpc") == 0
        assert value(found, "muster_log_bytes", topic="t") == 0
        assert value(found, "muster_log_bytes", topic="__consumer_offsets") > 0
        assert value(found, "kafka_brokers") == 1
        assert value(found, "muster_disk_free_bytes") > 0
        assert value(found, "process_resident_memory_bytes") > 0

    asyncio.run(run())


def test_http_s_own_door_is_counted_by_endpoint_and_status(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path, http_listeners="127.0.0.1:0") as node:
            assert node.http_bound is not None
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{node.http_bound.port}") as client:
                await client.get("/api/v1/groups/a%2Fb/lag")
                await client.get("/api/v1/groups/c/lag")
                await client.post("/api/v1/groups/c/delete", json={})
                await client.get("/healthz")
                await client.get("/healthz", headers={"host": "evil.example"})
                await client.get("/there/is/nothing")
                found = read((await client.get("/metrics")).text)
                assert value(found, "muster_connections", door="http") == 1
        http = [dict(labels) for labels in found["muster_requests_total"]]
        counted = {(row["api"], row["code"]) for row in http if row["door"] == "http"}
        lag = "/api/v1/groups/{group}/lag"
        assert counted == {
            (lag, "404"),
            ("POST /api/v1/groups/{group}/delete", "403"),
            ("/healthz", "NONE"),
            ("none", "421"),
            ("none", "404"),
        }
        assert value(found, "muster_requests_total", door="http", api=lag, code="404") == 2
        assert value(found, "muster_request_duration_seconds_count", door="http", api=lag) == 2

    asyncio.run(run())


def test_openmetrics_and_gzip_by_negotiation(tmp_path: Path) -> None:
    async def run() -> None:
        async with groups(tmp_path, http_listeners="127.0.0.1:0") as (node, stub):
            await a_member_of_two_partitions(node, stub)
            plain = await scrape(node, accept_encoding="identity")
            assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
            assert "content-encoding" not in plain.headers
            answer = await scrape(node, accept=OPENMETRICS, accept_encoding="gzip")
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
        families = {family.name: family.type for family in openmetrics.text_string_to_metric_families(answer.text)}
        assert families["muster_group_rebalances"] == "counter"
        assert families["muster_requests"] == "counter"
        assert answer.text.endswith("# EOF\n")

    asyncio.run(run())


def test_many_who_ask_at_once_get_the_one_answer(tmp_path: Path) -> None:
    async def run() -> None:
        async with groups(tmp_path, http_listeners="127.0.0.1:0") as (node, _):
            assert node.measuring is not None
            first, second = await asyncio.gather(node.measuring.scrape(""), node.measuring.scrape(""))
            assert first is second
            assert await node.measuring.scrape("") is not first

    asyncio.run(run())


def test_kafka_s_door_is_counted_by_code(tmp_path: Path) -> None:
    kafka = pytest.importorskip("kafka")

    async def run() -> None:
        async with groups(tmp_path, http_listeners="127.0.0.1:0", kafka_listeners="127.0.0.1:0") as (node, _):
            assert node.kafka_bound is not None
            address = f"{node.kafka_bound.host}:{node.kafka_bound.port}"

            def ask() -> None:
                admin = kafka.KafkaAdminClient(bootstrap_servers=address)
                admin.list_groups() if hasattr(admin, "list_groups") else admin.list_consumer_groups()
                admin.close()

            await asyncio.to_thread(ask)
            found = read((await scrape(node)).text)
        assert value(found, "muster_requests_total", door="kafka", api="ListGroups", code="NONE") >= 1
        assert value(found, "muster_request_duration_seconds_count", door="kafka", api="ApiVersions") >= 1

    asyncio.run(run())


def test_a_node_without_a_listener_counts_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with groups(tmp_path) as (node, stub):
            await stub.Heartbeat(pb.HeartbeatRequest(group_id="g", member_id="a", generation_id=1))
            assert node.measuring is None

    asyncio.run(run())
