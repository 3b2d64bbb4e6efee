"""A benchmark's report: rows with a ratio to a peer, suites that produce them, and tables on a page.

A ratio says how well Muster did against the peer: 1 is as well, more is better. A suite runs one case after the
other, each in a directory of its own. Pages show ranges over several runs in few digits; a tool writes its table
between two marks of the page.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

# Rows
# ----

BENCH = "coordinator"


class BenchRow(NamedTuple):
    """`ratio` is how well we did against the peer: 1 is as well as it, more is better. `ok`: the goal was reached."""

    bench: str
    case: str
    value: float
    unit: str
    peer: str
    peer_value: float
    ratio: float
    goal: float
    ok: bool


def less_is_better(case: str, value: float, unit: str, peer: str, peer_value: float, goal: float) -> BenchRow:
    """A cost: the ratio is the peer's over ours.

    >>> less_is_better("x", 4.0, "s", "y", 2.0, goal=0.4)[6:]
    (0.5, 0.4, True)
    """
    ratio = peer_value / value if value else float("inf")
    return BenchRow(
        BENCH, case, round(value, 3), unit, peer, round(peer_value, 3), round(ratio, 3), goal, ratio >= goal
    )


def at_most(
    share: float, case: str, value: float, unit: str, peer: str, peer_value: float, *, bench: str = BENCH
) -> BenchRow:
    """A cost that may be so much of the peer's.

    >>> at_most(2.0, "x", 3.0, "s", "y", 2.0, bench="cluster")[6:]
    (0.667, 0.5, True)
    """
    return less_is_better(case, value, unit, peer, peer_value, round(1 / share, 3))._replace(bench=bench)


def at_least(
    times: float, case: str, value: float, unit: str, peer: str, peer_value: float, *, bench: str = BENCH
) -> BenchRow:
    """A rate that is to be so many times the peer's.

    >>> at_least(4.0, "x", 10.0, "1/s", "y", 2.0)[6:]
    (5.0, 4.0, True)
    """
    ratio = value / peer_value if peer_value else float("inf")
    return BenchRow(
        bench, case, round(value, 3), unit, peer, round(peer_value, 3), round(ratio, 3), times, ratio >= times
    )


# Suites
# ------

MeasureCase: TypeAlias = Callable[[str, str], Iterator[BenchRow]]
"""Of the case's name and a directory that is removed afterwards."""


def measure_cases(cases: Mapping[str, MeasureCase], only: str) -> Iterator[BenchRow]:
    """Measure the cases whose name contains `only`."""
    for name, measure in cases.items():
        if only in name:
            home = tempfile.mkdtemp(prefix="muster-bench-")
            try:
                yield from measure(name, home)
            finally:
                shutil.rmtree(home, ignore_errors=True)


# Tables on a page
# ----------------


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
    """Write each table between the page's marks of its name. Raises MarksMissing, and has written nothing then."""
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
