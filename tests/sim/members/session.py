"""The member's end of a session stream (pushed membership): a convenience; while it is not open the member polls."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.coordinator.core.model import effects
from muster.coordinator.errors import ErrorCode
from tests.sim.faults import REQUEST_TIMEOUT_MS
from tests.sim.members.stream import Stream

if TYPE_CHECKING:
    from tests.sim.members.client import Process

RETRY_MS = 2_000


@dataclass(frozen=True, slots=True)
class Up:
    """A heartbeat on its way up. Number 0 wants no answer; `acknowledged` is the last message that was read."""

    number: int
    request: Any
    acknowledged: int


@dataclass(frozen=True, slots=True)
class Down:
    """What comes down: an answer has its question's number, a push has 0."""

    sequence: int
    number: int
    reply: Any
    generation: int = -1
    """Of the question that a push answers."""


@dataclass(frozen=True, slots=True)
class Drain:
    """The node will say no more."""

    reason: str


class Session:
    """Keeps a stream open as long as the member is one, and turns what comes down into the machine's events."""

    def __init__(self, process: "Process") -> None:
        self.process = process
        self.world = process.world
        self.network = process.network
        self.followed = ""
        self.stream: Stream | None = None
        self.is_open = False
        self._generation = -1
        self._acknowledged = 0
        self._number = 0
        self._asked: dict[int, act.SendHeartbeat | act.SendConsumerHeartbeat] = {}

    def look(self) -> None:
        """After every step of the machine: whom to follow, and under which generation to listen."""
        member = self.process.member
        wanted = member.member_id if member.generation >= 0 else ""
        if wanted != self.followed:
            self.followed = wanted
            if self.stream is not None:
                self._over(orderly=True)
            if wanted:
                self._open(wanted)
        elif self.is_open and member.generation != self._generation and not self.process.consumer:
            self._listen()

    def end(self) -> None:
        """The process is gone; its system closes the connection."""
        self.followed = ""
        if self.stream is not None:
            self._over(orderly=not self._asked)

    def heartbeat(self, action: act.SendHeartbeat | act.SendConsumerHeartbeat) -> None:
        self._number += 1
        number = self._number
        self._asked[number] = action
        self._say(number, self.process.part.question(action).request)
        self.world.after(REQUEST_TIMEOUT_MS, lambda: self.process.later(lambda: self._timed_out(number)))

    def abandon(self, token: int) -> None:
        self._asked = {number: action for number, action in self._asked.items() if action.token != token}

    # The stream

    def _open(self, member_id: str) -> None:
        if self.followed != member_id or self.stream is not None or not self.process.alive:
            return
        node = self.network.node
        if not node.up or self.network.lost(self.process.name):
            self._open_later(member_id)
            return
        stream = self.stream = Stream(self.network, self.process.name)
        stream.at_client = lambda message: self.process.later(lambda: self._hear(stream, message))
        stream.node_gone = lambda: self.process.later(lambda: self._gone(stream))
        node.sessions.open(stream, self.process.settings, member_id)

    def _open_later(self, member_id: str) -> None:
        self.world.after(RETRY_MS, lambda: self.process.later(lambda: self._open(member_id)))

    def _gone(self, stream: Stream) -> None:
        if self.stream is stream and self.process.alive:
            member_id = self.followed
            self._over(orderly=False)
            if member_id:
                self._open_later(member_id)

    def _over(self, *, orderly: bool) -> None:
        """Whoever waits for an answer asks again by a call."""
        assert self.stream is not None
        self.stream.close(orderly=orderly)
        self.stream, self.is_open = None, False
        self._generation, self._acknowledged = -1, 0
        asked, self._asked = self._asked, {}
        for action in asked.values():
            failed = ev.RequestFailed(action.token, retriable=True, detail="the session stream broke")
            self.world.after(0, lambda failed=failed: self.process.later(lambda: self.process.tell(failed)))
        if self.process.alive:
            self.world.after(0, lambda: self.process.later(lambda: self.process.tell(ev.SessionLost())))

    def _timed_out(self, number: int) -> None:
        if number in self._asked and self.stream is not None:
            self._gone(self.stream)

    # Up and down

    def _say(self, number: int, request: Any) -> None:
        assert self.stream is not None
        self.stream.up(Up(number, request, self._acknowledged))

    def _listen(self) -> None:
        """A heartbeat that wants no answer: from here on the coordinator speaks first."""
        member = self.process.member
        self._generation = member.generation
        action = act.SendHeartbeat(0, member.member_id, member.generation)
        self._say(0, self.process.part.question(action).request)

    def _hear(self, stream: Stream, message: Down | Drain) -> None:
        if self.stream is not stream or not self.process.alive:
            return
        if isinstance(message, Drain):
            lost = effects.PushReply(ErrorCode.NOT_COORDINATOR, message.reason)
            self.process.tell(self.process.part.pushed(lost, self.process.member.generation))
            return
        self._acknowledged = message.sequence
        if isinstance(message.reply, effects.HelloReply):
            self._welcome(message.reply.heartbeat_interval_ms)
        elif message.number:
            self._answered(message)
        else:
            self.world.census["pushes"] += 1
            self.process.tell(self.process.part.pushed(message.reply, message.generation))

    def _welcome(self, heartbeat_interval_ms: int) -> None:
        self.is_open = True
        self.world.census["session streams opened"] += 1
        self.process.tell(ev.SessionOpened(heartbeat_interval_ms))
        if not self.process.consumer and self.process.member.generation >= 0:
            self._listen()

    def _answered(self, message: Down) -> None:
        action = self._asked.pop(message.number, None)
        if action is not None:
            self.process.tell(self.process.part.question(action).translate(action.token, message.reply))
