"""The KIP-848 member as stories: what happens to it, and what it asks for. One group, a virtual clock."""

import dataclasses

import pytest

from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.consumer_member import MOVES, RequestedSubscription
from muster.client.members.member_types import LeavePolicy, MembershipState
from muster.coordinator.errors import ErrorCode
from tests.support.stories.consumer_story import FIVE_SECONDS, Story, answer
from tests.support.stories.member_story import t

# Joining and saying only what is new


def test_the_first_heartbeat_joins_and_says_everything() -> None:
    story = Story(RequestedSubscription(("t",), "u.*", "range"))
    assert story.start() == act.SendConsumerHeartbeat(2, "me", 0, 60_000, ("t",), "u.*", "range", ())
    assert not story.member.owned


def test_who_has_no_expression_says_so_and_mentions_no_assignor() -> None:
    joined = Story().start()
    assert (joined.regex, joined.server_assignor) == ("", None)


def test_an_assignment_is_taken_and_acknowledged_at_once() -> None:
    story = Story()
    story.start()
    story.hears(1, t(0, 1))
    told = story.the(act.Assign)
    assert (told.added, told.partitions, told.generation) == (t(0, 1), t(0, 1), 1)
    assert story.said == act.SendConsumerHeartbeat(3, "me", 1, owned=t(0, 1))


def test_a_heartbeat_without_news_is_bare_and_comes_when_the_coordinator_wishes() -> None:
    story = Story().stable(0)
    story.wait(FIVE_SECONDS - 1)
    assert not story.has(act.SendConsumerHeartbeat)
    story.wait(1)
    assert story.said == act.SendConsumerHeartbeat(4, "me", 1)


def test_no_heartbeat_while_one_is_under_way() -> None:
    story = Story().stable(0)
    story.wait(FIVE_SECONDS)
    story.wait(4_000)
    assert not story.has(act.SendConsumerHeartbeat)


def test_joining_with_nothing_to_own_is_said_to_nobody() -> None:
    story = Story()
    story.start()
    story.hears(1, ())
    assert not story.has(act.Assign)
    assert not story.has(act.SendConsumerHeartbeat)


def test_an_answer_without_assignment_changes_nothing() -> None:
    story = Story().stable(0)
    story.wait(FIVE_SECONDS)
    story.hears(2)
    assert (story.member.owned, story.member.generation) == (set(t(0)), 2)
    assert not story.has(act.Assign)


def test_a_changed_subscription_is_said_at_once_and_only_that() -> None:
    story = Story(RequestedSubscription(("t",), "u.*")).stable(0)
    story.on(ev.SubscriptionChanged(("s", "t"), ""))
    assert story.said == act.SendConsumerHeartbeat(4, "me", 1, topics=("s", "t"), regex="")


def test_what_changes_while_a_heartbeat_is_under_way_follows_it() -> None:
    story = Story().stable(0)
    story.wait(FIVE_SECONDS)
    first = story.said
    story.on(ev.SubscriptionChanged(("s",)))
    assert not story.has(act.SendConsumerHeartbeat)
    story.on(answer(first.token, 1))
    assert story.said.topics == ("s",)


# Letting go


def test_partitions_are_let_go_before_their_loss_is_acknowledged() -> None:
    story = Story().stable(0, 1, 2)
    story.wait(FIVE_SECONDS)
    story.hears(1, t(0))
    revoke = story.the(act.Revoke)
    assert (revoke.partitions, revoke.deadline_ms) == (t(1, 2), story.now_ms + 60_000)
    assert not story.has(act.SendConsumerHeartbeat)
    assert story.member.owned == set(t(0))
    story.on(ev.Revoked(revoke.token))
    assert story.said.owned == t(0)


def test_heartbeats_go_on_during_callbacks_and_do_not_acknowledge() -> None:
    story = Story().stable(0, 1)
    story.wait(FIVE_SECONDS)
    story.hears(1, t(0))
    story.wait(FIVE_SECONDS)
    assert story.said == act.SendConsumerHeartbeat(6, "me", 1)


def test_after_a_lost_answer_the_callbacks_still_hold_what_they_are_about() -> None:
    story = Story()
    revoke = story.revoking()
    story.wait(FIVE_SECONDS)
    story.on(ev.RequestFailed(story.said.token, True))
    story.wait(100)
    story.on(ev.CoordinatorFound(story.the(act.FindCoordinator).token))
    assert story.said.owned == t(0, 1)
    token = story.said.token
    story.on(ev.Revoked(revoke.token))
    story.on(answer(token, 1, t(0)))
    assert story.said.owned == t(0)


def test_only_the_latest_word_counts_after_callbacks() -> None:
    story = Story()
    revoke = story.revoking()
    story.pushed(1, t(0, 5))
    story.pushed(2, t(0, 7))
    story.on(ev.Revoked(revoke.token))
    assert story.the(act.Assign).added == t(7)


def test_one_word_may_take_and_give() -> None:
    story = Story().stable(0)
    story.wait(FIVE_SECONDS)
    story.hears(2, t(1))
    revoke = story.the(act.Revoke)
    assert not story.has(act.Assign)
    story.on(ev.Revoked(revoke.token))
    assert story.the(act.Assign).added == t(1)
    assert story.said.owned == t(1)


# Pushed


def test_a_pushed_assignment_is_taken_and_acknowledged_by_saying_everything() -> None:
    story = Story().stable(0)
    story.pushed(2, t(0, 1))
    assert story.the(act.Assign).added == t(1)
    assert (story.said.epoch, story.said.owned, story.said.topics) == (2, t(0, 1), ("t",))


def test_a_pushed_epoch_alone_is_acknowledged_too() -> None:
    story = Story().stable(0)
    story.pushed(2)
    assert (story.said.epoch, story.said.owned) == (2, t(0))


def test_a_heartbeat_that_crossed_a_push_is_not_waited_for() -> None:
    story = Story().stable(0)
    story.wait(FIVE_SECONDS)
    crossed = story.said
    story.pushed(2, t(0, 1))
    assert story.the(act.Abandon).token == crossed.token
    story.on(answer(crossed.token, 1))
    assert story.member.generation == 2


def test_a_pushed_fence_is_a_fence() -> None:
    story = Story().stable(0)
    story.on(ev.ConsumerHeartbeatPushed(ev.ConsumerHeartbeatAnswered(0, ErrorCode.FENCED_MEMBER_EPOCH)))
    assert story.the(act.Lost).partitions == t(0)


def test_nothing_can_be_pushed_to_whoever_joins() -> None:
    story = Story()
    story.start()
    story.pushed(5, t(0))
    assert (story.member.generation, story.asked) == (-1, [act.WakeMemberAt(10_000)])


def test_on_a_new_stream_everything_is_said_so_that_the_coordinator_knows_to_whom_it_may_speak() -> None:
    story = Story().stable(0)
    story.on(ev.SessionOpened())
    assert (story.said.topics, story.said.owned) == (("t",), t(0))


def test_a_heartbeat_that_went_another_way_is_followed_by_one_on_the_stream() -> None:
    story = Story().stable(0)
    story.wait(FIVE_SECONDS)
    by_call = story.said
    story.on(ev.SessionOpened())
    assert not story.has(act.SendConsumerHeartbeat)
    story.on(answer(by_call.token, 1))
    assert (story.said.topics, story.said.owned) == (("t",), t(0))
    story.hears(1, t(0))
    assert not story.has(act.SendConsumerHeartbeat)


def test_who_has_lost_its_stream_speaks_soon() -> None:
    """Nobody tells it of a rebalance by itself any more."""
    story = Story().stable(0)
    story.on(ev.SessionOpened())
    story.on(dataclasses.replace(answer(story.said.token, 1), heartbeat_interval_ms=15_000))
    story.wait(14_999)
    assert not story.has(act.SendConsumerHeartbeat)
    story.on(ev.SessionLost())
    story.wait(1)
    assert story.has(act.SendConsumerHeartbeat)
    story.on(ev.RequestFailed(story.said.token, retriable=True, detail=""))


def test_members_of_a_stream_beat_in_step() -> None:
    story = Story().stable(0)
    story.on(ev.SessionOpened(in_step_ms=story.now_ms - 14_000))
    story.on(dataclasses.replace(answer(story.said.token, 1), heartbeat_interval_ms=15_000))
    story.wait(999)
    assert not story.has(act.SendConsumerHeartbeat)
    story.wait(1)
    assert story.has(act.SendConsumerHeartbeat)


def test_a_lost_stream_brings_a_heartbeat_that_is_far_off_near() -> None:
    story = Story().stable(0)
    story.on(ev.SessionOpened())
    story.on(dataclasses.replace(answer(story.said.token, 1), heartbeat_interval_ms=15_000))
    story.on(ev.SessionLost())
    story.wait(3_000)
    assert story.has(act.SendConsumerHeartbeat)


# The end


@pytest.mark.parametrize(
    ("instance", "how", "epoch"),
    [
        (None, LeavePolicy.DEFAULT, -1),
        (None, LeavePolicy.LEAVE, -1),
        (None, LeavePolicy.REMAIN, None),
        ("i", LeavePolicy.DEFAULT, -2),
        ("i", LeavePolicy.LEAVE, -1),
        ("i", LeavePolicy.REMAIN, -2),
    ],
)
def test_a_closing_member_lets_go_and_leaves(instance: str | None, how: LeavePolicy, epoch: int | None) -> None:
    story = Story(instance=instance).stable(0)
    story.on(ev.Close(how))
    revoke = story.the(act.Revoke)
    assert not story.has(act.LeaveConsumerGroup)
    story.on(ev.Revoked(revoke.token))
    assert story.has(act.Closed)
    if epoch is None:
        assert not story.has(act.LeaveConsumerGroup)
    else:
        assert story.the(act.LeaveConsumerGroup).epoch == epoch


def test_a_member_whose_join_may_have_been_heard_leaves() -> None:
    story = Story()
    story.start()
    story.on(ev.Close())
    assert story.the(act.LeaveConsumerGroup).epoch == -1


def test_a_member_that_never_spoke_just_ends() -> None:
    story = Story()
    assert story.on(ev.Close()) == [act.Closed()]
    assert story.on(ev.Start()) == []


def test_fenced_while_it_closes_it_leaves_nobody() -> None:
    story = Story().stable(0)
    story.wait(FIVE_SECONDS)
    token = story.said.token
    story.on(ev.Close())
    revoke = story.the(act.Revoke)
    story.on(ev.ConsumerHeartbeatAnswered(token, ErrorCode.UNKNOWN_MEMBER_ID))
    story.on(ev.Revoked(revoke.token))
    assert not story.has(act.LeaveConsumerGroup)
    assert story.has(act.Closed)


def test_every_state_has_its_moves() -> None:
    assert set(MOVES) == set(MembershipState) - {MembershipState.PLANNING, MembershipState.SYNCING}
    assert set().union(*MOVES.values()) <= set(MOVES)
