"""docs/advise.md lists every kind of advice, as the table has it, and shows what the command really prints."""

from pathlib import Path

import pytest
from rich.console import Console

from muster.cli.advise import print_advice
from muster.coordinator.observability.advice.table import KINDS, AdviceKind, advise_group
from tests.support.group_history import GroupHistory

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "advise.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("\n## Kinds of advice\n")[2].partition("\n## ")[0]


def line_of(kind: AdviceKind) -> str:
    names = ", ".join(f"`{name}`" for name in kind.name.split(", "))
    return f"| {names} | {kind.what} |"


def test_every_kind_is_listed_and_no_other() -> None:
    listed = [line for line in TABLE.splitlines() if line.startswith("| `")]
    assert listed == [line_of(kind) for kind in KINDS]


def printed(history: GroupHistory, capsys: pytest.CaptureFixture[str], width: int) -> list[str]:
    found = advise_group(history.examined(), history.topics, history.now_ms)
    print_advice(Console(width=width, highlight=False, markup=False, emoji=False), [found])
    return capsys.readouterr().out.splitlines()


def test_the_page_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    history = GroupHistory("range")
    history.start("abcdef")
    history.live(60_000)
    for name in "abcdef":
        history.restart(name, 4_000)
        history.live(20_000)
    shown = PAGE.partition("```\n\n```\norders")[2].partition("\n```")[0]
    shown = f"orders{shown}"
    # Wherever lines end.
    assert " ".join(printed(history, capsys, 120)).split()[: len(shown.split())] == shown.split()
    narrow = printed(history, capsys, 80)
    assert max(map(len, narrow)) <= 80


def test_names_of_others_command_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    history = GroupHistory("range")
    history.start(["a", "b", "c"], host="\x1b[2J")
    for name in "abc":
        history.restart(name, 2_000)
        history.live(30_000)
    assert "\x1b" not in "".join(printed(history, capsys, 120))
