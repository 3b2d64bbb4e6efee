"""The node's end of session streams, as `coordinator.server.services.member_session` keeps them: one a member at
most.
"""

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from muster.client.members.member_types import MemberSettings
from muster.coordinator.core.model import effects
from muster.coordinator.core.model.effects import Reply
from muster.coordinator.core.model.events import (
    ConsumerHeartbeat,
    Heartbeat,
    Hello,
    Listen,
    SessionHeartbeat,
    StreamLost,
)
from muster.coordinator.errors import ErrorCode
from tests.sim.members.session import Down, Drain, Up
from tests.sim.members.stream import Stream

if TYPE_CHECKING:
    from tests.sim.node.node import Node

GRACE_MS = 5_000
"""How long a member whose stream broke may take to be heard of again."""

NO_NEWS = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Not about the member."""


class Sessions:
    def __init__(self, node: "Node") -> None:
        self.node = node
        self.by_member: dict[tuple[str, str], NodeSession] = {}

    def open(self, stream: Stream, settings: MemberSettings, member_id: str) -> None:
        """The hello arrives a little later than it was sent."""
        life = self.node.life

        def arrived(_: object) -> None:
            if life != self.node.life or not self.node.up:
                stream.finish()
                return
            key = (settings.group_id, member_id)
            if (earlier := self.by_member.get(key)) is not None:
                earlier.drain("another session of the same member was opened")
            session = self.by_member[key] = NodeSession(self, stream, settings, member_id)
            session.greet()

        stream.at_node = lambda hello: self.node.ears.hear(lambda: arrived(hello))
        stream.up(None)

    def left(self, session: "NodeSession") -> bool:
        """Whether the member has no other stream by now."""
        key = (session.settings.group_id, session.member_id)
        if self.by_member.get(key) is not session:
            return False
        del self.by_member[key]
        return True

    def crashed(self) -> None:
        """All connections die with the process."""
        sessions, self.by_member = self.by_member, {}
        for session in sessions.values():
            session.over = True
            session.stream.finish()


class NodeSession:
    def __init__(self, sessions: Sessions, stream: Stream, settings: MemberSettings, member_id: str) -> None:
        self.sessions = sessions
        self.node = sessions.node
        self.stream = stream
        self.settings = settings
        self.member_id = member_id
        self.over = False
        self._sequence = 0
        self._unacknowledged: int | None = None
        self._listening: Listen | None = None
        self._parked = 0
        """The request id of the Listen that has no answer yet; 0: none."""
        self._inbox: deque[Up] = deque()
        self._busy = 0
        stream.at_node = self._lands
        stream.client_gone = lambda orderly: self.node.ears.hear(lambda: self._client_gone(orderly))

    def drain(self, reason: str) -> None:
        self.stream.down(Drain(reason))
        self._end()
        self.stream.finish()

    def greet(self) -> None:
        """The hello is answered by the member's shard."""
        hello = Hello(0, self.settings.group_id, self.member_id)
        self._busy = self.node.ask(hello, self._welcomed)

    def _welcomed(self, reply: Reply) -> None:
        self._busy = 0
        if not self.over:
            self.put(0, reply)
            self._next()

    def put(self, number: int, reply: object, generation: int = -1) -> None:
        self._sequence += 1
        if number == 0 and isinstance(reply, effects.PushReply) and reply.consumer and not reply.code:
            self._unacknowledged = self._sequence
        self.stream.down(Down(self._sequence, number, reply, generation))

    # Heartbeats, one after the other

    def _lands(self, message: Up) -> None:
        if self.node.up and not self.over:
            self.node.watch.arrived(message, message.request)
        self.node.ears.hear(lambda: self._arrived(message))

    def _arrived(self, message: Up) -> None:
        self._inbox.append(message)
        self._next()
        self._drop_unread()

    def _next(self) -> None:
        if self._busy or self.over or not self._inbox:
            return
        message = self._inbox.popleft()
        if self._unacknowledged is not None and message.acknowledged >= self._unacknowledged:
            self._unacknowledged = self._listening = None
        if isinstance(message.request, ConsumerHeartbeat):
            listening = self._listening.request_id if self._listening else None
            self._ask(SessionHeartbeat(0, message.request, listening), message)
        else:
            self._ask(message.request, message)

    def _ask(self, request: SessionHeartbeat | Heartbeat, message: Up) -> None:
        self._busy = self.node.ask(request, lambda reply: self._answered(message, reply), self.stream.caller)
        self.node.watch.taken(message, self._busy)

    def _answered(self, message: Up, reply: Reply) -> None:
        self._busy = 0
        if self.over:
            return
        if isinstance(reply, effects.PushReply):
            self._consumer_answered(message, reply)
        elif isinstance(reply, effects.HeartbeatReply):
            generation = message.request.generation
            if message.number:
                self.put(message.number, reply)
            elif reply.code not in NO_NEWS:
                self.put(0, effects.PushReply(reply.code, reply.message), generation)
            if reply.code is ErrorCode.NONE:
                self._listen(generation, consumer=False)
        self._next()

    def _consumer_answered(self, message: Up, reply: effects.PushReply) -> None:
        if reply.crossed:
            self.node.world.census["heartbeats that crossed a push"] += 1
            return
        self._listening = None
        told = reply.consumer or effects.ConsumerHeartbeatReply(reply.code, reply.message)
        self.put(message.number, told)
        if told.code is ErrorCode.NONE and told.member_epoch > 0:
            self._listen(told.member_epoch, consumer=True)

    # What the coordinator says first

    def _listen(self, generation: int, *, consumer: bool) -> None:
        before = self._listening
        if before is not None and (before.generation, before.consumer) == (generation, consumer):
            return
        settings = self.settings
        listen = Listen(0, settings.group_id, self.member_id, settings.group_instance_id, generation, consumer)
        number = self.node.ask(listen, lambda reply: self._heard(replace(listen, request_id=number), reply))
        self._parked, self._listening = number, replace(listen, request_id=number)

    def _heard(self, listen: Listen, reply: Reply) -> None:
        current = self._listening is not None and self._listening.request_id == listen.request_id
        if self._parked == listen.request_id:
            self._parked = 0
        if self.over or not isinstance(reply, effects.PushReply):
            return
        told = reply.code not in NO_NEWS or reply.consumer is not None
        if current and (not told or not listen.consumer):
            self._listening = None
        if told:
            self.put(0, reply, listen.generation)

    # The end

    def _client_gone(self, orderly: bool) -> None:
        if self.over:
            return
        alone = self.sessions.left(self)
        self._end()
        if alone and not orderly:
            lost = StreamLost(self.settings.group_id, self.member_id, GRACE_MS)
            self.node.engine.submit(self.node.shard_index(lost.group_id), lost)
            self.node.wake()

    def _drop_unread(self) -> None:
        while self.over and self._inbox:
            self.node.watch.taken(self._inbox.popleft(), 0)

    def _end(self) -> None:
        self.over = True
        self._drop_unread()
        for request_id in (self._busy, self._parked):
            if request_id:
                self.node.forget_request(request_id)
