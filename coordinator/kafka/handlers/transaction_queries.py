"""What operators ask about transactional ids: DescribeTransactions and ListTransactions (KIP-664, KIP-994, KIP-1152).

`describe_each` and `TransactionLists` answer for every listener.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from muster.coordinator.core.model.rights import compile_pattern
from muster.coordinator.edge.large_answers import SharedAnswers
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import KafkaCall, encode_aside
from muster.coordinator.kafka.handlers.transactions import REFUSALS, TransactionService, refusal_code
from muster.coordinator.transactions.effects import (
    DescribeTransactionReply,
    ListedTransaction,
    ListTransactionsReply,
)
from muster.coordinator.transactions.events import DescribeTransaction, ListTransactions
from muster.coordinator.transactions.records import TransactionState
from muster.long_work import run_in_answer_thread

KNOWN_STATES: Final = frozenset(state.title for state in TransactionState)

DESCRIBED_AT_ONCE: Final = 200
"""Ids that are asked about between two turns of the loop."""


# For every listener
# ------------------


async def describe_each(service: TransactionService, names: Sequence[str]) -> list[DescribeTransactionReply]:
    """What is known of each id; a refusal is a reply with a code. Raises Overloaded, NodeShuttingDown."""

    async def describe(transactional_id: str) -> DescribeTransactionReply:
        try:
            return await service.ask(
                transactional_id, lambda number: DescribeTransaction(number, transactional_id), DescribeTransactionReply
            )
        except CoordinatorError as refusal:
            return DescribeTransactionReply(refusal.code, refusal.message)

    described: list[DescribeTransactionReply] = []
    for start in range(0, len(names), DESCRIBED_AT_ONCE):
        described += await asyncio.gather(*map(describe, names[start : start + DESCRIBED_AT_ONCE]))
    return described


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """Which transactional ids are listed; an empty filter lets everything pass, and so does an age below 0."""

    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    open_longer_than_ms: int = -1
    pattern: str = ""

    @property
    def unknown_states(self) -> list[str]:
        """Those that there are not; they match nothing."""
        return [each for each in dict.fromkeys(self.states) if each not in KNOWN_STATES]


class MatchingTransactions(NamedTuple):
    """What `TransactionLists` finds, and the refusals of the shards that cannot be read."""

    listed: list[ListedTransaction]
    unread: dict[int, ListTransactionsReply]


class TransactionLists:
    """Lists the ids of all shards, once for callers who ask for the same at the same time."""

    def __init__(self, service: TransactionService) -> None:
        self._service = service
        self._shared: SharedAnswers[TransactionFilter, MatchingTransactions] = SharedAnswers()

    async def get(self, wanted: TransactionFilter) -> MatchingTransactions:
        """The ids that pass every filter. A shard that could not be loaded has none to list, at this node at least, and
        keeps no others back (TX-C18). Raises CoordinatorError where a shard still loads, and for a pattern that RE2
        does not read; Overloaded, NodeShuttingDown."""
        return await self._shared.get(wanted, lambda: self._matching(wanted))

    async def _matching(self, wanted: TransactionFilter) -> MatchingTransactions:
        asked = wanted.states, wanted.producer_ids, wanted.open_longer_than_ms
        ask = self._service.ask_every_shard
        replies = await ask(lambda number: ListTransactions(number, *asked), ListTransactionsReply)
        for each in replies.values():
            if each.code not in (0, ErrorCode.NOT_COORDINATOR):
                raise CoordinatorError(each.code, each.message)
        listed = [each for reply in replies.values() for each in reply.transactions]
        unread = {shard: reply for shard, reply in replies.items() if reply.code}
        return MatchingTransactions(await keep_matching(listed, wanted.pattern), unread)


async def keep_matching(listed: Sequence[ListedTransaction], pattern: str) -> list[ListedTransaction]:
    """Those whose id matches, whole. Raises CoordinatorError for a pattern that RE2 does not read."""
    return await run_in_answer_thread(lambda: select_matching(listed, pattern)) if pattern else list(listed)


def select_matching(listed: Iterable[ListedTransaction], pattern: str) -> list[ListedTransaction]:
    """See `keep_matching`. In any thread."""
    try:
        matches = compile_pattern(pattern).fullmatch
    except ValueError as error:
        raise CoordinatorError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"transactional_id_pattern is none that RE2 reads: {error}"
        ) from error
    return [each for each in listed if matches(each.transactional_id)]


# Kafka's listener
# ----------------


class TransactionQueryHandlers:
    """Handlers of a node that coordinates transactional ids."""

    def __init__(self, service: TransactionService) -> None:
        self._service = service
        self._lists = TransactionLists(service)

    async def describe_transactions(self, request: Any, call: KafkaCall) -> Any:
        """A row for each id that is named."""
        names = list(request.transactional_ids)
        try:
            replies = await describe_each(self._service, names)
        except REFUSALS as error:
            replies = [DescribeTransactionReply(ErrorCode(refusal_code(error)))] * len(names)
        rows = len(names) + sum(len(each) for reply in replies for each in reply.partitions.values())

        answer = partial(make_described_response, names, replies)
        return await encode_aside("DescribeTransactionsResponse", call.api_version, answer, rows)

    async def list_transactions(self, request: Any, call: KafkaCall) -> Any:
        """Those of all shards, as far as states, producers, age and name are asked for. States that there are none of
        are told."""
        wanted = TransactionFilter(
            tuple(request.state_filters),
            tuple(request.producer_id_filters),
            request.duration_filter,
            request.transactional_id_pattern or "",
        )
        response = struct("ListTransactionsResponse")(unknown_state_filters=wanted.unknown_states)
        try:
            listed, _ = await self._lists.get(wanted)  # Kafka has no field for the rest.
        except REFUSALS as error:
            response.error_code = refusal_code(error)
            return response

        def answer() -> Any:
            row = struct("ListTransactionsResponse.transaction_states")
            response.transaction_states = [
                row(transactional_id=each.transactional_id, producer_id=each.producer_id, transaction_state=each.state)
                for each in listed
            ]
            return response

        return await encode_aside("ListTransactionsResponse", call.api_version, answer, len(listed))


def make_described_response(names: Sequence[str], replies: Sequence[DescribeTransactionReply]) -> Any:
    return struct("DescribeTransactionsResponse")(transaction_states=list(map(make_described, names, replies)))


def make_described(transactional_id: str, reply: DescribeTransactionReply) -> Any:
    row = struct("DescribeTransactionsResponse.transaction_states")
    if reply.code:
        return row(error_code=reply.code, transactional_id=transactional_id)
    topic_row = struct("DescribeTransactionsResponse.transaction_states.topics")
    return row(
        transactional_id=transactional_id,
        transaction_state=reply.state,
        transaction_timeout_ms=reply.timeout_ms,
        transaction_start_time_ms=reply.started_ms,
        producer_id=reply.producer_id,
        producer_epoch=reply.epoch,
        topics=[topic_row(topic=topic, partitions=list(numbers)) for topic, numbers in reply.partitions.items()],
    )
