"""A heartbeat that the fast path takes (`Engine.beat`) ends as if it had been queued, whatever happened before."""

from collections.abc import Sequence
from copy import deepcopy
from typing import TypeAlias

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.coordinator.core.classic.group import ClassicGroup, ClassicPlanner
from muster.coordinator.core.classic.lifecycle import ALIVE
from muster.coordinator.core.model import events
from muster.coordinator.core.model.rights import Rights, TopicNames, TopicRights
from muster.coordinator.core.model.types import CommittedOffset, Limits, Protocol
from muster.coordinator.core.shard import Shard
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.shards import CALM_MS
from muster.coordinator.runtime.stepper import FlushJob
from tests.fakes.memory_group_log import MemoryGroupLog

LIMITS = Limits(initial_rebalance_delay_ms=0, slice_positions=1)
"""Few records are written in one go, so that a long append is spread over turns."""
RIGHTS: Sequence[Rights] = (
    None,
    TopicRights("c", TopicNames(frozenset({"t"}))),
    TopicRights("c", TopicNames(every=True)),
)

Command: TypeAlias = tuple[str, int, int]

MEMBER = st.integers(0, 2)
BEAT = st.tuples(st.just("heartbeat"), MEMBER, st.integers(0, 26))
"""The second number says: which rights, whether the generation is the member's own, and whether the node is quiet."""
COMMANDS = st.one_of(
    BEAT,
    BEAT,
    st.tuples(st.just("turn"), st.just(0), st.sampled_from([0, 1, 3_000, 11_000])),
    st.tuples(st.just("clock"), st.just(0), st.sampled_from([1, 3_000, 11_000])),
    st.tuples(st.just("plan centrally"), st.just(0), st.just(0)),
    st.tuples(st.just("join"), MEMBER, st.sampled_from([6_000, 10_000])),
    st.tuples(st.sampled_from(["newcomer", "sync", "leave", "commit", "commit"]), MEMBER, st.integers(0, 3)),
    st.tuples(
        st.sampled_from(["flush", "begin flush", "end flush", "fill log", "empty log", "serve"]), MEMBER, st.just(0)
    ),
)


class HeartbeatWorld:
    """One shard of a node whose log may be slow or full, and the members of one classic group."""

    def __init__(self) -> None:
        self.log = MemoryGroupLog(1)
        self.engine = Engine(self.log, 1, LIMITS, Shard)
        self.now_ms = 0
        self.next_id = 1
        self.job: FlushJob | None = None
        self.taken = 0
        self.engine.load(0)
        self.serve()

    @property
    def group(self) -> ClassicGroup | None:
        core = self.engine.core(0)
        group = core.groups.get("g") if isinstance(core, Shard) else None
        return group if isinstance(group, ClassicGroup) else None

    def member(self, index: int) -> str:
        members = sorted(self.group.members) if self.group else []
        return members[index % len(members)] if members else "stranger"

    def generation(self) -> int:
        return self.group.generation if self.group else 0

    def request(self) -> int:
        self.next_id += 1
        return self.next_id

    def join(self, member_id: str, session_ms: int) -> None:
        number = self.request()
        join = events.JoinGroup(
            request_id=number,
            group_id="g",
            member_id=member_id,
            group_instance_id=None,
            client_id="c",
            client_host="h",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=20_000,
            protocol_type="consumer",
            protocols=(Protocol("range", b""),),
            fresh_id=f"u{number}",
            require_known_member_id=False,
        )
        self.engine.submit(0, join)

    def sync(self, index: int) -> None:
        sync = events.SyncGroup(
            self.request(), "g", self.member(index), None, self.generation(), None, None, ((self.member(0), b"x"),)
        )
        self.engine.submit(0, sync)

    def turn(self, after_ms: int = 0) -> None:
        self.now_ms += after_ms
        self.engine.turn(self.now_ms)
        self.engine.take_released()

    def begin_flush(self) -> None:
        self.job = self.job or self.engine.flush_job()

    def end_flush(self) -> None:
        if self.job is not None:
            job, self.job = self.job, None
            job.run()
            self.engine.flushed(job)

    def serve(self) -> None:
        """A lawful stretch: everybody joins and syncs, and the log is up to date."""
        members = sorted(self.group.members) if self.group else []
        for member_id in members or [""]:
            self.join(member_id, 10_000)
        self.turn()
        self.turn(1)
        for index in range(3):
            self.sync(index)
        self.rest()

    def rest(self) -> None:
        """Nothing waits any more, in the node or for the disk."""
        self.turn()
        self.end_flush()
        self.begin_flush()
        self.end_flush()
        self.turn()

    def heartbeat(self, index: int, variant: int) -> None:
        if variant >= 9:
            self.rest()
        member_id, rights = self.member(index), RIGHTS[variant % 3]
        generation = self.generation() - (variant // 3 % 3 == 2)
        if self.engine._slots[0].draft is not None:
            # The rest of a long append (a generator) waits for the next turn: answers wait behind it.
            assert not self.engine.beat(0, "g", member_id, generation, self.now_ms, rights)
            return
        queued, its_log, its_job = deepcopy((self.engine, self.log, self.job))
        before = deepcopy(queued.core(0))
        number = self.request()
        queued.submit(0, events.Heartbeat(number, "g", member_id, None, generation, rights))
        queued.turn(self.now_ms)
        if self.engine.beat(0, "g", member_id, generation, self.now_ms, rights):
            self.taken += 1
            self.engine.turn(self.now_ms)
            released = queued.take_released().replies
            assert (number, ALIVE) in released, "queued, it is not answered yet, or otherwise"
            assert self.engine.take_released().replies == [each for each in released if each[0] != number]
            assert state_of(self.engine.core(0)) == state_of(queued.core(0))
            assert self.engine.next_deadline_ms == queued.next_deadline_ms
        else:
            assert state_of(self.engine.core(0)) == state_of(before), "something was done"
            self.engine, self.log, self.job = queued, its_log, its_job
            self.engine.take_released()

    def commit(self, group_id: str, index: int, partitions: int) -> None:
        member_id, generation = (self.member(index), self.generation()) if group_id == "g" else ("", -1)
        offsets = {("t", partition): CommittedOffset(self.next_id) for partition in range(partitions)}
        self.engine.submit(0, events.OffsetCommit(self.request(), group_id, member_id, None, generation, offsets))

    def turn_if(self, number: int) -> None:
        if number:
            self.turn()

    def plan_centrally(self) -> None:
        if self.group is not None:
            self.group.planner = ClassicPlanner("uniform")

    def obey(self, command: str, member: int, number: int) -> None:
        match command:
            case "heartbeat":
                self.heartbeat(member, number)
            case "turn":
                self.turn(number)
            case "clock":
                self.now_ms += number
            case "join":
                self.join(self.member(member), number)
            case "newcomer":
                self.join("", 10_000)
                self.turn_if(number)
            case "sync":
                self.sync(member)
                self.turn_if(number)
            case "leave":
                self.engine.submit(0, events.LeaveGroup(self.request(), "g", (), operator="ops", everyone=True))
            case "commit":
                self.commit("g" if number % 2 else "other", member, 20 if number > 1 else 1)
                self.turn_if(number)
            case "plan centrally":
                self.plan_centrally()
            case "flush":
                self.begin_flush()
                self.end_flush()
            case "begin flush":
                self.begin_flush()
            case "end flush":
                self.end_flush()
            case "fill log" | "empty log":
                self.log.full = command == "fill log"
                self.commit("other", 0, 1)
                self.turn()
                self.turn(CALM_MS + 1)  # a shard whose log is full is loaded again, and owes what it decides then
            case _:
                self.serve()


def state_of(core: object) -> object:
    """What a shard knows; of the rights of members, those it plans by. (Members are equal whatever they may read.)"""
    if not isinstance(core, Shard):
        return None
    planned = [group for group in core.groups.values() if isinstance(group, ClassicGroup) and group.remote]
    return core.state, [member.rights for group in planned for member in group.members.values()]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(COMMANDS, min_size=15, max_size=30))
def test_the_fast_path_of_a_heartbeat_does_what_the_queue_does(commands: list[Command]) -> None:
    world = HeartbeatWorld()
    for command in commands:
        world.obey(*command)


def test_most_heartbeats_of_a_quiet_group_take_the_fast_path() -> None:
    world = HeartbeatWorld()
    for _ in range(10):
        world.obey("heartbeat", 0, 9)
        world.obey("turn", 0, 1_000)
    assert world.taken == 10
