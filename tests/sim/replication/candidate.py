"""A simulated node's place at ZooKeeper: its registration, its candidacy, and the controller's orders carried out.

What `coordinator.replication.io` does with kazoo, in callbacks. Znodes hold facts here instead of bytes.
"""

from collections.abc import Callable
from typing import Any, Protocol

from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    NO_VERSION,
    ClusterImage,
    ClusterNode,
    ClusterTopic,
    ImageVersion,
)
from muster.coordinator.replication.protocol.controller import events_and_effects
from muster.coordinator.replication.protocol.controller.controller import Controller
from muster.coordinator.replication.protocol.controller.controller_state import ControllerSettings
from muster.coordinator.replication.protocol.controller.events_and_effects import ControllerEffect, ControllerEvent
from tests.sim.replication.watching import (
    CONTROLLER,
    DELETED,
    EPOCH,
    IDS,
    RETRY_MS,
    TOPICS,
    VERSION,
    Watching,
    as_version,
    state_path,
)
from tests.sim.replication.zookeeper import (
    BadVersion,
    Check,
    Client,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    Put,
    Znode,
)


class Performer(Protocol):
    """The node around it."""

    id: int

    @property
    def image(self) -> ClusterImage: ...

    def now(self) -> int: ...

    def later(self, delay_ms: int, action: Callable[[], None]) -> None: ...

    def registration(self) -> ClusterNode: ...

    def registered(self, epoch: int) -> None: ...

    def answer(self, answer: events_and_effects.Respond) -> None: ...

    def noted(self, note: events_and_effects.ElectionNote) -> None: ...

    def probe(self, probe: events_and_effects.ProbeNode) -> None: ...

    def trace(self, line: str) -> None: ...

    def draw_id(self) -> bytes: ...


class SimulatedCandidate:
    """Registers its node, stands for controller, and serves the machine while it is elected."""

    def __init__(self, node: Performer, zookeeper: Client, settings: ControllerSettings) -> None:
        self._node = node
        self._zookeeper = zookeeper
        self._settings = settings
        self.machine: Controller | None = None
        self._watching = Watching(self, node, zookeeper)
        self.controller: int | None = None
        """Who holds `/controller`, as last seen."""
        self.term = 0
        self._proved_ms = 0
        self._wake = 0
        self._is_elected = False

    # The session.

    def changed(self, what: str) -> None:
        """The session is connected (all watches are gone), broken, or lost."""
        if what == "connected":
            self._register()
            self._look()
            self._watching.begin()
        elif what == "lost":
            self._resign()

    def _register(self) -> None:
        path = f"{IDS}/{self._node.id}"
        mine = self._node.registration()

        def made(outcome: Any) -> None:
            if isinstance(outcome, NodeExists):
                self._zookeeper.get(path, seen)
            elif isinstance(outcome, Exception):
                self.again(self._register)
            else:
                self._node.registered(outcome[0].czxid)

        def seen(found: Any) -> None:
            if isinstance(found, Exception) or found is None:
                self.again(self._register)
            elif found.owner == self._zookeeper.session:
                self._node.registered(found.czxid)
            elif found.data.directory == mine.directory:
                # CL-Z3: this node holds the lock of its directory, so that was its own former life.
                self._zookeeper.multi([Delete(path)], lambda _: self.again(self._register))
            else:
                # Its former disk's registration: the process ends with exit code 5, and whoever looks after it starts
                # it again.
                self.again(self._register)

        self._zookeeper.multi([Create(path, mine, ephemeral=True)], made)

    def register_anew(self) -> None:
        """This node was told that its registration counts no more."""
        path = f"{IDS}/{self._node.id}"
        self._zookeeper.multi([Delete(path)], lambda _: self.again(self._register))

    def again(self, action: Callable[[], None]) -> None:
        session = self._zookeeper.session

        def once_more() -> None:
            if self._zookeeper.session == session and self._zookeeper.connected:
                action()

        self._node.later(RETRY_MS, once_more)

    # The election.

    def _look(self, _: str = "") -> None:
        self._zookeeper.get(CONTROLLER, self._looked, self._fired)

    def _fired(self, _: str) -> None:
        self._look()

    def _looked(self, found: Any) -> None:
        if isinstance(found, Exception):
            self.again(self._look)
        elif found is None:
            self.controller = None
            self._zookeeper.get(EPOCH, self._stand)
        elif found.owner == self._zookeeper.session and not self._is_elected:
            # Ours, though the answer was lost; or this node resigned, for it could not prove it. Begin a term anew.
            self._zookeeper.multi([Delete(CONTROLLER)], lambda _: self.again(self._look))
        else:
            self.controller = found.data

    def _stand(self, found: Any, depose: bool = False) -> None:
        if isinstance(found, Exception):
            self.again(self._look)
            return
        sent_ms = self._node.now()
        epoch = 1 if found is None else found.data + 1
        count: Operation = Create(EPOCH, epoch) if found is None else Put(EPOCH, epoch, found.version)
        operations: list[Operation] = [count]
        if depose:
            operations.append(Delete(CONTROLLER))
        operations.append(Create(CONTROLLER, self._node.id, ephemeral=True))

        def taken(outcome: Any) -> None:
            if isinstance(outcome, Exception):
                self.again(self._look)
            else:
                self._elected(epoch, outcome[0].version, sent_ms)

        self._zookeeper.multi(operations, taken)

    def depose(self, epoch: int) -> None:
        """CL-C9: the controller's process refuses connections; stand for election in its place."""

        def seen(found: Any) -> None:
            if isinstance(found, Znode) and found.data == epoch:
                self._stand(found, depose=True)

        self._zookeeper.get(EPOCH, seen)

    def _elected(self, epoch: int, epoch_version: int, sent_ms: int) -> None:
        self._resign()
        self.term += 1
        self._is_elected = True
        term = self.term
        self.controller = self._node.id
        self._proved_ms = sent_ms
        self._node.trace(f"n{self._node.id} is elected, epoch {epoch}")

        def read(found: Any) -> None:
            if term != self.term:
                return
            if isinstance(found, Exception):
                self._node.later(RETRY_MS, lambda: self._zookeeper.sync(synced))
                return
            self.machine = Controller(self._settings)
            image = self._node.image
            version = as_version(found)
            known = image if image.known != NO_VERSION else None
            self.step(events_and_effects.ControllerElected(self._node.id, epoch, epoch_version, version, known))
            self._watching.begin(term=True)

        def synced(outcome: Any) -> None:
            if term == self.term:
                read(outcome) if isinstance(outcome, Exception) else self._zookeeper.get(VERSION, read)

        self._zookeeper.sync(synced)
        self._prove(term, epoch_version)
        self._doubt(term)

    def _prove(self, term: int, epoch_version: int) -> None:
        """CL-Z8: a no-op every sixth of a session."""
        if term != self.term:
            return
        sent_ms = self._node.now()

        def proved(outcome: Any) -> None:
            if term == self.term and not isinstance(outcome, Exception):
                self._proved_ms = max(self._proved_ms, sent_ms)
            elif term == self.term and isinstance(outcome, BadVersion):
                self._resign()
                self.again(self._look)

        self._zookeeper.multi([Check(EPOCH, epoch_version)], proved)
        self._node.later(self._timeout_ms // 6, lambda: self._prove(term, epoch_version))

    def _doubt(self, term: int) -> None:
        """CL-Z8: two thirds of a session after the last proof was sent, this node is controller no more."""
        if term != self.term:
            return
        left = self._proved_ms + self._timeout_ms * 2 // 3 - self._node.now()
        if left <= 0:
            self._resign()
            self.again(self._look)
        else:
            self._node.later(left, lambda: self._doubt(term))

    def _resign(self) -> None:
        if self.machine is not None:
            self.step(events_and_effects.ControllerResigned())
            self._node.trace(f"n{self._node.id} is controller no more")
        self.machine = None
        self._is_elected = False
        self.term += 1

    @property
    def _timeout_ms(self) -> int:
        return self._zookeeper.ensemble.timeout_ms

    # What the machine hears.

    def tell(self, event: ControllerEvent) -> bool:
        """A request for the controller; False where this node is none."""
        if self.machine is None:
            return False
        self.step(event)
        return True

    # What it asks for.

    def step(self, event: ControllerEvent) -> None:
        assert self.machine is not None
        for effect in self.machine.step(event, self._node.now()):
            self._do(effect)

    def _do(self, effect: ControllerEffect) -> None:
        match effect:
            case events_and_effects.WriteMulti():
                self._write(effect)
            case events_and_effects.ReadClusterVersion():
                self._read_version(self.term)
            case events_and_effects.ReadPartitionStates():
                self._watching.read_states(self.term)
            case events_and_effects.Respond():
                self._node.answer(effect)
            case events_and_effects.ElectionNote():
                self._node.noted(effect)
            case events_and_effects.ProbeNode():
                self._node.probe(effect)
            case events_and_effects.WakeControllerAt(at_ms):
                self._wake += 1
                wake, term = self._wake, self.term
                self._node.later(max(0, at_ms - self._node.now()), lambda: self._tick(wake, term))
            case events_and_effects.WarnOperator(text):
                self._node.trace(f"n{self._node.id} warns: {text}")
            case events_and_effects.RemoveMarker():
                self._watching.remove(effect)
            case events_and_effects.ResignController():
                self._node.later(0, self._resign)

    def _tick(self, wake: int, term: int) -> None:
        if wake == self._wake and term == self.term and self.machine is not None:
            self.step(events_and_effects.ControllerTick())

    def _write(self, write: events_and_effects.WriteMulti) -> None:
        term, sent_ms = self.term, self._node.now()
        operations: list[Operation] = [Check(EPOCH, write.epoch_version)]
        for each in write.operations:
            match each:
                case events_and_effects.PutPartitionState(place, state, at):
                    path = state_path(place)
                    operations.append(Create(path, state) if at == NO_EPOCH else Put(path, state, at))
                case events_and_effects.DeletePartitionState(place, at):
                    operations.append(Delete(state_path(place), at))
                case events_and_effects.PutTopicZnode(topic):
                    operations.append(Put(f"{TOPICS}/{topic.name}", topic, topic.version))
                case events_and_effects.CreateInternalTopic(name, partitions):
                    topic = ClusterTopic(name, self._node.draw_id(), partitions)
                    operations.append(Create(f"{TOPICS}/{name}", topic))
                case events_and_effects.DeleteTopicZnode(name, at):
                    operations += self._below(name, operations)
                    operations += [Delete(f"{TOPICS}/{name}", at), Delete(f"{DELETED}/{name}")]
        known = ImageVersion(write.epoch, write.sequence)
        if write.cluster_version == NO_EPOCH:
            operations.append(Create(VERSION, known))
        else:
            operations.append(Put(VERSION, known, write.cluster_version))

        def written(outcome: Any) -> None:
            if term != self.term or self.machine is None:
                return
            if not isinstance(outcome, Exception):
                self._proved_ms = max(self._proved_ms, sent_ms)
                self.step(events_and_effects.MultiWritten(write.sequence))
                return
            failure = events_and_effects.WriteFailure.LOST
            if isinstance(outcome, BadVersion):
                failure = (
                    events_and_effects.WriteFailure.EPOCH
                    if str(outcome) == EPOCH
                    else events_and_effects.WriteFailure.VERSION
                )
            elif isinstance(outcome, NodeExists | NoNode):
                failure = events_and_effects.WriteFailure.VERSION
            self.step(events_and_effects.WriteFailed(write.sequence, failure))

        self._zookeeper.multi(operations, written)

    def _below(self, name: str, operations: list[Operation]) -> list[Operation]:
        """What is left below a topic: whoever writes looks, for a znode with others below it cannot be deleted."""
        going = {each.path for each in operations if isinstance(each, Delete)}
        there = self._zookeeper.ensemble.committed.nodes
        return [Delete(path) for path in there if path.startswith(f"{TOPICS}/{name}/") and path not in going]

    def _read_version(self, term: int) -> None:
        def read(found: Any) -> None:
            if term != self.term or self.machine is None:
                return
            if isinstance(found, Exception):
                self._node.later(RETRY_MS, lambda: self._read_version(term))
            else:
                self.step(events_and_effects.VersionRead(as_version(found)))

        def synced(outcome: Any) -> None:
            if isinstance(outcome, Exception):
                read(outcome)
            else:
                self._zookeeper.get(VERSION, read)

        if term == self.term:
            self._zookeeper.sync(synced)
