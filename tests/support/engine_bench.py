"""An engine to be driven by hand, and an example of every request."""

from dataclasses import dataclass, field

from muster.coordinator.core.model import events
from muster.coordinator.core.model import events as central
from muster.coordinator.core.model import events as control
from muster.coordinator.core.model import events as trial
from muster.coordinator.core.model.effects import Reply
from muster.coordinator.core.model.events import ClaimFence, Event, TxnEnded, TxnOffsetCommit, TxnWriteOver
from muster.coordinator.core.model.types import Limits
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.engine import Engine, EngineOptions
from muster.coordinator.runtime.ports import LogFailed
from muster.coordinator.runtime.shards import GROUPS, ShardKind, ShardStatus
from muster.coordinator.runtime.stepper import FlushJob
from tests.fakes.memory_group_log import MemoryGroupLog
from tests.fakes.tiny_shard import TinyShard, commit, fetch, heartbeat, join

NONE, GONE = ErrorCode.NONE, ErrorCode.NOT_COORDINATOR


@dataclass
class Bench:
    """An engine over a memory log, and everything that it told."""

    shards: int = 2
    inbox_limit: int = 1_000
    loaded: bool = True
    kind: ShardKind = GROUPS
    bugs: list[str] = field(default_factory=list)
    changes: list[tuple[int, ShardStatus, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log = MemoryGroupLog(self.shards)
        self.start()

    def start(self) -> None:
        self.engine = Engine(
            self.log,
            self.shards,
            Limits(),
            TinyShard,
            options=EngineOptions(
                on_bug=lambda script, error: self.bugs.append(f"{script} -> {error!r}"),
                on_status=lambda *change: self.changes.append(change),
                inbox_limit=self.inbox_limit,
                kind=self.kind,
            ),
        )
        if self.loaded:
            self.engine.load(0)
            self.flush()

    def crash(self) -> None:
        self.log.crash()
        self.start()

    def core(self, shard: int = 0) -> TinyShard:
        core = self.engine.core(shard)
        assert isinstance(core, TinyShard)
        return core

    def turn(self, now_ms: int, *asked: Event) -> list[tuple[int, Reply]]:
        """Submit to shard 0, take a turn, return what was released."""
        for event in asked:
            assert self.engine.submit(0, event)
        self.engine.turn(now_ms)
        return self.told()

    def told(self) -> list[tuple[int, Reply]]:
        return self.engine.take_released().replies

    def flush(self) -> list[tuple[int, Reply]]:
        """Run one flush job to its end, whatever it is, and return what was released."""
        job = self.engine.flush_job()
        if job is not None:
            try:
                job.run()
            except LogFailed as error:
                self.engine.flush_failed(job, error)
            else:
                self.engine.flushed(job)
        return self.told()

    def job(self) -> FlushJob:
        job = self.engine.flush_job()
        assert job is not None
        return job


def codes(replies: list[tuple[int, Reply]]) -> list[tuple[int, ErrorCode]]:
    return [(request_id, reply.code) for request_id, reply in replies]


def elsewhere(kind: type[Event], code: ErrorCode) -> ErrorCode:
    """By which code a request hears that the shard is not served here: whoever writes markers, by the log's."""
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if kind is TxnEnded else code


def example(kind: type[events.Request]) -> events.Request:
    examples: dict[type[events.Request], events.Request] = {
        events.JoinGroup: join(1),
        events.SyncGroup: events.SyncGroup(1, "g", "m", None, 1, None, None, ()),
        events.Heartbeat: heartbeat(1),
        events.Listen: events.Listen(1, "g", "a", None, 1),
        events.Hello: events.Hello(1, "g", "a"),
        events.SessionHeartbeat: events.SessionHeartbeat(1, events.ConsumerHeartbeat(2, "g", "a", 1)),
        events.LeaveGroup: events.LeaveGroup(1, "g", ()),
        events.OffsetCommit: commit(1, 10),
        events.OffsetFetch: fetch(1),
        events.OffsetDelete: events.OffsetDelete(1, "g", ()),
        TxnOffsetCommit: TxnOffsetCommit(1, "g", "", None, -1, {}),
        TxnWriteOver: TxnWriteOver(1, "g", 0),
        TxnEnded: TxnEnded(1, 50, 0, True, 0),
        events.DescribeGroup: events.DescribeGroup(1, "g"),
        events.ListGroups: events.ListGroups(1),
        events.DeleteGroup: events.DeleteGroup(1, "g"),
        events.ExplainGroup: events.ExplainGroup(1, "g"),
        events.DescribeSettings: events.DescribeSettings(1, "g"),
        events.ListSettings: events.ListSettings(1),
        events.AlterSettings: events.AlterSettings(1, "g", {}, ("assignor.options",), None, False, "operator"),
        control.HoldGroup: control.HoldGroup(1, "g", control.AskFreeze(), None, None, False, "operator"),
        control.ResumeGroup: control.ResumeGroup(1, "g", None, None, False, "operator"),
        control.DescribeHolds: control.DescribeHolds(1, "g"),
        trial.StartCanary: trial.StartCanary(1, "g", "range", 60_000, (), 1_000, True, False, "operator"),
        trial.EndCanary: trial.EndCanary(1, "g", True, "operator"),
        trial.DescribeCanary: trial.DescribeCanary(1, "g"),
        ClaimFence: ClaimFence(1, "g", "m", "t", 0, 1, -1, -1, 100),
        events.ConsumerHeartbeat: events.ConsumerHeartbeat(1, "g", "m", 1),
        events.DescribeConsumerGroup: events.DescribeConsumerGroup(1, "g"),
        central.RegisterConsumer: central.RegisterConsumer(1, "g", "m", "c", "h", 6_000, ("t",), "", "range"),
        central.AwaitOrders: central.AwaitOrders(1, "g", "m", 1),
        central.PingAnswered: central.PingAnswered(1, "g", "m", 1, 1),
        central.FetcherStopped: central.FetcherStopped(1, "g", "m", 1, 1),
        central.FetcherStarted: central.FetcherStarted(1, "g", "m", 1, 1),
        central.Deregister: central.Deregister(1, "g", "m", 1),
    }
    return examples[kind]
