"""The ZooKeeper-based consumer as one state machine: registration, watches, owner registry and retries.

`step(event, now_ms)` returns the actions to perform, in order. There is no coordinator: every member reads the group,
computes its own share and claims it. Members that read different views meet each other's claims, back off and read
again. Each rebalance stops the whole member: callbacks and commits run before its owner nodes are deleted. After a
lost session every ephemeral node is gone, and the consumer registers again.
"""

from collections.abc import Mapping
from enum import Enum
from typing import assert_never

from muster.assignors.api import TopicPartition
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members import zookeeper_events as zk
from muster.client.members.coordinated_member import LEAVE_REASON, POLL_TIMEOUT
from muster.client.members.member_types import NO_GENERATION, Partitions
from muster.client.members.zookeeper_assignment import (
    ClaimedShare,
    ConsumerGroupView,
    GroupRegistration,
    ZookeeperMemberSettings,
    ZookeeperSession,
    ZookeeperStrategy,
    build_registration,
    compute_share,
    find_rebalance_cause,
    restrict_to_own_topics,
    shorten_names,
)
from muster.coordinator.core.model.types import Cause
from muster.coordinator.errors import ErrorCode

# States and legal moves
# ----------------------


class ZookeeperState(Enum):
    """Where the consumer stands."""

    IDLE = "idle"
    WAITING = "waits for a session with ZooKeeper"
    REGISTERING = "creates its node in ids"
    READING = "reads members, topics and brokers, and sets the watches anew"
    REVOKING = "waits for callbacks and commits before it releases"
    RELEASING = "deletes its nodes in the owner registry"
    CLAIMING = "creates its nodes in the owner registry"
    BACKING_OFF = "waits before it tries again"
    STABLE = "owns its share"
    GAVE_UP = "ran out of retries; the next watch starts it again"
    EXPIRED = "its application stopped polling"
    CLOSING = "waits for callbacks before it leaves"
    CLOSED = "closed"
    FAILED = "refused for good"


S = ZookeeperState
ENDS = frozenset({S.EXPIRED, S.CLOSING, S.FAILED})
"""From wherever it works, the application or a refusal may end it. (A session that ends leads to WAITING.)"""

MOVES: dict[ZookeeperState, frozenset[ZookeeperState]] = {
    S.IDLE: frozenset({S.WAITING, S.REGISTERING, S.CLOSED}),
    S.WAITING: frozenset({S.REGISTERING}) | ENDS,
    S.REGISTERING: frozenset({S.READING, S.BACKING_OFF, S.WAITING}) | ENDS,
    S.READING: frozenset(
        {S.REVOKING, S.RELEASING, S.CLAIMING, S.STABLE, S.BACKING_OFF, S.GAVE_UP, S.REGISTERING, S.WAITING}
    )
    | ENDS,
    S.REVOKING: frozenset({S.RELEASING, S.BACKING_OFF, S.WAITING}) | ENDS,
    S.RELEASING: frozenset({S.CLAIMING, S.READING, S.REGISTERING, S.BACKING_OFF, S.GAVE_UP, S.STABLE, S.WAITING})
    | ENDS,
    S.CLAIMING: frozenset({S.STABLE, S.RELEASING, S.BACKING_OFF, S.GAVE_UP, S.WAITING}) | ENDS,
    S.BACKING_OFF: frozenset({S.READING, S.REVOKING, S.RELEASING, S.REGISTERING, S.WAITING}) | ENDS,
    S.STABLE: frozenset({S.READING, S.REVOKING, S.REGISTERING, S.WAITING}) | ENDS,
    S.GAVE_UP: frozenset({S.READING, S.REGISTERING, S.WAITING}) | ENDS,
    S.EXPIRED: frozenset({S.WAITING, S.REGISTERING, S.CLOSING}),
    S.CLOSING: frozenset({S.CLOSED}),
    S.FAILED: frozenset({S.CLOSED}),
    S.CLOSED: frozenset(),
}
REBALANCING = frozenset({S.READING, S.REVOKING, S.RELEASING, S.CLAIMING, S.BACKING_OFF})
RESTING = frozenset({S.STABLE, S.GAVE_UP})
"""Where nothing is under way, and a watch starts a rebalance."""


# Member state
# ------------


class ZookeeperMemberBase:
    """What it owns, its generation and its consumer id are its to say.

    `generation` is the transaction number of its newest claim: it grows from owner to owner of a partition.
    """

    def __init__(self, settings: ZookeeperMemberSettings, registration: GroupRegistration) -> None:
        self.settings = settings
        self.state = ZookeeperState.IDLE
        self.consumer_id = ""
        self.generation = NO_GENERATION
        self.owned: set[TopicPartition] = set()
        self.nodes: set[TopicPartition] = set()
        """Owner nodes that are, or may be, this session's. More than `owned` while it lets go or claims."""
        self._registration = registration
        self._registered_as: GroupRegistration | None = None
        self.cause, self.detail = Cause.UNSPECIFIED, ""
        """Of the change under way."""
        self._asked: int | None = None
        self._release_token: int | None = None
        self._last_token = 0
        self._now_ms = 0
        self._out: list[zk.ZookeeperAction] = []

    @property
    def rebalancing(self) -> bool:
        return self.state in REBALANCING

    @property
    def registered(self) -> bool:
        return self._registered_as is not None

    @property
    def awaited_release(self) -> int | None:
        """The token of the callbacks this member waits for."""
        return self._release_token

    def _release_partitions(self, kind: type[act.Revoke] | type[act.Lost]) -> None:
        """From here on nothing is this member's any more, whatever the callback does."""
        if not self.owned:
            return
        gone: Partitions = tuple(sorted(self.owned))
        self.owned.clear()
        self._last_token += 1
        self._release_token = self._last_token
        # Whoever waits for its claims tries so long, and no longer.
        deadline_ms = self._now_ms + self.settings.patience_ms
        self._out.append(kind(self._last_token, gone, self.cause, self.detail, 0, deadline_ms))

    def _become(self, state: ZookeeperState) -> None:
        assert state is self.state or state in MOVES[self.state], f"{self.state} -> {state}"
        self.state = state

    def _next_token(self) -> int:
        assert self._asked is None, "at most one request is under way"
        self._last_token += 1
        self._asked = self._last_token
        return self._last_token

    def _abandon(self) -> None:
        if self._asked is not None:
            self._out.append(act.Abandon(self._asked))
            self._asked = None


# One rebalance
# -------------


OTHER_RULES = (
    "; if one of them is a consumer of Kafka, set zookeeper.consumer.version to its release: round robin differs "
    "between releases"
)


class AfterRelease(Enum):
    """What comes once this member holds no owner node any more."""

    CLAIM = "claim the share"
    REGISTER = "register (again)"
    BACK_OFF = "wait, then read everything afresh"
    GIVE_UP = "tell the application"


class ZookeeperRebalance(ZookeeperMemberBase):
    """Whoever hears the watches calls `_look_again`, and hands in the answers."""

    def __init__(self, settings: ZookeeperMemberSettings, registration: GroupRegistration) -> None:
        super().__init__(settings, registration)
        self.attempts = 0
        """Attempts of the rebalance under way that failed."""
        self._strategy = ZookeeperStrategy(settings.strategy)
        self._linked = False
        self._again = False
        """A watch fired after the last read began."""
        self._view: ConsumerGroupView | None = None
        """What the share that is owned was computed from."""
        self._seen: ConsumerGroupView | None = None
        self._planned: tuple[ConsumerGroupView, ClaimedShare] = (ConsumerGroupView(), {})
        self._then = AfterRelease.CLAIM
        self._obstacle, self._holders = "", dict[TopicPartition, str]()
        self._retry_at_ms: int | None = None

    def _register(self) -> None:
        if not self._linked:
            self._become(ZookeeperState.WAITING)
            return
        self._become(ZookeeperState.REGISTERING)
        self._registered_as = self._registration
        self._out.append(zk.CreateRegistration(self._next_token(), self._registration))

    def _look_again(self) -> None:
        """A trigger. In the middle of a rebalance it becomes one more, however many there are."""
        self._again = True
        if self.state in RESTING and self._linked:
            self.attempts = 0
            self._read()

    def _read(self) -> None:
        if self._registered_as != self._registration:
            self.cause, self.detail = Cause.SUBSCRIPTION_CHANGED, "this consumer subscribes to something else"
            self._let_go(AfterRelease.REGISTER)
            return
        self._become(ZookeeperState.READING)
        self._again = False
        self._out.append(zk.ReadGroup(self._next_token(), afresh=self.attempts > 0))

    def _take_view(self, view: ConsumerGroupView) -> None:
        if self.consumer_id not in view.members:
            self._unregistered()
            return
        settings = self.settings
        try:
            mine = restrict_to_own_topics(self.consumer_id, view, settings.exclude_internal_topics, settings.rules)
            if self._is_as_before(mine):
                self._rest(ZookeeperState.STABLE)
                return
            share = compute_share(
                self.consumer_id, view, self._strategy, settings.exclude_internal_topics, settings.rules
            )
            self._planned = mine, share
        except ValueError as error:
            self._missed(str(error), {})
            return
        self._let_go(AfterRelease.CLAIM)

    def _is_as_before(self, view: ConsumerGroupView) -> bool:
        """Nothing is different after all; or no broker is there to read from, and one that comes back is told of."""
        cause, detail = find_rebalance_cause(self._seen, view, self.consumer_id)
        self._seen = view
        if cause is not Cause.UNSPECIFIED:
            self.cause, self.detail = cause, detail
        return view == self._view or not view.brokers

    def _unregistered(self) -> None:
        """Somebody deleted its registration: to the others it is dead already."""
        self.cause, self.detail = Cause.MEMBER_FENCED, f"{self.consumer_id} is not registered any more"
        self._registered_as = self._view = self._seen = None
        self.generation = NO_GENERATION
        self._release_partitions(act.Lost)
        self._release(AfterRelease.BACK_OFF)

    def _let_go(self, then: AfterRelease) -> None:
        """Stop reading, commit, tell the application; then release."""
        self._then, self._view = then, None
        if self.owned:
            self._become(ZookeeperState.REVOKING)
            self._release_partitions(act.Revoke)
        else:
            self._release(then)

    def _release(self, then: AfterRelease) -> None:
        self._then = then
        if not self.nodes:
            self._released()
            return
        self._become(ZookeeperState.RELEASING)
        self._out.append(zk.ReleaseOwners(self._next_token(), tuple(sorted(self.nodes))))

    def _released(self) -> None:
        self.nodes.clear()
        self.generation = NO_GENERATION
        match self._then:
            case AfterRelease.CLAIM if self._again:
                # What was planned is out of date, and nothing is lost by looking once more.
                self._read()
            case AfterRelease.CLAIM:
                self._claim()
            case AfterRelease.REGISTER:
                self._register()
            case AfterRelease.BACK_OFF:
                self._back_off()
            case AfterRelease.GIVE_UP:
                self._give_up()
            case _:
                assert_never(self._then)

    def _claim(self) -> None:
        share = self._planned[1]
        if not share:
            # More consumers than partitions: this one idles.
            self._take_share(0)
            return
        self._become(ZookeeperState.CLAIMING)
        self.nodes = set(share)
        self._out.append(zk.ClaimOwners(self._next_token(), self.consumer_id, share))

    def _claimed(self, answer: zk.OwnersClaimed) -> None:
        if not answer.conflicts:
            self._take_share(answer.stamp)
            return
        self.nodes -= set(answer.conflicts)
        held = {f"{topic}-{number} by {holder}" for (topic, number), holder in answer.conflicts.items()}
        hint = OTHER_RULES if self._strategy is ZookeeperStrategy.ROUNDROBIN else ""
        self._missed(f"owned by others: {shorten_names(held)}{hint}", answer.conflicts)

    def _take_share(self, stamp: int) -> None:
        self._view, share = self._planned
        self.owned = set(share)
        self.generation = stamp
        self.attempts = 0
        everything: Partitions = tuple(sorted(share))
        self._out.append(act.Assign(everything, everything, self.cause, self.detail, 0, stamp))
        self._rest(ZookeeperState.STABLE)

    def _rest(self, state: ZookeeperState) -> None:
        """Nothing to do, unless a watch fired in the meantime or the subscription changed."""
        self._become(state)
        if self._linked and (self._again or self._registered_as != self._registration):
            self._read()

    # When it does not come out

    def _missed(self, why: str, holders: Mapping[TopicPartition, str]) -> None:
        """One attempt failed: let everything go, and try again later for as long as there are retries."""
        self.attempts += 1
        self._obstacle, self._holders = why, dict(holders)
        self._let_go(
            AfterRelease.BACK_OFF if self.attempts <= self.settings.rebalance_retries else AfterRelease.GIVE_UP
        )

    def _back_off(self) -> None:
        self._become(ZookeeperState.BACKING_OFF)
        self._retry_at_ms = self._now_ms + self.settings.rebalance_backoff_ms

    def _give_up(self) -> None:
        self.attempts = 0
        retries, backoff_ms = self.settings.rebalance_retries, self.settings.rebalance_backoff_ms
        self._out.append(
            zk.RebalanceGivenUp(
                f"can't rebalance after {retries} retries, {backoff_ms} ms apart: {self._obstacle}", self._holders
            )
        )
        self._rest(ZookeeperState.GAVE_UP)


# The member
# ----------

NEVER_ENDS = frozenset({ZookeeperState.IDLE, ZookeeperState.CLOSED}) | ENDS


class ZookeeperMemberMachine(ZookeeperRebalance):
    """One consumer of one group: what happens to it, its session, and how it ends."""

    def __init__(self, settings: ZookeeperMemberSettings, registration: GroupRegistration) -> None:
        super().__init__(settings, registration)
        self._back = False
        """The application polls again after it had expired."""

    def step(self, event: zk.ZookeeperEvent, now_ms: int) -> list[zk.ZookeeperAction]:
        """Take in one event; `now_ms` never goes back."""
        self._now_ms = now_ms
        self._out = []
        if self.state is not ZookeeperState.CLOSED:
            self._handle_event(event)
            if self._retry_at_ms is not None:
                self._out.append(act.WakeMemberAt(self._retry_at_ms))
        return self._out

    def _handle_event(self, event: zk.ZookeeperEvent) -> None:
        match event:
            case ev.Start():
                if self.state is ZookeeperState.IDLE:
                    self._register()
            case zk.SessionChanged():
                self._session_changed(event.link)
            case zk.WatchFired():
                self._look_again()
            case ev.CommitRefused():
                if event.generation == self.generation:
                    self._look_again()
            case ev.SubscriptionChanged():
                streams = self.settings.streams
                self._registration = build_registration(event.topics, event.regex, event.black_list, streams)
                if self._registered_as != self._registration:
                    self._look_again()
            case ev.PollExpired():
                self._poll_expired()
            case ev.PollResumed():
                self._polled()
            case ev.TimerExpired():
                self._tick()
            case ev.Close():
                self._close()
            case ev.Revoked():
                self._confirm_release(event.token)
            case ev.PartitionCountsChanged():
                pass  # The watches say it.
            case _:
                self._take_answer(event)

    def _take_answer(self, event: zk.ZookeeperAnswer) -> None:
        """Answers nobody waits for any more are dropped."""
        if event.token != self._asked:
            return
        self._asked = None
        match event:
            case zk.ConsumerRegistered():
                self.consumer_id = event.consumer_id
                self._read()
            case zk.GroupRead():
                self._take_view(event.view)
            case zk.GroupUnreadable():
                self._missed(event.detail, {})
            case zk.OwnersReleased():
                self._released()
            case zk.OwnersClaimed():
                self._claimed(event)
            case zk.ConsumerWithdrawn():
                self._withdrawn()
            case ev.RequestFailed():
                self._request_failed(event)
            case _:
                assert_never(event)

    # The session

    def _session_changed(self, link: ZookeeperSession) -> None:
        self._linked = link is ZookeeperSession.CONNECTED
        match link:
            case ZookeeperSession.CONNECTED:
                self._linked_again()
            case ZookeeperSession.SUSPENDED:
                # Its nodes are still there, so what it owns is still its own: it goes on reading.
                pass
            case ZookeeperSession.LOST:
                self._session_lost()
            case _:
                assert_never(link)

    def _linked_again(self) -> None:
        match self.state:
            case ZookeeperState.WAITING:
                self._register()
            case ZookeeperState.BACKING_OFF | ZookeeperState.EXPIRED if (
                self._asked is None and self._retry_at_ms is None
            ):
                self._retry()
            case ZookeeperState.STABLE | ZookeeperState.GAVE_UP if self._again:
                self._read()
            case _:
                pass

    def _session_lost(self) -> None:
        """Every node of it is gone: others may own its partitions already."""
        if self.state in {ZookeeperState.IDLE, ZookeeperState.FAILED}:
            return
        self._drop_everything()
        self.cause, self.detail = Cause.SESSION_EXPIRED, "the session with ZooKeeper expired"
        if self.state is ZookeeperState.EXPIRED:
            if self._back:
                self._become(ZookeeperState.WAITING)
        elif self.state is not ZookeeperState.CLOSING:
            self._become(ZookeeperState.WAITING)
            self._release_partitions(act.Lost)

    def _drop_everything(self) -> None:
        self._abandon()
        self.nodes.clear()
        self.generation = NO_GENERATION
        self._registered_as = self._view = self._seen = None
        self.attempts, self._retry_at_ms = 0, None

    # When a request fails, and when it is time

    def _request_failed(self, failure: ev.RequestFailed) -> None:
        if not failure.retriable:
            self._fail(failure.detail)
            return
        # Out of touch is not an attempt that failed: it goes on where it was once the session is back.
        if self.state is ZookeeperState.REGISTERING:
            self._registered_as = None
        elif self.state is ZookeeperState.CLAIMING:
            self._then = AfterRelease.BACK_OFF
        if self.state is not ZookeeperState.EXPIRED:
            self._become(ZookeeperState.BACKING_OFF)
        self._retry_at_ms = self._now_ms + self.settings.rebalance_backoff_ms if self._linked else None

    def _tick(self) -> None:
        if self._retry_at_ms is None or self._now_ms < self._retry_at_ms:
            return
        self._retry_at_ms = None
        if self._linked:
            self._retry()

    def _retry(self) -> None:
        if self.state is ZookeeperState.EXPIRED:
            self._withdraw()
        elif self.nodes and not self.owned:
            self._release(self._then)
        elif not self.registered:
            self._register()
        else:
            self._read()

    def _fail(self, detail: str) -> None:
        self._drop_everything()
        self.cause, self.detail = Cause.MEMBER_FENCED, detail
        self._release_partitions(act.Lost)
        self._become(ZookeeperState.FAILED)
        self._out.append(act.Fail(ErrorCode.UNKNOWN_SERVER_ERROR, detail))

    # Callbacks

    def _confirm_release(self, token: int) -> None:
        if token != self._release_token:
            return
        self._release_token = None
        if self.state is ZookeeperState.REVOKING:
            self._release(self._then)
        elif self.state is ZookeeperState.CLOSING:
            self._leave_and_close()

    # The application stopped polling

    def _poll_expired(self) -> None:
        if self.state in NEVER_ENDS:
            return
        self._abandon()
        self._retry_at_ms, self._back = None, False
        self.cause, self.detail = Cause.POLL_TIMEOUT, POLL_TIMEOUT
        self.generation, self._view = NO_GENERATION, None
        self._become(ZookeeperState.EXPIRED)
        self._release_partitions(act.Lost)
        self._withdraw()

    def _withdraw(self) -> None:
        if not self.nodes and not self.registered:
            self._withdrawn()
        elif self._linked:
            self._out.append(zk.WithdrawConsumer(self._next_token(), tuple(sorted(self.nodes))))

    def _withdrawn(self) -> None:
        self._drop_everything()
        if self._back:
            self._register()

    def _polled(self) -> None:
        if self.state is not ZookeeperState.EXPIRED:
            return
        self._back = True
        if not self.nodes and not self.registered:
            self._register()

    # The end

    def _close(self) -> None:
        if self.state is ZookeeperState.CLOSING:
            return
        self._abandon()
        self._retry_at_ms = None
        if self.state in {ZookeeperState.IDLE, ZookeeperState.FAILED}:
            self._finish()
            return
        lost = self.generation == NO_GENERATION
        self.cause, self.detail = Cause.MEMBER_LEFT, LEAVE_REASON
        self._become(ZookeeperState.CLOSING)
        self._release_partitions(act.Lost if lost else act.Revoke)
        if self._release_token is None:
            self._leave_and_close()

    def _leave_and_close(self) -> None:
        if self._linked and self.registered:
            self._out.append(zk.WithdrawConsumer(self._next_token(), tuple(sorted(self.nodes))))
        self._finish()

    def _finish(self) -> None:
        self.generation = NO_GENERATION
        self.nodes.clear()
        self._become(ZookeeperState.CLOSED)
        self._out.append(act.Closed())
