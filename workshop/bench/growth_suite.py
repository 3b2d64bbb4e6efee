"""The cases of `muster bench growth`: each phase of each cell beside the next smaller cell of the same run."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from muster.workshop.bench import course
from muster.workshop.bench.cells import GrowthCell, all_cells, next_smaller_cell, small_cells
from muster.workshop.bench.course import PhaseCost
from muster.workshop.bench.processes import BenchFailed, Stopwatch

BENCH: Final = "growth"
SUITE_S: Final = 600.0
"""All cells together; those for which nothing is left are left out, and say so."""
GOAL: Final = 0.67
"""At most linear: 1 is as the load grew, less is worse. A machine's pace changes by a third."""
SLACK_S, SLACK_MB = 0.25, 20.0
"""What is below this in the larger cell is not judged: a start alone moves by as much."""
IN_MEMORY, ROOM = Path("/dev/shm"), 4 << 30
MEMORY: Final = {"rebalance": "memory after it", "restart": "memory after a restart"}
"""Behind which phases it is told, and how."""

Rows = Iterator[dict[str, Any]]
Found = dict[GrowthCell, dict[str, PhaseCost]]


def run(only: str = "", *, small: bool = False) -> Rows:
    """Measure the cells of whose cases one contains `only`, and tell those cases."""
    cells = [
        cell for cell in (small_cells() if small else all_cells()) if any(only in case for case in cell_cases(cell))
    ]
    clock, found = Stopwatch(), Found()
    for cell in cells:
        for row in measure_cell(cell, clock, found):
            if only in row["case"]:
                yield row


def cell_cases(cell: GrowthCell) -> list[str]:
    return [f"{cell.label}: {what}" for what in (*course.PHASES, *MEMORY.values())]


def measure_cell(cell: GrowthCell, clock: Stopwatch, found: Found) -> Rows:
    why = course.reason_impossible(cell)
    if clock.read() > SUITE_S - course.CELL_S / 3:
        why = f"{clock.read():.0f} of {SUITE_S:.0f} s were over"
    if why:
        yield growth_row(cell, "left out", 0.0, "", why, None, ok=True)
        return
    phases = found[cell] = {}
    home = tempfile.mkdtemp(prefix="muster-bench-", dir=data_folder())
    try:
        for phase in course.run_cell(cell, home):
            phases[phase.name] = phase
            yield from phase_rows(cell, phase, found)
    except (BenchFailed, OSError) as failure:
        yield growth_row(cell, "stopped", 0.0, "", str(failure) or "an answer took too long", None, ok=False)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def data_folder() -> str | None:
    """Where the data are: in memory where there is room for them. A disk takes minutes to remove 300,000 files."""
    there = IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > ROOM
    return str(IN_MEMORY) if there else None


def phase_rows(cell: GrowthCell, phase: PhaseCost, found: Found) -> Rows:
    """Processor time of the phase, and what its members added to the node's memory."""
    yield compare_with_smaller(cell, phase, phase.name, "s CPU", phase_cost, SLACK_S, found)
    if phase.name in MEMORY:
        yield compare_with_smaller(cell, phase, MEMORY[phase.name], "MB", added_mb, SLACK_MB, found)


def phase_cost(phases: dict[str, PhaseCost], name: str) -> float:
    return phases[name].cpu_s


def added_mb(phases: dict[str, PhaseCost], name: str) -> float:
    return phases[name].resident_mb - phases["start"].resident_mb


def compare_with_smaller(
    cell: GrowthCell,
    phase: PhaseCost,
    what: str,
    unit: str,
    value: Callable[[dict[str, PhaseCost], str], float],
    slack: float,
    found: Found,
) -> dict[str, Any]:
    """A cell's figure against that of the smaller one, times as much as it is larger."""
    mine = value(found[cell], phase.name)
    other = next_smaller_cell(cell, [each for each in found if phase.name in found[each]])
    if other is None or phase.name == "start":
        return growth_row(cell, what, mine, unit, "", phase, ok=True)
    peer, factor = other
    grown = 1.0 if phase.units else factor  # As many heartbeats in every cell, and one is to cost the same.
    expected = max(value(found[peer], phase.name) * grown, slack)
    ratio = expected / mine if mine > slack else max(1.0, expected / max(mine, 1e-9))
    by = f"{grown:g} times " if grown > 1 else ""
    return growth_row(cell, what, mine, unit, by + peer.label, phase, expected, ratio, ok=ratio >= GOAL)


def growth_row(
    cell: GrowthCell,
    what: str,
    value: float,
    unit: str,
    peer: str,
    phase: PhaseCost | None,
    peer_value: float = 0.0,
    ratio: float = 1.0,
    *,
    ok: bool,
) -> dict[str, Any]:
    """A row as of every suite, with the cell and the phase as they were found."""
    return {
        "bench": BENCH,
        "case": f"{cell.label}: {what}",
        "value": round(value, 3),
        "unit": unit,
        "peer": peer,
        "peer_value": round(peer_value, 3),
        "ratio": round(ratio, 3),
        "goal": GOAL,
        "ok": ok,
        "cell": asdict(cell),
        "phase": phase._asdict() if phase else None,
    }


def cells_of(rows: Sequence[dict[str, Any]]) -> "dict[GrowthCell, dict[str, Any]]":
    """What rows tell of each cell: phases by name, and under "why" why there are no more."""
    found: dict[GrowthCell, dict[str, Any]] = {}
    for row in rows:
        about = found.setdefault(GrowthCell(**row["cell"]), {})
        if row["phase"]:
            about[row["phase"]["name"]] = PhaseCost(**row["phase"])
        else:
            about["why"] = row["peer"]
    return found
