"""A simulated node: real machines over a simulated disk, with everything that a process does around them.

It polls the controller, fetches from leaders, flushes, asks for changes of the in-sync replicas, takes records from
producers and answers readers. It decides nothing; `coordinator.replication.io` performs the same machines for real.
"""

from collections.abc import Callable
from typing import Any

from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    OFFSETS,
    ClusterImage,
    ClusterNode,
    NodeEndpoint,
    TopicPartition,
)
from muster.coordinator.replication.protocol.controller import events_and_effects
from muster.coordinator.replication.protocol.controller.controller_state import (
    ControllerSettings,
    is_power_loss_settled,
)
from muster.coordinator.replication.protocol.follower import TruncatedRecords
from muster.coordinator.replication.protocol.lease import lease_of
from muster.coordinator.replication.protocol.node_replicas import NodeReplicas, ReplicaSettings
from tests.sim.replication.candidate import SimulatedCandidate
from tests.sim.replication.disk import Disk
from tests.sim.replication.groups.coordinator import LONG_MS, Answered, DrivenEngine, SimGroups, Watching
from tests.sim.replication.network import Host, Network, Refused
from tests.sim.replication.process.door import Door
from tests.sim.replication.process.messages import Probing
from tests.sim.replication.process.rounds import LAG_MS, Rounds
from tests.sim.replication.transactions.coordinator import SharedByIds, SimTransactions
from tests.sim.replication.transactions.messages import MarkerAsk
from tests.sim.replication.transactions.positions_desk import PositionsDesk
from tests.sim.replication.zookeeper import Client, Ensemble
from tests.sim.world import START_MS, World

PATIENCE_MS = 2_000


class SimNode:
    """Node `id`. `start` begins a life of its process; `kill` ends it; `freeze` lets it stand still."""

    def __init__(
        self,
        world: World,
        network: Network,
        zookeeper: Ensemble,
        node_id: int,
        settings: ControllerSettings,
        answered: Callable[[Answered], None] | None = None,
        make_disk: Callable[[str], Disk] = Disk,
        session_ms: int = LONG_MS,
    ) -> None:
        """answered: hears of each answer about a group. None: nobody asks for groups here. session_ms: of members."""
        self.world = world
        self.network = network
        self.ensemble = zookeeper
        self.id = node_id
        self.name = f"n{node_id}"
        self.settings = settings
        self._answered = answered
        self._session_ms = session_ms
        self.groups: SimGroups | None = None
        self.transactional: SharedByIds | None = None
        """What the coordinators of transactional ids share; None: nobody asks for these here."""
        self.ids: SimTransactions | None = None
        self.positions: PositionsDesk | None = None
        """Where there are both groups and transactional ids."""
        self.watching = Watching()
        self._make_disk = make_disk
        self.disk = make_disk(self._new_directory())
        self.undone: list[TruncatedRecords] = []
        """What unclean elections have cost its copies, as it told the ledger."""
        self.life = 0
        self.alive = False
        self.frozen = False
        self.acted: Callable[[SimNode], None] = lambda node: None
        """Hears that it is about to do something: else it is as it was."""
        self.notes: list[events_and_effects.ElectionNote] = []
        self.rate = 1.0 + world.rng.uniform(-0.01, 0.01)
        self._backlog: list[Callable[[], None]] = []
        self.image = ClusterImage()
        self.zookeeper: Client
        self.candidate: SimulatedCandidate
        self.replicas: NodeReplicas
        self.door: Door
        self.rounds: Rounds
        self.epoch = NO_EPOCH
        network.add(Host(self.name, self._serve, lambda: self.alive))

    # Its process and its clock.

    def start(self) -> None:
        self.life += 1
        self.acted(self)
        self.alive, self.frozen = True, False
        self.world.census["start"] += 1
        self._backlog = []
        self.door, self.rounds = Door(self), Rounds(self)
        self.epoch = NO_EPOCH
        self.image = ClusterImage()
        settings = ReplicaSettings(lag_time_ms=LAG_MS, min_isr=self.settings.min_isr)
        self.replicas = NodeReplicas(self.id, self.disk, settings, self.now())
        life = self.life
        self.zookeeper = Client(
            self.ensemble,
            self.network,
            self.name,
            lambda what: self.candidate.changed(what),
            lambda do: self.run(life, do),
        )
        self.candidate = SimulatedCandidate(self, self.zookeeper, self.settings)
        self.groups = None if self._answered is None else SimGroups(self, self._answered, self._session_ms)
        self.ids = None if self.transactional is None else SimTransactions(self, self.transactional)
        if self.groups is not None and self.ids is not None:
            self.positions = PositionsDesk(self, self.groups, self.ids.ask_coordinator)
        self.zookeeper.start()
        self.trace(f"{self.name} starts, directory {self.disk.directory}")
        self.rounds.look()
        self.rounds.checkpoint()

    def kill(self, *, power: bool = False) -> None:
        self.alive = False
        self.life += 1
        self.epoch = NO_EPOCH
        self.network.died(self.name)
        if power:
            self.disk.lost_power(self.world.rng)
        else:
            self.disk.killed()
        self.trace(f"{self.name} {'loses power' if power else 'is killed'}")

    def lose_disk(self) -> None:
        """While it is down: a new disk is put in."""
        self.disk = self._make_disk(self._new_directory())
        self.trace(f"{self.name} gets a new disk, directory {self.disk.directory}")

    def freeze(self, for_ms: int) -> None:
        if not self.alive or self.frozen:
            return
        self.frozen = True
        life = self.life
        self.trace(f"{self.name} stands still for {for_ms} ms")

        def thaw() -> None:
            if self.life == life:
                self.frozen = False
                for engine in self.engines:
                    engine.stood_still(for_ms)
                backlog, self._backlog = self._backlog, []
                for action in backlog:
                    self.world.after(0, lambda action=action: self.run(life, action))

        self.world.after(for_ms, thaw)

    def now(self) -> int:
        return int((self.world.now_ms - START_MS) * self.rate) + 1_000_000 * self.id

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        life = self.life
        self.world.after(max(0, round(delay_ms / self.rate)), lambda: self.run(life, action))

    def run(self, life: int, action: Callable[[], None]) -> None:
        if life != self.life or not self.alive:
            return
        if self.frozen:
            self._backlog.append(action)
            return
        self.acted(self)
        action()

    def failed(self, error: BaseException) -> None:
        """A mistake of the program."""
        self.world.violated("Bug", f"{self.name}: {error!r}")

    def trace(self, line: str) -> None:
        self.world.trace(line)

    def draw_id(self) -> bytes:
        return self.world.rng.randbytes(16)

    def _new_directory(self) -> str:
        return f"d{self.world.rng.getrandbits(48):012x}"

    # What its seat at ZooKeeper needs.

    def registration(self) -> ClusterNode:
        doors = (NodeEndpoint("REPLICATION", self.name, 1),)
        return ClusterNode(self.id, self.epoch, self.disk.directory, self.disk.unclean, doors, rack=None)

    def registered(self, epoch: int) -> None:
        self.epoch = epoch
        self.replicas.registered(epoch)
        self.trace(f"{self.name} is registered, epoch {epoch}")
        self.rounds.poll()

    def look_at_its_mark(self) -> None:
        """Its image is another. Where the cluster reckons with what this node lost with its power, its next life is
        like any other's (as `server.clustered.lost_power`)."""
        if self.disk.unclean and is_power_loss_settled(self.registration(), self.image, self.settings.loose_of):
            self.disk.unclean = False
            self.world.census["losses of power reckoned with"] += 1

    def noted(self, note: events_and_effects.ElectionNote) -> None:
        self.notes.append(note)

    def answer(self, answer: events_and_effects.Respond) -> None:
        self.door.answer(answer)

    def probe(self, probe: events_and_effects.ProbeNode) -> None:
        """Three tries within 300 ms, or it is not refused."""
        refused: list[int] = []

        def tried(outcome: Any) -> None:
            if not isinstance(outcome, Refused):
                self.candidate.tell(events_and_effects.ConnectionsRefused(probe.node, probe.node_epoch, ()))
                return
            refused.append(self.now())
            if len(refused) == 3:
                self.candidate.tell(events_and_effects.ConnectionsRefused(probe.node, probe.node_epoch, tuple(refused)))
            else:
                self.later(80, attempt)

        def attempt() -> None:
            self.ask(f"n{probe.node}", Probing(), tried, by="probe", patience_ms=300)

        attempt()

    # What it does, and is asked.

    def _serve(self, asker: str, request: Any, reply: Callable[[Any], None]) -> None:
        self.run(self.life, lambda: self.door.take(request, reply))

    def settle(self) -> None:
        """What is to be done after anything happened."""
        self.rounds.settle()

    def ask(
        self, whom: str, request: Any, then: Callable[[Any], None], *, by: str, patience_ms: int = PATIENCE_MS
    ) -> None:
        life = self.life
        self.network.ask(
            self.name, whom, request, lambda got: self.run(life, lambda: then(got)), patience_ms=patience_ms, by=by
        )

    def mark(self, asked: MarkerAsk, told: Callable[[int], None]) -> None:
        """Write a marker: into the log of data, or by the shard of groups that it is for."""
        if self.groups is not None and asked.place.topic == OFFSETS:
            self.groups.end_positions(asked, told)
        elif self.ids is not None:
            self.ids.data.mark(asked, told)

    @property
    def engines(self) -> list[DrivenEngine]:
        return [each for each in (self.groups, self.ids) if each is not None]

    # For checkers.

    def lease_holds(self, unit: TopicPartition) -> bool:
        """Whether this node would answer for the unit now (CL-G4, CL-G5)."""
        session_ms = self.ensemble.timeout_ms
        return self.lease_is_proved(unit) and self.now() >= self.replicas.promise(unit).answers_from(session_ms)

    def lease_is_proved(self, unit: TopicPartition) -> bool:
        """Whether this node leads the unit, and those in sync have fetched lately enough (CL-G4)."""
        leader = self.replicas.leaders.get(unit)
        if leader is None or leader.over:
            return False
        return self.now() < leader.lease_until(lease_of(self.ensemble.timeout_ms))
