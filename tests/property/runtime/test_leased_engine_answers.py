"""Shards come and go under any mixture of work and faults: one answer each, in order, none without commit and lease.

Whoever leads in between has what was committed and nothing else, which is the worst that may be.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.coordinator.core.model.effects import Reply
from muster.coordinator.core.model.events import Heartbeat, JoinGroup, Request
from muster.coordinator.core.model.types import Limits
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.engine import EngineOptions
from muster.coordinator.runtime.leased import LeasedEngine
from muster.coordinator.runtime.shards import CALM_MS, ShardStatus
from tests.fakes.memory_group_log import MemoryGroupLog
from tests.fakes.tiny_shard import JOIN_WAIT_MS, TinyShard
from tests.support.asked_engine import INBOX, SHARDS, AskedEngine

TIMEOUT_MS = 5_000
REFUSALS = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}

SHARD = st.integers(0, SHARDS - 1)
FEW = st.integers(0, 3)
COMMANDS = st.one_of(
    st.tuples(st.sampled_from(["commit", "fetch", "heartbeat", "join", "break"]), SHARD),
    st.tuples(st.sampled_from(["commit and turn", "reach", "reach some", "reach some"]), SHARD),
    st.tuples(st.sampled_from(["lease ends", "lease is back", "lease is back"]), SHARD),
    st.tuples(st.sampled_from(["lost", "gained", "gained", "starve", "feed"]), SHARD),
    st.tuples(st.just("turn"), st.sampled_from([0, 1, 200, JOIN_WAIT_MS, TIMEOUT_MS, CALM_MS])),
    st.tuples(st.sampled_from(["flush", "begin flush", "end flush", "late"]), st.just(0)),
    st.tuples(st.sampled_from(["forget", "fail flush", "fail append", "fail read"]), FEW),
)


@dataclass
class Authority:
    """Of the log it knows where it ended at each position, and how far of that is committed, in batches."""

    log: MemoryGroupLog
    leases: list[bool] = field(default_factory=lambda: [True] * SHARDS)
    led: set[int] = field(default_factory=lambda: {0, 1})
    thin: set[int] = field(default_factory=set)
    written: list[list[tuple[int, int, int]]] = field(default_factory=lambda: [[] for _ in range(SHARDS)])
    committed: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)] * SHARDS)

    def may_answer(self, shard: int) -> bool:
        return shard in self.led and self.leases[shard]

    def may_fire(self, shard: int) -> bool:
        return self.may_answer(shard)

    def wrote(self, shard: int, position: int) -> None:
        ends = len(self.log.groups[shard].batches), len(self.log.ledger[shard].batches)
        self.written[shard].append((position, *ends))

    def flushed(self, shards: Collection[int]) -> None:
        pass

    def broke(self, shard: int, why: str) -> None:
        pass

    def leads(self, shard: int) -> bool:
        return shard in self.led


@dataclass
class World(AskedEngine):
    def __post_init__(self) -> None:
        self.authority = Authority(self.log)
        self.engine = LeasedEngine(
            self.log,
            SHARDS,
            Limits(),
            TinyShard,
            options=EngineOptions(inbox_limit=INBOX),
            authority=self.authority,
            commit_timeout_ms=TIMEOUT_MS,
        )
        for shard in range(SHARDS):
            self.engine.load_shard(shard, 0)

    def reach(self, shard: int, most: int) -> None:
        """So many positions more are committed."""
        written = self.authority.written[shard]
        if shard not in self.authority.led or not written:
            return
        done, self.authority.written[shard] = written[:most], written[most:]
        position, *ends = done[-1]
        self.authority.committed[shard] = (ends[0], ends[1])
        self.engine.committed(shard, position, self.now_ms)
        self.listen()

    def lease(self, shard: int, *, holds: bool) -> None:
        self.authority.leases[shard] = holds
        if holds and shard in self.authority.led:
            self.engine.opened(shard, self.now_ms)
            self.listen()

    def lost(self, shard: int) -> None:
        """Another leads, which has what is committed and no more."""
        if shard not in self.authority.led:
            return
        self.authority.led.discard(shard)
        self.authority.thin.discard(shard)
        self.engine.leave(shard, "another leads", self.now_ms)
        self.listen()
        self.authority.written[shard].clear()
        groups, ledger = self.authority.committed[shard]
        for partition, kept in ((self.log.groups[shard], groups), (self.log.ledger[shard], ledger)):
            del partition.batches[kept:]
            partition.durable = len(partition.batches)

    def gained(self, shard: int) -> None:
        if shard in self.authority.led:
            return
        self.authority.led.add(shard)
        self.engine.load_shard(shard, self.now_ms)
        self.check(shard)

    def check(self, shard: int) -> None:
        core = self.engine.core(shard)
        if isinstance(core, TinyShard):  # none: it could not be read, and is tried again
            assert core.offsets.get(("g", "t", 0), 0) >= self.heard[shard]

    def starve(self, shard: int) -> None:
        if shard in self.authority.led and shard not in self.authority.thin:
            self.authority.thin.add(shard)
            self.engine.starve(shard, "too few in sync", self.now_ms)

    def feed(self, shard: int) -> None:
        if shard in self.authority.thin:
            self.authority.thin.discard(shard)
            self.engine.feed(shard, self.now_ms)
            self.listen()

    def note(self, shard: int, request: Request, reply: Reply) -> None:
        if reply.code is not ErrorCode.NONE:
            assert reply.code in REFUSALS
            return
        assert self.authority.may_answer(shard), "told without the lease"
        if not isinstance(request, JoinGroup | Heartbeat):  # that all is as before rests on nothing that waits
            self.note_in_order(shard, request)
        self.note_offset(shard, request, reply)

    def obey(self, command: str, number: int) -> None:
        match command:
            case "reach" | "reach some":
                self.reach(number, 1 if command == "reach some" else 1_000)
            case "lease ends" | "lease is back":
                self.lease(number, holds=command == "lease is back")
            case "lost" | "gained" | "starve" | "feed":
                getattr(self, command)(number)
            case "late":
                self.engine.late(self.now_ms)
                self.listen()
            case _:
                super().obey(command, number)

    def settle(self) -> None:
        """No more faults: a few minutes of turns, flushes and commits."""
        self.end_faults()
        for shard in range(SHARDS):
            self.gained(shard)
            self.feed(shard)
            self.lease(shard, holds=True)
        for _ in range(4):
            self.turn(CALM_MS + 1)
            for _ in range(2):
                self.end_flush()
                self.begin_flush()
            for shard in range(SHARDS):
                self.reach(shard, 1_000)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(COMMANDS, min_size=20, max_size=60))
def test_every_request_is_answered_once_and_nothing_is_told_without_commit_and_lease(
    commands: list[tuple[str, int]],
) -> None:
    world = World()
    for command, number in commands:
        world.obey(command, number)
    world.settle()
    assert world.asked == {}
    assert world.engine.metrics.held == 0
    assert [world.engine.status(shard) for shard in range(SHARDS)] == [ShardStatus.ACTIVE] * SHARDS
    for shard in range(SHARDS):
        world.check(shard)
        world.lost(shard)
        world.gained(shard)
