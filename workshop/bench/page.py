"""What `muster bench growth --json` found, as the tables and the chart of docs/growth.md.

`python -m muster.workshop.bench.page FILE [--write]`: prints the tables, or writes them and the chart.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from muster.workshop.bench.cells import GrowthCell
from muster.workshop.bench.chart import added_mb, draw_growth
from muster.workshop.bench.course import IDLE_S, PhaseCost
from muster.workshop.bench.growth_suite import cells_of
from muster.workshop.bench.tables import digits, table, write_tables

PAGE, CHART = Path("docs/growth.md"), Path("docs/growth.svg")
CELLS, BENDS = "growth cells", "growth bends"
HEAD: Final = (
    "door", "members", "groups", "partitions", "start", "topics", "join", "rebalance", "a heartbeat",
    "nothing to do", "memory added", "restart",
)  # fmt: skip
NOT_KNOWN: Final = ""


def cell_row(cell: GrowthCell, about: Mapping[str, Any]) -> tuple[str, ...]:
    """Where a cell ended early, the phases it did not come to are empty."""

    def each(name: str) -> str:
        phase: PhaseCost | None = about.get(name)
        return f"{digits(phase.cpu_s)} / {digits(phase.wall_s)} s" if phase else NOT_KNOWN

    beats, idle = about.get("heartbeats"), about.get("idle")
    load = (cell.door, f"{cell.members:,}", f"{cell.groups:,}", f"{cell.partitions:,}")
    if "start" not in about:
        return (*load, *[NOT_KNOWN] * (len(HEAD) - len(load)))
    return (
        *load,
        *(each(name) for name in ("start", "topics", "join", "rebalance")),
        f"{digits(beats.cpu_s / beats.units * 1e6)} us" if beats else NOT_KNOWN,
        f"{digits(idle.cpu_s / IDLE_S * 100)} %" if idle else NOT_KNOWN,
        f"{digits(added_mb(about))} MB" if "rebalance" in about else NOT_KNOWN,
        each("restart"),
    )


def cells_table(found: Mapping[GrowthCell, Mapping[str, Any]]) -> str:
    order = sorted(found, key=lambda cell: (cell.door, cell.partitions, cell.members, cell.groups))
    text = table(HEAD, [cell_row(cell, found[cell]) for cell in order])
    ends = [f"- {cell.label}: {found[cell]['why']}" for cell in order if "why" in found[cell]]
    return "\n".join([text, "", "Cells that did not come to their end:", "", *ends]) if ends else text


def bends_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The cases that grew faster than their load, the worst first."""
    bent = sorted((row for row in rows if not row["ok"] and row["phase"]), key=lambda row: float(row["ratio"]))
    if not bent:
        return "Nowhere, in this run."
    found = [
        (row["case"], f"{digits(row['value'])} {row['unit']}", digits(row["peer_value"]), digits(1 / row["ratio"]))
        for row in bent
    ]
    return table(("case", "took", "linear from the smaller cell", "times as much"), found)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="page", description="Tables and chart of how memory and time grow.")
    parser.add_argument("file", type=Path, metavar="FILE", help="what `muster bench growth --json` told")
    parser.add_argument("--write", action="store_true", help=f"write into {PAGE} and {CHART}")
    told = parser.parse_args(arguments)
    rows = [json.loads(line) for line in told.file.read_text().splitlines() if line.strip()]
    found = cells_of(rows)
    tables = {CELLS: cells_table(found), BENDS: bends_table(rows)}
    if told.write:
        write_tables(PAGE, tables)
        draw_growth(found, CHART)
    else:
        print("\n\n".join(tables.values()))


if __name__ == "__main__":
    main()
