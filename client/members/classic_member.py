"""The classic member: JoinGroup, SyncGroup, Heartbeat and LeaveGroup as one state machine, eager and cooperative.

`step(event, now_ms)` returns the actions to perform, in order. The rules are those of Kafka's ConsumerCoordinator
with KIP-62, KIP-345, KIP-394, KIP-429, KIP-800 and KIP-1092. A rebalance begins with `_rejoin` and ends in STABLE, or
begins again if the coordinator's answer says so. Only the leader acts on changed partition counts.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

from muster.assignors.api import TopicPartition
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.coordinated_member import LEAVE_REASON, POLL_TIMEOUT, CoordinatedMember
from muster.client.members.member_types import (
    FIND_COORDINATOR_AGAIN,
    HEARTBEATING,
    MAX_REASON,
    MEMBERSHIP_LOST,
    MOVES,
    NO_GENERATION,
    REBALANCING,
    RETRY_LATER,
    WORKING,
    GroupMember,
    LeavePolicy,
    MemberSettings,
    MembershipState,
    Partitions,
    RequestKind,
)
from muster.client.members.subscription import Subscriber, parse_topics
from muster.coordinator.core.model.types import Cause
from muster.coordinator.errors import ErrorCode

# Partition counts known to the leader
# ------------------------------------


class TopicWatch:
    """Only the leader of a group acts on changed topics; for all others this stays empty."""

    def __init__(self) -> None:
        self._topics: frozenset[str] = frozenset()
        self._planned: dict[str, int] | None = None
        self._heard: dict[str, int] = {}

    def lead(self, members: Iterable[GroupMember]) -> None:
        """A generation begins that this member leads. What its plan is made from is not known yet."""
        self._topics = frozenset(topic for member in members for topic in parse_topics(member.metadata))
        self._planned = None

    def planned(self, counts: Mapping[str, int]) -> None:
        self._planned = dict(counts)
        # What was heard before the plan was made is older than the plan.
        self._heard.update(counts)

    def heard(self, counts: Mapping[str, int]) -> None:
        self._heard = dict(counts)

    def changes(self) -> str:
        """What is not as it was planned with, told once; "" when all is. A plan not seen fits what is heard first."""
        if not self._heard:
            return ""
        now = {topic: self._heard.get(topic, 0) for topic in sorted(self._topics)}
        before, self._planned = self._planned, now
        if before is None:
            return ""
        return ", ".join(f"{t} {before.get(t, 0)} -> {now[t]}" for t in now if now[t] != before.get(t, 0))


# One rebalance
# -------------

NO_PLAN = ev.PlanMade(NO_GENERATION, ())
"""What a member that does not lead hands in."""


class ClassicRebalance(CoordinatedMember[ev.ClassicEvent, act.Action]):
    """Whoever keeps the membership alive calls `_rejoin`, and hands in the answers."""

    moves = MOVES

    def __init__(self, settings: MemberSettings, subscriber: Subscriber) -> None:
        super().__init__(settings)
        self.is_leader = False
        self._subscriber = subscriber
        self._joined_topics: tuple[str, ...] = ()
        self._watch = TopicWatch()
        self._share: set[TopicPartition] = set()
        self._added: Partitions = ()
        self._protocol_name: str | None = None
        self._plan: act.MakePlan | None = None
        self._last_led = NO_GENERATION
        self._questions = 0
        """How often a plan was asked for in a generation that is no later than the one before."""
        self._plan_again = False
        self._reason = ""
        self._rejoin_at_ms: int | None = None
        """Once stable: when the delay of a delayed group is over (KIP-415)."""

    @property
    def topics(self) -> tuple[str, ...]:
        return self._subscriber.topics

    # Joining

    def _rejoin(self, reason: str, cause: Cause, *, later: bool = False, detail: str = "") -> None:
        """Join (again), at once or after a back-off, letting go first of what must be let go of."""
        self._abandon(RequestKind.JOIN, RequestKind.SYNC)
        self._plan = None
        self._reason = reason[:MAX_REASON]
        self._cause, self._cause_detail = cause, detail or reason
        if later:
            self._become(MembershipState.JOINING)
            self._link.back_off(self._now_ms)
        else:
            self._join()

    def _join(self) -> None:
        self._link.retry_at_ms = None
        if self._release_before_join():
            self._become(MembershipState.RELEASING)
            return
        self._become(MembershipState.JOINING)
        if not self._link.known:
            self._find()
            return
        self._joined_topics = self.topics
        self._link.heartbeat_at_ms = None
        self._abandon(RequestKind.HEARTBEAT)
        offered = self._subscriber.offered(self.owned, self.generation)
        self._out.append(
            act.SendJoin(self._requests.begin_request(RequestKind.JOIN), self.member_id, offered, self._reason)
        )

    def _release_before_join(self) -> bool:
        """Whether the application has to be told first. A member that was forgotten has lost everything."""
        if self.owned and self.generation == NO_GENERATION:
            self._release_partitions(act.Lost, self.owned)
        elif gone := self._subscriber.handover.before_join(self.owned, self.topics):
            self._release_partitions(act.Revoke, gone)
        else:
            return False
        return True

    def _joined(self, answer: ev.JoinAnswered) -> None:
        code = answer.code
        if code is ErrorCode.NONE:
            self._lead_or_follow(answer)
        elif code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            # A reason of its own says more than that every dynamic member joins twice (KIP-394).
            self._rejoin(self._reason or "need to re-join with the given member-id", self._cause)
        elif code in MEMBERSHIP_LOST:
            self._forgotten(code)
            self._rejoin(f"the join was refused: {code.name}", Cause.SESSION_EXPIRED)
        elif code in RETRY_LATER:
            self._link.known = self._link.known and code not in FIND_COORDINATOR_AGAIN
            self._link.join_broke(self._now_ms)
            self._rejoin(self._reason, self._cause, later=True)
        else:
            self._fail(code, answer.message)

    def _lead_or_follow(self, answer: ev.JoinAnswered) -> None:
        self._link.reset_backoff()
        self.member_id, self.generation = answer.member_id, answer.generation
        self._protocol_name = answer.protocol_name
        self._cause, self._cause_detail = answer.cause, answer.cause_detail
        self.rebalance_number = answer.rebalance_number
        self.is_leader = answer.leader == answer.member_id
        # Heartbeats begin here, before the share is known: a slow leader must not cost anyone the session.
        self._link.heard(self._now_ms)
        self._link.joined(self._now_ms)
        self._link.schedule_heartbeat(self._now_ms)
        if not self.is_leader:
            self._sync()
            return
        self._watch.lead(answer.members)
        if answer.skip_assignment:
            # KIP-814: a static leader came back; the group keeps its plan, the leader only watches topics.
            self._sync()
            return
        self._become(MembershipState.PLANNING)
        self._questions += answer.generation <= self._last_led
        self._last_led = answer.generation
        self._plan = act.MakePlan(
            answer.generation,
            answer.protocol_name or "",
            answer.members,
            self._subscriber.completed_generation,
            answer.leader_state,
            answer.scheduled_delay_ms,
            self._questions,
        )
        self._out.append(self._plan)

    # The plan and the share

    def _is_asked_for(self, event: ev.PlanMade | ev.PlanFailed) -> bool:
        """A plan that comes late may be of a generation that never came to be, and whose number another has now."""
        return (event.generation, event.question) == (self.generation, self._questions)

    def _planned(self, event: ev.PlanMade | ev.PlanFailed) -> None:
        if isinstance(event, ev.PlanFailed):
            self._plan_again = True
            self._link.back_off(self._now_ms)
            return
        if event.partition_counts is not None:
            self._watch.planned(event.partition_counts)
        self._plan = None
        self._sync(event)

    def _sync(self, plan: ev.PlanMade = NO_PLAN) -> None:
        self._become(MembershipState.SYNCING)
        self._out.append(
            act.SendSync(
                self._requests.begin_request(RequestKind.SYNC),
                self.member_id,
                self.generation,
                self._protocol_name,
                plan.assignments,
                plan.snapshot,
                plan.leader_state,
                plan.scheduled_delay_ms,
            )
        )

    def _synced(self, answer: ev.SyncAnswered) -> None:
        code = answer.code
        if code is ErrorCode.NONE:
            self._link.reset_backoff()
            self._adopt(answer.assignment)
        elif code in MEMBERSHIP_LOST:
            self._forgotten(code)
            self._rejoin(f"the sync was refused: {code.name}", Cause.MEMBER_FENCED)
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._rejoin("group is already rebalancing", self._cause)
        elif code in RETRY_LATER:
            self._link.known = self._link.known and code not in FIND_COORDINATOR_AGAIN
            self._rejoin(f"the sync was refused: {code.name}", self._cause, later=True)
        else:
            self._fail(code, answer.message)

    def _adopt(self, assignment: bytes) -> None:
        try:
            share = self._subscriber.read_share(assignment)
        except ValueError as error:
            self._fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the leader's assignment cannot be read: {error}")
            return
        if strange := sorted({topic for topic, _ in share} - set(self.topics)):
            # The subscription changed after the join; the plan was made for the old one.
            self._rejoin(
                f"assigned topics that are not subscribed to: {', '.join(strange)}", Cause.SUBSCRIPTION_CHANGED
            )
            return
        delay_ms = self._subscriber.rejoin_after_ms(assignment)
        self._rejoin_at_ms = self._now_ms + delay_ms if delay_ms else None
        change = self._subscriber.handover.after_sync(self.owned, share)
        self._share, self._added = share, change.added
        if change.revoked:
            self._become(MembershipState.ADOPTING)
            self._release_partitions(act.Revoke, change.revoked)
        else:
            self._take_share(rejoin=False)

    def _take_share(self, *, rejoin: bool) -> None:
        self.owned = set(self._share)
        self._subscriber.remember(self._share, self.generation)
        everything = tuple(sorted(self._share))
        self._become(MembershipState.STABLE)
        self._out.append(
            act.Assign(self._added, everything, self._cause, self._cause_detail, self.rebalance_number, self.generation)
        )
        if rejoin:
            self._rejoin("need to revoke partitions and re-join", Cause.REVOCATION_FOLLOW_UP)
        else:
            self._look_for_changes()

    def _look_for_changes(self) -> None:
        """A stable member rejoins when its subscription, or as a leader the group's topics, changed."""
        if self.state is not MembershipState.STABLE:
            return
        if self._joined_topics != self.topics:
            self._rejoin(f"subscription changed to {', '.join(self.topics)}", Cause.SUBSCRIPTION_CHANGED)
        elif self.is_leader and (changes := self._watch.changes()):
            self._rejoin(f"partition counts changed: {changes}", Cause.PARTITIONS_CHANGED)

    def _forgotten(self, code: ErrorCode) -> None:
        """The group went on without this member."""
        self.generation = NO_GENERATION
        self._link.heartbeat_at_ms = None
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""


# The member
# ----------

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

    def _handle_event(self, event: ev.ClassicEvent) -> None:
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
            self._link.reset_backoff()
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
            self._release_partitions(act.Lost, self.owned)

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
        self._out.append(
            act.SendHeartbeat(self._requests.begin_request(RequestKind.HEARTBEAT), self.member_id, self.generation)
        )

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
