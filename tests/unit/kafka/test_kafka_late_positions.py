"""Positions in a transaction whose group's log changes its leader epoch while the coordinator of the id is asked."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from muster.coordinator.core.model.effects import TxnOffsetCommitReply
from muster.coordinator.core.model.events import TxnOffsetCommit
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.handlers.transactional_offsets import TransactionalCommits
from muster.coordinator.kafka.handlers.transactions import TransactionLeave
from muster.storage.logs.transactions import PendingGuards, TransactionGuard

PRODUCER, EPOCH, LEVEL = 7, 3, 2


class GroupsAndGate:
    """One log of groups, whose guards are `guards`; `meanwhile` happens while the coordinator is asked."""

    def __init__(self, meanwhile: Callable[["GroupsAndGate"], None], *, is_open: bool = False) -> None:
        self.guards = PendingGuards()
        self._meanwhile = meanwhile
        self._is_open = is_open

    def shard_of(self, group_id: str) -> int:
        return 0

    async def ask_for(self, transactional_id: str, producer: int, epoch: int, place: Any, level: int) -> Any:
        guard = None if self._is_open else self.guards.make(producer, epoch, -1, level)
        self._meanwhile(self)
        return TransactionLeave(place, guard)

    async def ask_group(self, group_id: str, make: Callable[[], TxnOffsetCommit], kind: type) -> TxnOffsetCommitReply:
        guard = make().guard
        held = isinstance(guard, TransactionGuard) and not guard.ended and self.guards.holds(guard, PRODUCER, EPOCH)
        return TxnOffsetCommitReply(ErrorCode.NONE if held else ErrorCode.INVALID_TXN_STATE)

    def drop(self, place: Any, guard: TransactionGuard | None) -> None:
        if guard is not None:
            self.guards.drop(guard)


def begins_a_leader_epoch(log: GroupsAndGate) -> None:
    log.guards = PendingGuards()


def ends_the_transaction(log: GroupsAndGate) -> None:
    log.guards.end(PRODUCER)


def ends_it_and_begins_a_leader_epoch(log: GroupsAndGate) -> None:
    ends_the_transaction(log)
    begins_a_leader_epoch(log)


def commit(log: Any) -> TxnOffsetCommitReply:
    event = TxnOffsetCommit(1, "g", "", None, -1, {("t", 0): (5, -1, "")}, PRODUCER, EPOCH)
    return asyncio.run(TransactionalCommits(log, log).commit("app", event, LEVEL))


def test_positions_that_wait_through_a_change_of_leader_epoch_are_asked_for_again() -> None:
    """They were refused with INVALID_TXN_STATE, of which a producer dies, though its transaction was open."""
    reply = commit(GroupsAndGate(begins_a_leader_epoch))
    assert reply.code is ErrorCode.NOT_COORDINATOR
    assert "'g'" in reply.message


@pytest.mark.parametrize("meanwhile", [ends_the_transaction, ends_it_and_begins_a_leader_epoch])
def test_positions_that_wait_past_the_end_of_their_transaction_are_refused(
    meanwhile: Callable[[GroupsAndGate], None],
) -> None:
    assert commit(GroupsAndGate(meanwhile)).code is ErrorCode.INVALID_TXN_STATE


def test_positions_of_a_transaction_that_was_taken_for_open_and_is_not_are_refused() -> None:
    assert commit(GroupsAndGate(lambda log: None, is_open=True)).code is ErrorCode.INVALID_TXN_STATE


def test_positions_whose_guard_holds_are_taken() -> None:
    assert commit(GroupsAndGate(lambda log: None)).code is ErrorCode.NONE
