"""One round of a classic group, as a member goes through it: join, plan when it leads, sync, take the share.

A round begins with `_rejoin` and ends in STABLE, or where the coordinator's answer says that it begins again.
"""

from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.coordinated_member import CoordinatedMember
from muster.client.members.states import FIND_COORDINATOR_AGAIN, MEMBERSHIP_LOST, MOVES, RETRY_LATER, MembershipState
from muster.client.members.subscription import Subscriber
from muster.client.members.types import (
    MAX_REASON,
    NO_GENERATION,
    MemberSettings,
    Partitions,
    RequestKind,
    TopicPartition,
)
from muster.client.members.watch import TopicWatch
from muster.coordinator.core.model.types import Cause
from muster.coordinator.errors import ErrorCode

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
        self._link.well()
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
            self._tell(act.Revoke, change.revoked)
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
