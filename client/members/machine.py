"""The classic member: JoinGroup, SyncGroup, Heartbeat, LeaveGroup as one state machine, eager and cooperative.

`step(event, now_ms)` answers with the actions to perform, in order. The rules are those of Kafka's
ConsumerCoordinator after KIP-62, 345, 394, 429, 800 and 1092.
"""

from collections.abc import Iterator
from typing import assert_never

from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.coordinated_member import LEAVE_REASON, POLL_TIMEOUT
from muster.client.members.rounds import ClassicRebalance
from muster.client.members.states import (
    FIND_COORDINATOR_AGAIN,
    HEARTBEATING,
    MEMBERSHIP_LOST,
    REBALANCING,
    WORKING,
    MembershipState,
)
from muster.client.members.types import NO_GENERATION, LeavePolicy, RequestKind
from muster.coordinator.core.model.types import Cause
from muster.coordinator.errors import ErrorCode

SESSION_RENEWING_CODES = frozenset(
    {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
"""Answers to a heartbeat by which the session goes on; who loads a group gives all its members a whole one then."""

__all__ = ["ClassicMemberMachine", "MembershipState"]


class ClassicMemberMachine(ClassicRebalance):
    """One member of one classic group: what happens to it, how it stays alive, and how it ends."""

    @property
    def rebalancing(self) -> bool:
        return self.state in REBALANCING

    @property
    def _delay_runs(self) -> bool:
        return self.state is MembershipState.STABLE and self._rejoin_at_ms is not None

    def _take(self, event: ev.ClassicEvent) -> None:
        # First of all: a process that was frozen may have lost everything meanwhile.
        self._check_session()
        match event:
            case ev.Start():
                if self.state is MembershipState.IDLE:
                    self._rejoin("", Cause.UNSPECIFIED)
            case ev.PlanMade() | ev.PlanFailed():
                if self.state is MembershipState.PLANNING and self._is_asked_for(event):
                    self._planned(event)
            case ev.CommitRefused() | ev.HeartbeatPushed():
                # While a join is parked its answer is the newer word: the group may have moved on with this member.
                if event.generation == self.generation and RequestKind.JOIN not in self._requests:
                    self._hear(event)
            case ev.SessionOpened():
                self._link.pushed(event.heartbeat_interval_ms, event.in_step_ms)
            case ev.SessionLost():
                self._link.polls(self._now_ms)
            case ev.PartitionCountsChanged():
                self._watch.heard(event.partition_counts)
                self._look_for_changes()
            case ev.SubscriptionChanged():
                self._subscriber.topics = tuple(sorted(set(event.topics)))
                self._look_for_changes()
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

    def _take_answer(self, event: ev.ClassicAnswer) -> None:
        """Answers nobody waits for any more are dropped."""
        kind = self._requests.answered(event.token)
        if kind is None:
            return
        match event:
            case ev.CoordinatorFound():
                self._coordinator_found()
            case ev.JoinAnswered():
                self._joined(event)
            case ev.SyncAnswered():
                self._synced(event)
            case ev.ClassicHeartbeatAnswered():
                self._heartbeat_answered(event)
            case ev.Revoked():
                self._released()
            case ev.RequestFailed():
                self._request_failed(kind, event)
            case _:
                assert_never(event)

    # Callbacks

    def _released(self) -> None:
        match self.state:
            case MembershipState.RELEASING:
                self._join()
            case MembershipState.ADOPTING:
                if self.generation == NO_GENERATION:
                    self._join()
                else:
                    self._take_share(rejoin=True)
            case MembershipState.CLOSING:
                self._leave_and_close()
            case _:
                # Told while the application was not polling: it joins again when it polls.
                pass

    # Liveness

    def _heartbeat_answered(self, answer: ev.ClassicHeartbeatAnswered) -> None:
        self._link.heard(self._now_ms)
        if answer.code in SESSION_RENEWING_CODES:
            self._link.counts()
        if answer.code is ErrorCode.NONE:
            self._link.well()
        else:
            self._hear(answer)

    def _hear(self, word: ev.ClassicHeartbeatAnswered | ev.HeartbeatPushed | ev.CommitRefused) -> None:
        """What a refusal says about the membership."""
        code, message = word.code, word.message
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            # Only a member that believes it is stable has not heard of this rebalance yet.
            if self.state is MembershipState.STABLE:
                cause, detail = (
                    (Cause.UNSPECIFIED, "") if isinstance(word, ev.CommitRefused) else (word.cause, word.cause_detail)
                )
                self._rejoin("group is already rebalancing", cause, detail=detail or message)
        elif code in FIND_COORDINATOR_AGAIN:
            self._coordinator_lost()
        elif code in MEMBERSHIP_LOST:
            cause = Cause.MEMBER_FENCED if code is ErrorCode.ILLEGAL_GENERATION else Cause.SESSION_EXPIRED
            self._given_up(code, cause, code.meaning, f"the group went on without this member: {code.name}")
        elif code is ErrorCode.FENCED_INSTANCE_ID or code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
            self._fail(code, message)

    def _given_up(self, code: ErrorCode, cause: Cause, detail: str, reason: str) -> None:
        """Others may have what it had: it joins again, with nothing."""
        self._forgotten(code)
        self._cause, self._cause_detail = cause, detail
        if self.state in {MembershipState.STABLE, MembershipState.PLANNING, MembershipState.SYNCING}:
            self._rejoin(reason, cause, detail=detail)

    @property
    def _given_up_ms(self) -> int | None:
        """CL-K4: until when it may work on without an answer; None while that is not the question."""
        if self.generation == NO_GENERATION or self.state not in WORKING or RequestKind.JOIN in self._requests:
            return None
        return self._link.given_up_ms(self.settings.session_timeout_ms)

    def _check_session(self) -> None:
        end_ms = self._given_up_ms
        if end_ms is None or self._now_ms < end_ms:
            return
        detail = f"no heartbeat was answered for {self.settings.session_timeout_ms} ms (session.timeout.ms)"
        self._abandon(RequestKind.HEARTBEAT)
        self._link.known = False  # somebody else may coordinate the group by now
        joining = self.state is MembershipState.JOINING
        self._given_up(ErrorCode.ILLEGAL_GENERATION, Cause.SESSION_EXPIRED, detail, detail)
        if joining:
            self._join()

    def _poll_expired(self) -> None:
        if self.state not in WORKING - {MembershipState.EXPIRED}:
            return
        self._cause, self._cause_detail = Cause.POLL_TIMEOUT, POLL_TIMEOUT
        self._forget_membership()
        if self.settings.group_instance_id is None and self.member_id:
            self._out.append(act.SendLeave(self.member_id, POLL_TIMEOUT))
        self.member_id = ""
        self._become(MembershipState.EXPIRED)
        if self.owned:
            self._tell(act.Lost, self.owned)

    def _polled(self) -> None:
        if self.state is MembershipState.EXPIRED:
            self._reason = "polling again after max.poll.interval.ms"
        super()._polled()

    def _tick(self) -> None:
        if self._link.retry_due(self._now_ms):
            self._retry()
        if self._delay_runs and self._now_ms >= (self._rejoin_at_ms or 0):
            self._rejoin("the scheduled delay is over", Cause.DELAY_OVER)
            return
        # No heartbeat was answered for a whole session: somebody else may coordinate the group by now.
        if RequestKind.HEARTBEAT in self._requests and self._now_ms >= self._link.session_end_ms:
            self._coordinator_lost()
        elif self._may_heartbeat() and self._link.heartbeat_due(self._now_ms):
            self._heartbeat()

    def _retry(self) -> None:
        if self.state is MembershipState.JOINING:
            self._join()
            return
        if not self._link.known:
            self._find()
        if self._plan is not None and self._plan_again:
            self._plan_again = False
            self._out.append(self._plan)

    def _heartbeat(self) -> None:
        self._link.schedule_heartbeat(self._now_ms)
        self._link.says(self._now_ms)
        self._out.append(act.SendHeartbeat(self._requests.ask(RequestKind.HEARTBEAT), self.member_id, self.generation))

    def _may_heartbeat(self) -> bool:
        return (
            self.state in HEARTBEATING
            and self.generation != NO_GENERATION
            and self._link.known
            and RequestKind.HEARTBEAT not in self._requests
        )

    # The coordinator

    def _coordinator_found(self) -> None:
        self._link.found(self._now_ms)
        if (
            self.state is MembershipState.JOINING
            and RequestKind.JOIN not in self._requests
            and self._link.retry_at_ms is None
        ):
            self._join()
        elif self._may_heartbeat():
            self._heartbeat()

    def _coordinator_lost(self) -> None:
        self._abandon(RequestKind.HEARTBEAT)
        self._link.lost(self._now_ms)

    def _request_failed(self, kind: RequestKind, failure: ev.RequestFailed) -> None:
        assert kind is not RequestKind.RELEASE, "callbacks do not fail; their edge answers Revoked"
        if not failure.retriable:
            self._fail(ErrorCode.UNKNOWN_SERVER_ERROR, failure.detail)
        elif kind is RequestKind.JOIN or kind is RequestKind.SYNC:
            self._link.known = False
            if kind is RequestKind.JOIN:
                self._link.join_broke(self._now_ms)
            reason = self._reason if kind is RequestKind.JOIN else "the answer to SyncGroup was lost"
            self._rejoin(reason, self._cause, later=True)
        else:
            self._coordinator_lost()

    # The end

    def _has_lost_all(self) -> bool:
        return super()._has_lost_all() or self.rebalancing

    def _stop_joining(self) -> None:
        self._abandon(RequestKind.JOIN, RequestKind.SYNC, RequestKind.FIND)
        self._plan = None

    def _leave_and_close(self) -> None:
        static = self.settings.group_instance_id is not None
        leaves = self._leaving is LeavePolicy.LEAVE or (self._leaving is LeavePolicy.DEFAULT and not static)
        if leaves and self.member_id:
            self._out.append(act.SendLeave(self.member_id, LEAVE_REASON))
        self._finish()

    def _forget_membership(self) -> None:
        self.generation = NO_GENERATION
        self._abandon(RequestKind.JOIN, RequestKind.SYNC, RequestKind.HEARTBEAT, RequestKind.FIND)
        self._link.retry_at_ms = self._link.heartbeat_at_ms = None

    def _wishes(self) -> Iterator[int | None]:
        yield self._link.retry_at_ms
        yield self._given_up_ms
        if self._delay_runs:
            yield self._rejoin_at_ms
        if self._may_heartbeat():
            yield self._link.heartbeat_at_ms
        if RequestKind.HEARTBEAT in self._requests:
            yield self._link.session_end_ms
