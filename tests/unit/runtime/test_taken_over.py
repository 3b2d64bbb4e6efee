"""How often a second process came under a static member's instance id."""

from muster.coordinator.core.effects import JoinReply
from muster.coordinator.core.events import ConsumerHeartbeat, JoinGroup
from muster.coordinator.core.types import Cause
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.metrics import MAX_TAKEN_OVER, TAKEOVER_WINDOW_MS, Metrics

CALM = JoinReply(cause=Cause.STATIC_MEMBER_REPLACED)


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
    assert metrics.taken_over("g", "pod-1") == 1


def test_of_very_many_instance_ids_those_that_were_last_are_kept() -> None:
    metrics = Metrics()
    for number in range(MAX_TAKEN_OVER + 1):
        metrics.instance_answered(join(f"pod-{number}"), CALM)
    assert len(metrics.takeovers) == MAX_TAKEN_OVER
    assert metrics.taken_over("g", "pod-0") == 0
