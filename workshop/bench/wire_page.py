"""What `muster bench wire --kafka PLACE --runs 3 --json` found, as tables for two pages.

`python -m muster.workshop.bench.wire_page FILE... [--write]`: prints them, or writes them into the pages.
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muster.workshop.bench.report import span, table, write_tables
from muster.workshop.bench.wire_suite import NAME

MARK = "beside kafka"
PAGES = (Path("docs/performance.md"), Path("README.md"))
SHORT = ("heartbeats, 16", "heartbeats, one", "commits", "one leaves, 10 ", "one leaves, 500")
"""How the cases of the README's table begin: one of each kind, the ones that were missed among them."""


@dataclass(slots=True)
class FigureInRuns:
    """One figure, in each of the runs."""

    what: str
    unit: str
    goal: float
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)

    def met(self) -> str:
        """
        >>> FigureInRuns("x", "ms", 2.0, ratios=[2.5, 1.9, 2.0]).met()
        '2, in 2 of 3 runs'
        >>> FigureInRuns("x", "ms", 2.0, ratios=[2.5]).met(), FigureInRuns("x", "ms", 2.0, ratios=[1.5]).met()
        ('2', '2, missed')
        """
        reached = sum(ratio >= self.goal for ratio in self.ratios)
        if reached == len(self.ratios):
            return f"{self.goal:g}"
        return f"{self.goal:g}, in {reached} of {len(self.ratios)} runs" if reached else f"{self.goal:g}, missed"


def read_cases(lines: Iterable[str]) -> list[FigureInRuns]:
    """Of the JSON lines of one or more runs. Raises ValueError where none of them is a case beside Kafka."""
    found: dict[str, FigureInRuns] = {}
    for line in lines:
        row: dict[str, Any] = json.loads(line)
        name, _, what = row["case"].partition(": ")
        if name != NAME:
            continue
        case = found.setdefault(what, FigureInRuns(what, row["unit"], row["goal"]))
        case.ours.append(row["value"])
        case.theirs.append(row["peer_value"])
        case.ratios.append(row["ratio"])
    if not found:
        raise ValueError(
            f"no case {NAME!r} in these files; expected what `muster bench wire --kafka PLACE --json` told"
        )
    return list(found.values())


def told_of(found: Sequence[FigureInRuns]) -> str:
    """
    >>> told_of([FigureInRuns("x", "ms", 2.0, ratios=[2.5, 1.9, 2.0])])
    '3 runs, the least to the most of each figure:'
    """
    runs = max(len(case.ratios) for case in found)
    return "One run:" if runs == 1 else f"{runs} runs, the least to the most of each figure:"


def performance_tables(found: Sequence[FigureInRuns]) -> str:
    rows = [(c.what, f"{span(c.ours)} {c.unit}", span(c.theirs), span(c.ratios), c.met()) for c in found]
    return told_of(found) + "\n\n" + table(("work", "a node", "Kafka", "ratio", "goal"), rows)


def readme_tables(found: Sequence[FigureInRuns]) -> str:
    rows = [
        (c.what, f"{span(c.ours)} {c.unit}", span(c.theirs), span(c.ratios)) for c in found if c.what.startswith(SHORT)
    ]
    return told_of(found) + "\n\n" + table(("work", "Muster", "Kafka 4.1.1", "Muster's advantage"), rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="page", description="Tables of the figures beside Kafka.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="what the benchmark told with --json")
    parser.add_argument("--write", action="store_true", help=f"write them into {' and '.join(map(str, PAGES))}")
    told = parser.parse_args(arguments)
    found = read_cases(line for file in told.files for line in file.read_text().splitlines() if line.strip())
    for page, text in zip(PAGES, (performance_tables(found), readme_tables(found)), strict=True):
        if told.write:
            write_tables(page, {MARK: text})
        else:
            print(f"{page}:\n\n{text}\n")


if __name__ == "__main__":
    main()
