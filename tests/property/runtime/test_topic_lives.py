"""Whatever happens to a shard and to a topic, nobody is told a position of the topic's former life."""

from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.coordinator.core.model.effects import OffsetCommitReply, OffsetFetchReply
from muster.coordinator.core.model.events import OffsetCommit, OffsetFetch, TopicsChanged, Unload
from muster.coordinator.core.model.types import CommittedOffset, Limits
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.ports import LogFailed
from muster.coordinator.runtime.shards import LONGEST_PAUSE_MS, ShardStatus
from tests.fakes.memory_group_log import MemoryGroupLog

NOTES = st.sampled_from(["", "note"])
COMMANDS = st.one_of(
    st.tuples(st.just("commit"), NOTES),
    st.tuples(
        st.sampled_from(
            [
                "delete",
                "make",
                "replace",
                "turn",
                "flush",
                "fail append",
                "fail flush",
                "unload",
                "load",
                "crash",
                "look",
            ]
        ),
        st.just(""),
    ),
)


@dataclass
class World:
    """One group, one topic that comes and goes, and who remembers in which life of it each position was committed."""

    log: MemoryGroupLog = field(default_factory=lambda: MemoryGroupLog(1))
    now_ms: int = 0
    requests: int = 0
    life: int = 1
    there: bool = True
    lives: dict[int, int] = field(default_factory=dict)
    """committed offset -> the topic's life then; offsets are counted up"""
    safe: int = 0
    """The newest position that was acknowledged."""
    asked: dict[int, int] = field(default_factory=dict)
    """request -> the offset that it commits"""
    found: dict[int, OffsetFetchReply] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.engine = Engine(self.log, 1, Limits())
        self.engine.submit_all(self.catalog())
        self.engine.load(self.now_ms)
        self.asked.clear()

    def catalog(self, *deleted: str) -> TopicsChanged:
        ids = {"t": self.life.to_bytes(16, "big")} if self.there else {}
        return TopicsChanged(dict.fromkeys(ids, 1), deleted, ids)

    def commit(self, note: str) -> None:
        if not self.there:
            return  # The edge refuses it.
        self.requests += 1
        self.lives[self.requests] = self.life
        self.asked[self.requests] = self.requests
        position = {("t", 0): CommittedOffset(self.requests, -1, note)}
        assert self.engine.submit(0, OffsetCommit(self.requests, "g", "", None, -1, position))

    def turn(self, after_ms: int = 1) -> None:
        self.now_ms += after_ms
        self.engine.turn(self.now_ms)
        self.listen()

    def flush(self) -> None:
        job = self.engine.flush_job()
        if job is None:
            return
        try:
            job.run()
        except LogFailed as error:
            self.engine.flush_failed(job, error)
        else:
            self.engine.flushed(job, self.now_ms)
        self.listen()

    def listen(self) -> None:
        for number, reply in self.engine.take_released().replies:
            if isinstance(reply, OffsetFetchReply):
                self.found[number] = reply
            elif isinstance(reply, OffsetCommitReply) and reply.code is ErrorCode.NONE:
                self.safe = max(self.safe, self.asked[number])

    def look(self) -> None:
        """What a client is told, once the shard is there again."""
        self.log.failing_appends.clear()
        self.log.failing_flushes.clear()
        self.turn()
        if self.engine.status(0) is ShardStatus.UNLOADED:
            self.engine.load_shard(0, self.now_ms)
        self.turn(LONGEST_PAUSE_MS)
        self.requests += 1
        assert self.engine.submit(0, OffsetFetch(self.requests, "g", (("t", 0),)))
        self.turn()
        self.flush()
        self.flush()
        stored = self.found.pop(self.requests).offsets["t", 0]
        if stored is not None:
            assert self.there, f"position {stored.offset} of a topic that is not there"
            assert self.lives[stored.offset] == self.life, f"position {stored.offset} is of another life of the topic"
        if self.safe and self.there and self.lives[self.safe] == self.life:
            newest = 0 if stored is None else stored.offset
            assert newest >= self.safe, f"position {self.safe} was acknowledged"

    def obey(self, command: str, note: str) -> None:
        match command:
            case "commit":
                self.commit(note)
            case "delete" if self.there:
                self.there = False
                self.engine.submit_all(self.catalog("t"))
            case "make" if not self.there:
                self.there, self.life = True, self.life + 1
                self.engine.submit_all(self.catalog())
            case "replace" if self.there:
                self.life += 1  # Nobody looked at the catalog between the two.
                self.engine.submit_all(self.catalog())
            case "turn":
                self.turn()
            case "flush":
                self.flush()
            case "fail append":
                self.log.failing_appends.add(self.log.appends + 1)
            case "fail flush":
                self.log.failing_flushes.add(self.log.flushes + 1)
            case "unload":
                self.engine.submit(0, Unload())
            case "load" if self.engine.status(0) is ShardStatus.UNLOADED:
                self.engine.load_shard(0, self.now_ms)
            case "crash":
                self.log.crash()
                self.start()
            case "look":
                self.look()


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(COMMANDS, max_size=30))
def test_a_topic_made_anew_inherits_no_position_and_loses_none_of_its_own(commands: list[tuple[str, str]]) -> None:
    world = World()
    for command, note in commands:
        world.obey(command, note)
    world.look()
