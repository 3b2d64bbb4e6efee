"""Consumers of the ZooKeeper era as load: the real member machine, each with a session of its own, in one process.

They ask the servers for what our consumer asks for (`RegisteredConsumer`): the list of members with a watch, every
registration, the topic with a watch, a look and a delete for each claim that they release, a create for each that they
make. They have nothing to commit. What differs is how it is asked: in few packets, without kazoo.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache, partial
from itertools import cycle
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from muster.assignors.api import TopicPartition
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members import zookeeper_events as zk
from muster.client.members.member_types import Partitions
from muster.client.members.zookeeper_assignment import (
    ConsumerGroupView,
    GroupRegistration,
    ZookeeperMemberSettings,
    ZookeeperSession,
    build_registration,
)
from muster.client.members.zookeeper_member import ZookeeperMemberMachine, ZookeeperState
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.local_ensemble import HOST, LocalEnsemble, ServerTuning, open_or_create_ensemble
from muster.workshop.bench.processes import SERVER_CORE, BenchFailed, pinned
from muster.workshop.bench.zookeeper_wire import (
    NO_NODE,
    NO_SESSION,
    NODE_EXISTS,
    OK,
    OnReply,
    SessionKey,
    SessionOver,
    WireReply,
    WireSession,
    children_frame,
    create_frame,
    delete_frame,
    get_frame,
    read_data,
    read_names,
    set_frame,
    sync_frame,
)

GROUP, TOPIC, BROKER = "bench", "orders", 1
SERVERS: Final = 3
TICKS: Final = 15
"""Of a server in a session: it looks for sessions that are over once a tick."""
RETRIES, BACKOFF_MS = 60, 2_000
"""A consumer's default is 4 retries; a large group would give up before the last owner has let go."""
REOPEN_S, TELL_S = 0.1, 20.0
OPENING_AT_ONCE: Final = 100
IN_FLIGHT: Final = 100
"""Reads of one consumer that wait for their answers at a time. Those of that era had one, ours have 500: a thousand
consumers that ask for everything at once would fill the servers' memory with answers."""
IDS, BROKERS = layout.consumer_ids_path(GROUP), layout.BROKER_IDS


@contextmanager
def running_ensemble(home: str, session_ms: int) -> Iterator[LocalEnsemble]:
    """Three servers for sessions of that length, which end with this process. Raises JavaNotFound, ZooKeeperError."""
    tuning = ServerTuning(tick_ms=session_ms // TICKS, heap_mb=256, logs=False, tied=True)
    ensemble = open_or_create_ensemble(Path(home) / "zookeeper", SERVERS, tuning=tuning)
    ensemble.start()
    try:
        with ExitStack() as pins:
            for pid in filter(None, (server.pid for server in ensemble.servers)):
                pins.enter_context(pinned(SERVER_CORE, pid))
            yield ensemble
    finally:
        ensemble.stop()


def monitor(ensemble: LocalEnsemble) -> dict[str, int]:
    """The servers' own figures (`mntr`), whole numbers only, of all together."""
    found: dict[str, int] = {}
    for server in ensemble.servers:
        for line in server.send_word("mntr").splitlines():
            name, _, value = line.partition("\t")
            if value.isdecimal():
                found[name] = found.get(name, 0) + int(value)
    return found


class EraMember:
    """One consumer."""

    def __init__(self, crowd: "EraCrowd", ports: Iterator[int], settings: ZookeeperMemberSettings) -> None:
        """ports: of the servers, again and again, beginning with its own."""
        self.machine = ZookeeperMemberMachine(settings, build_registration((TOPIC,), "", False, 1))
        self.gave_up = 0
        self._crowd, self._ports, self._settings = crowd, ports, settings
        self._asked = 0
        self._reopening: asyncio.Task[None] | None = None
        self._session: WireSession | None = None
        self._registered = ""
        self._ended = False
        self._closed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    async def open(self, known: SessionKey = NO_SESSION) -> None:
        """With the first server that answers. Raises SessionOver."""
        while True:
            try:
                self._session = await WireSession.opened(
                    HOST, next(self._ports), self._settings.session_timeout_ms, self._fired, self._lost, known
                )
            except (OSError, TimeoutError):
                await asyncio.sleep(REOPEN_S)
                continue
            self._crowd.sessions.append(self._session)
            return

    def start(self) -> None:
        self.handle(zk.SessionChanged(ZookeeperSession.CONNECTED))
        self.handle(ev.Start())

    async def leave(self) -> None:
        """In good order: its claims and its registration go, then its session."""
        self.handle(ev.Close())
        await self._closed.wait()  # what it owned is let go of first
        self._end()
        await self.session.close()

    def die(self) -> None:
        self._end()
        self.session.drop()

    @property
    def session(self) -> WireSession:
        assert self._session is not None
        return self._session

    def handle(self, event: zk.ZookeeperEvent) -> None:
        if self._ended:
            return
        for action in self.machine.step(event, time.monotonic_ns() // 1_000_000):
            self._perform(action)
        self._crowd.changed()

    def _lost(self) -> None:
        """The connection broke: as any client, go on with the session on another one."""
        if not self._ended:
            self._crowd.broken += 1
            self.handle(zk.SessionChanged(ZookeeperSession.SUSPENDED))
            self.handle(ev.RequestFailed(self._asked, True, "the connection broke"))
            self._reopening = asyncio.create_task(self._reopen())

    async def _reopen(self) -> None:
        try:
            await self.open(self.session.key)
        except SessionOver:
            self._crowd.expired += 1
            self.handle(zk.SessionChanged(ZookeeperSession.LOST))
            await self.open()
        self.handle(zk.SessionChanged(ZookeeperSession.CONNECTED))
        self.handle(zk.WatchFired("session"))

    def _fired(self, path: str) -> None:
        what = "members" if path == IDS else "brokers" if path == BROKERS else "partitions"
        self.handle(zk.WatchFired(what))

    def _perform(self, action: Any) -> None:
        self._asked = getattr(action, "token", self._asked)
        match action:
            case zk.CreateRegistration():
                self._register(action.token)
            case zk.ReadGroup():
                self._read(action)
            case zk.ClaimOwners():
                EraClaim(self, action).begin()
            case zk.ReleaseOwners():
                self._release(action.partitions, lambda: self.handle(zk.OwnersReleased(action.token)))
            case zk.WithdrawConsumer():
                self._release(action.partitions, lambda: None)
                self.session.ask(delete_frame(layout.consumer_path(GROUP, self._registered)), ignore, writes=True)
            case act.Revoke() | act.Lost():
                self._crowd.note_stopped()
                asyncio.get_running_loop().call_soon(self.handle, ev.Revoked(action.token))
            case act.WakeMemberAt():
                self._stop_timer()
                wait_s = max(0.0, action.at_ms / 1000 - time.monotonic())
                self._timer = asyncio.get_running_loop().call_later(wait_s, self.handle, ev.TimerExpired())
            case zk.RebalanceGivenUp():
                self.gave_up += 1
            case act.Closed():
                self._closed.set()
            case act.Fail():
                raise BenchFailed(f"a consumer was refused: {action.message}")
            case _:
                pass

    def _end(self) -> None:
        self._ended = True
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _register(self, token: int) -> None:
        at_ms = time.time_ns() // 1_000_000
        self._registered = layout.new_consumer_id(GROUP, "bench", at_ms, uuid4().hex)
        body = layout.ConsumerZnode({TOPIC: 1}, "static", at_ms).to_json()
        frame = create_frame(layout.consumer_path(GROUP, self._registered), body, ephemeral=True)
        done = zk.ConsumerRegistered(token, self._registered)
        self.session.ask(frame, lambda _: self.handle(done), writes=True)

    def _read(self, action: zk.ReadGroup) -> None:
        if action.afresh:
            self.session.ask(sync_frame(layout.group_path(GROUP)), ignore)
        self.session.ask(children_frame(IDS, True), partial(self._read_members, action.token))

    def _read_members(self, token: int, reply: WireReply) -> None:
        left = read_names(reply)
        found: dict[str, GroupRegistration] = {}

        def take(name: str, reply: WireReply) -> None:
            if reply.code == OK:
                found[name] = registration_of(read_data(reply)[0])

        def finish(reply: WireReply) -> None:
            counts = len(layout.read_topic(TOPIC, read_data(reply)[0]))
            members = {name: found[name] for name in sorted(found)}
            self.handle(zk.GroupRead(token, ConsumerGroupView(members, {TOPIC: counts}, (BROKER,))))

        def take_last(name: str, reply: WireReply) -> None:
            take(name, reply)
            go_on(reply)

        def go_on(_: WireReply) -> None:
            some = left[:IN_FLIGHT]
            del left[:IN_FLIGHT]
            frames = [get_frame(layout.consumer_path(GROUP, name)) for name in some]
            takers: list[OnReply] = [partial(take, name) for name in some]
            if left:
                takers[-1] = partial(take_last, some[-1])
            else:
                frames.append(get_frame(layout.topic_path(TOPIC), True))
                takers.append(finish)
            self.session.send(frames, takers)

        self.session.ask(children_frame(BROKERS, True), go_on)

    def _release(self, partitions: Partitions, then: Callable[[], None]) -> None:
        """A look at each, and a delete of those that are this session's."""
        left = len(partitions)
        if not left:
            then()
            return

        def done(_: WireReply) -> None:
            nonlocal left
            left -= 1
            if not left:
                then()

        def looked(path: str, reply: WireReply) -> None:
            if reply.code == OK and read_data(reply)[1] == self.session.id:
                self.session.ask(delete_frame(path), done, writes=True)
            else:
                done(reply)

        for topic, partition in partitions:
            path = layout.owner_path(GROUP, topic, partition)
            self.session.ask(get_frame(path), partial(looked, path))


class EraClaim:
    """The claims of one attempt, until the last is answered."""

    def __init__(self, member: EraMember, action: zk.ClaimOwners) -> None:
        self._member, self._action = member, action
        self._left = len(action.share)
        self._conflicts: dict[TopicPartition, str] = {}
        self._newest = 0

    def begin(self) -> None:
        for tp, stream in sorted(self._action.share.items()):
            data = layout.owner_text(self._action.consumer_id, stream)
            frame = create_frame(layout.owner_path(GROUP, *tp), data, ephemeral=True)
            self._member.session.ask(frame, partial(self._created, tp), writes=True)

    def _created(self, tp: TopicPartition, reply: WireReply) -> None:
        if reply.code == OK:
            self._newest = max(self._newest, reply.transaction)
            self._done()
        elif reply.code == NODE_EXISTS:
            self._member.session.ask(get_frame(layout.owner_path(GROUP, *tp)), partial(self._held, tp))
        else:
            raise BenchFailed(f"a claim was answered by {reply.code}")

    def _held(self, tp: TopicPartition, reply: WireReply) -> None:
        if reply.code == NO_NODE:
            self._conflicts[tp] = "one that has just let go"
        else:
            data, owner = read_data(reply)
            if owner != self._member.session.id:
                self._conflicts[tp] = data.decode()
        self._done()

    def _done(self) -> None:
        self._left -= 1
        if not self._left:
            action = self._action
            self._member.handle(zk.OwnersClaimed(action.token, self._conflicts, self._newest))


def ignore(_: WireReply) -> None:
    return


@lru_cache(20_000)
def registration_of(data: bytes) -> GroupRegistration:
    """What a registration says; each is read by everybody, and parsed once."""
    body = layout.read_consumer(IDS, data)
    return GroupRegistration(dict(body.subscription), body.pattern)


class EraCrowd:
    """`size` consumers of one group, spread over the servers. Use it in `async with`."""

    def __init__(self, ensemble: LocalEnsemble, size: int, partitions: int, session_ms: int) -> None:
        self.partitions = partitions
        self.sessions: list[WireSession] = []
        settings = ZookeeperMemberSettings(
            GROUP, rebalance_retries=RETRIES, rebalance_backoff_ms=BACKOFF_MS, session_timeout_ms=session_ms
        )
        ports = [server.port for server in ensemble.servers]
        self.members = [EraMember(self, cycle(turned(ports, number)), settings) for number in range(size)]
        self.broken = self.expired = 0
        """Connections and sessions that were lost on the way: servers, or this process, were late."""
        self.first_stopped_s = 0.0
        self._session_ms = session_ms
        self._changed = asyncio.Event()
        self._ports = ports

    async def __aenter__(self) -> "EraCrowd":
        made = {layout.BROKER_IDS: b"", f"{layout.BROKER_IDS}/{BROKER}": layout.BrokerZnode().to_json()}
        made |= {layout.BROKER_TOPICS: b"", layout.topic_path(TOPIC): self._topic_json()}
        made |= {IDS: b"", layout.topic_owners_path(GROUP, TOPIC): b"", layout.offsets_path(GROUP): b""}
        for path, data in made.items():
            parents = path.split("/")[1:-1]
            for depth in range(1, len(parents) + 1):
                await self._tell(create_frame("/" + "/".join(parents[:depth]), b""))
            await self._tell(create_frame(path, data))
        return self

    async def __aexit__(self, *_: object) -> None:
        for member in self.members:
            if member._session is not None:
                member.die()

    @property
    def watches_fired(self) -> int:
        return sum(session.watches_fired for session in self.sessions)

    @property
    def requests(self) -> int:
        return sum(session.requests for session in self.sessions)

    @property
    def writes(self) -> int:
        return sum(session.writes for session in self.sessions)

    async def join(self) -> None:
        """All of them together, once they have their sessions."""
        for first in range(0, len(self.members), OPENING_AT_ONCE):
            await asyncio.gather(*(member.open() for member in self.members[first : first + OPENING_AT_ONCE]))
        for member in self.members:
            member.start()

    async def leave(self) -> None:
        await self.members.pop().leave()

    async def crash(self) -> None:
        self.members.pop().die()

    async def grow(self, partitions: int) -> None:
        self.partitions = partitions
        await self._tell(set_frame(layout.topic_path(TOPIC), self._topic_json()))

    def begin_measuring(self) -> None:
        self.first_stopped_s = 0.0

    def note_stopped(self) -> None:
        self.first_stopped_s = self.first_stopped_s or asyncio.get_running_loop().time()

    def changed(self) -> None:
        self._changed.set()

    async def all_own(self, patience_s: float) -> None:
        """Return once all are at rest, and each partition is owned once."""
        try:
            async with asyncio.timeout(patience_s):
                while not self._own_all():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            states: dict[str, int] = {}
            for member in self.members:
                states[member.machine.state.name] = states.get(member.machine.state.name, 0) + 1
            raise BenchFailed(
                f"{len(self.members):,} consumers of the ZooKeeper era do not own {self.partitions:,} partitions after "
                f"{patience_s:.0f} s: {states}; {self.broken} connections broke, {self.expired} sessions expired; try "
                "fewer by --members, or a machine with less to do"
            ) from None

    def _own_all(self) -> bool:
        if any(member.machine.state is not ZookeeperState.STABLE for member in self.members):
            return False
        owned = [tp for member in self.members for tp in member.machine.owned]
        return len(owned) == self.partitions == len(set(owned))

    async def _tell(self, frame: bytes) -> None:
        """One request, by whichever server answers."""
        for port in self._ports:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(TELL_S):
                    session = await WireSession.opened(HOST, port, self._session_ms, ignore_path, lambda: None)
                    reply = await session.answer(frame)
                    session.drop()
                    assert reply.code in (OK, NODE_EXISTS), f"a request was answered by {reply.code}"
                    return
        raise BenchFailed(f"no server at the ports {self._ports} answers")

    def _topic_json(self) -> bytes:
        return layout.topic_json(dict.fromkeys(range(self.partitions), (BROKER,)))


def turned(ports: Sequence[int], number: int) -> list[int]:
    """
    >>> turned([1, 2, 3], 4)
    [2, 3, 1]
    """
    first = number % len(ports)
    return [*ports[first:], *ports[:first]]


def ignore_path(_: str) -> None:
    return
