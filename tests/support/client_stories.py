"""Small helpers of the client's integration tests."""

import time
from collections.abc import Callable
from typing import Any

from coordinator.client import Consumer, RebalanceEvent, TopicPartition

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
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        for consumer in consumers:
            consumer.poll(0.02)


def read(consumer: Consumer, count: int) -> list[Any]:
    """Exactly so many records, or fail."""
    messages: list[Any] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(messages) < count:
        assert time.monotonic() < deadline, f"only {len(messages)} of {count} records within {PATIENCE_S} s"
        messages += consumer.consume(count - len(messages), 0.2)
    return messages
