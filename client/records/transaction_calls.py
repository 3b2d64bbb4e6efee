"""Talks to the coordinator of a transactional id, and to coordinators of groups, about transactions.

Requests are sent again while a coordinator loads, moves, completes the transaction before, or cannot be reached. This
is safe, because each transaction has an epoch of its own: a repeated request is recognized, a late one is refused.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from muster.client.calls.coordinator_search import (
    CoordinatorSearch,
    ask_patiently,
    check_code,
    search_for_transactional_id,
)
from muster.client.calls.group_calls import GroupCalls, build_commit_request
from muster.client.calls.methods import END_TXN, INIT_TRANSACTIONS, TXN_OFFSET_COMMIT
from muster.client.calls.transport import Transport
from muster.client.errors import Unreachable
from muster.client.records.accumulator import NumberedOwnership
from muster.client.records.transaction_state import NOT_YET
from muster.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as group_pb
from muster.coordinator.rpc.v1 import transaction_service_pb2 as pb

T = TypeVar("T")

MAX_GROUPS = 100
"""Coordinators of so many groups are remembered."""


class TransactionCalls:
    """One transactional id's calls."""

    def __init__(self, transport: Transport, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._transport = transport
        self.end_unanswered = False
        """Whether an attempt of the last `end` was not answered: what it asked for may have been done."""
        self._search = search_for_transactional_id(transport, transactional_id)
        self._groups: dict[str, GroupCalls] = {}

    async def init_producer_id(
        self, timeout_ms: int, held: NumberedOwnership | None, patience_ms: int
    ) -> NumberedOwnership:
        """Become the id's only producer; with `held`, go on as the one that has it (KIP-360).

        timeout_ms: after which the coordinator aborts an open transaction. Raises Unreachable or the last Refused after
        `patience_ms`.
        """
        request = pb.InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=None if held is None else held.producer_id,
            producer_epoch=None if held is None else held.epoch,
        )

        async def attempt(address: str, attempt_ms: int) -> NumberedOwnership:
            doing = f"initializing transactional id {self.transactional_id!r}"
            answer = await self._transport.call(
                INIT_TRANSACTIONS, request, doing=doing, address=address, timeout_ms=attempt_ms
            )
            check_code(answer.error_code, answer.error_message, self.transactional_id)
            return NumberedOwnership(answer.producer_id, answer.producer_epoch)

        return await self._patiently(self._search, attempt, patience_ms)

    async def end(self, held: NumberedOwnership, *, commit: bool, patience_ms: int) -> NumberedOwnership:
        """Commit or abort; the producer id and epoch of the next transaction. Raises as `init_producer_id`."""
        self.end_unanswered = False
        request = pb.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=held.producer_id,
            producer_epoch=held.epoch,
            commit=commit,
        )

        async def attempt(address: str, attempt_ms: int) -> NumberedOwnership:
            doing = f"{'committing' if commit else 'aborting'} a transaction of {self.transactional_id!r}"
            try:
                answer = await self._transport.call(
                    END_TXN, request, doing=doing, address=address, timeout_ms=attempt_ms
                )
            except Unreachable:
                self.end_unanswered = True
                raise
            check_code(answer.error_code, answer.error_message, self.transactional_id)
            return NumberedOwnership(answer.producer_id, answer.producer_epoch)

        return await self._patiently(self._search, attempt, patience_ms)

    async def commit_offsets(
        self,
        held: NumberedOwnership,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: GroupMetadata,
        patience_ms: int,
    ) -> None:
        """Positions of a group that count once the transaction is committed. The first refused partition raises."""
        request = build_offsets_request(self.transactional_id, held, offsets, member)
        if member.group_id not in self._groups:
            while len(self._groups) >= MAX_GROUPS:
                del self._groups[next(iter(self._groups))]
            self._groups[member.group_id] = GroupCalls(self._transport, member.group_id)

        async def attempt(address: str, attempt_ms: int) -> None:
            doing = f"adding positions of group {member.group_id!r} to a transaction of {self.transactional_id!r}"
            answer = await self._transport.call(
                TXN_OFFSET_COMMIT, request, doing=doing, address=address, timeout_ms=attempt_ms
            )
            for topic in answer.topics:
                for partition in topic.partitions:
                    about = f"{topic.name}-{partition.partition_index}"
                    check_code(partition.error_code, partition.error_message, about)
            check_code(answer.error_code, answer.error_message, member.group_id)

        await self._patiently(self._groups[member.group_id].search, attempt, patience_ms)

    async def _patiently(
        self, search: CoordinatorSearch, attempt: Callable[[str, int], Awaitable[T]], patience_ms: int
    ) -> T:
        most_ms = self._transport.leaders.answer_ms or patience_ms

        async def try_once(address: str, attempt_ms: int) -> T:
            return await attempt(address, min(attempt_ms, most_ms))

        return await ask_patiently(self._transport, search, try_once, NOT_YET, patience_ms)


def build_offsets_request(
    transactional_id: str,
    held: NumberedOwnership,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    member: GroupMetadata,
) -> group_pb.TxnOffsetCommitRequest:
    """Generation and member id are left out for a consumer that assigns partitions to itself."""
    is_member = member.generation >= 0 or bool(member.member_id)
    plain = build_commit_request(member.group_id, offsets, member if is_member else None)
    request = group_pb.TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=member.group_id,
        producer_id=held.producer_id,
        producer_epoch=held.epoch,
        member_id=plain.member_id,
        topics=plain.topics,
    )
    if is_member:
        request.generation_id_or_member_epoch = member.generation
        if member.group_instance_id is not None:
            request.group_instance_id = member.group_instance_id
    return request
