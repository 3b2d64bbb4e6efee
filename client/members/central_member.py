"""The member of a central group (docs/protocol/central.md): a state machine that registers and follows the
coordinator's orders.

`step(event, now_ms)` returns the actions to perform, in order. The member holds a lease: it stops fetching when one
session timeout has passed since it sent the last answer that the coordinator acknowledged. The coordinator counts
from the moment it received that answer, which is later, and reassigns nothing before its own deadline.
"""

from collections.abc import Collection
from typing import assert_never

from muster.assignors.api import TopicPartition
from muster.client.members import actions as act
from muster.client.members import central_events as ce
from muster.client.members import events as ev
from muster.client.members.consumer_member import RequestedSubscription
from muster.client.members.coordinated_member import LEAVE_REASON, POLL_TIMEOUT, CoordinatedMember
from muster.client.members.member_types import (
    FIND_COORDINATOR_AGAIN,
    NO_GENERATION,
    LeavePolicy,
    MemberSettings,
    MembershipState,
    RequestKind,
)
from muster.coordinator.core.model.effects import Ping, RebalanceFailed, StartFetcher, StopFetcher
from muster.coordinator.core.model.types import Cause
from muster.coordinator.errors import ErrorCode

# States and legal moves
# ----------------------

MOVES: dict[MembershipState, frozenset[MembershipState]] = {
    MembershipState.IDLE: frozenset({MembershipState.JOINING, MembershipState.CLOSED}),
    MembershipState.JOINING: frozenset(
        {
            MembershipState.STABLE,
            MembershipState.RELEASING,
            MembershipState.EXPIRED,
            MembershipState.CLOSING,
            MembershipState.FAILED,
        }
    ),
    MembershipState.STABLE: frozenset(
        {
            MembershipState.ADOPTING,
            MembershipState.JOINING,
            MembershipState.RELEASING,
            MembershipState.EXPIRED,
            MembershipState.CLOSING,
            MembershipState.FAILED,
        }
    ),
    MembershipState.ADOPTING: frozenset(
        {
            MembershipState.STABLE,
            MembershipState.RELEASING,
            MembershipState.EXPIRED,
            MembershipState.CLOSING,
            MembershipState.FAILED,
        }
    ),
    MembershipState.RELEASING: frozenset(
        {MembershipState.JOINING, MembershipState.EXPIRED, MembershipState.CLOSING, MembershipState.FAILED}
    ),
    MembershipState.EXPIRED: frozenset({MembershipState.JOINING, MembershipState.RELEASING, MembershipState.CLOSING}),
    MembershipState.CLOSING: frozenset({MembershipState.CLOSED}),
    MembershipState.FAILED: frozenset({MembershipState.CLOSED}),
    MembershipState.CLOSED: frozenset(),
}
"""From each state to those it may become. docs/protocol/central.md is drawn from this table."""

MEANINGS: dict[MembershipState, str] = {
    MembershipState.IDLE: "not started",
    MembershipState.JOINING: "looks for the coordinator, or registers; fetches on while its lease runs",
    MembershipState.STABLE: "registered",
    MembershipState.ADOPTING: "registered; was told to stop, and its application is letting go",
    MembershipState.RELEASING: "lets go before it registers again",
    MembershipState.EXPIRED: "its application stopped polling",
    MembershipState.CLOSING: "lets go before it leaves",
    MembershipState.FAILED: "refused for good",
    MembershipState.CLOSED: "closed",
}

REGISTERED = frozenset({MembershipState.STABLE, MembershipState.ADOPTING})
WORKING = frozenset(
    {MembershipState.JOINING, MembershipState.STABLE, MembershipState.ADOPTING, MembershipState.RELEASING}
)

OUT = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
"""The group went on without this member: what it fetches may be somebody else's."""

TRY_AGAIN = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNRELEASED_INSTANCE_ID})
"""An old stream of this very member may still be open on the other side; it will be given up."""


# The member
# ----------

REGISTRATION = 0
"""The number under which the registration itself counts as an answer."""


class CentralMemberMachine(CoordinatedMember[ce.CentralEvent, ce.CentralAction]):
    """One member of one central group. It keeps `member_id` for life; `generation` is that of its last start order."""

    moves = MOVES

    def __init__(self, settings: MemberSettings, member_id: str, wish: RequestedSubscription) -> None:
        assert member_id, "the edge draws the member id"
        super().__init__(settings, member_id)
        self._wish = wish
        self._said: RequestedSubscription | None = None
        self._streaming = False
        self._answers: dict[int, int] = {}  # number -> when it was answered
        self._lease_from_ms: int | None = None
        self._stop: int | None = None  # the stop order to answer once the callbacks have run
        self._start: StartFetcher | None = None  # came while they were running
        self._epoch = 0  # the latest election that a coordinator has told of; never forgotten

    @property
    def lease_end_ms(self) -> int | None:
        """Nothing is fetched from then on, unless another answer is shown to have been heard."""
        return None if self._lease_from_ms is None else self._lease_from_ms + self.settings.session_timeout_ms

    def _handle_event(self, event: ce.CentralEvent) -> None:
        # First of all: a process that was frozen may have lost everything meanwhile.
        self._check_lease()
        match event:
            case ev.Start():
                if self.state is MembershipState.IDLE:
                    self._join()
            case ce.OrderReceived():
                self._ordered(event)
            case ce.StreamEnded():
                self._stream_ended(event)
            case ev.SubscriptionChanged():
                self._wish = RequestedSubscription(
                    tuple(sorted(set(event.topics))), event.regex, self._wish.server_assignor
                )
                self._say_wish()
            case ev.CommitRefused():
                if event.generation == self.generation and event.code in OUT and self.state in REGISTERED:
                    self._out_of_the_group(Cause.MEMBER_FENCED, event.message)
            case ev.PollExpired():
                self._poll_expired()
            case ev.PollResumed():
                self._polled()
            case ev.Close():
                self._close(event.leaving)
            case ev.TimerExpired():
                self._tick()
            case ev.PartitionCountsChanged():
                pass  # The coordinator watches topics for everybody.
            case _:
                self._take_answer(event)

    def _take_answer(self, event: ce.CentralAnswer) -> None:
        """Answers nobody waits for any more are dropped."""
        if self._requests.answered(event.token) is None:
            return
        match event:
            case ev.CoordinatorFound():
                self._link.found(self._now_ms)
                self._continue_join()
            case ce.MemberRegistered():
                self._registered(event)
            case ev.RequestFailed():
                self._request_failed(event)
            case ev.Revoked():
                self._released()
            case _:
                assert_never(event)

    # Registering

    def _join(self) -> None:
        self._become(MembershipState.JOINING)
        self._link.retry_at_ms = None
        self._continue_join()

    def _continue_join(self) -> None:
        if (
            self.state is not MembershipState.JOINING
            or self._link.retry_at_ms is not None
            or RequestKind.JOIN in self._requests
        ):
            return
        if not self._link.known:
            self._find()
            return
        self._answers = {REGISTRATION: self._now_ms}
        self._register(again=False)

    def _register(self, *, again: bool) -> None:
        self._said = self._wish
        token = self._requests.begin_request(RequestKind.JOIN)
        wish, owned = self._wish, tuple(sorted(self.owned))
        said = (wish.topics, wish.regex, wish.server_assignor, self.generation, owned)
        self._out.append(ce.RegisterMember(token, self.member_id, *said, again=again, coordinator_epoch=self._epoch))

    def _say_wish(self) -> None:
        """On the open stream; while another registration is under way, after it."""
        if self.state in REGISTERED and self._said != self._wish and RequestKind.JOIN not in self._requests:
            self._register(again=True)

    def _registered(self, answer: ce.MemberRegistered) -> None:
        if answer.code is ErrorCode.NONE and self._deposed(answer.coordinator_epoch):
            self._streaming = True  # it has only just been opened
            self._send_away()
        elif answer.code is ErrorCode.NONE:
            self._link.reset_backoff()
            self._link.heard(self._now_ms)
            if self.state is MembershipState.JOINING:
                self._streaming = True
                self._lease_from_ms = self._answers.get(REGISTRATION, self._now_ms)
                self._become(MembershipState.STABLE)
            self._say_wish()
        elif self.state is MembershipState.JOINING:
            self._turned_away(answer)
        elif self.state is not MembershipState.CLOSING:
            self._fail(answer.code, answer.message)

    def _turned_away(self, answer: ce.MemberRegistered) -> None:
        if answer.code in FIND_COORDINATOR_AGAIN:
            self._link.lost(self._now_ms)
        elif answer.code in TRY_AGAIN:
            self._link.back_off(self._now_ms)
        elif answer.code in OUT and (self.owned or self.generation != NO_GENERATION):
            self._out_of_the_group(Cause.MEMBER_FENCED, answer.message)
        else:
            self._fail(answer.code, answer.message)

    # Orders

    def _ordered(self, event: ce.OrderReceived) -> None:
        if not self._streaming:
            return
        if self._deposed(event.coordinator_epoch):
            self._send_away()
            return
        self._link.heard(self._now_ms)
        self._renew_lease(event.answered)
        match event.order:
            case Ping(number):
                self._answer(number, ce.AnswerPing(number))
            case StopFetcher():
                self._stop_fetching(event.order)
            case StartFetcher():
                self._start_fetching(event.order)
            case RebalanceFailed(_, detail):
                self._out.append(ce.LogNotice(detail))
            case _:
                assert_never(event.order)

    def _deposed(self, epoch: int) -> bool:
        """Whether who speaks was elected before somebody else was of whom the member has heard."""
        if 0 < epoch < self._epoch:
            return True
        self._epoch = max(self._epoch, epoch)
        return False

    def _send_away(self) -> None:
        """What a deposed coordinator says is of no account: end its stream, and look for the one that is elected."""
        self._close_stream()
        if self.state is MembershipState.JOINING:
            self._link.lost(self._now_ms)  # and not at once: it would be found again
        else:
            self._stream_lost()

    def _renew_lease(self, answered: int) -> None:
        """The coordinator has heard this answer, so it counts from then, or from later."""
        sent_ms = self._answers.get(answered)
        if sent_ms is not None:
            self._lease_from_ms = max(self._lease_from_ms or 0, sent_ms)
        self._answers = {number: at_ms for number, at_ms in self._answers.items() if number >= answered}

    def _answer(self, number: int, answer: ce.AnswerPing | ce.AnswerStopped | ce.AnswerStarted) -> None:
        self._answers[number] = self._now_ms
        self._out.append(answer)

    def _stop_fetching(self, order: StopFetcher) -> None:
        self._start, self._stop = None, order.number
        self.rebalance_number = order.rebalance_number
        if self.owned:
            if self.state is MembershipState.STABLE:
                self._become(MembershipState.ADOPTING)
            detail = order.cause_detail or "the coordinator stops everybody before it assigns anew"
            self._tell_why(act.Revoke, order.cause, detail)
        elif RequestKind.RELEASE not in self._requests:
            self._say_stopped()

    def _say_stopped(self) -> None:
        if self._stop is not None and self._streaming:
            self._answer(self._stop, ce.AnswerStopped(self._stop))
            self.generation = NO_GENERATION
        self._stop = None

    def _start_fetching(self, order: StartFetcher) -> None:
        if self.state is MembershipState.CLOSING:
            return
        if RequestKind.RELEASE in self._requests:
            self._start = order
            return
        self.rebalance_number = order.rebalance_number
        share = {(topic, partition) for topic, partition, _ in order.partitions}
        if gone := self.owned - share:
            # Nothing is to be given to others that this application still works on.
            self._start = order
            self._become(MembershipState.ADOPTING)
            self._tell_why(act.Revoke, order.cause, order.cause_detail, gone)
            return
        self._start = None
        added, self.owned, self.generation = share - self.owned, share, order.generation
        if added:
            detail = order.cause_detail or f"the coordinator's assignment of generation {order.generation}"
            everything = tuple(sorted(share))
            self._out.append(
                act.Assign(
                    tuple(sorted(added)), everything, order.cause, detail, order.rebalance_number, order.generation
                )
            )
        self._answer(order.number, ce.AnswerStarted(order.number))

    # Callbacks

    def _tell_why(
        self,
        kind: type[act.Revoke] | type[act.Lost],
        cause: Cause,
        detail: str,
        partitions: Collection[TopicPartition] | None = None,
    ) -> None:
        self._cause, self._cause_detail = cause, detail
        self._release_partitions(kind, self.owned if partitions is None else partitions)

    def _patience_ms(self, kind: type[act.Revoke] | type[act.Lost]) -> int:
        if kind is act.Revoke:
            # The coordinator waits for an answer no longer than this.
            return max(1, 2 * self.settings.session_timeout_ms // 3)
        return super()._patience_ms(kind)

    def _released(self) -> None:
        match self.state:
            case MembershipState.ADOPTING:
                self._become(MembershipState.STABLE)
                self._say_stopped()
                if self._start is not None:
                    self._start_fetching(self._start)
            case MembershipState.RELEASING:
                self._lease_from_ms = None
                self._join()
            case MembershipState.CLOSING:
                self._leave_and_close()
            case _:
                # Told while the application was not polling: it registers again when it polls.
                pass

    # The lease, and the stream's end

    def _check_lease(self) -> None:
        end_ms = self.lease_end_ms
        if end_ms is not None and self._now_ms >= end_ms:
            silent_ms = self._now_ms - (self._lease_from_ms or 0)
            detail = f"no answer has come through for {silent_ms} ms (session.timeout.ms)"
            self._close_stream()
            self._link.known = False
            if self.state in WORKING:
                self._out_of_the_group(Cause.SESSION_EXPIRED, detail)
            else:
                self._forget_membership()

    def _stream_ended(self, event: ce.StreamEnded) -> None:
        if not self._streaming:
            return
        self._streaming = False
        self._abandon(RequestKind.JOIN)
        if event.code in OUT:
            if self.state in WORKING:
                self._out_of_the_group(Cause.MEMBER_FENCED, event.message)
            return
        self._stream_lost()

    def _stream_lost(self) -> None:
        """The membership lives on: say so on another stream, to whoever coordinates the group now."""
        self._link.lost(self._now_ms)
        self._link.retry_at_ms = self._now_ms  # at once; only then with pauses
        if self.state is MembershipState.STABLE:
            self._join_again()
        elif self.state is MembershipState.ADOPTING:
            # What is being let go cannot be reported any more: it comes back with nothing.
            self._stop, self._start = None, None
            self.generation = NO_GENERATION
            self._become(MembershipState.RELEASING)

    def _join_again(self) -> None:
        """Fetching goes on meanwhile: nobody is given these partitions while the lease runs."""
        retry_ms = self._link.retry_at_ms
        self._become(MembershipState.JOINING)
        self._link.retry_at_ms = retry_ms

    def _out_of_the_group(self, cause: Cause, detail: str) -> None:
        """Everything may belong to others by now; register again, with nothing."""
        self._forget_membership()
        if self.owned:
            self._become(MembershipState.RELEASING)
            self._tell_why(act.Lost, cause, detail)
        elif RequestKind.RELEASE in self._requests:
            self._become(MembershipState.RELEASING)
        elif self.state is not MembershipState.RELEASING:
            if self.state is not MembershipState.JOINING:
                self._become(MembershipState.JOINING)
            self._link.back_off(self._now_ms)

    def _forget_membership(self) -> None:
        self._close_stream()
        self._abandon(RequestKind.JOIN)
        self.generation = NO_GENERATION
        self._lease_from_ms = None
        self._stop, self._start = None, None
        self._answers.clear()

    def _close_stream(self) -> None:
        if self._streaming:
            self._streaming = False
            self._out.append(ce.CloseStream())

    # Time

    def _tick(self) -> None:
        if self._link.retry_due(self._now_ms):
            self._continue_join()

    def _poll_expired(self) -> None:
        if self.state not in WORKING:
            return
        if self._streaming:
            self._out.append(ce.SendDeregister(POLL_TIMEOUT))
            self._streaming = False
        self._forget_membership()
        self._abandon(RequestKind.FIND)
        self._become(MembershipState.EXPIRED)
        if self.owned:
            self._tell_why(act.Lost, Cause.POLL_TIMEOUT, POLL_TIMEOUT)

    def _request_failed(self, failure: ev.RequestFailed) -> None:
        if failure.retriable:
            self._link.lost(self._now_ms)
        else:
            self._fail(ErrorCode.UNKNOWN_SERVER_ERROR, failure.detail)

    # The end

    def _has_lost_all(self) -> bool:
        # While the lease runs, nothing is given to others, whatever the generation.
        return False

    def _stop_joining(self) -> None:
        self._abandon(RequestKind.FIND, RequestKind.JOIN)
        self._stop, self._start = None, None

    def _leave_and_close(self) -> None:
        if self._streaming and self._leaving is not LeavePolicy.REMAIN:
            self._out.append(ce.SendDeregister(LEAVE_REASON))
            self._streaming = False
        self._finish()

    def _finish(self) -> None:
        self._close_stream()
        self._lease_from_ms = None
        super()._finish()

    def _wishes(self) -> tuple[int | None, int | None]:
        return self._link.retry_at_ms if self.state is MembershipState.JOINING else None, self.lease_end_ms
