"""The KIP-848 member as stories: what happens to it, and what it asks for. One group, a virtual clock."""

from typing import TypeVar

import pytest

from coordinator.core.types import Cause
from coordinator.errors import ErrorCode
from coordinator.member import actions as act
from coordinator.member import events as ev
from coordinator.member.consumer import ConsumerMember, Wish
from coordinator.member.consumer_states import MOVES
from coordinator.member.states import State
from coordinator.member.types import Leaving, MemberSettings, Partitions

A = TypeVar("A")
FIVE_SECONDS = 5_000


def t(*partitions: int) -> Partitions:
    return tuple(("t", partition) for partition in partitions)


class Story:
    """Drives one member by hand and keeps what it asked for last."""

    def __init__(self, wish: Wish | None = None, instance: str | None = None) -> None:
        settings = MemberSettings("g", "app", instance, session_timeout_ms=10_000, rebalance_timeout_ms=60_000)
        self.member = ConsumerMember(settings, "me", wish or Wish(("t",)))
        self.now_ms = 0
        self.asked: list[act.Action] = []

    def on(self, event: ev.ConsumerEvent) -> list[act.Action]:
        self.asked = self.member.step(event, self.now_ms)
        return self.asked

    def wait(self, ms: int) -> list[act.Action]:
        self.now_ms += ms
        return self.on(ev.Tick())

    def the(self, kind: type[A]) -> A:
        found = [action for action in self.asked if isinstance(action, kind)]
        assert len(found) == 1, f"expected one {kind.__name__} in {self.asked}"
        return found[0]

    def has(self, kind: type[act.Action]) -> bool:
        return any(isinstance(action, kind) for action in self.asked)

    @property
    def said(self) -> act.SendConsumerHeartbeat:
        return self.the(act.SendConsumerHeartbeat)

    def start(self) -> act.SendConsumerHeartbeat:
        self.on(ev.Start())
        self.on(ev.CoordinatorFound(self.the(act.FindCoordinator).token))
        return self.said

    def hears(self, epoch: int, assignment: Partitions | None = None) -> None:
        """The heartbeat that was just sent is answered."""
        self.on(answer(self.said.token, epoch, assignment))

    def refused(self, code: ErrorCode) -> None:
        self.on(ev.ConsumerHeartbeatAnswered(self.said.token, code, "because"))

    def pushed(self, epoch: int, assignment: Partitions | None = None) -> None:
        self.on(ev.ConsumerPushed(answer(0, epoch, assignment)))

    def stable(self, *partitions: int, epoch: int = 1) -> "Story":
        """Joined, with these partitions, and everything said."""
        self.start()
        self.hears(epoch, t(*partitions))
        if partitions:
            self.hears(epoch)
        assert (self.member.state, self.member.owned) == (State.STABLE, set(t(*partitions)))
        return self


def answer(token: int, epoch: int, assignment: Partitions | None = None) -> ev.ConsumerHeartbeatAnswered:
    return ev.ConsumerHeartbeatAnswered(token, epoch=epoch, heartbeat_interval_ms=FIVE_SECONDS, assignment=assignment)


# Joining and saying only what is new


def test_the_first_heartbeat_joins_and_says_everything() -> None:
    story = Story(Wish(("t",), "u.*", "range"))
    assert story.start() == act.SendConsumerHeartbeat(2, "me", 0, 60_000, ("t",), "u.*", "range", ())
    assert not story.member.owned


def test_without_a_regex_or_an_assignor_none_is_mentioned() -> None:
    joined = Story().start()
    assert (joined.regex, joined.server_assignor) == (None, None)


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
    story = Story(Wish(("t",), "u.*")).stable(0)
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
    story = Story().stable(0, 1)
    story.wait(FIVE_SECONDS)
    story.hears(1, t(0))
    revoke = story.the(act.Revoke)
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
    story = Story().stable(0, 1)
    story.wait(FIVE_SECONDS)
    story.hears(1, t(0))
    revoke = story.the(act.Revoke)
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
    story = Story().stable(0, 1)
    story.wait(FIVE_SECONDS)
    story.hears(1, t(0))
    revoke = story.the(act.Revoke)
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
    assert story.member.state is State.FAILED


def test_an_instance_whose_former_process_is_still_known_is_waited_for() -> None:
    story = Story(instance="i")
    story.start()
    story.refused(ErrorCode.UNRELEASED_INSTANCE_ID)
    tries = 0
    while not story.has(act.Fail):
        story.wait(story.the(act.WakeAt).at_ms - story.now_ms)
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
    assert story.said == act.SendConsumerHeartbeat(6, "me", 1, 60_000, ("t",), None, None, t(0))


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
    story.on(ev.ConsumerPushed(ev.ConsumerHeartbeatAnswered(0, ErrorCode.FENCED_MEMBER_EPOCH)))
    assert story.the(act.Lost).partitions == t(0)


def test_nothing_can_be_pushed_to_whoever_joins() -> None:
    story = Story()
    story.start()
    story.pushed(5, t(0))
    assert (story.member.generation, story.asked) == (-1, [act.WakeAt(10_000)])


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


# Polling


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_an_application_that_does_not_poll_leaves_until_it_polls_again(instance: str | None, epoch: int) -> None:
    story = Story(instance=instance).stable(0)
    story.on(ev.PollExpired())
    assert story.the(act.LeaveConsumerGroup).epoch == epoch
    lost = story.the(act.Lost)
    assert lost.cause is Cause.POLL_TIMEOUT
    story.on(ev.Polled())
    assert not story.has(act.SendConsumerHeartbeat)
    story.on(ev.Revoked(lost.token))
    assert story.said.epoch == 0


def test_polling_again_after_the_callbacks_joins_at_once() -> None:
    story = Story().stable(0)
    story.on(ev.PollExpired())
    story.on(ev.Revoked(story.the(act.Lost).token))
    assert not story.has(act.SendConsumerHeartbeat)
    story.on(ev.Polled())
    assert story.said.epoch == 0


# The end


@pytest.mark.parametrize(
    ("instance", "how", "epoch"),
    [
        (None, Leaving.DEFAULT, -1),
        (None, Leaving.LEAVE, -1),
        (None, Leaving.REMAIN, None),
        ("i", Leaving.DEFAULT, -2),
        ("i", Leaving.LEAVE, -1),
        ("i", Leaving.REMAIN, -2),
    ],
)
def test_a_closing_member_lets_go_and_leaves(instance: str | None, how: Leaving, epoch: int | None) -> None:
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
    assert set(MOVES) == set(State) - {State.PLANNING, State.SYNCING}
    assert set().union(*MOVES.values()) <= set(MOVES)
