"""What an operator hears of clients' transactions that do not end."""

from muster.coordinator.core.groups.state import PendingPositions
from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.kafka_backend.transaction_requests import (
    HANGS_MS,
    OPEN,
    PendingTransaction,
    open_transactions_sentence,
    pending_transactions,
    report_open_transactions,
)
from muster.coordinator.runtime.node_status import Conditions


def stored(at_ms: int) -> StoredOffset:
    return StoredOffset(1, -1, "", at_ms)


def test_who_waits_and_since_when() -> None:
    pending = PendingPositions()
    pending.written(50, "g", {("t", 0): stored(1_000), ("t", 1): stored(1_000)}, 7)
    pending.written(50, "g", {("t", 1): stored(2_000)}, 9)
    pending.written(51, "h", {("t", 0): stored(3_000)}, 10)
    assert list(pending_transactions(pending)) == [
        PendingTransaction(50, "g", 2, 1_000),
        PendingTransaction(51, "h", 1, 3_000),
    ]
    pending.overtaken("g", [("t", 0), ("t", 1)])
    assert list(pending_transactions(pending)) == [PendingTransaction(51, "h", 1, 3_000)]


def test_one_that_hangs_is_a_condition_until_it_ends() -> None:
    conditions = Conditions(lambda: 0)
    found = [PendingTransaction(50, "g", 2, 0), PendingTransaction(51, "h", 1, 2_000)]
    report_open_transactions(conditions, found, HANGS_MS - 1)
    assert OPEN not in [each.name for each in conditions.current()]
    report_open_transactions(conditions, found, HANGS_MS)
    [told] = [each for each in conditions.current() if each.name == OPEN]
    assert "producer id 50 with 2 positions of group 'g' for 60 s;" in told.sentence
    report_open_transactions(conditions, [], HANGS_MS)
    assert OPEN not in [each.name for each in conditions.current()]


def test_of_many_the_oldest_are_named() -> None:
    assert "group 'g2' for 90 s and 2 more;" in open_transactions_sentence(
        [PendingTransaction(n, f"g{n}", 1, 0) for n in range(5)], 90_000
    )
