"""How often a second process came under a static member's instance id."""

from dataclasses import replace

from muster.assignors.data.consumer_protocol import Subscription, encode_subscription
from muster.coordinator.core.model.effects import JoinReply, Reply
from muster.coordinator.core.model.events import ConsumerHeartbeat, JoinGroup, Request, SyncGroup
from muster.coordinator.core.model.types import Cause, Limits, Protocol
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.node_status import MAX_TAKEN_OVER, TAKEOVER_WINDOW_MS, Metrics
from tests.fakes.memory_group_log import MemoryGroupLog

TOOK = "member pod-1-x (app at h) took over group.instance.id "
CALM = JoinReply(cause=Cause.STATIC_MEMBER_REPLACED, cause_detail=TOOK + "pod-1")


def join(instance_id: str | None = "pod-1", member_id: str = "") -> JoinGroup:
    return JoinGroup(1, "g", member_id, instance_id, "app", "h", 6_000, 6_000, "consumer", (), "fresh")


def test_takeovers_are_counted_for_ten_minutes() -> None:
    metrics = Metrics(now_ms=1_000)
    for _ in range(3):
        metrics.instance_answered(join(), CALM)
    assert (metrics.taken_over("g", "pod-1"), metrics.taken_over("g", "pod-2")) == (3, 0)
    metrics.now_ms += TAKEOVER_WINDOW_MS
    metrics.instance_answered(join(), CALM)
    assert metrics.taken_over("g", "pod-1") == 4
    metrics.now_ms += 1
    assert metrics.taken_over("g", "pod-1") == 1


def test_who_is_refused_because_another_has_the_id_counts_and_who_rejoins_does_not() -> None:
    metrics = Metrics()
    metrics.instance_answered(
        ConsumerHeartbeat(1, "g", "m", 0, "pod-1"), JoinReply(code=ErrorCode.UNRELEASED_INSTANCE_ID)
    )
    assert metrics.taken_over("g", "pod-1") == 1
    metrics.instance_answered(join(member_id="pod-1-x"), CALM)
    metrics.instance_answered(join(), JoinReply(cause=Cause.MEMBER_JOINED))
    metrics.instance_answered(join(None), CALM)
    metrics.instance_answered(join("pod-2"), CALM)
    assert metrics.taken_over("g", "pod-1") == 1


def test_of_very_many_instance_ids_those_that_were_last_are_kept() -> None:
    metrics = Metrics()
    for number in range(MAX_TAKEN_OVER + 1):
        took = JoinReply(cause=Cause.PARTITIONS_CHANGED, cause_detail=f"{TOOK}pod-{number} and reads more")
        metrics.instance_answered(join(f"pod-{number}"), took)
    assert len(metrics.takeovers) == MAX_TAKEN_OVER
    assert metrics.taken_over("g", "pod-0") == 0


def test_a_calm_takeover_is_counted_by_an_engine_that_writes_no_rebalance_of_it() -> None:
    """What the doctor looked for in the ledger was never there."""
    engine = Engine(MemoryGroupLog(1), 1, Limits(initial_rebalance_delay_ms=0))
    engine.load(0)

    def answered(request: Request) -> Reply:
        assert engine.submit(0, request)
        engine.turn(0)
        if job := engine.flush_job():
            job.run()
            engine.flushed(job)
        ((_, reply),) = engine.take_released().replies
        return reply

    for number in range(4):
        protocols = (Protocol("range", encode_subscription(Subscription(1, ()))),)
        joined = answered(replace(join(), fresh_id=f"fresh-{number}", protocols=protocols))
        assert isinstance(joined, JoinReply)
        assert not joined.code, joined.message
        share = () if number else ((joined.member_id, b""),)
        answered(SyncGroup(2, "g", joined.member_id, "pod-1", joined.generation, "consumer", "range", share))
    assert engine.metrics.taken_over("g", "pod-1") == 3
    assert engine.metrics.rebalances == {Cause.MEMBER_JOINED: 1}
