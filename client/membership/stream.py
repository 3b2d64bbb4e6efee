"""The member's end of the stream of a central group: it registers, takes orders, and answers them."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeAlias

import grpc

from muster.client.calls.group_calls import GroupCalls
from muster.client.calls.methods import SESSION
from muster.client.calls.transport import Transport
from muster.client.errors import TransportRefused, Unreachable
from muster.client.members import central_events as ce
from muster.client.members.subscription import group_by_topic
from muster.client.members.types import MemberSettings
from muster.client.membership.classic_calls import read_cause
from muster.client.types import OffsetAndMetadata, TopicPartition
from muster.coordinator.core.model.orders import (
    NOTHING_COMMITTED,
    Order,
    Ping,
    RebalanceFailed,
    StartFetcher,
    StopFetcher,
)
from muster.coordinator.errors import ErrorCode, error_code_of
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb

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
        self._tasks: list[asyncio.Task[None]] = []
        self._untold: deque[ce.OrderReceived | ce.StreamEnded] = deque()
        self._listening = False
        self._over = False

    async def register(self, action: ce.RegisterMember, offsets: Offsets) -> ce.MemberRegistered:
        """Open the stream and say who speaks. Raises Unreachable or TransportRefused."""
        self.address = address = await self._calls.coordinator()
        self._call = self._transport.converse(SESSION, address)
        self._registered = asyncio.get_running_loop().create_future()
        self._tasks = [asyncio.create_task(self._read(self._call, address)), asyncio.create_task(self._write())]
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
                self._take(response)
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

    def _take(self, response: pb.SessionResponse) -> None:
        match response.WhichOneof("event"):
            case "registered":
                if self._registered is not None and not self._registered.done():
                    self._registered.set_result(response.registered)
            case "order":
                if not self._over:
                    order = response.order
                    self._tell(ce.OrderReceived(read_order(order), order.answered, order.coordinator_epoch))
            case "fenced":
                self._ended(error_code_of(response.fenced.error_code), response.fenced.error_message)
            case "drain":
                self._ended(ErrorCode.NONE, response.drain.reason)
            case other:
                log.debug("the stream of group %r brought %s: passed over", self._settings.group_id, other)

    def _ended(self, code: ErrorCode, message: str) -> None:
        if not self._over:
            self._over = True
            self._tell(ce.StreamEnded(code, message))

    def _tell(self, event: ce.OrderReceived | ce.StreamEnded) -> None:
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
