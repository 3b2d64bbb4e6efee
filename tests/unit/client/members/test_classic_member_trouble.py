"""The classic member in trouble, and its end: refusals, silence, an application that does not poll, closing."""

import pytest

from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.member_types import MOVES, LeavePolicy, MembershipState
from muster.coordinator.core.model.types import Cause
from muster.coordinator.errors import ErrorCode
from tests.support.stories.classic_story import COOPERATIVE, RANGE, Named, Story, claims
from tests.support.stories.member_story import t

# Refusals


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_join_sent_to_the_wrong_node_looks_for_the_right_one_after_a_back_off(code: ErrorCode) -> None:
    story = Story()
    join = story.start()
    story.on(ev.JoinAnswered(join.token, code))
    assert not story.has(act.FindCoordinator)
    story.wait(100)
    story.on(ev.CoordinatorFound(story.the(act.FindCoordinator).token))
    assert story.has(act.SendJoin)


def test_a_loading_coordinator_is_asked_again_without_looking_for_another() -> None:
    story = Story()
    join = story.start()
    story.on(ev.JoinAnswered(join.token, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    story.wait(100)
    assert story.has(act.SendJoin)
    assert not story.has(act.FindCoordinator)


def test_the_wait_between_attempts_doubles_up_to_a_limit() -> None:
    story = Story()
    join = story.start()
    waits = []
    for _ in range(6):
        story.on(ev.JoinAnswered(join.token, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        waits.append(story.the(act.WakeMemberAt).at_ms - story.now_ms)
        story.wait(waits[-1])
        join = story.the(act.SendJoin)
    assert waits == [100, 200, 400, 800, 1000, 1000]


def test_a_lost_join_answer_is_asked_for_again_with_the_same_id() -> None:
    story = Story().stable()
    story.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    story.on(ev.RequestFailed(story.the(act.SendJoin).token, retriable=True))
    story.wait(100)
    story.on(ev.CoordinatorFound(story.the(act.FindCoordinator).token))
    assert story.the(act.SendJoin).member_id == "me"


def test_a_lost_sync_answer_makes_a_cooperative_member_join_again_with_what_it_owns() -> None:
    story = Story(COOPERATIVE).stable(0)
    story.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    story.joined(generation=2)
    story.on(ev.RequestFailed(story.the(act.SendSync).token, retriable=True))
    story.wait(100)
    story.on(ev.CoordinatorFound(story.the(act.FindCoordinator).token))
    assert claims(story.the(act.SendJoin)) == ({"t": [0]}, 2)


def test_a_group_that_rebalances_under_the_sync_is_joined_again_at_once() -> None:
    story = Story()
    story.start()
    story.joined()
    story.on(ev.SyncAnswered(story.the(act.SendSync).token, ErrorCode.REBALANCE_IN_PROGRESS))
    assert story.the(act.SendJoin).member_id == "me"


def test_an_old_generation_loses_everything_and_joins_again_under_its_id() -> None:
    story = Story(COOPERATIVE).stable(0)
    story.heartbeat(ErrorCode.ILLEGAL_GENERATION)
    lost = story.the(act.Lost)
    assert (lost.partitions, lost.cause) == (t(0), Cause.MEMBER_FENCED)
    story.on(ev.Revoked(lost.token))
    assert story.the(act.SendJoin).member_id == "me"
    assert claims(story.the(act.SendJoin)) == ({}, -1)


def test_a_member_the_group_forgot_joins_as_a_new_one() -> None:
    story = Story(RANGE).stable(0)
    story.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    lost = story.the(act.Lost)
    assert lost.cause is Cause.SESSION_EXPIRED
    story.on(ev.Revoked(lost.token))
    assert story.the(act.SendJoin).member_id == ""


def test_a_member_forgotten_while_it_revokes_has_lost_the_rest() -> None:
    story = Story(COOPERATIVE).stable(0, 1)
    story.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    story.joined(generation=2)
    story.synced(0)
    revoke = story.the(act.Revoke)
    story.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    story.on(ev.Revoked(revoke.token))
    assert story.the(act.Lost).partitions == t(0)
    assert not story.has(act.Assign)


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_INSTANCE_ID, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.GROUP_MAX_SIZE_REACHED]
)
def test_some_refusals_end_the_membership(code: ErrorCode) -> None:
    story = Story()
    join = story.start()
    story.on(ev.JoinAnswered(join.token, code, "no"))
    assert story.the(act.Fail) == act.Fail(code, "no")
    assert story.on(ev.TimerExpired()) == []


def test_a_fenced_static_member_loses_its_partitions_and_fails() -> None:
    story = Story(instance="i").stable(3)
    story.heartbeat(ErrorCode.FENCED_INSTANCE_ID)
    assert story.the(act.Lost).partitions == t(3)
    assert story.the(act.Fail).code is ErrorCode.FENCED_INSTANCE_ID
    assert story.on(ev.Close()) == [act.Closed()]


def test_stale_answers_change_nothing() -> None:
    story = Story()
    old = story.start()
    story.on(ev.RequestFailed(old.token, retriable=True))
    assert story.on(ev.JoinAnswered(old.token, generation=9, member_id="me", leader="x"))[:-1] == []
    assert story.member.generation == -1


def test_a_parked_sync_is_abandoned_when_the_group_forgot_the_member() -> None:
    story = Story()
    story.start()
    story.joined()
    sync = story.the(act.SendSync)
    story.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert act.Abandon(sync.token) in story.asked
    assert story.the(act.SendJoin).member_id == ""


def test_a_refused_commit_says_as_much_as_a_refused_heartbeat() -> None:
    story = Story().stable(0)
    story.on(ev.CommitRefused(ErrorCode.UNKNOWN_MEMBER_ID, "", generation=1))
    assert story.the(act.Lost).partitions == t(0)


def test_a_refused_commit_of_an_older_generation_says_nothing() -> None:
    story = Story().stable(0)
    story.on(ev.CommitRefused(ErrorCode.UNKNOWN_MEMBER_ID, "", generation=0))
    assert not story.has(act.Lost)


def test_a_commit_that_crossed_the_end_of_a_join_phase_says_nothing() -> None:
    story = Story(COOPERATIVE).stable(0)
    story.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    join = story.the(act.SendJoin)
    story.on(ev.CommitRefused(ErrorCode.ILLEGAL_GENERATION, "", generation=1))
    story.asked = [join]
    story.joined(generation=2)
    story.synced(0)
    assert story.member.owned == set(t(0))
    assert not story.has(act.Lost)


def test_a_commit_refused_for_its_own_sake_does_not_end_the_membership() -> None:
    story = Story().stable(0)
    story.on(ev.CommitRefused(ErrorCode.OFFSET_METADATA_TOO_LARGE, "", generation=1))
    assert story.member.state is MembershipState.STABLE


# Liveness


def test_a_heartbeat_is_not_sent_while_one_is_unanswered() -> None:
    story = Story().stable()
    story.wait(3_000)
    assert story.has(act.SendHeartbeat)
    story.wait(3_000)
    assert not story.has(act.SendHeartbeat)


def test_a_silent_coordinator_is_looked_for_again_after_a_session() -> None:
    story = Story().stable(0)
    story.wait(3_000)
    beat = story.the(act.SendHeartbeat)
    story.wait(7_000)
    assert act.Abandon(beat.token) in story.asked
    story.on(ev.Revoked(story.the(act.Lost).token))
    story.on(ev.CoordinatorFound(story.the(act.FindCoordinator).token))
    assert story.the(act.SendJoin).member_id == "me"


def test_a_coordinator_that_moved_is_followed_without_a_rebalance() -> None:
    story = Story().stable(0)
    story.heartbeat(ErrorCode.NOT_COORDINATOR)
    story.wait(100)
    story.on(ev.CoordinatorFound(story.the(act.FindCoordinator).token))
    assert story.has(act.SendHeartbeat)
    assert story.member.owned == set(t(0))


def test_an_application_that_stops_polling_leaves_and_comes_back_as_new() -> None:
    story = Story().stable(0)
    story.on(ev.PollExpired())
    assert story.the(act.SendLeave).reason == "consumer poll timeout has expired."
    lost = story.the(act.Lost)
    assert lost.cause is Cause.POLL_TIMEOUT
    assert story.wait(60_000) == []
    story.on(ev.PollResumed())
    assert not story.has(act.SendJoin)
    story.on(ev.Revoked(lost.token))
    assert story.the(act.SendJoin).member_id == ""


def test_a_static_member_that_stops_polling_does_not_leave() -> None:
    story = Story(instance="i").stable(0)
    story.on(ev.PollExpired())
    assert not story.has(act.SendLeave)
    assert story.has(act.Lost)


def test_a_parked_join_is_abandoned_when_the_application_stops_polling() -> None:
    story = Story(COOPERATIVE).stable(0)
    story.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    join = story.the(act.SendJoin)
    story.on(ev.PollExpired())
    assert act.Abandon(join.token) in story.asked


# The end


def test_closing_revokes_then_leaves() -> None:
    story = Story().stable(0)
    story.on(ev.Close())
    revoke = story.the(act.Revoke)
    assert not story.has(act.SendLeave)
    story.on(ev.Revoked(revoke.token))
    assert story.the(act.SendLeave) == act.SendLeave("me", "the consumer is being closed")
    assert story.has(act.Closed)
    assert story.on(ev.TimerExpired()) == []


def test_closing_during_a_rebalance_loses() -> None:
    story = Story(COOPERATIVE).stable(0)
    story.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    join = story.the(act.SendJoin)
    story.on(ev.Close())
    assert act.Abandon(join.token) in story.asked
    assert story.the(act.Lost).partitions == t(0)


def test_a_static_member_does_not_leave_when_it_closes() -> None:
    story = Story(instance="i").stable()
    story.on(ev.Close())
    assert not story.has(act.SendLeave)
    assert story.has(act.Closed)


@pytest.mark.parametrize(
    ("instance", "leaving", "leaves"), [("i", LeavePolicy.LEAVE, True), (None, LeavePolicy.REMAIN, False)]
)
def test_closing_can_be_told_to_leave_or_to_remain(instance: str | None, leaving: LeavePolicy, leaves: bool) -> None:
    story = Story(instance=instance).stable()
    story.on(ev.Close(leaving))
    assert story.has(act.SendLeave) is leaves


def test_a_member_that_never_started_closes_silently() -> None:
    assert Story().on(ev.Close()) == [act.Closed()]


def test_reasons_are_cut_to_255_characters() -> None:
    story = Story().stable()
    story.on(ev.SubscriptionChanged(tuple(f"topic-with-a-long-name-{n}" for n in range(40))))
    assert len(story.the(act.SendJoin).reason) == 255


def test_every_state_can_be_left_except_closed() -> None:
    assert set(MOVES) == set(MembershipState)
    assert [state for state, targets in MOVES.items() if not targets] == [MembershipState.CLOSED]


# A coordinator that cannot be reached for a whole session (CL-K4)


def unreachable(story: Story) -> None:
    """The heartbeat that was sent last is not answered, and nobody else is found."""
    story.on(ev.RequestFailed(story.the(act.SendHeartbeat).token, retriable=True))


@pytest.mark.parametrize("assignor", [RANGE, COOPERATIVE], ids=["eager", "cooperative"])
def test_k4_a_member_works_on_until_a_session_after_the_sending_of_the_last_answered_heartbeat(assignor: Named) -> None:
    story = Story(assignor).stable(0)
    story.heartbeat(ErrorCode.NONE)  # sent and answered 3 s after it joined
    story.wait(3_000)
    unreachable(story)
    story.wait(6_999)
    assert story.member.owned == set(t(0))
    assert story.the(act.WakeMemberAt).at_ms == 13_000
    story.wait(1)
    lost = story.the(act.Lost)
    assert (lost.partitions, lost.cause, lost.detail) == (
        t(0),
        Cause.SESSION_EXPIRED,
        "no heartbeat was answered for 10000 ms (session.timeout.ms)",
    )
    story.on(ev.Revoked(lost.token))
    find = story.the_last(act.FindCoordinator)
    story.on(ev.CoordinatorFound(find.token))
    assert story.the(act.SendJoin).member_id == "me"
    assert claims(story.the(act.SendJoin)) == ({}, -1)


def test_k4_who_finds_the_coordinator_in_time_goes_on_as_it_was() -> None:
    story = Story().stable(0)
    story.wait(3_000)
    unreachable(story)
    story.wait(6_900)
    story.on(ev.CoordinatorFound(story.the(act.FindCoordinator).token))
    story.on(ev.ClassicHeartbeatAnswered(story.the(act.SendHeartbeat).token))
    story.wait(9_000)
    assert (story.member.owned, story.member.generation) == (set(t(0)), 1)


def test_k4_an_answer_counts_from_when_its_question_left() -> None:
    """Frozen between the two, the member has been given up long ago, whatever the answer says."""
    story = Story().stable(0)
    story.wait(3_000)
    token = story.the(act.SendHeartbeat).token
    story.now_ms += 10_000
    story.on(ev.ClassicHeartbeatAnswered(token))
    assert story.the(act.Lost).partitions == t(0)


@pytest.mark.parametrize("loads", [True, False])
def test_k4_only_a_coordinator_keeps_members_alive(loads: bool) -> None:
    """One that loads its groups gives everybody a whole session once it has them."""
    story = Story().stable(0)
    story.heartbeat(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loads else ErrorCode.NOT_COORDINATOR)
    story.wait(9_999 if loads else 6_999)
    assert story.member.owned == set(t(0))
    story.wait(1)
    assert story.member.owned == set()


def test_k4_what_is_kept_through_a_join_is_lost_a_session_after_the_first_that_failed() -> None:
    """The join was held for long, which kept the member alive; that ends with the connection, once."""
    story = Story(COOPERATIVE).stable(0)
    story.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    story.wait(60_000)
    assert story.member.owned == set(t(0))
    story.on(ev.RequestFailed(story.the_last(act.SendJoin).token, retriable=True))
    story.wait(100)
    story.on(ev.CoordinatorFound(story.the(act.FindCoordinator).token))
    story.wait(5_000)
    story.on(ev.RequestFailed(story.the_last(act.SendJoin).token, retriable=True))
    story.wait(4_899)
    assert story.member.owned == set(t(0))
    story.wait(1)
    assert story.the(act.Lost).partitions == t(0)
