"""`muster bench assignors`: ours against kafka-python, aiokafka and the JVM's in one run.

This module knows no clock; the caller passes one (`time.perf_counter`). Each case is measured in interleaved turns,
ours and the peer's, and answered as one row: bench, case, value, unit, peer, ratio, goal. Peers are called as their own
consumers call them, and only where they are installed.
A plugin's process is measured with the same logic in and out of a process, in
turns.
"""

from __future__ import annotations

import importlib
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from muster.assignors import registry
from muster.assignors.api import Assignor, Member, RebalanceProtocol, Snapshot
from muster.assignors.builtin.range import RangeAssignor
from muster.assignors.data.consumer_protocol import Subscription, encode_sticky_user_data, encode_subscription
from muster.assignors.leader_codec import LeaderTopics, SubscribedMember, assign_bytes
from muster.assignors.plugin_pool import Isolation
from muster.assignors.run import run

# Other clients' assignors
# ------------------------

_CLASSES = {
    "range": ("range", "RangePartitionAssignor"),
    "roundrobin": ("roundrobin", "RoundRobinPartitionAssignor"),
    "sticky": ("sticky.sticky_assignor", "StickyPartitionAssignor"),
}


@dataclass(frozen=True, slots=True)
class PeerAssignor:
    """One assignor of another client."""

    name: str
    decode: Callable[[bytes], Any]
    assign: Callable[[Any, list[SimpleNamespace]], Any]

    def on_objects(self, snapshot: Snapshot) -> Callable[[], object]:
        """Its decision on decoded subscriptions."""
        cluster = _PeerCluster(snapshot)
        members = [_member(word, self.decode(blob)) for word, blob in _blobs(snapshot)]
        return lambda: self.assign(cluster, members)

    def on_bytes(self, snapshot: Snapshot) -> Callable[[], object]:
        """Decode, decide, encode."""
        cluster, blobs = _PeerCluster(snapshot), _blobs(snapshot)

        def work() -> object:
            answer = self.assign(cluster, [_member(word, self.decode(blob)) for word, blob in blobs])
            return {word: share.encode() for word, share in answer.items()}

        return work


def find_peers(word: str) -> list[PeerAssignor]:
    """The installed peers that have an assignor of this name."""
    if word not in _CLASSES:
        return []
    found: list[PeerAssignor] = []
    for package, label, make in (("kafka", "kafka-python", _kafka_python), ("aiokafka", "aiokafka", _aiokafka)):
        module, cls = _CLASSES[word]
        try:
            assignors = importlib.import_module(f"{package}.coordinator.assignors.{module}")
            found.append(make(label, getattr(assignors, cls)))
        except (ImportError, AttributeError):
            continue  # Not installed, or another version with other names: no peer, no row.
    return found


def _kafka_python(label: str, cls: Any) -> PeerAssignor:
    wire = importlib.import_module("kafka.coordinator.assignors.abstract")
    return PeerAssignor(
        label, wire.ConsumerProtocolSubscription.decode, lambda cluster, members: _maker(cls).assign(cluster, members)
    )


def _aiokafka(label: str, cls: Any) -> PeerAssignor:
    wire = importlib.import_module("aiokafka.coordinator.protocol")

    def assign(cluster: Any, members: list[SimpleNamespace]) -> Any:
        return _maker(cls).assign(cluster, {member.member_id: member.metadata for member in members})

    return PeerAssignor(label, wire.ConsumerProtocolMemberMetadata.decode, assign)


def _maker(cls: Any) -> Any:
    """Assignors with state are made anew for each decision, the others are classes of class methods."""
    try:
        return cls()
    except TypeError:
        return cls


class _PeerCluster:
    """As much of a client's cluster metadata as assignors ask for."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._partitions = {topic: set(range(count)) for topic, count in snapshot.topics.items()}

    def topics(self) -> set[str]:
        return set(self._partitions)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return self._partitions.get(topic)


def _member(word: str, metadata: Any) -> SimpleNamespace:
    return SimpleNamespace(member_id=word, group_instance_id=None, metadata=metadata)


def _blobs(snapshot: Snapshot) -> list[tuple[str, bytes]]:
    return [(m.id, encode_subscription(Subscription(0, m.topics, b""))) for m in snapshot.members]


# What a plugin's own process costs
# ---------------------------------

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


# The suite
# ---------

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
        yield from (row for row in measure_isolation(clock) if only in row["case"])
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
    from muster.assignors.data.columns import MemberTable, OwnerTable, TableMember, columns_of

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
