"""Performs a producer's transactions: flushes, adds positions, and ends them, as `transaction_state` says.

Lives on the sender's loop; only `admit` is called from the application's threads. One call at a time: commits, aborts
and positions wait for each other.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from muster.client.calls.transport import Transport
from muster.client.config import ProducerConfig
from muster.client.errors import ClientError, IllegalState, OutcomeUnknown, ProducerFenced, Refused, refusal
from muster.client.records.accumulator import Accumulator, NumberedOwnership, TransactionNumbering
from muster.client.records.sender import BatchSender
from muster.client.records.transaction_calls import TransactionCalls
from muster.client.records.transaction_state import (
    ABORTING_OFFSETS,
    FENCING_AN_END,
    INVALID_TXN_STATE,
    TransactionLife,
    TransactionPhase,
    build_aborted,
    describe_fate,
    fences,
    is_not_yet,
)
from muster.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition

log = logging.getLogger("muster.client")

DROPPED = ClientError("the transaction was aborted before the record was delivered")
UNKNOWN_MEMBER_ID = 25
PRODUCER_FENCED = 90
INTERRUPTED = ClientError("send_offsets() was interrupted")
NO_MEMBER = "the consumer is no member of its group at the moment; poll until it has joined again"

WaitUntil = Callable[[Callable[[], bool]], Awaitable[bool]]
"""Waits for a condition, which is looked at again whenever a batch has been delivered or given up."""


class ConsumedPositions(Protocol):
    """What a transaction wants to know of a consumer."""

    def consumer_group_metadata(self) -> GroupMetadata: ...

    def offsets_for_transaction(self) -> dict[TopicPartition, OffsetAndMetadata]: ...


class ProducerTransactions:
    """All transactions of one producer."""

    def __init__(
        self,
        config: ProducerConfig,
        transport: Transport,
        accumulator: Accumulator,
        sender: BatchSender,
        numbers: TransactionNumbering,
        wait_until: WaitUntil,
    ) -> None:
        assert numbers.transactional_id is not None, "transactions have a name"
        self.life = TransactionLife(numbers.transactional_id)
        self._calls = TransactionCalls(transport, numbers.transactional_id)
        self._config = config
        self._accumulator = accumulator
        self._sender = sender
        self._numbers = numbers
        self._wait_until = wait_until
        self._turn = asyncio.Lock()
        accumulator.admit = self.life.admit
        sender.on_given_up = self._fail

    # Calls of the application

    async def initialize(self) -> None:
        async with self._turn:
            self.life.check_initialize()
            await self._initialize()

    async def begin(self) -> None:
        async with self._turn:
            self.life.check_begin()
            if self.life.must_initialize:
                await self._initialize()
            self.life.begin()

    async def commit(self) -> None:
        """Flush, then commit. Raises TransactionAborted, ProducerFenced or OutcomeUnknown."""
        async with self._turn:
            await self._raise_failure()
            self.life.begin_commit()
            try:
                await self._flush()
                await self._raise_failure()
                if self.life.used:
                    await self._commit()
            except BaseException:
                # Interrupted: whoever begins again finds out what was decided.
                if self.life.phase is TransactionPhase.COMMITTING:
                    self.life.unanswered()
                raise
            self.life.ended()

    async def abort(self, patience_ms: int | None = None) -> None:
        """Drop what is not delivered yet, then abort; tried for delivery.timeout.ms. Raises ProducerFenced."""
        async with self._turn:
            if self.life.begin_abort():
                await self._abort(patience_ms)

    async def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: GroupMetadata) -> None:
        """Positions of a group that count once the transaction is committed.

        Raises TransactionAborted, when the group has gone on without the member, or the transaction has failed.
        """
        async with self._turn:
            await self._raise_failure()
            self.life.check_open("send_offsets()")
            if not offsets:
                return
            self.life.admit()
            try:
                if member.subscribed and member.generation < 0:
                    raise refusal(UNKNOWN_MEMBER_ID, "UNKNOWN_MEMBER_ID", NO_MEMBER, member.group_id)
                assert self._numbers.ownership is not None, "a transaction is open"
                await self._calls.commit_offsets(
                    self._numbers.ownership, offsets, member, self._config.default_api_timeout_ms
                )
            except Exception as error:
                self._fail(error)
                if is_not_yet(error) or fences(error, ABORTING_OFFSETS):
                    await self._raise_failure()
                raise
            except BaseException:
                self._fail(INTERRUPTED)
                raise

    async def settle_failure(self) -> None:
        """Where the transaction has failed: abort it and raise TransactionAborted."""
        async with self._turn:
            await self._raise_failure()

    async def close(self, patience_ms: int) -> None:
        """Abort what is open: the program has ended without a commit."""
        async with self._turn:
            if self.life.phase in (TransactionPhase.OPEN, TransactionPhase.FAILED) and self.life.begin_abort():
                if self.life.used:
                    log.warning("%r is closed with an open transaction, which is aborted", self.life.transactional_id)
                await self._abort(patience_ms)

    # What they are made of

    async def _initialize(self) -> None:
        """Take the transactional id, or go on with it: whatever was left open is aborted."""
        held = self._numbers.ownership
        if held is not None:
            # What an interrupted commit left behind must not become part of the next transaction.
            await self._sender.drop_all(DROPPED)
            self._sender.take_failures()
        try:
            ownership = await self._take_id(held)
        except Refused as error:
            if fences(error, FENCING_AN_END):
                raise self.life.fence(error) from None
            raise
        self._numbers.own(ownership)
        self.life.initialized()

    async def _take_id(self, held: NumberedOwnership | None) -> NumberedOwnership:
        """A coordinator that was restarted does not know any more which epoch came before, so it takes a producer that
        did not hear of its last end for a fenced one. It still recognizes that end, when it is sent again."""
        timeout_ms, patience_ms = self._config.transaction_timeout_ms, max(1, self._config.max_block_ms)
        try:
            return await self._calls.init_producer_id(timeout_ms, held, patience_ms)
        except Refused as error:
            if held is None or error.code != PRODUCER_FENCED:
                raise
        try:
            return await self._calls.end(held, commit=False, patience_ms=patience_ms)
        except Refused as error:
            if error.code != INVALID_TXN_STATE:
                raise
        # It was committed, and nobody has come since.
        return await self._calls.init_producer_id(timeout_ms, None, patience_ms)

    async def _flush(self) -> None:
        self._accumulator.begin_flush()
        try:
            committing = TransactionPhase.COMMITTING
            await self._wait_until(lambda: not self._accumulator.waiting or self.life.phase is not committing)
        finally:
            self._accumulator.end_flush()

    async def _commit(self) -> None:
        held = self._numbers.ownership
        assert held is not None, "a transaction is open"
        try:
            ownership = await self._calls.end(held, commit=True, patience_ms=self._config.delivery_timeout_ms)
        except ClientError as error:
            if fences(error, FENCING_AN_END) and isinstance(error, Refused):
                raise self._fence(error, unanswered=self._calls.end_unanswered) from None
            if is_not_yet(error):
                raise OutcomeUnknown(
                    f"whether the transaction of {self.life.transactional_id!r} is committed is unknown: {error}; the "
                    "next begin() settles it, so read the committed positions after it"
                ) from error
            self.life.fail(error)
            await self._raise_failure()
            raise
        self._numbers.own(ownership)

    async def _raise_failure(self) -> None:
        """Where the transaction has failed: abort it and raise TransactionAborted, or ProducerFenced."""
        self.life.check_usable()
        if self.life.phase is not TransactionPhase.FAILED:
            return
        failure = self.life.failure
        assert failure is not None, "it has failed because of something"
        self.life.begin_abort()
        await self._abort()
        raise build_aborted(failure)

    async def _abort(self, patience_ms: int | None = None) -> None:
        try:
            await self._sender.drop_all(DROPPED)
            self._sender.take_failures()
            if self.life.used:
                await self._end_aborting(patience_ms or self._config.delivery_timeout_ms)
        except BaseException:
            if self.life.phase is TransactionPhase.ABORTING:
                self.life.unanswered()
            raise
        if self.life.phase is TransactionPhase.ABORTING:
            self.life.ended()

    async def _end_aborting(self, patience_ms: int) -> None:
        held = self._numbers.ownership
        assert held is not None, "a transaction is open"
        try:
            self._numbers.own(await self._calls.end(held, commit=False, patience_ms=patience_ms))
        except ClientError as error:
            if fences(error, FENCING_AN_END) and isinstance(error, Refused):
                raise self.life.fence(error) from None
            if not is_not_yet(error):
                raise
            # Nothing of it can be committed: nobody else has this epoch.
            log.warning("%s; the next transaction, or transaction.timeout.ms, ends it", error)
            self.life.unanswered()

    def _fail(self, error: Exception) -> None:
        """A record, or positions, did not get into the transaction."""
        if isinstance(error, Refused) and fences(error):
            self._fence(error)
        else:
            self.life.fail(error)

    def _fence(self, error: Refused, *, unanswered: bool = False) -> ProducerFenced:
        """See `TransactionLife.fence`. unanswered: a request to commit was not answered before."""
        timeout_ms = self._config.transaction_timeout_ms
        fate = describe_fate(self.life.transactional_id, error.code, timeout_ms=timeout_ms, unanswered=unanswered)
        return self.life.fence(error, fate)


def choose_offsets(
    source: "Mapping[tuple[str, int], int | OffsetAndMetadata] | ConsumedPositions", member: GroupMetadata | None
) -> tuple[dict[TopicPartition, OffsetAndMetadata], GroupMetadata]:
    """The arguments of `send_offsets`: positions and whose they are, or a consumer that says both."""
    if isinstance(source, Mapping):
        if member is None:
            raise IllegalState("send_offsets(offsets) needs a group: pass consumer.consumer_group_metadata() as well")
        given = {
            TopicPartition(*tp): offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
            for tp, offset in source.items()
        }
        for tp, offset in given.items():
            if offset.offset < 0:
                raise IllegalState(f"offset {offset.offset} of {tp[0]}-{tp[1]} is none; expected 0 or more")
        return given, member
    if member is not None:
        raise IllegalState("send_offsets(consumer) takes the group from the consumer; leave the second argument out")
    return source.offsets_for_transaction(), source.consumer_group_metadata()
