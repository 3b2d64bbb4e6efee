"""Asks other nodes about transactions: coordinators on behalf of partitions, leaders on behalf of coordinators.

What goes into which request is decided by `coordinator/transactions/node_requests.py`; here it is sent. Of each node
one request of either kind is under way at a time, on a link of its own. Nothing is sent a second time: a producer
sends its records again, and a coordinator its markers, once they know of the failure (TX-N20 to TX-N23).
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import count
from typing import Final, NamedTuple

import structlog

from muster.coordinator.config import Address
from muster.coordinator.edge.background_tasks import SupervisedTasks, TaskFailed, log_undone
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.handlers.transaction_batches import NodeMarker, PartitionCodes
from muster.coordinator.replication.io.wire.node_links import AddressOf, LinkError, LinkSettings, NodeLinks
from muster.coordinator.transactions.events import PartitionAddition
from muster.coordinator.transactions.node_requests import (
    MAX_PARTITIONS,
    NETWORK_EXCEPTION,
    AdditionQueue,
    AdditionRequest,
    MarkerQueue,
    Ticket,
)
from muster.coordinator.transactions.records import TopicPartition

log = structlog.get_logger("muster.transactions")

PATIENCE_S: Final = 5.0
"""Within which a node answers: then its link is at its end."""

UNREACHED: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER
"""What is told of a marker that nobody answered for: its coordinator sends it again, to whoever leads by then."""


class TransactionWaiter(NamedTuple):
    """Somebody who waits for what becomes of these partitions. missing: the code of those that nobody answers for."""

    partitions: tuple[TopicPartition, ...]
    missing: int
    answer: "asyncio.Future[PartitionCodes]"

    def tell(self, codes: PartitionCodes) -> None:
        if not self.answer.done():
            self.answer.set_result({place: codes.get(place, self.missing) for place in self.partitions})


class RemoteTransactions:
    """One per node, on the node's loop. It raises nothing for a node that is away: an error number says so."""

    def __init__(self, calling: LinkSettings, address_of: AddressOf, failed: TaskFailed = log_undone) -> None:
        """address_of: where other nodes are reached now. failed: hears of mistakes of the program."""
        self._address_of = address_of
        self._addition_links = NodeLinks(calling, address_of)
        self._marker_links = NodeLinks(calling, address_of)
        self._additions: dict[int, AdditionQueue] = {}
        self._markers: dict[int, MarkerQueue[NodeMarker]] = {}
        self._asking: dict[int, Address | None] = {}
        self._sending: dict[int, Address | None] = {}
        """Nodes with a request under way, and where they were when it began."""
        self._waiters: dict[Ticket, TransactionWaiter] = {}
        self._next_ticket = count(1).__next__
        self._tasks = SupervisedTasks(failed)
        self._closed = False

    async def ask_additions(self, node: int, addition: PartitionAddition) -> PartitionCodes:
        """Kafka's error number for each partition. NETWORK_EXCEPTION: there was no answer, or a repetition of this
        addition is asked instead. INVALID_PRODUCER_EPOCH: one of a later epoch waits."""
        if self._closed or not addition.partitions:
            return dict.fromkeys(addition.partitions, NETWORK_EXCEPTION)
        codes: dict[TopicPartition, int] = {}
        for part in split_addition(addition, MAX_PARTITIONS):
            if NETWORK_EXCEPTION in codes.values():
                codes.update(dict.fromkeys(part.partitions, NETWORK_EXCEPTION))
            else:
                codes.update(await self._ask_part(node, part))
        return codes

    async def _ask_part(self, node: int, addition: PartitionAddition) -> PartitionCodes:
        """Of an addition that has room in one request."""
        queue, ticket = self._additions.setdefault(node, AdditionQueue()), self._next_ticket()
        self._wait(ticket, addition.partitions, NETWORK_EXCEPTION)
        for refused, code in queue.add(ticket, addition):
            self._refuse(refused, code)
        if node not in self._asking:
            self._asking[node] = self._address_of(node)
            self._tasks.start(self._ask_node(node, queue), "additions to transactions")
        return await self._answer_of(ticket, queue.withdraw)

    async def write_markers(
        self, node: int, marker: NodeMarker, partitions: Sequence[TopicPartition]
    ) -> PartitionCodes:
        """Kafka's error number for each partition; NOT_LEADER_OR_FOLLOWER where there was no answer, or too much waits
        for that node already."""
        queue = self._markers.setdefault(node, MarkerQueue())
        ticket = self._next_ticket()
        if self._closed or not partitions or not queue.add(ticket, marker, partitions):
            return dict.fromkeys(partitions, UNREACHED)
        self._wait(ticket, tuple(partitions), UNREACHED)
        if node not in self._sending:
            self._sending[node] = self._address_of(node)
            self._tasks.start(self._send_to_node(node, queue), "transaction markers for other nodes")
        return await self._answer_of(ticket, queue.withdraw)

    def nodes_changed(self) -> None:
        """Whoever waits for a node that is gone, or elsewhere, waits no longer: others lead what it led."""
        for under_way, links in ((self._asking, self._addition_links), (self._sending, self._marker_links)):
            for node, address in under_way.items():
                if self._address_of(node) != address:
                    links.let_go(node)

    async def close(self) -> None:
        """Whoever waits hears that there was no answer."""
        self._closed = True
        await self._tasks.close()
        self._addition_links.close()
        self._marker_links.close()
        for waiter in self._waiters.values():  # of a task that had not begun
            waiter.tell({})

    # -- who waits --------------------------------------------------------------------------------------------------

    def _wait(self, ticket: Ticket, partitions: tuple[TopicPartition, ...], missing: int) -> None:
        answer: asyncio.Future[PartitionCodes] = asyncio.get_running_loop().create_future()
        self._waiters[ticket] = TransactionWaiter(partitions, missing, answer)

    async def _answer_of(self, ticket: Ticket, withdraw: Callable[[Ticket], None]) -> PartitionCodes:
        try:
            return await self._waiters[ticket].answer
        finally:
            del self._waiters[ticket]
            withdraw(ticket)

    def _answer(self, found: Iterable[tuple[Ticket, PartitionCodes]]) -> None:
        for ticket, codes in found:
            waiter = self._waiters.get(ticket)
            if waiter is not None:
                waiter.tell(codes)

    def _refuse(self, ticket: Ticket, code: int) -> None:
        waiter = self._waiters.get(ticket)
        if waiter is not None:
            waiter.tell(dict.fromkeys(waiter.partitions, code))

    # -- requests ---------------------------------------------------------------------------------------------------

    async def _ask_node(self, node: int, queue: AdditionQueue) -> None:
        request = AdditionRequest((), {})
        try:
            while queue:
                request = queue.take_request()
                link = await self._addition_links.to(node)
                told = await link.add_partitions(request.additions, deadline_s=PATIENCE_S)
                self._answer(request.answers(told, NETWORK_EXCEPTION))
        except LinkError as error:
            log.debug("a coordinator does not answer for transactions", node=node, why=str(error))
            self._answer(request.answers({}, NETWORK_EXCEPTION))
            while queue:
                self._answer(queue.take_request().answers({}, NETWORK_EXCEPTION))
                await asyncio.sleep(0)
        finally:
            del self._asking[node]
            self._answer(request.answers({}, NETWORK_EXCEPTION))
            while queue:
                self._answer(queue.take_request().answers({}, NETWORK_EXCEPTION))

    async def _send_to_node(self, node: int, queue: MarkerQueue[NodeMarker]) -> None:
        try:
            while queue:
                request = queue.take_request()
                link = await self._marker_links.to(node)
                told = await link.write_markers(request.markers.items(), deadline_s=PATIENCE_S)
                self._answer(queue.take_answer(request, told, UNREACHED))
        except LinkError as error:
            log.debug("a leader does not answer for markers", node=node, why=str(error))
            while queue:
                self._answer(queue.take_some(UNREACHED))
                await asyncio.sleep(0)
        finally:
            del self._sending[node]
            while queue:
                self._answer(queue.take_some(UNREACHED))


def split_addition(addition: PartitionAddition, most: int) -> list[PartitionAddition]:
    """In parts of at most so many partitions."""
    places = addition.partitions
    if len(places) <= most:
        return [addition]
    return [replace(addition, partitions=places[first : first + most]) for first in range(0, len(places), most)]
