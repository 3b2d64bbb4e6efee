"""The axes of Kafka's own assignor benchmark: topology, subscriptions, racks, event."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product

from muster.assignors import registry
from muster.assignors.api import Assignor, Member, Snapshot
from muster.assignors.run import run

TOPOLOGIES = ("equal", "skewed")
SUBSCRIPTIONS = ("homogeneous", "disjoint", "nested")
RACKS = ("none", "given")
GRID_EVENTS = ("full", "stable", "join one", "join many", "leave one", "leave many", "partitions added")

MEMBERS, TOPICS, PARTITIONS = 100, 50, 20  # 1,000 partitions in the mean
_MANY = 10
_RACKS = ("r1", "r2", "r3")


def measure_grid(clock: Callable[[], float], words: Sequence[str], turns: int = 3) -> Iterator[dict[str, str | float]]:
    """A row per cell: the axes, the assignor, and the median seconds from members to checked assignment."""
    for topology, subscriptions, racks, event in product(TOPOLOGIES, SUBSCRIPTIONS, RACKS, GRID_EVENTS):
        start = grid_group(topology, subscriptions, racks)
        for word in words:
            assignor = registry.resolve(word)
            snapshot = grid_event(start, assignor, event)
            taken: list[float] = []
            for _ in range(turns):
                fresh = replace(snapshot)
                begin = clock()
                run(assignor, fresh)
                taken.append(clock() - begin)
            yield {
                "topology": topology,
                "subscriptions": subscriptions,
                "racks": racks,
                "event": event,
                "assignor": word,
                "seconds": statistics.median(taken),
            }


def grid_group(topology: str, subscriptions: str, racks: str) -> Snapshot:
    """Skewed: one topic in ten is ten times as large. Nested: member n reads the first topics only."""
    names = [f"topic-{number:03d}" for number in range(TOPICS)]
    counts = dict.fromkeys(names, PARTITIONS)
    if topology == "skewed":
        counts.update(dict.fromkeys(names[::10], 10 * PARTITIONS))
    members = [
        Member(
            f"member-{number:03d}",
            _topics(subscriptions, number, names),
            rack=_RACKS[number % 3] if racks == "given" else None,
        )
        for number in range(MEMBERS)
    ]
    near = {name: [(_RACKS[p % 3], _RACKS[(p + 1) % 3]) for p in range(count)] for name, count in counts.items()}
    return Snapshot(counts, members, racks=near if racks == "given" else None)


def grid_event(snapshot: Snapshot, assignor: Assignor, event: str) -> Snapshot:
    """The same group, settled, and then the event."""
    if event == "full":
        return snapshot
    answer = run(assignor, snapshot, withhold=False).to_dict()
    members = [replace(member, owned=answer[member.id], generation=1) for member in snapshot.members]
    joining = {"join one": 1, "join many": _MANY}.get(event, 0)
    leaving = {"leave one": 1, "leave many": _MANY}.get(event, 0)
    fresh = [replace(member, id=f"new-{member.id}", owned=None, generation=-1) for member in members[:joining]]
    topics = dict(snapshot.topics)
    if event == "partitions added":
        topics = {topic: count + 2 for topic, count in topics.items()}
    return replace(snapshot, topics=topics, members=[*members[leaving:], *fresh])


def _topics(subscriptions: str, number: int, names: Sequence[str]) -> tuple[str, ...]:
    if subscriptions == "homogeneous":
        return tuple(names)
    if subscriptions == "disjoint":
        return (names[number % len(names)],)
    return tuple(names[: 1 + number % len(names)])
