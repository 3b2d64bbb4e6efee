"""Figures on a page: ranges of several runs in few digits, and tables that a tool writes between two marks."""

from collections.abc import Mapping, Sequence
from pathlib import Path


class MarksMissing(Exception):
    """The page has no marks between which the table belongs; the text says which."""


def digits(value: float) -> str:
    """Three of them, more only of whole numbers.

    >>> [digits(value) for value in (0.07512, 1.0, 12.34, 25431.4)]
    ['0.0751', '1', '12.3', '25,431']
    """
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{float(f'{value:.3g}'):g}"


def span(values: Sequence[float]) -> str:
    """The least and the most of several runs.

    >>> span([1.5, 1.25, 2.0]), span([1.0, 1.0])
    ('1.25 to 2', '1')
    """
    least, most = digits(min(values)), digits(max(values))
    return least if least == most else f"{least} to {most}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown; all but the first column stand to the right."""
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def write_tables(page: Path, tables: Mapping[str, str]) -> None:
    """Write each table between the page's marks of its name. Raises NoPlace, and has written nothing then."""
    text = page.read_text()
    for name, body in tables.items():
        text = replace_between_marks(text, name, body, str(page))
    page.write_text(text)


def replace_between_marks(text: str, name: str, body: str, where: str) -> str:
    r"""The text with `body` between the marks of that name.

    >>> replace_between_marks("a <!-- begin x -->\nold\n<!-- end x --> b", "x", "new", "p.md")
    'a <!-- begin x -->\n\nnew\n\n<!-- end x --> b'
    """
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise MarksMissing(f"{where} has no place for {name!r}: expected a line {begin!r} and after it one {end!r}")
    return f"{before}{begin}\n\n{body}\n\n{end}{after}"
