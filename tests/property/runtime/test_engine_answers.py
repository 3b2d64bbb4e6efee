"""Under any mixture of work, faults and crashes: one answer each, in order, and no word that a crash takes back."""

from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.coordinator.core.model.effects import Reply
from muster.coordinator.core.model.events import JoinGroup, Request
from muster.coordinator.core.model.types import Limits
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.engine import Engine, EngineOptions
from muster.coordinator.runtime.shards import CALM_MS, ShardStatus
from tests.fakes.tiny_shard import JOIN_WAIT_MS, TinyShard
from tests.support.asked_engine import INBOX, SHARDS, AskedEngine

SHARD = st.integers(0, SHARDS - 1)
FEW = st.integers(0, 3)
COMMANDS = st.one_of(
    st.tuples(st.sampled_from(["commit", "fetch", "heartbeat", "join", "break"]), SHARD),
    st.tuples(st.just("commit and turn"), SHARD),
    st.tuples(st.just("turn"), st.sampled_from([0, 1, 200, JOIN_WAIT_MS, CALM_MS])),
    st.tuples(st.sampled_from(["flush", "begin flush", "end flush"]), st.just(0)),
    st.tuples(st.sampled_from(["forget", "fail flush", "fail append", "fail read", "crash"]), FEW),
)


@dataclass
class World(AskedEngine):
    """The engine of a standalone node, whose process may be killed."""

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.engine = Engine(self.log, SHARDS, Limits(), TinyShard, options=EngineOptions(inbox_limit=INBOX))
        self.engine.load(self.now_ms)
        self.job = None
        self.asked.clear()
        self.last_answer = [0] * SHARDS

    def crash(self, survivors: int) -> None:
        self.log.crash(lambda unflushed: min(survivors, unflushed))
        self.log.failing_reads.clear()
        self.start()
        for shard in range(SHARDS):
            core = self.engine.core(shard)
            assert isinstance(core, TinyShard)
            assert core.offsets.get(("g", "t", 0), 0) >= self.heard[shard]

    def note(self, shard: int, request: Request, reply: Reply) -> None:
        if reply.code is not ErrorCode.NONE:
            assert reply.code is ErrorCode.NOT_COORDINATOR
            return
        if not isinstance(request, JoinGroup):
            self.note_in_order(shard, request)
        self.note_offset(shard, request, reply)

    def obey(self, command: str, number: int) -> None:
        match command:
            case "crash":
                self.crash(number)
            case _:
                super().obey(command, number)

    def settle(self) -> None:
        """No more faults: a few minutes of turns and flushes."""
        self.end_faults()
        for _ in range(4):
            self.turn(CALM_MS + 1)
            self.end_flush()
            self.begin_flush()
            self.end_flush()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(COMMANDS, min_size=20, max_size=60))
def test_every_request_is_answered_once_and_no_answer_is_taken_back(commands: list[tuple[str, int]]) -> None:
    world = World()
    for command, number in commands:
        world.obey(command, number)
    world.settle()
    assert world.asked == {}
    assert world.engine.metrics.held == 0
    assert [world.engine.status(shard) for shard in range(SHARDS)] == [ShardStatus.ACTIVE] * SHARDS
    world.crash(0)
