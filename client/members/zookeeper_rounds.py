"""One rebalance as a consumer of the ZooKeeper era goes through it: read, let go, claim, or back off and read again."""

from collections.abc import Mapping
from enum import Enum
from typing import assert_never

from muster.client.members import actions as act
from muster.client.members import zookeeper_events as zk
from muster.client.members.assign import compute_share, restrict_to_own_topics
from muster.client.members.books import ZookeeperMemberBase
from muster.client.members.changes import find_rebalance_cause, shorten_names
from muster.client.members.types import NO_GENERATION, Partitions, TopicPartition
from muster.client.members.zookeeper_states import RESTING
from muster.client.members.zookeeper_states import ZookeeperState as State
from muster.client.members.zookeeper_types import (
    ClaimedShare,
    ConsumerGroupView,
    GroupRegistration,
    ZookeeperMemberSettings,
    ZookeeperStrategy,
)
from muster.coordinator.core.model.types import Cause


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
            self._become(State.WAITING)
            return
        self._become(State.REGISTERING)
        self._registered_as = self._registration
        self._out.append(zk.CreateRegistration(self._ask(), self._registration))

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
        self._become(State.READING)
        self._again = False
        self._out.append(zk.ReadGroup(self._ask(), afresh=self.attempts > 0))

    def _take_view(self, view: ConsumerGroupView) -> None:
        if self.consumer_id not in view.members:
            self._unregistered()
            return
        exclude_internal = self.settings.exclude_internal_topics
        try:
            mine = restrict_to_own_topics(self.consumer_id, view, exclude_internal)
            if self._is_as_before(mine):
                self._rest(State.STABLE)
                return
            self._planned = mine, compute_share(self.consumer_id, view, self._strategy, exclude_internal)
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
        self._tell(act.Lost)
        self._release(AfterRelease.BACK_OFF)

    def _let_go(self, then: AfterRelease) -> None:
        """Stop reading, commit, tell the application; then release."""
        self._then, self._view = then, None
        if self.owned:
            self._become(State.REVOKING)
            self._tell(act.Revoke)
        else:
            self._release(then)

    def _release(self, then: AfterRelease) -> None:
        self._then = then
        if not self.nodes:
            self._released()
            return
        self._become(State.RELEASING)
        self._out.append(zk.ReleaseOwners(self._ask(), tuple(sorted(self.nodes))))

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
        self._become(State.CLAIMING)
        self.nodes = set(share)
        self._out.append(zk.ClaimOwners(self._ask(), self.consumer_id, share))

    def _claimed(self, answer: zk.OwnersClaimed) -> None:
        if not answer.conflicts:
            self._take_share(answer.stamp)
            return
        self.nodes -= set(answer.conflicts)
        held = {f"{topic}-{number} by {holder}" for (topic, number), holder in answer.conflicts.items()}
        self._missed(f"owned by others: {shorten_names(held)}", answer.conflicts)

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
        self._let_go(
            AfterRelease.BACK_OFF if self.attempts <= self.settings.rebalance_retries else AfterRelease.GIVE_UP
        )

    def _back_off(self) -> None:
        self._become(State.BACKING_OFF)
        self._retry_at_ms = self._now_ms + self.settings.rebalance_backoff_ms

    def _give_up(self) -> None:
        self.attempts = 0
        retries, backoff_ms = self.settings.rebalance_retries, self.settings.rebalance_backoff_ms
        self._out.append(
            zk.RebalanceGivenUp(
                f"can't rebalance after {retries} retries, {backoff_ms} ms apart: {self._obstacle}", self._holders
            )
        )
        self._rest(State.GAVE_UP)
