"""The Cluster service over an image that a test holds in its hands."""

import asyncio
import threading
from collections.abc import Awaitable
from typing import Any, cast

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.election_ledger import ElectionRecord, ElectionReport, LossRecord
from muster.coordinator.replication.protocol.cluster_metadata import ClusterImage, TopicPartition
from muster.coordinator.rpc.v1 import cluster_service_pb2 as pb
from muster.coordinator.server.cluster_backend import cluster_service
from muster.coordinator.server.cluster_backend.cluster_description import ClusterStanding
from muster.coordinator.server.rpc_dispatch import RpcCall
from muster.storage.errors import LogDamaged
from tests.support.operated import Given, view
from tests.support.turns import turns_of_others

ORDERS = TopicPartition("orders", 0)
CALL = cast(RpcCall, None)


def ask(answer: Awaitable[Any]) -> Any:
    async def run() -> Any:
        return await answer

    return asyncio.run(run())


def test_how_the_cluster_stands() -> None:
    given = Given()
    given.drains = frozenset({2})
    told = ask(given.service.describe_cluster(pb.DescribeClusterRequest(), CALL))
    assert (told.cluster_id, told.controller_id, told.controller_epoch, told.sequence) == ("c1", 1, 4, 1)
    assert (told.partition_count, told.offline_count, told.under_min_isr_count, told.under_replicated_count) == (
        4,
        1,
        2,
        3,
    )
    one, *_ = told.nodes
    assert (one.node_id, one.host, one.port, one.rack, one.node_epoch) == (1, "one", 9090, "a", 50)
    assert [(each.listener, each.port) for each in one.endpoints] == [("GRPC", 9090), ("REPLICATION", 9190)]
    assert [each.known_sequence for each in told.nodes] == [17, 16, -1, -1]
    assert [(each.leads, each.holds, each.behind) for each in told.nodes] == [
        (2, 4, 2),
        (1, 4, 1),
        (0, 3, 2),
        (0, 1, 1),
    ]
    assert [each.state for each in told.nodes] == [
        pb.NODE_STATE_LIVE,
        pb.NODE_STATE_DRAINED,
        pb.NODE_STATE_GONE,
        pb.NODE_STATE_GONE,
    ], "the fourth has a copy to come, and was never heard of"
    assert not told.partitions


def test_who_is_drained_is_not_known_without_zookeeper_and_the_rest_is_told() -> None:
    given = Given()
    given.drains = None
    told = ask(given.service.describe_cluster(pb.DescribeClusterRequest(), CALL))
    assert [each.state for each in told.nodes][:2] == [pb.NODE_STATE_LIVE] * 2


def test_partitions_by_what_is_wrong_with_them() -> None:
    given = Given()
    found = {
        wanted: [each.partition for each in ask(given.service.describe_cluster(request, CALL)).partitions]
        for wanted in pb.PartitionFilter.values()
        if (request := pb.DescribeClusterRequest(partitions=wanted)) is not None
    }
    assert found == {
        pb.PARTITION_FILTER_UNSPECIFIED: [],
        pb.PARTITION_FILTER_ALL: [0, 1, 2, 3],
        pb.PARTITION_FILTER_UNDER_REPLICATED: [0, 1, 2],
        pb.PARTITION_FILTER_UNDER_MIN_ISR: [1, 2],
        pb.PARTITION_FILTER_OFFLINE: [2],
    }, "a copy that is on its way is missed by nobody"
    request = pb.DescribeClusterRequest(partitions=pb.PARTITION_FILTER_ALL, topics=["others"])
    assert not ask(given.service.describe_cluster(request, CALL)).partitions
    request = pb.DescribeClusterRequest(partitions=pb.PARTITION_FILTER_UNDER_MIN_ISR)
    row = ask(given.service.describe_cluster(request, CALL)).partitions[0]
    assert (row.leader_id, row.leader_epoch, row.min_isr) == (2, 7, 2)
    assert (list(row.replicas), list(row.isr), list(row.elr), list(row.offline)) == ([1, 2, 3], [2], [1], [3])


def test_elections_are_asked_for_and_each_refusal_names_its_partition() -> None:
    given = Given()
    given.codes = {ORDERS: ErrorCode.NONE, TopicPartition("orders", 2): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    request = pb.ElectLeadersRequest(partitions=[pb.ClusterPartition(topic="orders", partition=0)], timeout_ms=700)
    first, second = ask(given.service.elect_leaders(request, CALL)).results
    assert given.asked == [("elect", [ORDERS], False, 700)]
    assert (first.error_code, first.leader_id, first.leader_epoch, first.error_message) == (0, 1, 7, "")
    assert (second.error_code, second.leader_id) == (80, -1)
    assert second.error_message.startswith("orders-2: ")


def test_all_partitions_are_asked_for_by_naming_none_but_never_uncleanly() -> None:
    given = Given()
    ask(given.service.elect_leaders(pb.ElectLeadersRequest(), CALL))
    assert given.asked == [("elect", None, False, 60_000)]
    unclean = pb.ElectLeadersRequest(election_type=pb.ELECTION_TYPE_UNCLEAN)
    answer = ask(given.service.elect_leaders(unclean, CALL))
    assert (answer.error_code, len(given.asked)) == (ErrorCode.INVALID_REQUEST, 1)
    assert "may lose records" in answer.error_message


def test_reassignments_are_begun_left_off_and_listed() -> None:
    given = Given()
    other = TopicPartition("orders", 1)
    given.codes = {ORDERS: ErrorCode.NONE, other: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
    request = pb.AlterPartitionReassignmentsRequest()
    request.partitions.add(topic="orders", partition=0, replicas=[3, 2])
    request.partitions.add(topic="orders", partition=1, cancel=True)
    first, second = ask(given.service.alter_partition_reassignments(request, CALL)).results
    assert given.asked == [("reassign", {ORDERS: (3, 2), other: None}, 60_000)]
    assert [(each.partition, each.error_code) for each in (first, second)] == [(0, 0), (1, 85)]
    [row] = ask(given.service.list_partition_reassignments(pb.ListPartitionReassignmentsRequest(), CALL)).partitions
    assert (row.partition, list(row.replicas), list(row.adding), list(row.removing)) == (3, [1, 2, 4], [4], [])


def test_a_drain_is_answered_once_nothing_is_left_that_could_move() -> None:
    given = Given()
    assert not ask(given.service.drain_node(pb.DrainNodeRequest(node_id=1), CALL)).still_leads
    given.hears({"orders": {1: view(2, (2,))}})
    answer = ask(given.service.drain_node(pb.DrainNodeRequest(node_id=2, timeout_ms=1), CALL))
    assert [each.partition for each in answer.still_leads] == [0, 1, 3], "its time was over"
    assert given.asked == [("drain", 1, True), ("drain", 2, True)]
    assert not ask(given.service.drain_node(pb.DrainNodeRequest(node_id=2, undrain=True), CALL)).still_leads
    given.code = ErrorCode.RESOURCE_NOT_FOUND
    refused = ask(given.service.drain_node(pb.DrainNodeRequest(node_id=9), CALL))
    assert refused.error_code == ErrorCode.RESOURCE_NOT_FOUND
    assert refused.error_message == "node 9 is not known; expected one of [1, 2, 3]"


def test_elections_are_told_with_what_they_cost() -> None:
    given = Given()
    election = ElectionRecord.model_validate(
        {"unit": "orders-eu-3", "epoch": 8, "from": 1, "to": 2, "clean": "unclean", "cause": "node 1 died"}
        | {"isr": [2], "elr": [3], "decided_ms": 1_000, "took_ms": 40}
    )
    lost = LossRecord.model_validate(
        {"unit": "orders-eu-3", "epoch": 8, "lost": {"node": 1, "from": 5, "to": 9, "records": 4, "epochs": [6, 7]}}
    )
    given.told = [ElectionReport(election, (lost,))]
    [row] = ask(given.service.explain_elections(pb.ExplainElectionsRequest(topic="orders-eu"), CALL)).elections
    assert given.asked == [("explain", 50, "orders-eu")]
    assert (row.topic, row.partition, row.leader_epoch, row.from_node_id, row.to_node_id) == ("orders-eu", 3, 8, 1, 2)
    assert (row.clean, row.cause, list(row.isr), list(row.elr), row.took_ms) == ("unclean", "node 1 died", [2], [3], 40)
    [cost] = row.lost
    assert (cost.node_id, cost.from_offset, cost.to_offset, cost.records, list(cost.epochs)) == (1, 5, 9, 4, [6, 7])


def test_a_node_without_a_copy_of_the_ledger_says_who_has_one() -> None:
    given = Given()
    given.here = False
    request = pb.ExplainElectionsRequest()
    assert "made with the first" in ask(given.service.explain_elections(request, CALL)).error_message
    given.hears({"__elections": {0: view(3, (3, 4), (3, 4))}})
    answer = ask(given.service.explain_elections(request, CALL))
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert "ask one of the nodes [3, 4]" in answer.error_message


def test_a_copy_of_the_ledger_that_cannot_be_read_is_said_to_be_that() -> None:
    given = Given()

    async def damaged(limit: int, topic: str = "") -> list[ElectionReport]:
        raise LogDamaged("00.log", 7, 9, 3, 4, "its checksum is wrong")

    given.explain = damaged  # type: ignore[method-assign]
    answer = ask(given.service.explain_elections(pb.ExplainElectionsRequest(), CALL))
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert answer.error_message.startswith("this node's copy of the ledger of elections cannot be read: 00.log is dam")


def test_a_node_that_is_cut_off_from_zookeeper_tells_at_once_what_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZooKeeper neither answers nor fails while a session is out of touch."""
    given = Given()

    async def nothing_is_heard() -> frozenset[int]:
        await asyncio.Event().wait()
        return frozenset()

    monkeypatch.setattr(cluster_service, "DRAINED_S", 0)
    monkeypatch.setattr(given, "drained", nothing_is_heard)
    told = ask(given.service.describe_cluster(pb.DescribeClusterRequest(), CALL))
    assert [each.node_id for each in told.nodes] == [1, 2, 3, 4]


def test_what_is_told_of_many_partitions_is_put_together_in_a_thread_as_it_was_when_it_was_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given, threads = Given(), []
    given.hears({"many": {number: view(1, (1, 2)) for number in range(500)}})
    made = ClusterStanding.of

    def seen(image: ClusterImage, *arguments: Any) -> ClusterStanding:
        threads.append(threading.current_thread() is threading.main_thread())
        if image.size > 500:
            given.hears({"later": {0: view(1, (1,))}})
        return made(image, *arguments)

    monkeypatch.setattr(ClusterStanding, "of", seen)
    told = ask(given.service.describe_cluster(pb.DescribeClusterRequest(), CALL))
    assert told.partition_count == 504
    given.hears({"later": {1: view(1, (1,))}})
    rows = ask(given.service.list_partition_reassignments(pb.ListPartitionReassignmentsRequest(), CALL)).partitions
    assert [(row.topic, row.partition) for row in rows] == [("orders", 3)]
    assert threads == [False, False]


def test_very_many_partitions_of_one_request_are_told_of_in_turns_with_others() -> None:
    given = Given()
    places = [TopicPartition("orders", number) for number in range(1_000)]
    given.codes = dict.fromkeys(places, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    wanted = [pb.WantedReplicas(topic="orders", partition=number, replicas=[1]) for number in range(1_000)]

    async def elect() -> None:
        elected = await given.service.elect_leaders(pb.ElectLeadersRequest(), CALL)
        assert len(elected.results) == 1_000

    async def move() -> None:
        request = pb.AlterPartitionReassignmentsRequest(partitions=wanted)
        altered = await given.service.alter_partition_reassignments(request, CALL)
        assert len(altered.results) == 1_000

    async def story() -> None:
        assert await turns_of_others(elect()) >= 100
        assert await turns_of_others(move()) >= 100

    asyncio.run(story())
