"""The KIP-848 member in trouble: fenced, refused, unheard, not polled. One group, a virtual clock."""

import pytest

from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.consumer_member import RequestedSubscription
from muster.client.members.member_types import MembershipState
from muster.coordinator.core.model.types import Cause
from muster.coordinator.errors import ErrorCode
from tests.support.stories.consumer_story import FIVE_SECONDS, Story, answer
from tests.support.stories.member_story import t

# Fenced


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (ErrorCode.FENCED_MEMBER_EPOCH, Cause.MEMBER_FENCED),
        (ErrorCode.UNKNOWN_MEMBER_ID, Cause.SESSION_EXPIRED),
        (ErrorCode.GROUP_ID_NOT_FOUND, Cause.MEMBER_FENCED),
    ],
)
def test_a_fenced_member_loses_everything_and_rejoins_under_the_same_id(code: ErrorCode, cause: Cause) -> None:
    story = Story().stable(0, 1)
    story.wait(FIVE_SECONDS)
    story.refused(code)
    lost = story.the(act.Lost)
    assert (lost.partitions, lost.cause) == (t(0, 1), cause)
    assert story.member.generation == -1
    story.on(ev.Revoked(lost.token))
    assert (story.said.member_id, story.said.epoch, story.said.owned) == ("me", 0, ())
    assert story.said.topics == ("t",)


def test_a_fenced_member_without_partitions_rejoins_at_once() -> None:
    story = Story().stable()
    story.wait(FIVE_SECONDS)
    story.refused(ErrorCode.FENCED_MEMBER_EPOCH)
    assert story.said.epoch == 0


def test_fenced_during_callbacks_the_rest_is_lost_and_the_old_callback_is_stale() -> None:
    story = Story()
    revoke = story.revoking()
    story.wait(FIVE_SECONDS)
    story.refused(ErrorCode.FENCED_MEMBER_EPOCH)
    lost = story.the(act.Lost)
    assert lost.partitions == t(0)
    story.on(ev.Revoked(revoke.token))
    assert not story.has(act.SendConsumerHeartbeat)
    story.on(ev.Revoked(lost.token))
    assert story.said.epoch == 0


def test_a_classic_group_that_cannot_be_converted_is_an_error() -> None:
    story = Story()
    story.start()
    story.refused(ErrorCode.GROUP_ID_NOT_FOUND)
    assert story.the(act.Fail).code is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    "code", [ErrorCode.UNSUPPORTED_ASSIGNOR, ErrorCode.INVALID_REGULAR_EXPRESSION, ErrorCode.FENCED_INSTANCE_ID]
)
def test_what_trying_again_cannot_help_ends_the_membership(code: ErrorCode) -> None:
    story = Story().stable(0)
    story.wait(FIVE_SECONDS)
    story.refused(code)
    assert story.the(act.Lost).partitions == t(0)
    assert (story.the(act.Fail).code, story.the(act.Fail).message) == (code, "because")
    assert story.member.state is MembershipState.FAILED


def test_an_instance_whose_former_process_is_still_known_is_waited_for() -> None:
    story = Story(instance="i")
    story.start()
    story.refused(ErrorCode.UNRELEASED_INSTANCE_ID)
    tries = 0
    while not story.has(act.Fail):
        story.wait(story.the(act.WakeMemberAt).at_ms - story.now_ms)
        assert story.said.epoch == 0
        story.refused(ErrorCode.UNRELEASED_INSTANCE_ID)
        tries += 1
    assert tries > 5
    assert 10_000 < story.now_ms <= 11_000
    assert story.the(act.Fail).code is ErrorCode.UNRELEASED_INSTANCE_ID


# Lost answers and moving coordinators


def test_after_a_lost_answer_everything_is_said_under_the_epoch_that_is_known() -> None:
    story = Story().stable(0)
    story.wait(FIVE_SECONDS)
    story.on(ev.RequestFailed(story.said.token, True))
    story.wait(100)
    story.on(ev.CoordinatorFound(story.the(act.FindCoordinator).token))
    assert story.said == act.SendConsumerHeartbeat(6, "me", 1, 60_000, ("t",), "", None, t(0))


def test_an_expression_that_was_given_up_meanwhile_is_taken_back_after_a_lost_answer() -> None:
    """Nobody knows whether the coordinator has it: leaving it out would mean that it stays."""
    story = Story(RequestedSubscription(regex="t.*")).stable(0)
    story.wait(FIVE_SECONDS)
    story.on(ev.RequestFailed(story.said.token, True))
    story.on(ev.SubscriptionChanged(("t",), ""))
    story.wait(100)
    story.on(ev.CoordinatorFound(story.the(act.FindCoordinator).token))
    assert (story.said.topics, story.said.regex) == (("t",), "")


def test_a_coordinator_that_moved_is_looked_up_again() -> None:
    story = Story().stable(0)
    story.wait(FIVE_SECONDS)
    story.refused(ErrorCode.NOT_COORDINATOR)
    story.wait(100)
    assert story.has(act.FindCoordinator)
    assert story.member.owned == set(t(0))


def test_a_loading_coordinator_is_asked_again_without_looking_it_up() -> None:
    story = Story()
    story.start()
    story.refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    story.wait(100)
    assert story.said.epoch == 0


def test_a_coordinator_that_is_silent_for_a_session_is_given_up() -> None:
    story = Story().stable(0)
    story.wait(FIVE_SECONDS)
    late = story.said
    story.wait(10_000)
    assert story.the(act.Abandon).token == late.token
    story.on(answer(late.token, 9, ()))
    assert story.member.generation == 1


def test_a_transport_that_refuses_for_good_is_an_error() -> None:
    story = Story()
    story.on(ev.RequestFailed(story.start().token, False, "no such method"))
    assert story.the(act.Fail).message == "no such method"


# Commits


def test_a_stale_epoch_makes_the_member_ask_and_leaves_it_who_it_is() -> None:
    story = Story().stable(0)
    story.on(ev.CommitRefused(ErrorCode.STALE_MEMBER_EPOCH, "", 1))
    assert (story.said.epoch, story.said.owned) == (1, t(0))
    story.hears(2, t(0))
    assert (story.member.member_id, story.member.generation) == ("me", 2)
    assert not story.has(act.Lost)


def test_a_commit_that_finds_the_member_gone_means_what_a_heartbeat_means() -> None:
    story = Story().stable(0)
    story.on(ev.CommitRefused(ErrorCode.UNKNOWN_MEMBER_ID, "", 1))
    assert story.the(act.Lost).partitions == t(0)


def test_a_refusal_of_an_older_epoch_says_nothing() -> None:
    story = Story().stable(0, epoch=3)
    story.on(ev.CommitRefused(ErrorCode.UNKNOWN_MEMBER_ID, "", 2))
    assert not story.has(act.Lost)


# Polling


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_an_application_that_does_not_poll_leaves_until_it_polls_again(instance: str | None, epoch: int) -> None:
    story = Story(instance=instance).stable(0)
    story.on(ev.PollExpired())
    assert story.the(act.LeaveConsumerGroup).epoch == epoch
    lost = story.the(act.Lost)
    assert lost.cause is Cause.POLL_TIMEOUT
    story.on(ev.PollResumed())
    assert not story.has(act.SendConsumerHeartbeat)
    story.on(ev.Revoked(lost.token))
    assert story.said.epoch == 0


def test_polling_again_after_the_callbacks_joins_at_once() -> None:
    story = Story().stable(0)
    story.on(ev.PollExpired())
    story.on(ev.Revoked(story.the(act.Lost).token))
    assert not story.has(act.SendConsumerHeartbeat)
    story.on(ev.PollResumed())
    assert story.said.epoch == 0


# A coordinator that cannot be reached for a whole session (CL-K4)

SESSION_MS = 30_000
"""As the coordinator says."""


def told_a_session(story: Story) -> Story:
    story.start()
    story.on(answer(story.said.token, 1, t(0), SESSION_MS))
    story.on(answer(story.said.token, 1, None, SESSION_MS))
    return story


def test_k4_a_member_works_on_until_a_session_after_the_sending_of_the_last_answered_heartbeat() -> None:
    story = told_a_session(Story())
    story.wait(FIVE_SECONDS)
    story.on(answer(story.said.token, 1, None, SESSION_MS))
    story.wait(FIVE_SECONDS)
    story.on(ev.RequestFailed(story.said.token, retriable=True))
    story.wait(SESSION_MS - FIVE_SECONDS - 1)
    assert story.member.owned == set(t(0))
    story.wait(1)
    lost = story.the(act.Lost)
    assert (lost.partitions, lost.cause, lost.detail) == (
        t(0),
        Cause.SESSION_EXPIRED,
        "no heartbeat was answered for 30000 ms (group.consumer.session.timeout.ms)",
    )
    story.on(ev.Revoked(lost.token))
    story.on(ev.CoordinatorFound(story.the(act.FindCoordinator).token))
    assert (story.said.member_id, story.said.epoch, story.said.owned) == ("me", 0, ())


def test_k4_who_finds_the_coordinator_in_time_goes_on_as_it_was() -> None:
    story = told_a_session(Story())
    story.wait(FIVE_SECONDS)
    story.on(ev.RequestFailed(story.said.token, retriable=True))
    story.wait(SESSION_MS - FIVE_SECONDS - 1)
    story.on(ev.CoordinatorFound(story.the(act.FindCoordinator).token))
    story.on(answer(story.said.token, 1, None, SESSION_MS))
    story.wait(FIVE_SECONDS)
    assert (story.member.owned, story.member.generation) == (set(t(0)), 1)


def test_k4_an_answer_counts_from_when_its_question_left() -> None:
    story = told_a_session(Story())
    story.wait(FIVE_SECONDS)
    token = story.said.token
    story.now_ms += SESSION_MS
    story.on(answer(token, 1, None, SESSION_MS))
    assert story.the(act.Lost).partitions == t(0)


def test_k4_without_a_word_about_its_session_a_member_keeps_what_it_has() -> None:
    """An older coordinator does not say for how long it waits."""
    story = Story().stable(0)
    story.wait(FIVE_SECONDS)
    story.on(ev.RequestFailed(story.said.token, retriable=True))
    story.wait(10 * SESSION_MS)
    assert story.member.owned == set(t(0))
