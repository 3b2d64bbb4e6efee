"""On a full disk what needs no write goes on; what does is refused; nobody is expired; all comes back with the room."""

from muster.assignors.data.consumer_protocol import Subscription, encode_subscription
from muster.coordinator.core.model import effects, events
from muster.coordinator.core.model.rights import RightsAnew, TopicNames, TopicRights
from muster.coordinator.core.model.types import CommittedOffset, Limits, Protocol
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.ports import LogFailed
from muster.coordinator.runtime.shards import ShardStatus
from muster.coordinator.runtime.stepper import PROBE_MS
from tests.fakes.memory_group_log import MemoryGroupLog
from tests.fakes.tiny_shard import commit, fetch, heartbeat, join
from tests.support.engine_bench import GONE, NONE, Bench, codes

AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE


def starved() -> Bench:
    """A bench whose shard 0 has found its log full, and has been loaded again."""
    bench = Bench()
    bench.turn(0, commit(1, 10))
    bench.flush()
    bench.log.full = True
    assert codes(bench.turn(1, commit(2, 20))) == [(2, GONE)]
    bench.turn(2)
    bench.flush()
    assert bench.engine.status(0) is ShardStatus.ACTIVE
    return bench


def test_what_needs_no_write_goes_on_and_what_does_is_told_to_try_again() -> None:
    bench = starved()
    assert codes(bench.turn(3, heartbeat(3), commit(4, 30), fetch(5))) == [(3, NONE), (4, AWAY), (5, NONE)]
    assert bench.core().offsets == {("g", "t", 0): 10}
    assert bench.engine.starved == {0: "no space left"}


def test_the_refusal_gives_the_reason() -> None:
    bench = starved()
    ((_, reply),) = bench.turn(3, commit(3, 30))
    assert "no space left" in reply.message


def test_one_reload_for_the_whole_time() -> None:
    bench = starved()
    loads = bench.engine.metrics.loads
    for second in range(60):
        assert codes(bench.turn(1_000 * second, commit(100 + second, second))) == [(100 + second, AWAY)]
    assert bench.engine.metrics.loads == loads


def test_with_the_room_everything_is_as_before() -> None:
    bench = starved()
    bench.turn(3)
    bench.log.full = False
    deadline_ms = bench.engine.next_deadline_ms
    assert deadline_ms is not None
    assert deadline_ms <= 3 + PROBE_MS
    bench.turn(deadline_ms)
    assert bench.engine.starved == {}
    bench.flush()
    bench.turn(deadline_ms + 1, commit(9, 90))
    assert codes(bench.flush()) == [(9, NONE)]
    bench.crash()
    assert bench.core().offsets == {("g", "t", 0): 90}


def test_a_timer_waits_and_comes_as_much_later_as_there_was_no_room() -> None:
    bench = starved()
    bench.turn(3, heartbeat(3))
    fired = [event for event in bench.core().seen if isinstance(event, events.TimerFired)]
    for now_ms in range(4, 200_000, PROBE_MS):
        bench.turn(now_ms)
    assert [event for event in bench.core().seen if isinstance(event, events.TimerFired)] == fired
    bench.log.full = False
    bench.turn(202_000)
    assert [event for event in bench.core().seen if isinstance(event, events.TimerFired)] == fired
    bench.turn(600_000)
    assert [event.key for event in bench.core().seen if isinstance(event, events.TimerFired)] == [("session", "g", "m")]


def test_another_failure_while_there_is_no_room_is_a_failure() -> None:
    bench = starved()
    bench.log.full = False
    bench.log.failing_appends = {bench.log.appends + 1}
    bench.turn(2 + PROBE_MS)
    assert bench.engine.status(0) is ShardStatus.FAILED
    bench.turn(60_000)  # plans the reload
    bench.turn(61_000)
    assert bench.engine.status(0) is ShardStatus.ACTIVE
    assert bench.engine.starved == {}


def test_a_shard_that_is_given_up_meanwhile_asks_for_no_room() -> None:
    bench = starved()
    bench.engine.submit(0, events.Unload())
    bench.turn(3)
    assert bench.engine.starved == {}
    assert bench.engine.status(0) is ShardStatus.UNLOADED


def flush(engine: Engine) -> list[tuple[int, effects.Reply]]:
    job = engine.flush_job()
    if job is not None:
        try:
            job.run()
        except LogFailed as error:
            engine.flush_failed(job, error)
        else:
            engine.flushed(job)
    return engine.take_released().replies


def test_facts_that_come_to_be_without_room_are_owed_and_their_group_is_closed() -> None:
    """A topic is deleted while the disk is full: the positions go, and nobody hears of it before that is durable."""
    log = MemoryGroupLog(1)
    engine = Engine(log, 1, Limits(initial_rebalance_delay_ms=0))
    engine.submit_all(events.TopicsChanged({"t": 1, "u": 1}, ids={"t": b"t" * 16, "u": b"u" * 16}))
    engine.load(0)
    engine.submit(0, events.OffsetCommit(1, "reader", "", None, -1, {("t", 0): CommittedOffset(5)}))
    engine.submit(0, events.OffsetCommit(2, "other", "", None, -1, {("u", 0): CommittedOffset(6)}))
    engine.turn(1)
    flush(engine)
    log.full = True
    engine.submit(0, events.OffsetCommit(3, "other", "", None, -1, {("u", 0): CommittedOffset(7)}))
    engine.turn(2)
    engine.turn(3)
    flush(engine)
    engine.submit_all(events.TopicsChanged({"u": 1}, ("t",), {"u": b"u" * 16}))
    engine.turn(4)
    engine.submit(0, events.OffsetFetch(4, "reader", None))
    engine.submit(0, events.OffsetFetch(5, "other", None))
    engine.turn(5)
    replies = dict(flush(engine))
    assert {number: reply.code for number, reply in replies.items()} == {4: AWAY, 5: NONE}
    log.full = False
    engine.turn(2 * PROBE_MS)
    flush(engine)
    again = Engine(log, 1, Limits())
    again.load(9_000)
    again.submit(0, events.OffsetFetch(6, "reader", None))
    again.turn(9_001)
    ((_, reply),) = flush(again)
    assert isinstance(reply, effects.OffsetFetchReply)
    assert reply.offsets == {}


def test_what_concerns_everybody_tells_nobody_of_a_closed_group() -> None:
    """What answers somebody who listens need not be about its group, and may leave no fact: the group owes some."""
    log = MemoryGroupLog(1)
    engine = Engine(log, 1, Limits(initial_rebalance_delay_ms=0))
    topics = {"t": 1, "gone": 1}
    engine.submit_all(events.TopicsChanged(topics, ids={topic: topic.ljust(16).encode() for topic in topics}))
    engine.load(0)
    may = TopicRights("c", TopicNames(every=True), describe=TopicNames(every=True))
    members = {group_id: planned_for(engine, group_id, may) for group_id in ("owes", "rests")}
    engine.submit(0, events.OffsetCommit(1, "owes", members["owes"], None, 1, {("gone", 0): CommittedOffset(5)}))
    engine.turn(1)
    flush(engine)
    log.full = True
    engine.submit(0, events.OffsetCommit(2, "other", "", None, -1, {("t", 0): CommittedOffset(7)}))
    engine.turn(2)
    engine.turn(3)
    flush(engine)
    for number, (group_id, member_id) in enumerate(members.items(), 10):
        engine.submit(0, events.Heartbeat(number, group_id, member_id, None, 1, may))
        engine.submit(0, events.Listen(number + 10, group_id, member_id, None, 1, consumer=False))
    engine.turn(4)
    assert codes(flush(engine)) == [(10, NONE), (11, NONE)]
    engine.submit_all(events.TopicsChanged({"t": 1}, ("gone",), {"t": b"t".ljust(16)}))
    engine.turn(5)
    engine.submit_all(RightsAnew({"c": TopicRights("c")}))
    engine.turn(6)
    assert codes(flush(engine)) == [(21, ErrorCode.REBALANCE_IN_PROGRESS)]
    log.full = False
    engine.turn(2 * PROBE_MS)
    assert codes(engine.take_released().replies) == []
    assert codes(flush(engine)) == [(20, ErrorCode.REBALANCE_IN_PROGRESS)]


def planned_for(engine: Engine, group_id: str, rights: TopicRights) -> str:
    """The only member of a group, for which the coordinator plans and which reads "t"; its generation is 1."""
    said = encode_subscription(Subscription(version=1, topics=("t",)))
    join_it = events.JoinGroup(
        request_id=900,
        group_id=group_id,
        member_id="",
        group_instance_id=None,
        client_id="c",
        client_host="h",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=(Protocol("range", said),),
        fresh_id="1",
        require_known_member_id=False,
        remote_assignor="uniform",
        rights=rights,
    )
    engine.submit(0, join_it)
    engine.turn(0)
    engine.turn(0)
    ((_, joined),) = flush(engine)
    assert isinstance(joined, effects.JoinReply)
    engine.submit(0, events.SyncGroup(901, group_id, joined.member_id, None, 1, None, None, ()))
    engine.turn(0)
    flush(engine)
    return joined.member_id


def test_a_member_lives_through_a_full_disk_and_a_dead_one_is_noticed_afterwards() -> None:
    log = MemoryGroupLog(1)
    engine = Engine(log, 1, Limits(initial_rebalance_delay_ms=0))
    engine.load(0)
    member = the_only_member_of_live(engine)
    log.full = True
    for second in range(1, 61):
        now_ms = 1_000 * second
        engine.submit(0, events.OffsetCommit(100 + second, "busy", "", None, -1, {("t", 0): CommittedOffset(second)}))
        if second > 2 and second % 3 == 0:
            engine.submit(0, events.Heartbeat(500 + second, "live", member, None, 1))
        engine.turn(now_ms)
        beats = [reply.code for number, reply in flush(engine) if number >= 500]
        assert set(beats) <= {NONE}
    assert engine.metrics.loads == 2
    log.full = False
    engine.turn(62_000)
    flush(engine)
    engine.submit(0, events.DescribeGroup(900, "live"))
    engine.turn(62_001)
    ((_, there),) = flush(engine)
    assert isinstance(there, effects.DescribeReply)
    assert there.state == "Stable"
    engine.turn(200_000)
    flush(engine)
    engine.submit(0, events.DescribeGroup(901, "live"))
    engine.turn(200_001)
    ((_, gone),) = flush(engine)
    assert isinstance(gone, effects.DescribeReply)
    assert gone.state == "Empty"


def test_who_was_heard_late_on_a_full_disk_and_then_falls_silent_is_noticed_all_the_same() -> None:
    """Its session ran out while timers waited, and began anew with what it said: there is one deadline, the later."""
    log = MemoryGroupLog(1)
    engine = Engine(log, 1, Limits(initial_rebalance_delay_ms=0))
    engine.load(0)
    member = the_only_member_of_live(engine)
    log.full = True
    engine.submit(0, events.OffsetCommit(100, "busy", "", None, -1, {("t", 0): CommittedOffset(1)}))
    engine.turn(1_000)
    flush(engine)
    for now_ms in (1_001, 2_000, 15_000):  # the session of 10 s ends between the last two, by the clock
        engine.turn(now_ms)
        flush(engine)
    engine.submit(0, events.Heartbeat(500, "live", member, None, 1))
    engine.turn(16_000)
    assert codes(flush(engine)) == [(500, NONE)]
    log.full = False
    engine.turn(20_000)
    flush(engine)
    assert engine.starved == {}
    engine.turn(100_000)
    flush(engine)
    engine.submit(0, events.DescribeGroup(900, "live"))
    engine.turn(100_001)
    ((_, gone),) = flush(engine)
    assert isinstance(gone, effects.DescribeReply)
    assert gone.state == "Empty"


def test_what_a_member_may_is_heard_for_the_first_time_though_there_is_no_room() -> None:
    """Rights are not on record: the first heartbeat after the reload tells them, and is a sign of life like another."""
    log = MemoryGroupLog(1)
    engine = Engine(log, 1, Limits(consumer_assignment_interval_ms=0))
    engine.submit_all(events.TopicsChanged({"open": 1, "secret": 1}, ids={"open": b"o" * 16, "secret": b"s" * 16}))
    engine.load(0)
    may = TopicRights("alice", TopicNames(frozenset({"open"})), describe=TopicNames(every=True))
    topics = ("open", "secret")
    joins = events.ConsumerHeartbeat(
        1, "g", "m", 0, rebalance_timeout_ms=60_000, topic_names=topics, owned={}, rights=may
    )
    engine.submit(0, joins)
    engine.turn(1)
    ((_, joined),) = flush(engine)
    assert isinstance(joined, effects.ConsumerHeartbeatReply)
    assert joined.assignment == {b"o" * 16: frozenset({0})}
    log.full = True
    engine.submit(0, events.OffsetCommit(2, "busy", "", None, -1, {("open", 0): CommittedOffset(1)}))
    engine.turn(2)
    flush(engine)
    engine.turn(3)
    flush(engine)
    less = TopicRights("alice", describe=TopicNames(every=True))
    for number, rights, code in ((4, less, AWAY), (5, may, NONE), (6, may, NONE), (7, less, AWAY)):
        engine.submit(0, events.ConsumerHeartbeat(number, "g", "m", joined.member_epoch, rights=rights))
        engine.turn(number)
        assert codes(flush(engine)) == [(number, code)]


def test_who_is_told_to_try_again_has_been_heard() -> None:
    """His stream broke, so he had little time left; what he says then is refused, and begins his session anew."""
    log = MemoryGroupLog(1)
    engine = Engine(log, 1, Limits(consumer_session_timeout_ms=10_000, consumer_min_session_timeout_ms=10_000))
    engine.submit_all(events.TopicsChanged({"t": 1}, ids={"t": b"t" * 16}))
    engine.load(0)
    joins = events.ConsumerHeartbeat(1, "g", "m", 0, rebalance_timeout_ms=60_000, topic_names=("t",), owned={})
    engine.submit(0, joins)
    engine.turn(1)
    ((_, joined),) = flush(engine)
    assert isinstance(joined, effects.ConsumerHeartbeatReply)
    log.full = True
    engine.submit(0, events.OffsetCommit(2, "busy", "", None, -1, {("t", 0): CommittedOffset(1)}))
    engine.turn(2)
    flush(engine)
    engine.turn(3)
    engine.submit(0, events.StreamLost("g", "m", 5_000))
    engine.turn(4)
    flush(engine)
    says = events.ConsumerHeartbeat(3, "g", "m", joined.member_epoch, topic_names=("t", "u"))
    engine.submit(0, says)
    engine.turn(800)
    assert codes(flush(engine)) == [(3, AWAY)]
    log.full = False
    engine.turn(1_000 + PROBE_MS)
    flush(engine)
    assert engine.starved == {}
    assert members_at(engine, 10_799) == ["m"]
    assert members_at(engine, 20_000) == []


def members_at(engine: Engine, now_ms: int) -> list[str]:
    """Of the KIP-848 group "g"."""
    engine.turn(now_ms)
    flush(engine)
    core = engine.core(0)
    assert isinstance(core, Shard)
    return list(core.consumer_groups["g"].members)


def the_only_member_of_live(engine: Engine) -> str:
    """Joins the group "live", whose generation 1 it is; says the member's id."""
    protocols = (Protocol("range", b""),)
    engine.submit(
        0,
        events.JoinGroup(
            1, "live", "", None, "c", "h", 10_000, 60_000, "consumer", protocols, "f", require_known_member_id=False
        ),
    )
    engine.turn(1)
    ((_, joined),) = flush(engine)
    assert isinstance(joined, effects.JoinReply)
    member = joined.member_id
    engine.submit(0, events.SyncGroup(2, "live", member, None, 1, None, None, ((member, b""),)))
    engine.turn(2)
    flush(engine)
    return member


def test_a_parked_join_is_refused_once_and_taken_again_later() -> None:
    bench = Bench()
    bench.turn(0, join(1))
    bench.log.full = True
    assert codes(bench.turn(1, commit(2, 20))) == [(1, GONE), (2, GONE)]
    bench.turn(2)
    assert codes(bench.turn(3, join(3))) == [(3, AWAY)]
