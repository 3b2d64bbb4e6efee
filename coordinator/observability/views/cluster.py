"""A cluster for people: nodes, partitions and elections, a row each."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

from muster.coordinator.observability.views.formatting import duration, host_and_port, moment, plural, spans
from muster.coordinator.observability.views.topics import PartitionRow, ReplicatedPartitionRow
from muster.coordinator.rpc.v1 import cluster_service_pb2 as pb

NOBODY = -1
STATE_PREFIX = "NODE_STATE_"
OLD_MS = 2_000
"""A node that is well hears of the cluster twice a second."""


def state_word(state: "pb.NodeState") -> str:
    """
    >>> state_word(pb.NODE_STATE_SHUTTING_DOWN)
    'shutting-down'
    """
    return pb.NodeState.Name(state).removeprefix(STATE_PREFIX).lower().replace("_", "-")


def cluster_row(answer: pb.DescribeClusterResponse) -> dict[str, Any]:
    up = sum(node.state != pb.NODE_STATE_GONE for node in answer.nodes)
    return {
        "cluster": answer.cluster_id,
        "controller": answer.controller_id if answer.controller_id != NOBODY else None,
        "controller_epoch": answer.controller_epoch,
        "sequence": answer.sequence,
        "nodes": len(answer.nodes),
        "up": up,
        "partitions": answer.partition_count,
        "offline": answer.offline_count,
        "under_min_isr": answer.under_min_isr_count,
        "under_replicated": answer.under_replicated_count,
        "in_cluster": not answer.cut_off,
        "heard_ms_ago": answer.heard_ms_ago,
    }


def age_words(answer: pb.DescribeClusterResponse) -> str:
    """How old what a node tells of the cluster is, where that is worth a word; "" otherwise.

    >>> age_words(pb.DescribeClusterResponse(heard_ms_ago=500))
    ''
    >>> age_words(pb.DescribeClusterResponse(heard_ms_ago=3400))
    'as of 3.4 s ago: the node that was asked has heard nothing from the controller since'
    >>> age_words(pb.DescribeClusterResponse(heard_ms_ago=60400, cut_off="it is cut off"))
    'as of 60.4 s ago: it is cut off'
    """
    if answer.heard_ms_ago < OLD_MS and not answer.cut_off:
        return ""
    why = answer.cut_off or "the node that was asked has heard nothing from the controller since"
    return f"as of {answer.heard_ms_ago / 1000:.1f} s ago: {why}"


def node_row(node: pb.ClusterNode, answer: pb.DescribeClusterResponse) -> dict[str, Any]:
    return {
        "node": node.node_id,
        "state": state_word(node.state),
        "address": host_and_port(node.host, node.port) if node.host else None,
        "controller": node.node_id == answer.controller_id,
        "rack": node.rack or None,
        "leads": node.leads,
        "copies": node.holds,
        "behind": node.behind,
        "epoch": node.node_epoch or None,
        "known": node.known_sequence if node.known_sequence >= 0 else None,
        "listeners": [f"{each.listener}://{host_and_port(each.host, each.port)}" for each in node.endpoints],
    }


def partition_row(row: pb.ClusterPartitionState) -> dict[str, Any]:
    """With Kafka's columns."""
    return {
        "topic": row.topic,
        "partition": row.partition,
        "leader": row.leader_id if row.leader_id != NOBODY else None,
        "replicas": list(row.replicas),
        "isr": list(row.isr),
        "elr": list(row.elr),
        "offline": list(row.offline),
        "leader_epoch": row.leader_epoch,
        "min_isr": row.min_isr,
        "adding": list(row.adding),
        "removing": list(row.removing),
    }


REPLICA_FIELDS = ("leader", "replicas", "isr", "elr", "offline")


def add_replicas(
    rows: Iterable[PartitionRow], copies: Iterable[pb.ClusterPartitionState]
) -> list[ReplicatedPartitionRow]:
    """Rows of a topic's partitions, and who leads them and has copies."""
    found = {each.partition: partition_row(each) for each in copies}
    unknown = dict.fromkeys(REPLICA_FIELDS)
    return [
        cast(
            ReplicatedPartitionRow,
            {**row, **{name: found.get(row["partition"], unknown)[name] for name in REPLICA_FIELDS}},
        )
        for row in rows
    ]


def unwell_words(row: pb.ClusterPartitionState) -> str:
    """What is wrong with a partition.

    >>> unwell_words(pb.ClusterPartitionState(topic="t", partition=3, leader_id=-1, replicas=[1, 2], offline=[1, 2]))
    't-3 is offline: nobody leads it; replicas 1,2, of which 1,2 are gone'
    >>> unwell_words(pb.ClusterPartitionState(topic="t", leader_id=2, replicas=[2, 3], isr=[2], min_isr=2, offline=[3]))
    't-0 takes no records with acks=all: 1 of 2 that are needed in sync (node 2); replicas 2,3, of which 3 is gone'
    """
    replicas = ",".join(map(str, row.replicas))
    verb = "is" if len(row.offline) == 1 else "are"
    gone = f", of which {','.join(map(str, row.offline))} {verb} gone" if row.offline else ""
    if row.leader_id == NOBODY:
        return f"{row.topic}-{row.partition} is offline: nobody leads it; replicas {replicas}{gone}"
    return (
        f"{row.topic}-{row.partition} takes no records with acks=all: {len(row.isr)} of {row.min_isr} that are needed "
        f"in sync (node {','.join(map(str, row.isr))}); replicas {replicas}{gone}"
    )


def unwell_lines(rows: Iterable[pb.ClusterPartitionState], most: int) -> list[str]:
    """What is wrong with partitions, those that nobody leads first: a line for all of one topic with the same trouble,
    and not more than `most` lines and one.

    >>> row = pb.ClusterPartitionState
    >>> rows = [row(topic="a", partition=number, leader_id=1, replicas=[1, 2], offline=[2]) for number in (0, 1, 3)]
    >>> for line in unwell_lines([*rows, row(topic="z", leader_id=-1, replicas=[2], offline=[2])], 20):
    ...     print(line)
    z-0 is offline: nobody leads it; replicas 2, of which 2 is gone
    a: 3 partitions below min.insync.replicas (0,1,3): they take no records with acks=all; node 2 is gone
    """
    alike: dict[tuple[bool, str], list[pb.ClusterPartitionState]] = {}
    for row in sorted(rows, key=lambda row: (row.leader_id != NOBODY, row.topic, row.partition)):
        alike.setdefault((row.leader_id != NOBODY, row.topic), []).append(row)
    lines = [unwell_words(some[0]) if len(some) == 1 else alike_words(some) for some in alike.values()]
    if (more := len(lines) - most) > 0:
        lines[most:] = [f"and of {plural(more, 'more topic')}: muster cluster partitions --offline, --under-min-isr"]
    return lines


def alike_words(rows: Sequence[pb.ClusterPartitionState]) -> str:
    """What is wrong with several partitions of one topic, all that nobody leads, or none of them."""
    gone = sorted({node for row in rows for node in row.offline})
    away = f"; node{'s' * (len(gone) > 1)} {', '.join(map(str, gone))} {'are' if len(gone) > 1 else 'is'} gone"
    where = f"{rows[0].topic}: {len(rows)} partitions"
    numbers = spans(row.partition for row in rows)
    what = (
        f"{where} are offline ({numbers}): nobody leads them"
        if rows[0].leader_id == NOBODY
        else f"{where} below min.insync.replicas ({numbers}): they take no records with acks=all"
    )
    return what + (away if gone else "")


def election_row(one: pb.Election) -> dict[str, Any]:
    return {
        "decided": moment(one.decided_ms),
        "unit": f"{one.topic}-{one.partition}",
        "from": one.from_node_id if one.from_node_id != NOBODY else None,
        "to": one.to_node_id if one.to_node_id != NOBODY else None,
        "epoch": one.leader_epoch,
        "clean": one.clean,
        "took": duration(one.took_ms),
        "cause": one.cause,
        "isr": list(one.isr),
        "elr": list(one.elr),
        "lost": sum(each.records for each in one.lost) if one.lost else None,
    }


def election_document(one: pb.Election) -> dict[str, Any]:
    """For programs: figures as they are, and each log that was cut."""
    lost = [
        {
            "node": each.node_id,
            "from": each.from_offset,
            "to": each.to_offset,
            "records": each.records,
            "epochs": list(each.epochs),
            "topic": each.topic or one.topic,
        }
        for each in one.lost
    ]
    return {
        "topic": one.topic,
        "partition": one.partition,
        "epoch": one.leader_epoch,
        "from": one.from_node_id,
        "to": one.to_node_id,
        "clean": one.clean,
        "cause": one.cause,
        "isr": list(one.isr),
        "elr": list(one.elr),
        "decided_ms": one.decided_ms,
        "took_ms": one.took_ms,
        "lost": lost,
    }


def lost_lines(elections: Iterable[pb.Election]) -> list[str]:
    """What unclean elections cost, a line for each log that was cut."""
    return [
        f"{each.topic or one.topic}-{one.partition}, epoch {one.leader_epoch}: node {each.node_id} gave up "
        f"{plural(each.records, 'record')} ({each.from_offset} to {each.to_offset - 1}, written in "
        f"epoch {', '.join(map(str, each.epochs))})"
        for one in elections
        for each in one.lost
    ]
