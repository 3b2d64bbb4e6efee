"""Membership in a central group (`group.protocol=central`): one stream, on which the coordinator stops and starts the
consumer.

The member registers on the stream, takes orders and answers them with the consumed offsets. Start orders contain the
positions; the coordinator commits what the member reports.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias
from uuid import uuid4

import grpc

from muster.client.calls.group_calls import LEAVE_PATIENCE_MS, GroupCalls
from muster.client.calls.methods import SESSION
from muster.client.calls.transport import Transport, now_ms
from muster.client.config import ConsumerConfig
from muster.client.errors import Refused, TransportRefused, Unreachable
from muster.client.members import actions as act
from muster.client.members import central_events as ce
from muster.client.members import events as ev
from muster.client.members.central_member import CentralMemberMachine
from muster.client.members.consumer_member import RequestedSubscription
from muster.client.members.member_types import MemberSettings, MembershipState
from muster.client.members.subscription import group_by_topic
from muster.client.membership.member_calls import read_cause
from muster.client.membership.member_driver import DriverBase, build_member_settings
from muster.client.membership.ports import Callback, Interest, Wake, build_callback
from muster.client.twins import BackgroundTasks
from muster.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from muster.coordinator.core.model.effects import (
    NOTHING_COMMITTED,
    Order,
    Ping,
    RebalanceFailed,
    StartFetcher,
    StopFetcher,
)
from muster.coordinator.core.model.types import Cause
from muster.coordinator.errors import ErrorCode, error_code_of
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb

# Positions
# ---------


class CentralStore:
    """An `OffsetStore` over the group's coordinator that need not ask for what a start order has just said."""

    def __init__(self, calls: GroupCalls) -> None:
        self.calls = calls
        self.committed_by_hand: set[TopicPartition] = set()
        """Committed by a call of this process since they were given: what it reports otherwise is older."""
        self._started: dict[TopicPartition, OffsetAndMetadata | None] = {}

    def start_at(self, order: StartFetcher) -> None:
        """Where to begin, good for the first question: nobody else commits while this member owns the partitions."""
        self._started = {
            TopicPartition(topic, partition): None if offset == NOTHING_COMMITTED else OffsetAndMetadata(offset)
            for topic, partition, offset in order.partitions
        }

    def forget_start(self) -> None:
        self._started.clear()

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        identity: GroupMetadata | None,
        timeout_ms: int | None = None,
    ) -> None:
        for tp in offsets:
            self._started.pop(tp, None)
        await self.calls.commit(offsets, identity, timeout_ms)
        self.committed_by_hand |= set(offsets)

    async def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        found = {tp: self._started.pop(tp) for tp in partitions if tp in self._started}
        rest = [tp for tp in partitions if tp not in found]
        if rest:
            found |= await self.calls.committed(rest)
        return found


# The stream
# ----------

log = logging.getLogger("muster.client")

Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]
Call: TypeAlias = "grpc.aio.StreamStreamCall[pb.SessionRequest, pb.SessionResponse]"
UNSENT_LIMIT = 64
"""Messages that may wait to be written; the coordinator has at most a handful of questions open."""
LAST_WORDS_S = 1.0
UNTOLD_LIMIT = 64
"""Orders that may come before whoever registered has heard that it is; the coordinator keeps the latest of a kind."""


class CentralStream:
    """One stream, from the registration to its end. `heard` gets orders, and the end, once: all from `listen` on.

    The coordinator's first order may be read before whoever waits for the registration runs again: it is kept so long.
    """

    def __init__(
        self,
        transport: Transport,
        calls: GroupCalls,
        settings: MemberSettings,
        heard: Callable[["CentralStream", ce.OrderReceived | ce.StreamEnded], None],
        rack: str = "",
    ) -> None:
        self._transport = transport
        self._calls = calls
        self._settings = settings
        self._heard = heard
        self._rack = rack
        self.address = ""
        """HOST:PORT of the other side, once it is known."""
        self._call: Call | None = None
        self._registered: asyncio.Future[pb.ConsumerRegistered] | None = None
        self._unsent: asyncio.Queue[pb.SessionRequest] = asyncio.Queue(UNSENT_LIMIT)
        self._background = BackgroundTasks(self._broke)
        self._tasks: list[asyncio.Task[None]] = []
        self._untold: deque[ce.OrderReceived | ce.StreamEnded] = deque()
        self._listening = False
        self._over = False

    async def register(self, action: ce.RegisterMember, offsets: Offsets) -> ce.MemberRegistered:
        """Open the stream and say who speaks. Raises Unreachable or TransportRefused."""
        self.address = address = await self._calls.coordinator()
        self._call = self._transport.converse(SESSION, address)
        self._registered = asyncio.get_running_loop().create_future()
        works = self._read(self._call, address), self._write()
        self._tasks = [self._background.start(work) for work in works]
        return await self.register_again(action, offsets)

    async def register_again(self, action: ce.RegisterMember, offsets: Offsets) -> ce.MemberRegistered:
        """The same on the open stream: the subscription has changed."""
        if self._registered is None or self._registered.done():
            self._registered = asyncio.get_running_loop().create_future()
        waiting = self._registered
        self._say(pb.SessionRequest(register_consumer=self._registration(action, offsets)))
        patience_ms = min(self._transport.config.request_timeout_ms, self._settings.session_timeout_ms)
        try:
            answer = await asyncio.wait_for(asyncio.shield(waiting), patience_ms / 1000)
        except TimeoutError:
            raise Unreachable(self._transport.bootstrap, patience_ms, self._doing) from None
        return ce.MemberRegistered(
            action.token, error_code_of(answer.error_code), answer.error_message, answer.coordinator_epoch
        )

    def listen(self) -> None:
        """The registration has been taken in: tell what has come since, and everything from now on."""
        self._listening = True
        while self._untold:
            self._heard(self, self._untold.popleft())

    def answer_ping(self, number: int, offsets: Offsets) -> None:
        self._say(pb.SessionRequest(ping_answered=pb.PingAnswered(number=number, offsets=encode_consumed(offsets))))

    def answer_stopped(self, number: int, offsets: Offsets) -> None:
        self._say(pb.SessionRequest(fetcher_stopped=pb.FetcherStopped(number=number, offsets=encode_consumed(offsets))))

    def answer_started(self, number: int) -> None:
        self._say(pb.SessionRequest(fetcher_started=pb.FetcherStarted(number=number)))

    async def deregister(self, offsets: Offsets, reason: str) -> None:
        """Say goodbye, and wait a moment until the other side has ended the stream."""
        self._over = True
        self._say(pb.SessionRequest(deregister=pb.Deregister(offsets=encode_consumed(offsets), reason=reason)))
        if self._tasks:
            await asyncio.wait(self._tasks[:1], timeout=LAST_WORDS_S)
        await self.close()

    async def close(self) -> None:
        """Break it off."""
        self._over = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._call is not None and not self._call.done():
            self._call.cancel()

    @property
    def _doing(self) -> str:
        return f"registering with the coordinator of group {self._settings.group_id!r}"

    def _say(self, request: pb.SessionRequest) -> None:
        try:
            self._unsent.put_nowait(request)
        except asyncio.QueueFull:
            # Nothing goes out any more, so nothing that matters is lost: the stream is as good as broken.
            self._ended(ErrorCode.NONE, f"{UNSENT_LIMIT} messages could not be sent")

    async def _write(self) -> None:
        assert self._call is not None
        try:
            while True:
                await self._call.write(await self._unsent.get())
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # whoever reads says why

    async def _read(self, call: Call, address: str) -> None:
        try:
            async for response in call:
                self._handle_response(response)
        except grpc.aio.AioRpcError as error:
            self._broke(self._transport.translated(error, address, self._doing, 0))
        except asyncio.InvalidStateError:
            self._broke(Unreachable(address, 0, self._doing))
        else:
            self._broke(Unreachable(address, 0, self._doing))

    def _broke(self, error: Exception) -> None:
        waiting = self._registered
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)
            if not isinstance(error, TransportRefused):
                waiting.exception()  # nobody need wait for it
        self._ended(ErrorCode.NONE, str(error))

    def _handle_response(self, response: pb.SessionResponse) -> None:
        match response.WhichOneof("event"):
            case "registered":
                if self._registered is not None and not self._registered.done():
                    self._registered.set_result(response.registered)
            case "order":
                if not self._over:
                    order = response.order
                    self._deliver_event(ce.OrderReceived(read_order(order), order.answered, order.coordinator_epoch))
            case "fenced":
                self._ended(error_code_of(response.fenced.error_code), response.fenced.error_message)
            case "drain":
                self._ended(ErrorCode.NONE, response.drain.reason)
            case other:
                log.debug("the stream of group %r brought %s: passed over", self._settings.group_id, other)

    def _ended(self, code: ErrorCode, message: str) -> None:
        if not self._over:
            self._over = True
            self._deliver_event(ce.StreamEnded(code, message))

    def _deliver_event(self, event: ce.OrderReceived | ce.StreamEnded) -> None:
        if self._listening:
            self._heard(self, event)
            return
        self._untold.append(event)
        if len(self._untold) > UNTOLD_LIMIT:
            self._ended(ErrorCode.NONE, f"{UNTOLD_LIMIT} orders came before the registration was taken in")

    def _registration(self, action: ce.RegisterMember, offsets: Offsets) -> pb.RegisterConsumer:
        settings = self._settings
        request = pb.RegisterConsumer(
            group_id=settings.group_id,
            member_id=action.member_id,
            client_id=settings.client_id,
            session_timeout_ms=settings.session_timeout_ms,
            topics=action.topics,
            regex=action.regex,
            assignor=action.assignor,
            offsets=encode_consumed(offsets),
            coordinator_epoch=action.coordinator_epoch,
            rack_id=self._rack,
        )
        if action.generation >= 0 and not action.again:
            request.generation_id = action.generation
            for topic, partitions in group_by_topic(list(action.owned)).items():
                request.owned.add(topic=topic, partitions=partitions)
        return request


def encode_consumed(offsets: Offsets) -> list[pb.ConsumedOffset]:
    return [
        pb.ConsumedOffset(topic=tp.topic, partition=tp.partition, offset=position.offset)
        for tp, position in sorted(offsets.items())
    ]


def read_order(order: pb.CentralOrder) -> Order:
    match order.WhichOneof("order"):
        case "stop_fetcher":
            stop = order.stop_fetcher
            return StopFetcher(order.number, read_cause(stop.cause), stop.cause_detail, stop.rebalance_number)
        case "start_fetcher":
            start = order.start_fetcher
            partitions = tuple(
                (row.topic, row.partition, row.offset if row.HasField("offset") else NOTHING_COMMITTED)
                for row in start.partitions
            )
            cause = read_cause(start.cause)
            return StartFetcher(
                order.number, start.generation_id, partitions, cause, start.cause_detail, start.rebalance_number
            )
        case "rebalance_failed":
            return RebalanceFailed(order.number, order.rebalance_failed.detail)
        case _:
            # A newer coordinator's order that this client does not know: being alive is all it can say.
            return Ping(order.number)


# The driver
# ----------

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
        self._ending = BackgroundTasks()
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
                self._start_call(action.token, self._find(action.token))
            case ce.RegisterMember():
                self._start_call(action.token, self._register(action))
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
        self._ending.start(ending)

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
        self._ending.start(stream.close())

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


# Joining
# -------


class CentralJoining:
    """`positions`: what the consumer has done; its coordinator commits that."""

    resolves_patterns = True
    reports_positions = True

    def __init__(
        self, config: ConsumerConfig, transport: Transport, positions: Callable[[], ReportedPositions]
    ) -> None:
        assert config.group_id is not None, "the properties were checked"
        self.store = CentralStore(GroupCalls(transport, config.group_id, "central"))
        self._config = config
        self._transport = transport
        self._positions = positions

    async def open(self) -> None:
        """Nothing to do: bootstrap.servers says where to begin."""

    def membership(self, interest: Interest, wake: Wake) -> CentralDriver:
        wish = RequestedSubscription(interest.topics, interest.regex, choose_assignor(self._config))
        settings = build_member_settings(self._config)
        rack = self._config.client_rack
        return CentralDriver(self._transport, self.store, settings, wish, wake, self._reported, rack)

    async def close(self) -> None:
        """Nothing of its own is open."""

    def _reported(self) -> ReportedPositions | None:
        return self._positions() if self._config.auto_commits else None


def choose_assignor(config: ConsumerConfig) -> str:
    """How the group assigns: group.remote.assignor, else the first of partition.assignment.strategy."""
    return config.group_remote_assignor or config.partition_assignment_strategy.split(",")[0].strip()
