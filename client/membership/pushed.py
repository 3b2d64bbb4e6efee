"""A member whose coordinator speaks first: a session stream, tied to the member's machine."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from muster.client.calls.group_calls import GroupCalls
from muster.client.calls.transport import Transport
from muster.client.errors import Unreachable
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.consumer_machine import ConsumerMemberMachine
from muster.client.members.states import MembershipState
from muster.client.members.types import MemberSettings
from muster.client.membership.classic_calls import read_cause
from muster.client.membership.consumer_calls import ConsumerCalls
from muster.client.membership.session import SessionStream
from muster.coordinator.core.model.types import HEARTBEATS_IN_SESSION, Cause
from muster.coordinator.errors import ErrorCode, error_code_of
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb

log = logging.getLogger("muster.client")


class ProtocolMachine(Protocol):
    """What the driver and its owner know of a member, whichever protocol it speaks."""

    state: MembershipState
    member_id: str
    generation: int
    is_leader: bool
    owned: set[tuple[str, int]]

    @property
    def awaited_release(self) -> int | None: ...

    def step(self, event: Any, now_ms: int) -> list[act.Action]: ...


class SessionHeartbeats:
    """Opens the stream once the member has joined, and turns what comes down into the machine's events."""

    def __init__(
        self,
        transport: Transport,
        calls: GroupCalls,
        settings: MemberSettings,
        consumer: ConsumerCalls,
        machine: ProtocolMachine,
        send: Callable[[ev.ClassicEvent | ev.ConsumerEvent], None],
    ) -> None:
        self._settings = settings
        self._consumer = consumer
        self._machine = machine
        self._send = send
        # A stream that has died without a word is found out in time to be heard of by a call.
        self._timeout_ms = min(
            transport.config.request_timeout_ms, settings.session_timeout_ms // HEARTBEATS_IN_SESSION
        )
        self._leaders = transport.leaders
        self._session = SessionStream(
            transport, calls, settings, opened=self._opened, lost=self._lost, heard=self._heard
        )
        self._generation = -1
        self._saying: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        return self._session.is_open

    def look(self) -> None:
        """After every step of the machine: whom to follow, and under which generation to listen."""
        machine = self._machine
        self._session.follow(machine.member_id if machine.generation >= 0 else "")
        if self.is_open and machine.generation != self._generation and not isinstance(machine, ConsumerMemberMachine):
            self._listen()

    async def heartbeat(
        self, action: act.SendHeartbeat | act.SendConsumerHeartbeat
    ) -> ev.ClassicHeartbeatAnswered | ev.ConsumerHeartbeatAnswered:
        """By the open stream. Raises Unreachable when it breaks."""
        if isinstance(action, act.SendConsumerHeartbeat):
            request = pb.SessionRequest(consumer_group_heartbeat=self._consumer.request(action))
            answer = await self._session.ask(request, self._patience_ms)
            return self._consumer.answered(action.token, answer.consumer_group_heartbeat)
        request = pb.SessionRequest(heartbeat=self._alive(action.generation))
        answer = await self._session.ask(request, self._patience_ms)
        said = answer.heartbeat
        return ev.ClassicHeartbeatAnswered(
            action.token, error_code_of(said.error_code), said.error_message, read_cause(said.cause), said.cause_detail
        )

    @property
    def _patience_ms(self) -> int:
        settings = self._settings
        by_call_ms = self._leaders.heartbeat_ms(settings.session_timeout_ms, settings.heartbeat_interval_ms)
        return min(self._timeout_ms, by_call_ms)

    async def close(self) -> None:
        if self._saying is not None:
            self._saying.cancel()
            await asyncio.gather(self._saying, return_exceptions=True)
        await self._session.close()

    def _alive(self, generation: int) -> pb.HeartbeatRequest:
        """Who it is has been said at the beginning."""
        return pb.HeartbeatRequest(generation_id=generation)

    def _opened(self, heartbeat_interval_ms: int, in_step_ms: int | None) -> None:
        self._send(ev.SessionOpened(heartbeat_interval_ms, in_step_ms))
        if not isinstance(self._machine, ConsumerMemberMachine) and self._machine.generation >= 0:
            self._listen()

    def _lost(self) -> None:
        self._send(ev.SessionLost())
        if self._leaders.shared and self._machine.generation >= 0:
            # Who broke it off may be dead, and somebody else the coordinator: that is found out at once.
            self._tell(ErrorCode.NOT_COORDINATOR, "the stream broke", self._machine.generation)

    def _listen(self) -> None:
        """A heartbeat that wants no answer: from here on the coordinator speaks first."""
        self._generation = self._machine.generation
        if self._saying is not None:
            self._saying.cancel()
        self._saying = asyncio.create_task(self._say(self._generation))

    async def _say(self, generation: int) -> None:
        try:
            await self._session.say(pb.SessionRequest(heartbeat=self._alive(generation)))
        except Unreachable as error:
            log.debug("%s", error)  # the next stream begins with the same

    def _heard(self, response: pb.SessionResponse) -> None:
        match response.WhichOneof("event"):
            case "consumer_group_heartbeat":
                self._send(ev.ConsumerHeartbeatPushed(self._consumer.answered(0, response.consumer_group_heartbeat)))
            case "rebalance":
                word = response.rebalance
                code = error_code_of(word.error_code)
                self._tell(code, word.error_message, word.generation_id, read_cause(word.cause), word.cause_detail)
            case "fenced":
                lost = response.fenced
                self._tell(error_code_of(lost.error_code), lost.error_message, lost.generation_id)
            case "drain":
                self._tell(ErrorCode.NOT_COORDINATOR, response.drain.reason, self._machine.generation)
            case other:
                log.debug("the session of %r brought %s, which this client does not know", self._settings, other)

    def _tell(
        self, code: ErrorCode, message: str, generation: int, cause: Cause = Cause.UNSPECIFIED, detail: str = ""
    ) -> None:
        if isinstance(self._machine, ConsumerMemberMachine):
            self._send(ev.ConsumerHeartbeatPushed(ev.ConsumerHeartbeatAnswered(0, code, message)))
        else:
            self._send(ev.HeartbeatPushed(code, message, generation, cause, detail))
