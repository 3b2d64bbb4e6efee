"""The page on the classic protocol says what the code does."""

from pathlib import Path

from muster.coordinator.core.classic.group import MOVES
from muster.coordinator.core.model.types import GroupState

PAGE = Path(__file__).parents[3] / "docs" / "protocol" / "classic.md"
BEGIN, END = "<!-- moves: from muster.coordinator.core.classic.group.MOVES -->\n", "<!-- end of moves -->"


def moves_table() -> str:
    rows = [f"| {state.value} | {', '.join(to.value for to in GroupState if to in MOVES[state])} |" for state in MOVES]
    return "\n".join(["| from | to |", "|---|---|", *rows, ""])


def test_the_page_shows_the_legal_moves() -> None:
    shown = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert shown == moves_table(), f"write this between the comments of {PAGE.name}:\n{moves_table()}"


def test_every_folder_of_stories_that_the_page_names_exists() -> None:
    scripts = Path(__file__).parents[2] / "scripts"
    for folder in ("classic", "static", "offsets", "ledger", "lifecycle"):
        assert list((scripts / folder).glob("*.txt")), f"{folder} has no stories"


def test_each_state_has_its_moves() -> None:
    assert MOVES.keys() == set(GroupState)
    assert all(GroupState.DEAD in targets for targets in MOVES.values())
