"""What `muster doctor` asks of a node with many groups."""

import asyncio
from pathlib import Path

import pytest

from muster.cli.node_polling import gather_facts
from muster.client.aio import AsyncAdmin
from muster.coordinator.observability.doctor.model import partition_name
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.node.node import CoordinatorNode
from tests.support.grpc_node import commit, connected, create_topic, serving
from tests.support.stubs import GroupCoordinatorStub
from tests.unit.storage.logs import T0, batch

pytestmark = pytest.mark.integration

GROUPS = 7


async def lone(stub: GroupCoordinatorStub, group_id: str) -> None:
    """A group with one member, which owns both partitions of `t` and has committed in the first."""
    beat = pb.ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id="m",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=pb.SubscribedTopicNames(names=["t"]),
        topic_partitions=pb.ConsumerAssignment(),
    )
    joined = await stub.ConsumerGroupHeartbeat(beat)
    request = commit(1, 0, group_id=group_id)
    request.member_id, request.generation_id_or_member_epoch = "m", joined.member_epoch
    assert (await stub.OffsetCommit(request)).error_code == 0


def asked(node: CoordinatorNode) -> dict[str, int]:
    """How often which call was answered."""
    assert node.measuring is not None
    return {api: meter.count for (door, api), meter in node.measuring.instruments.meters.items() if door == "grpc"}


def test_a_group_costs_three_calls_and_each_has_all_its_positions(tmp_path: Path) -> None:
    async def run() -> None:
        more = {"http_listeners": "127.0.0.1:0", "group_consumer_assignment_interval_ms": "0"}
        async with serving(tmp_path, **more) as node, connected(node) as channel:
            await create_topic(channel, "t", 2)
            node.broker.append("t", 0, batch(b"a", b"b", b"c"), T0)
            node.broker.flush()
            for number in range(GROUPS):
                await lone(GroupCoordinatorStub(channel), f"g{number}")
            before = asked(node)
            async with AsyncAdmin(bootstrap_servers=f"127.0.0.1:{node.bound.port}") as admin:
                facts = await gather_facts(admin, (), 0.001, pytest.fail)
            calls = {api: count - before[api] for api, count in asked(node).items() if count > before[api]}
            assert (calls.pop("OffsetFetch"), calls.pop("ExplainGroup")) == (2 * GROUPS, GROUPS)
            assert sum(calls.values()) <= 6, calls
            assert len(facts.groups) == GROUPS
            for group in facts.groups:
                found = {partition_name(tp): (at.committed, at.log_end, at.lag) for tp, at in group.positions.items()}
                assert found == {"t-0": (1, 3, 2), "t-1": (None, 0, 0)}
                assert group.earlier.keys() == group.positions.keys()
                assert [entry.number for entry in group.ledger] == [1]

    asyncio.run(run())
