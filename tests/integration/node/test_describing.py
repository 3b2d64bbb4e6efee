"""What a node tells of its members and of itself, beyond what Kafka's own requests ask for."""

import asyncio
from pathlib import Path

from muster.client.aio.admin import AsyncAdmin
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from tests.support.grpc_node import commit, connected, create_topic, groups, lone_member


def test_members_show_what_their_deadlines_are(tmp_path: Path) -> None:
    asyncio.run(look_at_members(tmp_path))


async def look_at_members(tmp_path: Path) -> None:
    async with groups(tmp_path) as (node, stub):
        await lone_member(stub)
        beat = pb.ConsumerGroupHeartbeatRequest(group_id="new", member_id="m", member_epoch=0, rebalance_timeout_ms=9)
        beat.subscribed_topic_names.names.append("t")
        beat.topic_partitions.SetInParent()
        assert (await stub.ConsumerGroupHeartbeat(beat)).error_code == 0
        async with AsyncAdmin({"bootstrap.servers": f"127.0.0.1:{node.bound.port}"}) as admin:
            classic, consumer = await admin.describe_groups(["g", "nobody", "new"])
            status = await admin.node_status()
    (old,), (new,) = classic.members, consumer.members
    assert (old.session_timeout_ms, old.rebalance_timeout_ms, old.heartbeat_interval_ms) == (30_000, 60_000, None)
    assert old.offered_assignors == ("range",)
    assert (new.session_timeout_ms, new.rebalance_timeout_ms, new.heartbeat_interval_ms) == (45_000, 9, 5_000)
    assert new.topics == ("t",)
    assert status.now_ms is not None
    assert status.started_at_ms is not None
    for member in (old, new):
        assert member.last_heard_ms is not None
        assert status.started_at_ms <= member.last_heard_ms <= status.now_ms
    assert status.open_descriptors is not None
    assert status.open_descriptors > 0


def test_members_show_how_many_of_their_commits_were_refused_in_a_row(tmp_path: Path) -> None:
    asyncio.run(refuse_commits(tmp_path))


async def refuse_commits(tmp_path: Path) -> None:
    async with groups(tmp_path) as (node, stub), connected(node) as channel:
        await create_topic(channel, "t", 1)
        member_id = await lone_member(stub)

        async def told_after(generation: int) -> tuple[int, str]:
            request = commit(1, 0, group_id="g")
            request.member_id, request.generation_id_or_member_epoch = member_id, generation
            await stub.OffsetCommit(request)
            async with AsyncAdmin({"bootstrap.servers": f"127.0.0.1:{node.bound.port}"}) as admin:
                (member,) = (await admin.describe_group("g")).members
            return member.refused_commits, member.refused_commit_code

        assert [await told_after(generation) for generation in (1, 7, 7, 1)] == [
            (0, ""),
            (1, "ILLEGAL_GENERATION"),
            (2, "ILLEGAL_GENERATION"),
            (0, ""),
        ]
