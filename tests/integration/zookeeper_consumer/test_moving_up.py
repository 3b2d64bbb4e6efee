"""A group of the ZooKeeper era becomes a classic one, and a KIP-848 one after that: every record once."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.client import Admin, Consumer
from tests.support.node import NodeProcess
from tests.support.zookeeper.consumers import Process, create, era_node, era_properties, fill, wait_for

PARTITIONS = 4


@pytest.fixture
def node(tmp_path: Path, zookeeper: str) -> Iterator[NodeProcess]:
    with era_node(tmp_path, zookeeper) as node:
        create(node, t=PARTITIONS)
        yield node


class Reading:
    """What was read, by value; and consumers polled in turn until they have it all."""

    def __init__(self) -> None:
        self.values: Counter[int] = Counter()

    def until(self, count: int, *consumers: Consumer) -> None:
        def enough() -> bool:
            for consumer in consumers:
                self.values.update(int(m.value or b"") for m in consumer.consume(100, 0.02))
            return len(self.values) >= count

        wait_for(enough, f"{count} records")

    def until_shared(self, *consumers: Consumer) -> None:
        def shared() -> bool:
            self.until(0, *consumers)
            owned = [consumer.assignment() for consumer in consumers]
            return all(owned) and sum(map(len, owned)) == PARTITIONS

        wait_for(shared, "everybody has a share")


def started(node: NodeProcess, protocol: str) -> Consumer:
    properties: dict[str, Any] = {
        "bootstrap.servers": node.address,
        "group.id": "g",
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(properties)
    consumer.subscribe("t")
    return consumer


def test_three_generations_read_every_record_once(node: NodeProcess, zookeeper: str) -> None:
    reading = Reading()
    fill(node, "t", PARTITIONS, 40)
    first = [Consumer(era_properties(zookeeper)) for _ in range(2)]
    for consumer in first:
        consumer.subscribe("t")
    reading.until(40, *first)
    # Two owners of one group name in two worlds would read everything twice: the old ones stop first.
    for consumer in first:
        consumer.close()
    fill(node, "t", PARTITIONS, 40, first=40)
    with Admin({"bootstrap.servers": node.address}) as admin:
        moved = admin.migrate_offsets("g", "kafka", zookeeper)
    assert {each.partition.partition: each.offset for each in moved} == dict.fromkeys(range(PARTITIONS), 10)

    group = [started(node, "classic") for _ in range(2)]
    reading.until(80, *group)
    # From here on nobody stops any more: one after the other, while the rest reads on.
    for number in range(2):
        fill(node, "t", PARTITIONS, 40, first=80 + 40 * number)
        group[number].close()
        group[number] = started(node, "consumer")
        reading.until_shared(*group)
    reading.until(160, *group)
    with Admin({"bootstrap.servers": node.address}) as admin:
        kinds = {found.group_id: found.group_type for found in admin.list_groups()}
    assert kinds["g"].lower() == "consumer"
    for consumer in group:
        consumer.close()
    assert reading.values == Counter(range(160))


def test_only_the_uncommitted_tail_comes_twice(node: NodeProcess, zookeeper: str) -> None:
    """One that is killed has read more than it has committed: that alone the next generation reads again."""
    fill(node, "t", PARTITIONS, 40)
    doomed = Process(era_properties(zookeeper, zookeeper_session_timeout_ms=1_000), "t")
    try:
        wait_for(lambda: len(doomed.told("record")) >= 5, "it reads")
    finally:
        doomed.kill()
    with Admin({"bootstrap.servers": node.address}) as admin:

        def idle() -> bool:
            return not admin.describe_group("g").members

        wait_for(idle, "its session ends", every_s=0.1)
        doomed_read = Counter(int(line["value"]) for line in doomed.told("record"))
        moved = admin.migrate_offsets("g", "kafka", zookeeper)
    committed = sum(each.offset for each in moved)
    assert 4 <= committed <= 40
    reading = Reading()
    with started(node, "classic") as consumer:
        # What comes after has not been read by anybody: when it is there, everything before it is.
        fill(node, "t", PARTITIONS, PARTITIONS, first=40)

        def enough() -> bool:
            reading.until(0, consumer)
            return sum(reading.values.values()) >= 44 - committed

        wait_for(enough, "the rest")
    assert sum(reading.values.values()) == 44 - committed
    assert set(reading.values) | set(doomed_read) == set(range(44)), "and nothing is left out"
