"""The nodes of a cluster as rows of a page, of what any of them tells of all."""

from typing import Any, Final

from muster.coordinator.rpc.v1 import cluster_service_pb2 as pb
from muster.coordinator.views.cluster import age_words, node_row

HTTP: Final = "HTTP"
PILLS: Final = {"live": "ok", "gone": "bad", "shutting-down": "warn", "drained": "warn"}


def cluster_view(answer: pb.DescribeClusterResponse, me: int, scheme: str) -> dict[str, Any]:
    """me: the node that shows the page. scheme: by which the page was asked for, and the others' are.

    old: how old it is, where that is worth a word. wanting: what partitions want for, in words, with the command that
    lists them.
    """
    wanting = [
        (f"{count:,} {what}", f"muster cluster partitions --{option}")
        for count, what, option in (
            (answer.offline_count, "with nobody who leads them", "offline"),
            (answer.under_min_isr_count, "below min.insync.replicas", "under-min-isr"),
            (answer.under_replicated_count, "with a copy behind or gone", "under-replicated"),
        )
        if count
    ]
    return {
        "cluster_id": answer.cluster_id,
        "old": age_words(answer),
        "partitions": f"{answer.partition_count:,}",
        "wanting": wanting,
        "nodes": [node_view(node, answer, me, scheme) for node in answer.nodes],
    }


def node_view(node: pb.ClusterNode, answer: pb.DescribeClusterResponse, me: int, scheme: str) -> dict[str, Any]:
    """`page`: where that node's page is; "" where nobody knows, or it is this one."""
    row = node_row(node, answer)
    door = next((each for each in node.endpoints if each.listener == HTTP), None)
    host = "" if door is None else f"[{door.host}]" if ":" in door.host else door.host
    here = node.node_id == me
    return row | {
        "pill": PILLS.get(row["state"], ""),
        "here": here,
        "page": "" if here or door is None else f"{scheme}://{host}:{door.port}/nodes",
        "http": "" if door is None else f"{host}:{door.port}",
    }
