"""Performs what a consumer of the ZooKeeper era asks for, by its session; callbacks are queued for its owner."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from muster.client.calls.transport import now_ms
from muster.client.errors import ConsumerRebalanceFailed, ZookeeperRefused
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members import zookeeper_events as zk
from muster.client.members.assign import resolve_topics
from muster.client.members.zookeeper_machine import ZookeeperMemberMachine
from muster.client.members.zookeeper_states import ZookeeperState
from muster.client.members.zookeeper_types import (
    ConsumerGroupView,
    GroupRegistration,
    ZookeeperMemberSettings,
    ZookeeperSession,
)
from muster.client.membership.performing import DriverBase
from muster.client.membership.seam import Callback, Wake
from muster.client.membership.telling import build_callback
from muster.client.types import GroupMetadata
from muster.coordinator.zookeeper.consumer import RegisteredConsumer
from muster.coordinator.zookeeper.errors import ConnectionLost, MalformedZnode, SessionExpired, ZooKeeperError
from muster.coordinator.zookeeper.session import SessionState, ZooKeeperSession

log = logging.getLogger("muster.client")

LookAtLeaders = Callable[[ConsumerGroupView, GroupRegistration, Mapping[str, int]], Awaitable[None]]

LEAVE_PATIENCE_S = 5.0
"""How long a closing consumer waits until its nodes are gone; its session's end removes them anyway."""

LINKS = {
    SessionState.CONNECTED: ZookeeperSession.CONNECTED,
    SessionState.SUSPENDED: ZookeeperSession.SUSPENDED,
    SessionState.LOST: ZookeeperSession.LOST,
}


class ZookeeperDriver(DriverBase[zk.ZookeeperEvent]):
    """One consumer on the running loop. `brokers_changed` is called when nodes came or went.

    `leaders` hears, before anything is claimed, what was read of the group and who leads the topics of this consumer.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        settings: ZookeeperMemberSettings,
        registration: GroupRegistration,
        wake: Wake,
        brokers_changed: Callable[[], None],
        leaders: LookAtLeaders,
        *,
        name: str | None,
        offsets: tuple[str, ...],
    ) -> None:
        super().__init__(settings.group_id, wake)
        self.settings = settings
        self.machine = ZookeeperMemberMachine(settings, registration)
        self.registry = RegisteredConsumer(session, settings.group_id, self._watch_fired, name=name, offsets=offsets)
        self._brokers_changed = brokers_changed
        self._leaders = leaders
        self._over = False
        session.on_state(self._session_changed)
        self._session_changed(session.state)

    @property
    def identity(self) -> GroupMetadata:
        machine = self.machine
        return GroupMetadata(self.settings.group_id, machine.generation, machine.consumer_id, None)

    @property
    def watches_topics(self) -> bool:
        """Its watches tell it."""
        return False

    def send(self, event: zk.ZookeeperEvent) -> None:
        """Step the machine and start what it asks for."""
        if self._over:
            return
        before = self.machine.state
        for action in self.machine.step(event, now_ms()):
            self._perform(action)
        if self.machine.state is not before:
            name, woken = self.machine.consumer_id or self.settings.group_id, self.registry.notifications
            log.debug("%s: %s (woken %d times so far)", name, self.machine.state.value, woken)

    def next_callback(self) -> Callback | None:
        """What was to be revoked is lost if the session ended in the meantime."""
        if not self.callbacks:
            return None
        callback = self.callbacks.popleft()
        machine = self.machine
        if callback.kind == "revoked" and machine.generation < 0 and machine.state is not ZookeeperState.CLOSED:
            why = replace(callback.event, kind="lost", cause=machine.cause, detail=machine.detail)
            return replace(callback, kind="lost", event=why)
        return callback

    async def abort(self) -> None:
        self._over = True
        await self._stop()

    async def left(self) -> None:
        """A callback that was interrupted (Ctrl-C) does not keep the consumer from leaving."""
        while (token := self.machine.awaited_release) is not None:
            self.send(ev.Revoked(token))
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=LEAVE_PATIENCE_S)
        await self.abort()

    # What is heard

    def _session_changed(self, state: SessionState) -> None:
        self.send(zk.SessionChanged(LINKS[state]))

    def _watch_fired(self, what: str) -> None:
        if what in ("brokers", "session") and not self._over:
            self._brokers_changed()
        self.send(zk.WatchFired(what))

    # What is asked for

    def _perform(self, action: zk.ZookeeperAction) -> None:
        match action:
            case zk.CreateRegistration():
                self._ask(action.token, self._register(action))
            case zk.ReadGroup():
                self._ask(action.token, self._read(action))
            case zk.ReleaseOwners():
                self._ask(action.token, self._release(action))
            case zk.ClaimOwners():
                self._ask(action.token, self._claim(action))
            case zk.WithdrawConsumer():
                self._ask(action.token, self._withdraw(action))
            case zk.RebalanceGivenUp():
                self.trouble = ConsumerRebalanceFailed(
                    f"group {self.settings.group_id!r}: {action.message}", action.holders
                )
                self._wake_owner()
            case act.Abandon():
                self._abandon(action.token)
            case act.WakeMemberAt():
                self._wake_at(action.at_ms)
            case act.Fail():
                self.failure = ZookeeperRefused(action.message)
                self._wake_owner()
            case act.Closed():
                pass  # Whoever closes looks at the machine's state.
            case _:
                self.callbacks.append(self._callback(action))
                self._wake_owner()

    def _callback(self, action: act.Revoke | act.Lost | act.Assign) -> Callback:
        machine = self.machine
        return build_callback(action, machine.generation, "eager", machine.owned, self.settings.patience_ms)

    async def _register(self, action: zk.CreateRegistration) -> zk.ZookeeperAnswer:
        return zk.ConsumerRegistered(action.token, await self.registry.register(action.registration))

    async def _read(self, action: zk.ReadGroup) -> zk.ZookeeperAnswer:
        try:
            view = await self.registry.read(action.afresh)
            await self._look_at_leaders(view)
        except MalformedZnode as error:
            return zk.GroupUnreadable(action.token, str(error))
        return zk.GroupRead(action.token, view)

    async def _look_at_leaders(self, view: ConsumerGroupView) -> None:
        mine = view.members.get(self.machine.consumer_id)
        if mine is None:
            return
        try:
            topics = resolve_topics(
                self.machine.consumer_id, mine, view.partitions, self.settings.exclude_internal_topics
            )
        except ValueError:
            return  # The machine says what is wrong with the expression.
        leaders = self.registry.leaders
        await self._leaders(view, mine, {topic: leaders[topic] for topic in topics if topic in leaders})

    async def _release(self, action: zk.ReleaseOwners) -> zk.ZookeeperAnswer:
        await self.registry.owners.release(action.partitions)
        return zk.OwnersReleased(action.token)

    async def _claim(self, action: zk.ClaimOwners) -> zk.ZookeeperAnswer:
        conflicts, newest = await self.registry.claim(action.consumer_id, action.share)
        return zk.OwnersClaimed(action.token, conflicts, newest)

    async def _withdraw(self, action: zk.WithdrawConsumer) -> zk.ZookeeperAnswer:
        await self.registry.withdraw(action.partitions)
        return zk.ConsumerWithdrawn(action.token)

    def _failed(self, token: int, error: Exception) -> ev.RequestFailed | None:
        if not isinstance(error, ZooKeeperError):
            return None
        return ev.RequestFailed(token, isinstance(error, ConnectionLost | SessionExpired), str(error))
