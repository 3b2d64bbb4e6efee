"""KIP-848 groups over gRPC, on a real node: join, hand over, describe, restart."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from muster.assignors.api import RebalanceProtocol, Snapshot
from muster.coordinator.errors import ErrorCode
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from tests.support.grpc_node import connected, create_topic, serving
from tests.support.stubs import GroupCoordinatorStub

pytestmark = pytest.mark.integration
Run = Callable[[Callable[[], Any]], None]
QUICK = {"group_consumer_assignment_interval_ms": "0"}


class Broken:
    """An assignor that always fails."""

    name = "broken"
    protocol = RebalanceProtocol.COOPERATIVE

    def assign(self, snapshot: Snapshot) -> dict[str, dict[str, list[int]]]:
        raise RuntimeError(f"cannot deal with {len(snapshot.members)} members")


def beat(member_id: str, epoch: int, owned: pb.ConsumerAssignment | None = None) -> pb.ConsumerGroupHeartbeatRequest:
    return pb.ConsumerGroupHeartbeatRequest(
        group_id="g", member_id=member_id, member_epoch=epoch, client_id="c", topic_partitions=owned
    )


def entering(member_id: str, *topics: str, regex: str | None = None) -> pb.ConsumerGroupHeartbeatRequest:
    request = beat(member_id, 0, pb.ConsumerAssignment())
    request.rebalance_timeout_ms = 60_000
    request.subscribed_topic_names.names.extend(topics)
    if regex is not None:
        request.subscribed_topic_regex = regex
    return request


def held(response: pb.ConsumerGroupHeartbeatResponse) -> dict[str, list[int]]:
    return {row.topic_name: list(row.partitions) for row in response.assignment.topic_partitions}


def test_two_members_share_a_topic_and_a_restart_changes_nothing(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path, **QUICK) as node, connected(node) as channel:
            await create_topic(channel, "orders", 4)
            stub = GroupCoordinatorStub(channel)
            first = await stub.ConsumerGroupHeartbeat(entering("a", "orders"))
            assert held(first) == {"orders": [0, 1, 2, 3]}
            second = await stub.ConsumerGroupHeartbeat(entering("b", "orders"))
            assert second.HasField("assignment")
            assert held(second) == {}
            revoked = await stub.ConsumerGroupHeartbeat(beat("a", first.member_epoch))
            assert len(held(revoked)["orders"]) == 2
            settled = await stub.ConsumerGroupHeartbeat(beat("a", first.member_epoch, revoked.assignment))
            assert settled.member_epoch == second.member_epoch
            taken = await stub.ConsumerGroupHeartbeat(beat("b", second.member_epoch))
            assert sorted(held(taken)["orders"] + held(revoked)["orders"]) == [0, 1, 2, 3]
            before = await stub.ConsumerGroupDescribe(pb.ConsumerGroupDescribeRequest(group_ids=["g", "missing"]))
        group, missing = before.groups
        assert (group.group_state, group.assignor_name, len(group.members)) == ("Stable", "uniform", 2)
        assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        async with serving(tmp_path, **QUICK) as node, connected(node) as channel:
            stub = GroupCoordinatorStub(channel)
            after = await stub.ConsumerGroupDescribe(pb.ConsumerGroupDescribeRequest(group_ids=["g"]))
            assert after.groups[0] == group
            listed = await stub.ListGroups(pb.ListGroupsRequest(types_filter=["consumer"]))
            assert [(each.group_id, each.group_type) for each in listed.groups] == [("g", "consumer")]

    run(story)


def test_a_pattern_is_resolved_behind_the_members_back(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path, **QUICK) as node, connected(node) as channel:
            await create_topic(channel, "orders-eu", 2)
            stub = GroupCoordinatorStub(channel)
            watch = stub.WatchGroup(pb.WatchGroupRequest(group_id="g"))
            joined = await stub.ConsumerGroupHeartbeat(entering("a", regex="orders-.*"))
            assert held(joined) == {}
            async for notice in watch:
                if notice.HasField("rebalance"):
                    break
            told = await stub.ConsumerGroupHeartbeat(beat("a", joined.member_epoch))
            assert held(told) == {"orders-eu": [0, 1]}
            bad = await stub.ConsumerGroupHeartbeat(entering("b", regex="("))
            assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION

    run(story)


def test_a_broken_plugin_is_named_and_the_group_keeps_what_it_has(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        sys.modules.setdefault("broken_assignor_of_a_test", sys.modules[__name__])
        plugin = "broken_assignor_of_a_test:Broken"
        async with serving(tmp_path, group_consumer_assignors=plugin, **QUICK) as node, connected(node) as channel:
            await create_topic(channel, "orders", 2)
            stub = GroupCoordinatorStub(channel)
            watch = stub.WatchGroup(pb.WatchGroupRequest(group_id="g"))
            joined = await stub.ConsumerGroupHeartbeat(entering("a", "orders"))
            assert held(joined) == {}
            async for notice in watch:
                if notice.HasField("rebalance"):
                    break
            told = await stub.ExplainGroup(pb.ExplainGroupRequest(group_id="g"))
            assert "broken" in told.rebalances[0].detail
            assert "cannot deal with 1 members" in told.rebalances[0].detail

    run(story)


DEALS = "tests.support.plugins:Deals"


@pytest.mark.parametrize("word", [None, "deals", DEALS])
def test_a_plugin_of_a_class_is_offered_under_its_own_name(run: Run, tmp_path: Path, word: str | None) -> None:
    """It is called so wherever it is told of; only a snapshot names its class, so that it can be replayed anywhere."""

    async def story() -> None:
        async with serving(tmp_path, group_consumer_assignors=DEALS, **QUICK) as node, connected(node) as channel:
            await create_topic(channel, "orders", 2)
            stub = GroupCoordinatorStub(channel)
            watch = stub.WatchGroup(pb.WatchGroupRequest(group_id="g"))
            request = entering("a", "orders")
            if word is not None:
                request.server_assignor = word
            joined = await stub.ConsumerGroupHeartbeat(request)
            assert not joined.error_code, joined
            async for notice in watch:
                if notice.HasField("rebalance"):
                    break
            told = await stub.ConsumerGroupHeartbeat(beat("a", joined.member_epoch))
            assert held(told) == {"orders": [0, 1]}
            (group,) = (await stub.ConsumerGroupDescribe(pb.ConsumerGroupDescribeRequest(group_ids=["g"]))).groups
            assert group.assignor_name == "deals"
            explained = await stub.ExplainGroup(pb.ExplainGroupRequest(group_id="g", include_snapshots=True))
            entry = explained.rebalances[0]
            assert entry.protocol_name == "deals"
            assert Snapshot.from_json(entry.snapshot_json).assignor == DEALS
            words = ["deals", DEALS, "tests.support.plugins:Forgets"]
            asked = pb.SimulateAssignmentRequest(snapshot_json=entry.snapshot_json, assignors=words)
            deals, by_class, foreign = (await stub.SimulateAssignment(asked)).assignments
            assert deals.forecast_json
            assert by_class.forecast_json == deals.forecast_json
            assert foreign.error_message.endswith("deals")
            other = entering("b", "orders")
            other.server_assignor = "range"
            assert "known: deals " in (await stub.ConsumerGroupHeartbeat(other)).error_message

    run(story)


def test_what_if_of_a_living_group(run: Run, tmp_path: Path) -> None:
    """Its members bring no subscription as bytes: the coordinator knows what they read."""

    async def story() -> None:
        async with serving(tmp_path) as node, connected(node) as channel:
            await create_topic(channel, "orders", 2)
            stub = GroupCoordinatorStub(channel)
            assert (await stub.ConsumerGroupHeartbeat(entering("a", "orders"))).error_code == 0
            asked = pb.SimulateAssignmentRequest(group_id="g", assignors=["range"], add_members=["b"])
            answer = await stub.SimulateAssignment(asked)
            assert answer.error_code == 0, answer.error_message
            snapshot = Snapshot.from_json(answer.snapshot_json)
            assert [(member.id, member.topics, member.owned) for member in snapshot.members] == [
                ("a", ("orders",), {"orders": [0, 1]})
            ]
            (forecast,) = answer.assignments
            assert '"b"' in forecast.forecast_json

    run(story)


def test_an_id_of_the_wrong_length_is_malformed(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as node, connected(node) as channel:
            owned = pb.ConsumerAssignment(topic_partitions=[pb.ConsumerTopicPartitions(topic_id=b"x", partitions=[0])])
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await GroupCoordinatorStub(channel).ConsumerGroupHeartbeat(beat("a", 1, owned))
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    run(story)
