"""The tables of the design page are those of the code."""

from pathlib import Path

from muster.coordinator.transactions.ends import MEANING_BY_EPOCH, EndMeaning
from muster.coordinator.transactions.records import MOVES, TransactionState

PAGE = (Path(__file__).parents[3] / "docs/design/transactions.md").read_text(encoding="utf-8")


def rows_under(head: str) -> list[list[str]]:
    """The cells of the table that begins with this row."""
    lines = PAGE[PAGE.index(head) :].splitlines()[2:]
    table = lines[: next(at for at, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def test_the_page_names_every_legal_move() -> None:
    told = {row[0]: (row[1], set(row[2].split(", "))) for row in rows_under("| State | Number | Follows |")}
    assert told == {
        state.title: (str(int(state)), {"a new id" if each is None else each.title for each in before})
        for state, before in MOVES.items()
    }


def test_the_page_names_every_meaning_of_an_end_of_level_2() -> None:
    words = {EndMeaning.FENCED: "90", EndMeaning.NOT_OPEN: "48", EndMeaning.REPEATED: "repeated"}
    told = {row[0]: row[1:] for row in rows_under("| State | abort, epoch before |")}
    expected: dict[str, list[str]] = {}
    for state in TransactionState:
        if (state, True) in MEANING_BY_EPOCH:
            cells = [
                words.get(meaning, "PrepareCommit" if commit else "PrepareAbort")
                for commit in (False, True)
                for meaning in MEANING_BY_EPOCH[state, commit]
            ]
            expected[state.title] = cells
    assert told == expected
