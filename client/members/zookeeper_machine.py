"""A consumer of the ZooKeeper era as one state machine: registration, watches, owner registry, retries.

`step(event, now_ms)` answers with the actions to perform, in order. There is no coordinator: every member reads the
group for itself, computes its own share, and claims it. Whoever read something else meets the other's claims, backs
off and reads again. Every rebalance stops the whole member: callbacks and commits come before its nodes go.
"""

from typing import assert_never

from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members import zookeeper_events as zk
from muster.client.members.coordinated_member import LEAVE_REASON, POLL_TIMEOUT
from muster.client.members.types import NO_GENERATION
from muster.client.members.zookeeper_rounds import AfterRelease, ZookeeperRebalance
from muster.client.members.zookeeper_states import ENDS
from muster.client.members.zookeeper_states import ZookeeperState as State
from muster.client.members.zookeeper_types import (
    GroupRegistration,
    ZookeeperMemberSettings,
    ZookeeperSession,
    build_registration,
)
from muster.coordinator.core.model.types import Cause
from muster.coordinator.errors import ErrorCode

NEVER_ENDS = frozenset({State.IDLE, State.CLOSED}) | ENDS


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
        if self.state is not State.CLOSED:
            self._take(event)
            if self._retry_at_ms is not None:
                self._out.append(act.WakeMemberAt(self._retry_at_ms))
        return self._out

    def _take(self, event: zk.ZookeeperEvent) -> None:
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
                self._told(event.token)
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

    # When a request fails, and when it is time

    def _request_failed(self, failure: ev.RequestFailed) -> None:
        if not failure.retriable:
            self._fail(failure.detail)
            return
        # Out of touch is not an attempt that failed: it goes on where it was once the session is back.
        if self.state is State.REGISTERING:
            self._registered_as = None
        elif self.state is State.CLAIMING:
            self._then = AfterRelease.BACK_OFF
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
        self.cause, self.detail = Cause.POLL_TIMEOUT, POLL_TIMEOUT
        self.generation, self._view = NO_GENERATION, None
        self._become(State.EXPIRED)
        self._tell(act.Lost)
        self._withdraw()

    def _withdraw(self) -> None:
        if not self.nodes and not self.registered:
            self._withdrawn()
        elif self._linked:
            self._out.append(zk.WithdrawConsumer(self._ask(), tuple(sorted(self.nodes))))

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
        self.cause, self.detail = Cause.MEMBER_LEFT, LEAVE_REASON
        self._become(State.CLOSING)
        self._tell(act.Lost if lost else act.Revoke)
        if self._release_token is None:
            self._leave_and_close()

    def _leave_and_close(self) -> None:
        if self._linked and self.registered:
            self._out.append(zk.WithdrawConsumer(self._ask(), tuple(sorted(self.nodes))))
        self._finish()

    def _finish(self) -> None:
        self.generation = NO_GENERATION
        self.nodes.clear()
        self._become(State.CLOSED)
        self._out.append(act.Closed())
