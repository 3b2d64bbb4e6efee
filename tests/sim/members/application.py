"""The application in a process: it reads the partitions it was given, commits, and takes its time in callbacks."""

from collections import deque
from typing import TYPE_CHECKING

from muster.assignors.api import TopicPartition
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.member_types import NO_GENERATION
from muster.coordinator.core.model.effects import OffsetCommitReply, OffsetFetchReply
from muster.coordinator.core.model.events import OffsetCommit, OffsetFetch
from muster.coordinator.core.model.types import CommittedOffset
from tests.sim.faults import CALM
from tests.sim.members.fences import FencedWriter
from tests.sim.network import Answer

if TYPE_CHECKING:
    from tests.sim.members.client import Process

Callback = act.Revoke | act.Lost | act.Assign


class Application:
    """`holding` is what it works on: a partition stays until the callback that takes it away has ended."""

    def __init__(self, process: "Process") -> None:
        self.process = process
        self.world = process.world
        self.holding: set[TopicPartition] = set()
        self.positions: dict[TopicPartition, int] = {}
        self.stalled = False
        self._callbacks: deque[Callback] = deque()
        self._running: Callback | None = None
        self._last_identity = ("", NO_GENERATION)
        self._commits = 0
        self.writer = FencedWriter(process)

    @property
    def idle(self) -> bool:
        return self._running is None and not self._callbacks

    def start(self) -> None:
        every_ms = self.process.habits.commit_every_ms
        self.writer.start()
        if not self.process.habits.commits:
            return
        self.world.after(self.world.between(1, every_ms), self._commit_now_and_then)

    def end(self) -> None:
        self.holding.clear()
        self._callbacks.clear()
        self._running = None

    def stall(self, for_ms: int) -> None:
        self.stalled = True
        self.world.census["applications stalled"] += 1
        self.world.trace(f"{self.process.name} stalls for {for_ms}ms")

    def wake(self) -> None:
        self.stalled = False
        self._next_callback()

    # Callbacks, one after the other

    def call_back(self, action: Callback) -> None:
        self._callbacks.append(action)
        self._next_callback()

    def _next_callback(self) -> None:
        if self.stalled or self._running is not None or not self._callbacks:
            return
        action = self._running = self._callbacks.popleft()
        self.world.trace(f"{self.process.name} {type(action).__name__} {action.partitions}")
        match action:
            case act.Assign():
                # From here on it reads them, even while it still asks for its positions.
                self.holding = set(action.partitions)
                self.writer.gained(action)
                self._fetch(action)
            case act.Revoke():
                self._commit(sorted(self.holding), "revoke")
                self._end_after(action)
            case act.Lost():
                self.holding -= set(action.partitions)
                self._end_after(action)

    def _end_after(self, action: Callback) -> None:
        process = self.process
        delay_ms = self.world.between(0, process.habits.callback_ms)
        if process.network.faults is not CALM and self.world.chance(process.habits.slow_callback):
            delay_ms = self.world.between(1_000, 2 * process.settings.rebalance_timeout_ms)
            self.world.census["callbacks that took too long"] += 1
        self.world.after(delay_ms, lambda: process.later(lambda: self._ended(action)))

    def _ended(self, action: Callback) -> None:
        if action is not self._running:
            return
        self._running = None
        if not isinstance(action, act.Assign):
            self.holding -= set(action.partitions)
            self.process.tell(ev.Revoked(action.token))
        self._next_callback()

    def _fetch(self, action: act.Assign) -> None:
        wanted = tuple(action.added)
        if not wanted:
            self._end_after(action)
            return

        def fetched(answer: Answer) -> None:
            if isinstance(answer, OffsetFetchReply) and not answer.code:
                for tp in wanted:
                    stored = answer.offsets[tp]
                    self.positions[tp] = stored.offset if stored else 0
            self._ended(action)

        self.process.ask(OffsetFetch(0, self.process.settings.group_id, wanted), fetched)

    # Commits

    def _commit_now_and_then(self) -> None:
        process = self.process
        if not process.alive:
            return
        process.later(self._commit_some)
        self.world.after(self.world.between(1, 2 * process.habits.commit_every_ms), self._commit_now_and_then)

    def _commit_some(self) -> None:
        """Some of what it holds. A hasty application commits what it held as whom it was, whatever happened since."""
        late = self.world.chance(self.process.habits.late_commits)
        if late and self.positions:
            self._commit(sorted(self.positions), "late")
        elif not self.stalled and self.holding:
            self._commit(self.world.rng.sample(sorted(self.holding), 1), "regular")

    def _commit(self, partitions: list[TopicPartition], kind: str) -> None:
        member = self.process.member
        identity = (member.member_id, member.generation)
        if member.generation != NO_GENERATION:
            self._last_identity = identity
        elif kind == "late":
            identity = self._last_identity
        if not partitions or identity[1] == NO_GENERATION or not self.process.habits.commits:
            return
        self._commits += 1
        tag = f"{self.process.name}/{self._commits}"  # tells this commit from every other
        offsets = {}
        for topic, partition in partitions:
            position = self.positions.get((topic, partition), 0) + self.world.between(0, 9)
            self.positions[topic, partition] = position
            offsets[topic, partition] = CommittedOffset(position, -1, tag)
        settings = self.process.settings
        request = OffsetCommit(0, settings.group_id, identity[0], settings.group_instance_id, identity[1], offsets)
        self.process.ask(request, lambda answer: self._committed(answer, kind, identity))

    def _committed(self, answer: Answer, kind: str, identity: tuple[str, int]) -> None:
        if not isinstance(answer, OffsetCommitReply):
            return
        self.world.census[f"commits ({kind}): {answer.code.name}"] += 1
        self.world.census["commits taken in part"] += bool(answer.partitions)
        member = self.process.member
        if answer.code and kind != "late" and (member.member_id, member.generation) == identity:
            self.process.tell(ev.CommitRefused(answer.code, answer.message, identity[1]))
