"""The benchmark behind `muster bench assignors`: ours against kafka-python and aiokafka in one run.

This package knows no clock; the caller passes one (`time.perf_counter`). Each case is measured in
interleaved turns, ours and the peer's, and answered as one row: bench, case, value, unit, peer,
peer_value, ratio (peer over ours: more than 1 is faster), goal, ok. Where no peer is installed or ends
in bearable time the peer is None and only the goal counts.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from muster.assignors import registry
from muster.assignors.api import Assignor, Member, Snapshot
from muster.assignors.blobs import LeaderTopics, SubscribedMember, assign_bytes
from muster.assignors.data.consumer_protocol import Subscription, encode_sticky_user_data, encode_subscription
from muster.assignors.run import run
from muster.workshop.bench import isolation
from muster.workshop.bench.peers import PeerAssignor, find_peers

Clock = Callable[[], float]  # seconds
Row = dict[str, Any]
AskJava = Callable[[str, tuple[int, int, int], str], float]

MILLION = (2000, 500, 2000)  # members, topics, partitions of each topic
MIDDLE = (1000, 1000, 10)
SMALL = (10, 10, 10)
EQUAL = ("range", "roundrobin", "sticky", "cooperative-sticky", "uniform")
EVENTS = ("fresh", "unchanged", "one leaves", "one joins")
BYTES_GOAL = 0.002  # seconds, of ten members
JAVA_GROUPS = (("10x10x10", SMALL, 200, 100e-6), ("1000x1000x10", MIDDLE, 5, 0.3), ("1M", MILLION, 3, 0.4))


@dataclass(frozen=True, slots=True)
class AssignorBenchmarkCase:
    """One thing to measure: `ours` is called `turns` times, `peer` in between."""

    name: str
    ours: Callable[[], object]
    goal: float  # seconds
    turns: int
    peer_name: str | None = None
    peer: Callable[[], object] | None = None
    peer_seconds: Callable[[], float] | None = None  # a peer that times itself
    beats_peer: bool = True  # whether the goal asks for that, too
    before: Callable[[], object] | None = None  # untimed, before each turn of ours


def measure(clock: Clock, only: str = "", names: Sequence[str] = (), java: AskJava | None = None) -> Iterator[Row]:
    """Rows as they are measured; `only` keeps cases whose name contains it, `names` the assignors.

    `java` asks Kafka's own assignors: (assignor, shape, event) -> seconds.
    """
    for make in (_small, _middle, _million, _lag):
        for case in make(only, tuple(names)):
            yield _row(case, clock)
    if "isolation".startswith(only) or only.startswith("isolation"):
        yield from (row for row in isolation.measure_isolation(clock) if only in row["case"])
    for case in _against_java(only, tuple(names), java) if java else ():
        yield _row(case, clock)


def _row(case: AssignorBenchmarkCase, clock: Clock) -> Row:
    mine: list[float] = []
    theirs: list[float] = []
    for _ in range(case.turns):
        if case.before is not None:
            case.before()
        mine.append(_timed(case.ours, clock))
        if case.peer is not None:
            theirs.append(_timed(case.peer, clock))
        elif case.peer_seconds is not None:
            theirs.append(case.peer_seconds())
    value = statistics.median(mine)
    peer_value = statistics.median(theirs) if theirs else None
    return {
        "bench": "assignors",
        "case": case.name,
        "value": value,
        "unit": "s",
        "peer": case.peer_name,
        "peer_value": peer_value,
        "ratio": peer_value / value if peer_value is not None and value else None,
        "goal": case.goal,
        "ok": value <= case.goal and (peer_value is None or not case.beats_peer or peer_value >= value),
    }


def _timed(work: Callable[[], object], clock: Clock) -> float:
    start = clock()
    work()
    return clock() - start


def _wanted(name: str, word: str, only: str, names: tuple[str, ...]) -> bool:
    return only in name and (not names or word in names)


def make_group(shape: tuple[int, int, int], pick: str = "equal") -> Snapshot:
    """A group of some shape; `pick` says who subscribes to what: equal, one differs, half, five random."""
    members, topics, partitions = shape
    names = tuple(f"topic-{number:04d}" for number in range(topics))
    dice = random.Random(5)
    wants: Callable[[int], tuple[str, ...]] = {
        "equal": lambda number: names,
        "one differs": lambda number: names[1:] if number == 0 else names,
        "half": lambda number: names[: topics // 2] if number % 2 else names,
        "five random": lambda number: tuple(dice.sample(names, min(5, topics))),
    }[pick]
    return Snapshot(
        dict.fromkeys(names, partitions),
        [Member(f"member-{number:05d}", wants(number)) for number in range(members)],
    )


def apply_event(snapshot: Snapshot, assignor: Assignor, event: str) -> Snapshot:
    """The group one rebalance later, with what the event changes. Members are a table: nothing is copied."""
    from muster.assignors.data.columns import OwnerTable, columns_of
    from muster.assignors.data.member_table import MemberTable, TableMember

    if event == "fresh":
        return snapshot
    answer = run(assignor, snapshot, withhold=False)
    table = answer.members
    if not isinstance(table, OwnerTable):
        members = [replace(m, owned=table[m.id], generation=1) for m in snapshot.members]
        extra = [Member("newcomer", snapshot.members[0].topics)] if event == "one joins" else []
        return replace(snapshot, members=[*members[event == "one leaves" :], *extra])
    columns = columns_of(snapshot)
    number = {word: place for place, word in enumerate(columns.members)}
    topics = {member.id: member.topics for member in snapshot.members}
    words = list(columns.members)[event == "one leaves" :]
    kinds = {wanted: place for place, wanted in enumerate(dict.fromkeys(topics.values()))}
    rows = [TableMember(word, 1) for word in words]
    of = [kinds[topics[word]] for word in words]
    claims: list[Any] = [table.positions(number[word]) for word in words]
    if event == "one joins":
        rows, of, claims = [*rows, TableMember("newcomer")], [*of, of[0]], [*claims, None]
    return replace(snapshot, members=MemberTable(rows, list(kinds), of, columns.axis, claims))


def encode_subscriptions(snapshot: Snapshot, word: str) -> list[SubscribedMember]:
    """The members' subscriptions as bytes, claims where the assignor looks for them."""
    out: list[SubscribedMember] = []
    for member in snapshot.members:
        owned = member.owned or {}
        said = Subscription(3, member.topics, None, owned, member.generation)
        if word == "sticky":
            data = encode_sticky_user_data(owned, member.generation) if owned else b""
            said = Subscription(3, member.topics, data)
        out.append(SubscribedMember(member.id, encode_subscription(said)))
    return out


def _small(only: str, names: tuple[str, ...]) -> Iterator[AssignorBenchmarkCase]:
    goals = {"range": 50e-6, "roundrobin": 50e-6, "sticky": 100e-6}
    snapshot = make_group(SMALL)
    for word, goal in goals.items():
        assignor = registry.resolve(word)
        found: list[PeerAssignor | None] = [*find_peers(word)]
        for peer in found or [None]:
            name = f"10x10x10 {word} fresh" + (f" against {peer.name}" if peer else "")
            if not _wanted(name, word, only, names):
                continue
            yield AssignorBenchmarkCase(name, _fresh(assignor, snapshot), goal, 300, *_against(peer, snapshot))
            yield AssignorBenchmarkCase(
                f"{name}, bytes to bytes",
                _bytes(assignor, snapshot, word),
                BYTES_GOAL,
                300,
                *_against(peer, snapshot, on_bytes=True),
            )


def _middle(only: str, names: tuple[str, ...]) -> Iterator[AssignorBenchmarkCase]:
    assignor = registry.resolve("sticky")
    for event, goal in (("fresh", 0.3), ("unchanged", 0.05), ("one leaves", 0.05)):
        name = f"1000x1000x10 sticky {event}, five random topics each"
        if _wanted(name, "sticky", only, names):
            yield _columns_case(name, assignor, apply_event(make_group(MIDDLE, "five random"), assignor, event), goal)
    for word in ("range", "roundrobin"):
        for peer in find_peers(word):
            name = f"1000x1000x10 {word} fresh against {peer.name}"
            if _wanted(name, word, only, names):
                snapshot = make_group(MIDDLE)
                yield AssignorBenchmarkCase(
                    name, _fresh(registry.resolve(word), snapshot), 0.1, 3, *_against(peer, snapshot)
                )


def _million(only: str, names: tuple[str, ...]) -> Iterator[AssignorBenchmarkCase]:
    for word in EQUAL:
        assignor = registry.resolve(word)
        for event in EVENTS:
            if event != "fresh" and word in ("range", "roundrobin"):
                continue  # They look at no claims: every event is a fresh one.
            arrays = f"1M {word} {event}, arrays to arrays"
            wire = f"1M {word} {event}, bytes to bytes"
            if _wanted(arrays, word, only, names):
                yield _columns_case(arrays, assignor, apply_event(make_group(MILLION), assignor, event), 0.06)
            if _wanted(wire, word, only, names):
                snapshot = apply_event(make_group(MILLION), assignor, event)
                yield AssignorBenchmarkCase(wire, _bytes(assignor, snapshot, word), 0.4, 3)
    sticky = registry.resolve("sticky")
    for pick in ("one differs", "half", "five random"):
        for event, goal in (("fresh", 2.0), ("unchanged", 0.6)):
            name = f"1M sticky {event}, {pick}"
            if _wanted(name, "sticky", only, names):
                yield _columns_case(name, sticky, apply_event(make_group(MILLION, pick), sticky, event), goal)


def _lag(only: str, names: tuple[str, ...]) -> Iterator[AssignorBenchmarkCase]:
    import numpy as np

    for word, event, goal in (
        ("lag", "fresh", 0.1),
        ("lag-sticky", "fresh", 1.0),
        ("lag-sticky", "one joins", 1.0),
    ):
        name = f"1M {word} {event}"
        if _wanted(name, word, only, names):
            dice = np.random.default_rng(5)
            snapshot = make_group(MILLION)
            lags: Any = {topic: dice.integers(0, 1_000_000, count) for topic, count in snapshot.topics.items()}
            snapshot = replace(snapshot, lags=lags)
            assignor = registry.resolve(word)
            yield _columns_case(name, assignor, apply_event(snapshot, assignor, event), goal)


def _against_java(only: str, names: tuple[str, ...], java: AskJava) -> Iterator[AssignorBenchmarkCase]:
    """The same groups and events in the JVM, which is warm after its first, discarded turn."""
    for label, shape, turns, goal in JAVA_GROUPS:
        for word in ("range", "roundrobin", "sticky", "cooperative-sticky"):
            for event in EVENTS if "sticky" in word else ("fresh",):
                name = f"{label} {word} {event} against Java"
                assignor = registry.resolve(word)
                if _wanted(name, word, only, names):
                    ask = partial(java, word, shape, event)
                    ask()
                    work = _fresh(assignor, apply_event(make_group(shape), assignor, event))
                    # A warm JVM decides ten members in less time than Python needs to look at them.
                    beats = shape != SMALL
                    yield AssignorBenchmarkCase(
                        name, work, goal, turns, "kafka-clients", peer_seconds=ask, beats_peer=beats
                    )
                name = f"{name}, bytes to bytes"
                if shape == SMALL and _wanted(name, word, only, names):
                    ask = partial(java, word, shape, f"{event} bytes")
                    ask()
                    work = _bytes(assignor, apply_event(make_group(shape), assignor, event), word)
                    yield AssignorBenchmarkCase(name, work, BYTES_GOAL, turns, "kafka-clients", peer_seconds=ask)


def _columns_case(name: str, assignor: Assignor, snapshot: Snapshot, goal: float) -> AssignorBenchmarkCase:
    """Arrays to arrays: the columns stand, the assignor decides."""

    def ready() -> object:
        return snapshot.columns.takers, snapshot.columns.lags if snapshot.lags else None

    return AssignorBenchmarkCase(name, lambda: assignor.assign(snapshot), goal, 5, before=ready)


def _fresh(assignor: Assignor, snapshot: Snapshot) -> Callable[[], object]:
    """From plain members each time: nothing is remembered from the last turn."""
    return lambda: assignor.assign(replace(snapshot))


def _bytes(assignor: Assignor, snapshot: Snapshot, word: str) -> Callable[[], object]:
    members, cluster = encode_subscriptions(snapshot, word), LeaderTopics(snapshot.topics)
    return lambda: assign_bytes(assignor, members, cluster)


def _against(
    peer: PeerAssignor | None, snapshot: Snapshot, on_bytes: bool = False
) -> tuple[str | None, Callable[[], object] | None]:
    if peer is None:
        return None, None
    return peer.name, peer.on_bytes(snapshot) if on_bytes else peer.on_objects(snapshot)
