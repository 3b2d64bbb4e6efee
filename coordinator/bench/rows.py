"""One line of a benchmark's report."""

from typing import NamedTuple

BENCH = "coordinator"


class Row(NamedTuple):
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


def less_is_better(case: str, value: float, unit: str, peer: str, peer_value: float, goal: float) -> Row:
    """A cost: the ratio is the peer's over ours.

    >>> less_is_better("x", 4.0, "s", "y", 2.0, goal=0.4)[6:]
    (0.5, 0.4, True)
    """
    ratio = peer_value / value if value else float("inf")
    return Row(BENCH, case, round(value, 3), unit, peer, round(peer_value, 3), round(ratio, 3), goal, ratio >= goal)
