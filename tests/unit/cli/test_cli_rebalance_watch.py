"""`muster groups watch` tells each rebalance once, again when it is explained otherwise, and outlives its node."""

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from muster.cli.groups.rebalance_watch import AT_ONCE, follow_rebalances, print_entries
from muster.cli.main import cli
from muster.client.errors import ClientError, GroupNotFound, Unreachable
from muster.coordinator.rpc.v1.ledger_pb2 import CERTAINTY_SAID, REBALANCE_CAUSE_MEMBER_LEFT, Rebalance


def entry(number: int, **fields: Any) -> Rebalance:
    return Rebalance(group_id="orders", number=number, generation=number, started_at_ms=1_760_000_000_000, **fields)


class Ledger:
    """An Admin whose node has these entries in its first, second and further looks; an error is what it answers."""

    def __init__(self, *looks: list[Rebalance] | ClientError) -> None:
        self.looks = list(looks)
        self.asked: list[int] = []
        self.hidden = ""

    def explain(self, group: str, limit: int = 0) -> list[Rebalance]:
        self.asked.append(limit)
        look = self.looks[0]
        if isinstance(look, ClientError):
            raise look
        return look[::-1][: limit or None]

    def conditions(self) -> list[Any]:
        return [SimpleNamespace(name="watched-kafka", sentence=self.hidden)] if self.hidden else []


class Looks(threading.Event):
    """Set when a ledger has nothing more to show."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self.ledger = ledger

    def wait(self, timeout: float | None = None) -> bool:
        self.ledger.looks.pop(0)
        if not self.ledger.looks:
            self.set()
        return self.is_set()


def numbers(ledger: Ledger, limit: int = 1) -> list[list[int]]:
    followed = follow_rebalances(cast(Any, ledger), "orders", limit, 2.0, Looks(ledger))
    return [[each.number for each in found] for found in followed]


def test_each_is_told_once_beginning_with_the_last() -> None:
    first, second, third = entry(1), entry(2), entry(3)
    ledger = Ledger([first, second], [first, second], [first, second, third])
    assert numbers(ledger) == [[2], [3]]
    assert numbers(Ledger([first, second], [first, second, third]), limit=2) == [[1, 2], [3]]


def test_one_that_is_explained_otherwise_is_told_again() -> None:
    known = entry(2, cause=REBALANCE_CAUSE_MEMBER_LEFT, certainty=CERTAINTY_SAID)
    assert numbers(Ledger([entry(2)], [known], [known])) == [[2], [2]]


def test_more_than_a_look_has_are_all_told() -> None:
    many = [entry(number) for number in range(1, AT_ONCE + 10)]
    assert numbers(Ledger(many[:1], many)) == [[1], list(range(2, AT_ONCE + 10))]


def test_a_group_that_is_made_again_begins_anew() -> None:
    assert numbers(Ledger([entry(7)], [entry(1)], [entry(1), entry(2)])) == [[7], [1], [2]]


def test_a_node_that_is_away_is_told_once_and_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    away = Unreachable("h:1", 9, "nobody answers")
    assert numbers(Ledger([entry(1)], away, away, [entry(1), entry(2)])) == [[1], [2]]
    assert capsys.readouterr().err.count("nobody answers") == 1


def test_a_node_that_was_never_there_is_an_error() -> None:
    with pytest.raises(Unreachable):
        numbers(Ledger(Unreachable("h:1", 9, "nobody answers")))


def test_a_group_without_rebalances_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    missing = GroupNotFound(69, "GROUP_ID_NOT_FOUND", "there is no group 'orders'")
    assert numbers(Ledger(missing, [], missing, [entry(1)])) == [[1]]
    assert capsys.readouterr().err.count("There is no group 'orders'") == 1


def test_what_the_node_cannot_see_is_told_and_when_it_can_again(capsys: pytest.CaptureFixture[str]) -> None:
    ledger = Ledger([entry(1)], [entry(1)], [entry(1)])
    looks = Looks(ledger)
    for _ in follow_rebalances(cast(Any, ledger), "orders", 1, 2.0, looks):
        ledger.hidden = "the Kafka cannot be reached"
    assert capsys.readouterr().err.count("the Kafka cannot be reached") == 1


def test_as_lines_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    left = entry(2, cause=REBALANCE_CAUSE_MEMBER_LEFT, culprit="worker-1")
    print_entries([left, entry(3)], "table")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert "member left" in lines[0]
    print_entries([left], "json")
    (line,) = capsys.readouterr().out.splitlines()
    assert '"cause": "member_left"' in line.lower()


def test_copies_do_not_grow() -> None:
    told = CliRunner().invoke(cli, ["groups", "watch", "orders", "--segments", "copies"])
    assert told.exit_code == 2
    assert "do not grow; use muster groups history" in told.output
