"""An engine under any mixture of work and faults, and a witness who notes what was asked and what was answered."""

from dataclasses import dataclass, field

from muster.coordinator.core.model.effects import REPLY_TYPES, OffsetCommitReply, OffsetFetchReply, Reply
from muster.coordinator.core.model.events import Forget, Request
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.ports import LogFailed
from muster.coordinator.runtime.stepper import FlushJob
from tests.fakes.memory_group_log import MemoryGroupLog
from tests.fakes.tiny_shard import break_it, commit, fetch, heartbeat, join

SHARDS = 2
INBOX = 8


@dataclass
class AskedEngine:
    """A test says which engine it is, and which refusals and which order of answers it expects."""

    engine: Engine = field(init=False)
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
            self.engine.flush_failed(job, error, self.now_ms)
        else:
            self.engine.flushed(job, self.now_ms)
        self.listen()

    def listen(self) -> None:
        for number, reply in self.engine.take_released().replies:
            assert number not in self.forgotten
            shard, request = self.asked.pop(number)  # KeyError: answered twice, or never asked
            assert type(reply) is REPLY_TYPES[type(request)]
            self.note(shard, request, reply)

    def note(self, shard: int, request: Request, reply: Reply) -> None:
        raise NotImplementedError

    def note_in_order(self, shard: int, request: Request) -> None:
        assert request.request_id > self.last_answer[shard], "an answer overtook another"
        self.last_answer[shard] = request.request_id

    def note_offset(self, shard: int, request: Request, reply: Reply) -> None:
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
            case _:
                self.ask(command, number)

    def end_faults(self) -> None:
        self.log.failing_appends.clear()
        self.log.failing_reads.clear()
        self.log.failing_flushes.clear()
