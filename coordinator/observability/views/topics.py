"""Topics and their partitions, a row each."""

from collections.abc import Iterable, Mapping, Sequence

from typing_extensions import TypedDict


class TopicRow(TypedDict):
    topic: str
    partitions: int


class PartitionRow(TypedDict):
    topic: str
    partition: int
    log_start_offset: int
    log_end_offset: int
    records: int


class ReplicatedPartitionRow(PartitionRow):
    """Of a cluster: node ids."""

    leader: int | None
    replicas: list[int]
    isr: list[int]
    elr: list[int]
    offline: list[int]


class TopicDocument(TypedDict):
    topic: str
    topic_id: str
    internal: bool
    partitions: Sequence[PartitionRow]
    configs: dict[str, str]


def topic_row(name: str, partitions: int) -> TopicRow:
    return {"topic": name, "partitions": partitions}


def partition_rows(name: str, spans: Iterable[tuple[int, int, int]]) -> list[PartitionRow]:
    """`spans`: each partition's number, where its log begins and where it ends."""
    return [
        {
            "topic": name,
            "partition": number,
            "log_start_offset": start,
            "log_end_offset": end,
            "records": end - start,
        }
        for number, start, end in sorted(spans)
    ]


def topic_document(
    name: str, topic_id: str, internal: bool, partitions: Sequence[PartitionRow], configs: Mapping[str, str]
) -> TopicDocument:
    return {
        "topic": name,
        "topic_id": topic_id,
        "internal": internal,
        "partitions": partitions,
        "configs": dict(configs),
    }
