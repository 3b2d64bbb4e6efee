"""A whole node on loopback: groups over gRPC, bounds, ordered shutdown, refused starts."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from muster.coordinator.errors import ErrorCode
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.rpc.v1 import ledger_pb2
from muster.coordinator.runtime.shards import partition_for
from muster.coordinator.server.grpc.listener import AddressTaken
from muster.coordinator.server.node.node import CoordinatorNode
from muster.storage.errors import DataDirectoryError
from muster.storage.rpc.v1 import broker_service_pb2 as storage_pb
from tests.support.grpc_node import (
    commit,
    connected,
    create_topic,
    groups,
    join_request,
    lone_member,
    parked_join,
    serving,
    settings,
    state_of,
)
from tests.support.stubs import BrokerStub, GroupCoordinatorStub
from tests.unit.storage.logs import T0, batch

pytestmark = pytest.mark.integration

Run = Callable[[Callable[[], Any]], None]


def test_a_group_forms_and_can_say_why(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with groups(tmp_path / "d") as (_, stub):
            member_id = await lone_member(stub)
            beat = pb.HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
            assert (await stub.Heartbeat(beat)).error_code == 0
            beat.generation_id = 2
            assert (await stub.Heartbeat(beat)).error_code == ErrorCode.ILLEGAL_GENERATION
            explained = await stub.ExplainGroup(pb.ExplainGroupRequest(group_id="g"))
            (first,) = explained.rebalances
            assert (first.number, first.generation, first.culprit) == (1, 1, member_id)
            assert first.cause == ledger_pb2.REBALANCE_CAUSE_MEMBER_JOINED
            assert first.culprit_client_host == "127.0.0.1"

    run(story)


def test_refusals_of_the_protocol_travel_in_band(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with groups(tmp_path / "d") as (_, stub):
            nameless = await stub.JoinGroup(join_request(group_id=""))
            assert nameless.error_code == ErrorCode.INVALID_GROUP_ID
            assert nameless.error_message
            hasty = join_request()
            hasty.session_timeout_ms = 1
            assert (await stub.JoinGroup(hasty)).error_code == ErrorCode.INVALID_SESSION_TIMEOUT

    run(story)


def test_groups_are_listed_described_and_deleted(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with groups(tmp_path / "d") as (node, stub):
            member_id = await lone_member(stub)
            async with connected(node) as channel:
                await create_topic(channel, "t", 1)
            for number in range(6):
                await stub.OffsetCommit(commit(1, 0, group_id=f"s{number}"))
            listed = await stub.ListGroups(pb.ListGroupsRequest())
            assert [group.group_id for group in listed.groups] == ["g", "s0", "s1", "s2", "s3", "s4", "s5"]
            stable = await stub.ListGroups(pb.ListGroupsRequest(states_filter=["stable"]))
            assert [group.group_id for group in stable.groups] == ["g"]

            described = await stub.DescribeGroups(pb.DescribeGroupsRequest(groups=["nobody", "g"]))
            assert [group.error_code for group in described.groups] == [ErrorCode.GROUP_ID_NOT_FOUND, 0]
            assert [m.member_assignment for m in described.groups[1].members] == [b"all"]

            deleted = await stub.DeleteGroups(pb.DeleteGroupsRequest(groups_names=["g", "s0"]))
            assert [result.error_code for result in deleted.results] == [ErrorCode.NON_EMPTY_GROUP, 0]
            removed = await stub.RemoveMembers(pb.RemoveMembersRequest(group_id="g", reason="drill"))
            assert [(m.member_id, m.error_code) for m in removed.members] == [(member_id, 0)]
            assert await state_of(stub) == "Empty"

    run(story)


def test_offsets_survive_the_node_and_unknown_partitions_are_refused_one_by_one(run: Run, tmp_path: Path) -> None:
    async def first_life() -> None:
        async with groups(tmp_path / "d") as (node, stub):
            assert (await stub.OffsetCommit(commit(7, 0))).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            async with connected(node) as channel:
                await create_topic(channel, "t", 2)
            answer = await stub.OffsetCommit(commit(7, 0, 1, 2))
            codes = {p.partition_index: p.error_code for p in answer.topics[0].partitions}
            assert codes == {0: 0, 1: 0, 2: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            assert answer.error_code == 0

    async def second_life() -> None:
        async with groups(tmp_path / "d") as (_, stub):
            fetched = await stub.OffsetFetch(pb.OffsetFetchRequest(group_id="s", all_topics=True))
            assert {p.partition_index: p.committed_offset for p in fetched.topics[0].partitions} == {0: 7, 1: 7}
            assert (await stub.OffsetCommit(commit(8, 1))).error_code == 0, "the catalog is known from the start"

    run(first_life)
    run(second_life)


def test_all_that_is_committed_comes_with_the_ends_of_its_logs_and_what_is_named_beside_it(
    run: Run, tmp_path: Path
) -> None:
    async def story() -> None:
        async with groups(tmp_path / "d") as (node, stub):
            async with connected(node) as channel:
                await create_topic(channel, "t", 3)
            node.broker.append("t", 0, batch(b"a", b"b"), T0)
            node.broker.flush()
            await stub.OffsetCommit(commit(1, 0, 1))
            named = pb.OffsetFetchTopic(name="t", partition_indexes=[1, 2, 7])
            fetched = await stub.OffsetFetch(
                pb.OffsetFetchRequest(group_id="s", all_topics=True, include_log_offsets=True, topics=[named])
            )
            rows = {p.partition_index: p for p in fetched.topics[0].partitions}
            assert list(rows) == [0, 1, 2, 7], "in order, and none twice"
            found = {number: (row.committed_offset, row.log_end_offset) for number, row in rows.items()}
            assert found == {0: (1, 2), 1: (1, 0), 2: (-1, 0), 7: (-1, 0)}
            assert [row.HasField("log_end_offset") for row in rows.values()] == [True, True, True, False]

    run(story)


def test_what_the_group_refuses_of_a_commit_is_told_of_its_partition_alone(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with groups(tmp_path / "d") as (node, stub):
            async with connected(node) as channel:
                await create_topic(channel, "t", 2)
            request = commit(7, 0, 1)
            request.topics[0].partitions[1].committed_metadata = "x" * 4_097
            answer = await stub.OffsetCommit(request)
            codes = {p.partition_index: p.error_code for p in answer.topics[0].partitions}
            assert codes == {0: 0, 1: ErrorCode.OFFSET_METADATA_TOO_LARGE}
            fetched = await stub.OffsetFetch(pb.OffsetFetchRequest(group_id="s", all_topics=True))
            assert [p.partition_index for p in fetched.topics[0].partitions] == [0]

    run(story)


def test_the_coordinator_is_found_here(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with groups(tmp_path / "d", node_id="3") as (node, stub):
            found = await stub.FindCoordinator(pb.FindCoordinatorRequest(key="g"))
            assert (found.node_id, found.host, found.port) == (3, "127.0.0.1", node.bound.port)
            assert found.partition == partition_for("g", 4)

    run(story)


def test_a_watcher_sees_the_group_change(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with groups(tmp_path / "d") as (_, stub):
            watch = stub.WatchGroup(pb.WatchGroupRequest(group_id="g"))
            assert (await watch.read()).group_state == "Dead"
            await lone_member(stub)
            seen = await watch.read()
            while not seen.HasField("rebalance"):
                seen = await watch.read()
            assert (seen.generation_id, seen.rebalance.number, seen.skipped_rebalances) == (1, 1, 0)
            watch.cancel()

    run(story)


@asynccontextmanager
async def crowd(node: CoordinatorNode) -> AsyncIterator[list[tuple[int, GroupCoordinatorStub]]]:
    """Ten clients, with a connection each."""
    async with AsyncExitStack() as stack:
        own = [("grpc.use_local_subchannel_pool", 1)]
        address = f"127.0.0.1:{node.bound.port}"
        channels = [await stack.enter_async_context(grpc.aio.insecure_channel(address, own)) for _ in range(10)]
        yield [(at, GroupCoordinatorStub(channel)) for at, channel in enumerate(channels)]


def test_a_burst_of_two_thousand_joins_is_answered_whole(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path / "d") as node, crowd(node) as stubs:
            calls = [
                stub.JoinGroup(join_request(group_id=f"g{each}-{at}")) for at, stub in stubs for each in range(200)
            ]
            codes = [answer.error_code for answer in await asyncio.gather(*calls)]
            assert codes == [ErrorCode.MEMBER_ID_REQUIRED] * 2_000
            assert (node.driver.parked, node.driver.waiting) == (0, 0)

    run(story)


def test_two_thousand_commits_at_once_are_all_kept(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with groups(tmp_path / "d") as (node, stub):
            async with connected(node) as channel:
                await create_topic(channel, "t", 1)
            async with crowd(node) as stubs:
                asked = [
                    stub.OffsetCommit(commit(each, 0, group_id=f"s{each}-{at}"))
                    for at, stub in stubs
                    for each in range(200)
                ]
                codes = {answer.error_code for answer in await asyncio.gather(*asked)}
            assert codes == {0}
        async with groups(tmp_path / "d") as (_, stub):
            listed = await stub.ListGroups(pb.ListGroupsRequest())
            assert len(listed.groups) == 2_000

    run(story)


def test_a_parked_client_that_vanishes_leaves_no_trace(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with groups(tmp_path / "d") as (node, stub):
            member_id = await lone_member(stub)
            async with connected(node) as channel:
                await parked_join(GroupCoordinatorStub(channel))
            # The channel is closed: as for a killed process, the connection is gone.
            while node.driver.parked:
                assert await state_of(stub) == "PreparingRebalance"
            assert node.driver.waiting == 0
            beat = pb.HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
            assert (await stub.Heartbeat(beat)).error_code == ErrorCode.REBALANCE_IN_PROGRESS

    run(story)


def test_parked_requests_are_bounded(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with groups(tmp_path / "d", max_parked_requests="1") as (_, stub):
            await lone_member(stub)
            parked = await parked_join(stub)
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await stub.JoinGroup(join_request())
            assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            parked.cancel()

    run(story)


def test_watchers_are_bounded(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with groups(tmp_path / "d", max_watchers="1") as (_, stub):
            first = stub.WatchGroup(pb.WatchGroupRequest(group_id="g"))
            await first.read()
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await stub.WatchGroup(pb.WatchGroupRequest(group_id="g")).read()
            assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            first.cancel()

    run(story)


def test_shutdown_answers_everyone_and_then_closes_the_port(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        node = CoordinatorNode(settings(tmp_path / "d"))
        await node.start()
        async with connected(node) as channel:
            stub = GroupCoordinatorStub(channel)
            await lone_member(stub)
            await create_topic(channel, "t", 1)
            parked = await parked_join(stub)
            watch = stub.WatchGroup(pb.WatchGroupRequest(group_id="g"))
            await watch.read()
            poll = storage_pb.FetchTopic(topic="t", partitions=[storage_pb.FetchPartition(partition_max_bytes=1000)])
            fetch = BrokerStub(channel).Fetch(
                storage_pb.FetchRequest(max_wait_ms=300_000, min_bytes=1, max_bytes=1000, topics=[poll])
            )
            last_commit = stub.OffsetCommit(commit(41, 0))
            while node.methods.stats["/storage.rpc.v1.Broker/Fetch"].in_flight == 0 or not last_commit.done():
                await state_of(stub)
            await node.stop()
            assert (await parked).error_code == ErrorCode.NOT_COORDINATOR
            assert (await fetch).responses[0].partitions[0].records == b""
            assert (await last_commit).error_code == 0
            assert await watch.code() is grpc.StatusCode.UNAVAILABLE
            with pytest.raises(grpc.aio.AioRpcError) as late:
                await stub.Heartbeat(pb.HeartbeatRequest())
            assert late.value.code() is grpc.StatusCode.UNAVAILABLE
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", node.bound.port)
        assert (tmp_path / "d" / ".kafka_cleanshutdown").exists()

    run(story)


def test_health_and_reflection_answer(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path / "d") as node, connected(node) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            for service in ("", "coordinator.rpc.v1.GroupCoordinator", "storage.rpc.v1.Broker"):
                answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
                assert answer.status == health_pb2.HealthCheckResponse.SERVING
            questions = [
                reflection_pb2.ServerReflectionRequest(list_services=""),
                reflection_pb2.ServerReflectionRequest(file_containing_symbol="storage.rpc.v1.Broker"),
            ]
            stub = reflection_pb2_grpc.ServerReflectionStub(channel)
            services, described = [answer async for answer in stub.ServerReflectionInfo(iter(questions))]
            assert {service.name for service in services.list_services_response.service} >= {
                "coordinator.rpc.v1.GroupCoordinator",
                "storage.rpc.v1.Broker",
                "grpc.health.v1.Health",
                "grpc.reflection.v1alpha.ServerReflection",
            }
            assert described.file_descriptor_response.file_descriptor_proto

    run(story)


def test_a_node_whose_engine_breaks_says_so_and_still_stops_in_order(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with groups(tmp_path / "d") as (node, stub):

            def broken(*_: object) -> None:
                raise ZeroDivisionError("a bug")

            node.engine.turn = broken  # type: ignore[method-assign]
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await stub.Heartbeat(pb.HeartbeatRequest(group_id="g"))
            assert refusal.value.code() is grpc.StatusCode.INTERNAL
            assert isinstance(await node.failed, ZeroDivisionError)
        assert (tmp_path / "d" / ".kafka_cleanshutdown").exists()

    run(story)


def test_a_taken_port_changes_nothing_on_disk(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path / "first") as node:
            second = CoordinatorNode(settings(tmp_path / "second", listeners=f"127.0.0.1:{node.bound.port}"))
            with pytest.raises(AddressTaken, match=f"127.0.0.1:{node.bound.port}"):
                await second.start()
            assert not (tmp_path / "second").exists()

    run(story)


def test_a_directory_in_use_is_refused_and_the_port_given_back(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path / "d"):
            second = CoordinatorNode(settings(tmp_path / "d"))
            with pytest.raises(DataDirectoryError, match="in use by process"):
                await second.start()
            third = CoordinatorNode(settings(tmp_path / "other", listeners=f"127.0.0.1:{second.bound.port}"))
            await third.start()
            await third.stop()

    run(story)
