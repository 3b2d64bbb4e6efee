"""The cases of `muster bench growth`: each phase of each cell beside the next smaller cell of the same run."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from muster.coordinator.bench.growth import course
from muster.coordinator.bench.growth.cells import Cell, grid, quick, smaller
from muster.coordinator.bench.growth.course import Phase
from muster.coordinator.bench.processes import BenchFailed, Stopwatch

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
Found = dict[Cell, dict[str, Phase]]


def run(only: str = "", *, small: bool = False) -> Rows:
    """Measure the cells of whose cases one contains `only`, and tell those cases."""
    cells = [cell for cell in (quick() if small else grid()) if any(only in case for case in cases(cell))]
    clock, found = Stopwatch(), Found()
    for cell in cells:
        for row in measured(cell, clock, found):
            if only in row["case"]:
                yield row


def cases(cell: Cell) -> list[str]:
    return [f"{cell.label}: {what}" for what in (*course.PHASES, *MEMORY.values())]


def measured(cell: Cell, clock: Stopwatch, found: Found) -> Rows:
    why = course.impossible(cell)
    if clock.read() > SUITE_S - course.CELL_S / 3:
        why = f"{clock.read():.0f} of {SUITE_S:.0f} s were over"
    if why:
        yield told(cell, "left out", 0.0, "", why, None, ok=True)
        return
    phases = found[cell] = {}
    home = tempfile.mkdtemp(prefix="muster-bench-", dir=folder())
    try:
        for phase in course.run(cell, home):
            phases[phase.name] = phase
            yield from rows(cell, phase, found)
    except (BenchFailed, OSError) as failure:
        yield told(cell, "stopped", 0.0, "", str(failure) or "an answer took too long", None, ok=False)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def folder() -> str | None:
    """Where the data are: in memory where there is room for them. A disk takes minutes to remove 300,000 files."""
    there = IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > ROOM
    return str(IN_MEMORY) if there else None


def rows(cell: Cell, phase: Phase, found: Found) -> Rows:
    """Processor time of the phase, and what its members added to the node's memory."""
    yield judged(cell, phase, phase.name, "s CPU", cost, SLACK_S, found)
    if phase.name in MEMORY:
        yield judged(cell, phase, MEMORY[phase.name], "MB", added_mb, SLACK_MB, found)


def cost(phases: dict[str, Phase], name: str) -> float:
    return phases[name].cpu_s


def added_mb(phases: dict[str, Phase], name: str) -> float:
    return phases[name].resident_mb - phases["start"].resident_mb


def judged(
    cell: Cell,
    phase: Phase,
    what: str,
    unit: str,
    value: Callable[[dict[str, Phase], str], float],
    slack: float,
    found: Found,
) -> dict[str, Any]:
    """A cell's figure against that of the smaller one, times as much as it is larger."""
    mine = value(found[cell], phase.name)
    other = smaller(cell, [each for each in found if phase.name in found[each]])
    if other is None or phase.name == "start":
        return told(cell, what, mine, unit, "", phase, ok=True)
    peer, factor = other
    grown = 1.0 if phase.units else factor  # As many heartbeats in every cell, and one is to cost the same.
    expected = max(value(found[peer], phase.name) * grown, slack)
    ratio = expected / mine if mine > slack else max(1.0, expected / max(mine, 1e-9))
    by = f"{grown:g} times " if grown > 1 else ""
    return told(cell, what, mine, unit, by + peer.label, phase, expected, ratio, ok=ratio >= GOAL)


def told(
    cell: Cell,
    what: str,
    value: float,
    unit: str,
    peer: str,
    phase: Phase | None,
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


def cells_of(rows: Sequence[dict[str, Any]]) -> "dict[Cell, dict[str, Any]]":
    """What rows tell of each cell: phases by name, and under "why" why there are no more."""
    found: dict[Cell, dict[str, Any]] = {}
    for row in rows:
        about = found.setdefault(Cell(**row["cell"]), {})
        if row["phase"]:
            about[row["phase"]["name"]] = Phase(**row["phase"])
        else:
            about["why"] = row["peer"]
    return found
