"""Topics of somebody's Kafka as its brokers tell them: each broker may know others, and be asked for some or all."""

from collections.abc import Mapping, Sequence
from typing import Any

from muster.coordinator.kafka.codec.codec import struct
from tests.fakes.upstream_broker import UpstreamBroker

UNKNOWN_NAME, UNKNOWN_ID, NOT_LEADER = 3, 100, 6
LATEST = -1


class Told:
    """A topic as one broker knows it. code: of the topic, instead of its partitions."""

    def __init__(self, topic_id: bytes, partitions: int, *, leader: int = 1, code: int = 0, internal: bool = False):
        self.id, self.leaders = topic_id.ljust(16, b"\0"), [leader] * partitions
        self.code, self.internal = code, internal


class UpstreamCatalog:
    """`knows` has what each broker tells; `ends` where logs end, by place; `leads` who says that he leads a place."""

    def __init__(self, brokers: Mapping[int, UpstreamBroker]) -> None:
        self.brokers = dict(brokers)
        self.knows: dict[int, dict[str, Told]] = {number: {} for number in brokers}
        self.hidden: set[str] = set()
        """Topics that the asking one may not see."""
        self.ends: dict[tuple[str, int], tuple[int, int]] = {}
        for number, broker in brokers.items():
            broker.answers["Metadata"] = lambda request, number=number: self._metadata(number, request)
            broker.answers["ListOffsets"] = lambda request, number=number: self._list_offsets(number, request)

    def all_know(self, **topics: Told) -> None:
        for known in self.knows.values():
            known.update(topics)

    def all_forget(self, name: str) -> None:
        for known in self.knows.values():
            known.pop(name, None)

    def _metadata(self, number: int, request: Any) -> Any:
        known = self.knows[number]
        if request.topics is None:
            topics = [row(name, told) for name, told in known.items() if name not in self.hidden]
        elif any(any(each.topic_id) for each in request.topics):  # a broker then looks at nothing but ids
            topics = [self._by_id(known, each.topic_id) for each in request.topics if any(each.topic_id)]
        else:
            topics = [self._by_name(known, each.name) for each in request.topics]
        brokers = [
            struct("MetadataResponse.brokers")(node_id=at, host=broker.address.host, port=broker.address.port)
            for at, broker in self.brokers.items()
        ]
        return struct("MetadataResponse")(cluster_id="upstream", controller_id=1, brokers=brokers, topics=topics)

    def _by_name(self, known: Mapping[str, Told], name: str) -> Any:
        if name in self.hidden:
            return struct("MetadataResponse.topics")(error_code=29, name=name)
        return row(name, known[name]) if name in known else empty(name, bytes(16), UNKNOWN_NAME)

    def _by_id(self, known: Mapping[str, Told], topic_id: bytes) -> Any:
        for name, told in known.items():
            if told.id == topic_id:
                return empty(None, topic_id, 29) if name in self.hidden else row(name, told)
        return empty(None, topic_id, UNKNOWN_ID)

    def _list_offsets(self, number: int, request: Any) -> Any:
        return struct("ListOffsetsResponse")(
            topics=[
                struct("ListOffsetsResponse.topics")(
                    name=topic.name,
                    partitions=[self._end(number, topic.name, part) for part in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _end(self, number: int, topic: str, part: Any) -> Any:
        told = self.knows[number].get(topic)
        leads = told is not None and told.leaders[part.partition_index] == number
        start, end = self.ends.get((topic, part.partition_index), (0, 0))
        return struct("ListOffsetsResponse.topics.partitions")(
            partition_index=part.partition_index,
            error_code=0 if leads else NOT_LEADER,
            offset=-1 if not leads else end if part.timestamp == LATEST else start,
        )


def row(name: str, told: Told) -> Any:
    parts: Sequence[Any] = [
        struct("MetadataResponse.topics.partitions")(
            partition_index=index, leader_id=leader, leader_epoch=leader, replica_nodes=[leader], isr_nodes=[leader]
        )
        for index, leader in enumerate(told.leaders)
    ]
    return struct("MetadataResponse.topics")(
        error_code=told.code,
        name=name,
        topic_id=told.id,
        is_internal=told.internal,
        partitions=[] if told.code else parts,
    )


def empty(name: str | None, topic_id: bytes, code: int) -> Any:
    return struct("MetadataResponse.topics")(error_code=code, name=name, topic_id=topic_id)
