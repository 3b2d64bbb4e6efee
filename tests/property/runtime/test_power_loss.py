"""Engine, codec, group log and broker together, on a disk that loses, tears and refuses what it likes."""

import errno
from dataclasses import dataclass, field
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.coordinator.core.model.effects import OffsetCommitReply, OffsetFetchReply, Reply
from muster.coordinator.core.model.events import Request
from muster.coordinator.core.model.types import Limits
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.group_log import BrokerGroupLog
from muster.coordinator.runtime.ports import LogFailed
from muster.coordinator.runtime.shards import CALM_MS
from muster.coordinator.runtime.stepper import FlushJob
from muster.storage.broker.broker import Broker
from tests.fakes.memory_files import MemoryFiles
from tests.fakes.tiny_shard import TinyShard, commit, fetch

SHARDS = 2
SEGMENT_BYTES = 600  # so that segments roll every few commits

COMMANDS = st.one_of(
    st.tuples(st.sampled_from(["commit", "commit", "fetch"]), st.integers(0, SHARDS - 1)),
    st.tuples(st.just("turn"), st.sampled_from([0, 1, 500, CALM_MS])),
    st.tuples(st.sampled_from(["flush", "begin flush", "end flush"]), st.just(0)),
    st.tuples(st.sampled_from(["power loss", "kill", "write fails", "sync fails"]), st.integers(0, 2**32)),
)


@dataclass
class Machine:
    """A node's process, its disk, and the highest offset that anybody was told of, by shard."""

    files: MemoryFiles = field(default_factory=MemoryFiles)
    now_ms: int = 0
    next_id: int = 1
    asked: dict[int, int] = field(default_factory=dict)
    heard: list[int] = field(default_factory=lambda: [0] * SHARDS)
    job: FlushJob | None = None

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.asked.clear()
        self.job = None
        broker = Broker("/data", files=self.files, clock_ms=lambda: self.now_ms, random_bytes=bytes)
        self.engine = Engine(BrokerGroupLog(broker, SHARDS, SEGMENT_BYTES), SHARDS, Limits(), TinyShard)
        self.engine.load(self.now_ms)
        for shard, heard in enumerate(self.heard):
            core = self.engine.core(shard)
            assert isinstance(core, TinyShard)
            assert core.offsets.get(("g", "t", 0), 0) >= heard, f"shard {shard} forgot what it had acknowledged"

    def obey(self, command: str, number: int) -> None:
        match command:
            case "commit" | "fetch":
                self.ask(number, command)
            case "turn":
                self.turn(number)
            case "flush":
                self.begin_flush()
                self.end_flush()
            case "begin flush":
                self.begin_flush()
            case "end flush":
                self.end_flush()
            case "write fails" | "sync fails":
                self.refuse(command.split()[0])
            case "power loss":
                self.files.crash(Random(number).choice)
                self.start()
            case "kill":
                self.files.kill()
                self.start()
        self.listen()

    def ask(self, shard: int, kind: str) -> None:
        number, self.next_id = self.next_id, self.next_id + 1
        request: Request = commit(number, number) if kind == "commit" else fetch(number)
        self.asked[number] = shard
        assert self.engine.submit(shard, request)

    def turn(self, after_ms: int) -> None:
        self.now_ms += after_ms
        self.engine.turn(self.now_ms)

    def begin_flush(self) -> None:
        if self.job is None:
            self.job = self.engine.flush_job()

    def end_flush(self) -> None:
        job, self.job = self.job, None
        if job is None:
            return
        try:
            job.run()
        except LogFailed as error:
            self.engine.flush_failed(job, error)
        else:
            self.engine.flushed(job)

    def refuse(self, operation: str) -> None:
        """The next call of this kind fails, once."""

        def fault(called: str, path: str) -> None:
            if called == operation:
                self.files.fault = None
                raise OSError(errno.EIO, "the disk says no", path)

        self.files.fault = fault

    def listen(self) -> None:
        for number, reply in self.engine.take_released().replies:
            shard = self.asked.pop(number)  # KeyError: answered twice
            if reply.code is ErrorCode.NONE:
                self.heard[shard] = max(self.heard[shard], told(number, reply))


def told(number: int, reply: Reply) -> int:
    """The offset that the reply vouches for: a commit's own (its request id), or the one that was read."""
    match reply:
        case OffsetCommitReply():
            return number
        case OffsetFetchReply(offsets=offsets):
            seen = offsets.get(("t", 0))
            return seen.offset if seen else 0
    raise AssertionError(f"nobody asked for a {type(reply).__name__}")


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(COMMANDS, min_size=15, max_size=60))
def test_what_was_acknowledged_outlives_the_machine(commands: list[tuple[str, int]]) -> None:
    machine = Machine()
    for command, number in commands:
        machine.obey(command, number)
    machine.files.crash()
    machine.start()
