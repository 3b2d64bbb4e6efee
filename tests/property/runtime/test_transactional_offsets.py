"""Positions in transactions on the node's own log: live state, replay, a core kept warm and a model agree at every cut.

The model (TX-G4, TX-G9) keeps the log as a list and looks it through each time. The log is a real one, so its cleaner
takes part (TX-L10), and so do its rules for producers and markers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.coordinator.core.groups.state import PendingPositions
from muster.coordinator.core.kinds import facts
from muster.coordinator.core.model.effects import OffsetFetchReply, Reply
from muster.coordinator.core.model.events import (
    DeleteGroup,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    TxnEnded,
    TxnOffsetCommit,
)
from muster.coordinator.core.model.types import CommittedOffset, Limits
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime import replay
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.group_log import BrokerGroupLog
from muster.coordinator.runtime.ports import KeyValue, TxnBatchRead
from muster.coordinator.runtime.replay import GROUPS_TOPIC, LoadReport, group_offsets, replay_shard
from muster.storage.broker.broker import Broker
from tests.fakes.memory_files import MemoryFiles
from tests.sim.checkers.replay import what_waits

GROUPS = ("g", "h")
PARTITIONS = range(3)
PRODUCERS = (50, 51, 52)
SEGMENT = 1_500
"""Bytes. A few batches, so that the cleaner has something to do."""

group = st.sampled_from(["g", "g", "h"])
parts = st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=2, unique=True)
producer = st.sampled_from(PRODUCERS)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), group, parts),
        st.tuples(st.just("write"), group, parts, producer),
        st.tuples(st.just("write"), group, parts, producer),
        st.tuples(st.just("end"), producer, st.booleans()),
        st.tuples(st.just("end"), producer, st.just(True)),
        st.tuples(st.just("delete"), group, parts),
        st.tuples(st.just("drop"), group),
        st.tuples(st.just("clean")),
        st.tuples(st.just("start anew")),
    ),
    max_size=40,
)

Key = tuple[str, int]


@dataclass
class Model:
    """The log: of each entry whose it is (None: the group's own), its key, and its value (None: deleted); of a marker
    the producer and whether it commits."""

    entries: list[tuple[Any, ...]] = field(default_factory=list)

    def resolve(self) -> tuple[dict[Key, int], list[tuple[int, Key, int]]]:
        """What is committed, and what waits: what waits for one key is in the order of the log."""
        counts: dict[Key, tuple[int, int | None]] = {}
        waiting: list[tuple[int, int, Key, int]] = []
        for at, (of, *what) in enumerate(self.entries):
            if isinstance(what[0], bool):
                mine = [each for each in waiting if each[1] == of]
                waiting = [each for each in waiting if each[1] != of]
                for place, _, key, value in mine if what[0] else ():
                    if counts.get(key, (-1, None))[0] < place:
                        counts[key] = place, value
            elif of is None:
                counts[what[0]] = at, what[1]
            else:
                waiting = [each for each in waiting if (each[1], each[2]) != (of, what[0])]
                waiting.append((at, of, *what))
        committed = {key: value for key, (_, value) in counts.items() if value is not None}
        left = [each[1:] for each in waiting if counts.get(each[2], (-1, None))[0] < each[0]]
        return committed, sorted(left, key=lambda each: each[1])


class Node:
    """One shard on a real log, and the model."""

    def __init__(self) -> None:
        self.next_id = 0
        self.now_ms = 1_000_000
        self.files = MemoryFiles()
        self.epochs = dict.fromkeys(PRODUCERS, 0)
        self.model = Model()
        self.unheard = False
        """Whether nobody waits for what is decided."""
        self.open_log()
        self.start_anew()

    def open_log(self) -> None:
        self.broker = Broker("/data", files=self.files, clock_ms=lambda: self.now_ms, random_bytes=bytes)
        self.log = BrokerGroupLog(self.broker, 1, SEGMENT)

    def start_anew(self) -> None:
        self.engine = Engine(self.log, 1, Limits())
        self.engine.load(self.now_ms)
        self.settled()

    def settled(self) -> list[tuple[int, Reply]]:
        told = []
        while True:
            self.engine.turn(self.now_ms)
            if (job := self.engine.flush_job()) is not None:
                job.run()
                self.engine.flushed(job)
            told += self.engine.take_released().replies
            if not self.engine.pending:
                return told

    def number(self) -> int:
        self.next_id += 1
        return self.next_id

    def ask(self, event: Any) -> Any:
        self.engine.submit(0, event)
        ((request_id, reply),) = self.settled()
        assert request_id == event.request_id
        return reply

    def told(self, event: Any) -> None:
        if self.unheard:
            self.engine.submit(0, event)
        else:
            assert self.ask(event).code is ErrorCode.NONE

    def offsets(self, parts: Sequence[int], value: int) -> dict[tuple[str, int], CommittedOffset]:
        return {("t", part): CommittedOffset(value) for part in parts}

    def commit(self, group: str, parts: list[int]) -> None:
        number = self.number()
        self.told(OffsetCommit(number, group, "", None, -1, self.offsets(parts, number)))
        self.model.entries += [(None, (group, part), number) for part in parts]

    def write(self, group: str, parts: list[int], producer: int) -> None:
        number, epoch = self.number(), self.epochs[producer]
        guard = self.broker.log(GROUPS_TOPIC, 0).make_guard(producer, epoch)
        event = TxnOffsetCommit(number, group, "", None, -1, self.offsets(parts, number), producer, epoch, guard)
        self.told(event)
        self.model.entries += [(producer, (group, part), number) for part in parts]

    def end(self, producer: int, commits: bool) -> None:
        """With each end the producer gets its next epoch, as at level 2."""
        self.epochs[producer] += 1
        self.told(TxnEnded(self.number(), producer, self.epochs[producer], commits, 0, 2))
        self.model.entries.append((producer, commits))

    def delete(self, group: str, parts: list[int]) -> None:
        there = self.ask(OffsetDelete(self.number(), group, tuple(("t", part) for part in parts))).code
        if there is ErrorCode.NONE:
            self.model.entries += [(None, (group, part), None) for part in parts]

    def drop(self, group: str) -> None:
        there = self.ask(DeleteGroup(self.number(), group)).code
        if there is ErrorCode.NONE:
            self.model.entries += [(None, (group, part), None) for part in PARTITIONS]

    def clean(self) -> None:
        self.broker.log(GROUPS_TOPIC, 0).roll(self.now_ms)
        while self.broker.compact(self.now_ms) is not None:
            pass

    def lose_power(self, steps: Sequence[tuple[Any, ...]], seed: int) -> None:
        """These were decided and nobody was told, when the disk forgot what it liked of it. The log has a beginning of
        what it had, and so has the model."""
        durable = len(self.model.entries)
        self.unheard = True
        for step in steps:
            self.obey(*step)
        self.unheard = False
        self.engine.turn(self.now_ms)
        assert self.engine.take_released().replies == [], "nothing is told that could be lost"
        self.files.crash(Random(seed).choice)
        self.open_log()
        self.start_anew()
        left = known(self.engine.core(0))
        for count in range(len(self.model.entries), durable - 1, -1):
            beginning = Model(self.model.entries[:count])
            if beginning.resolve() == left:
                self.model = beginning
                return
        raise AssertionError(f"the log has {left}, which it never had")

    def obey(self, what: str, *rest: Any) -> None:
        getattr(self, what.replace(" ", "_"))(*rest)


def known(core: Any) -> tuple[dict[Key, int], list[tuple[int, Key, int]]]:
    committed = {
        (group_id, part): value.offset
        for group_id, stored in core.state.offsets.items()
        for (_, part), value in stored.items()
    }
    waiting: list[Any] = what_waits(core)
    return committed, [(of, (group_id, place[1]), value.offset) for of, group_id, place, value in waiting]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_a_shard_knows_what_its_log_says_at_every_cut(steps: list[tuple[Any, ...]]) -> None:
    live_through(steps)


def check(node: Node, what: str, *rest: Any) -> None:
    node.obey(what, *rest)
    wanted = node.model.resolve()
    assert known(node.engine.core(0)) == wanted
    again, warm, report = Shard(Limits(), 0), Shard(Limits(), 0), LoadReport()
    assert replay_shard(node.log, 0, again).malformed == 0
    assert known(again) == wanted, "a replay finds what was live"
    for record in group_offsets(node.log.read_groups(0), "the log", report):  # type: ignore[arg-type]
        warm.apply(record)
    assert known(warm) == wanted, "and so does who takes the records in as they come"
    check_fetches(node, wanted)


def check_fetches(node: Node, wanted: tuple[dict[Key, int], list[tuple[int, Key, int]]]) -> None:
    """88 is told exactly of what waits, and of all else what is committed (TX-G5)."""
    committed, left = wanted
    for group_id in GROUPS:
        places = tuple(("t", part) for part in PARTITIONS)
        unstable = {("t", key[1]) for _, key, _ in left if key[0] == group_id}
        for stable in (True, False):
            reply = node.ask(OffsetFetch(node.number(), group_id, places, stable))
            assert isinstance(reply, OffsetFetchReply)
            refused = unstable if stable else set()
            assert reply.refused == dict.fromkeys(refused, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            found = {place[1]: each.offset for place, each in reply.offsets.items() if each is not None}
            mine = {key[1]: value for key, value in committed.items() if key[0] == group_id}
            assert found == {part: value for part, value in mine.items() if ("t", part) not in refused}


WRITES = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), group, parts),
        st.tuples(st.just("write"), group, parts, producer),
        st.tuples(st.just("write"), group, parts, producer),
        st.tuples(st.just("end"), producer, st.booleans()),
    ),
    max_size=6,
)
LIVES = st.lists(st.tuples(STEPS.map(lambda steps: steps[:6]), WRITES, st.integers(0, 1 << 32)), max_size=4)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(LIVES)
def test_a_loss_of_power_leaves_a_beginning_of_the_log_and_all_that_was_acknowledged(lives: list[Any]) -> None:
    node = Node()
    for steps, lost, seed in lives:
        for step in steps:
            check(node, *step)
        node.lose_power(lost, seed)


# Shards that break one rule each
# -------------------------------

LIFE: list[tuple[Any, ...]] = [
    ("write", "g", [0, 1], 50),
    ("commit", "g", [0]),
    ("write", "g", [1, 2], 51),
    ("write", "h", [0], 51),
    ("end", 51, True),
    ("end", 50, True),
    ("commit", "g", [2]),
    ("write", "g", [0, 2], 52),
    ("clean",),
    ("end", 52, False),
    ("write", "g", [0], 50),
    ("commit", "g", [0]),
    ("start anew",),
    ("write", "h", [1], 52),
    ("drop", "h"),
    ("end", 52, True),
]


def newest_before_resolving(honest: Any) -> Any:
    """Of each key the last record is looked at alone, whoever wrote it."""

    def newest(stored: Any, report: LoadReport) -> Any:
        keys: set[bytes] = set()
        left = []
        for item in reversed(list(stored)):
            if isinstance(item, TxnBatchRead):
                item = item._replace(records=tuple(each for each in item.records if each.key not in keys))
                keys |= {each.key for each in item.records}
            elif isinstance(item, KeyValue):
                if item.key in keys:
                    continue
                keys.add(item.key)
            if not isinstance(item, TxnBatchRead) or item.records:
                left.append(item)
        return honest(reversed(left), report)

    return newest


def placed_at_the_marker(honest: Any) -> Any:
    def place(ended: Any, latest: dict[bytes, KeyValue]) -> int:
        for record in ended:
            latest[record.key] = record
        return 0

    return place


def whatever_is_left_waits(honest: Any) -> Any:
    return lambda waiting, latest: honest(waiting, {})


def the_last_pending_one_wins(honest: Any) -> Any:
    return lambda self, record: None


def an_earlier_transaction_wins(honest: Any) -> Any:
    return lambda self, group_id, places: None if isinstance(places, dict) else honest(self, group_id, places)


def an_abort_counts(honest: Any) -> Any:
    return lambda state, waiting, commit: honest(state, waiting, True)


MUTANTS: list[tuple[Any, str, Callable[[Any], Any]]] = [
    (replay, "newest_resolved", newest_before_resolving),
    (replay, "place_committed", placed_at_the_marker),
    (replay, "batches_waiting", whatever_is_left_waits),
    (PendingPositions, "overtaken_by", the_last_pending_one_wins),
    (PendingPositions, "overtaken", an_earlier_transaction_wins),
    (facts, "take_ended", an_abort_counts),
]


def live_through(steps: list[tuple[Any, ...]]) -> None:
    node = Node()
    for step in steps:
        check(node, *step)


def test_an_honest_shard_lives_through_it() -> None:
    live_through(LIFE)


@pytest.mark.parametrize(("owner", "name", "make"), MUTANTS, ids=[make.__name__ for _, _, make in MUTANTS])
def test_a_mutant_is_caught(owner: Any, name: str, make: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, name, make(getattr(owner, name)))
    with pytest.raises(AssertionError):
        live_through(LIFE)


def test_the_cleaner_lets_no_aborted_position_outlive_a_committed_one() -> None:
    """TX-L10 on the topic of the groups: it is cleaned like any."""
    node = Node()
    for number in range(12):
        node.obey("write", "g", [0, 1], 50)
        node.obey("end", 50, number % 3 == 0)
    node.obey("commit", "g", [2])
    before = sum(len(item.records) for item in node.log.read_groups(0) if isinstance(item, TxnBatchRead))
    check(node, "clean")
    left = [item.records for item in node.log.read_groups(0) if isinstance(item, TxnBatchRead)]
    assert before == 24
    assert [[record.offset for record in records] for records in left] == [[27, 28]], (
        "those of the tenth, which committed"
    )
