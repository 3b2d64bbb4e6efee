"""Under any mixture of work, faults and crashes: one answer each, in order, and no word that a crash takes back."""

from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.coordinator.core.model.effects import REPLY_TYPES, OffsetCommitReply, OffsetFetchReply, Reply
from muster.coordinator.core.model.events import Forget, JoinGroup, Request
from muster.coordinator.core.model.types import Limits
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.engine import Engine, EngineOptions
from muster.coordinator.runtime.ports import LogFailed
from muster.coordinator.runtime.shards import CALM_MS, ShardStatus
from muster.coordinator.runtime.stepper import FlushJob
from tests.fakes.memory_group_log import MemoryGroupLog
from tests.fakes.tiny_shard import JOIN_WAIT_MS, TinyShard, break_it, commit, fetch, heartbeat, join

SHARDS = 2
INBOX = 8

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
class World:
    """An engine, its log, and a witness who writes down what was asked and what was told."""

    log: MemoryGroupLog = field(default_factory=lambda: MemoryGroupLog(SHARDS))
    now_ms: int = 0
    next_id: int = 1
    asked: dict[int, tuple[int, Request]] = field(default_factory=dict)
    """Not yet answered: request id -> shard and request."""
    forgotten: set[int] = field(default_factory=set)
    last_answer: list[int] = field(default_factory=lambda: [0] * SHARDS)
    heard: list[int] = field(default_factory=lambda: [0] * SHARDS)
    """The highest offset of each shard that somebody was told of."""
    job: FlushJob | None = None

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.engine = Engine(self.log, SHARDS, Limits(), TinyShard, options=EngineOptions(inbox_limit=INBOX))
        self.engine.load(self.now_ms)
        self.job = None
        self.asked.clear()
        self.last_answer = [0] * SHARDS

    def ask(self, kind: str, shard: int) -> None:
        number, self.next_id = self.next_id, self.next_id + 1
        request: Request = {
            "commit": lambda: commit(number, number),
            "fetch": lambda: fetch(number),
            "heartbeat": lambda: heartbeat(number),
            "join": lambda: join(number),
            "break": lambda: break_it(number),
        }[kind]()
        self.asked[number] = shard, request
        if not self.engine.submit(shard, request):
            del self.asked[number]
        self.listen()

    def forget(self, which: int) -> None:
        if self.asked:
            number = sorted(self.asked)[which % len(self.asked)]
            shard, _ = self.asked.pop(number)
            self.forgotten.add(number)
            assert self.engine.submit(shard, Forget("g", number))

    def turn(self, after_ms: int) -> None:
        self.now_ms += after_ms
        self.engine.turn(self.now_ms)
        self.listen()

    def begin_flush(self) -> None:
        if self.job is None:
            self.job = self.engine.flush_job()

    def end_flush(self) -> None:
        if self.job is None:
            return
        job, self.job = self.job, None
        try:
            job.run()
        except LogFailed as error:
            self.engine.flush_failed(job, error)
        else:
            self.engine.flushed(job)
        self.listen()

    def crash(self, survivors: int) -> None:
        self.log.crash(lambda unflushed: min(survivors, unflushed))
        self.log.failing_reads.clear()
        self.start()
        for shard in range(SHARDS):
            core = self.engine.core(shard)
            assert isinstance(core, TinyShard)
            assert core.offsets.get(("g", "t", 0), 0) >= self.heard[shard]

    def listen(self) -> None:
        for number, reply in self.engine.take_released().replies:
            assert number not in self.forgotten
            shard, request = self.asked.pop(number)  # KeyError: answered twice, or never asked
            assert type(reply) is REPLY_TYPES[type(request)]
            self.note(shard, request, reply)

    def note(self, shard: int, request: Request, reply: Reply) -> None:
        if reply.code is not ErrorCode.NONE:
            assert reply.code is ErrorCode.NOT_COORDINATOR
            return
        if not isinstance(request, JoinGroup):
            assert request.request_id > self.last_answer[shard], "an answer overtook another"
            self.last_answer[shard] = request.request_id
        match reply:
            case OffsetCommitReply():
                self.heard[shard] = max(self.heard[shard], request.request_id)
            case OffsetFetchReply(offsets=offsets):
                seen = offsets.get(("t", 0))
                self.heard[shard] = max(self.heard[shard], seen.offset if seen else 0)

    def obey(self, command: str, number: int) -> None:
        match command:
            case "forget":
                self.forget(number)
            case "turn":
                self.turn(number)
            case "commit and turn":
                self.ask("commit", number)
                self.turn(0)
            case "begin flush":
                self.begin_flush()
            case "end flush":
                self.end_flush()
            case "flush" | "fail flush":
                if command == "fail flush":
                    self.log.failing_flushes.add(self.log.flushes + 1)
                self.begin_flush()
                self.end_flush()
            case "fail append":
                self.log.failing_appends.add(self.log.appends + 1 + number)
            case "fail read":
                self.log.failing_reads.add(self.log.reads + 1 + number)
            case "crash":
                self.crash(number)
            case _:
                self.ask(command, number)

    def settle(self) -> None:
        """No more faults: a few minutes of turns and flushes."""
        self.log.failing_appends.clear()
        self.log.failing_reads.clear()
        self.log.failing_flushes.clear()
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
