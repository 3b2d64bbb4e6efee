"""A worker of a delayed group: its blobs, what a leader remembers or is handed, and when it joins again."""

import json

import pytest

from muster.assignors.api import RebalanceProtocol, Snapshot
from muster.assignors.data.consumer_protocol import parse_subscription
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.classic_member import ClassicMemberMachine
from muster.client.members.delayed_rebalance import (
    DELAYED,
    DelayedLeader,
    DelayedLeaderState,
    DelayedSubscriber,
    encode_share,
    read_delay,
    read_state,
    replay_decision,
    write_state,
)
from muster.client.members.member_types import GroupMember, MemberSettings, MembershipState
from tests.support.stories.delayed import RESOURCES, shares, worker

DELAY_MS = 300_000


class Cooperative:
    name = "cooperative-sticky"
    protocol = RebalanceProtocol.COOPERATIVE


def asked(
    generation: int, *members: GroupMember, completed: int = -1, known: str = "", left_ms: int | None = None
) -> act.MakePlan:
    return act.MakePlan(generation, DELAYED, members, completed, known, left_ms)


def running_delay(leader: DelayedLeader) -> ev.PlanMade:
    """a and b share four resources; b goes, and the group waits for it."""
    leader.plan(asked(1, worker("a"), worker("b")), 1_000)
    planned = leader.plan(asked(2, worker("a", "r", "t"), completed=1), 2_000)
    assert (shares(planned), planned.scheduled_delay_ms) == ({"a": ["r", "t"]}, DELAY_MS)
    return planned


# The leader


def test_a_new_leader_waits_on_for_what_is_left_of_the_delay() -> None:
    before = running_delay(DelayedLeader(DELAY_MS))
    successor = DelayedLeader(DELAY_MS)
    waiting = successor.plan(asked(3, worker("c"), known=before.leader_state, left_ms=40_000), 7)
    assert (shares(waiting), waiting.scheduled_delay_ms) == ({"c": []}, 40_000)
    over = successor.plan(asked(4, worker("c"), known=waiting.leader_state, left_ms=0), 8)
    assert (shares(over), over.scheduled_delay_ms) == ({"c": list(RESOURCES)}, 0)


def test_without_keeping_it_a_new_leader_forgets_the_delay_as_in_kafka_connect() -> None:
    before = running_delay(DelayedLeader(DELAY_MS))
    successor = DelayedLeader(DELAY_MS, keeps_delay=False)
    planned = successor.plan(asked(3, worker("a", "r", "t"), known=before.leader_state, left_ms=40_000), 7)
    assert (shares(planned), planned.scheduled_delay_ms) == ({"a": list(RESOURCES)}, 0)


def test_a_leader_whose_coordinator_keeps_nothing_goes_by_its_own_memory() -> None:
    leader = DelayedLeader(DELAY_MS)
    running_delay(leader)
    half = leader.plan(asked(3, worker("a", "r", "t"), completed=2), 2_000 + DELAY_MS // 2)
    assert half.scheduled_delay_ms == DELAY_MS // 2
    over = leader.plan(asked(4, worker("a", "r", "t"), completed=3), 2_000 + DELAY_MS)
    assert shares(over) == {"a": list(RESOURCES)}


@pytest.mark.parametrize("strange", ["{}", "[]", "no json", '{"version":1,"previous":[1]}', '{"version":2}'])
def test_a_state_that_nobody_can_read_counts_as_none(strange: str) -> None:
    planned = DelayedLeader(DELAY_MS).plan(asked(3, worker("a", "r"), known=strange, left_ms=40_000), 7)
    assert (shares(planned), planned.scheduled_delay_ms) == ({"a": list(RESOURCES)}, 0)


@pytest.mark.parametrize("field", ["generation", "revocations", "candidates", "members"])
def test_a_state_with_a_wrong_field_is_refused_by_its_name(field: str) -> None:
    known = json.loads(write_state(DelayedLeaderState())) | {field: "many"}
    with pytest.raises(ValueError, match=f"{field} is 'many'"):
        read_state(json.dumps(known))


def test_the_state_survives_its_json_but_for_the_time() -> None:
    state = DelayedLeaderState(frozenset("ab"), 7, frozenset({"w"}), frozenset("b"), ("w",), None, True, 3)
    assert read_state(write_state(state)) == state


def test_nobody_is_given_what_it_is_not_ready_for() -> None:
    planned = DelayedLeader(0).plan(asked(1, worker("a", resources=("r", "s")), worker("b", resources=("s", "t"))), 0)
    given = shares(planned)
    assert set(given["a"]) <= {"r", "s"}
    assert set(given["b"]) <= {"s", "t"}
    assert sorted(given["a"] + given["b"]) == ["r", "s", "t"]
    again = DelayedLeader(0).plan(
        asked(2, worker("a", "r", "s", resources=("r", "s")), worker("b", "t", resources=("t",))), 0
    )
    assert shares(again) == {"a": ["r", "s"], "b": ["t"]}


def test_a_member_that_cannot_be_read_takes_part_with_nothing() -> None:
    planned = DelayedLeader(DELAY_MS).plan(asked(1, worker("a"), GroupMember("b", None, b"?")), 0)
    assert shares(planned) == {"a": list(RESOURCES), "b": []}


def test_the_snapshot_is_enough_to_decide_again() -> None:
    planned = running_delay(DelayedLeader(DELAY_MS))
    again = replay_decision(Snapshot.from_json(planned.snapshot))
    assert {member: list(share) for member, share in again.shares.items()} == shares(planned)
    assert again.delay_ms == planned.scheduled_delay_ms
    with pytest.raises(ValueError, match=r"no option 'leader\.state'"):
        replay_decision(Snapshot({}, []))


# The worker


def test_a_worker_offers_delayed_first_and_then_what_it_fell_back_on_before() -> None:
    offered = DelayedSubscriber(RESOURCES, [Cooperative()]).offered({("r", 0)}, 4)
    assert [protocol.name for protocol in offered] == [DELAYED, "cooperative-sticky"]
    told = parse_subscription(offered[0].metadata)
    assert (told.topics, told.owned, told.generation) == (RESOURCES, {"r": [0]}, 4)


def stable_worker(delay_ms: int) -> ClassicMemberMachine:
    """It has its share, at 0 ms, in a group that waits for `delay_ms`."""
    settings = MemberSettings("g", session_timeout_ms=10_000, heartbeat_interval_ms=3_000)
    member = ClassicMemberMachine(settings, DelayedSubscriber(RESOURCES, [Cooperative()]))
    member.step(ev.Start(), 0)
    member.step(ev.CoordinatorFound(1), 0)
    member.step(ev.JoinAnswered(2, generation=1, member_id="me", leader="boss", protocol_name=DELAYED), 0)
    member.step(ev.SyncAnswered(3, assignment=encode_share(["r"], delay_ms)), 0)
    assert member.state is MembershipState.STABLE
    return member


def test_a_worker_joins_again_when_the_delay_is_over() -> None:
    member = stable_worker(2_000)
    (wish,) = [action for action in member.step(ev.TimerExpired(), 1_999) if isinstance(action, act.WakeMemberAt)]
    assert wish.at_ms == 2_000
    (join,) = [action for action in member.step(ev.TimerExpired(), 2_000) if isinstance(action, act.SendJoin)]
    assert join.reason == "the scheduled delay is over"
    assert member.owned == {("r", 0)}


def test_a_worker_without_a_delay_stays() -> None:
    member = stable_worker(0)
    assert not [action for action in member.step(ev.TimerExpired(), 2_999) if isinstance(action, act.SendJoin)]


def test_a_leader_hands_in_what_the_next_one_has_to_know() -> None:
    settings = MemberSettings("g", session_timeout_ms=10_000, heartbeat_interval_ms=3_000)
    member = ClassicMemberMachine(settings, DelayedSubscriber(RESOURCES, [Cooperative()]))
    member.step(ev.Start(), 0)
    member.step(ev.CoordinatorFound(1), 0)
    answer = ev.JoinAnswered(
        2, generation=5, member_id="me", leader="me", protocol_name=DELAYED, leader_state="known", scheduled_delay_ms=9
    )
    (plan,) = [action for action in member.step(answer, 0) if isinstance(action, act.MakePlan)]
    assert (plan.leader_state, plan.scheduled_delay_ms, plan.completed_generation) == ("known", 9, -1)
    planned = ev.PlanMade(5, (), b"", None, "learnt", 7)
    (sync,) = [action for action in member.step(planned, 0) if isinstance(action, act.SendSync)]
    assert (sync.leader_state, sync.scheduled_delay_ms) == ("learnt", 7)


@pytest.mark.parametrize("blob", [None, b"", b"\0", b"\0\1\0\0\0", b"\0\0\0\0\1\0"])
def test_user_data_of_another_kind_means_no_delay(blob: bytes | None) -> None:
    assert read_delay(blob) == 0
