"""A consumer of the ZooKeeper era as one state machine: registration, watches, owner registry, retries.

`step(event, now_ms)` answers with the actions to perform, in order. There is no coordinator: every member reads the
group for itself, computes its own share, and claims it. Whoever read something else meets the other's claims, backs
off and reads again. Every rebalance stops the whole member: callbacks and commits come before its nodes go.
"""

from collections.abc import Mapping
from enum import Enum
from typing import assert_never

from coordinator.core.types import Cause
from coordinator.errors import ErrorCode
from coordinator.member import actions as act
from coordinator.member import events as ev
from coordinator.member import zookeeper_events as zk
from coordinator.member.types import NO_GENERATION, Partitions, TopicPartition
from coordinator.member.zookeeper_assign import only_topics_of, share_of
from coordinator.member.zookeeper_books import Books
from coordinator.member.zookeeper_changes import some, what_changed
from coordinator.member.zookeeper_states import ENDS, RESTS
from coordinator.member.zookeeper_states import ZookeeperState as State
from coordinator.member.zookeeper_types import (
    GroupView,
    Link,
    Registration,
    Share,
    Strategy,
    ZookeeperSettings,
    registration_of,
)

NEVER_ENDS = frozenset({State.IDLE, State.CLOSED}) | ENDS


class Then(Enum):
    """What comes once this member holds no owner node any more."""

    CLAIM = "claim the share"
    REGISTER = "register (again)"
    BACK_OFF = "wait, then read everything afresh"
    GIVE_UP = "tell the application"


class ZookeeperMember(Books):
    """One consumer of one group."""

    def __init__(self, settings: ZookeeperSettings, registration: Registration) -> None:
        super().__init__(settings, registration)
        self.attempts = 0
        """Attempts of the rebalance under way that failed."""
        self._strategy = Strategy(settings.strategy)
        self._linked = False
        self._again = False
        """A watch fired after the last read began."""
        self._view: GroupView | None = None
        """What the share that is owned was computed from."""
        self._seen: GroupView | None = None
        self._planned: tuple[GroupView, Share] = (GroupView(), {})
        self._then = Then.CLAIM
        self._obstacle, self._holders = "", dict[TopicPartition, str]()
        self._retry_at_ms: int | None = None
        self._back = False
        """The application polls again after it had expired."""

    def step(self, event: zk.Event, now_ms: int) -> list[zk.Action]:
        """Take in one event; `now_ms` never goes back."""
        self._now_ms = now_ms
        self._out = []
        if self.state is not State.CLOSED:
            self._take(event)
            if self._retry_at_ms is not None:
                self._out.append(act.WakeAt(self._retry_at_ms))
        return self._out

    def _take(self, event: zk.Event) -> None:
        match event:
            case ev.Start():
                if self.state is State.IDLE:
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
                self._registration = registration_of(event.topics, event.regex, event.black_list, streams)
                if self._registered_as != self._registration:
                    self._look_again()
            case ev.PollExpired():
                self._poll_expired()
            case ev.Polled():
                self._polled()
            case ev.Tick():
                self._tick()
            case ev.Close():
                self._close()
            case ev.Revoked():
                self._told(event.token)
            case ev.TopicsChanged():
                pass  # The watches say it.
            case _:
                self._take_answer(event)

    def _take_answer(self, event: zk.Answer) -> None:
        """Answers nobody waits for any more are dropped."""
        if event.token != self._asked:
            return
        self._asked = None
        match event:
            case zk.Registered():
                self.consumer_id = event.consumer_id
                self._read()
            case zk.GroupRead():
                self._take_view(event.view)
            case zk.Unreadable():
                self._missed(event.detail, {})
            case zk.Released():
                self._released()
            case zk.Claimed():
                self._claimed(event)
            case zk.Withdrawn():
                self._withdrawn()
            case ev.RequestFailed():
                self._request_failed(event)
            case _:
                assert_never(event)

    # The session

    def _session_changed(self, link: Link) -> None:
        self._linked = link is Link.CONNECTED
        match link:
            case Link.CONNECTED:
                self._linked_again()
            case Link.SUSPENDED:
                # Its nodes are still there, so what it owns is still its own: it goes on reading.
                pass
            case Link.LOST:
                self._session_lost()
            case _:
                assert_never(link)

    def _linked_again(self) -> None:
        match self.state:
            case State.WAITING:
                self._register()
            case State.BACKING_OFF | State.EXPIRED if self._asked is None and self._retry_at_ms is None:
                self._retry()
            case State.STABLE | State.GAVE_UP if self._again:
                self._read()
            case _:
                pass

    def _session_lost(self) -> None:
        """Every node of it is gone: others may own its partitions already."""
        if self.state in {State.IDLE, State.FAILED}:
            return
        self._drop_everything()
        self.cause, self.detail = Cause.SESSION_EXPIRED, "the session with ZooKeeper expired"
        if self.state is State.EXPIRED:
            if self._back:
                self._become(State.WAITING)
        elif self.state is not State.CLOSING:
            self._become(State.WAITING)
            self._tell(act.Lost)

    def _drop_everything(self) -> None:
        self._abandon()
        self.nodes.clear()
        self.generation = NO_GENERATION
        self._registered_as = self._view = self._seen = None
        self.attempts, self._retry_at_ms = 0, None

    def _register(self) -> None:
        if not self._linked:
            self._become(State.WAITING)
            return
        self._become(State.REGISTERING)
        self._registered_as = self._registration
        self._out.append(zk.Register(self._ask(), self._registration))

    # A rebalance: read, let go, claim

    def _look_again(self) -> None:
        """A trigger. In the middle of a rebalance it becomes one more, however many there are."""
        self._again = True
        if self.state in RESTS and self._linked:
            self.attempts = 0
            self._read()

    def _read(self) -> None:
        if self._registered_as != self._registration:
            self.cause, self.detail = Cause.SUBSCRIPTION_CHANGED, "this consumer subscribes to something else"
            self._let_go(Then.REGISTER)
            return
        self._become(State.READING)
        self._again = False
        self._out.append(zk.ReadGroup(self._ask(), afresh=self.attempts > 0))

    def _take_view(self, view: GroupView) -> None:
        if self.consumer_id not in view.members:
            self._unregistered()
            return
        exclude_internal = self.settings.exclude_internal_topics
        try:
            mine = only_topics_of(self.consumer_id, view, exclude_internal)
            if self._is_as_before(mine):
                self._rest(State.STABLE)
                return
            self._planned = mine, share_of(self.consumer_id, view, self._strategy, exclude_internal)
        except ValueError as error:
            self._missed(str(error), {})
            return
        self._let_go(Then.CLAIM)

    def _is_as_before(self, view: GroupView) -> bool:
        """Nothing is different after all; or no broker is there to read from, and one that comes back is told of."""
        cause, detail = what_changed(self._seen, view, self.consumer_id)
        self._seen = view
        if cause is not Cause.UNSPECIFIED:
            self.cause, self.detail = cause, detail
        return view == self._view or not view.brokers

    def _unregistered(self) -> None:
        """Somebody deleted its registration: to the others it is dead already."""
        self.cause, self.detail = Cause.MEMBER_FENCED, f"{self.consumer_id} is not registered any more"
        self._registered_as = self._view = self._seen = None
        self.generation = NO_GENERATION
        self._tell(act.Lost)
        self._release(Then.BACK_OFF)

    def _let_go(self, then: Then) -> None:
        """Stop reading, commit, tell the application; then release."""
        self._then, self._view = then, None
        if self.owned:
            self._become(State.REVOKING)
            self._tell(act.Revoke)
        else:
            self._release(then)

    def _release(self, then: Then) -> None:
        self._then = then
        if not self.nodes:
            self._released()
            return
        self._become(State.RELEASING)
        self._out.append(zk.Release(self._ask(), tuple(sorted(self.nodes))))

    def _released(self) -> None:
        self.nodes.clear()
        self.generation = NO_GENERATION
        match self._then:
            case Then.CLAIM if self._again:
                # What was planned is out of date, and nothing is lost by looking once more.
                self._read()
            case Then.CLAIM:
                self._claim()
            case Then.REGISTER:
                self._register()
            case Then.BACK_OFF:
                self._back_off()
            case Then.GIVE_UP:
                self._give_up()
            case _:
                assert_never(self._then)

    def _claim(self) -> None:
        share = self._planned[1]
        if not share:
            # More consumers than partitions: this one idles.
            self._take_share(0)
            return
        self._become(State.CLAIMING)
        self.nodes = set(share)
        self._out.append(zk.Claim(self._ask(), self.consumer_id, share))

    def _claimed(self, answer: zk.Claimed) -> None:
        if not answer.conflicts:
            self._take_share(answer.stamp)
            return
        self.nodes -= set(answer.conflicts)
        held = {f"{topic}-{number} by {holder}" for (topic, number), holder in answer.conflicts.items()}
        self._missed(f"owned by others: {some(held)}", answer.conflicts)

    def _take_share(self, stamp: int) -> None:
        self._view, share = self._planned
        self.owned = set(share)
        self.generation = stamp
        self.attempts = 0
        everything: Partitions = tuple(sorted(share))
        self._out.append(act.Assign(everything, everything, self.cause, self.detail, 0, stamp))
        self._rest(State.STABLE)

    def _rest(self, state: State) -> None:
        """Nothing to do, unless a watch fired in the meantime or the subscription changed."""
        self._become(state)
        if self._linked and (self._again or self._registered_as != self._registration):
            self._read()

    # When it does not come out

    def _missed(self, why: str, holders: Mapping[TopicPartition, str]) -> None:
        """One attempt failed: let everything go, and try again later for as long as there are retries."""
        self.attempts += 1
        self._obstacle, self._holders = why, dict(holders)
        self._let_go(Then.BACK_OFF if self.attempts <= self.settings.rebalance_retries else Then.GIVE_UP)

    def _back_off(self) -> None:
        self._become(State.BACKING_OFF)
        self._retry_at_ms = self._now_ms + self.settings.rebalance_backoff_ms

    def _give_up(self) -> None:
        self.attempts = 0
        retries, backoff_ms = self.settings.rebalance_retries, self.settings.rebalance_backoff_ms
        self._out.append(
            zk.RebalanceFailed(
                f"can't rebalance after {retries} retries, {backoff_ms} ms apart: {self._obstacle}", self._holders
            )
        )
        self._rest(State.GAVE_UP)

    def _request_failed(self, failure: ev.RequestFailed) -> None:
        if not failure.retriable:
            self._fail(failure.detail)
            return
        # Out of touch is not an attempt that failed: it goes on where it was once the session is back.
        if self.state is State.REGISTERING:
            self._registered_as = None
        elif self.state is State.CLAIMING:
            self._then = Then.BACK_OFF
        if self.state is not State.EXPIRED:
            self._become(State.BACKING_OFF)
        self._retry_at_ms = self._now_ms + self.settings.rebalance_backoff_ms if self._linked else None

    def _tick(self) -> None:
        if self._retry_at_ms is None or self._now_ms < self._retry_at_ms:
            return
        self._retry_at_ms = None
        if self._linked:
            self._retry()

    def _retry(self) -> None:
        if self.state is State.EXPIRED:
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
        self._tell(act.Lost)
        self._become(State.FAILED)
        self._out.append(act.Fail(ErrorCode.UNKNOWN_SERVER_ERROR, detail))

    # Callbacks

    def _told(self, token: int) -> None:
        if token != self._release_token:
            return
        self._release_token = None
        if self.state is State.REVOKING:
            self._release(self._then)
        elif self.state is State.CLOSING:
            self._leave_and_close()

    # The application stopped polling

    def _poll_expired(self) -> None:
        if self.state in NEVER_ENDS:
            return
        self._abandon()
        self._retry_at_ms, self._back = None, False
        self.cause, self.detail = Cause.POLL_TIMEOUT, "consumer poll timeout has expired."
        self.generation, self._view = NO_GENERATION, None
        self._become(State.EXPIRED)
        self._tell(act.Lost)
        self._withdraw()

    def _withdraw(self) -> None:
        if not self.nodes and not self.registered:
            self._withdrawn()
        elif self._linked:
            self._out.append(zk.Withdraw(self._ask(), tuple(sorted(self.nodes))))

    def _withdrawn(self) -> None:
        self._drop_everything()
        if self._back:
            self._register()

    def _polled(self) -> None:
        if self.state is not State.EXPIRED:
            return
        self._back = True
        if not self.nodes and not self.registered:
            self._register()

    # The end

    def _close(self) -> None:
        if self.state is State.CLOSING:
            return
        self._abandon()
        self._retry_at_ms = None
        if self.state in {State.IDLE, State.FAILED}:
            self._finish()
            return
        lost = self.generation == NO_GENERATION
        self.cause, self.detail = Cause.MEMBER_LEFT, "the consumer is being closed"
        self._become(State.CLOSING)
        self._tell(act.Lost if lost else act.Revoke)
        if self._release_token is None:
            self._leave_and_close()

    def _leave_and_close(self) -> None:
        if self._linked and self.registered:
            self._out.append(zk.Withdraw(self._ask(), tuple(sorted(self.nodes))))
        self._finish()

    def _finish(self) -> None:
        self.generation = NO_GENERATION
        self.nodes.clear()
        self._become(State.CLOSED)
        self._out.append(act.Closed())
