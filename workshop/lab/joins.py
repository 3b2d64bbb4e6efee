"""What it costs a settled group that one more member joins, by the size of the group."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from muster.workshop.lab.compare import CALM_MS, START_MS, ComparisonCourse, Workload
from muster.workshop.lab.generations import ProtocolGeneration

WINDOW_MS = 60_000
"""Messages are counted over such a time, before the join and after it."""
PARTITIONS = 200
"""Enough for the largest group to have something to share."""


@dataclass(frozen=True, slots=True)
class JoinCosts:
    """One member more. `until_owned_s`: until the last partition that stopped was owned again.

    `woken` counts words that nobody had asked for: watches that fired, or what a coordinator pushed. `messages` are
    those beyond what the group sends in the same time when nothing happens.
    """

    generation: str
    members: int
    until_owned_s: float
    stops: int
    unowned_partition_s: float
    woken: int
    messages: int


def measure_joins(
    sizes: Sequence[int], generations: Iterable[ProtocolGeneration], seed: int = 1
) -> Iterator[JoinCosts]:
    for generation in generations:
        for size in sizes:
            yield JoinCourse(generation, size, seed).run()


class JoinCourse(ComparisonCourse):
    """A course of one event."""

    def __init__(self, generation: ProtocolGeneration, members: int, seed: int) -> None:
        super().__init__(Workload(members=members, partitions=PARTITIONS, joining=1, seed=seed), generation)
        self._members = members

    def run(self) -> JoinCosts:  # type: ignore[override]
        clock, lab = self._clock, self._lab
        self._assemble()
        clock.run(START_MS + CALM_MS)
        self._settled("the start")
        quiet = lab.messages
        clock.run(clock.now_ms + WINDOW_MS)
        quiet = lab.messages - quiet
        before, woken, started_ms = self._begin(), lab.woken, clock.now_ms
        self._scale_out()
        clock.run(started_ms + WINDOW_MS)
        self._settled("the join")
        costs = self._costs(*before)
        taken_ms = max(book.taken_at_ms for book in lab.account.books.values())
        return JoinCosts(
            self._generation.name,
            self._members,
            max(0, taken_ms - started_ms) / 1000,
            costs.stops,
            costs.unowned_partition_s,
            lab.woken - woken,
            max(0, costs.messages - quiet),
        )
