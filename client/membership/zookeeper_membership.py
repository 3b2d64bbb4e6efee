"""Membership of a ZooKeeper-based consumer (`group.protocol=zookeeper`): its session, its nodes and its claims.

Each consumer has a session of its own: its claims end with it. Nodes are found through ZooKeeper. A standalone node
has its own log, so the consumer looks for the one that leads its topics; nodes of one cluster know all leaders, and
any of them will do.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from muster.client.calls.group_calls import GroupCalls
from muster.client.calls.transport import Transport, now_ms
from muster.client.config import ConsumerConfig
from muster.client.errors import ConsumerRebalanceFailed, IllegalState, ZookeeperAway, ZookeeperRefused
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members import zookeeper_events as zk
from muster.client.members.zookeeper_assignment import (
    OWN_RULES,
    STATIC,
    ConsumerGroupView,
    GroupRegistration,
    ZookeeperMemberSettings,
    ZookeeperSession,
    build_registration,
    check_retry_time,
    find_era_rules,
    resolve_topics,
)
from muster.client.members.zookeeper_member import ZookeeperMemberMachine, ZookeeperState
from muster.client.membership.member_driver import DriverBase
from muster.client.membership.ports import Callback, Interest, Wake, build_callback
from muster.client.membership.zookeeper_offsets import ConsumerClaims, ZookeeperStore
from muster.client.twins import BackgroundTasks
from muster.client.types import GroupMetadata
from muster.coordinator.observability.views.formatting import host_and_port
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.consumer_group import RegisteredConsumer, gather_bounded
from muster.coordinator.zookeeper.errors import (
    ConnectionLost,
    MalformedZnode,
    SessionExpired,
    ZooKeeperError,
    ZooKeeperUnreachable,
)
from muster.coordinator.zookeeper.session import SessionState, ZooKeeperSession

# The node that leads the topics
# ------------------------------

log = logging.getLogger("muster.client")

BETWEEN_NODES: Final = "REPLICATION"
"""The listener that nodes of a cluster register for each other."""


class TopicsLedApart(ZooKeeperError):
    """The topics of one consumer are led by several nodes."""


class TopicLeaderSearch:
    """`use` gets the nodes to speak to. What bootstrap.servers has `named` stays in use instead."""

    def __init__(self, session: ZooKeeperSession, use: Callable[[Sequence[str]], None], named: Sequence[str]) -> None:
        self._session = session
        self._use = use
        self._named = named
        self._leader: int | None = None
        self._said: set[str] = set()

    async def find_leaders(self, view: ConsumerGroupView, mine: GroupRegistration, topics: Mapping[str, int]) -> None:
        """Speak to whoever leads `topics` (topic -> broker id), and say what keeps this consumer from reading.

        Raises TopicsLedApart.
        """
        self._say_what_is_missing(view, mine)
        apart = find_split_leaders(topics)
        if apart and not (await read_registered_nodes(self._session)).shared:
            raise TopicsLedApart(f"{apart}; read them with a consumer, and in a group, for each node")
        if topics and self._leader != (leader := next(iter(topics.values()))):
            self._leader = leader
            await self.search()

    async def search(self) -> bool:
        """Speak to the leader, or, while no topic says who that is, to any node. Whether one is registered."""
        doors, shared = await read_registered_nodes(self._session)
        chosen = [door for broker_id, door in doors.items() if shared or self._leader in (None, broker_id)]
        if chosen and not self._named:
            self._use(chosen)
        elif chosen and not shared and self._leader is not None and not set(chosen) & set(self._named):
            self._say_once(
                f"the topics of this consumer are led by node {self._leader} at {chosen[0]}, which bootstrap.servers "
                f"({', '.join(self._named)}) does not name: unless it is the same node, there is nothing to read; "
                "leave bootstrap.servers out, and the node is found by its registration"
            )
        return bool(chosen)

    def _say_what_is_missing(self, view: ConsumerGroupView, mine: GroupRegistration) -> None:
        where = self._session.connect
        if not view.brokers:
            self._say_once(
                f"no broker is registered in {layout.BROKER_IDS} of {where}, so nothing is assigned anew until one is; "
                "is zookeeper.connect right, and its chroot?"
            )
        named = mine.subscription if mine.pattern == STATIC else ()
        for topic in sorted(set(named) - set(view.partitions)):
            self._say_once(f"there is no topic {topic!r} in {layout.BROKER_TOPICS} of {where}; waiting for it")

    def _say_once(self, what: str) -> None:
        if what not in self._said:
            self._said.add(what)
            log.warning("%s", what)


def find_split_leaders(topics: Mapping[str, int]) -> str:
    """Which topics are led by which nodes, when there is more than one; else nothing.

    >>> find_split_leaders({"a": 1, "b": 1}), find_split_leaders({"b": 2, "a": 1})
    ('', 'every node is a log of its own, and these topics are led by different ones: a by node 1, b by node 2')
    """
    first = {leader: topic for topic, leader in sorted(topics.items(), reverse=True)}
    if len(first) < 2:
        return ""
    named = ", ".join(f"{topic} by node {leader}" for leader, topic in sorted(first.items()))
    return f"every node is a log of its own, and these topics are led by different ones: {named}"


class RegisteredNodes(NamedTuple):
    """HOST:PORT of every registered node that answers gRPC, by broker id, and whether they share a cluster."""

    doors: dict[int, str]
    shared: bool


async def read_registered_nodes(session: ZooKeeperSession) -> RegisteredNodes:
    """Raises MalformedZnode."""
    ids = [int(each) for each in await session.children(layout.BROKER_IDS) or () if layout.is_decimal(each)]

    async def registered(broker_id: int) -> layout.BrokerZnode | None:
        path = layout.broker_path(broker_id)
        node = await session.get(path)
        return layout.read_broker(path, node.data) if node is not None else None

    wanted = sorted(ids)
    found = {
        broker_id: each
        for broker_id, each in zip(wanted, await gather_bounded(wanted, registered), strict=True)
        if each is not None
    }
    doors = {broker_id: host_and_port(*each.grpc) for broker_id, each in found.items() if each.grpc is not None}
    return RegisteredNodes(doors, any(each.door(BETWEEN_NODES) is not None for each in found.values()))


# The driver
# ----------

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
                self._start_call(action.token, self._register(action))
            case zk.ReadGroup():
                self._start_call(action.token, self._read(action))
            case zk.ReleaseOwners():
                self._start_call(action.token, self._release(action))
            case zk.ClaimOwners():
                self._start_call(action.token, self._claim(action))
            case zk.WithdrawConsumer():
                self._start_call(action.token, self._withdraw(action))
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
            exclude_internal, rules = self.settings.exclude_internal_topics, self.settings.rules
            topics = resolve_topics(self.machine.consumer_id, mine, view.partitions, exclude_internal, rules)
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


# Joining
# -------


class ZookeeperJoining:
    """One session per consumer: its claims live and die with it."""

    resolves_patterns = True
    reports_positions = False

    def __init__(self, config: ConsumerConfig, transport: Transport) -> None:
        assert config.group_id is not None, "the properties were checked"
        self.settings = build_zookeeper_settings(config, config.group_id)
        self.store = ZookeeperStore(config, GroupCalls(transport, config.group_id), self._holding)
        self._config = config
        self._transport = transport
        self._session: ZooKeeperSession | None = None
        self._leaders: TopicLeaderSearch | None = None
        self._driver: ZookeeperDriver | None = None
        self._background = BackgroundTasks()
        self._search: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect to ZooKeeper and find the nodes there, unless bootstrap.servers names them."""
        if self._session is not None:
            return
        config = self._config
        assert config.zookeeper_connect is not None, "the properties were checked"
        try:
            session = ZooKeeperSession(
                config.zookeeper_connect,
                session_timeout_ms=config.zookeeper_session_timeout_ms,
                connection_timeout_ms=config.zookeeper_connection_timeout_ms,
            )
            await session.open()
        except ZooKeeperUnreachable as error:
            raise ZookeeperAway(str(error)) from error
        except ZooKeeperError as error:
            raise ZookeeperRefused(str(error)) from error
        try:
            await self._begin_joining(session)
        except BaseException:
            await session.close()
            raise
        self._session = session
        self.store.attach(session)

    def membership(self, interest: Interest, wake: Wake) -> ZookeeperDriver:
        if self._session is None or self._leaders is None:
            raise IllegalState("not connected to ZooKeeper yet: open() comes first")
        if said := check_retry_time(self.settings):
            log.warning("%s", said)
        registration = build_registration(interest.topics, interest.regex, interest.black_list, self.settings.streams)
        self._driver = ZookeeperDriver(
            self._session,
            self.settings,
            registration,
            wake,
            self._brokers_changed,
            self._leaders.find_leaders,
            name=self._config.consumer_id,
            offsets=self.store.places,
        )
        return self._driver

    async def close(self) -> None:
        if self._search is not None:
            self._search.cancel()
            await asyncio.gather(self._search, return_exceptions=True)
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _begin_joining(self, session: ZooKeeperSession) -> None:
        try:
            await RegisteredConsumer(session, self.settings.group_id, lambda what: None).prepare()
            self._leaders = TopicLeaderSearch(
                session, self._transport.use, self._config.servers if self._names_nodes else ()
            )
            if self._names_nodes or await self._leaders.search():
                return
        except (ZooKeeperError, MalformedZnode) as error:
            raise ZookeeperRefused(str(error)) from error
        raise ZookeeperAway(
            f"no node is registered in {layout.BROKER_IDS} of {session.connect} with a GRPC endpoint; start one "
            "with zookeeper.connect set, or give bootstrap.servers"
        )

    @property
    def _names_nodes(self) -> bool:
        return "bootstrap_servers" in self._config.model_fields_set

    def _holding(self) -> ConsumerClaims:
        if self._driver is None:
            return ConsumerClaims()
        machine = self._driver.machine
        return ConsumerClaims(machine.consumer_id, machine.generation, frozenset(machine.nodes))

    def _brokers_changed(self) -> None:
        if self._names_nodes or (self._search is not None and not self._search.done()):
            return
        self._search = self._background.start(self._search_nodes())

    async def _search_nodes(self) -> None:
        session, leaders = self._session, self._leaders
        if session is None or leaders is None:
            return
        try:
            await session.connected()
            await leaders.search()
        except (ZooKeeperError, MalformedZnode) as error:
            log.warning("the nodes registered in ZooKeeper could not be read: %s", error)


def build_zookeeper_settings(config: ConsumerConfig, group_id: str) -> ZookeeperMemberSettings:
    return ZookeeperMemberSettings(
        group_id=group_id,
        strategy=config.partition_assignment_strategy,
        rebalance_retries=config.rebalance_max_retries,
        rebalance_backoff_ms=config.backoff_ms,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        exclude_internal_topics=config.exclude_internal_topics,
        streams=config.num_streams,
        rules=find_era_rules(version) if (version := config.zookeeper_consumer_version) else OWN_RULES,
    )
