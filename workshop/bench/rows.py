"""One line of a benchmark's report."""

from typing import NamedTuple

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
