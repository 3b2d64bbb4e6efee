"""Brings batches from the accumulator to the log: in order per partition, retried until their time is up."""

import asyncio
import logging
from collections.abc import Sequence

from coordinator.client.accumulator import Accumulator, PendingBatch, steady_ms
from coordinator.client.config import ProducerConfig
from coordinator.client.errors import ClientError, MessageTooLarge, TransportRefused, Unreachable, refusal
from coordinator.client.methods import PRODUCE
from coordinator.client.transport import Transport
from coordinator.client.types import RecordMetadata, TopicPartition
from storage.batch import encode_batch
from storage.rpc.v1 import broker_service_pb2 as pb

log = logging.getLogger("muster.client")

GIVEN_UP = ClientError("the producer was closed before the record was delivered")
ACKS = {"all": -1, "1": 1, "0": 0}


class Sender:
    """Up to max.in.flight requests at a time; a partition is in one of them at most, so its order is kept."""

    def __init__(self, transport: Transport, config: ProducerConfig, accumulator: Accumulator) -> None:
        self.failed = 0
        self.first_failure: Exception | None = None
        self._transport = transport
        self._config = config
        self._accumulator = accumulator
        self._busy: set[TopicPartition] = set()
        self._requests: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(self._delivered)

    def wake(self) -> None:
        self._wake.set()

    def take_failures(self) -> tuple[int, Exception | None]:
        """How many records were given up since the last time, and why the first."""
        failed, first = self.failed, self.first_failure
        self.failed, self.first_failure = 0, None
        return failed, first

    async def stop(self) -> None:
        tasks = [*self._requests, *([self._task] if self._task is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Whoever waits for one of these must not wait for ever.
        self._accumulator.begin_flush()
        while batches := self._accumulator.take(set())[0]:
            for batch in batches:
                self._settle(batch, GIVEN_UP)

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            next_ms: int | None = None
            if len(self._requests) < self._config.max_in_flight_requests_per_connection:
                batches, next_ms = self._accumulator.take(self._busy)
                for group in in_requests(batches, self._config.max_request_size):
                    self._dispatch(group)
            try:
                wait_s = None if next_ms is None else max(0, next_ms - steady_ms()) / 1000
                await asyncio.wait_for(self._wake.wait(), wait_s)
            except TimeoutError:
                pass

    def _dispatch(self, batches: Sequence[PendingBatch]) -> None:
        self._busy.update(batch.tp for batch in batches)
        task = asyncio.create_task(self._deliver(batches))
        self._requests.add(task)
        task.add_done_callback(self._delivered)

    def _delivered(self, task: asyncio.Task[None]) -> None:
        self._requests.discard(task)
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the producer's sender failed", exc_info=error)

    async def _deliver(self, batches: Sequence[PendingBatch]) -> None:
        """Send until each batch is delivered, refused for good, or out of time."""
        left = list(batches)
        backoff = self._transport.backoff()
        try:
            encoded = {batch.tp: self._encoded(batch) for batch in batches}
            while left:
                left, reason = await self._attempt(left, encoded)
                overdue = [b for b in left if steady_ms() - b.created_ms >= self._config.delivery_timeout_ms]
                for batch in overdue:
                    self._settle(batch, self._overdue(batch, reason))
                left = [batch for batch in left if batch not in overdue]
                if left:
                    await asyncio.sleep(backoff.next_ms() / 1000)
        except BaseException as error:
            for batch in left:
                self._settle(batch, error if isinstance(error, Exception) else GIVEN_UP)
            raise
        finally:
            self._busy.difference_update(batch.tp for batch in batches)

    def _overdue(self, batch: PendingBatch, reason: Exception | None) -> Exception:
        """Why a batch is given up: what the last attempt met, and for how long."""
        if isinstance(reason, Unreachable):
            return reason.after(steady_ms() - batch.created_ms)
        return reason or ClientError("delivery.timeout.ms passed")

    def _encoded(self, batch: PendingBatch) -> bytes:
        return encode_batch(batch.records, codec=self._config.compression_type)

    async def _attempt(
        self, batches: list[PendingBatch], encoded: dict[TopicPartition, bytes]
    ) -> tuple[list[PendingBatch], Exception | None]:
        """Those to try again, and why."""
        request = pb.ProduceRequest(acks=ACKS[self._config.acks], timeout_ms=self._config.request_timeout_ms)
        lines: dict[str, pb.ProduceTopic] = {}
        for batch in batches:
            topic, partition = batch.tp
            if topic not in lines:
                lines[topic] = request.topic_data.add(name=topic)
            lines[topic].partition_data.add(index=partition, records=encoded[batch.tp])
        try:
            answer = await self._transport.call(PRODUCE, request, doing="producing records")
        except Unreachable as error:
            self._transport.announce(error)
            return batches, error
        except TransportRefused as error:
            for batch in batches:
                self._settle(batch, error)
            return [], None
        return self._settled_by(batches, answer)

    def _settled_by(
        self, batches: list[PendingBatch], answer: pb.ProduceResponse
    ) -> tuple[list[PendingBatch], Exception | None]:
        if self._config.acks == "0":
            for batch in batches:
                self._settle(batch, None)
            return [], None
        results = {TopicPartition(t.name, p.index): p for t in answer.responses for p in t.partition_responses}
        again: list[PendingBatch] = []
        reason: Exception | None = None
        for batch in batches:
            result = results.get(batch.tp)
            if result is None:
                self._settle(batch, ClientError(f"the node did not answer for {batch.tp.topic}-{batch.tp.partition}"))
            elif result.error_code:
                about = f"{batch.tp.topic}-{batch.tp.partition}"
                name = pb.ErrorCode.Name(result.error_code)
                error = refusal(result.error_code, name, result.error_message, about)
                if error.retriable:
                    again.append(batch)
                    reason = error
                else:
                    self._settle(batch, error)
            else:
                self._settle(batch, None, result.base_offset, result.log_append_time_ms)
        return again, reason

    def _settle(self, batch: PendingBatch, error: Exception | None, base_offset: int = -1, time_ms: int = -1) -> None:
        if error is not None:
            self.failed += len(batch.records)
            self.first_failure = self.first_failure or error
        for index, listener in batch.listeners:
            metadata = None
            if error is None:
                offset = base_offset + index if base_offset >= 0 else -1
                stamp = time_ms if time_ms >= 0 else batch.records[index][0]
                metadata = RecordMetadata(*batch.tp, offset, stamp)
            try:
                listener(error, metadata)
            except Exception:
                log.exception("on_delivery of %s-%d raised; the record is not affected", *batch.tp)
        self._accumulator.settled(batch)


def in_requests(batches: Sequence[PendingBatch], limit: int) -> list[list[PendingBatch]]:
    """Batches grouped so that no request is much larger than `limit` bytes."""
    groups: list[list[PendingBatch]] = []
    size = 0
    for batch in batches:
        if not groups or size + batch.size > limit:
            groups.append([])
            size = 0
        groups[-1].append(batch)
        size += batch.size
    return groups


def too_large(size: int, limit: int) -> MessageTooLarge:
    return MessageTooLarge(
        10,
        "MESSAGE_TOO_LARGE",
        f"a record of {size} bytes is over max.request.size={limit}; split it or raise the limit",
    )
