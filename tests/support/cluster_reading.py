"""All records of a topic, read by Kafka's client, by a reader that tells what is lost from what it has not come to.

A bound on all of its time says nothing: with half a million records it was over before the reader was, and what it had
not come to looked lost. So it may stand still for so long, and whoever stands still before a partition's end is not
asked what is missing.
"""

from collections.abc import Callable, Collection
from typing import Any, Protocol

from confluent_kafka import KafkaException, TopicPartition

from tests.support.pace import Patience

Place = tuple[int, int]
"""Partition and offset."""

PATIENCE_S = 60.0
AT_ONCE = 1_000


class Reader(Protocol):
    """As `confluent_kafka.Consumer` has it."""

    def assign(self, partitions: list[TopicPartition]) -> None: ...

    def consume(self, num_messages: int = ..., timeout: float = ...) -> list[Any]: ...

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float = ...) -> Any: ...


class StoodStill(AssertionError):
    """The reader did not get to the end: what it lacks may be there."""


def read_all(
    reader: Reader,
    topic: str,
    partitions: int,
    wanted: Collection[Place],
    patience: Callable[[], Patience] = lambda: Patience(PATIENCE_S),
) -> dict[Place, bytes]:
    """Records from the beginning on, until all that is wanted has come, or nothing has for as long as the patience
    lasts. What is wanted and not in the answer is not there. Raises StoodStill."""
    reader.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    missing, found = set(wanted), dict[Place, bytes]()
    ends = dict.fromkeys(range(partitions), 0)
    left = patience()
    while missing and left.lasts():
        for message in reader.consume(AT_ONCE, timeout=0.2):
            if message.error() is not None:
                continue
            place = message.partition(), message.offset()
            found[place] = message.value()
            ends[place[0]] = place[1] + 1
            missing.discard(place)
            left = patience()
    if missing:
        must_be_at_the_end(reader, topic, ends)
    return found


def must_be_at_the_end(reader: Reader, topic: str, ends: dict[int, int]) -> None:
    """ends: where the reader is, by partition."""
    for partition, at in ends.items():
        try:
            _, end = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=10.0)
        except KafkaException as error:
            raise StoodStill(f"{topic}-{partition}: the reader is at {at}, and nobody says where it ends") from error
        if at < end:
            raise StoodStill(f"{topic}-{partition}: the reader stands still at {at}, before the end at {end}")
