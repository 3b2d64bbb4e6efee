"""What tests ask of a node's topics: make them, fill them, read them to their ends."""

import time
from collections.abc import Callable, Iterable, Sequence

from muster.client import Admin, Consumer, Message, Producer, TopicPartition
from tests.support.pace import Patience

LATEST = -1
PATIENCE_S = 60.0
LOOK_AGAIN_S = 0.02


def make_topics(address: str, **topics: int) -> None:
    """Topics by name with so many partitions."""
    with Admin({"bootstrap.servers": address}) as admin:
        for name, partitions in topics.items():
            admin.create_topic(name, partitions)


def fill(address: str, topic: str, values: Iterable[bytes], keys: Sequence[bytes] | None = None) -> None:
    """One record for each value, keyed by `keys` in turn."""
    with Producer({"bootstrap.servers": address, "linger.ms": 0}) as producer:
        for place, value in enumerate(values):
            producer.produce(topic, value, keys[place % len(keys)] if keys else None)


def end_offsets(address: str, topic: str) -> dict[TopicPartition, int]:
    with Admin({"bootstrap.servers": address}) as admin:
        partitions = [TopicPartition(topic, number) for number in range(admin.list_topics()[topic])]
        found = admin.list_offsets(dict.fromkeys(partitions, LATEST))
    return {tp: at.offset for tp, at in found.items()}


def all_records(address: str, topic: str) -> list[Message]:
    """Every record of a topic, as a plain reader without any isolation level sees it now."""
    ends = end_offsets(address, topic)
    records: list[Message] = []
    with Consumer({"bootstrap.servers": address, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign(list(ends))
        patience = Patience(PATIENCE_S)
        while any(consumer.position(tp) < end for tp, end in ends.items() if end):
            assert patience.lasts(), f"only {len(records)} of {sum(ends.values())} records of {topic}"
            records += consumer.consume(10_000, 0.2)
    return records


def values(address: str, topic: str) -> list[bytes]:
    """The values of a topic's records, sorted; none of them may be null."""
    found = [record.value for record in all_records(address, topic)]
    assert None not in found, f"{topic} holds null values"
    return sorted(value for value in found if value is not None)


def eventually(condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Look until the condition holds, or fail after so many seconds of a machine that is not busy."""
    patience = Patience(patience_s)
    while not condition():
        assert patience.lasts(), f"not within {patience_s} s of a quiet machine: {what}"
        time.sleep(LOOK_AGAIN_S)
