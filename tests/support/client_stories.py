"""Small helpers of the client's integration tests."""

from collections.abc import Callable
from typing import Any

from muster.client import Consumer, Producer, RebalanceEvent, TopicPartition, Worker
from tests.support.node import NodeProcess
from tests.support.pace import Patience

PATIENCE_S = 45.0


class Told:
    """A listener that remembers: `told.assigned[-1]` is the latest (partitions, event)."""

    def __init__(self) -> None:
        self.assigned: list[tuple[list[TopicPartition], RebalanceEvent]] = []
        self.revoked: list[tuple[list[TopicPartition], RebalanceEvent]] = []
        self.lost: list[tuple[list[TopicPartition], RebalanceEvent]] = []

    def callbacks(self) -> dict[str, Any]:
        return {
            "on_assign": lambda consumer, partitions, event: self.assigned.append((partitions, event)),
            "on_revoke": lambda consumer, partitions, event: self.revoked.append((partitions, event)),
            "on_lost": lambda consumer, partitions, event: self.lost.append((partitions, event)),
        }


def poll_until(condition: Callable[[], bool], *consumers: Consumer, what: str) -> None:
    """Poll the consumers in turn until the condition holds; what they read is dropped."""
    patience = Patience(PATIENCE_S)
    while not condition():
        assert patience.lasts(), f"not within {PATIENCE_S} s: {what}"
        for consumer in consumers:
            consumer.poll(0.02)


def read(consumer: Consumer, count: int) -> list[Any]:
    """Exactly so many records, or fail."""
    messages: list[Any] = []
    patience = Patience(PATIENCE_S)
    while len(messages) < count:
        assert patience.lasts(), f"only {len(messages)} of {count} records within {PATIENCE_S} s"
        messages += consumer.consume(count - len(messages), 0.2)
    return messages


def member(node: NodeProcess, group: str, **more: object) -> Consumer:
    properties = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 100, "session_timeout_ms": 6_000}
    return Consumer(bootstrap_servers=node.address, group_id=group, **(properties | more))


def fill(node: NodeProcess, topic: str, records: int, partition: int = 0) -> None:
    with Producer(bootstrap_servers=node.address) as producer:
        for number in range(records):
            producer.produce(topic, b"%d" % number, partition=partition)


def until(condition: Callable[[], bool], *workers: Worker, what: str) -> None:
    patience = Patience(PATIENCE_S)
    while not condition():
        assert patience.lasts(), f"not within {PATIENCE_S} s: {what}"
        for worker in workers:
            worker.poll(0.02)
