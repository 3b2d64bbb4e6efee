"""What an engine over a Kafka refuses."""

from collections.abc import Collection
from itertools import count
from typing import Any

from muster.assignors.data.consumer_protocol import Subscription, encode_subscription
from muster.coordinator.core.model.effects import (
    ConsumerHeartbeatReply,
    HeartbeatReply,
    JoinReply,
    OffsetCommitReply,
    OffsetFetchReply,
    TxnOffsetCommitReply,
    TxnWriteOverReply,
)
from muster.coordinator.core.model.events import (
    ConsumerHeartbeat,
    Heartbeat,
    JoinGroup,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Request,
    SyncGroup,
    TopicsChanged,
    TxnOffsetCommit,
    TxnWriteOver,
)
from muster.coordinator.core.model.types import CommittedOffset, Limits, Protocol
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka_backend.state_log import StateLog
from muster.coordinator.runtime.shards import ShardStatus
from muster.coordinator.server.kafka_backend.backend import limits_of_topic
from muster.coordinator.server.kafka_backend.gated_engine import GatedEngine
from tests.fakes.memory_group_log import MemoryGroupLog

ids = count(1)


class Everybody:
    """May do all, unless it is told otherwise; what was written counts at once."""

    def __init__(self) -> None:
        self.mine, self.room, self.leased, self.position = True, True, True, 0
        self.engine: GatedEngine

    def may_answer(self, shard: int) -> bool:
        return self.leased

    def may_fire(self, shard: int) -> bool:
        return True

    def wrote(self, shard: int, position: int) -> None:
        self.position = position

    def flushed(self, shards: Collection[int]) -> None: ...

    def broke(self, shard: int, why: str) -> None: ...

    def leads(self, shard: int) -> bool:
        return True

    def takes(self, shard: int) -> bool:
        return self.mine

    def has_room(self, shard: int) -> bool:
        return self.room


class Stage:
    def __init__(self, limits: Limits | None = None, log: MemoryGroupLog | None = None, **options: Any) -> None:
        self.log = log or MemoryGroupLog(1)
        self.authority = Everybody()
        self.engine = GatedEngine(self.log, 1, limits or Limits(), authority=self.authority, **options)
        self.engine.submit_all(TopicsChanged({"orders": 1}, ids={"orders": b"1" * 16}))
        self.engine.load_shard(0, 0)
        self.settle()

    def ask(self, request: Request) -> object:
        self.engine.submit(0, request)
        return self.settle()[request.request_id]

    def settle(self) -> dict[int, object]:
        self.engine.turn(0)
        assert self.engine.flush_job() is None, "acknowledgements come on the loop (KB-A5)"
        self.engine.committed(0, self.authority.position, 0)
        return dict(self.engine.take_released().replies)


def commit(topic: str = "orders") -> OffsetCommit:
    return OffsetCommit(next(ids), "g", "", None, -1, {(topic, 0): CommittedOffset(7)})


def fetch() -> OffsetFetch:
    return OffsetFetch(next(ids), "g", [("orders", 0)])


def test_with_too_much_under_way_what_would_write_is_refused_and_the_rest_goes_on() -> None:
    stage = Stage()
    stage.authority.room = False
    refused = stage.ask(commit())
    assert isinstance(refused, OffsetCommitReply)
    assert refused.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert "engine.kafka.max.unacked.bytes.per.shard" in refused.message
    beat = stage.ask(Heartbeat(next(ids), "g", "m", None, 1))
    assert isinstance(beat, HeartbeatReply)
    assert beat.code is ErrorCode.UNKNOWN_MEMBER_ID, "it was stepped"
    found = stage.ask(fetch())
    assert isinstance(found, OffsetFetchReply)
    assert (found.code, found.offsets[("orders", 0)]) == (ErrorCode.NONE, None)
    stage.authority.room = True
    done = stage.ask(commit())
    assert isinstance(done, OffsetCommitReply)
    assert done.code is ErrorCode.NONE


def test_a_shard_that_moves_takes_nothing_new() -> None:
    stage = Stage()
    stage.authority.mine = False
    for request in (commit(), fetch()):
        told = stage.ask(request)
        assert isinstance(told, OffsetCommitReply | OffsetFetchReply)
        assert told.code is ErrorCode.NOT_COORDINATOR


def test_one_that_is_dealt_to_this_node_and_not_taken_yet_is_waited_for() -> None:
    engine = GatedEngine(MemoryGroupLog(1), 1, Limits(), authority=Everybody())
    assert not engine.settled(0)
    engine.load_shard(0, 0)
    assert engine.settled(0)


def test_whose_group_has_no_room_in_the_log_hears_so_and_nothing_of_it_is_kept() -> None:
    """KB-S3: the shard goes with it, for what was decided is in memory; it is read again as it was."""
    log = StateLog(400)
    log.ready(0)
    authority = Everybody()
    engine = GatedEngine(log, 1, Limits(), authority=authority)
    engine.load_shard(0, 0)
    engine.submit_all(TopicsChanged({"orders": 1}))
    large = OffsetCommit(next(ids), "g", "", None, -1, {("orders", 0): CommittedOffset(7, metadata="m" * 500)})
    other = OffsetCommit(next(ids), "h", "", None, -1, {("orders", 0): CommittedOffset(7)})
    for request in (large, other):
        engine.submit(0, request)
    engine.turn(0)
    told = dict(engine.take_released().replies)
    refused, sent_on = told[large.request_id], told[other.request_id]
    assert isinstance(refused, OffsetCommitReply)
    assert isinstance(sent_on, OffsetCommitReply)
    assert refused.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "a record of group 'g' of shard 0" in refused.message
    assert "raise max.message.bytes of that topic" in refused.message
    assert sent_on.code is ErrorCode.NOT_COORDINATOR
    assert engine.status(0) is ShardStatus.FAILED
    assert log.turn(0) == []


def test_a_member_with_too_much_is_refused_before_anything_is_changed_and_costs_its_shard_nothing() -> None:
    """KB-S3, and one group's trouble is its own: by a node's own setting the limit would be three times a batch."""
    log = StateLog(4_000)
    log.ready(0)
    limits = limits_of_topic(Limits(), log.batch_bytes, "muster.state")
    engine = GatedEngine(log, 1, limits, authority=Everybody())
    engine.load_shard(0, 0)
    offer = (Protocol("range", b"m" * 2_001),)
    join = JoinGroup(next(ids), "g", "", None, "c", "/h", 10_000, 10_000, "consumer", offer, "fresh")
    engine.submit(0, join)
    engine.turn(0)
    told = dict(engine.take_released().replies)[join.request_id]
    assert isinstance(told, JoinReply)
    assert told.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "at most 2000 are kept; send less, or raise max.message.bytes of the topic muster.state" in told.message
    assert engine.status(0) is ShardStatus.ACTIVE


def test_m4_whose_positions_a_turn_changes_is_told() -> None:
    """Groups that only have members are nobody's business upstream."""
    log = StateLog(4_000)
    log.ready(0)
    told: list[tuple[int, set[str]]] = []
    log.on_positions = lambda shard, groups: told.append((shard, set(groups)))
    engine = GatedEngine(log, 1, Limits(initial_rebalance_delay_ms=0), authority=Everybody())
    engine.load_shard(0, 0)
    engine.submit_all(TopicsChanged({"orders": 1}))
    offer = (Protocol("range", b"m"),)
    engine.submit(0, JoinGroup(next(ids), "h", "", None, "c", "/h", 10_000, 10_000, "consumer", offer, "fresh"))
    engine.submit(0, commit())
    engine.turn(0)
    assert set().union(*(groups for _, groups in told)) == {"g"}
    engine.submit(0, OffsetDelete(next(ids), "g", (("orders", 0),)))
    engine.turn(0)
    assert told[-1] == (0, {"g"})


def test_a_node_with_less_room_of_its_own_keeps_that_limit() -> None:
    assert limits_of_topic(Limits(max_group_bytes=700), 4_000, "t").max_group_bytes == 700


def test_t1_what_members_read_is_told() -> None:
    told: list[str] = []
    engine = GatedEngine(MemoryGroupLog(1), 1, Limits(), authority=Everybody(), on_read=told.extend)
    engine.submit(0, ConsumerHeartbeat(next(ids), "g", "m", 0, topic_names=("new", "orders")))
    engine.submit(0, ConsumerHeartbeat(next(ids), "g", "m", 1))
    protocols = (Protocol("range", encode_subscription(Subscription(1, ("old", "orders")))),)
    for kind in ("consumer", "connect"):
        engine.submit(0, JoinGroup(next(ids), "c", "", None, "c", "/h", 10_000, 10_000, kind, protocols, "fresh"))
    assert sorted(told) == ["new", "old", "orders", "orders"]


def test_t1_topics_are_looked_at_when_a_settled_member_joins_again() -> None:
    """Its client may have noticed a change of topics that was not read of yet."""
    looked: list[str] = []
    stage = Stage(Limits(initial_rebalance_delay_ms=0), on_rejoin=lambda: looked.append("again"))
    protocols = (Protocol("range", encode_subscription(Subscription(1, ("orders",)))),)

    def join(member_id: str) -> None:
        named = JoinGroup(next(ids), "g", member_id, None, "a", "/h", 10_000, 10_000, "consumer", protocols, "x")
        stage.engine.submit(0, named)
        for _ in ("the request", "its timer"):
            stage.settle()

    join("")
    join("a-x")
    stage.ask(SyncGroup(next(ids), "g", "a-x", None, 1, None, None, (("a-x", b""),)))
    assert looked == []
    join("a-x")
    assert looked == ["again"]


def test_a3_a_heartbeat_that_says_nothing_new_is_answered_though_its_shard_has_something_on_its_way() -> None:
    """Members would take the node for gone. Not without the lease, and nothing that is new."""
    stage = Stage()

    def beat(epoch: int, **given: Any) -> ConsumerHeartbeat:
        return ConsumerHeartbeat(next(ids), "k", "m", epoch, **given)

    def told(*requests: Request) -> list[int]:
        for request in requests:
            stage.engine.submit(0, request)
        stage.engine.turn(0)
        return list(dict(stage.engine.take_released().replies))

    joined = stage.ask(beat(0, rebalance_timeout_ms=60_000, topic_names=("orders",), owned={}))
    assert isinstance(joined, ConsumerHeartbeatReply)
    epoch = joined.member_epoch
    stage.ask(beat(epoch, owned=joined.assignment))
    waits, well = commit(), beat(epoch)
    assert told(waits, well) == [well.request_id]
    late, leaves = beat(epoch), beat(-1)
    stage.authority.leased = False
    assert told(late) == []
    stage.authority.leased = True
    assert told(leaves) == []
    assert list(stage.settle()) == [waits.request_id, late.request_id, leaves.request_id]


def test_while_nobody_knows_who_may_do_what_all_is_refused_heartbeats_too() -> None:
    stage = Stage()
    done = stage.ask(commit())
    assert isinstance(done, OffsetCommitReply)
    assert done.code is ErrorCode.NONE
    stage.engine.doubts = lambda: "it has not been read for 31 s"
    for request in (commit(), fetch(), Heartbeat(next(ids), "g", "m", None, 1)):
        told = stage.ask(request)
        assert isinstance(told, OffsetCommitReply | OffsetFetchReply | HeartbeatReply)
        assert told.code is ErrorCode.COORDINATOR_NOT_AVAILABLE, "clients try again"
    assert not stage.engine.beat(0, "g", "m", 1, 0), "nor does it take the short way"
    stage.engine.doubts = lambda: ""
    found = stage.ask(fetch())
    assert isinstance(found, OffsetFetchReply)
    assert found.code is ErrorCode.NONE


def test_that_a_transaction_s_write_is_over_is_heard_though_nobody_knows_who_may_do_what() -> None:
    """No client asks for that: refused, the positions would be unstable for as long as the shard is served."""
    stage = Stage()
    asked = TxnOffsetCommit(next(ids), "g", "", None, -1, {("orders", 0): (7, -1, "")})
    allowed = stage.ask(asked)
    assert isinstance(allowed, TxnOffsetCommitReply)
    assert allowed.kept
    stage.engine.doubts = lambda: "it has not been read for 31 s"
    over = stage.ask(TxnWriteOver(next(ids), "g", asked.request_id))
    assert isinstance(over, TxnWriteOverReply)
    assert over.code is ErrorCode.NONE
    stage.engine.doubts = lambda: ""
    found = stage.ask(OffsetFetch(next(ids), "g", (("orders", 0),), require_stable=True))
    assert isinstance(found, OffsetFetchReply)
    assert (found.code, found.refused) == (ErrorCode.NONE, {})
