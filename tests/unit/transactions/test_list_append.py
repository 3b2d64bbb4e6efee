"""The rules of list-append histories find what they are there to find: every kind of anomaly, made by hand."""

from pathlib import Path

import pytest

from tests.torture.list_append import End, Log, Transaction, find_anomalies, read_history, value_of

A, B, C = "w1.1.1", "w1.1.2", "w2.1.1"


def two(name: str) -> tuple[str, str]:
    return value_of(name, 0, 5), value_of(name, 1, -5)


def history(*more: Transaction) -> dict[str, Transaction]:
    """A and B of one worker, which committed and aborted; and more, or the same in other words."""
    a, b = two(A), two(B)
    told = [
        Transaction(A, [(0, a[0]), (1, a[1])], [], End.COMMITTED, 1),
        Transaction(B, [(0, b[0]), (1, b[1])], [(0, 3, a[0])], End.ABORTED, 2),
    ]
    return {each.name: each for each in [*told, *more]}


FINE: Log = {0: {3: two(A)[0]}, 1: {7: two(A)[1]}}
AT = {"w1": 1}


def found(told: dict[str, Transaction], log: Log, positions: dict[str, int] = AT) -> set[str]:
    return {each.split(":")[0] for each in find_anomalies(told, log, positions)}


def test_a_history_in_order_has_no_anomaly() -> None:
    assert not found(history(), FINE)


@pytest.mark.parametrize(
    ("log", "sentence"),
    [
        ({0: {3: two(A)[0]}, 1: {}}, "lost"),
        ({0: {}, 1: {}}, "lost"),
        ({0: {3: two(A)[0], 4: two(A)[0]}, 1: {7: two(A)[1]}}, "duplicate"),
        ({0: {3: two(A)[0], 5: two(B)[0]}, 1: {7: two(A)[1], 8: two(B)[1]}}, "aborted read"),
        ({0: {3: two(A)[0], 5: "w9.1.1:0:0"}, 1: {7: two(A)[1]}}, "invented"),
        ({0: {4: two(A)[0]}, 1: {7: two(A)[1]}}, "aborted or changed read"),
        ({1: {3: two(A)[0], 7: two(A)[1]}}, "misplaced"),
    ],
)
def test_a_log_that_is_wrong_is_told(log: Log, sentence: str) -> None:
    assert sentence in found(history(), log)


def test_half_of_a_transaction_whose_end_nobody_knows_is_told() -> None:
    half = Transaction(C, [(0, "w2.1.1:0:5"), (1, "w2.1.1:1:-5")], position=1)
    log: Log = {0: {3: two(A)[0], 4: "w2.1.1:0:5"}, 1: {7: two(A)[1]}}
    assert "torn" in found(history(half), log, AT | {"w2": 1})


def test_half_a_transfer_puts_the_bank_off() -> None:
    assert any("bank" in each for each in found(history(), {0: {3: two(A)[0]}, 1: {}}))


def test_a_reader_that_missed_a_record_in_between_is_told() -> None:
    between = Transaction(C, [(0, "w2.1.1:0:0")], [], End.COMMITTED, 1)
    reader = Transaction("w3.1.1", [], [(0, 3, two(A)[0]), (0, 6, "w2.1.2:0:0")], End.COMMITTED)
    later = Transaction("w2.1.2", [(0, "w2.1.2:0:0")], [], End.COMMITTED, 2)
    log: Log = {0: {3: two(A)[0], 4: "w2.1.1:0:0", 6: "w2.1.2:0:0"}, 1: {7: two(A)[1]}}
    assert "skipped or went back" in found(history(between, reader, later), log, AT | {"w2": 2})


def test_data_of_a_transaction_that_stands_behind_the_next_ones_is_told() -> None:
    later = Transaction("w1.1.3", [(0, "w1.1.3:0:0")], [], End.COMMITTED, 3)
    log: Log = {0: {2: "w1.1.3:0:0", 3: two(A)[0]}, 1: {7: two(A)[1]}}
    assert "late data" in found(history(later), log, {"w1": 3})


def test_transactions_that_read_of_each_other_are_told() -> None:
    one = Transaction(C, [(0, "w2.1.1:0:0")], [(0, 9, "w3.1.1:0:0")], End.COMMITTED, 1)
    other = Transaction("w3.1.1", [(0, "w3.1.1:0:0")], [(0, 8, "w2.1.1:0:0")], End.COMMITTED, 1)
    log: Log = {0: {3: two(A)[0], 8: "w2.1.1:0:0", 9: "w3.1.1:0:0"}, 1: {7: two(A)[1]}}
    assert any("circular" in each for each in find_anomalies(history(one, other), log, AT))


@pytest.mark.parametrize("position", [0, 2])
def test_a_position_without_its_records_is_told(position: int) -> None:
    assert "positions apart" in found(history(), FINE, {"w1": position})


def lives(*offsets: tuple[int, str]) -> tuple[dict[str, Transaction], Log]:
    """Transactions of one record each, by their offset in one partition."""
    told = {
        name: Transaction(name, [(0, f"{name}:0:0")], [], End.COMMITTED, int(name.split(".")[1])) for _, name in offsets
    }
    return told, {0: {offset: f"{name}:0:0" for offset, name in offsets}}


def test_the_newest_life_is_the_one_that_the_log_has_last() -> None:
    told, log = lives((3, "w1.5.1"), (7, "w1.4.1"))
    assert not found(told, log, {"w1": 4})
    assert found(told, log, {"w1": 5}) == {"positions apart"}


def test_lives_that_alternate_are_told() -> None:
    told, log = lives((3, "w1.4.1"), (5, "w1.5.1"), (7, "w1.4.2"))
    assert "fenced late" in found(told, log, {"w1": 4})


def test_the_line_that_a_kill_has_cut_short_counts_for_nothing(tmp_path: Path) -> None:
    told = tmp_path / "history"
    told.write_text('{"txn":"w1.1.1","appends":[[0,"w1.1.1:0:0"]],"position":1}\n{"txn":"w1.1.1","end":"comm')
    (one,) = read_history([told]).values()
    assert (one.end, one.position, len(one.appends)) == (End.UNKNOWN, 1, 1)
