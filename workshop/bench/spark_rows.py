"""Lines of the report."""

import statistics
from collections.abc import Callable, Sequence

from muster.workshop.bench.rows import BenchRow

BENCH = "spark"


def faster_row(case: str, ours_s: Sequence[float], peer: str, theirs_s: Sequence[float], goal: float) -> BenchRow:
    """Seconds of turns that alternated: the ratio is the median of the peer's over ours, turn by turn.

    >>> faster_row("x", [2.0, 4.0], "y", [6.0, 6.0], 1.5)[2:8]
    (3.0, 's', 'y', 6.0, 2.25, 1.5)
    """
    ratio = statistics.median(his / mine for mine, his in zip(ours_s, theirs_s, strict=True))
    mine, his = statistics.median(ours_s), statistics.median(theirs_s)
    return BenchRow(BENCH, case, round(mine, 3), "s", peer, round(his, 3), round(ratio, 3), goal, ratio >= goal)


def take_turns(turns: int, *works: Callable[[], float]) -> list[list[float]]:
    """What each of the works came to, in each of the turns; whoever begins changes from turn to turn."""
    results: list[list[float]] = [[] for _ in works]
    for turn in range(turns):
        for place in range(len(works)):
            chosen = (place + turn) % len(works)
            results[chosen].append(works[chosen]())
    return results
