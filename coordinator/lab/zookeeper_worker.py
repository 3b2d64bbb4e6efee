"""A worker of the ZooKeeper era in virtual time: its own session, nobody to ask but the ensemble."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from muster.coordinator.lab.account import Account
from muster.coordinator.lab.clock import Clock
from muster.coordinator.lab.ensemble import Ensemble, Session
from muster.coordinator.lab.era_registry import BROKERS, TOPICS, EraRegistry
from muster.coordinator.lab.labourer import Labour, Labourer
from muster.coordinator.lab.node import FLUSH_MS, NETWORK_MS
from muster.coordinator.member.types import TopicPartition
from muster.coordinator.member.zookeeper import events as zk
from muster.coordinator.member.zookeeper.machine import ZookeeperMember
from muster.coordinator.member.zookeeper.types import Link

LAG_MS = 5
"""How far a server of the ensemble may be behind: they stand side by side."""


class Era:
    """What all such workers of a run share. `rebalances` begin when the first one leaves its rest, and end together."""

    def __init__(self, clock: Clock, topics: Mapping[str, int]) -> None:
        self.ensemble = Ensemble(clock, LAG_MS)
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


class ZookeeperWorker(Labourer):
    """Pings its session, performs what its machine asks for, and is told by watches."""

    def __init__(
        self, clock: Clock, era: Era, account: Account, labour: Labour, name: str, machine: ZookeeperMember
    ) -> None:
        super().__init__(clock, account, labour, name, machine)
        self._machine = machine
        self._era = era
        self._registry = EraRegistry(era.ensemble, name)
        self._session: Session | None = None

    def started(self) -> None:
        session = self._era.ensemble.connect(self._machine.settings.session_timeout_ms, self._told)
        self._session = session
        self._era.messages += 2
        self.tell(zk.SessionChanged(Link.CONNECTED))
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
        if isinstance(action, zk.RebalanceFailed):
            return  # The next watch starts it anew; until then its partitions are counted as nobody's.
        session = self._session
        assert session is not None, "nothing is asked before the session"
        before = self._registry.requests
        answers: list[zk.Answer] = []

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

    def _ping(self, session: Session) -> None:
        if self.alive:
            self._era.messages += 2
            self._era.ensemble.touch(session)
            self._clock.after(session.timeout_ms // 3, lambda: self._ping(session))

    def _way_ms(self) -> int:
        return self._clock.rng.randint(*NETWORK_MS)
