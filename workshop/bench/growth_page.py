"""What `muster bench growth --json` found, as the tables and the chart of docs/growth.md.

`python -m muster.workshop.bench.growth_page FILE [--write]` prints the tables, or writes them and the chart. The
chart shows how far each line leaves linear growth; the same figures give the same bytes of SVG.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from muster.workshop.bench.growth_suite import GRPC, IDLE_S, KAFKA, PARTITIONS, GrowthCell, PhaseCost, cells_of
from muster.workshop.bench.report import digits, table, write_tables

# The chart
# ---------

Phases: TypeAlias = Mapping[str, PhaseCost]
COLOURS: Final = {KAFKA: "#1f77b4", GRPC: "#c44e52"}
STROKES: Final = {1: ("-", "o"), 100: ("--", "s"), 10_000: (":", "D")}
"""By groups."""
GUIDE: Final = "#999999"
PAPER: Final = "#ffffff"
"""Opaque, so that it reads the same on a dark page."""


class GrowthPanel(NamedTuple):
    title: str
    phase: str
    value: Callable[[Phases], float]


def added_mb(phases: Phases) -> float:
    return max(phases["rebalance"].resident_mb - phases["start"].resident_mb, 0.1)


PANELS: Final = (
    GrowthPanel("all join: s of processor", "join", lambda phases: phases["join"].cpu_s),
    GrowthPanel("all rebalance: s of processor", "rebalance", lambda phases: phases["rebalance"].cpu_s),
    GrowthPanel("memory added: MB", "rebalance", added_mb),
    GrowthPanel("restart: s until known again", "restart", lambda phases: phases["restart"].wall_s),
)


class GrowthLine(NamedTuple):
    """Cells that differ in one number, and that number of each."""

    door: str
    groups: int
    points: list[tuple[int, Phases]]


def lines_by_members(found: Mapping[GrowthCell, Phases]) -> list[GrowthLine]:
    """Only those of as many partitions as all have where members grow."""
    return growth_lines({c: p for c, p in found.items() if c.partitions == PARTITIONS}, lambda cell: cell.members)


def lines_by_partitions(found: Mapping[GrowthCell, Phases]) -> list[GrowthLine]:
    grown = {(cell.door, cell.members, cell.groups) for cell in found if cell.partitions != PARTITIONS}
    alike = {c: p for c, p in found.items() if (c.door, c.members, c.groups) in grown}
    return growth_lines(alike, lambda cell: cell.partitions)


def growth_lines(found: Mapping[GrowthCell, Phases], along: Callable[[GrowthCell], int]) -> list[GrowthLine]:
    kinds = dict.fromkeys((cell.door, cell.groups) for cell in found)
    return [
        GrowthLine(door, groups, sorted(
            ((along(c), p) for c, p in found.items() if (c.door, c.groups) == (door, groups)),
                                  key=lambda point: point[0]))
        for door, groups in kinds
    ]  # fmt: skip


def draw_growth(found: Mapping[GrowthCell, Phases], path: Path) -> None:
    """Write the chart; the same figures give the same bytes of SVG."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "muster", "svg.fonttype": "none", "font.size": 10}):
        figure = Figure(figsize=(14, 7), layout="constrained", facecolor=PAPER)
        axes: Any = figure.subplots(2, len(PANELS))
        for row, (along, drawn) in enumerate(
            (("members", lines_by_members(found)), ("partitions", lines_by_partitions(found)))
        ):
            for axis, panel in zip(axes[row], PANELS, strict=True):
                draw_panel(axis, panel, along, drawn)
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(handles), frameon=False)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def draw_panel(axis: Any, panel: GrowthPanel, along: str, drawn: Sequence[GrowthLine]) -> None:
    for line in drawn:
        points = [(at, panel.value(phases)) for at, phases in line.points if panel.phase in phases]
        stroke, mark = STROKES.get(line.groups, ("-.", "x"))
        label = f"{line.door}, {line.groups:,} group{'s' if line.groups > 1 else ''}"
        axis.plot(*zip(*points, strict=True), stroke, marker=mark, color=COLOURS[line.door], label=label)  # fmt: skip
        if len(points) > 1:
            (first, value), (last, _) = points[0], points[-1]
            axis.plot([first, last], [value, value * last / first], color=GUIDE, linewidth=0.8, zorder=0)
    axis.set_xscale("log")
    axis.set_yscale("log")
    for each in (axis.xaxis, axis.yaxis):
        each.set_major_formatter(lambda value, _: f"{value:,.10g}")
        each.set_minor_formatter("")
    axis.set_title(panel.title, fontsize="medium")
    axis.set_xlabel(along)
    axis.grid(which="major", color="#dddddd", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_facecolor(PAPER)


# The tables
# ----------

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
    return "\n".join([text, "", "Cells that did not finish:", "", *ends]) if ends else text


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
