"""A producer that writes on behalf of a partition's owner, so that logs refuse it once another owner writes.

An ownership (a producer id and its epoch) comes from the group's coordinator, which gives it to the partition's owner
alone. The first batch for a log is preceded by a claim for that log. Batches are numbered as Kafka's idempotent
producers number them, so a repeated one is written once.
"""

import asyncio
from collections.abc import Iterable, Sequence

from muster.client.calls.group_calls import GroupCalls
from muster.client.calls.methods import CLAIM_FENCE
from muster.client.calls.transport import Transport
from muster.client.errors import Refused, Unreachable, refusal
from muster.client.records.numbering import NumberedOwnership, SequenceCount
from muster.client.types import FencingToken, TopicPartition
from muster.coordinator.errors import error_code_of
from muster.coordinator.rpc.v1 import fence_service_pb2 as fence_pb

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
                await self._ask(fresh)

    async def claim_patiently(self, places: Sequence[TopicPartition]) -> None:
        """The same, and asked in any case; tried until default.api.timeout.ms."""

        async def attempt(_address: str) -> None:
            async with self._turn:
                await self._ask(places)

        await self._calls.patiently(attempt)

    def ownership_of(self, place: TopicPartition) -> NumberedOwnership | None:
        """One for all logs."""
        return self.ownership

    def doubt(self, place: TopicPartition) -> None:
        """Nobody knows whether a batch was written: whatever comes next is counted anew, under a new ownership."""
        self.ownership = None
        self._claimed.clear()
        self._written.clear()

    async def _ask(self, places: Sequence[TopicPartition]) -> None:
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
