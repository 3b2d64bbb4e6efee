"""Performs what a member of a central group asks for, by its stream; callbacks are queued for its owner."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol
from uuid import uuid4

from muster.client.calls.group_calls import LEAVE_PATIENCE_MS, GroupCalls
from muster.client.calls.transport import Transport, now_ms
from muster.client.errors import Refused, TransportRefused, Unreachable
from muster.client.members import actions as act
from muster.client.members import central_events as ce
from muster.client.members import events as ev
from muster.client.members.central_machine import CentralMemberMachine
from muster.client.members.report import RequestedSubscription
from muster.client.members.states import MembershipState
from muster.client.members.types import MemberSettings
from muster.client.membership.performing import DriverBase
from muster.client.membership.seam import Callback, Wake
from muster.client.membership.store import CentralStore
from muster.client.membership.stream import CentralStream, Offsets
from muster.client.membership.telling import build_callback
from muster.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from muster.coordinator.core.model.orders import StartFetcher
from muster.coordinator.core.model.types import Cause

log = logging.getLogger("muster.client")

NOTHING: Offsets = {}


class ReportedPositions(Protocol):
    """What the coordinator is told about how far the application has come."""

    def to_commit(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        """Done and not committed yet, of these partitions or of all."""

    def were_committed(self, offsets: Offsets) -> None:
        """The coordinator has these."""


class CentralDriver(DriverBase[ce.CentralEvent]):
    """One member on the running loop. `positions` answers None when the application commits by itself."""

    def __init__(
        self,
        transport: Transport,
        store: CentralStore,
        settings: MemberSettings,
        wish: RequestedSubscription,
        wake: Wake,
        positions: Callable[[], ReportedPositions | None],
        rack: str = "",
    ) -> None:
        super().__init__(settings.group_id, wake)
        self.settings = settings
        self.machine = CentralMemberMachine(settings, str(uuid4()), wish)
        self._transport = transport
        self._store = store
        self._calls: GroupCalls = store.calls
        self._positions = positions
        self._rack = rack
        self._stream: CentralStream | None = None
        self._letting_go: dict[TopicPartition, OffsetAndMetadata] = {}
        self._sent: dict[int, Offsets] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._home = ""
        self._said = ""

    @property
    def identity(self) -> GroupMetadata:
        return GroupMetadata(self.settings.group_id, self.machine.generation, self.machine.member_id, None)

    @property
    def watches_topics(self) -> bool:
        """The coordinator does."""
        return False

    def send(self, event: ce.CentralEvent) -> None:
        """Step the machine and start what it asks for."""
        for action in self.machine.step(event, now_ms()):
            self._perform(action)

    def next_callback(self) -> Callback | None:
        """The next one to tell. What was to be revoked is lost if the group gave the member up in the meantime."""
        if not self.callbacks:
            return None
        callback = self.callbacks.popleft()
        if callback.kind != "revoked":
            return callback
        if self.machine.generation < 0 and self.machine.state is not MembershipState.CLOSED:
            token, detail = callback.token or 0, callback.event.detail
            return self._callback(act.Lost(token, callback.partitions, Cause.MEMBER_FENCED, detail, 0, now_ms()))
        if (positions := self._positions()) is not None:
            # Once the callback has run the positions are gone; they travel with the next answer.
            self._store.committed_by_hand.clear()
            self._letting_go = positions.to_commit(callback.partitions)
        return callback

    async def left(self) -> None:
        """A callback that was interrupted (Ctrl-C) does not keep the member from leaving."""
        while (token := self.machine.awaited_release) is not None:
            self.send(ev.Revoked(token))
        if self._ending:
            await asyncio.wait(list(self._ending), timeout=LEAVE_PATIENCE_MS / 1000)
        await self.abort()
        self._transport.read_from(None)

    async def abort(self) -> None:
        """Break the stream off; the coordinator waits for the member until its lease is over."""
        await self._stop(*self._ending)
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.close()

    # Actions

    def _perform(self, action: ce.CentralAction) -> None:
        match action:
            case act.FindCoordinator():
                self._ask(action.token, self._find(action.token))
            case ce.RegisterMember():
                self._ask(action.token, self._register(action))
            case ce.AnswerPing() | ce.AnswerStopped() | ce.AnswerStarted():
                self._answer(action)
            case ce.SendDeregister() | ce.CloseStream():
                self._end(action)
            case ce.LogNotice():
                log.error("%s", action.detail)
            case act.Abandon():
                self._abandon(action.token)
            case act.WakeMemberAt():
                self._wake_at(
                    action.at_ms, spread=self.machine.state is MembershipState.JOINING and not self.machine.owned
                )
            case act.Fail():
                self._fail(action)
                self._wake_owner()
            case act.Closed():
                self._wake_owner()
            case _:
                self.callbacks.append(self._callback(action))
                self._wake_owner()

    def _callback(self, action: act.Revoke | act.Lost | act.Assign) -> Callback:
        machine = self.machine
        return build_callback(action, machine.generation, "eager", machine.owned, self.settings.rebalance_timeout_ms)

    def _answer(self, action: ce.AnswerPing | ce.AnswerStopped | ce.AnswerStarted) -> None:
        if self._stream is None:
            return
        match action:
            case ce.AnswerPing(number):
                positions = self._positions()
                self._stream.answer_ping(number, self._sending(number, positions.to_commit() if positions else NOTHING))
            case ce.AnswerStopped(number):
                self._stream.answer_stopped(number, self._last_offsets())
            case ce.AnswerStarted(number):
                self._stream.answer_started(number)

    def _sending(self, number: int, offsets: Offsets) -> Offsets:
        if offsets:
            self._sent = {number: offsets}
        return offsets

    def _last_offsets(self) -> Offsets:
        """What the application had done when it let go, but for what it has committed itself since."""
        own = self._store.committed_by_hand
        last = {tp: position for tp, position in self._letting_go.items() if tp not in own}
        self._letting_go = {}
        own.clear()
        return last

    def _end(self, action: ce.SendDeregister | ce.CloseStream) -> None:
        stream, self._stream = self._stream, None
        if stream is None:
            return
        ending = stream.close() if isinstance(action, ce.CloseStream) else self._deregister(stream, action.reason)
        task = asyncio.create_task(ending)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _deregister(self, stream: CentralStream, reason: str) -> None:
        await stream.deregister(self._last_offsets(), reason)

    # What is asked, and what is heard

    async def _find(self, token: int) -> ce.CentralEvent:
        self._calls.forget_coordinator()
        await self._calls.coordinator()
        return ev.CoordinatorFound(token)

    async def _register(self, action: ce.RegisterMember) -> ce.CentralEvent:
        positions = self._positions()
        offsets = positions.to_commit() if positions is not None and action.owned else NOTHING
        if action.again and self._stream is not None:
            return await self._stream.register_again(action, NOTHING)
        stream = CentralStream(self._transport, self._calls, self.settings, self._heard, self._rack)
        try:
            answer = await stream.register(action, offsets)
        except BaseException:
            await stream.close()
            raise
        if answer.code:
            await stream.close()
        else:
            self._stream, self._said = stream, ""
            self._read_where_it_is_planned(stream.address)
        return answer

    def _read_where_it_is_planned(self, address: str) -> None:
        """A node on its own is a log of its own: what it plans and keeps positions of is what lies here."""
        if self._transport.leaders.in_cluster:
            return
        self._transport.read_from(address)
        if address != self._home and address not in self._transport.config.servers:
            log.warning(
                "group %r is coordinated by the node at %s, which bootstrap.servers does not name; records are "
                "read there, too, for every node is a log of its own",
                self.settings.group_id,
                address,
            )
        self._home = address

    def _heard(self, stream: CentralStream, event: ce.OrderReceived | ce.StreamEnded) -> None:
        if stream is not self._stream:
            return
        if isinstance(event, ce.StreamEnded):
            self._stream = None
            self._end_quietly(stream)
        else:
            self._note(event)
        self.send(event)

    def _end_quietly(self, stream: CentralStream) -> None:
        task = asyncio.create_task(stream.close())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _note(self, event: ce.OrderReceived) -> None:
        """Offsets that the coordinator has heard are committed; a start order says where each partition begins."""
        positions = self._positions()
        for number, offsets in list(self._sent.items()):
            if number <= event.answered:
                del self._sent[number]
                if positions is not None:
                    positions.were_committed(offsets)
        if isinstance(event.order, StartFetcher):
            self._store.start_at(event.order)

    def _say_once(self, why: str) -> None:
        """Until the member is registered again: it goes on trying for as long as it takes."""
        if why != self._said:
            self._said = why
            log.warning("%s; trying again", why)

    def _failed(self, token: int, error: Exception) -> ev.RequestFailed | None:
        match error:
            case Unreachable():
                self._transport.announce(error)
                return ev.RequestFailed(token, True, str(error))
            case Refused() | TransportRefused():
                if retriable := isinstance(error, Refused) and error.retriable:
                    self._say_once(str(error))
                return ev.RequestFailed(token, retriable, str(error))
            case _:
                return None

    def _answered(self, answer: ce.CentralEvent) -> None:
        if isinstance(answer, ce.MemberRegistered) and self._stream is not None:
            self._stream.listen()
