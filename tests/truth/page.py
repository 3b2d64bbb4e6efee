"""`python -m tests.truth.page RUN.json ...`: keep what runs have played, and write the tables of the docs from it.

A run is the output of `python -m tests.truth -o json`. `played.json` beside this module has the newest verdict of each
cell, with the commit that it was played on.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from tests.truth import situations as _all  # noqa: F401
from tests.truth.clients import CLIENTS
from tests.truth.nodes import BACKENDS, KAFKA_ITSELF
from tests.truth.situations.registry import SITUATIONS
from tests.truth.table import MARKS, SKIPPED

PLAYED = Path(__file__).with_name("played.json")
PAGE = Path(__file__).parents[2] / "docs" / "explain-what-muster-can-tell.md"
BEGIN, END = "<!-- played: python -m tests.truth.page -->", "<!-- end of played -->"

TITLES = {
    "node": "A standalone node",
    "kafka": "A node over a Kafka",
    "cluster": "A cluster of three nodes",
    **{kind: f"Watched: the records of Apache Kafka {version}" for kind, version in KAFKA_ITSELF.items()},
}
REASON_CHARS = 300


@dataclass(frozen=True, slots=True)
class PlayedCell:
    backend: str
    situation: str
    client: str
    verdict: str
    commit: str
    reasons: tuple[str, ...]

    @property
    def place(self) -> tuple[str, str, str]:
        return self.backend, self.situation, self.client


def read_cells(document: Iterable[Mapping[str, Any]]) -> list[PlayedCell]:
    """Cells of a run, or of `played.json`. Situations and clients that there are no more are left out, and verdicts of
    situations that are known by now to be none of the client's."""
    clients = {each.name: each for each in CLIENTS}
    found = []
    for each in document:
        if each["situation"] not in SITUATIONS or each["client"] not in clients:
            continue
        place = each["backend"], each["situation"], each["client"]
        if refusal := SITUATIONS[each["situation"]].refusal(clients[each["client"]], each["backend"]):
            found.append(PlayedCell(*place, SKIPPED, "", (refusal,)))
        else:
            reasons = tuple(reason[:REASON_CHARS] for reason in each["reasons"])
            found.append(PlayedCell(*place, each["verdict"], each["commit"], reasons))
    return found


def merge_cells(*runs: Iterable[PlayedCell]) -> list[PlayedCell]:
    """The newest verdict of each cell, in the order of the table; runs are given oldest first."""
    found = {cell.place: cell for run in runs for cell in run}
    situations, clients = list(SITUATIONS), [each.name for each in CLIENTS]
    return sorted(
        found.values(),
        key=lambda each: (
            BACKENDS.index(each.backend),
            situations.index(each.situation),
            clients.index(each.client),
        ),
    )


def json_of(cells: Sequence[PlayedCell]) -> str:
    """A cell a line, so that a change of one is a change of one line."""
    lines = ",\n".join(json.dumps(asdict(cell)) for cell in cells)
    return f"[\n{lines}\n]\n"


def tables_of(cells: Sequence[PlayedCell]) -> str:
    """A summary with a line for each backend, then a table for each."""
    found = {kind: [cell for cell in cells if cell.backend == kind] for kind in BACKENDS}
    played = {kind: of_kind for kind, of_kind in found.items() if of_kind}
    parts = [summary_of(played)]
    parts += [f"### {TITLES[kind]}\n\n{table_of(of_kind)}" for kind, of_kind in played.items()]
    parts.append(
        f"### What clients do not get through\n\nOn Apache Kafka 4.1.1 they do not either.\n\n{table_of_failings()}"
    )
    return "\n\n".join(parts)


def summary_of(played: Mapping[str, Sequence[PlayedCell]]) -> str:
    words = [word for word in MARKS if word != SKIPPED]
    lines = [["backend", "cells", *(MARKS[word] for word in words), "commits"]]
    for kind, cells in played.items():
        counts = Counter(cell.verdict for cell in cells if cell.verdict != SKIPPED)
        commits = dict.fromkeys(cell.commit for cell in cells if cell.verdict != SKIPPED)
        figures = [str(counts[word]) for word in words]
        lines.append([TITLES[kind], str(counts.total()), *figures, ", ".join(f"`{each}`" for each in sorted(commits))])
    return markdown_of(lines)


def table_of(cells: Sequence[PlayedCell]) -> str:
    verdicts = {(cell.situation, cell.client): MARKS[cell.verdict] for cell in cells}
    clients = [each.name for each in CLIENTS if any(cell.client == each.name for cell in cells)]
    lines = [["situation", *clients]]
    for name, situation in SITUATIONS.items():
        lines.append([situation.title, *(verdicts.get((name, client), "") for client in clients)])
    return markdown_of(line for line in lines if any(line[1:]))


def table_of_failings() -> str:
    """Situations that a client cannot play though it has what they need, and why."""
    lines = [["client", "situation", "why"]]
    for client in CLIENTS:
        lines += [[client.name, SITUATIONS[name].title, why] for name, why in client.cannot.items()]
    return markdown_of(lines)


def markdown_of(lines: Iterable[Sequence[str]]) -> str:
    head, *rows = lines
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows))


def page_with(page: str, tables: str) -> str:
    """The page with these tables between its marks. Raises `ValueError` if it has no marks."""
    before, begins, rest = page.partition(BEGIN)
    _, ends, after = rest.partition(END)
    if not begins or not ends:
        raise ValueError(f"{PAGE.name} has no {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}"


@click.command()
@click.argument("runs", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(runs: tuple[Path, ...]) -> None:
    """Keep what RUNS have played, oldest first, and write the tables of the docs."""
    known = read_cells(json.loads(PLAYED.read_text())) if PLAYED.exists() else []
    cells = merge_cells(known, *(read_cells(json.loads(run.read_text())) for run in runs))
    PLAYED.write_text(json_of(cells))
    PAGE.write_text(page_with(PAGE.read_text(), tables_of(cells)))


if __name__ == "__main__":
    main()
