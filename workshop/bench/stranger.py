"""The stranger: what it asks of a node, ready as bytes before anybody looks at the clock."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.codec.emitter import Frame
from muster.workshop.bench.line import LoadConnection
from muster.workshop.bench.processes import BenchFailed

CREATE, DELETE, COMMIT, FETCH_OFFSETS, DELETE_OFFSETS, DELETE_GROUPS = 4, 3, 2, 5, 0, 1
PRODUCE, FETCH, LIST_OFFSETS = 7, 10, 5
PATIENCE_S = 120.0

Codes: TypeAlias = Callable[[Any], Sequence[int]]


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request whose answer is looked at when the clock has stopped."""

    line: LoadConnection
    name: str
    version: int
    data: bytes
    codes: Codes
    unread: "list[tuple[PreparedRequest, Frame]]"

    async def __call__(self) -> None:
        self.unread.append((self, await self.line.pass_on(self.data)))

    def look(self, frame: Frame) -> None:
        """Raises BenchFailed when anything was refused."""
        answer = self.line.read(self.name, self.version, frame)
        if any(self.codes(answer)):
            raise BenchFailed(f"{self.name} was answered {answer!r:.300}; a healthy node does that to nobody")


class LargeRequestClient:
    """Its requests, on one connection. `look` at what was answered when no clock runs: to read 100,000 rows takes this
    process 60 ms, in which it hears nobody's answer, and the node would seem to be late.
    """

    def __init__(self, line: LoadConnection) -> None:
        self.line = line
        self._unread: list[tuple[PreparedRequest, Frame]] = []

    def look(self) -> None:
        """Raises BenchFailed when anything since the last look was refused."""
        while self._unread:
            ready, frame = self._unread.pop()
            ready.look(frame)

    def create(self, topic: str, partitions: int, **settings: object) -> PreparedRequest:
        config = struct("CreateTopicsRequest.topics.configs")
        configs = [config(name=key.replace("_", "."), value=str(value)) for key, value in settings.items()]
        wanted = struct("CreateTopicsRequest.topics")(
            name=topic, num_partitions=partitions, replication_factor=1, configs=configs
        )
        return self._ready(
            "CreateTopics", CREATE, lambda answer: [one.error_code for one in answer.topics], topics=[wanted]
        )

    def delete(self, topic: str) -> PreparedRequest:
        return self._ready(
            "DeleteTopics",
            DELETE,
            lambda answer: [one.error_code for one in answer.responses],
            topic_names=[topic],
            timeout_ms=60_000,
        )

    def commit(self, group_id: str, topic: str, partitions: range, retention_ms: int = -1) -> PreparedRequest:
        row = struct("OffsetCommitRequest.topics.partitions")
        rows = [row(partition_index=number, committed_offset=1, committed_metadata="") for number in partitions]
        return self._ready(
            "OffsetCommit",
            COMMIT,
            codes_by_topic,
            group_id=group_id,
            retention_time_ms=retention_ms,
            topics=[struct("OffsetCommitRequest.topics")(name=topic, partitions=rows)],
        )

    def offsets(self, group_id: str, topic: str, partitions: int) -> PreparedRequest:
        wanted = struct("OffsetFetchRequest.topics")(name=topic, partition_indexes=list(range(partitions)))
        return self._ready("OffsetFetch", FETCH_OFFSETS, codes_by_topic, group_id=group_id, topics=[wanted])

    async def kept(self, group_id: str) -> int:
        """How many offsets the group has."""
        message = struct("OffsetFetchRequest")(group_id=group_id, topics=None)
        answer = await self.line.ask("OffsetFetch", FETCH_OFFSETS, message)
        return sum(len(topic.partitions) for topic in answer.topics)

    def delete_offsets(self, group_id: str, topic: str, partitions: int) -> PreparedRequest:
        row = struct("OffsetDeleteRequest.topics.partitions")
        rows = [row(partition_index=number) for number in range(partitions)]
        topics = [struct("OffsetDeleteRequest.topics")(name=topic, partitions=rows)]
        return self._ready("OffsetDelete", DELETE_OFFSETS, codes_by_topic, group_id=group_id, topics=topics)

    def delete_group(self, group_id: str) -> PreparedRequest:
        return self._ready(
            "DeleteGroups",
            DELETE_GROUPS,
            lambda answer: [one.error_code for one in answer.results],
            groups_names=[group_id],
        )

    def produce(self, topic: str, batch: bytes) -> PreparedRequest:
        part = struct("ProduceRequest.topic_data.partition_data")(index=0, records=batch)
        return self._ready(
            "Produce",
            PRODUCE,
            lambda answer: [part.error_code for one in answer.responses for part in one.partition_responses],
            transactional_id=None,
            acks=-1,
            timeout_ms=60_000,
            topic_data=[struct("ProduceRequest.topic_data")(name=topic, partition_data=[part])],
        )

    def fetch(self, topic: str, offset: int, max_bytes: int) -> PreparedRequest:
        part = struct("FetchRequest.topics.partitions")(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
        return self._ready(
            "Fetch",
            FETCH,
            lambda answer: [part.error_code for one in answer.responses for part in one.partitions],
            max_wait_ms=0,
            min_bytes=0,
            topics=[struct("FetchRequest.topics")(topic=topic, partitions=[part])],
        )

    def at_time(self, topic: str, timestamp_ms: int) -> PreparedRequest:
        part = struct("ListOffsetsRequest.topics.partitions")(partition_index=0, timestamp=timestamp_ms)
        topics = [struct("ListOffsetsRequest.topics")(name=topic, partitions=[part])]
        return self._ready("ListOffsets", LIST_OFFSETS, codes_by_topic, replica_id=-1, topics=topics)

    def _ready(self, name: str, version: int, codes: Codes, **fields: object) -> PreparedRequest:
        request = self.line.request(name, version, struct(f"{name}Request")(**fields))
        return PreparedRequest(self.line, name, version, request, codes, self._unread)


def codes_by_topic(answer: Any) -> list[int]:
    return [part.error_code for topic in answer.topics for part in topic.partitions]


async def one_by_one(requests: Sequence[Callable[[], Awaitable[object]]]) -> None:
    for request in requests:
        await request()


async def wait_until(reached: Callable[[], Awaitable[bool]], what: str, pause_s: float = 0.2) -> None:
    """Look now and then. Raises BenchFailed when it takes longer than a benchmark's patience."""
    ends_s = time.monotonic() + PATIENCE_S
    while not await reached():
        if time.monotonic() > ends_s:
            raise BenchFailed(f"after {PATIENCE_S:.0f} s {what} was not over; try again on a machine with less to do")
        await asyncio.sleep(pause_s)
