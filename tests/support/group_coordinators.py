"""Who coordinates a group of a real cluster, and what of the group may not change because somebody else does."""

from typing import NamedTuple

from confluent_kafka.admin import AdminClient

from muster.client import Admin
from tests.support.cluster_nodes import ClusterNodes

LONG = {"session_ms": "12000"}
"""Longer than a node's session at ZooKeeper and what follows."""


class Standing(NamedTuple):
    """Of a group: what may not change because its coordinator does."""

    generation: int
    members: tuple[str, ...]


def coordinator_of(cluster: ClusterNodes, group: str) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.kafka_address, "log_level": 0})
    node: int = admin.describe_consumer_groups([group])[group].result(30).coordinator.id
    return node


def standing(cluster: ClusterNodes, group: str) -> Standing:
    with Admin({"bootstrap.servers": cluster.address}) as admin:
        found = admin.describe_group(group)
    return Standing(found.generation, tuple(sorted(member.member_id for member in found.members)))
