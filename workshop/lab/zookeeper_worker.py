"""A worker of the ZooKeeper era in virtual time: its own session, nobody to ask but the ensemble."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from muster.client.members import zookeeper_events as zk
from muster.client.members.types import TopicPartition
from muster.client.members.zookeeper_machine import ZookeeperMemberMachine
from muster.client.members.zookeeper_types import ZookeeperSession
from muster.workshop.lab.account import RunAccount
from muster.workshop.lab.clock import VirtualClock
from muster.workshop.lab.ensemble import EnsembleModel, ModelSession
from muster.workshop.lab.era_registry import BROKERS, TOPICS, ModelConsumerRegistry
from muster.workshop.lab.labourer import SimulatedWorker, SteadyLoad
from muster.workshop.lab.node import FLUSH_MS, NETWORK_MS

LAG_MS = 5
"""How far a server of the ensemble may be behind: they stand side by side."""


class ZookeeperRebalances:
    """What all such workers of a run share. `rebalances` begin when the first one leaves its rest, and end together."""

    def __init__(self, clock: VirtualClock, topics: Mapping[str, int]) -> None:
        self.ensemble = EnsembleModel(clock, LAG_MS)
        self.messages = 0
        self.notifications = 0
        self.rebalances = 0
        self._restless: set[str] = set()
        for topic, count in topics.items():
            self.ensemble.plant(f"{TOPICS}/{topic}", count)
        self.ensemble.plant(f"{BROKERS}/1", "")
        self.offsets: dict[TopicPartition, int] = {}

    def note(self, worker: str, rebalancing: bool) -> None:
        if rebalancing:
            self.rebalances += not self._restless
            self._restless.add(worker)
        else:
            self._restless.discard(worker)


class ZookeeperWorker(SimulatedWorker):
    """Pings its session, performs what its machine asks for, and is told by watches."""

    def __init__(
        self,
        clock: VirtualClock,
        era: ZookeeperRebalances,
        account: RunAccount,
        labour: SteadyLoad,
        name: str,
        machine: ZookeeperMemberMachine,
    ) -> None:
        super().__init__(clock, account, labour, name, machine)
        self._machine = machine
        self._era = era
        self._registry = ModelConsumerRegistry(era.ensemble, name)
        self._session: ModelSession | None = None

    def started(self) -> None:
        session = self._era.ensemble.connect(self._machine.settings.session_timeout_ms, self._told)
        self._session = session
        self._era.messages += 2
        self.tell(zk.SessionChanged(ZookeeperSession.CONNECTED))
        self._ping(session)

    def stepped(self) -> None:
        self._era.note(self.name, self.alive and self._machine.rebalancing)

    def hang_up(self) -> None:
        """A worker that closed says goodbye; one that crashed is given up with its session."""
        self._era.note(self.name, False)
        session = self._session
        if session is not None and self._machine.state.name == "CLOSED":
            # After what it asked last.
            self._send(lambda: self._era.ensemble.end(session), lambda: None)

    def ask(self, action: Any) -> None:
        if isinstance(action, zk.RebalanceGivenUp):
            return  # The next watch starts it anew; until then its partitions are counted as nobody's.
        session = self._session
        assert session is not None, "nothing is asked before the session"
        before = self._registry.requests
        answers: list[zk.ZookeeperAnswer] = []

        def arrive() -> None:
            answers.append(self._registry.perform(session, action))
            self._era.messages += 2 * (self._registry.requests - before)

        self._send(arrive, lambda: self.tell(answers[0]))

    def send_commit(self, positions: Mapping[TopicPartition, int], done: Callable[[], None]) -> None:
        def arrive() -> None:
            self._era.offsets.update(positions)
            self._era.messages += 2

        self._send(arrive, done)

    def fetch_positions(
        self, partitions: Sequence[TopicPartition], then: Callable[[Mapping[TopicPartition, int]], None]
    ) -> None:
        found: dict[TopicPartition, int] = {}

        def arrive() -> None:
            found.update({tp: self._era.offsets[tp] for tp in partitions if tp in self._era.offsets})
            self._era.messages += 2 * len(partitions)

        self._send(arrive, lambda: then(found))

    def _send(self, arrive: Callable[[], None], answered: Callable[[], None]) -> None:
        """There, to disk, and back; in the order of the session."""
        session = self._session
        assert session is not None, "nothing is sent before the session"
        session.ready_ms = max(session.ready_ms, self._clock.now_ms + self._way_ms() + FLUSH_MS)

        def act() -> None:
            arrive()
            self._clock.after(self._way_ms(), answered)

        self._clock.at(session.ready_ms, act)

    def _told(self, what: str) -> None:
        self._era.messages += 1
        self._era.notifications += 1
        self._clock.after(self._way_ms(), lambda: self.tell(zk.WatchFired(what)))

    def _ping(self, session: ModelSession) -> None:
        if self.alive:
            self._era.messages += 2
            self._era.ensemble.touch(session)
            self._clock.after(session.timeout_ms // 3, lambda: self._ping(session))

    def _way_ms(self) -> int:
        return self._clock.rng.randint(*NETWORK_MS)
