"""The admin client's view of transactions: transactional ids, what they have open, and how the last ones ended."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, Final, Protocol, TypeVar

from muster.client.calls import methods
from muster.client.calls.coordinator_search import (
    CONCURRENT,
    ELSEWHERE,
    LOADING,
    CoordinatorSearch,
    FixedCoordinator,
    ask_patiently,
    check_code,
    search_for_transactional_id,
)
from muster.client.calls.leaders import MOVED, ONE_NODE
from muster.client.calls.topic_calls import Refusals, call_leaders
from muster.client.calls.transport import Transport
from muster.client.described import ProducerDescription, TransactionDescription, TransactionListing
from muster.client.errors import Refused, Unreachable, refusal
from muster.client.members.subscription import group_by_topic
from muster.client.types import TopicPartition
from muster.coordinator.observability.views.formatting import host_and_port
from muster.coordinator.rpc.v1 import transaction_service_pb2 as pb
from muster.storage.rpc.v1 import broker_service_pb2 as broker_pb

Answer = TypeVar("Answer")

TRANSACTION_LOG: Final = "__transaction_state"
"""Each of its partitions has the transactional ids that hash to it."""

NOT_YET: Final = ELSEWHERE | {LOADING, CONCURRENT}

DESCRIBED_AT_ONCE: Final = 500
"""Partitions whose producers are asked about in one round."""


class TransactionAdminCalls:
    """Questions of operators about transactions, and what they do about one that hangs, as part of `Admin`."""

    _transport: Transport

    async def list_transactions(
        self,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        *,
        open_longer_than_ms: int | None = None,
        pattern: str = "",
        missing: Callable[[str], None] | None = None,
    ) -> list[TransactionListing]:
        """Return the transactional ids of all nodes that pass every filter, by name.

        `states`: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort; others match nothing.
        `open_longer_than_ms`: only ids with a transaction open for longer. `pattern`: a regular expression (RE2) for
        the whole id. `missing` hears why those of a partition of `__transaction_state` that could not be loaded, or of
        a node that cannot be reached, are not among them; without it that is raised, as is any refusal of a node.
        """
        request = pb.ListTransactionsRequest(
            states=states,
            producer_ids=producer_ids,
            open_longer_than_ms=open_longer_than_ms,
            transactional_id_pattern=pattern,
        )
        nodes = await self._coordinating_nodes()

        async def ask(address: str) -> pb.ListTransactionsResponse | None:
            async def attempt(_: str) -> pb.ListTransactionsResponse:
                answer = await self._transport.retried(
                    methods.LIST_TRANSACTIONS, request, doing="listing transactions", address=address
                )
                check_code(answer.error_code, answer.error_message)
                return answer

            try:
                return await ask_at(self._transport, FixedCoordinator(address), attempt)
            except Unreachable:
                if missing is None:
                    raise
                missing(f"those of {address}, which is one of the cluster and cannot be reached from here")
                return None

        answers = await asyncio.gather(*map(ask, nodes))
        told = [(node, answer) for node, answer in zip(nodes.values(), answers, strict=True) if answer is not None]
        for each in (unread for _, answer in told for unread in answer.unread):
            try:
                check_code(each.error_code, each.error_message)
            except Refused as refused:
                if missing is None:
                    raise
                missing(f"those of {TRANSACTION_LOG}-{each.partition}: {refused}")
        return sorted(
            TransactionListing(each.transactional_id, node_id, each.producer_id, each.state)
            for node_id, answer in told
            for each in answer.transactions
        )

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """Return what its coordinator knows of a transactional id. Raises TransactionalIdNotFound."""
        request = pb.DescribeTransactionsRequest(transactional_ids=[transactional_id])
        doing = f"describing transactional id {transactional_id!r}"

        async def attempt(address: str) -> pb.DescribedTransaction:
            answer = await self._transport.call(methods.DESCRIBE_TRANSACTIONS, request, doing=doing, address=address)
            (found,) = answer.transactions
            check_code(found.error_code, found.error_message, transactional_id)
            return found

        return read_described(await self._at_coordinator(transactional_id, attempt))

    async def terminate_transaction(self, transactional_id: str) -> None:
        """Abort what the transactional id has open, and fence its producer (KIP-1152). The id keeps its timeout.

        Returns when all markers are durable. Raises TransactionalIdNotFound.
        """
        request = pb.TerminateTransactionRequest(transactional_id=transactional_id)
        doing = f"terminating the transaction of {transactional_id!r}"

        async def attempt(address: str) -> None:
            answer = await self._transport.call(methods.TERMINATE_TRANSACTION, request, doing=doing, address=address)
            check_code(answer.error_code, answer.error_message, transactional_id)

        await self._at_coordinator(transactional_id, attempt)

    async def explain_transactions(self, transactional_id: str) -> pb.ExplainTransactionsResponse:
        """Return how the last transactions of an id ended, who ended them, and what they held back meanwhile.

        Raises TransactionalIdNotFound.
        """
        request = pb.ExplainTransactionsRequest(transactional_id=transactional_id)
        doing = f"explaining transactional id {transactional_id!r}"

        async def attempt(address: str) -> pb.ExplainTransactionsResponse:
            answer = await self._transport.call(methods.EXPLAIN_TRANSACTIONS, request, doing=doing, address=address)
            check_code(answer.error_code, answer.error_message, transactional_id)
            return answer

        return await self._at_coordinator(transactional_id, attempt)

    async def describe_producers(
        self, partitions: Iterable[tuple[str, int]], missing: Callable[[TopicPartition, Refused], None] | None = None
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """Return the producers that the logs of these partitions know, by producer id.

        `missing` is told of the partitions that cannot be looked at; without it the first one raises its Refused.
        """
        left = [TopicPartition(*place) for place in partitions]
        found: dict[TopicPartition, list[ProducerDescription]] = {}
        for start in range(0, len(left), DESCRIBED_AT_ONCE):
            lot = left[start : start + DESCRIBED_AT_ONCE]
            found |= await describe_producers(self._transport, lot, missing)
        return found

    async def abort_transaction(
        self, topic: str, partition: int, producer_id: int, producer_epoch: int, coordinator_epoch: int = 0
    ) -> None:
        """Abort what a producer has open in one partition, which nobody else will end.

        The figures are those of `describe_producers`; a coordinator epoch of -1 is 0 here. Of a transaction that does
        not hang its coordinator may still commit the other parts: see `terminate_transaction` for those.
        """
        place = TopicPartition(topic, partition)

        async def attempt(address: str, places: Collection[TopicPartition], patience_ms: int | None) -> Refusals:
            request = broker_pb.WriteTxnMarkersRequest(
                producer_id=producer_id, producer_epoch=producer_epoch, coordinator_epoch=max(coordinator_epoch, 0)
            )
            request.topics.add(name=topic, partition_indexes=[partition])
            answer = await self._transport.call(
                methods.WRITE_TXN_MARKERS,
                request,
                doing=f"aborting a transaction in {topic}-{partition}",
                address=address or None,
                timeout_ms=patience_ms,
            )
            ((result,),) = (told.partitions for told in answer.topics)
            return {place: refusal_of_partition(place, result)} if result.error_code else {}

        await call_leaders(self._transport, [place], attempt)

    async def _at_coordinator(self, transactional_id: str, attempt: Callable[[str], Awaitable[Answer]]) -> Answer:
        return await ask_at(self._transport, search_for_transactional_id(self._transport, transactional_id), attempt)

    async def _coordinating_nodes(self) -> dict[str, int]:
        """Ids of the nodes by the address at which each is asked."""
        metadata = await self._transport.retried(
            methods.METADATA, broker_pb.MetadataRequest(), doing="looking up the nodes"
        )
        nodes = {host_and_port(node.host, node.port): node.node_id for node in metadata.brokers}
        return nodes if self._transport.leaders.shared else {self._transport.bootstrap: next(iter(nodes.values()), -1)}


class RefusedPartition(Protocol):
    @property
    def error_code(self) -> Any: ...

    @property
    def error_message(self) -> str: ...


def refusal_of_partition(place: TopicPartition, result: RefusedPartition) -> Refused:
    name = broker_pb.ErrorCode.Name(result.error_code)
    return refusal(result.error_code, name, result.error_message, f"{place.topic}-{place.partition}")


async def describe_producers(
    transport: Transport,
    partitions: Collection[TopicPartition],
    missing: Callable[[TopicPartition, Refused], None] | None,
) -> dict[TopicPartition, list[ProducerDescription]]:
    """See `TransactionAdminCalls.describe_producers`, in one request to each node."""
    found: dict[TopicPartition, list[ProducerDescription]] = {}

    async def attempt(address: str, places: Collection[TopicPartition], patience_ms: int | None) -> Refusals:
        request = broker_pb.DescribeProducersRequest()
        for topic, numbers in group_by_topic(places).items():
            request.topics.add(name=topic, partition_indexes=numbers)
        call = transport.retried if address == ONE_NODE else transport.call
        answer = await call(
            methods.DESCRIBE_PRODUCERS,
            request,
            doing="describing producers",
            address=address or None,
            timeout_ms=patience_ms,
        )
        refused: Refusals = {}
        for told in answer.topics:
            for result in told.partitions:
                place = TopicPartition(told.name, result.partition_index)
                if not result.error_code:
                    found[place] = [read_producer(each) for each in result.active_producers]
                    continue
                error = refusal_of_partition(place, result)
                if missing is not None and error.code not in MOVED:
                    missing(place, error)
                else:
                    refused[place] = error
        return refused

    await call_leaders(transport, partitions, attempt)
    return found


def read_producer(entry: broker_pb.ProducerStateEntry) -> ProducerDescription:
    return ProducerDescription(
        entry.producer_id,
        entry.producer_epoch,
        entry.coordinator_epoch,
        entry.last_sequence,
        entry.last_timestamp_ms,
        entry.current_txn_start_offset if entry.current_txn_start_offset >= 0 else None,
    )


def ask_at(
    transport: Transport, search: CoordinatorSearch | FixedCoordinator, attempt: Callable[[str], Awaitable[Answer]]
) -> Awaitable[Answer]:
    """Repeat `attempt(address)` while the coordinator moves, loads, completes a transaction or cannot be reached."""
    return ask_patiently(transport, search, lambda address, _: attempt(address), NOT_YET)


def read_described(found: pb.DescribedTransaction) -> TransactionDescription:
    return TransactionDescription(
        found.transactional_id,
        found.coordinator_id,
        found.state,
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        found.start_time_ms if found.start_time_ms >= 0 else None,
        tuple(TopicPartition(topic.topic, number) for topic in found.topics for number in topic.partitions),
        found.client_address,
        found.client_software,
    )
