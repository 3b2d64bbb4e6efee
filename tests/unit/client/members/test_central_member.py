"""The member of a central group, order by order: what it does when it is told, and when it hears nothing."""

from collections.abc import Sequence

import pytest

from muster.client.members import actions as act
from muster.client.members import central_events as ce
from muster.client.members import events as ev
from muster.client.members.central_member import MEANINGS, MOVES, CentralMemberMachine
from muster.client.members.consumer_member import RequestedSubscription
from muster.client.members.member_types import LeavePolicy, MemberSettings, MembershipState
from muster.coordinator.core.model.effects import Ping, RebalanceFailed, StartFetcher, StopFetcher
from muster.coordinator.core.model.types import Cause
from muster.coordinator.errors import ErrorCode

T0, T1 = ("t", 0), ("t", 1)
SESSION_MS = 6_000


class Bench:
    """A member, its clock, and what it asked for last."""

    def __init__(self) -> None:
        settings = MemberSettings("g", "c", session_timeout_ms=SESSION_MS, retry_backoff_ms=100)
        self.member = CentralMemberMachine(settings, "m", RequestedSubscription(("t",), "", "range"))
        self.now_ms = 1_000
        self.done: list[ce.CentralAction] = []
        self.wake_ms: int | None = None

    def tell(self, event: ce.CentralEvent, after_ms: int = 0) -> list[ce.CentralAction]:
        """What it asks for, but for being woken."""
        self.now_ms += after_ms
        out = self.member.step(event, self.now_ms)
        self.wake_ms = next((action.at_ms for action in out if isinstance(action, act.WakeMemberAt)), None)
        self.done = [action for action in out if not isinstance(action, act.WakeMemberAt)]
        return self.done

    def order(self, order: object, answered: int = 0, after_ms: int = 0) -> list[ce.CentralAction]:
        return self.tell(ce.OrderReceived(order, answered), after_ms)  # type: ignore[arg-type]

    def token(self) -> int:
        (asked,) = [action for action in self.done if hasattr(action, "token")]
        return int(asked.token)

    def registered(self) -> "Bench":
        self.tell(ev.Start())
        self.tell(ev.CoordinatorFound(self.token()))
        self.tell(ce.MemberRegistered(self.token()))
        assert self.member.state is MembershipState.STABLE
        return self

    def started(self, *share: tuple[str, int]) -> "Bench":
        self.registered().order(start(1, 1, share))
        assert self.member.owned == set(share)
        return self


def start(number: int, generation: int, share: Sequence[tuple[str, int]]) -> StartFetcher:
    return StartFetcher(number, generation, tuple((*tp, 5) for tp in share), Cause.MEMBER_JOINED, "b came", 7)


def stop(number: int) -> StopFetcher:
    return StopFetcher(number, Cause.MEMBER_JOINED, "b came", 8)


def test_it_finds_the_coordinator_and_registers_with_nothing() -> None:
    bench = Bench()
    (find,) = bench.tell(ev.Start())
    assert isinstance(find, act.FindCoordinator)
    (register,) = bench.tell(ev.CoordinatorFound(find.token))
    assert register == ce.RegisterMember(2, "m", ("t",), "", "range", -1, ())
    assert bench.tell(ce.MemberRegistered(2)) == []
    assert bench.member.state is MembershipState.STABLE
    assert bench.wake_ms == 1_000 + SESSION_MS


def test_it_starts_and_stops_as_it_is_told() -> None:
    bench = Bench().registered()
    assign, answer = bench.order(start(1, 3, (T0, T1)))
    assert isinstance(assign, act.Assign)
    assert (assign.added, assign.generation, assign.cause) == ((T0, T1), 3, Cause.MEMBER_JOINED)
    assert answer == ce.AnswerStarted(1)
    (revoke,) = bench.order(stop(2))
    assert isinstance(revoke, act.Revoke)
    # Its application has two thirds of a session; until it has let go, commits are still its own.
    assert (revoke.partitions, revoke.deadline_ms, bench.member.generation) == ((T0, T1), bench.now_ms + 4_000, 3)
    assert bench.tell(ev.Revoked(revoke.token)) == [ce.AnswerStopped(2)]
    assert (bench.member.generation, bench.member.owned, bench.member.state) == (-1, set(), MembershipState.STABLE)


def test_who_has_nothing_stops_at_once() -> None:
    assert Bench().registered().order(stop(1)) == [ce.AnswerStopped(1)]


def test_a_second_stop_while_the_application_lets_go_is_the_one_that_is_answered() -> None:
    bench = Bench().started(T0)
    bench.order(stop(2))
    token = bench.token()
    assert bench.order(stop(3)) == []
    assert bench.tell(ev.Revoked(token)) == [ce.AnswerStopped(3)]


def test_a_start_that_comes_too_early_waits_for_the_application() -> None:
    bench = Bench().started(T0)
    bench.order(stop(2))
    token = bench.token()
    assert bench.order(start(3, 1, (T0,))) == []
    stopped, assign, started = bench.tell(ev.Revoked(token))
    assert (stopped, started) == (ce.AnswerStopped(2), ce.AnswerStarted(3))
    assert isinstance(assign, act.Assign)


def test_a_start_that_leaves_something_out_takes_it_away_first() -> None:
    bench = Bench().started(T0, T1)
    (revoke,) = bench.order(start(2, 2, (T0,)))
    assert isinstance(revoke, act.Revoke)
    assert revoke.partitions == (T1,)
    assert bench.tell(ev.Revoked(revoke.token)) == [ce.AnswerStarted(2)]
    assert (bench.member.owned, bench.member.generation) == ({T0}, 2)


def test_the_same_start_again_is_answered_and_changes_nothing() -> None:
    assert Bench().started(T0).order(start(2, 1, (T0,))) == [ce.AnswerStarted(2)]


def test_a_lease_lasts_from_the_last_answer_that_was_heard() -> None:
    bench = Bench().started(T0)
    assert bench.order(Ping(2), answered=1, after_ms=2_000) == [ce.AnswerPing(2)]
    assert bench.wake_ms == 1_000 + SESSION_MS  # the start was answered at once, at 1000
    assert bench.order(Ping(3), answered=1, after_ms=2_000) == [ce.AnswerPing(3)]
    # The answer to #2 has not come through: a coordinator that hears nothing counts from #1.
    assert bench.wake_ms == 1_000 + SESSION_MS
    bench.order(Ping(4), answered=2, after_ms=1_000)
    assert bench.wake_ms == 3_000 + SESSION_MS


def test_when_nothing_comes_through_for_a_session_everything_is_lost() -> None:
    bench = Bench().started(T0)
    close, lost = bench.tell(ev.TimerExpired(), after_ms=SESSION_MS)
    assert close == ce.CloseStream()
    assert isinstance(lost, act.Lost)
    assert (lost.partitions, lost.cause, bench.member.generation) == ((T0,), Cause.SESSION_EXPIRED, -1)
    (find,) = bench.tell(ev.Revoked(lost.token))
    assert isinstance(find, act.FindCoordinator)
    (register,) = bench.tell(ev.CoordinatorFound(find.token))
    assert isinstance(register, ce.RegisterMember)
    assert (register.generation, register.owned) == (-1, ())


def test_a_process_that_was_frozen_looks_at_its_lease_before_anything_else() -> None:
    bench = Bench().started(T0)
    done = bench.order(Ping(2), answered=1, after_ms=SESSION_MS)
    assert [type(action) for action in done] == [ce.CloseStream, act.Lost]


def test_a_broken_stream_is_opened_again_with_what_it_has() -> None:
    bench = Bench().started(T0)
    assert bench.tell(ce.StreamEnded(), after_ms=1_000) == []
    assert (bench.member.owned, bench.wake_ms) == ({T0}, bench.now_ms)
    (find,) = bench.tell(ev.TimerExpired())
    assert isinstance(find, act.FindCoordinator)
    (register,) = bench.tell(ev.CoordinatorFound(find.token))
    assert isinstance(register, ce.RegisterMember)
    assert (register.generation, register.owned) == (1, (T0,))
    bench.tell(ce.MemberRegistered(register.token))
    assert (bench.member.state, bench.member.owned, bench.done) == (MembershipState.STABLE, {T0}, [])


def test_what_the_coordinator_does_not_know_is_given_up() -> None:
    bench = Bench().started(T0)
    bench.tell(ce.StreamEnded())
    bench.tell(ev.TimerExpired())
    bench.tell(ev.CoordinatorFound(bench.token()))
    (lost,) = bench.tell(ce.MemberRegistered(bench.token(), ErrorCode.ILLEGAL_GENERATION, "not yours"))
    assert isinstance(lost, act.Lost)
    assert lost.partitions == (T0,)


def test_a_stream_that_breaks_while_it_lets_go_comes_back_with_nothing() -> None:
    bench = Bench().started(T0)
    bench.order(stop(2))
    token = bench.token()
    assert bench.tell(ce.StreamEnded()) == []
    (find,) = bench.tell(ev.Revoked(token))
    assert isinstance(find, act.FindCoordinator)
    (register,) = bench.tell(ev.CoordinatorFound(find.token))
    assert isinstance(register, ce.RegisterMember)
    assert (register.generation, register.owned) == (-1, ())


def test_a_member_that_was_given_up_loses_everything() -> None:
    bench = Bench().started(T0)
    (lost,) = bench.tell(ce.StreamEnded(ErrorCode.UNKNOWN_MEMBER_ID, "given up"))
    assert isinstance(lost, act.Lost)
    assert lost.detail == "given up"


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_refused_commit_says_the_same(code: ErrorCode) -> None:
    bench = Bench().started(T0)
    assert bench.tell(ev.CommitRefused(code, "no", generation=0)) == []
    close, lost = bench.tell(ev.CommitRefused(code, "no", generation=1))
    assert (close, type(lost)) == (ce.CloseStream(), act.Lost)


@pytest.mark.parametrize(
    ("code", "again_after_ms", "looks"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 100, False),
        (ErrorCode.UNRELEASED_INSTANCE_ID, 100, False),
        (ErrorCode.NOT_COORDINATOR, 100, True),
    ],
)
def test_it_tries_again_when_that_can_help(code: ErrorCode, again_after_ms: int, looks: bool) -> None:
    bench = Bench()
    bench.tell(ev.Start())
    bench.tell(ev.CoordinatorFound(bench.token()))
    assert bench.tell(ce.MemberRegistered(bench.token(), code, "later")) == []
    assert bench.wake_ms == bench.now_ms + again_after_ms
    (again,) = bench.tell(ev.TimerExpired(), after_ms=again_after_ms)
    assert isinstance(again, act.FindCoordinator if looks else ce.RegisterMember)


def test_it_fails_when_that_cannot_help() -> None:
    bench = Bench()
    bench.tell(ev.Start())
    bench.tell(ev.CoordinatorFound(bench.token()))
    (fail,) = bench.tell(ce.MemberRegistered(bench.token(), ErrorCode.INVALID_SESSION_TIMEOUT, "too short"))
    assert fail == act.Fail(ErrorCode.INVALID_SESSION_TIMEOUT, "too short")


def test_a_new_subscription_is_said_on_the_open_stream_one_at_a_time() -> None:
    bench = Bench().started(T0)
    (register,) = bench.tell(ev.SubscriptionChanged(("u",), "v.*"))
    assert isinstance(register, ce.RegisterMember)
    assert (register.topics, register.regex, register.again) == (("u",), "v.*", True)
    assert bench.tell(ev.SubscriptionChanged(("w",))) == []
    (again,) = bench.tell(ce.MemberRegistered(register.token))
    assert isinstance(again, ce.RegisterMember)
    assert (again.topics, again.again) == (("w",), True)
    assert bench.tell(ce.MemberRegistered(again.token)) == []


def test_it_closes_when_its_application_has_let_go() -> None:
    bench = Bench().started(T0)
    (revoke,) = bench.tell(ev.Close())
    assert isinstance(revoke, act.Revoke)
    bye, closed = bench.tell(ev.Revoked(revoke.token))
    assert (type(bye), closed) == (ce.SendDeregister, act.Closed())
    assert bench.tell(ev.TimerExpired()) == []


def test_what_it_lets_go_of_by_itself_carries_the_last_rebalance_that_it_knows() -> None:
    bench = Bench().started(T0)
    (revoke,) = bench.tell(ev.Close())
    assert isinstance(revoke, act.Revoke)
    assert revoke.rebalance_number == 7


def test_one_that_is_to_remain_breaks_off_without_a_word() -> None:
    bench = Bench().started(T0)
    bench.tell(ev.Close(LeavePolicy.REMAIN))
    assert bench.tell(ev.Revoked(bench.token())) == [ce.CloseStream(), act.Closed()]


def test_an_application_that_stops_polling_is_signed_off_and_on_again() -> None:
    bench = Bench().started(T0)
    bye, lost = bench.tell(ev.PollExpired())
    assert bye == ce.SendDeregister("consumer poll timeout has expired.")
    assert isinstance(lost, act.Lost)
    assert bench.tell(ev.PollResumed()) == []
    (register,) = bench.tell(ev.Revoked(lost.token))
    assert isinstance(register, ce.RegisterMember)  # it knows the coordinator still


def test_a_report_is_passed_on() -> None:
    assert Bench().registered().order(RebalanceFailed(1, "all attempts failed")) == [
        ce.LogNotice("all attempts failed")
    ]


def test_every_state_is_told_and_has_its_moves() -> None:
    assert MOVES.keys() == MEANINGS.keys()
    assert MOVES[MembershipState.CLOSED] == frozenset()
    assert all(
        MembershipState.CLOSED in MOVES[state]
        for state in (MembershipState.CLOSING, MembershipState.FAILED, MembershipState.IDLE)
    )


def test_a_late_order_of_a_deposed_coordinator_is_not_obeyed() -> None:
    """It was elected before another one of whom the member has heard: its stream ends, and the other is looked for."""
    bench = Bench()
    bench.tell(ev.Start())
    bench.tell(ev.CoordinatorFound(bench.token()))
    bench.tell(ce.MemberRegistered(bench.token(), coordinator_epoch=5))
    bench.tell(ce.OrderReceived(start(1, 1, [T0]), 0, 5))
    bench.tell(ce.OrderReceived(Ping(2), 0, 6))
    done = bench.tell(ce.OrderReceived(stop(3), 0, 5))
    assert [type(action).__name__ for action in done][:1] == ["CloseStream"]
    assert bench.member.owned == {T0}, "what it fetches is its own as long as its lease runs"
    bench.tell(ev.TimerExpired(), 1)
    bench.tell(ev.CoordinatorFound(bench.token()))
    (register,) = bench.done
    assert isinstance(register, ce.RegisterMember)
    assert (register.coordinator_epoch, register.owned, register.generation) == (6, (T0,), 1)
    # An older node again: it says so by its answer.
    done = bench.tell(ce.MemberRegistered(register.token, coordinator_epoch=5))
    assert [type(action).__name__ for action in done] == ["CloseStream"]
    assert bench.member.state is MembershipState.JOINING
    assert bench.wake_ms is not None
    assert bench.wake_ms > bench.now_ms, "it is not asked again at once"


def test_an_order_without_an_election_is_obeyed() -> None:
    bench = Bench().registered()
    bench.tell(ce.OrderReceived(Ping(1), 0, 5))
    assert bench.tell(ce.OrderReceived(Ping(2), 0, 0)) == [ce.AnswerPing(2)]
