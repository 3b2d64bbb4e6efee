"""What a cluster, its nodes and its elections look like to people: a row each."""

from muster.coordinator.observability.views.cluster import (
    cluster_row,
    election_document,
    election_row,
    lost_lines,
    node_row,
    unwell_lines,
    unwell_words,
)
from muster.coordinator.rpc.v1 import cluster_service_pb2 as pb

LOST = pb.LostRecords(node_id=1, from_offset=120, to_offset=133, records=13, epochs=[6, 7])
ELECTION = pb.Election(
    topic="orders", partition=3, leader_epoch=8, from_node_id=-1, to_node_id=2, clean="unclean",
    cause="unclean by operator", isr=[2], elr=[3], decided_ms=1_000, took_ms=412, lost=[LOST],
)  # fmt: skip


def test_those_that_are_not_gone_are_up() -> None:
    states = (pb.NODE_STATE_LIVE, pb.NODE_STATE_DRAINED, pb.NODE_STATE_SHUTTING_DOWN, pb.NODE_STATE_GONE)
    nodes = [pb.ClusterNode(node_id=number, state=state) for number, state in enumerate(states, 1)]
    answer = pb.DescribeClusterResponse(cluster_id="c", controller_id=-1, nodes=nodes, heard_ms_ago=7, cut_off="so")
    row = cluster_row(answer)
    assert (row["nodes"], row["up"], row["controller"], row["in_cluster"]) == (4, 3, None, False)
    assert cluster_row(pb.DescribeClusterResponse(controller_id=0))["controller"] == 0


def test_what_is_not_known_of_a_node_is_nothing() -> None:
    answer = pb.DescribeClusterResponse(controller_id=1)
    known = pb.ClusterNode(node_id=1, state=pb.NODE_STATE_LIVE, host="h", port=9, rack="r", node_epoch=50)
    row = node_row(known, answer)
    assert (row["controller"], row["address"], row["rack"], row["epoch"], row["known"]) == (True, "h:9", "r", 50, 0)
    row = node_row(pb.ClusterNode(node_id=2, known_sequence=-1), answer)
    assert [row[name] for name in ("controller", "address", "rack", "epoch", "known")] == [
        False,
        None,
        None,
        None,
        None,
    ]


def test_an_election_and_what_it_cost() -> None:
    row = election_row(ELECTION)
    assert (row["unit"], row["from"], row["to"], row["took"], row["lost"]) == ("orders-3", None, 2, "412 ms", 13)
    assert election_row(pb.Election(topic="t", from_node_id=1, to_node_id=-1))["to"] is None
    assert election_row(pb.Election(topic="t"))["lost"] is None
    document = election_document(ELECTION)
    assert (document["from"], document["took_ms"]) == (-1, 412)
    assert document["lost"] == [{"node": 1, "from": 120, "to": 133, "records": 13, "epochs": [6, 7], "topic": "orders"}]
    assert lost_lines([ELECTION, pb.Election(topic="t")]) == [
        "orders-3, epoch 8: node 1 gave up 13 records (120 to 132, written in epoch 6, 7)"
    ]


def test_a_partition_below_its_minimum_says_who_is_there_and_how_many_are_needed() -> None:
    row = pb.ClusterPartitionState(topic="t", partition=3, leader_id=1, replicas=[1, 2], isr=[1], min_isr=2)
    assert unwell_words(row) == (
        "t-3 takes no records with acks=all: 1 of 2 that are needed in sync (node 1); replicas 1,2"
    )


def unwell(topic: str, partition: int, leader: int = 1) -> pb.ClusterPartitionState:
    return pb.ClusterPartitionState(
        topic=topic, partition=partition, leader_id=leader, replicas=[1, 2], isr=[1], min_isr=2, offline=[2]
    )


def test_a_partition_that_nobody_leads_is_told_before_twenty_of_offsets_that_are_below_their_minimum() -> None:
    """It was left out behind 20 lines of `__consumer_offsets-*`."""
    rows = [unwell("__consumer_offsets", number) for number in range(20)]
    assert unwell_lines([*rows, unwell("orders", 3, -1)], 20) == [
        "orders-3 is offline: nobody leads it; replicas 1,2, of which 2 is gone",
        "__consumer_offsets: 20 partitions below min.insync.replicas (0-19): they take no records with acks=all; "
        "node 2 is gone",
    ]


def test_several_of_a_topic_that_nobody_leads_are_one_line() -> None:
    assert unwell_lines([unwell("t", number, -1) for number in (4, 1, 2)], 20) == [
        "t: 3 partitions are offline (1,2,4): nobody leads them; node 2 is gone"
    ]


def test_lines_are_bounded_and_those_about_offline_partitions_stay() -> None:
    rows = [unwell(f"a{number:02}", 0) for number in range(30)] + [unwell("z", 0, -1)]
    lines = unwell_lines(rows, 20)
    assert len(lines) == 21
    assert lines[0].startswith("z-0 is offline")
    assert lines[20] == "and of 11 more topics: muster cluster partitions --offline, --under-min-isr"
