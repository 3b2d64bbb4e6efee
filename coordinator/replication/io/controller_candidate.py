"""A node's candidacy for controller; while it is elected, the controller's events read and effects performed.

The rules are `replication.protocol.controller`'s. Each request is answered once: by the machine, or with
NOT_CONTROLLER (41) where there is none, also if the term has ended meanwhile.

Events reach the machine in the order in which they were read. Nodes are read by a task of their own: a failover
begins when they are read. A step over a large cluster takes a hundred milliseconds and runs next to the loop; what
arrives meanwhile waits for it, and nothing else looks at the machine. So a step is one decision on one state of what
is known, wherever it runs.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeVar, cast

import structlog

from muster.coordinator.config import Address
from muster.coordinator.edge.background_tasks import BackgroundTask, RestartedTask, SupervisedTasks
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.wire.node_api import NodeName
from muster.coordinator.replication.io.wire.node_links import probe_refusals
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_VERSION,
    ClusterImage,
    ClusterNode,
    ClusterState,
    ImageVersion,
)
from muster.coordinator.replication.protocol.controller import events_and_effects
from muster.coordinator.replication.protocol.controller.controller import Controller
from muster.coordinator.replication.protocol.controller.controller_state import ControllerSettings
from muster.coordinator.replication.protocol.controller.events_and_effects import AlterPartitionResult, ShutdownResult
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.cluster.cluster_layout import REPLICATION
from muster.coordinator.zookeeper.cluster.cluster_watches import (
    AdminRequestWatch,
    ClusterTopicsWatch,
    ConfigChangeWatch,
    DrainedNodeWatch,
    NodeWatch,
    ReportUnreadable,
    read_node,
    read_states,
    read_stored_version,
)
from muster.coordinator.zookeeper.cluster.cluster_writes import DecisionWriter
from muster.coordinator.zookeeper.election import ElectedTerm, ElectionCandidate
from muster.coordinator.zookeeper.errors import MalformedZnode, ZooKeeperError
from muster.coordinator.zookeeper.session import ZooKeeperSession

# The controller's steps, in the order of events
# ----------------------------------------------

AT_ONCE: Final = 250
"""Partitions of a cluster of which every step is taken on the loop: about 3 ms for the longest."""

SHORT: Final = (
    events_and_effects.AlterPartitionRequested,
    events_and_effects.ConnectionBroken,
    events_and_effects.ImagePolled,
    events_and_effects.ConnectionsRefused,
    events_and_effects.ShutdownRequested,
    events_and_effects.VersionRead,
    events_and_effects.WriteFailed,
    events_and_effects.MultiWritten,
)
"""Events whose steps look at no more of a large cluster than of a small one: at what goes into one write."""


class ControllerMachine(Protocol):
    """See `Controller`."""

    def step(
        self, event: events_and_effects.ControllerEvent, now_ms: int
    ) -> list[events_and_effects.ControllerEffect]: ...


class ControllerSteps:
    """Of one term. perform: told on the loop what follows from each event. spawn: starts what goes on beside."""

    def __init__(
        self,
        machine: ControllerMachine,
        now_ms: Callable[[], int],
        perform: Callable[[Sequence[events_and_effects.ControllerEffect]], None],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._machine = machine
        self._now_ms = now_ms
        self._perform = perform
        self._spawn = spawn
        self._waiting: deque[events_and_effects.ControllerEvent] = deque()
        """Bounded by who feeds: watches and writes wait for one answer each, and requests are counted (`Seat`)."""
        self._large = False
        self.busy = False
        """A step is under way beside the loop, or was when the term ended: the machine is nobody else's to touch."""

    def apply_event(self, event: events_and_effects.ControllerEvent) -> None:
        """At once, or when its turn comes. Raises what the machine raises, if it is taken at once."""
        self._large = self._large or event_size(event) > AT_ONCE
        if self.busy:
            self._waiting.append(event)
        elif self._is_long(event):
            self._waiting.append(event)
            self.busy = True
            self._spawn(self._catch_up())
        else:
            self._perform(self._machine.step(event, self._now_ms()))

    async def _catch_up(self) -> None:
        while self._waiting:
            event = self._waiting.popleft()
            if self._is_long(event):
                wanted = await asyncio.to_thread(self._machine.step, event, self._now_ms())
            else:
                wanted = self._machine.step(event, self._now_ms())
            self._perform(wanted)
        self.busy = False

    def _is_long(self, event: events_and_effects.ControllerEvent) -> bool:
        return self._large and not isinstance(event, SHORT)


def event_size(event: events_and_effects.ControllerEvent) -> int:
    """Partitions that an event tells of."""
    match event:
        case events_and_effects.ControllerElected(image=image):
            return 0 if image is None else image.size
        case events_and_effects.TopicsRead(topics=topics):
            return sum(len(topic.partitions) for topic in topics)
        case events_and_effects.StatesRead(states=states):
            return len(states)
        case _:
            return 0


# What an elected controller reads in ZooKeeper
# ---------------------------------------------

RETRY_S: Final = 0.1
TIDY_S: Final = 60.0
"""How often changes of settings are looked through for those that are too old, if nothing else happens."""

log = structlog.get_logger("muster.replication")


class ControllerWatch:
    """Of one term: nothing is known before. `run` ends with it, by cancelling."""

    def __init__(
        self,
        session: ZooKeeperSession,
        feed: Callable[[events_and_effects.ControllerEvent], None],
        warn: ReportUnreadable,
        wall_ms: Callable[[], int],
    ) -> None:
        self._session = session
        self._feed = feed
        self._warn = warn
        self._nodes_stale, self._stale = asyncio.Event(), asyncio.Event()
        self._nodes = NodeWatch(session, self._nodes_stale.set, warn)
        self._topics = ClusterTopicsWatch(session, self._stale.set, warn)
        self._changes = ConfigChangeWatch(session, self._stale.set, warn, wall_ms)
        self._drained = DrainedNodeWatch(session, self._stale.set)
        self._markers = AdminRequestWatch(session, self._stale.set, warn)
        self._removals: list[events_and_effects.RemoveMarker] = []
        self._states_wanted = False
        self.nodes: dict[int, ClusterNode] = {}
        """As last read."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._again_and_again(self._nodes_stale, self._look_at_nodes))
            tasks.create_task(self._again_and_again(self._stale, self._look_at_the_rest))

    def read_states(self) -> None:
        """All topics and states are wanted; they come as events."""
        self._states_wanted = True
        self._stale.set()

    def remove(self, wanted: events_and_effects.RemoveMarker) -> None:
        self._removals.append(wanted)
        self._stale.set()

    async def _again_and_again(self, stale: asyncio.Event, look: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            await self._session.connected()
            stale.clear()
            try:
                await look()
            except ZooKeeperError as error:
                log.debug("the controller cannot read the state of the cluster", why=str(error))
                stale.set()
                await asyncio.sleep(RETRY_S)
            try:
                async with asyncio.timeout(TIDY_S):
                    await stale.wait()
            except TimeoutError:
                pass

    async def _look_at_nodes(self) -> None:
        self.nodes = await self._nodes.read()
        self._feed(events_and_effects.NodesRead(self.nodes))

    async def _look_at_the_rest(self) -> None:
        if (drained := await self._drained.read()) is not None:
            self._feed(drained)
        for kind, name in await self._changes.read():
            if kind == "topics":
                self._topics.suspect(name)
        if self._states_wanted:
            await self._read_states()
        seen = await self._topics.read()
        if seen.complete or seen.topics or seen.gone or seen.unidentified:
            self._feed(seen)
        while self._removals:
            wanted = self._removals[0]
            if wanted.marker is events_and_effects.AdminMarker.DELETE:
                # Not asked for again where the answer is lost: those that are there are read anew, and another by then.
                self._removals.pop(0)
                await self._markers.remove(wanted)
            else:
                await self._markers.remove(wanted)
                self._removals.pop(0)
        for event in await self._markers.read():
            self._feed(event)

    async def _read_states(self) -> None:
        version = await read_stored_version(self._session, self._warn)
        self._topics.suspect_all()
        seen = await self._topics.read()
        self._feed(seen)
        topics = (*seen.topics, *(each.topic for each in seen.unidentified))
        states, broken = await read_states(self._session, topics, self._warn)
        self._states_wanted = False
        self._feed(events_and_effects.StatesRead(states, version, broken))


# The candidate
# -------------

MAX_WAITING: Final = 10_000
"""Requests that wait for an answer; the next one is told that this is not the controller, and asks again."""
MAX_PAUSE_S: Final = 1.0
"""Between two readings of all states, where one write after the other fails on one."""

AnswerBody = TypeVar("AnswerBody", bound=events_and_effects.ResponseBody)


@dataclass(frozen=True, slots=True)
class CandidateContext:
    """What a seat needs of its node.

    image: what it knows as one of the cluster. now_ms: its monotonic clock. draw_id: 16 random bytes; configs_of: what
    an internal topic sets; copies: by name, the ids of the topics that it has copies of. note hears of elections, those
    of one write together; seen that another node holds `/controller`; warn of what was skipped.
    """

    image: Callable[[], ClusterImage]
    now_ms: Callable[[], int]
    wall_ms: Callable[[], int]
    draw_id: Callable[[], bytes]
    configs_of: Callable[[str], Mapping[str, str]] = lambda name: {}
    copies: Callable[[], Mapping[str, bytes]] = dict
    note: Callable[[Sequence[events_and_effects.ElectionNote]], None] = lambda notes: None
    seen: Callable[[], None] = lambda: None
    warn: Callable[[str], None] = lambda text: log.warning("the controller skipped something", why=text)


class ControllerCandidate:
    """`start` it in the loop it lives in. seated: who holds `/controller`, and its door between nodes, as last seen."""

    def __init__(
        self, session: ZooKeeperSession, node_id: int, settings: ControllerSettings, around: CandidateContext
    ) -> None:
        self._session = session
        self._id = node_id
        self._settings = settings
        self._around = around
        self._loop = asyncio.get_running_loop()
        self._writer = DecisionWriter(session, draw_id=around.draw_id, configs_of=around.configs_of)
        self._election = ElectionCandidate(
            session,
            layout.CONTROLLER,
            lambda: layout.controller_json(node_id, around.wall_ms()),
            epoch_path=layout.CONTROLLER_EPOCH,
            on_elected=self._elected,
            on_resigned=self._ended,
            on_seen=self._seen,
            resume=False,
        )
        self._machine: Controller | None = None
        self._steps: ControllerSteps | None = None
        """Of the machine."""
        self._watching: ControllerWatch | None = None
        self._tasks = SupervisedTasks(self._failed)
        """Of this term."""
        self._looking: RestartedTask | None = None
        self._probing = BackgroundTask()
        self._wake: asyncio.TimerHandle | None = None
        self._failures = 0
        self._request = 0
        self._waiting: dict[int, tuple[asyncio.Future[Any], events_and_effects.ResponseBody]] = {}
        self.seated: tuple[int, Address] | None = None

    def start(self) -> None:
        self._election.start()

    async def close(self) -> None:
        """Stand no longer. Whoever waits is answered, and the place is free at once."""
        await self._election.stop()
        await self._probing.stop()
        if self._looking is not None:
            await self._looking.stop()

    @property
    def is_controller(self) -> bool:
        return self._machine is not None and self._election.term is not None

    @property
    def applied(self) -> Mapping[int, int]:
        """How far each node is, where this one is the controller (CL-N3); nothing elsewhere."""
        return {} if self._machine is None else self._machine.term.controller_state.applied

    # What is asked of a controller.

    async def alter_partition(
        self, node: NodeName, items: tuple[events_and_effects.IsrItem, ...]
    ) -> AlterPartitionResult:
        return await self._ask_controller(
            lambda request: events_and_effects.AlterPartitionRequested(request, node.id, node.epoch, items),
            AlterPartitionResult(ErrorCode.NOT_CONTROLLER),
        )

    async def controlled_shutdown(self, node: NodeName) -> ShutdownResult:
        return await self._ask_controller(
            lambda request: events_and_effects.ShutdownRequested(request, node.id, node.epoch),
            ShutdownResult(ErrorCode.NOT_CONTROLLER),
        )

    async def cluster_state(
        self,
        node: NodeName,
        known: ImageVersion,
        offline: tuple[events_and_effects.OfflineReplica, ...],
        max_wait_ms: int,
    ) -> ClusterState:
        return await self._ask_controller(
            lambda request: events_and_effects.ImagePolled(request, node.id, node.epoch, known, offline, max_wait_ms),
            ClusterState(ErrorCode.NOT_CONTROLLER),
        )

    def broke(self, node_id: int) -> None:
        """Somebody's connection to a node broke (CL-C9). If that is the controller, this node looks for itself."""
        if self._machine is not None:
            self._step(events_and_effects.ConnectionBroken(node_id))
        elif (
            self._settings.eviction and self.seated is not None and self.seated[0] == node_id and not self._probing.busy
        ):
            self._probing.start(self._probe_controller(node_id), "probe of the controller")

    async def _ask_controller(
        self, make: Callable[[int], events_and_effects.ControllerEvent], refused: AnswerBody
    ) -> AnswerBody:
        if not self.is_controller or len(self._waiting) >= MAX_WAITING:
            return refused
        self._request += 1
        request, future = self._request, self._loop.create_future()
        self._waiting[request] = (future, refused)
        try:
            self._step(make(request))
            return cast(AnswerBody, await future)
        finally:
            self._waiting.pop(request, None)

    # The term.

    def _elected(self, term: ElectedTerm) -> None:
        log.info("this node is the controller", epoch=term.epoch)
        self._tasks.start(self._begin_term(term))

    async def _begin_term(self, term: ElectedTerm) -> None:
        version = await self._persistently(lambda: read_stored_version(self._session, self._around.warn))
        self._sit(Controller(self._settings))
        self._watching = ControllerWatch(self._session, self._step, self._around.warn, self._around.wall_ms)
        image = self._around.image()
        known = image.taken() if image.known != NO_VERSION else None
        copies = self._around.copies()
        self._step(events_and_effects.ControllerElected(self._id, term.epoch, term.version, version, known, copies))
        if self._watching is not None:
            await self._watching.run()

    def _sit(self, machine: Controller) -> None:
        self._machine = machine
        self._steps = ControllerSteps(machine, self._around.now_ms, self._stepped, self._tasks.start)

    def _ended(self) -> None:
        """Nothing of the term goes on, and nobody waits for it any more."""
        machine, steps, self._machine, self._steps, self._watching = self._machine, self._steps, None, None, None
        self._tasks.stop()
        if self._wake is not None:
            self._wake.cancel()
        self._wake, self._failures = None, 0
        if machine is not None:
            log.info("this node is no longer the controller")
            if steps is not None and not steps.busy:
                for effect in machine.step(events_and_effects.ControllerResigned(), self._around.now_ms()):
                    if isinstance(effect, events_and_effects.Respond):
                        self._answer(effect)
        for future, refused in self._waiting.values():
            if not future.done():
                future.set_result(refused)
        self._waiting.clear()

    def _failed(self, error: BaseException) -> None:
        """What the machine has decided may not have been done, and it waits for the end of that for ever. Who waits
        for its answers is told by `_ended` that there is none."""
        log.error("the controller failed; another is elected", exc_info=error)
        self._machine = self._steps = None
        self._election.resign("it failed")

    # The machine.

    def _step(self, event: events_and_effects.ControllerEvent) -> None:
        if self._steps is None or self._is_over():
            return
        try:
            self._steps.apply_event(event)
        except Exception as error:
            self._failed(error)

    def _is_over(self) -> bool:
        if self._election.term is not None:
            return False
        self._election.resign("ZooKeeper has not answered for two thirds of a session")  # the loop was late to say
        return True

    def _stepped(self, wanted: Sequence[events_and_effects.ControllerEffect]) -> None:
        if not self._is_over():  # it may have ended while a long step was taken
            self._perform(wanted)

    def _perform(self, wanted: Sequence[events_and_effects.ControllerEffect]) -> None:
        notes = []
        for effect in wanted:
            if isinstance(effect, events_and_effects.ElectionNote):
                notes.append(effect)
            else:
                self._do(effect)
        if notes:  # behind the answers: the ledger can wait, nodes cannot
            self._around.note(notes)

    def _do(self, effect: events_and_effects.ControllerEffect) -> None:
        match effect:
            case events_and_effects.Respond():
                self._answer(effect)
            case events_and_effects.WriteMulti():
                self._tasks.start(self._write(effect))
            case events_and_effects.ReadClusterVersion():
                self._tasks.start(self._read_version())
            case events_and_effects.ReadPartitionStates():
                self._tasks.start(self._read_states())
            case events_and_effects.ProbeNode():
                self._tasks.start(self._probe(effect))
            case events_and_effects.WakeControllerAt(at_ms):
                self._wake_at(at_ms)
            case events_and_effects.WarnOperator(text):
                self._around.warn(text)
            case events_and_effects.RemoveMarker():
                if self._watching is not None:
                    self._watching.remove(effect)
            case events_and_effects.ResignController():
                # What else came of this step is done first.
                self._loop.call_soon(self._election.resign, "another one was elected")

    def _answer(self, answer: events_and_effects.Respond) -> None:
        waiting = self._waiting.pop(answer.request, None)
        if waiting is not None and not waiting[0].done():
            waiting[0].set_result(answer.body)

    async def _write(self, write: events_and_effects.WriteMulti) -> None:
        sent_s = self._loop.time()
        outcome = await self._writer.write(write)
        if isinstance(outcome, events_and_effects.MultiWritten):
            self._election.proved(sent_s)
            self._failures = 0
        elif outcome.failure is events_and_effects.WriteFailure.VERSION:
            self._failures += 1
        self._step(outcome)

    async def _read_version(self) -> None:
        """CL-Z6."""
        version = await self._persistently(lambda: read_stored_version(self._session, self._around.warn))
        self._step(events_and_effects.VersionRead(version))

    async def _read_states(self) -> None:
        if self._failures > 1:
            await asyncio.sleep(min(RETRY_S * self._failures, MAX_PAUSE_S))
        if self._watching is not None:
            self._watching.read_states()

    async def _persistently(self, read: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        while True:
            await self._session.connected()
            try:
                return await read()
            except ZooKeeperError as error:
                log.debug("ZooKeeper is asked again", why=str(error))
                await asyncio.sleep(RETRY_S)

    def _wake_at(self, at_ms: int) -> None:
        if self._wake is not None:
            self._wake.cancel()
        delay_s = max(0, at_ms - self._around.now_ms()) / 1000
        self._wake = self._loop.call_later(delay_s, self._woken, at_ms)

    def _woken(self, at_ms: int) -> None:
        if self._around.now_ms() < at_ms:  # the loop's clock is not the node's
            self._wake = self._loop.call_later(0.001, self._woken, at_ms)
            return
        self._wake = None
        self._step(events_and_effects.ControllerTick())

    # Who is there.

    async def _probe(self, probe: events_and_effects.ProbeNode) -> None:
        node = None if self._watching is None else self._watching.nodes.get(probe.node)
        self._step(
            events_and_effects.ConnectionsRefused(
                probe.node, probe.node_epoch, await self._refusals(listener_address_of(node))
            )
        )

    async def _refusals(self, door: Address | None) -> tuple[int, ...]:
        return () if door is None else await probe_refusals(door, self._around.now_ms)

    async def _probe_controller(self, node_id: int) -> None:
        """CL-C9: who refuses connections is no controller. The epoch is read first: it is deposed in that one, or
        not."""
        try:
            count = await self._session.get(layout.CONTROLLER_EPOCH)
            holder = await self._session.get(layout.CONTROLLER)
            if count is None or holder is None or layout.read_controller(layout.CONTROLLER, holder.data) != node_id:
                return
            node, _ = await self._registered(node_id)
            if await self._refusals(listener_address_of(node) or self._known_door(node_id)):
                self._election.depose(layout.read_epoch(layout.CONTROLLER_EPOCH, count.data))
        except ZooKeeperError as error:
            log.debug("it is not known whether the controller is alive", why=str(error))

    def _known_door(self, node_id: int) -> Address | None:
        return self.seated[1] if self.seated is not None and self.seated[0] == node_id else None

    def _seen(self, holder: bytes | None) -> None:
        """Who holds `/controller` is another than before, or nobody."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        if holder is None:
            self.seated = None
            return
        try:
            node_id = layout.read_controller(layout.CONTROLLER, holder)
        except MalformedZnode as error:
            self.seated = None
            self._around.warn(str(error))
            return
        if self.seated is None or self.seated[0] != node_id:
            self.seated = None
        self._looking = RestartedTask("search for the controller", partial(self._find, node_id), returns=True)
        self._looking.start()

    async def _find(self, node_id: int) -> None:
        """CL-N2: by its registration. One by which it cannot be asked is told of, and looked at again until it is
        mended: who is asked in vain would be taken for one that is away."""
        told = ""
        while True:
            node, why = await self._persistently(lambda: self._registered(node_id))
            if (door := listener_address_of(node)) is not None:
                if self.seated != (node_id, door):
                    self.seated = (node_id, door)
                    self._around.seen()
                return
            if why not in ("", told):
                told = why
                self._around.warn(why)
            await asyncio.sleep(RETRY_S)

    async def _registered(self, node_id: int) -> tuple[ClusterNode | None, str]:
        """A node as it is registered; and why another cannot ask it, where that will not mend itself."""
        try:
            node = await read_node(self._session, node_id)
        except MalformedZnode as error:
            return None, f"node {node_id}, the controller, cannot be asked: {error}"
        if node is not None and listener_address_of(node) is None:
            path = layout.broker_path(node_id)
            return node, f"node {node_id}, the controller, cannot be asked: {path} names no {REPLICATION}://host:port"
        return node, ""


def listener_address_of(node: ClusterNode | None) -> Address | None:
    """Where it listens for other nodes."""
    endpoints = () if node is None else node.endpoints
    return next((Address(each.host, each.port) for each in endpoints if each.listener == REPLICATION), None)
