"""Several members of one process on one stream: real clients, a real node, and a process that is killed."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import grpc
import pytest

from muster.client import aio
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.node.node import CoordinatorNode
from muster.coordinator.server.services import group_coordinator as groups_service
from tests.integration.conftest import Run
from tests.support.grpc_node import connected, create_topic, groups, lone_member, serving
from tests.support.stubs import GroupCoordinatorStub

pytestmark = pytest.mark.integration

SERVICE = "/coordinator.rpc.v1.GroupCoordinator/"
LONG = {"session.timeout.ms": 1_800_000, "heartbeat.interval.ms": 900_000}
"""Nobody is missed by the clock, and nobody is told by a heartbeat, as long as a test lasts."""
LONG_ON_THE_NODE = {
    "group_consumer_max_session_timeout_ms": "1800000",
    "group_consumer_session_timeout_ms": "1800000",
    "group_consumer_assignment_interval_ms": "0",
}

PROCESS = """
import sys, time
from muster.client import Consumer, Worker
address = sys.argv[1]
slow = {"session.timeout.ms": 1_800_000, "heartbeat.interval.ms": 900_000}
readers = [Consumer({"bootstrap.servers": address, "group.id": "readers", "group.protocol": "consumer"}) for _ in "123"]
hands = [Worker({"bootstrap.servers": address, "group.id": "hands", **slow}) for _ in "12"]
for reader in readers:
    reader.subscribe(["t"])
for hand in hands:
    hand.join(["t"])
while True:
    for member in (*readers, *hands):
        member.poll(0.01)
"""


def streams(node: CoordinatorNode) -> dict[str, int]:
    """How many are open, by call."""
    return {name: node.methods.stats[SERVICE + name].in_flight for name in ("Session", "SharedSession")}


def listening(node: CoordinatorNode) -> int:
    """Members that are told what is new as soon as it is true."""
    return sum(session._listening is not None for session in node._sessions._open.values())


async def until(true: Callable[[], bool]) -> None:
    """The story has a limit of its own."""
    while not true():
        await breath()


async def breath() -> None:
    await asyncio.sleep(0.002)


@asynccontextmanager
async def crew(
    node: CoordinatorNode, group: str, size: int, protocol: str = "classic"
) -> AsyncIterator[list[aio.AsyncWorker]]:
    """So many workers of a group in this process, each on duty; whoever is closed is off."""
    given = {"bootstrap.servers": f"127.0.0.1:{node.bound.port}", "group.id": group, "group.protocol": protocol}
    workers = [aio.AsyncWorker(given | (LONG if protocol == "classic" else {})) for _ in range(size)]
    duties = []
    for worker in workers:
        await worker.join(["t"])
        duties.append(asyncio.create_task(worker.run()))
    try:
        await until(lambda: share(workers) == [8 // size] * size)
        yield workers
    finally:
        for worker in workers:
            await worker.close()
        await asyncio.gather(*duties, return_exceptions=True)


def share(workers: list[aio.AsyncWorker]) -> list[int]:
    return [len(worker.owned()) for worker in workers]


@asynccontextmanager
async def node_with_topic(data: Path, **more: str) -> AsyncIterator[tuple[CoordinatorNode, GroupCoordinatorStub]]:
    async with serving(data, **LONG_ON_THE_NODE, **more) as node, connected(node, apart=True) as channel:
        await create_topic(channel, "t", 8)
        yield node, GroupCoordinatorStub(channel)


def test_members_of_two_groups_share_one_stream_and_hear_of_rebalances_on_it(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with node_with_topic(tmp_path) as (node, _stub):
            async with crew(node, "one", 2) as ones, crew(node, "two", 2, "consumer") as twos:
                await until(lambda: len(node._sessions) == 4)
                assert streams(node) == {"Session": 0, "SharedSession": 1}
                # Who opened it goes, and its connection is not closed under the others.
                await ones[0].close()
                await until(lambda: share(ones) == [0, 8] and len(node._sessions) == 3)
                await twos[1].close()
                await until(lambda: share(twos) == [8, 0] and len(node._sessions) == 2)
                assert streams(node) == {"Session": 0, "SharedSession": 1}
            await until(lambda: streams(node) == {"Session": 0, "SharedSession": 0})
            assert len(node._sessions) == 0

    run(story)


@pytest.mark.parametrize("how", ["is not told of it", "is told, and the coordinator does not know it"])
def test_a_node_without_shared_streams_has_one_for_each_member(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async def story() -> None:
        async with node_with_topic(tmp_path) as (node, _stub):
            if how == "is not told of it":
                monkeypatch.setattr(groups_service, "MEMBERS_PER_STREAM", 0)
            else:
                del node.methods._handlers[SERVICE + "SharedSession"]
            async with crew(node, "one", 2) as ones:
                await until(lambda: len(node._sessions) == 2)
                assert streams(node) == {"Session": 2, "SharedSession": 0}
                await ones[0].close()
                await until(lambda: share(ones) == [0, 8])

    run(story)


def test_a_shard_that_goes_moves_its_members_and_nobody_else(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with node_with_topic(tmp_path) as (node, _stub), AsyncExitStack() as stack:
            crews = [await stack.enter_async_context(crew(node, name, 2)) for name in ("one", "two")]
            await until(lambda: len(node._sessions) == 4)
            shards = {session.shard for session in node._sessions._open.values()}
            assert len(shards) == 2, "the names are such"
            stayed = set(node._sessions._open.values())
            gone = {session for session in stayed if session.shard == min(shards)}
            node._sessions.end_shard(min(shards))
            await until(lambda: len(node._sessions) == 4 and not gone & set(node._sessions._open.values()))
            assert stayed - gone <= set(node._sessions._open.values())
            assert streams(node) == {"Session": 0, "SharedSession": 1}
            assert [share(each) for each in crews] == [[4, 4], [4, 4]]

    run(story)


@contextmanager
def five_members(node: CoordinatorNode) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", PROCESS, f"127.0.0.1:{node.bound.port}"]
    process = subprocess.Popen(command)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("members_per_stream", [256, 0], ids=["shared", "own"])
def test_a_killed_process_is_missed_by_the_end_of_its_stream_with_all_its_members(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, members_per_stream: int
) -> None:
    """Sessions last half an hour: whoever is missed before is missed because of the stream."""

    async def story() -> None:
        monkeypatch.setattr(groups_service, "MEMBERS_PER_STREAM", members_per_stream)
        async with node_with_topic(tmp_path, group_reconnect_grace_ms="1") as (node, stub):
            with five_members(node) as process:
                # All are on their streams, and have said what there was to say: nothing else is on its way.
                while await members(stub) != [3, 2] or [node.driver.waiting, listening(node)] != [5, 5]:
                    await breath()
                assert sum(streams(node).values()) == (1 if members_per_stream else 5)
                process.kill()
                while await members(stub) != [0, 0]:
                    await breath()
            assert len(node._sessions) == 0
            assert streams(node) == {"Session": 0, "SharedSession": 0}

    run(story)


async def members(stub: GroupCoordinatorStub) -> list[int]:
    consumers = await stub.ConsumerGroupDescribe(pb.ConsumerGroupDescribeRequest(group_ids=["readers"]))
    described = await stub.DescribeGroups(pb.DescribeGroupsRequest(groups=["hands"]))
    return [len(consumers.groups[0].members), len(described.groups[0].members)]


def test_one_members_word_out_of_shape_ends_its_session_and_leaves_the_other_open(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with groups(tmp_path) as (_node, stub):
            member_id = await lone_member(stub)
            call = stub.SharedSession()
            said = pb.SessionRequest(hello=pb.SessionHello(group_id="g", member_id=member_id))
            nobody = pb.SessionRequest(heartbeat=pb.HeartbeatRequest())
            words = [pb.MemberRequest(member=0, request=said), pb.MemberRequest(member=1, request=nobody)]
            await call.write(pb.SharedSessionRequest(requests=words))
            heard: dict[int, pb.MemberResponse] = {}
            while len(heard) < 2:
                heard |= {each.member: each for each in (await call.read()).responses}
            assert heard[0].response.HasField("welcome")
            assert heard[1].ended.status == grpc.StatusCode.INVALID_ARGUMENT.value[0]
            assert "hello is missing" in heard[1].ended.message
            beat = pb.SessionRequest(request_number=1, heartbeat=pb.HeartbeatRequest(generation_id=1))
            await call.write(pb.SharedSessionRequest(requests=[pb.MemberRequest(member=0, request=beat)]))
            (answer,) = (await call.read()).responses
            assert (answer.member, answer.response.request_number, answer.response.heartbeat.error_code) == (0, 1, 0)
            leaves = pb.MemberRequest(member=0, leaves=pb.MemberLeaves())
            await call.write(pb.SharedSessionRequest(requests=[leaves]))
            (last,) = (await call.read()).responses
            assert (last.member, last.WhichOneof("heard"), last.ended.status) == (0, "ended", 0)
            assert await call.read() is grpc.aio.EOF
            assert await call.code() is grpc.StatusCode.OK

    run(story)
