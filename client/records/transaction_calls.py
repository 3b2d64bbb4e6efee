"""Finds the coordinator of a transactional id, and talks to it and to coordinators of groups about transactions.

Requests are sent again while a coordinator loads, moves, completes the transaction before, or cannot be reached. This
is safe, because each transaction has an epoch of its own: a repeated request is recognized, a late one is refused.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeVar

from muster.client.calls.group_calls import GroupCalls, build_commit_request, check_code
from muster.client.calls.methods import END_TXN, FIND_COORDINATOR, INIT_TRANSACTIONS, TXN_OFFSET_COMMIT
from muster.client.calls.transport import CallRetry, Transport
from muster.client.errors import Refused, Unreachable
from muster.client.records.accumulator import NumberedOwnership
from muster.client.records.transaction_state import NOT_YET
from muster.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from muster.coordinator.observability.views.formatting import host_and_port
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as group_pb
from muster.coordinator.rpc.v1 import transaction_service_pb2 as pb

T = TypeVar("T")

TRANSACTION = "transaction"
"""The key type of transactional ids, for FindCoordinator."""
STAYS: frozenset[int] = frozenset({14, 51})
"""COORDINATOR_LOAD_IN_PROGRESS, CONCURRENT_TRANSACTIONS: the right coordinator was asked."""
MAX_GROUPS = 100
"""Coordinators of so many groups are remembered."""


class CoordinatorLookup(Protocol):
    """How a coordinator is found, and found again after it has moved."""

    async def coordinator(self) -> str: ...

    def forget_coordinator(self) -> None: ...


class TransactionCalls:
    """One transactional id's calls."""

    def __init__(self, transport: Transport, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._transport = transport
        self.end_unanswered = False
        """Whether an attempt of the last `end` was not answered: what it asked for may have been done."""
        self._address: str | None = None
        self._groups: dict[str, GroupCalls] = {}

    async def coordinator(self) -> str:
        """HOST:PORT of the coordinator, looked up when it is not known."""
        if self._address is None:
            doing = f"finding the coordinator of transactional id {self.transactional_id!r}"
            request = group_pb.FindCoordinatorRequest(key=self.transactional_id, key_type=TRANSACTION)
            bootstrap, leaders = self._transport.bootstrap, self._transport.leaders
            answer = await self._transport.call(
                FIND_COORDINATOR, request, doing=doing, address=bootstrap, timeout_ms=leaders.look_ms
            )
            leaders.hear(in_cluster=answer.in_cluster)
            check_code(answer.error_code, answer.error_message, self.transactional_id)
            self._address = host_and_port(answer.host, answer.port) if answer.host else bootstrap
        return self._address

    def forget_coordinator(self) -> None:
        self._address = None

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

        return await self._patiently(self, attempt, patience_ms)

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

        return await self._patiently(self, attempt, patience_ms)

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

        await self._patiently(self._groups[member.group_id], attempt, patience_ms)

    async def _patiently(
        self, link: CoordinatorLookup, attempt: Callable[[str, int], Awaitable[T]], patience_ms: int
    ) -> T:
        patience = CallRetry(self._transport, patience_ms)
        while True:
            try:
                address = await link.coordinator()
                return await attempt(
                    address, min(patience.attempt_ms, self._transport.leaders.answer_ms or patience_ms)
                )
            except (Refused, Unreachable) as error:
                if isinstance(error, Refused) and error.code not in NOT_YET:
                    raise
                if not (isinstance(error, Refused) and error.code in STAYS):
                    link.forget_coordinator()
                if not await patience.another_try(error):
                    if isinstance(error, Unreachable):
                        raise error.after(patience.waited_ms) from None
                    raise


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
