"""What a shard meets only in odd logs and odd schedules, so that no story can tell it."""

import pytest

from muster.assignors.data.consumer_protocol import Subscription, encode_subscription
from muster.coordinator.core.classic.group import MOVES
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.effects import DescribeReply, HeartbeatReply
from muster.coordinator.core.model.events import DescribeGroup, Heartbeat, Loaded, TimerFired
from muster.coordinator.core.model.plan import assignment_of
from muster.coordinator.core.model.records import (
    GroupDeleted,
    GroupStored,
    MemberRecord,
    OffsetDeleted,
    OffsetsStored,
    OffsetStored,
    RebalanceForgotten,
    Record,
)
from muster.coordinator.core.model.types import GroupState, Limits, StoredOffset
from muster.coordinator.core.requests import session_streams
from muster.coordinator.core.shard import HANDLERS, Shard
from muster.coordinator.errors import CoordinatorError, ErrorCode

SUBSCRIPTION = encode_subscription(Subscription(version=1, topics=("t",)))


def stored_member(member_id: str, rebalance_timeout_ms: int = 60_000) -> MemberRecord:
    return MemberRecord(member_id, None, "client", "host", rebalance_timeout_ms, 10_000, SUBSCRIPTION, b"")


def stored_group(leader: str | None, *members: MemberRecord) -> GroupStored:
    return GroupStored("g", "consumer", 7, "range", leader, 0, members)


def loaded(*records: Record) -> Shard:
    shard = Shard(Limits(), 0)
    for record in records:
        shard.apply(record)
    shard.step(Loaded(), 1_000)
    return shard


@pytest.mark.parametrize("leader", [None, "", "gone"])
def test_a_record_without_a_leader_gets_the_first_member(leader: str | None) -> None:
    shard = loaded(stored_group(leader, stored_member("a"), stored_member("b")))
    reply = shard.step(DescribeGroup(1, "g"), 1_000).replies[0][1]
    assert isinstance(reply, DescribeReply)
    assert (reply.state, reply.generation, reply.leader) == ("Stable", 7, "a")


def test_a_record_older_than_rebalance_timeouts_takes_the_session_timeout() -> None:
    shard = loaded(stored_group("a", stored_member("a", rebalance_timeout_ms=-1)))
    assert shard.groups["g"].max_rebalance_timeout_ms == 10_000


@pytest.mark.parametrize("tombstone", [GroupDeleted("g"), OffsetDeleted("g", "t", 0), RebalanceForgotten("g", 3)])
def test_a_tombstone_of_something_unknown_does_no_harm(tombstone: Record) -> None:
    shard = loaded(tombstone)
    assert not shard.groups
    assert not shard.ledgers


def test_a_timer_that_was_set_again_is_stale() -> None:
    shard = loaded(stored_group("a", stored_member("a")))
    key = ("session", "g", "a")
    first = shard.state.deadlines[key]
    beat = shard.step(Heartbeat(1, "g", "a", None, 7), 5_000)
    assert beat.replies == [(1, HeartbeatReply())]
    stale = shard.step(TimerFired(key, first), first)
    assert (stale.replies, stale.records, stale.timers) == ([], [], {})
    assert "a" in shard.groups["g"].members


def test_each_state_has_its_moves_and_another_is_a_bug() -> None:
    assert MOVES.keys() == set(GroupState)
    assert all(GroupState.DEAD in targets for targets in MOVES.values())
    group = loaded(stored_group("a", stored_member("a"))).groups["g"]
    with pytest.raises(AssertionError, match="Stable -> CompletingRebalance is not a legal move"):
        group.become(GroupState.COMPLETING_REBALANCE, 0)


@pytest.mark.parametrize("blob", [b"", b"junk", b"\x00\x01\xff\xff\xff\xff"])
def test_an_assignment_that_cannot_be_read_is_unknown(blob: bytes) -> None:
    assert assignment_of(blob) == {}


def test_positions_are_nothing_that_listening_members_are_told_of() -> None:
    """Or each commit would ask for every member what its heartbeat would hear."""
    position = StoredOffset(5, -1, "", 0)
    facts = (OffsetsStored("g", {("t", 0): position}), OffsetStored("g", "t", 0, position), OffsetDeleted("g", "t", 0))
    assert [session_streams.group_of(fact) for fact in facts] == ["", "", ""]
    assert session_streams.group_of(stored_group(None)) == "g"


def test_a_request_that_is_refused_after_something_was_decided_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shard would go on with facts that nobody writes down."""
    shard = loaded()

    def careless(event: Heartbeat, step: Step) -> None:
        step.keep(stored_group("a", stored_member("a")))
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, "too late")

    monkeypatch.setitem(HANDLERS, Heartbeat, careless)
    with pytest.raises(AssertionError, match="refused after something had been decided"):
        shard.step(Heartbeat(1, "g", "a", None, 7), 1_000)
