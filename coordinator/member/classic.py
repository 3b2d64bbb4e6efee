"""The classic member: JoinGroup, SyncGroup, Heartbeat, LeaveGroup as one state machine, eager and cooperative.

`step(event, now_ms)` answers with the actions to perform, in order. The rules are those of Kafka's
ConsumerCoordinator after KIP-62, 345, 394, 429, 800 and 1092.
"""

from collections.abc import Iterable, Sequence
from typing import assert_never

from coordinator.core.types import Cause
from coordinator.errors import ErrorCode
from coordinator.member import actions as act
from coordinator.member import events as ev
from coordinator.member.link import Link
from coordinator.member.requests import Requests
from coordinator.member.states import COME_BACK, FORGOTTEN, HEARTBEATING, LOOK_AGAIN, MOVES, REBALANCING, WORKING, State
from coordinator.member.subscription import Subscriber
from coordinator.member.types import (
    MAX_REASON,
    NO_GENERATION,
    Leaving,
    MemberSettings,
    Partitions,
    RequestKind,
    TopicPartition,
)
from coordinator.member.watch import TopicWatch

__all__ = ["ClassicMember", "State"]

NO_PLAN = ev.Planned(NO_GENERATION, ())
"""What a member that does not lead hands in."""


class ClassicMember:
    """One member of one classic group. Owned partitions, generation and member id are its to say."""

    def __init__(self, settings: MemberSettings, subscriber: Subscriber) -> None:
        self.settings = settings
        self.state = State.IDLE
        self.member_id = ""
        self.generation = NO_GENERATION
        self.is_leader = False
        self.rebalance_number = 0
        self.owned: set[TopicPartition] = set()
        self._subscriber = subscriber
        self._joined_topics: tuple[str, ...] = ()
        self._watch = TopicWatch()
        self._share: set[TopicPartition] = set()
        self._added: Partitions = ()
        self._protocol_name: str | None = None
        self._plan: act.Plan | None = None
        self._plan_again = False
        self._reason = ""
        self._cause = Cause.UNSPECIFIED
        self._cause_detail = ""
        self._leaving = Leaving.DEFAULT
        self._rejoin_at_ms: int | None = None
        """Once stable: when the delay of a delayed group is over (KIP-415)."""
        self._link = Link(settings)
        self._requests = Requests()
        self._now_ms = 0
        self._out: list[act.Action] = []

    @property
    def topics(self) -> tuple[str, ...]:
        return self._subscriber.topics

    @property
    def rebalancing(self) -> bool:
        return self.state in REBALANCING

    @property
    def _delay_runs(self) -> bool:
        return self.state is State.STABLE and self._rejoin_at_ms is not None

    @property
    def awaited_release(self) -> int | None:
        """The token of the callbacks this member waits for."""
        return self._requests.token(RequestKind.RELEASE)

    def step(self, event: ev.Event, now_ms: int) -> list[act.Action]:
        """Take in one event; `now_ms` never goes back."""
        self._now_ms = now_ms
        self._out = []
        if self.state is not State.CLOSED:
            self._take(event)
            self._wish_to_wake()
        return self._out

    def _take(self, event: ev.Event) -> None:
        match event:
            case ev.Start():
                if self.state is State.IDLE:
                    self._rejoin("", Cause.UNSPECIFIED)
            case ev.Planned() | ev.PlanFailed():
                if self.state is State.PLANNING and event.generation == self.generation:
                    self._planned(event)
            case ev.CommitRefused() | ev.Pushed():
                # While a join is parked its answer is the newer word: the group may have moved on with this member.
                if event.generation == self.generation and RequestKind.JOIN not in self._requests:
                    self._hear(event)
            case ev.TopicsChanged():
                self._watch.heard(event.partition_counts)
                self._look_for_changes()
            case ev.SubscriptionChanged():
                self._subscriber.topics = tuple(sorted(set(event.topics)))
                self._look_for_changes()
            case ev.PollExpired():
                self._poll_expired()
            case ev.Polled():
                self._polled()
            case ev.Tick():
                self._tick()
            case ev.Close():
                self._close(event.leaving)
            case _:
                self._take_answer(event)

    def _take_answer(self, event: ev.Answer) -> None:
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
            case ev.HeartbeatAnswered():
                self._heartbeat_answered(event)
            case ev.Revoked():
                self._released()
            case ev.RequestFailed():
                self._request_failed(kind, event)
            case _:
                assert_never(event)

    # Joining

    def _rejoin(self, reason: str, cause: Cause, *, later: bool = False, detail: str = "") -> None:
        """Join (again), at once or after a back-off, letting go first of what must be let go of."""
        self._abandon(RequestKind.JOIN, RequestKind.SYNC)
        self._plan = None
        self._reason = reason[:MAX_REASON]
        self._cause, self._cause_detail = cause, detail or reason
        if later:
            self._become(State.JOINING)
            self._link.back_off(self._now_ms)
        else:
            self._try_to_join()

    def _try_to_join(self) -> None:
        self._link.retry_at_ms = None
        if self._release_before_join():
            self._become(State.RELEASING)
            return
        self._become(State.JOINING)
        if not self._link.known:
            self._find()
            return
        self._joined_topics = self.topics
        self._link.heartbeat_at_ms = None
        self._abandon(RequestKind.HEARTBEAT)
        offered = self._subscriber.offered(self.owned, self.generation)
        self._out.append(act.SendJoin(self._requests.ask(RequestKind.JOIN), self.member_id, offered, self._reason))

    def _release_before_join(self) -> bool:
        """Whether the application has to be told first. A member that was forgotten has lost everything."""
        if self.owned and self.generation == NO_GENERATION:
            self._tell(act.Lost, self.owned)
        elif gone := self._subscriber.handover.before_join(self.owned, self.topics):
            self._tell(act.Revoke, gone)
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
        elif code in FORGOTTEN:
            self._forget_membership(code)
            self._rejoin(f"the join was refused: {code.name}", Cause.SESSION_EXPIRED)
        elif code in COME_BACK:
            self._link.known = self._link.known and code not in LOOK_AGAIN
            self._rejoin(self._reason, self._cause, later=True)
        else:
            self._fail(code, answer.message)

    def _lead_or_follow(self, answer: ev.JoinAnswered) -> None:
        self._link.well()
        self.member_id, self.generation = answer.member_id, answer.generation
        self._protocol_name = answer.protocol_name
        self._cause, self._cause_detail = answer.cause, answer.cause_detail
        self.rebalance_number = answer.rebalance_number
        self.is_leader = answer.leader == answer.member_id
        # Heartbeats begin here, before the share is known: a slow leader must not cost anyone the session.
        self._link.heard(self._now_ms)
        self._link.schedule_heartbeat(self._now_ms)
        if not self.is_leader:
            self._sync()
            return
        self._watch.lead(answer.members)
        if answer.skip_assignment:
            # KIP-814: a static leader came back; the group keeps its plan, the leader only watches topics.
            self._sync()
            return
        self._become(State.PLANNING)
        self._plan = act.Plan(
            answer.generation,
            answer.protocol_name or "",
            answer.members,
            self._subscriber.completed_generation,
            answer.leader_state,
            answer.scheduled_delay_ms,
        )
        self._out.append(self._plan)

    # The plan and the share

    def _planned(self, event: ev.Planned | ev.PlanFailed) -> None:
        if isinstance(event, ev.PlanFailed):
            self._plan_again = True
            self._link.back_off(self._now_ms)
            return
        if event.partition_counts is not None:
            self._watch.planned(event.partition_counts)
        self._plan = None
        self._sync(event)

    def _sync(self, plan: ev.Planned = NO_PLAN) -> None:
        self._become(State.SYNCING)
        self._out.append(
            act.SendSync(
                self._requests.ask(RequestKind.SYNC),
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
            self._link.well()
            self._adopt(answer.assignment)
        elif code in FORGOTTEN:
            self._forget_membership(code)
            self._rejoin(f"the sync was refused: {code.name}", Cause.MEMBER_FENCED)
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._rejoin("group is already rebalancing", self._cause)
        elif code in COME_BACK:
            self._link.known = self._link.known and code not in LOOK_AGAIN
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
            self._become(State.ADOPTING)
            self._tell(act.Revoke, change.revoked)
        else:
            self._take_share(rejoin=False)

    def _take_share(self, *, rejoin: bool) -> None:
        self.owned = set(self._share)
        self._subscriber.remember(self._share, self.generation)
        everything = tuple(sorted(self._share))
        self._become(State.STABLE)
        self._out.append(
            act.Assign(self._added, everything, self._cause, self._cause_detail, self.rebalance_number, self.generation)
        )
        if rejoin:
            self._rejoin("need to revoke partitions and re-join", Cause.REVOCATION_FOLLOW_UP)
        else:
            self._look_for_changes()

    def _look_for_changes(self) -> None:
        """A stable member rejoins when its subscription, or as a leader the group's topics, changed."""
        if self.state is not State.STABLE:
            return
        if self._joined_topics != self.topics:
            self._rejoin(f"subscription changed to {', '.join(self.topics)}", Cause.SUBSCRIPTION_CHANGED)
        elif self.is_leader and (changes := self._watch.changes()):
            self._rejoin(f"partition counts changed: {changes}", Cause.PARTITIONS_CHANGED)

    # Callbacks

    def _tell(self, kind: type[act.Revoke] | type[act.Lost], partitions: Iterable[TopicPartition]) -> None:
        """From here on the partitions are not this member's any more, whatever the callback does."""
        gone: Partitions = tuple(sorted(partitions))
        self.owned -= set(gone)
        token = self._requests.ask(RequestKind.RELEASE)
        deadline_ms = self._now_ms + self.settings.rebalance_timeout_ms
        self._out.append(kind(token, gone, self._cause, self._cause_detail, self.rebalance_number, deadline_ms))

    def _released(self) -> None:
        match self.state:
            case State.RELEASING:
                self._try_to_join()
            case State.ADOPTING:
                if self.generation == NO_GENERATION:
                    self._try_to_join()
                else:
                    self._take_share(rejoin=True)
            case State.CLOSING:
                self._leave_and_close()
            case _:
                # Told while the application was not polling: it joins again when it polls.
                pass

    # Liveness

    def _heartbeat_answered(self, answer: ev.HeartbeatAnswered) -> None:
        self._link.heard(self._now_ms)
        if answer.code is ErrorCode.NONE:
            self._link.well()
        else:
            self._hear(answer)

    def _hear(self, word: ev.HeartbeatAnswered | ev.Pushed | ev.CommitRefused) -> None:
        """What a refusal says about the membership."""
        code, message = word.code, word.message
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            # Only a member that believes it is stable has not heard of this rebalance yet.
            if self.state is State.STABLE:
                cause, detail = (
                    (Cause.UNSPECIFIED, "") if isinstance(word, ev.CommitRefused) else (word.cause, word.cause_detail)
                )
                self._rejoin("group is already rebalancing", cause, detail=detail or message)
        elif code in LOOK_AGAIN:
            self._coordinator_lost()
        elif code in FORGOTTEN:
            self._forget_membership(code)
            self._cause = Cause.MEMBER_FENCED if code is ErrorCode.ILLEGAL_GENERATION else Cause.SESSION_EXPIRED
            self._cause_detail = code.meaning
            if self.state in {State.STABLE, State.PLANNING, State.SYNCING}:
                self._rejoin(f"the group went on without this member: {code.name}", self._cause)
        elif code is ErrorCode.FENCED_INSTANCE_ID or code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
            self._fail(code, message)

    def _forget_membership(self, code: ErrorCode) -> None:
        self.generation = NO_GENERATION
        self._link.heartbeat_at_ms = None
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    def _poll_expired(self) -> None:
        if self.state not in WORKING - {State.EXPIRED}:
            return
        reason = "consumer poll timeout has expired."
        self._cause, self._cause_detail = Cause.POLL_TIMEOUT, reason
        self._abandon(RequestKind.JOIN, RequestKind.SYNC, RequestKind.HEARTBEAT, RequestKind.FIND)
        if self.settings.group_instance_id is None and self.member_id:
            self._out.append(act.SendLeave(self.member_id, reason))
        self._forget_membership(ErrorCode.UNKNOWN_MEMBER_ID)
        self._link.retry_at_ms = None
        self._become(State.EXPIRED)
        if self.owned:
            self._tell(act.Lost, self.owned)

    def _polled(self) -> None:
        if self.state is not State.EXPIRED:
            return
        self._reason = "polling again after max.poll.interval.ms"
        if RequestKind.RELEASE in self._requests:
            self._become(State.RELEASING)
        else:
            self._try_to_join()

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
        if self.state is State.JOINING:
            self._try_to_join()
            return
        if not self._link.known:
            self._find()
        if self._plan is not None and self._plan_again:
            self._plan_again = False
            self._out.append(self._plan)

    def _heartbeat(self) -> None:
        self._link.schedule_heartbeat(self._now_ms)
        self._out.append(act.SendHeartbeat(self._requests.ask(RequestKind.HEARTBEAT), self.member_id, self.generation))

    def _may_heartbeat(self) -> bool:
        return (
            self.state in HEARTBEATING
            and self.generation != NO_GENERATION
            and self._link.known
            and RequestKind.HEARTBEAT not in self._requests
        )

    # The coordinator

    def _find(self) -> None:
        if RequestKind.FIND not in self._requests:
            self._out.append(act.FindCoordinator(self._requests.ask(RequestKind.FIND)))

    def _coordinator_found(self) -> None:
        self._link.found(self._now_ms)
        if self.state is State.JOINING and RequestKind.JOIN not in self._requests and self._link.retry_at_ms is None:
            self._try_to_join()
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
            reason = self._reason if kind is RequestKind.JOIN else "the answer to SyncGroup was lost"
            self._rejoin(reason, self._cause, later=True)
        else:
            self._coordinator_lost()

    # The end

    def _close(self, leaving: Leaving) -> None:
        if self.state is State.CLOSING:
            return
        if self.state in {State.IDLE, State.FAILED}:
            self._finish()
            return
        self._abandon(RequestKind.JOIN, RequestKind.SYNC, RequestKind.FIND)
        lost = self.generation == NO_GENERATION or self.rebalancing
        self._leaving, self._plan, self._link.retry_at_ms = leaving, None, None
        self._cause, self._cause_detail = Cause.MEMBER_LEFT, "the consumer is being closed"
        self._become(State.CLOSING)
        if self.owned:
            self._tell(act.Lost if lost else act.Revoke, self.owned)
        elif RequestKind.RELEASE not in self._requests:
            self._leave_and_close()

    def _leave_and_close(self) -> None:
        static = self.settings.group_instance_id is not None
        leaves = self._leaving is Leaving.LEAVE or (self._leaving is Leaving.DEFAULT and not static)
        if leaves and self.member_id:
            self._out.append(act.SendLeave(self.member_id, "the consumer is being closed"))
        self._finish()

    def _finish(self) -> None:
        self._abandon(*RequestKind)
        self.generation = NO_GENERATION
        self._become(State.CLOSED)
        self._out.append(act.Closed())

    def _fail(self, code: ErrorCode, message: str) -> None:
        self._abandon(RequestKind.JOIN, RequestKind.SYNC, RequestKind.HEARTBEAT, RequestKind.FIND)
        if self.state is State.CLOSING:
            self._leave_and_close()
            return
        self._link.retry_at_ms = self._link.heartbeat_at_ms = None
        self.generation = NO_GENERATION
        self._cause, self._cause_detail = Cause.MEMBER_FENCED, message or code.meaning
        if self.owned:
            self._tell(act.Lost, self.owned)
        self._become(State.FAILED)
        self._out.append(act.Fail(code, message or code.meaning))

    # Bookkeeping

    def _become(self, state: State) -> None:
        assert state is self.state or state in MOVES[self.state], f"{self.state} -> {state}"
        self.state = state

    def _abandon(self, *kinds: RequestKind) -> None:
        for kind in kinds:
            token = self._requests.drop(kind)
            if token is not None and kind is not RequestKind.RELEASE:
                self._out.append(act.Abandon(token))

    def _wish_to_wake(self) -> None:
        wishes = [self._link.retry_at_ms]
        if self._delay_runs:
            wishes.append(self._rejoin_at_ms)
        if self._may_heartbeat():
            wishes.append(self._link.heartbeat_at_ms)
        if RequestKind.HEARTBEAT in self._requests:
            wishes.append(self._link.session_end_ms)
        due: Sequence[int] = [wish for wish in wishes if wish is not None]
        if due:
            self._out.append(act.WakeAt(min(due)))
