"""Batches are numbered, so that one that is sent again is written once (KIP-98, KIP-360): an idempotent producer.

A node gives the producer an id. Where nobody knows any more whether a batch was written, or a log has lost count, its
partition goes on under another id, from 0; the others keep theirs.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from muster.client.calls.methods import INIT_PRODUCER_ID
from muster.client.calls.transport import Transport
from muster.client.errors import refusal
from muster.client.types import TopicPartition
from muster.storage.rpc.v1 import broker_service_pb2 as pb

MAX_SEQUENCE: Final = 0x7FFFFFFF


class NumberedOwnership(NamedTuple):
    """Under which id a batch is numbered, and in how many-th life of it."""

    producer_id: int
    epoch: int


class BatchNumbers(Protocol):
    """Who numbers batches: a producer for itself, or the fence of a partition's owner."""

    async def claim(self, places: Sequence[TopicPartition]) -> None:
        """Before batches go to these. Raises Unreachable, or a retriable Refused, when it is to be tried again."""

    def ownership_of(self, place: TopicPartition) -> NumberedOwnership | None:
        """What the next batch for this log is numbered under; None before it is claimed."""

    def next_sequence(self, place: TopicPartition) -> int:
        """The number of the next record for this log."""

    def wrote(self, place: TopicPartition, records: int) -> None: ...

    def doubt(self, place: TopicPartition) -> None:
        """Nobody knows whether a batch was written: what comes next is counted anew."""


class SequenceCount:
    """How many records were written to each log under the id that counts there."""

    def __init__(self) -> None:
        self._written: dict[TopicPartition, int] = {}

    def next_sequence(self, place: TopicPartition) -> int:
        return self._written.get(place, 0)

    def wrote(self, place: TopicPartition, records: int) -> None:
        self._written[place] = (self._written.get(place, 0) + records) & MAX_SEQUENCE


class ProducerNumbering(SequenceCount):
    """One producer's ids. Lives on the sender's loop."""

    def __init__(self, transport: Transport) -> None:
        super().__init__()
        self._transport = transport
        self._current: NumberedOwnership | None = None
        self._of: dict[TopicPartition, NumberedOwnership] = {}
        self._turn = asyncio.Lock()

    async def claim(self, places: Iterable[TopicPartition]) -> None:
        async with self._turn:
            for place in places:
                if place not in self._of:
                    if self._current is None:
                        self._current = await self._ask()
                    self._of[place] = self._current

    def ownership_of(self, place: TopicPartition) -> NumberedOwnership | None:
        return self._of.get(place)

    def doubt(self, place: TopicPartition) -> None:
        if self._of.pop(place, None) == self._current:
            self._current = None
        self._written.pop(place, None)

    async def _ask(self) -> NumberedOwnership:
        answer = await self._transport.call(
            INIT_PRODUCER_ID,
            pb.InitProducerIdRequest(),
            doing="asking for a producer id",
            timeout_ms=self._transport.leaders.look_ms,
        )
        if answer.error_code:
            raise refusal(answer.error_code, pb.ErrorCode.Name(answer.error_code), answer.error_message)
        return NumberedOwnership(answer.producer_id, answer.producer_epoch)
