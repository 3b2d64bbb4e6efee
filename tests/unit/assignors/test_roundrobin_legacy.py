"""The round robin of the ZooKeeper era against hashes that Java computed."""

import pytest

from muster.assignors.api import Member, Snapshot
from muster.assignors.builtin.roundrobin import RoundRobinLegacyAssignor, partition_hash


@pytest.mark.parametrize(
    ("topic", "partition", "hashed"),
    [
        ("t", 0, 87540032),
        ("clicks", 2, 1627908561),
        ("orders", 0, -1093576615),
        ("orders", 10, 458862962),
        ("größe", 7, -1095754276),
    ],
)
def test_a_partition_is_hashed_as_scala_wrote_it(topic: str, partition: int, hashed: int) -> None:
    """0.8.2.2, 0.9.0.1, 0.10.2.2 and 0.11.0.3: "[topic,partition]".hashCode()."""
    assert partition_hash(topic, partition) == hashed


def test_orders_come_before_clicks() -> None:
    """By "topic-partition", as Kafka 1.0 hashed, clicks would come first, and two consumers would claim the same."""
    members = [Member("a", ("clicks", "orders")), Member("b", ("clicks", "orders"))]
    plan = RoundRobinLegacyAssignor().assign(Snapshot({"clicks": 3, "orders": 3}, members))
    assert plan == {"a": {"orders": [0, 2], "clicks": [1]}, "b": {"orders": [1], "clicks": [0, 2]}}
