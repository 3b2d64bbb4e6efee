"""What is known of the upstream's brokers, topics and leaders. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from muster.coordinator.config import Address

NO_LEADER = -1


class PartitionMetadata(NamedTuple):
    """One partition. leader: NOBODY where there is none."""

    leader: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    topic_id: bytes
    parts: Mapping[int, PartitionMetadata]
    code: int = 0


@dataclass(frozen=True, slots=True)
class UpstreamMetadata:
    cluster_id: str = ""
    controller: int = NO_LEADER
    brokers: Mapping[int, Address] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicMetadata] = field(default_factory=lambda: MappingProxyType({}))

    def leader(self, topic: str, partition: int) -> int:
        seen = self.topics.get(topic)
        part = None if seen is None else seen.parts.get(partition)
        return NO_LEADER if part is None or part.leader not in self.brokers else part.leader


def merge_metadata(known: UpstreamMetadata, answer: Any) -> UpstreamMetadata:
    """What is known after a Metadata answer (v10+). Topics it does not name stay as they are.

    A broker that is behind may tell an older leader: of a topic that is still the same one the higher leader epoch
    holds (KIP-320). A topic that cannot be told of is kept with the code that says so.
    """
    topics = dict(known.topics)
    for each in answer.topics:
        topic_id, before = bytes(each.topic_id), topics.get(each.name)
        if each.error_code:
            parts: Mapping[int, PartitionMetadata] = {} if before is None else before.parts
            topics[each.name] = TopicMetadata(topic_id if before is None else before.topic_id, parts, each.error_code)
            continue
        told = {one.partition_index: PartitionMetadata(one.leader_id, one.leader_epoch) for one in each.partitions}
        if before is not None and before.topic_id == topic_id:
            told = {index: newer_partition(before.parts.get(index), part) for index, part in told.items()}
        topics[each.name] = TopicMetadata(topic_id, told)
    brokers = {one.node_id: Address(one.host, one.port) for one in answer.brokers}
    return UpstreamMetadata(answer.cluster_id or "", answer.controller_id, brokers or known.brokers, topics)


def newer_partition(before: PartitionMetadata | None, told: PartitionMetadata) -> PartitionMetadata:
    return before if before is not None and before.epoch > told.epoch >= 0 else told
