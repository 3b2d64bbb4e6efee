"""The short way of a heartbeat decides what the long way decides, and leaves alone what it cannot judge."""

from collections.abc import Iterator, Sequence
from copy import deepcopy

import pytest

from muster.coordinator.core.classic.group import ClassicGroup, ClassicPlanner
from muster.coordinator.core.model import effects, events
from muster.coordinator.core.model.rights import TopicNames, TopicRights
from muster.coordinator.core.model.types import Limits, Protocol
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.ports import Entry, KeyValue, LogWithoutTransactions

SESSION_MS = 10_000
BEAT_MS = 2_000


class Memory(LogWithoutTransactions):
    """A log that keeps nothing and is durable at once."""

    def draft(self) -> list[Entry]:
        return []

    def append(self, shard: int, groups: Sequence[Entry], ledger: Sequence[Entry], now_ms: int) -> None: ...

    def flush(self, shards: Sequence[int]) -> None: ...

    def read_groups(self, shard: int) -> Iterator[KeyValue]:
        return iter(())

    def read_ledger(self, shard: int) -> Iterator[KeyValue]:
        return iter(())


def join(request_id: int, member_id: str = "", instance_id: str | None = None) -> events.JoinGroup:
    return events.JoinGroup(
        request_id=request_id,
        group_id="g",
        member_id=member_id,
        group_instance_id=instance_id,
        client_id="c",
        client_host="h",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=(Protocol("range", b""),),
        fresh_id=f"u{request_id}",
        require_known_member_id=False,
    )


def stable(instance_id: str | None = None) -> tuple[Shard, str]:
    """A shard with the stable group "g" of one member, in generation 1, at time 0."""
    shard = Shard(Limits(initial_rebalance_delay_ms=0), 0)
    joined = shard.step(join(1, instance_id=instance_id), 0)
    deadline_ms = joined.timers["join", "g"]
    assert deadline_ms is not None
    reply = shard.step(events.TimerFired(("join", "g"), deadline_ms), deadline_ms).replies[0][1]
    assert isinstance(reply, effects.JoinReply)
    member_id = reply.member_id
    shard.step(events.SyncGroup(2, "g", member_id, instance_id, 1, None, None, ((member_id, b"x"),)), 0)
    return shard, member_id


def both(shard: Shard, member_id: str, generation: int = 1) -> tuple[bool, effects.Effects]:
    """The short way on the shard, the long way on a copy of it; where the short one acts the states agree."""
    twin = deepcopy(shard)
    stepped = twin.step(events.Heartbeat(9, "g", member_id, None, generation), BEAT_MS)
    short = shard.beat("g", member_id, generation, None, BEAT_MS)
    if short:
        renewed = {("session", "g", member_id): BEAT_MS + SESSION_MS}
        assert stepped == effects.Effects(replies=[(9, effects.HeartbeatReply())], timers=renewed)
        assert shard.state == twin.state
    return short, stepped


@pytest.mark.parametrize("instance_id", [None, "i"])
def test_a_steady_member_is_taken_the_short_way(instance_id: str | None) -> None:
    short, stepped = both(*stable(instance_id))
    assert short
    assert stepped.timers[("session", "g", next(iter(stepped.timers))[2])] == BEAT_MS + SESSION_MS


@pytest.mark.parametrize("generation", [0, 2])
def test_another_generation_is_left_to_the_rules(generation: int) -> None:
    short, stepped = both(*stable(), generation=generation)
    assert not short
    assert stepped.replies[0][1].code is ErrorCode.ILLEGAL_GENERATION


def test_a_stranger_is_left_to_the_rules() -> None:
    shard, _ = stable()
    short, stepped = both(shard, "stranger")
    assert not short
    assert stepped.replies[0][1].code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_that_calls_back_is_left_to_the_rules() -> None:
    shard, member_id = stable()
    shard.step(join(3), 1_000)
    short, stepped = both(shard, member_id)
    assert not short
    assert stepped.replies[0][1].code is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_unknown_group_is_left_to_the_rules() -> None:
    assert not Shard(Limits(), 0).beat("g", "m", 1, None, 0)


def test_a_session_that_would_end_earlier_is_left_to_the_rules() -> None:
    """Of a deadline that moves forward the runtime has to be told; the short way tells it of nothing."""
    shard, member_id = stable()
    assert shard.beat("g", member_id, 1, None, BEAT_MS)
    assert not shard.beat("g", member_id, 1, None, BEAT_MS - 1)


def test_what_a_member_may_is_news_to_who_plans_for_it() -> None:
    """Rights are on no record: after a reload the first heartbeat tells them, and must not take the short way."""
    shard, member_id = stable()
    group = shard.state.groups["g"]
    assert isinstance(group, ClassicGroup)
    some, all_of_them = TopicRights("c", TopicNames(frozenset({"t"}))), TopicRights("c", TopicNames(every=True))
    assert shard.beat("g", member_id, 1, some, BEAT_MS)
    group.planner = ClassicPlanner("uniform")
    assert not shard.beat("g", member_id, 1, some, BEAT_MS)
    assert shard.beat("g", member_id, 1, None, BEAT_MS)
    group.members[member_id].rights = some
    assert shard.beat("g", member_id, 1, some, BEAT_MS)
    assert not shard.beat("g", member_id, 1, all_of_them, BEAT_MS)


def engine() -> tuple[Engine, str]:
    shard, member_id = stable()
    made = Engine(Memory(), 1, Limits(), lambda limits, index: shard)
    made.load(0)
    if job := made.flush_job():
        made.flushed(job)
    return made, member_id


def test_the_engine_pushes_the_session_back() -> None:
    made, member_id = engine()
    made.turn(0)
    assert made.beat(0, "g", member_id, 1, BEAT_MS)
    assert made.metrics.requests["Heartbeat", ErrorCode.NONE] == 1
    made.turn(BEAT_MS + SESSION_MS - 1)
    assert shard_members(made) == [member_id]
    made.turn(BEAT_MS + SESSION_MS)
    assert shard_members(made) == []


def test_nothing_that_waits_is_overtaken() -> None:
    made, member_id = engine()
    made.submit(0, events.LeaveGroup(5, "g", (), operator="ops", everyone=True))
    assert not made.beat(0, "g", member_id, 1, BEAT_MS)


def test_a_heartbeat_that_is_heard_before_its_session_was_ended_renews_it() -> None:
    made, member_id = engine()
    made.turn(0)
    assert made.beat(0, "g", member_id, 1, SESSION_MS + 1)
    made.turn(SESSION_MS + 2)
    assert shard_members(made) == [member_id]
    made.turn(2 * SESSION_MS + 1)
    assert shard_members(made) == []
    assert not made.beat(0, "g", member_id, 1, 2 * SESSION_MS + 2)


def test_nobody_is_told_that_all_is_well_before_the_log_says_so() -> None:
    made, member_id = engine()
    made.submit(0, events.OffsetCommit(6, "other", "", None, -1, {}))
    made.submit(0, join(7))
    made.turn(1_000)
    made.submit(0, events.LeaveGroup(8, "g", (), operator="ops", everyone=True))
    made.turn(1_001)
    assert made.flush_job() is not None
    assert not made.beat(0, "g", member_id, 1, BEAT_MS)


def test_a_shard_that_was_unloaded_answers_nothing() -> None:
    made, member_id = engine()
    made.submit_all(events.Unload())
    made.turn(1_000)
    assert not made.beat(0, "g", member_id, 1, BEAT_MS)


def shard_members(made: Engine) -> list[str]:
    core = made.core(0)
    assert isinstance(core, Shard)
    return list(core.groups["g"].members)
