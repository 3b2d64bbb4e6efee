"""The admin client's view of transactions: transactional ids, what they have open, and how the last ones ended."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from muster.client.calls import methods
from muster.client.calls.group_calls import check_code
from muster.client.calls.transport import CallRetry, Transport
from muster.client.described import TransactionDescription, TransactionListing
from muster.client.errors import Refused, Unreachable
from muster.client.types import TopicPartition
from muster.coordinator.observability.views.formatting import host_and_port
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as group_pb
from muster.coordinator.rpc.v1 import transaction_service_pb2 as pb
from muster.storage.rpc.v1 import broker_service_pb2 as broker_pb

Answer = TypeVar("Answer")

LOADING, NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT = 14, 15, 16, 51
STAYS: Final = frozenset({LOADING, CONCURRENT})
"""The right coordinator was asked, too early."""
NOT_YET: Final = STAYS | {NOT_AVAILABLE, NOT_COORDINATOR}

TRANSACTION: Final = "transaction"
"""The key type of transactional ids, for FindCoordinator."""


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
    ) -> list[TransactionListing]:
        """Return the transactional ids of all nodes that pass every filter, by name.

        `states`: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort; others match nothing.
        `open_longer_than_ms`: only ids with a transaction open for longer. `pattern`: a regular expression (RE2) for
        the whole id. Raises the first refusal of a node.
        """
        request = pb.ListTransactionsRequest(
            states=states,
            producer_ids=producer_ids,
            open_longer_than_ms=open_longer_than_ms,
            transactional_id_pattern=pattern,
        )
        nodes = await self._coordinating_nodes()

        async def ask(address: str) -> pb.ListTransactionsResponse:
            async def attempt(_: str) -> pb.ListTransactionsResponse:
                answer = await self._transport.retried(
                    methods.LIST_TRANSACTIONS, request, doing="listing transactions", address=address
                )
                check_code(answer.error_code, answer.error_message)
                return answer

            return await patiently(self._transport, CoordinatorSearch(self._transport, "", address), attempt)

        answers = await asyncio.gather(*map(ask, nodes))
        return sorted(
            TransactionListing(each.transactional_id, node_id, each.producer_id, each.state)
            for node_id, answer in zip(nodes.values(), answers, strict=True)
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

    async def _at_coordinator(self, transactional_id: str, attempt: Callable[[str], Awaitable[Answer]]) -> Answer:
        return await patiently(self._transport, CoordinatorSearch(self._transport, transactional_id), attempt)

    async def _coordinating_nodes(self) -> dict[str, int]:
        """Ids of the nodes by the address at which each is asked."""
        metadata = await self._transport.retried(
            methods.METADATA, broker_pb.MetadataRequest(), doing="looking up the nodes"
        )
        nodes = {host_and_port(node.host, node.port): node.node_id for node in metadata.brokers}
        return nodes if self._transport.leaders.shared else {self._transport.bootstrap: next(iter(nodes.values()), -1)}


class CoordinatorSearch:
    """Where the coordinator of a transactional id is. `address`: of the only node that is asked."""

    def __init__(self, transport: Transport, transactional_id: str, address: str | None = None) -> None:
        self._transport = transport
        self._transactional_id = transactional_id
        self._given = self._found = address

    async def find(self) -> str:
        """HOST:PORT, looked up where it is not known. Raises Refused, Unreachable."""
        if self._found is None:
            doing = f"finding the coordinator of transactional id {self._transactional_id!r}"
            request = group_pb.FindCoordinatorRequest(key=self._transactional_id, key_type=TRANSACTION)
            bootstrap, leaders = self._transport.bootstrap, self._transport.leaders
            answer = await self._transport.call(
                methods.FIND_COORDINATOR, request, doing=doing, address=bootstrap, timeout_ms=leaders.look_ms
            )
            leaders.hear(in_cluster=answer.in_cluster)
            check_code(answer.error_code, answer.error_message, self._transactional_id)
            self._found = host_and_port(answer.host, answer.port) if answer.host else bootstrap
        return self._found

    def forget(self) -> None:
        self._found = self._given


async def patiently(
    transport: Transport, search: CoordinatorSearch, attempt: Callable[[str], Awaitable[Answer]]
) -> Answer:
    """Repeat `attempt(address)` while the coordinator moves, loads, completes a transaction or cannot be reached."""
    patience = CallRetry(transport)
    while True:
        try:
            return await attempt(await search.find())
        except (Refused, Unreachable) as error:
            if isinstance(error, Refused) and error.code not in NOT_YET:
                raise
            if not (isinstance(error, Refused) and error.code in STAYS):
                search.forget()
            if not await patience.another_try(error):
                raise error.after(patience.waited_ms) if isinstance(error, Unreachable) else error from None


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
