"""What a real node's log says of rebalances and of operators, through both doors."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from muster.client.aio.admin import AsyncAdmin
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from tests.support.grpc_node import connected, lone_member, serving
from tests.support.stubs import GroupCoordinatorStub

pytestmark = pytest.mark.integration


def work(data: Path, **settings: str) -> list[dict[str, Any]]:
    with capture_logs() as logged:
        asyncio.run(busy_node(data, settings))
    return [dict(line) for line in logged if line["event"] in ("rebalance", "admin")]


async def busy_node(data: Path, settings: dict[str, str]) -> None:
    async with serving(data, **settings) as node, connected(node) as channel:
        stub = GroupCoordinatorStub(channel)
        member = await lone_member(stub)
        await stub.Heartbeat(pb.HeartbeatRequest(group_id="g", member_id=member, generation_id=1))
        async with AsyncAdmin({"bootstrap.servers": f"127.0.0.1:{node.bound.port}"}) as admin:
            await admin.create_topic("t", 1)
            await admin.create_topic("t2", 1, validate_only=True)
            await admin.remove_members("g", [member], reason="it hangs")
            await admin.alter_offsets("g", {("t", 0): 0})
        if node.kafka_bound is not None:
            await asyncio.to_thread(delete_by_kafka, node.kafka_bound.port)


def delete_by_kafka(port: int) -> None:
    from kafka.admin import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{port}")
    try:
        admin.delete_topics(["t"])
    finally:
        admin.close()


def test_each_rebalance_and_each_change_is_one_line(tmp_path: Path) -> None:
    lines = work(tmp_path)
    rebalances = [line for line in lines if line["event"] == "rebalance"]
    assert [(line["rebalance"], line["cause"], line["outcome"]) for line in rebalances] == [
        (1, "member_joined", "completed"),
        (2, "operator", "emptied"),
    ]
    assert rebalances[0]["culprit"] == "c@127.0.0.1"
    admin = [(line["action"], line["of"], line["by"], line["refused"]) for line in lines if line["event"] == "admin"]
    assert admin == [
        ("CreateTopics", "t", "127.0.0.1", 0),
        ("RemoveMembers", "g", "127.0.0.1", 0),
        ("OffsetCommit", "g", "127.0.0.1", 0),
    ]
    removal = next(line for line in lines if line.get("action") == "RemoveMembers")
    assert removal["reason"] == "it hangs"
    assert removal["software"].startswith("muster-python")


def test_kafkas_door_tells_of_operators_too(tmp_path: Path) -> None:
    pytest.importorskip("kafka")
    lines = work(tmp_path, kafka_listeners="127.0.0.1:0")
    deleted = next(line for line in lines if line.get("action") == "DeleteTopics")
    assert (deleted["of"], deleted["door"], deleted["by"], deleted["refused"]) == ("t", "kafka", "127.0.0.1", 0)
    assert deleted["software"].startswith("kafka-python")
