"""The member of a KIP-848 group: one heartbeat that joins, reports, receives assignments and leaves, as a state
machine.

`step(event, now_ms)` returns the actions to perform, in order. The coordinator decides the assignment. The member
first gives up partitions, confirms that with its list of owned partitions, and only then takes new ones. A heartbeat
carries only what changed since the last one that the coordinator answered. `RequestedSubscription` and
`HeartbeatReport` are used by members of central groups as well.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import assert_never

from muster.assignors.api import TopicPartition
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.coordinated_member import POLL_TIMEOUT, CoordinatedMember
from muster.client.members.member_types import (
    FIND_COORDINATOR_AGAIN,
    NO_GENERATION,
    LeavePolicy,
    MemberSettings,
    MembershipState,
    Partitions,
    RequestKind,
)
from muster.coordinator.core.model.types import Cause
from muster.coordinator.errors import ErrorCode

# States and legal moves
# ----------------------

MOVES: dict[MembershipState, frozenset[MembershipState]] = {
    MembershipState.IDLE: frozenset({MembershipState.JOINING, MembershipState.CLOSED}),
    MembershipState.JOINING: frozenset(
        {MembershipState.STABLE, MembershipState.EXPIRED, MembershipState.CLOSING, MembershipState.FAILED}
    ),
    MembershipState.STABLE: frozenset(
        {
            MembershipState.ADOPTING,
            MembershipState.RELEASING,
            MembershipState.JOINING,
            MembershipState.EXPIRED,
            MembershipState.CLOSING,
            MembershipState.FAILED,
        }
    ),
    MembershipState.ADOPTING: frozenset(
        {
            MembershipState.STABLE,
            MembershipState.RELEASING,
            MembershipState.JOINING,
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
"""The states are those of the classic member; nobody plans here, and there is no share to wait for."""

HEARTBEATING_UNDER_EPOCH = frozenset({MembershipState.STABLE, MembershipState.ADOPTING, MembershipState.CLOSING})
"""Where heartbeats go out under an epoch. A joining member sends them under epoch 0."""

WORKING = frozenset(
    {MembershipState.JOINING, MembershipState.RELEASING, MembershipState.STABLE, MembershipState.ADOPTING}
)

FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})
"""The group went on without this member: everything is lost. Refusing a join, GROUP_ID_NOT_FOUND is final instead."""

TRY_AGAIN = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH})


# Heartbeat contents
# ------------------


@dataclass(frozen=True, slots=True)
class RequestedSubscription:
    """What the member wants: topics by name, by a regular expression, or both; empty texts mean none."""

    topics: tuple[str, ...] = ()
    regex: str = ""
    server_assignor: str = ""


@dataclass(frozen=True, slots=True)
class HeartbeatReport:
    """Everything one heartbeat can say."""

    wish: RequestedSubscription
    owned: Partitions
    ready: Partitions = ()
    """What it was told is coming, and is ready for."""


def build_heartbeat(
    token: int,
    member_id: str,
    epoch: int,
    news: tuple[HeartbeatReport | None, HeartbeatReport],
    rebalance_timeout_ms: int,
) -> act.SendConsumerHeartbeat:
    """`news` is what was said before, None for nothing, and what is to be said: only the difference is sent.

    >>> one, two = HeartbeatReport(RequestedSubscription(("t",)), ()), HeartbeatReport(RequestedSubscription(("t",)),
    ... (("t", 0),))
    >>> build_heartbeat(1, "m", 0, (None, one), 9).topics, build_heartbeat(2, "m", 5, (one, two), 9).topics
    (('t',), None)
    """
    said, report = news
    if said is None:
        wish = report.wish
        return act.SendConsumerHeartbeat(
            token,
            member_id,
            epoch,
            rebalance_timeout_ms,
            wish.topics,
            # Said even where it is empty: nobody knows which earlier words arrived, an expression may be among them.
            wish.regex,
            wish.server_assignor or None,
            report.owned,
            report.ready or None,
        )
    return act.SendConsumerHeartbeat(
        token,
        member_id,
        epoch,
        topics=report.wish.topics if report.wish.topics != said.wish.topics else None,
        # An empty expression takes the earlier one back.
        regex=report.wish.regex if report.wish.regex != said.wish.regex else None,
        owned=report.owned if report.owned != said.owned else None,
        ready=report.ready if report.ready and report.ready != said.ready else None,
    )


# The member
# ----------

__all__ = ["ConsumerMemberMachine", "RequestedSubscription"]

JOIN_EPOCH, LEAVE_EPOCH, AWAY_EPOCH = 0, -1, -2


class ConsumerMemberMachine(CoordinatedMember[ev.ConsumerEvent, act.Action]):
    """One member of one KIP-848 group. `generation` is its member epoch; it keeps `member_id` for life (KIP-1082)."""

    moves = MOVES
    is_leader = False

    def __init__(self, settings: MemberSettings, member_id: str, wish: RequestedSubscription) -> None:
        assert member_id, "the edge draws the member id"
        super().__init__(settings, member_id)
        self._wish = wish
        self._letting_go: set[TopicPartition] = set()
        self._target: frozenset[TopicPartition] | None = None
        self._said: HeartbeatReport | None = None  # what the coordinator has answered to; None: say everything
        self._saying: HeartbeatReport | None = None
        self._say_again = False
        self._interval_ms = settings.heartbeat_interval_ms
        self._session_ms = 0  # as the coordinator says; 0: it has not said
        self._unreleased_since_ms: int | None = None
        self._revoke_within_ms = 0
        self._coming: frozenset[TopicPartition] = frozenset()
        self._ready: set[TopicPartition] = set()

    @property
    def topics(self) -> tuple[str, ...]:
        return self._wish.topics

    @property
    def rebalancing(self) -> bool:
        return self.state in {MembershipState.JOINING, MembershipState.RELEASING, MembershipState.ADOPTING}

    def _handle_event(self, event: ev.ConsumerEvent) -> None:
        # First of all: a process that was frozen may have lost everything meanwhile.
        self._check_session()
        match event:
            case ev.Start():
                if self.state is MembershipState.IDLE:
                    self._join()
            case ev.ConsumerHeartbeatPushed():
                self._pushed(event.answer)
            case ev.SessionOpened():
                self._link.pushed(0, event.in_step_ms)
                self._said = None
                self._say_again = RequestKind.HEARTBEAT in self._requests  # which went another way
                self._speak_up()
            case ev.SessionLost():
                self._interval_ms = self.settings.heartbeat_interval_ms  # until an answer says otherwise
                self._link.polls(self._now_ms)
            case ev.CommitRefused():
                if event.generation == self.generation:
                    self._commit_refused(event)
            case ev.PartitionCountsChanged():
                pass  # The coordinator watches topics for everybody.
            case ev.PartitionsPrepared():
                self._ready |= self._coming.intersection(event.partitions)
                self._speak_up()
            case ev.SubscriptionChanged():
                self._wish = RequestedSubscription(
                    tuple(sorted(set(event.topics))), event.regex, self._wish.server_assignor
                )
                self._speak_up()
            case ev.PollExpired():
                self._poll_expired()
            case ev.PollResumed():
                self._polled()
            case ev.TimerExpired():
                self._tick()
            case ev.Close():
                self._close(event.leaving)
            case _:
                self._take_answer(event)

    def _take_answer(
        self, event: ev.CoordinatorFound | ev.ConsumerHeartbeatAnswered | ev.RequestFailed | ev.Revoked
    ) -> None:
        """Answers nobody waits for any more are dropped."""
        if self._requests.answered(event.token) is None:
            return
        match event:
            case ev.CoordinatorFound():
                self._link.found(self._now_ms)
                if self._link.retry_at_ms is None:
                    self._speak_up()
            case ev.ConsumerHeartbeatAnswered():
                self._answered(event)
            case ev.Revoked():
                self._released()
            case ev.RequestFailed():
                self._request_failed(event)
            case _:
                assert_never(event)

    # Joining, and saying what changed

    def _join(self) -> None:
        assert not self.owned, "whoever joins has told the application that everything is gone"
        self._become(MembershipState.JOINING)
        self._link.retry_at_ms = None
        self._speak_up()

    def _speak_up(self) -> None:
        """Send a heartbeat now if there is something to say; what is said while another is under way follows it."""
        if not self._may_speak():
            return
        if not self._link.known:
            self._find()
        elif self._said != self._report():
            self._heartbeat()

    def _may_speak(self) -> bool:
        speaks = self.state in HEARTBEATING_UNDER_EPOCH or self.state is MembershipState.JOINING
        return speaks and RequestKind.HEARTBEAT not in self._requests and self._link.retry_at_ms is None

    def _report(self) -> HeartbeatReport:
        # What the callbacks are still about is not given up yet.
        ready = tuple(sorted(self._ready & self._coming))
        return HeartbeatReport(self._wish, tuple(sorted(self.owned | self._letting_go)), ready)

    def _heartbeat(self) -> None:
        """Everything when joining or after a lost answer, otherwise what is new."""
        report = self._saying = self._report()
        token = self._requests.begin_request(RequestKind.HEARTBEAT)
        epoch = JOIN_EPOCH if self.state is MembershipState.JOINING else self.generation
        self._link.says(self._now_ms)
        self._link.schedule_heartbeat(self._now_ms, self._interval_ms)
        news = (self._said, report)
        self._out.append(build_heartbeat(token, self.member_id, epoch, news, self.settings.rebalance_timeout_ms))

    # What the coordinator says

    def _answered(self, answer: ev.ConsumerHeartbeatAnswered) -> None:
        self._link.heard(self._now_ms)
        if answer.code is ErrorCode.NONE or answer.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._link.counts()
        if answer.code is ErrorCode.NONE:
            self._said, self._say_again = None if self._say_again else self._saying, False
            self._hear(answer)
        else:
            self._refused(answer.code, answer.message)

    def _pushed(self, answer: ev.ConsumerHeartbeatAnswered) -> None:
        """A heartbeat that crossed this was sent under an older epoch: it counted as a sign of life only."""
        if self.state not in HEARTBEATING_UNDER_EPOCH:
            return
        self._link.heard(self._now_ms)
        self._abandon(RequestKind.HEARTBEAT)
        if answer.code is not ErrorCode.NONE:
            self._refused(answer.code, answer.message)
            return
        # Saying everything acknowledges; nothing more is pushed before that.
        self._said = None
        self._hear(answer)

    def _hear(self, answer: ev.ConsumerHeartbeatAnswered) -> None:
        self._link.reset_backoff()
        self._unreleased_since_ms = None
        self.generation = answer.epoch
        self._interval_ms = answer.heartbeat_interval_ms or self._interval_ms
        self._session_ms = answer.session_timeout_ms or self._session_ms
        self._link.schedule_heartbeat(self._now_ms, self._interval_ms)
        if self.state is MembershipState.JOINING:
            self._become(MembershipState.STABLE)
        if answer.assignment is not None:
            self._target = frozenset(answer.assignment)
        self._revoke_within_ms = answer.revoke_within_ms
        self._cause = answer.cause
        self._cause_detail = answer.cause_detail or f"the coordinator's assignment at epoch {answer.epoch}"
        self._look_ahead(answer)
        self._reconcile()
        self._speak_up()

    def _look_ahead(self, answer: ev.ConsumerHeartbeatAnswered) -> None:
        """Others drain meanwhile: whoever gets something may prepare for it, whoever gives it need not wait longer."""
        if answer.heirs_ready:
            self._out.append(act.HandoffReady(answer.heirs_ready))
        before, self._coming = self._coming, frozenset(answer.coming or ())
        self._ready &= self._coming
        if fresh := self._coming - before:
            self._out.append(act.Prepare(tuple(sorted(fresh)), self._cause, self._cause_detail))

    def _reconcile(self) -> None:
        """Let go of what is not ours any more, then take what is new; during callbacks only the latest word counts."""
        if self.state is not MembershipState.STABLE or self._target is None:
            return
        if gone := self.owned - self._target:
            self._become(MembershipState.ADOPTING)
            self._release_partitions(act.Revoke, gone)
            return
        added, self._target = self._target - self.owned, None
        self.owned |= added
        if added:
            everything = tuple(sorted(self.owned))
            self._out.append(
                act.Assign(tuple(sorted(added)), everything, self._cause, self._cause_detail, 0, self.generation)
            )

    def _refused(self, code: ErrorCode, message: str) -> None:
        joining = self.state is MembershipState.JOINING
        if code in FIND_COORDINATOR_AGAIN:
            self._coordinator_lost()
        elif code in TRY_AGAIN or (code is ErrorCode.UNRELEASED_INSTANCE_ID and self._may_still_be_released()):
            self._said = None
            self._link.back_off(self._now_ms)
        elif code in FENCED and not (joining and code is ErrorCode.GROUP_ID_NOT_FOUND):
            self._fenced(code, message)
        else:
            self._fail(code, message)

    def _may_still_be_released(self) -> bool:
        """The instance's former process may have died without a word: its session ends before long (KIP-848)."""
        if self._unreleased_since_ms is None:
            self._unreleased_since_ms = self._now_ms
        return self._now_ms - self._unreleased_since_ms <= self.settings.session_timeout_ms

    def _fenced(self, code: ErrorCode, message: str) -> None:
        """Everything may belong to others by now; join again under the same id."""
        if self.state is MembershipState.JOINING:
            self._said = None
            self._link.back_off(self._now_ms)
            return
        self._forget_membership()
        expired = code is ErrorCode.UNKNOWN_MEMBER_ID
        self._cause, self._cause_detail = (
            Cause.SESSION_EXPIRED if expired else Cause.MEMBER_FENCED,
            message or code.meaning,
        )
        if self.state is not MembershipState.CLOSING:
            self._give_up_all(MembershipState.RELEASING)

    def _give_up_all(self, waiting: MembershipState) -> None:
        if self.owned:
            self._become(waiting)
            self._release_partitions(act.Lost, self.owned)
        elif RequestKind.RELEASE in self._requests:
            self._become(waiting)
        elif waiting is MembershipState.RELEASING:
            self._join()
        else:
            self._become(waiting)

    def _commit_refused(self, refusal: ev.CommitRefused) -> None:
        if refusal.code in FENCED - {ErrorCode.GROUP_ID_NOT_FOUND} and self.state in HEARTBEATING_UNDER_EPOCH - {
            MembershipState.CLOSING
        }:
            self._abandon(RequestKind.HEARTBEAT)
            self._fenced(refusal.code, refusal.message)
        elif refusal.code is ErrorCode.STALE_MEMBER_EPOCH and self._may_speak():
            # The epoch has moved on; the member stays who it is and asks for the new one.
            self._said = None
            self._speak_up()

    # Callbacks

    def _release_partitions(
        self, kind: type[act.Revoke] | type[act.Lost], partitions: Collection[TopicPartition]
    ) -> None:
        if kind is act.Revoke:
            self._letting_go |= set(partitions)
        super()._release_partitions(kind, partitions)

    def _patience_ms(self, kind: type[act.Revoke] | type[act.Lost]) -> int:
        patience_ms = super()._patience_ms(kind)
        return min(patience_ms, self._revoke_within_ms) if self._revoke_within_ms else patience_ms

    def _released(self) -> None:
        self._letting_go.clear()
        match self.state:
            case MembershipState.RELEASING:
                self._join()
            case MembershipState.ADOPTING:
                self._become(MembershipState.STABLE)
                self._reconcile()
                self._speak_up()
            case MembershipState.CLOSING:
                self._leave_and_close()
            case _:
                # Told while the application was not polling: it joins again when it polls.
                pass

    # Time

    def _tick(self) -> None:
        if self._link.retry_due(self._now_ms):
            self._speak_up()
        if RequestKind.HEARTBEAT in self._requests and self._now_ms >= self._link.session_end_ms:
            # Nobody answered for a whole session: somebody else may coordinate the group by now.
            self._coordinator_lost()
        elif self._link.known and self._may_speak() and self._link.heartbeat_due(self._now_ms):
            self._heartbeat()

    @property
    def _given_up_ms(self) -> int | None:
        """CL-K4: until when it may work on without an answer; None while that is not the question."""
        if not self._session_ms or self.generation == NO_GENERATION or self.state not in WORKING:
            return None
        return self._link.given_up_ms(self._session_ms)

    def _check_session(self) -> None:
        end_ms = self._given_up_ms
        if end_ms is None or self._now_ms < end_ms:
            return
        self._forget_membership()
        self._link.known = False  # somebody else may coordinate the group by now
        detail = f"no heartbeat was answered for {self._session_ms} ms (group.consumer.session.timeout.ms)"
        self._cause, self._cause_detail = Cause.SESSION_EXPIRED, detail
        self._give_up_all(MembershipState.RELEASING)

    def _poll_expired(self) -> None:
        if self.state not in WORKING:
            return
        self._cause, self._cause_detail = Cause.POLL_TIMEOUT, POLL_TIMEOUT
        static = self.settings.group_instance_id is not None
        self._out.append(act.LeaveConsumerGroup(self.member_id, AWAY_EPOCH if static else LEAVE_EPOCH))
        self._forget_membership()
        self._give_up_all(MembershipState.EXPIRED)

    # The coordinator

    def _coordinator_lost(self) -> None:
        self._abandon(RequestKind.HEARTBEAT)
        self._said = None
        self._link.lost(self._now_ms)

    def _request_failed(self, failure: ev.RequestFailed) -> None:
        if failure.retriable:
            self._coordinator_lost()
        else:
            self._fail(ErrorCode.UNKNOWN_SERVER_ERROR, failure.detail)

    # The end

    def _stop_joining(self) -> None:
        self._abandon(RequestKind.FIND)

    def _leave_and_close(self) -> None:
        static = self.settings.group_instance_id is not None
        epoch = AWAY_EPOCH if static and self._leaving is not LeavePolicy.LEAVE else LEAVE_EPOCH
        stays = self._leaving is LeavePolicy.REMAIN and not static
        # A join whose answer is still missing may have been heard.
        if not stays and (self.generation != NO_GENERATION or RequestKind.HEARTBEAT in self._requests):
            self._out.append(act.LeaveConsumerGroup(self.member_id, epoch))
        self._finish()

    def _forget_membership(self) -> None:
        self.generation = NO_GENERATION
        self._abandon(RequestKind.HEARTBEAT, RequestKind.FIND)
        self._said = self._target = None
        self._coming = frozenset()
        self._ready.clear()
        self._link.retry_at_ms = self._link.heartbeat_at_ms = None

    def _wishes(self) -> Iterator[int | None]:
        yield self._link.retry_at_ms
        yield self._given_up_ms
        if self._may_speak() and self._link.known:
            yield self._link.heartbeat_at_ms
        if RequestKind.HEARTBEAT in self._requests:
            yield self._link.session_end_ms
