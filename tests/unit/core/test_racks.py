"""Where a member says it runs reaches whatever the coordinator lets plan for its group."""

from dataclasses import replace

from muster.assignors.data.consumer_protocol import Subscription, encode_subscription
from muster.coordinator.core.model.effects import JoinReply
from muster.coordinator.core.model.events import (
    AlterSettings,
    ConsumerHeartbeat,
    RegisterConsumer,
    SyncGroup,
    TimerFired,
    TopicsChanged,
)
from muster.coordinator.core.model.plan import PlanRequest
from muster.coordinator.core.model.types import Limits, Protocol
from muster.coordinator.core.shard import Shard
from tests.unit.core.test_assignor_setting import request


class Asked(list[PlanRequest]):
    """A planner that notes what it is asked, and leaves the plan to the runtime."""

    def __call__(self, asked: PlanRequest) -> None:
        self.append(asked)

    @property
    def racks(self) -> dict[str, str | None]:
        return {member.id: member.rack for member in self[-1].snapshot.members}


def shard() -> tuple[Shard, Asked]:
    made, asked = Shard(Limits(initial_rebalance_delay_ms=0), 0), Asked()
    made.state.planner = asked
    made.step(TopicsChanged({"t": 2}, (), {"t": bytes(15) + b"\1"}), 0)
    return made, asked


def test_of_a_kip_848_group() -> None:
    group, asked = shard()
    joins = ConsumerHeartbeat(1, "g", "m", 0, rebalance_timeout_ms=60_000, topic_names=("t",), owned={})
    group.step(replace(joins, rack_id="r1"), 0)
    assert asked.racks == {"m": "r1"}


def test_of_a_central_group() -> None:
    group, asked = shard()
    joins = RegisterConsumer(1, "g", "m", "c", "here", 6_000, ("t",), "", "uniform", rack_id="r3")
    group.step(joins, 0)
    while not asked:
        key, at_ms = min(group.deadlines.items(), key=lambda timer: timer[1])
        group.step(TimerFired(key, at_ms), at_ms)
    assert asked.racks == {"m": "r3"}


def test_of_classic_members_that_are_planned_for() -> None:
    group, asked = shard()
    group.step(AlterSettings(1, "g", {"assignor": "uniform"}, (), None, False, operator="op"), 0)
    said = encode_subscription(Subscription(version=3, topics=("t",), rack="r2"))
    group.step(request(10, "m0", 3, protocols=(Protocol("range", said),)), 0)
    replies = group.step(TimerFired(("join", "g"), 0), 0).replies
    (joined,) = [reply for _, reply in replies if isinstance(reply, JoinReply)]
    group.step(SyncGroup(11, "g", joined.member_id, None, joined.generation, "consumer", "range", ()), 0)
    assert list(asked.racks.values()) == ["r2"]
