"""A node on loopback inside the test's own process, and the steps by which its groups come to life."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from muster.coordinator.config import Settings, load_settings
from muster.coordinator.errors import ErrorCode
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.node.node import CoordinatorNode
from muster.storage.rpc.v1 import broker_service_pb2 as storage_pb
from tests.support.stubs import BrokerStub, GroupCoordinatorStub


def settings(data: Path, **more: str) -> Settings:
    """A small node on a free port, whose groups form at once."""
    given = {
        "log.dirs": str(data),
        "listeners": "127.0.0.1:0",
        "http.listeners": "",
        "offsets.topic.num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
    }
    return load_settings(None, given | {key.replace("_", "."): value for key, value in more.items()})


@asynccontextmanager
async def serving(data: Path, **more: str) -> AsyncIterator[CoordinatorNode]:
    node = CoordinatorNode(settings(data, **more))
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


@asynccontextmanager
async def connected(node: CoordinatorNode, *, apart: bool = False) -> AsyncIterator[grpc.aio.Channel]:
    """`apart`: with a connection of its own; channels share one otherwise."""
    options = [("grpc.use_local_subchannel_pool", int(apart))]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{node.bound.port}", options=options) as channel:
        yield channel


@asynccontextmanager
async def groups(data: Path, **more: str) -> AsyncIterator[tuple[CoordinatorNode, GroupCoordinatorStub]]:
    async with serving(data, **more) as node, connected(node) as channel:
        yield node, GroupCoordinatorStub(channel)


def join_request(member_id: str = "", group_id: str = "g") -> pb.JoinGroupRequest:
    return pb.JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[pb.JoinGroupProtocol(name="range", metadata=b"")],
        client_id="c",
        reason="test",
    )


async def new_member_id(stub: GroupCoordinatorStub) -> str:
    """A member id by the two-step join."""
    first = await stub.JoinGroup(join_request())
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id.startswith("c-")
    return str(first.member_id)


async def lone_member(stub: GroupCoordinatorStub) -> str:
    """The only member, and leader, of a stable group in generation 1."""
    member_id = await new_member_id(stub)
    joined = await stub.JoinGroup(join_request(member_id))
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, member_id)
    synced = await stub.SyncGroup(
        pb.SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=member_id,
            assignments=[pb.SyncGroupAssignment(member_id=member_id, assignment=b"all")],
        )
    )
    assert (synced.error_code, synced.assignment) == (0, b"all")
    return member_id


async def parked_join(stub: GroupCoordinatorStub) -> "grpc.aio.UnaryUnaryCall[Any, Any]":
    """A second member's join, which waits for the first to rejoin."""
    call = stub.JoinGroup(join_request(await new_member_id(stub)))
    await prepared(stub)
    return call


async def prepared(stub: GroupCoordinatorStub) -> None:
    """Return once the group waits for its members: the newcomer's join is parked."""
    while await state_of(stub) != "PreparingRebalance":
        pass


async def state_of(stub: GroupCoordinatorStub) -> str:
    described = await stub.DescribeGroups(pb.DescribeGroupsRequest(groups=["g"]))
    return str(described.groups[0].group_state)


def commit(offset: int, *partitions: int, topic: str = "t", group_id: str = "s") -> pb.OffsetCommitRequest:
    positions = [pb.OffsetCommitPartition(partition_index=p, committed_offset=offset) for p in partitions]
    return pb.OffsetCommitRequest(group_id=group_id, topics=[pb.OffsetCommitTopic(name=topic, partitions=positions)])


async def create_topic(channel: grpc.aio.Channel, name: str, partitions: int) -> None:
    wanted = storage_pb.NewTopic(name=name, num_partitions=partitions)
    created = await BrokerStub(channel).CreateTopics(storage_pb.CreateTopicsRequest(topics=[wanted]))
    assert created.topics[0].error_code == 0
