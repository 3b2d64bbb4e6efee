"""A writing task's calls to the node: records staged for the driver to commit, or appended directly.

Both send one request while the next is prepared, and retry until delivery.timeout.ms.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from muster.client.calls.leaders import MAYBE_MOVED, MOVED, ONE_NODE
from muster.client.calls.methods import ABORT_STAGED, COMMIT_STAGED, INIT_PRODUCER_ID, METADATA, PRODUCE, STAGE_RECORDS
from muster.client.calls.topic_calls import PartitionCounts
from muster.client.calls.transport import CallRetry, Transport
from muster.client.errors import ClientError, Refused, Unreachable, refusal
from muster.client.twins import shared_loop
from muster.client.types import TopicPartition
from muster.spark.fetch import share_transport
from muster.spark.options import WriteOptions
from muster.spark.row_encoding import EncodedRows
from muster.storage.rpc.v1 import broker_service_pb2 as pb
from muster.storage.rpc.v1 import staging_service_pb2 as staging_pb
from muster.storage.staging.staged_files import seal_for_producer

T = TypeVar("T")

MAX_SEQUENCE = 2**31 - 1
_answered: "WeakSet[Transport]" = WeakSet()
"""Those of this process whose node has answered a writing task."""


class NotOnOneNode(ClientError):
    """An exactly-once sink has one node that decides its batches, and the topics are led by others as well."""

    def __init__(self, topics: Sequence[str], nodes: Sequence[int]) -> None:
        led = "nobody leads some of" if -1 in nodes else f"nodes {', '.join(map(str, nodes))} lead"
        super().__init__(
            f"writing exactly once: {led} the partitions of {', '.join(topics)}, and one node decides a batch, for "
            "its own logs; write with delivery=at-least-once (a batch write: without txnAppId and txnVersion), or have "
            "one node lead them all"
        )


class BatchOutlet(Protocol):
    """Where a task's record batches go."""

    async def send(self, batches: Sequence[EncodedRows], last: bool) -> None:
        """Bring them to the node; `last` when nothing follows."""


class SinkNode:
    """What a task or a driver asks of the node, from any thread."""

    def __init__(self, options: WriteOptions) -> None:
        self.config = options.client_config()
        self.transport = share_transport(self.config.connection)
        self._options = options
        self._catalog = PartitionCounts(self.transport, self.config)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return shared_loop().run(work)

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        return shared_loop().submit(work)

    async def home_of(self, topics: Iterable[str]) -> str:
        """HOST:PORT of the node that leads all partitions of these; ONE_NODE outside of a cluster.

        Raises NotOnOneNode: what is staged at one node is put into its logs, and into no other's.
        """
        leaders = self.transport.leaders
        if not leaders.shared:
            return ONE_NODE
        names = sorted(set(topics))
        await self.transport.retried(METADATA, pb.MetadataRequest(topics=names), doing="looking up leaders")
        led_by: set[int] = set().union(*(leaders.leading(name) for name in names))
        home = leaders.address(next(iter(led_by))) if len(led_by) == 1 else None
        if home is None:
            raise NotOnOneNode(names, sorted(led_by))
        return home

    def partitions_of(self, topic: str) -> int:
        """The first thing that a task asks. Raises UnknownTopic, and Unreachable after max.block.ms."""
        if (known := self._catalog.remembered(topic)) is not None:
            return known
        patience_ms = self._options.lookup_timeout_ms(answered=self.transport in _answered)
        try:
            count = self.run(self._catalog.count(topic, patience_ms))
        except Unreachable as error:
            raise error.with_traceback(None) from None
        _answered.add(self.transport)
        return count


class StagingOutlet:
    """One attempt of a task at its part of a batch."""

    def __init__(self, node: SinkNode, sink: str, batch: int, attempt: str) -> None:
        self.size = 0
        self.settled = False
        """The batch is decided: what this task has to say is in the log already, or never will be."""
        self._node = node
        self._sink = sink
        self._batch = batch
        self._attempt = attempt
        self._topics: set[str] = set()
        self.home = ONE_NODE
        """Where it stages."""

    async def send(self, batches: Sequence[EncodedRows], last: bool) -> None:
        if self.settled:
            return
        request = staging_pb.StageRecordsRequest(
            sink=self._sink, batch=self._batch, attempt=self._attempt, position=self.size, last=last
        )
        fill_request(request.topic_data, batches)
        if new := {batch.tp.topic for batch in batches} - self._topics:
            self._topics |= new
            self.home = await self._node.home_of(self._topics)
        answer = await self._node.transport.retried(
            STAGE_RECORDS, request, doing="staging records", address=self.home or None
        )
        raise_refusal(answer, self._sink)
        self.settled = answer.settled
        self.size = answer.position


class AppendingOutlet:
    """One task's producer: it numbers its batches, so that one that is sent again is written once."""

    def __init__(self, node: SinkNode) -> None:
        self._node = node
        self._producer_id = -1
        self._sequences: dict[TopicPartition, int] = {}

    async def send(self, batches: Sequence[EncodedRows], last: bool) -> None:
        """Each partition at most once in a request: the log knows a repeated batch only if it comes alone."""
        if self._producer_id < 0 and batches:
            answer = await self._node.transport.retried(
                INIT_PRODUCER_ID, pb.InitProducerIdRequest(), doing="asking for a producer id"
            )
            raise_refusal(answer, "a producer id")
            self._producer_id = answer.producer_id
        left = list(batches)
        while left:
            now: dict[TopicPartition, EncodedRows] = {}
            later: list[EncodedRows] = []
            for batch in left:
                if batch.tp in now:
                    later.append(batch)
                else:
                    now[batch.tp] = batch._replace(data=self._numbered(batch))
            await self._deliver(now)
            left = later

    def _numbered(self, batch: EncodedRows) -> bytes:
        sequence = self._sequences.get(batch.tp, 0)
        self._sequences[batch.tp] = (sequence + batch.rows) & MAX_SEQUENCE
        return seal_for_producer(batch.data, 0, self._producer_id, sequence)[0]

    async def _deliver(self, left: dict[TopicPartition, EncodedRows]) -> None:
        leaders = self._node.transport.leaders
        patience = CallRetry(self._node.transport)
        while left:
            by_leader, unknown = leaders.routed(left)
            leaders.refresh_leaders(unknown)
            error: ClientError | None = leaders.why_not(unknown[0]) if unknown else None
            again = {tp: left[tp] for tp in unknown}
            attempts = (
                self._attempt(address, {tp: left[tp] for tp in led}, patience.attempt_ms)
                for address, led in by_leader.items()
            )
            for refused_here, why in await asyncio.gather(*attempts):
                again |= refused_here
                error = why or error
            left = again
            if left and error is not None:
                if not await patience.another_try(error):
                    raise error.after(patience.waited_ms) if isinstance(error, Unreachable) else error from None
                await leaders.settled(left)

    async def _attempt(
        self, address: str, batches: dict[TopicPartition, EncodedRows], timeout_ms: int
    ) -> tuple[dict[TopicPartition, EncodedRows], ClientError | None]:
        """Those to try again, and why."""
        leaders = self._node.transport.leaders
        request = pb.ProduceRequest(acks=-1, timeout_ms=timeout_ms)
        fill_request(request.topic_data, list(batches.values()))
        again: dict[TopicPartition, EncodedRows] = {}
        why: ClientError | None = None
        try:
            answer = await leaders.ask_leader(
                PRODUCE,
                request,
                doing="writing records",
                address=address,
                places=list(batches),
                timeout_ms=timeout_ms,
            )
        except Unreachable as unreachable:
            if leaders.shared:
                leaders.doubt(batches)
            return batches, unreachable
        for topic in answer.responses:
            for result in topic.partition_responses:
                if result.error_code:
                    tp = TopicPartition(topic.name, result.index)
                    error = build_sink_refusal(result, f"{tp.topic}-{tp.partition}")
                    if not error.retriable:
                        raise error
                    again[tp], why = batches[tp], error
                    if result.error_code in MOVED or (leaders.shared and result.error_code in MAYBE_MOVED):
                        leaders.doubt([tp], result.current_leader if result.HasField("current_leader") else None)
        return again, why


class BatchRequests:
    """Collects record batches into requests and sends one while the next is filled."""

    def __init__(self, node: SinkNode, outlet: BatchOutlet, max_bytes: int) -> None:
        self._node = node
        self._outlet = outlet
        self._max_bytes = max_bytes
        self._batches: list[EncodedRows] = []
        self._size = 0
        self._under_way: Future[None] | None = None
        self.any = False

    def add(self, batch: EncodedRows) -> None:
        if self._batches and self._size + len(batch.data) > self._max_bytes:
            self._send(last=False)
        self._batches.append(batch)
        self._size += len(batch.data)
        self.any = True

    def finish(self) -> None:
        """Return when all has arrived. Without any batches nothing is sent."""
        if self.any:
            self._send(last=True)
        self._wait()

    def give_up(self) -> None:
        """Leave what is under way to itself."""
        if self._under_way is not None:
            self._under_way.cancel()

    def _send(self, last: bool) -> None:
        self._wait()
        batches, self._batches, self._size = self._batches, [], 0
        self._under_way = self._node.submit(self._outlet.send(batches, last))

    def _wait(self) -> None:
        future, self._under_way = self._under_way, None
        if future is not None:
            future.result()


async def commit_attempts(
    transport: Transport, sink: str, batch: int, attempts: Sequence[tuple[str, int]], home: str = ONE_NODE
) -> bool:
    """Decide, where they were staged, which attempts (name, size) make up the batch; whether it was decided before."""
    request = staging_pb.CommitStagedRequest(sink=sink, batch=batch)
    for name, size in attempts:
        request.attempts.add(attempt=name, size=size)
    doing = f"committing batch {batch}"
    answer = await transport.retried(COMMIT_STAGED, request, doing=doing, address=home or None)
    raise_refusal(answer, f"batch {batch} of sink {sink}")
    return bool(answer.settled)


async def abort_attempts(
    transport: Transport, sink: str, batch: int, attempts: Sequence[str], home: str = ONE_NODE
) -> None:
    """Drop attempts that will not be committed."""
    request = staging_pb.AbortStagedRequest(sink=sink, batch=batch, attempts=attempts)
    doing = f"aborting batch {batch}"
    raise_refusal(await transport.retried(ABORT_STAGED, request, doing=doing, address=home or None), sink)


def fill_request(topic_data: Any, batches: Sequence[EncodedRows]) -> None:
    """Put record batches into a request; those of one partition behind one another."""
    lines: dict[str, Any] = {}
    parts: dict[TopicPartition, list[bytes]] = {}
    for batch in batches:
        parts.setdefault(batch.tp, []).append(batch.data)
    for (topic, partition), data in parts.items():
        if topic not in lines:
            lines[topic] = topic_data.add(name=topic)
        lines[topic].partition_data.add(index=partition, records=b"".join(data))


def raise_refusal(answer: Any, about: str) -> None:
    if answer.error_code:
        raise build_sink_refusal(answer, about)


def build_sink_refusal(answer: Any, about: str) -> Refused:
    return refusal(answer.error_code, pb.ErrorCode.Name(answer.error_code), answer.error_message, about)
