"""Sends batches to the log: in order per partition, and retried until delivery.timeout.ms.

A producer may write on behalf of a partition's owner: the group's coordinator gives the owner, and no other member, a
producer id and an epoch. The first batch for each log is preceded by a claim, and the log then refuses older owners.
Batches are numbered as Kafka's idempotent producers number them, so a repeated batch is written once.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from muster.client.calls.group_calls import GroupCalls
from muster.client.calls.leaders import MAYBE_MOVED, MOVED, ONE_NODE
from muster.client.calls.methods import CLAIM_FENCE, PRODUCE
from muster.client.calls.transport import Transport
from muster.client.config import ProducerConfig
from muster.client.errors import ClientError, MessageTooLarge, Refused, TransportRefused, Unreachable, refusal
from muster.client.records.accumulator import (
    Accumulator,
    BatchNumbers,
    NumberedOwnership,
    PendingBatch,
    SequenceCount,
    steady_ms,
)
from muster.client.twins import BackgroundTasks
from muster.client.types import FencingToken, OnDelivery, RecordMetadata, TopicPartition
from muster.coordinator.errors import error_code_of
from muster.coordinator.rpc.v1 import fence_service_pb2 as fence_pb
from muster.storage.records.batch import encode_batch
from muster.storage.rpc.v1 import broker_service_pb2 as pb

if TYPE_CHECKING:
    from muster.client.records.kafka_records import KafkaWriter


# Producing under a fence
# -----------------------

FENCED = 47
"""INVALID_PRODUCER_EPOCH."""
LOST_COUNT = frozenset({45, 59})
"""OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID: the log and the producer do not agree on what was written."""


class ProducerFence(SequenceCount):
    """One token's ownership, and how many records were written under it to each log. Lives on the sender's loop."""

    def __init__(self, token: FencingToken, transport: Transport) -> None:
        super().__init__()
        self.token = token
        self.ownership: NumberedOwnership | None = None
        self._transport = transport
        self._calls = GroupCalls(transport, token.group)
        self._claimed: set[TopicPartition] = set()
        self._turn = asyncio.Lock()

    async def claim(self, places: Iterable[TopicPartition]) -> None:
        """Become the only writer, if that is still to be done, and take these logs in.

        Raises ProducerFenced when another owner may write by now, Unreachable or a Refused that is retriable when it is
        to be tried again.
        """
        async with self._turn:
            fresh = [place for place in places if place not in self._claimed]
            if self.ownership is None or fresh:
                await self._claim_fence(fresh)

    async def claim_patiently(self, places: Sequence[TopicPartition]) -> None:
        """The same, and asked in any case; tried until default.api.timeout.ms."""

        async def attempt(_address: str) -> None:
            async with self._turn:
                await self._claim_fence(places)

        await self._calls.patiently(attempt)

    def ownership_of(self, place: TopicPartition) -> NumberedOwnership | None:
        """One for all logs."""
        return self.ownership

    def doubt(self, place: TopicPartition) -> None:
        """Nobody knows whether a batch was written: whatever comes next is counted anew, under a new ownership."""
        self.ownership = None
        self._claimed.clear()
        self._written.clear()

    async def _claim_fence(self, places: Sequence[TopicPartition]) -> None:
        token, held = self.token, self.ownership
        request = fence_pb.ClaimFenceRequest(
            group_id=token.group,
            member_id=token.member_id,
            topic=token.topic,
            partition=token.partition,
            generation_id=token.generation,
            producer_id=None if held is None else held.producer_id,
            producer_epoch=None if held is None else held.epoch,
            logs=[fence_pb.FencedLog(topic=topic, partition=partition) for topic, partition in places],
        )
        about = f"claiming {token.topic}-{token.partition} of group {token.group!r}"
        try:
            answer = await self._transport.call(
                CLAIM_FENCE, request, doing=about, address=await self._calls.coordinator()
            )
            if answer.error_code:
                raise refusal(
                    error_code_of(answer.error_code), error_code_of(answer.error_code).name, answer.error_message
                )
        except (Refused, Unreachable) as error:
            if not isinstance(error, Refused) or error.retriable:
                self._calls.forget_coordinator()
            raise
        self.ownership = NumberedOwnership(answer.producer_id, answer.producer_epoch)
        self._claimed.update(places)


# The sender
# ----------

log = logging.getLogger("muster.client")

GIVEN_UP = ClientError("the producer was closed before the record was delivered")
PERHAPS_WRITTEN = frozenset({7, 20})
"""REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND."""
TOO_LARGE = frozenset({10, 18})
"""MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE."""
ACKS = {"all": -1, "1": 1, "0": 0}


class BatchSender:
    """Up to max.in.flight requests at a time; a partition is in one of them at most, so its order is kept."""

    def __init__(
        self,
        transport: Transport,
        config: ProducerConfig,
        accumulator: Accumulator,
        numbers: BatchNumbers | None = None,
    ) -> None:
        self.failed = 0
        self.first_failure: Exception | None = None
        self._transport = transport
        self._config = config
        self._accumulator = accumulator
        self._numbers = numbers
        self.on_given_up: Callable[[Exception], None] | None = None
        """Called for each batch that is not delivered, on the sender's loop."""
        self._drops_because: Exception | None = None
        """While everything is being dropped: why."""
        self._leaders = transport.leaders
        self._writer: KafkaWriter | None = None
        self._at: Counter[str | None] = Counter()
        """Requests under way, by whom they were made for: a node, ONE_NODE, or None where nobody was known to lead."""
        self._busy: set[TopicPartition] = set()
        self.broken: Exception | None = None
        """Why it sends nothing any more; None as long as it does."""
        self._requests = BackgroundTasks(self._request_failed)
        self._running = BackgroundTasks(self._broke)
        self._wake = asyncio.Event()

    def start(self) -> None:
        if not self._running and self.broken is None:
            self._leaders.listen(self.wake)
            self._running.start(self._run())

    def wake(self) -> None:
        self._wake.set()

    def take_failures(self) -> tuple[int, Exception | None]:
        """How many records were given up since the last time, and why the first."""
        failed, first = self.failed, self.first_failure
        self.failed, self.first_failure = 0, None
        return failed, first

    async def stop(self) -> None:
        await self._running.cancel()
        await self._requests.cancel()
        if self._writer is not None:
            self._writer.close()
        self._give_up(GIVEN_UP)

    async def drop_all(self, why: Exception) -> None:
        """Give up what waits and what is under way, without waiting for answers. Nothing may be added meanwhile."""
        self._drops_because = why
        try:
            # A task that is cancelled before its first step would not settle its batches.
            await asyncio.sleep(0)
            await self._requests.cancel()
            self._give_up(why)
        finally:
            self._drops_because = None

    def _give_up(self, why: Exception) -> None:
        """All that waits to be sent: nobody must wait for one of these for ever."""
        self._accumulator.begin_flush()
        while batches := self._accumulator.take_batches(set())[0]:
            for batch in batches:
                self._settle(batch, why)
        self._accumulator.end_flush()

    def _broke(self, error: Exception) -> None:
        """A mistake of the program: what waits is given up, and the producer's next calls raise this."""
        log.error("the producer's sender failed", exc_info=error)
        self.broken = ClientError(f"this producer sends no more, by a mistake of the program: {error!r}; make another")
        self.broken.__cause__ = error
        self._give_up(self.broken)

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            next_ms = self._dispatch_all()
            try:
                wait_s = None if next_ms is None else max(0, next_ms - steady_ms()) / 1000
                await asyncio.wait_for(self._wake.wait(), wait_s)
            except TimeoutError:
                pass

    def _dispatch_all(self) -> int | None:
        """Send what may be sent; when to look again."""
        if self._drops_because is not None:
            return None
        limit, at = self._config.max_in_flight_requests_per_connection, self._at
        if not self._leaders.shared:
            if at.total() >= limit:
                return None
            batches, next_ms = self._accumulator.take_batches(self._busy)
            for group in split_into_requests(batches, self._config.max_request_size):
                self._dispatch(group, ONE_NODE)
            return next_ms
        route = self._leaders.route
        batches, next_ms = self._accumulator.take_batches(self._busy, lambda tp: at[route(tp)] >= limit)
        by_leader: dict[str | None, list[PendingBatch]] = {}
        for batch in batches:
            by_leader.setdefault(route(batch.tp), []).append(batch)
        for address, lot in by_leader.items():
            for group in split_into_requests(lot, self._config.max_request_size):
                self._dispatch(group, address)
        return next_ms

    def _dispatch(self, batches: Sequence[PendingBatch], address: str | None) -> None:
        self._busy.update(batch.tp for batch in batches)
        self._at[address] += 1
        self._requests.start(self._deliver(batches)).add_done_callback(lambda done: self._over(address))

    def _over(self, address: str | None) -> None:
        self._at[address] -= 1
        if not self._at[address]:
            del self._at[address]
        self._wake.set()

    def _request_failed(self, error: Exception) -> None:
        """Its records have been given up by it."""
        log.error("the producer's sender failed", exc_info=error)

    async def _deliver(self, batches: Sequence[PendingBatch]) -> None:
        """Send until each batch is delivered, refused for good, or out of time."""
        lines = {batch.tp: deque([batch]) for batch in batches}
        backoff = self._transport.backoff()
        try:
            while heads := [line[0] for line in lines.values()]:
                outcome = await self._attempt(heads)
                for batch in heads:
                    self._put_back(lines[batch.tp], outcome)
                    if not lines[batch.tp]:
                        # Its next batch need not wait for partitions whose leader does not answer.
                        del lines[batch.tp]
                        self._busy.discard(batch.tp)
                        self._wake.set()
                if outcome.again and lines:
                    await asyncio.sleep(backoff.next_ms() / 1000)
                    await self._leaders.settled(lines)
        except BaseException as error:
            for batch in chain.from_iterable(lines.values()):
                self._settle(batch, error if isinstance(error, Exception) else self._drops_because or GIVEN_UP)
            raise
        finally:
            self._busy.difference_update(lines)

    def _put_back(self, line: deque[PendingBatch], outcome: "SendOutcome") -> None:
        """What is left of a partition's line once its first batch has been tried."""
        batch = line.popleft()
        if batch in outcome.too_large:
            line.extendleft(reversed(self._accumulator.split_batch(batch)))
        elif batch in outcome.again:
            if steady_ms() - batch.created_ms >= self._config.delivery_timeout_ms:
                self._settle(batch, self._overdue(batch, outcome.reason))
            else:
                line.appendleft(batch)

    def _counts_anew(self, batch: PendingBatch, code: int) -> bool:
        """Whether the batch is refused for its number only, and may come again under an ownership taken since."""
        numbers = self._numbers
        if numbers is None or batch.ownership is None or not numbers.renews:
            return False
        current = numbers.ownership_of(batch.tp)
        if code in LOST_COUNT and batch.ownership == current:
            numbers.doubt(batch.tp)
        return code in LOST_COUNT or (code == FENCED and batch.ownership != current)

    def _overdue(self, batch: PendingBatch, reason: Exception | None) -> Exception:
        """Why a batch is given up: what the last attempt met, and for how long."""
        if isinstance(reason, Unreachable):
            return reason.after(steady_ms() - batch.created_ms)
        return reason or ClientError("delivery.timeout.ms passed")

    async def _attempt(self, batches: list[PendingBatch]) -> "SendOutcome":
        if self._leaders.records:
            return await self._write_elsewhere(batches)
        if (numbers := self._numbers) is not None:
            kept_out = await self._claimed(batches, numbers)
            if kept_out is not None:
                return kept_out
        by_leader, unknown = self._leaders.routed(batch.tp for batch in batches)
        if len(by_leader) == 1 and not unknown:
            return await self._send(batches, *by_leader)
        self._leaders.refresh_leaders(unknown)
        lots = [([batch for batch in batches if batch.tp in set(led)], at) for at, led in by_leader.items()]
        outcome = SendOutcome([batch for batch in batches if batch.tp in set(unknown)])
        if unknown:
            outcome.reason = self._leaders.why_not(unknown[0])
        for part in await asyncio.gather(*(self._send(lot, address) for lot, address in lots)):
            outcome.again += part.again
            outcome.too_large += part.too_large
            outcome.reason = part.reason or outcome.reason
        return outcome

    async def _send(self, batches: list[PendingBatch], address: str) -> "SendOutcome":
        request = pb.ProduceRequest(
            acks=ACKS[self._config.acks],
            timeout_ms=self._config.request_timeout_ms,
            transactional_id=self._config.transactional_id or "",
        )
        lines: dict[str, pb.ProduceTopic] = {}
        for batch in batches:
            topic, partition = batch.tp
            if topic not in lines:
                lines[topic] = request.topic_data.add(name=topic)
            if batch.encoded is None:
                batch.encoded = self._encoded(batch)
            lines[topic].partition_data.add(index=partition, records=batch.encoded)
        try:
            places = [batch.tp for batch in batches]
            answer = await self._leaders.ask_leader(
                PRODUCE, request, doing="producing records", address=address, places=places
            )
        except Unreachable as error:
            self._transport.announce(error)
            if self._leaders.shared:
                self._leaders.doubt(places)
            for batch in batches:
                batch.in_doubt = True
            return SendOutcome(again=batches, reason=error)
        except TransportRefused as error:
            for batch in batches:
                self._settle(batch, error)
            return SendOutcome()
        return self._settled_by(batches, answer)

    def _encoded(self, batch: PendingBatch) -> bytes:
        codec = self._config.compression_type
        if (numbers := self._numbers) is None:
            return encode_batch(batch.records, codec=codec)
        ownership = numbers.ownership_of(batch.tp)
        assert ownership is not None, "a batch follows its claim"
        batch.ownership = producer_id, epoch = ownership
        sequence = numbers.next_sequence(batch.tp)
        return encode_batch(
            batch.records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=numbers.transactional_id is not None,
        )

    async def _claimed(self, batches: list[PendingBatch], numbers: BatchNumbers) -> "SendOutcome | None":
        """Claim the logs that these go to; what came of the batches where that was not to be had."""
        try:
            await numbers.claim([batch.tp for batch in batches])
        except Unreachable as error:
            self._transport.announce(error)
            return SendOutcome(again=batches, reason=error)
        except (Refused, TransportRefused) as error:
            if isinstance(error, Refused) and error.retriable:
                return SendOutcome(again=batches, reason=error)
            for batch in batches:
                self._settle(batch, error)
            return SendOutcome()
        for batch in batches:
            if batch.ownership != numbers.ownership_of(batch.tp):
                batch.encoded = None
        return None

    def _settled_by(self, batches: list[PendingBatch], answer: pb.ProduceResponse) -> "SendOutcome":
        outcome = SendOutcome()
        self._look_for_others(answer)
        if self._config.acks == "0":
            for batch in batches:
                self._settle(batch, None)
            return outcome
        results = {TopicPartition(t.name, p.index): p for t in answer.responses for p in t.partition_responses}
        for batch in batches:
            result = results.get(batch.tp)
            if result is None:
                self._settle(batch, ClientError(f"the node did not answer for {batch.tp.topic}-{batch.tp.partition}"))
            elif not result.error_code:
                numbers = self._numbers
                if numbers is not None and batch.ownership == numbers.ownership_of(batch.tp) is not None:
                    numbers.wrote(batch.tp, len(batch.records))
                self._settle(batch, None, result.base_offset, result.log_append_time_ms)
            elif (error := build_batch_refusal(batch, result)).retriable or self._counts_anew(batch, result.error_code):
                batch.in_doubt |= result.error_code in PERHAPS_WRITTEN
                outcome.again.append(batch)
                outcome.reason = error
            elif result.error_code in TOO_LARGE and len(batch.records) > 1 and not batch.in_doubt:
                outcome.too_large.append(batch)
            else:
                self._settle(batch, error)
        return outcome

    def _look_for_others(self, answer: pb.ProduceResponse) -> None:
        """Whoever was asked may not be the leader, or no more."""
        moved = MAYBE_MOVED if self._leaders.shared else MOVED
        for topic in answer.responses:
            for result in topic.partition_responses:
                if result.error_code in moved:
                    led = result.current_leader if result.HasField("current_leader") else None
                    self._leaders.doubt([TopicPartition(topic.name, result.index)], led)

    async def _write_elsewhere(self, batches: list[PendingBatch]) -> "SendOutcome":
        """The nodes have no records: these go to somebody's Kafka."""
        if self._writer is None:
            from muster.client.records.kafka_records import KafkaWriter

            try:
                self._writer = KafkaWriter(self._config, self._leaders.records)
            except ClientError as error:
                for batch in batches:
                    self._settle(batch, error)
                return SendOutcome()
        for batch, told in zip(batches, await self._writer.write(batches), strict=True):
            errors = [each.error for each in told if each.error is not None]
            self.failed += len(errors)
            self.first_failure = self.first_failure or next(iter(errors), None)
            for index, listener in batch.listeners:
                each = told[index]
                self._report_delivery(batch, index, listener, each.error, each.offset, each.time_ms)
            self._accumulator.settled(batch)
        return SendOutcome()

    def _settle(self, batch: PendingBatch, error: Exception | None, base_offset: int = -1, time_ms: int = -1) -> None:
        if error is not None:
            self.failed += len(batch.records)
            self.first_failure = self.first_failure or error
            if batch.in_doubt and self._numbers is not None:
                # With the same number the next batch would be taken for this one.
                self._numbers.doubt(batch.tp)
            if self.on_given_up is not None:
                self.on_given_up(error)
        for index, listener in batch.listeners:
            offset = base_offset + index if base_offset >= 0 else -1
            self._report_delivery(batch, index, listener, error, offset, time_ms)
        self._accumulator.settled(batch)

    def _report_delivery(
        self,
        batch: PendingBatch,
        index: int,
        listener: OnDelivery,
        error: Exception | None,
        offset: int,
        time_ms: int,
    ) -> None:
        metadata = None
        if error is None:
            metadata = RecordMetadata(*batch.tp, offset, time_ms if time_ms >= 0 else batch.records[index][0])
        try:
            listener(error, metadata)
        except Exception:
            log.exception("on_delivery of %s-%d raised; the record is not affected", *batch.tp)


@dataclass(slots=True)
class SendOutcome:
    """Of one attempt: the batches to send again and why, and those that have to be split first."""

    again: list[PendingBatch] = field(default_factory=list)
    too_large: list[PendingBatch] = field(default_factory=list)
    reason: Exception | None = None


def build_batch_refusal(batch: PendingBatch, result: pb.ProducePartitionResult) -> Refused:
    about = f"{batch.tp.topic}-{batch.tp.partition}"
    name = pb.ErrorCode.Name(result.error_code)
    message = result.error_message
    if result.error_code in TOO_LARGE and len(batch.records) == 1:
        message = f"one record is too large by itself; {message}"
    return refusal(result.error_code, name, message, about)


def split_into_requests(batches: Sequence[PendingBatch], limit: int) -> list[list[PendingBatch]]:
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


def build_too_large(size: int, limit: int) -> MessageTooLarge:
    return MessageTooLarge(
        10,
        "MESSAGE_TOO_LARGE",
        f"a record of {size} bytes is over max.request.size={limit}; split it or raise the limit",
    )
