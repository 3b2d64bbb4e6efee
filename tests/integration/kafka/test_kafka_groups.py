"""Classic groups by Kafka's door, in every version that is served, against a whole node."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from muster.assignors.data.consumer_protocol import parse_assignment
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.grpc.listener import AddressTaken
from muster.coordinator.server.node.node import CoordinatorNode
from tests.support.grpc_node import connected, settings
from tests.support.kafka.client import KafkaClient
from tests.support.kafka.node import beat, create_topic, join, kafka, kafka_node, lone_member, send_join, sync
from tests.support.stubs import GroupCoordinatorStub

pytestmark = pytest.mark.integration

MIB = 1 << 20

Run = Callable[[Callable[[], Any]], None]


@pytest.mark.parametrize("version", range(10))
def test_a_member_lives_and_leaves_in_every_version(run: Run, tmp_path: Path, version: int) -> None:
    async def story() -> None:
        async with kafka_node(tmp_path / "d") as node, kafka(node) as client:
            send_join(client, version=version)
            first = await client.receive()
            # KIP-394: from version 4 on a newcomer is given its id before it is taken in.
            assert (first.error_code == ErrorCode.MEMBER_ID_REQUIRED) == (version >= 4)
            joined = await join(client, first.member_id, version) if first.error_code else first
            assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
            assert [member.member_id for member in joined.members] == [joined.member_id]
            assert joined.member_id.startswith("c-")
            synced = await sync(client, joined, {joined.member_id: {"t": (1,)}}, min(version, 4))
            assert parse_assignment(synced.assignment).partitions == {"t": [1]}
            assert (await client.ask("Heartbeat", min(version, 4), **beat(joined))).error_code == 0
            leave = min(version, 5)
            identity = struct("LeaveGroupRequest.members")(member_id=joined.member_id)
            left = await client.ask(
                "LeaveGroup", leave, group_id="g", **({"members": [identity]} if leave >= 3 else beat_id(joined))
            )
            assert left.error_code == 0
            gone = await client.ask("Heartbeat", min(version, 4), **beat(joined))
            assert gone.error_code == ErrorCode.UNKNOWN_MEMBER_ID

    run(story)


def beat_id(joined: Any) -> dict[str, str]:
    return {"member_id": joined.member_id}


def test_refusals_of_a_leave_are_told_as_each_version_can(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with kafka_node(tmp_path / "d") as node, kafka(node) as client:
            await lone_member(client)
            old = await client.ask("LeaveGroup", 1, group_id="g", member_id="nobody")
            assert old.error_code == ErrorCode.UNKNOWN_MEMBER_ID
            nobody = struct("LeaveGroupRequest.members")(member_id="nobody", group_instance_id="i")
            new = await client.ask("LeaveGroup", 4, group_id="g", members=[nobody])
            assert (new.error_code, new.members[0].error_code) == (0, ErrorCode.UNKNOWN_MEMBER_ID)
            assert (new.members[0].member_id, new.members[0].group_instance_id) == ("nobody", "i")

    run(story)


@pytest.mark.parametrize("version", range(5))
def test_the_coordinator_is_this_node_at_its_advertised_address(run: Run, tmp_path: Path, version: int) -> None:
    async def story() -> None:
        settings = {"kafka_advertised_listeners": "muster.example:9094"}
        async with kafka_node(tmp_path / "d", **settings) as node, kafka(node) as client:

            async def found(key: str, key_type: int = 0) -> Any:
                fields = {"coordinator_keys": [key]} if version >= 4 else {"key": key}
                answer = await client.ask("FindCoordinator", version, key_type=key_type, **fields)
                return answer.coordinators[0] if version >= 4 else answer

            one = await found("g")
            # Whoever has no members may commit without a name, and those who list it have to find it.
            for answer in (one, await found("")):
                assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, "muster.example", 9094)
            if version >= 1:
                coordinator = await found("t", key_type=1)
                assert (coordinator.error_code, coordinator.node_id, coordinator.port) == (0, 1, 9094)
                assert (await found("s", key_type=2)).error_code == ErrorCode.INVALID_REQUEST

    run(story)


def test_members_by_either_door_are_in_one_group(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with kafka_node(tmp_path / "d") as node, kafka(node) as client, connected(node) as channel:
            stub = GroupCoordinatorStub(channel)
            await client.ask("ApiVersions", 3, client_software_name="librdkafka", client_software_version="2.16.0")
            await create_topic(client, "t", 2)
            first = await lone_member(client)
            request = pb.JoinGroupRequest(
                group_id="g",
                session_timeout_ms=30_000,
                rebalance_timeout_ms=60_000,
                protocol_type="consumer",
                protocols=[pb.JoinGroupProtocol(name="range", metadata=b"")],
                client_id="grpc",
            )
            request.member_id = (await stub.JoinGroup(request)).member_id
            parked = stub.JoinGroup(request)
            while (await client.ask("Heartbeat", 4, **beat(first))).error_code == 0:
                pass
            again = await join(client, first.member_id)
            joined = await parked
            assert {joined.generation_id, again.generation_id} == {2}
            shares = {first.member_id: {"t": (0,)}, joined.member_id: {"t": (1,)}}
            await sync(client, again, shares)
            answer = await stub.SyncGroup(
                pb.SyncGroupRequest(group_id="g", generation_id=2, member_id=joined.member_id)
            )
            assert parse_assignment(answer.assignment).partitions == {"t": [1]}
            explained = await stub.ExplainGroup(pb.ExplainGroupRequest(group_id="g"))
            why = [entry.detail for entry in explained.rebalances]
            assert why[1] == f"member {first.member_id} (c, librdkafka 2.16.0 at 127.0.0.1) joined"

    run(story)


def test_a_sync_that_does_not_say_which_protocol_it_means_is_refused(run: Run, tmp_path: Path) -> None:
    """From version 5 on it has to (KIP-559)."""

    async def story() -> None:
        async with kafka_node(tmp_path / "d") as node, kafka(node) as client:
            joined = await join(client)
            who = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id}
            for named in ({}, {"protocol_type": "consumer"}, {"protocol_name": "range"}):
                refused = await client.ask("SyncGroup", 5, **who, **named)
                assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            both = {"protocol_type": "consumer", "protocol_name": "range"}
            assert (await client.ask("SyncGroup", 5, **who, **both)).error_code == 0

    run(story)


def test_a_closed_connection_removes_no_member_and_forgets_what_was_parked(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with kafka_node(tmp_path / "d") as node, kafka(node) as client:
            first = await lone_member(client)
            async with kafka(node) as another:
                send_join(another)
                newcomer = (await another.receive()).member_id
                send_join(another, newcomer)
                while (await client.ask("Heartbeat", 4, **beat(first))).error_code == 0:
                    pass
                assert node.driver.parked == 1
            while node.driver.parked:  # until the node has heard of it
                await client.ask("ApiVersions", 0)
            # It counts on: the leader is told of it, and the plan may give it a share.
            again = await join(client, first.member_id)
            assert [member.member_id for member in again.members] == [first.member_id, newcomer]

    run(story)


def test_a_heartbeat_behind_a_parked_join_waits_for_it(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with kafka_node(tmp_path / "d") as node, kafka(node) as first, kafka(node) as second:
            one = await lone_member(first)
            send_join(second)
            newcomer = (await second.receive()).member_id
            send_join(second, newcomer)
            second.send("Heartbeat", 3, group_id="g", generation_id=2, member_id=newcomer)
            await until_rebalancing(first, one)
            again = await join(first, one.member_id)
            assert (await second.receive()).generation_id == again.generation_id
            # Its own SyncGroup has not come: the group is between two plans.
            assert (await second.receive()).error_code in (0, ErrorCode.REBALANCE_IN_PROGRESS)

    run(story)


async def until_rebalancing(client: KafkaClient, joined: Any) -> None:
    while (await client.ask("Heartbeat", 3, **beat(joined))).error_code == 0:
        pass


@pytest.mark.parametrize("version", [5, 7, 9])
def test_a_static_leader_that_returns_is_kept_from_assigning_anew(run: Run, tmp_path: Path, version: int) -> None:
    async def story() -> None:
        async with kafka_node(tmp_path / "d") as node, kafka(node) as client, kafka(node) as successor:
            first = await join(client, version=version, group_instance_id="i")
            await sync(client, first, {first.member_id: {"t": (0,)}}, 4)
            again = await join(successor, version=version, group_instance_id="i")
            assert (again.generation_id, again.error_code) == (1, 0)
            assert again.member_id != first.member_id
            # KIP-814: told to skip the assignment, or where that cannot be said, that somebody else leads.
            assert again.skip_assignment is (version >= 9)
            assert (again.leader == again.member_id) is (version >= 9)
            share = await sync(successor, again, {}, 4)
            assert parse_assignment(share.assignment).partitions == {"t": [0]}
            fenced = await client.ask("Heartbeat", 3, **beat(first), group_instance_id="i")
            assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID

    run(story)


def test_a_group_too_large_for_the_log_is_refused_and_hurts_no_other(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        small = {"offsets_topic_segment_bytes": str(4 * MIB), "offsets_topic_num_partitions": "1"}
        async with kafka_node(tmp_path / "d", **small) as node, kafka(node) as client, kafka(node) as other:
            neighbour = await lone_member(other)
            large = struct("JoinGroupRequest.protocols")(name="range", metadata=bytes(2 * MIB))
            refused = await join(client, group_id="large", protocols=[large])
            assert refused.error_code == ErrorCode.INVALID_REQUEST
            joined = await join(client, group_id="large")
            plan = struct("SyncGroupRequest.assignments")(member_id=joined.member_id, assignment=bytes(5 * MIB))
            fields = {"group_id": "large", "generation_id": 1, "member_id": joined.member_id}
            synced = await client.ask("SyncGroup", 3, assignments=[plan], **fields)
            assert synced.error_code == ErrorCode.INVALID_REQUEST
            names = [f"{'x' * 4_000}{number}" for number in range(1_000)]
            subscribed = {"group_id": "modern", "member_id": "m", "subscribed_topic_names": names}
            beaten = await client.ask(
                "ConsumerGroupHeartbeat", 1, rebalance_timeout_ms=9_000, topic_partitions=[], **subscribed
            )
            assert beaten.error_code == ErrorCode.INVALID_REQUEST
            assert (await other.ask("Heartbeat", 4, **beat(neighbour))).error_code == 0

    run(story)


def test_what_is_asked_of_a_node_that_stops_is_answered(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with kafka_node(tmp_path / "d") as node, kafka(node) as client, kafka(node) as second:
            first = await lone_member(client)
            send_join(second)
            newcomer = (await second.receive()).member_id
            send_join(second, newcomer)
            await until_rebalancing(client, first)
            stopping = asyncio.ensure_future(node.stop())
            assert (await second.receive()).error_code == ErrorCode.NOT_COORDINATOR
            assert await second.closed_by_node()
            await stopping
            node.stop = nothing  # type: ignore[method-assign]

    run(story)


async def nothing() -> None:
    """The node has been stopped already."""


def test_a_port_that_is_taken_is_named_with_its_setting_and_the_other_given_back(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with kafka_node(tmp_path / "d") as node:
            assert node.kafka_bound is not None
            port = node.kafka_bound.port
            second = CoordinatorNode(settings(tmp_path / "e", kafka_listeners=f"127.0.0.1:{port}"))
            with pytest.raises(AddressTaken, match=rf"127.0.0.1:{port}: another process .* in 'kafka.listeners'"):
                await second.start()
            assert not (tmp_path / "e").exists()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", second.bound.port)

    run(story)
