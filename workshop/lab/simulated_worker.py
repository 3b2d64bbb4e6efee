"""A worker in virtual time, whatever protocol its group speaks, and the account of a run.

A worker is a process with an application that reads, works, commits and lets go; it starts, is closed, or crashes.
The account says which worker works on what, how long a partition was not worked on, and which records were worked on
twice.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from muster.assignors.api import TopicPartition
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.member_types import NO_GENERATION, LeavePolicy
from muster.workshop.lab.simulated_node import VirtualClock

# The account
# -----------


@dataclass(slots=True)
class PartitionAccount:
    """One partition. `done` is how far anybody ever got, `committed` how far that is known."""

    holders: set[str] = field(default_factory=set)
    last_holder: str = ""
    idle_since_ms: int = 0
    unowned_ms: int = 0
    longest_ms: int = 0
    taken_at_ms: int = 0
    done: int = 0
    committed: int = 0


@dataclass(frozen=True, slots=True)
class RunCosts:
    """What a run cost.

    `stops` counts how often a partition was left without a worker, `moved` how often it came to another one than had it
    before.
    """

    rebalances: int
    stops: int
    unowned_partition_s: float
    longest_stop_s: float
    moved: int
    duplicates: int
    messages: int


class RunAccount:
    """All partitions of one group. Counting begins with `begin_measuring`; what happened before is forgotten."""

    def __init__(self, partitions: list[TopicPartition]) -> None:
        self.accounts = {tp: PartitionAccount() for tp in partitions}
        self.stops = 0
        self.moved = 0
        self.duplicates = 0

    def begin_measuring(self, now_ms: int) -> None:
        self.stops = self.moved = self.duplicates = 0
        for account in self.accounts.values():
            account.unowned_ms = account.longest_ms = 0
            account.idle_since_ms = now_ms

    def record_take(self, worker: str, tp: TopicPartition, now_ms: int) -> None:
        account = self.accounts[tp]
        if not account.holders:
            idle_ms = now_ms - account.idle_since_ms
            account.unowned_ms += idle_ms
            account.longest_ms = max(account.longest_ms, idle_ms)
        self.moved += account.last_holder not in ("", worker)
        account.holders.add(worker)
        account.taken_at_ms = now_ms
        account.last_holder = worker

    def drop(self, worker: str, tp: TopicPartition, now_ms: int) -> None:
        account = self.accounts[tp]
        account.holders.discard(worker)
        if not account.holders:
            account.idle_since_ms = now_ms
            self.stops += 1

    def work(self, tp: TopicPartition, position: int, count: int) -> None:
        """Records `position` up to `position + count` were worked on."""
        account = self.accounts[tp]
        self.duplicates += min(max(0, account.done - position), count)
        account.done = max(account.done, position + count)

    @property
    def unowned(self) -> list[TopicPartition]:
        return [tp for tp, account in self.accounts.items() if not account.holders]

    def costs(self, rebalances: int, messages: int, now_ms: int) -> RunCosts:
        """The books closed at this time: who is idle still has been so until now."""
        open_ms = {tp: now_ms - self.accounts[tp].idle_since_ms for tp in self.unowned}
        unowned_ms = sum(account.unowned_ms for account in self.accounts.values()) + sum(open_ms.values())
        longest_ms = max(
            (max(account.longest_ms, open_ms.get(tp, 0)) for tp, account in self.accounts.items()), default=0
        )
        return RunCosts(
            rebalances, self.stops, unowned_ms / 1000, longest_ms / 1000, self.moved, self.duplicates, messages
        )


# The worker
# ----------

Callback: TypeAlias = act.Revoke | act.Lost | act.Assign

TICK_MS = 100
"""How often a worker turns to what has arrived meanwhile, and how late its timers may be."""


@dataclass(frozen=True, slots=True)
class SteadyLoad:
    """What there is to do. Records of every partition arrive evenly, from time 0 on."""

    records_per_s: int = 10
    """Of one partition."""
    work_ms: int = 5
    """Per record, one after the other in one worker."""
    commit_every_ms: int = 5_000
    callback_ms: int = 50
    """What an application takes to let go, besides its commit."""

    def arrived(self, now_ms: int) -> int:
        return now_ms * self.records_per_s // 1000


class WorkerMachine(Protocol):
    """A member, as its process knows it."""

    generation: int

    def step(self, event: Any, now_ms: int) -> Sequence[Any]: ...


class SimulatedWorker(ABC):
    """A process: it starts, is closed, or crashes. `name` is its place in the deployment, the same after a restart."""

    def __init__(
        self, clock: VirtualClock, account: RunAccount, labour: SteadyLoad, name: str, machine: WorkerMachine
    ) -> None:
        self.name = name
        self.alive = False
        self.holding: set[TopicPartition] = set()
        self._clock = clock
        self._account = account
        self._labour = labour
        self._member = machine
        self._positions: dict[TopicPartition, int] = {}
        self._callbacks: deque[Callback] = deque()
        self._running: Callback | None = None
        self._wake_at_ms: int | None = None

    def start(self) -> None:
        self.alive = True
        self.handle_event(ev.Start())
        self._clock.after(self._clock.rng.randint(1, TICK_MS), self._work)
        self._clock.after(self._clock.rng.randint(1, self._labour.commit_every_ms), self._commit_now_and_then)
        self.started()

    def close(self, leaving: LeavePolicy) -> None:
        self.handle_event(ev.Close(leaving))

    def crash(self) -> None:
        """Gone without a word."""
        self.alive = False
        self.hang_up()
        for tp in sorted(self.holding):
            self._account.drop(self.name, tp, self._clock.now_ms)
        self.holding.clear()

    def handle_event(self, event: Any) -> None:
        if self.alive:
            for action in self._member.step(event, self._clock.now_ms):
                if self.alive:
                    self._perform(action)
            self.stepped()

    # What differs

    def started(self) -> None:
        """Once the machine has been told to start."""
        return

    def stepped(self) -> None:
        """After each step of the machine."""
        return

    def hang_up(self) -> None:
        """The process is gone; nobody waits for answers any more."""
        return

    @abstractmethod
    def perform_action(self, action: Any) -> None:
        """Perform what this kind of member asks of its group."""

    @abstractmethod
    def send_commit(self, positions: Mapping[TopicPartition, int], done: Callable[[], None]) -> None: ...

    @abstractmethod
    def fetch_positions(
        self, partitions: Sequence[TopicPartition], then: Callable[[Mapping[TopicPartition, int]], None]
    ) -> None: ...

    # What every machine asks for

    def _perform(self, action: Any) -> None:
        match action:
            case act.Revoke() | act.Lost() | act.Assign():
                self._callbacks.append(action)
                self._next_callback()
            case act.WakeMemberAt():
                self._wake_at(action.at_ms)
            case act.Fail():
                raise AssertionError(f"{self.name} was refused for good: {action.code.name} {action.message}")
            case act.Closed():
                self.crash()
            case _:
                self.perform_action(action)

    def _wake_at(self, at_ms: int) -> None:
        self._wake_at_ms = at_ms
        late_ms = self._clock.rng.randint(0, TICK_MS)
        self._clock.at(at_ms + late_ms, lambda: self._tick(at_ms))

    def _tick(self, at_ms: int) -> None:
        if at_ms == self._wake_at_ms:
            self._wake_at_ms = None
            self.handle_event(ev.TimerExpired())

    # The application: callbacks one after the other, work in between

    def _next_callback(self) -> None:
        if self._running is not None or not self._callbacks:
            return
        action = self._running = self._callbacks.popleft()
        match action:
            case act.Assign():
                self._fetch(action)
            case act.Revoke():
                # It may work on until its callback has ended; what it commits last is what counts.
                self._clock.after(self._labour.callback_ms, lambda: self._commit(lambda: self._ended(action)))
            case act.Lost():
                self._ended(action)

    def _fetch(self, action: act.Assign) -> None:
        if not action.added:
            self._ended(action)
            return

        def fetched(stored: Mapping[TopicPartition, int]) -> None:
            for tp in action.added:
                self._positions[tp] = stored.get(tp, 0)
                if self.alive:
                    self.holding.add(tp)
                    self._account.record_take(self.name, tp, self._clock.now_ms)
            self._ended(action)

        self.fetch_positions(tuple(action.added), fetched)

    def _ended(self, action: Callback) -> None:
        if not self.alive or action is not self._running:
            return
        self._running = None
        if not isinstance(action, act.Assign):
            for tp in sorted(self.holding.intersection(action.partitions)):
                self._account.drop(self.name, tp, self._clock.now_ms)
            self.holding.difference_update(action.partitions)
            self.handle_event(ev.Revoked(action.token))
        self._next_callback()

    def _work(self) -> None:
        """As many records as one tick has time for, the partitions that lag most first."""
        if not self.alive:
            return
        budget, arrived = TICK_MS // self._labour.work_ms, self._labour.arrived(self._clock.now_ms)
        for tp in sorted(self.holding, key=lambda tp: (self._positions[tp], tp)):
            count = min(budget, arrived - self._positions[tp])
            self._account.work(tp, self._positions[tp], count)
            self._positions[tp] += count
            budget -= count
        self._clock.after(TICK_MS, self._work)

    def _commit_now_and_then(self) -> None:
        if self.alive:
            self._commit(lambda: None)
            self._clock.after(self._labour.commit_every_ms, self._commit_now_and_then)

    def _commit(self, done: Callable[[], None]) -> None:
        if not self.alive:
            return
        if not self.holding or self._member.generation == NO_GENERATION:
            done()
            return
        self.send_commit({tp: self._positions[tp] for tp in sorted(self.holding)}, done)
