"""The real rules on the real engine: replaying the log gives the hard state that was live."""

from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.coordinator.core.model.effects import JoinReply
from muster.coordinator.core.model.events import (
    DeleteGroup,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetDelete,
    SyncGroup,
    TopicsChanged,
    TxnEnded,
    TxnOffsetCommit,
)
from muster.coordinator.core.model.types import CommittedOffset, Limits, MemberIdentity, Protocol
from muster.coordinator.core.shard import Shard
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.replay import replay_shard
from tests.fakes.memory_group_log import MemoryGroupLog
from tests.sim.checkers.replay import what_waits

GROUPS = ("g", "h")
LIMITS = Limits(initial_rebalance_delay_ms=0, ledger_max_entries=3)
RANGE = (Protocol("range", bytes.fromhex("0000 00000001 0001 74 ffffffff")),)

COMMANDS = st.one_of(
    st.tuples(st.sampled_from(["join", "join", "rejoin", "sync", "sync", "leave", "commit"]), st.integers(0, 7)),
    st.tuples(st.sampled_from(["simple commit", "delete group", "delete offset"]), st.integers(0, 7)),
    st.tuples(st.sampled_from(["txn", "txn", "txn commits", "txn aborts"]), st.integers(0, 11)),
    st.tuples(st.just("wait"), st.sampled_from([10, 6_000, 20_000, 700_000, 8 * 86_400_000])),
)


@dataclass
class Cluster:
    """One shard and clients that do what they were told last."""

    log: MemoryGroupLog = field(default_factory=lambda: MemoryGroupLog(1))
    now_ms: int = 1_000_000
    next_id: int = 1
    members: dict[tuple[str, str], JoinReply] = field(default_factory=dict)
    joining: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.engine = Engine(self.log, 1, LIMITS)
        self.engine.submit_all(TopicsChanged({"t": 2}))
        self.engine.load(self.now_ms)

    def run(self) -> None:
        """Turns and flushes until nothing is left to do at this time."""
        while True:
            self.engine.turn(self.now_ms)
            job = self.engine.flush_job()
            if job is not None:
                job.run()
                self.engine.flushed(job)
            for request_id, reply in self.engine.take_released().replies:
                group_id = self.joining.pop(request_id, "")
                if isinstance(reply, JoinReply) and reply.generation > 0:
                    self.members[group_id, reply.member_id] = reply
            if not self.engine.pending:
                return

    def obey(self, command: str, number: int) -> None:
        request_id, self.next_id = self.next_id, self.next_id + 1
        group_id = GROUPS[number % len(GROUPS)]
        known = sorted(self.members)
        owner, member_id = known[number % len(known)] if known else (group_id, "")
        match command:
            case "wait":
                self.now_ms += number
            case "join":
                self.join(request_id, group_id, "")
            case "rejoin":
                self.join(request_id, owner, member_id)
            case "sync":
                self.sync(request_id, owner, member_id)
            case "leave":
                self.members.pop((owner, member_id), None)
                self.engine.submit(0, LeaveGroup(request_id, owner, (MemberIdentity(member_id),)))
            case "commit" | "simple commit":
                self.commit(request_id, command, owner, member_id)
            case "txn":
                self.commit_in_transaction(request_id, number)
            case "txn commits" | "txn aborts":
                self.engine.submit(0, TxnEnded(request_id, 50 + number % 3, 0, command == "txn commits", 0))
            case "delete group":
                self.engine.submit(0, DeleteGroup(request_id, group_id))
            case "delete offset":
                self.engine.submit(0, OffsetDelete(request_id, group_id, (("t", 0),)))
        self.run()

    def join(self, request_id: int, group_id: str, member_id: str) -> None:
        self.joining[request_id] = group_id
        event = JoinGroup(
            request_id, group_id, member_id, None, "c", "/h", 10_000, 5_000, "consumer", RANGE, f"u{request_id}",
            require_known_member_id=False,
        )  # fmt: skip
        self.engine.submit(0, event)

    def sync(self, request_id: int, group_id: str, member_id: str) -> None:
        reply = self.members.get((group_id, member_id))
        if reply is not None:
            shares = tuple((member.member_id, b"share") for member in reply.members)
            event = SyncGroup(request_id, group_id, member_id, None, reply.generation, "consumer", "range", shares)
            self.engine.submit(0, event)

    def commit(self, request_id: int, command: str, group_id: str, member_id: str) -> None:
        reply = self.members.get((group_id, member_id))
        offsets = {("t", request_id % 2): CommittedOffset(request_id, metadata="é")}
        if command == "simple commit":
            self.engine.submit(0, OffsetCommit(request_id, "simple", "", None, -1, offsets, retention_ms=10_000))
        elif reply is not None:
            self.engine.submit(0, OffsetCommit(request_id, group_id, member_id, None, reply.generation, offsets))

    def commit_in_transaction(self, request_id: int, number: int) -> None:
        """One of three producers commits one or two positions of a group, without a word of who it is."""
        offsets = {("t", place): CommittedOffset(request_id) for place in range(number % 2 + 1)}
        group_id, producer_id = ("g", "h", "simple")[number // 3 % 3], 50 + number % 3
        self.engine.submit(0, TxnOffsetCommit(request_id, group_id, "", None, -1, offsets, producer_id, 0))


def hard_state(shard: Shard) -> dict[str, object]:
    """What the log must be able to give back; a group that was only ever joined is soft."""
    groups = {
        group_id: (group.stored, dict(group.offsets))
        for group_id, group in shard.groups.items()
        if group.stored is not None or group.offsets
    }
    return {"groups": groups, "ledgers": dict(shard.ledgers), "waiting": what_waits(shard)}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(COMMANDS, min_size=10, max_size=50))
def test_replaying_the_log_gives_the_live_hard_state(commands: list[tuple[str, int]]) -> None:
    cluster = Cluster()
    for command, number in commands:
        cluster.obey(command, number)
        live = cluster.engine.core(0)
        assert isinstance(live, Shard)
        again = Shard(LIMITS, 0)
        report = replay_shard(cluster.log, 0, again)
        assert report.malformed == 0
        assert hard_state(again) == hard_state(live)
