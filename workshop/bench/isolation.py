"""What a plugin's own process costs: the same logic there and here, in turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from muster.assignors.api import Assignor, Member, RebalanceProtocol, Snapshot
from muster.assignors.builtin.range import RangeAssignor
from muster.assignors.plugin_pool import Isolation
from muster.assignors.run import run

SMALL_PLAN = (("100", (10, 1, 100)), ("1,000", (10, 10, 100)))
"""Name, and members, topics, partitions of each topic."""
LARGE_PLAN = (("100,000", (100, 100, 1000)), ("1M", (2000, 500, 2000)))
SMALL_TURNS, LARGE_TURNS = 100, 5
MORE_S = 0.002
TIMES = 1.5
"""A plan may take so much longer than in the node, or so many times as long, whichever is more."""
DEADLINE_MS = 60_000


class Plain:
    """As most plugins are written: lists, and no arrays."""

    name = "plain"
    protocol = RebalanceProtocol.EAGER

    def assign(self, snapshot: Snapshot) -> Mapping[str, Mapping[str, Sequence[int]]]:
        members = [member.id for member in snapshot.ordered_members()]
        count = len(members)
        return {
            member: {topic: list(range(at, size, count)) for topic, size in snapshot.topics.items() if at < size}
            for at, member in enumerate(members)
        }


def measure_isolation(clock: Callable[[], float]) -> Iterator[dict[str, Any]]:
    isolation = Isolation()
    try:
        for logic in (RangeAssignor(), Plain()):
            for shapes, turns in ((SMALL_PLAN, SMALL_TURNS), (LARGE_PLAN, LARGE_TURNS)):
                for words, shape in shapes:
                    snapshot = isolation_group(*shape)
                    here, apart = measure_in_turns(clock, isolation, logic, snapshot, turns)
                    yield isolation_row(f"isolation: {logic.name}, {words} partitions", here, apart)
    finally:
        isolation.close()


def isolation_group(members: int, topics: int, partitions: int) -> Snapshot:
    names = tuple(f"topic-{number:04d}" for number in range(topics))
    return Snapshot(dict.fromkeys(names, partitions), [Member(f"member-{at:05d}", names) for at in range(members)])


def measure_in_turns(
    clock: Callable[[], float], isolation: Isolation, logic: Assignor, snapshot: Snapshot, turns: int
) -> tuple[float, float]:
    """Median seconds of a plan here and in a warm process, in turns."""
    here: list[float] = []
    apart: list[float] = []
    late = "was not done after {deadline_ms} ms"
    isolation.run_apart(logic, snapshot, DEADLINE_MS, True, late)
    for _ in range(turns):
        begin = clock()
        run(logic, replace(snapshot))
        between = clock()
        isolation.run_apart(logic, replace(snapshot), DEADLINE_MS, True, late)
        here.append(between - begin)
        apart.append(clock() - between)
    return statistics.median(here), statistics.median(apart)


def isolation_row(case: str, here: float, apart: float) -> dict[str, Any]:
    """`goal` is the longest that the plan may take."""
    goal = max(here + MORE_S, here * TIMES)
    return {
        "bench": "assignors",
        "case": case,
        "value": apart,
        "unit": "s",
        "peer": "in the node",
        "peer_value": here,
        "ratio": here / apart if apart else None,
        "goal": goal,
        "ok": apart <= goal,
    }
