"""What `muster demo --exactly-once` proves, and what its workers tell it."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from muster.cli.demo.exactly_once_demo import WorkerDiary, bill_of, prove_billing, show_billing_proof
from muster.cli.main import main

ORDERS = {b"order-%d" % number: b"%d" % (100 * number) for number in range(1, 6)}
BILLS = [(key, bill_of(order)) for key, order in ORDERS.items()]


MORE = [(b"order-1", bill_of(b"100"))] * 3
"""What aborted transactions left."""


def shown(bills: list[tuple[bytes, bytes]], everything: list[tuple[bytes, bytes]]) -> str:
    out = io.StringIO()
    show_billing_proof(Console(file=out, width=120), prove_billing(ORDERS, bills, everything))
    return out.getvalue()


def test_orders_billed_once_each_are_a_proof_and_what_was_aborted_is_counted() -> None:
    assert prove_billing(ORDERS, BILLS, BILLS + MORE).holds
    told = shown(BILLS, BILLS + MORE)
    assert "each order is billed exactly once" in told
    assert "3 records more, of aborted transactions" in told
    assert "all of it holds" in told
    assert "1,785" in told, "what a reader of committed records adds up to"
    assert "2,142" in told, "and one of all records"


@pytest.mark.parametrize(
    ("bills", "what"),
    [
        (BILLS[1:], "1 orders not billed, 0 billed again, 0 bills wrong"),
        ([*BILLS, BILLS[0]], "0 orders not billed, 1 billed again, 0 bills wrong"),
        ([*BILLS[1:], (b"order-1", b"1")], "0 orders not billed, 0 billed again, 1 bills wrong"),
        ([*BILLS[1:], BILLS[1]], "1 orders not billed, 1 billed again, 0 bills wrong"),
        ([*BILLS, (b"unknown", b"1")], "0 orders not billed, 0 billed again, 1 bills wrong"),
    ],
)
def test_anything_else_is_none(bills: list[tuple[bytes, bytes]], what: str) -> None:
    assert not prove_billing(ORDERS, bills, bills + MORE).holds
    assert what in shown(bills, bills + MORE)
    assert "NOT EXACTLY ONCE" in shown(bills, bills + MORE)


def test_a_run_without_an_aborted_transaction_proves_little() -> None:
    assert not prove_billing(ORDERS, BILLS, BILLS).holds
    assert "PROVES LITTLE" in shown(BILLS, BILLS)


def test_a_diary_tells_whole_lines_of_one_life_or_of_all(tmp_path: Path) -> None:
    diary = WorkerDiary(tmp_path, "w")
    assert diary.read() == []
    diary.note("open", 7)
    with diary.path.open("a") as file:
        file.write('{"pid": 1, "what": "comm')
    assert diary.read() == diary.read(diary.pid) == [{"pid": diary.pid, "what": "open", "records": 7}]
    assert diary.read(diary.pid + 1) == []


def test_it_has_a_story_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--exactly-once", "--workers", "2"]) == 2
    assert "--exactly-once has a story of its own" in capsys.readouterr().err
