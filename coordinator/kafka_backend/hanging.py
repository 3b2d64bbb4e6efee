"""Positions that wait for clients' transactions to end: whose, of which producer, and since when; for operators."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from muster.coordinator.core.groups.pending import PendingPositions
from muster.coordinator.core.shard import Shard
from muster.coordinator.runtime.conditions import Conditions
from muster.coordinator.runtime.engine import Engine

HANGS_MS: Final = 60_000
"""`transaction.timeout.ms` of Kafka's clients where nobody sets it: by then the others have ended."""

NAMED: Final = 3

OPEN: Final = "transactions-open"


class PendingTransaction(NamedTuple):
    """What waits of one producer and group. since_ms: when the first of it was committed."""

    producer_id: int
    group: str
    positions: int
    since_ms: int


def pending_transactions(pending: PendingPositions) -> Iterator[PendingTransaction]:
    for producer_id, groups in pending.of.items():
        for group, offsets in groups.items():
            first = next(iter(offsets.values()), None)  # the oldest: what is written anew keeps its place
            if first is not None:
                yield PendingTransaction(producer_id, group, len(offsets), first[0].value.commit_timestamp_ms)


def pending_transactions_of(engine: Engine, shards: Iterable[int]) -> list[PendingTransaction]:
    """Of these shards, the oldest first."""
    cores = (engine.core(shard) for shard in shards)
    found = [each for core in cores if isinstance(core, Shard) for each in pending_transactions(core.state.pending)]
    return sorted(found, key=lambda each: each.since_ms)


def report_open_transactions(conditions: Conditions, found: list[PendingTransaction], now_ms: int) -> None:
    hanging = [each for each in found if now_ms - each.since_ms >= HANGS_MS]
    if hanging:
        conditions.report(OPEN, open_transactions_sentence(hanging, now_ms))
    else:
        conditions.clear(OPEN)


def open_transactions_sentence(hanging: list[PendingTransaction], now_ms: int) -> str:
    """
    >>> open_transactions_sentence([PendingTransaction(1005, "orders", 3, 0)], 90_000).partition(";")[0]
    "transactions of clients wait for their end: producer id 1005 with 3 positions of group 'orders' for 90 s"
    """
    named = ", ".join(
        f"producer id {each.producer_id} with {each.positions} positions of group {each.group!r} for "
        f"{(now_ms - each.since_ms) // 1_000} s"
        for each in hanging[:NAMED]
    )
    more = f" and {len(hanging) - NAMED} more" if len(hanging) > NAMED else ""
    return (
        f"transactions of clients wait for their end: {named}{more}; until then members that want stable positions "
        "wait, too. Kafka ends each after its transaction.timeout.ms; "
        "`kafka-transactions.sh find-hanging` and `abort`, "
        "asked at the brokers themselves, are for those that it does not"
    )
