"""The member's end of a Session stream: heartbeats go up, and what the coordinator says first comes down.

The stream is a convenience: whenever it is not open the member heartbeats by calls, and a node that does not offer it
is polled for good.
"""

import asyncio
import logging
from collections.abc import Callable

import grpc

from muster.client.calls.group_calls import GroupCalls
from muster.client.calls.transport import Transport
from muster.client.errors import ClientError, TransportRefused, Unreachable
from muster.client.members.backoff import Backoff
from muster.client.members.types import MemberSettings
from muster.client.membership.streams import SessionCall, StreamPlace, shared_streams
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb

log = logging.getLogger("muster.client")

MAX_BACKOFF_MS = 10_000
"""Between attempts to open the stream: meanwhile the member polls, so there is no hurry."""
LAST_WORDS_S = 1.0
"""How long a stream that is closed in good order may take to end."""


class NotShared(Exception):
    """The node knows streams of one member only, or takes what is on one from none of its members."""


class SessionStream:
    """Keeps one stream open for the member it follows.

    `opened` is called when heartbeats can go up, with the milliseconds between two of them (0: nothing is said of it),
    and the moment that others on the stream keep step with (None: the stream is the member's own);
    `lost` when they have to go by calls again; `heard` gets what was pushed. Lives on one loop.
    """

    def __init__(
        self,
        transport: Transport,
        calls: GroupCalls,
        settings: MemberSettings,
        *,
        opened: Callable[[int, int | None], None],
        lost: Callable[[], None],
        heard: Callable[[pb.SessionResponse], None],
    ) -> None:
        self._transport = transport
        self._calls = calls
        self._settings = settings
        self._opened = opened
        self._lost = lost
        self._heard = heard
        self._member_id = ""
        self._task: asyncio.Task[None] | None = None
        self._call: SessionCall | None = None
        self._writing = asyncio.Lock()
        self._waiting: dict[int, asyncio.Future[pb.SessionResponse]] = {}
        self._last_number = 0
        self._acknowledged = 0
        self._offered = True
        self._backoff = Backoff(settings.retry_backoff_ms, MAX_BACKOFF_MS)

    @property
    def is_open(self) -> bool:
        return self._call is not None

    def follow(self, member_id: str) -> None:
        """Keep a stream open for this member; empty closes the one there is, in good order."""
        if member_id == self._member_id:
            return
        self._member_id = member_id
        before, self._task = self._task, None
        if before is not None or (member_id and self._offered):
            self._task = asyncio.create_task(self._change(before, member_id))

    async def ask(self, request: pb.SessionRequest, timeout_ms: int) -> pb.SessionResponse:
        """Send a heartbeat up the open stream and return its answer. Raises Unreachable when the stream breaks."""
        self._last_number += 1
        number = self._last_number
        future: asyncio.Future[pb.SessionResponse] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        request.request_number = number
        try:
            await self.say(request)
            return await asyncio.wait_for(future, timeout_ms / 1000)
        except TimeoutError:
            self._break_off()
            raise self._broken(timeout_ms) from None
        finally:
            self._waiting.pop(number, None)

    async def say(self, request: pb.SessionRequest) -> None:
        """Send without waiting for an answer. Raises Unreachable when there is no stream."""
        request.acknowledged = self._acknowledged
        async with self._writing:
            if self._call is None:
                raise self._broken(0)
            try:
                await self._call.write(request)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                raise self._broken(0) from None

    async def close(self) -> None:
        """Close the stream in good order."""
        self.follow("")
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _change(self, before: asyncio.Task[None] | None, member_id: str) -> None:
        if before is not None:
            await self._finish(before)
        if member_id and self._offered:
            await self._keep_open(member_id)

    async def _finish(self, task: asyncio.Task[None]) -> None:
        """To break the stream off would look like a crash, so the other side is asked to end it."""
        call = self._call
        if call is not None and not call.done():
            try:
                await call.done_writing()
                await asyncio.wait([task], timeout=LAST_WORDS_S)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                log.debug("the session of %r was broken already", self._settings.group_id)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _keep_open(self, member_id: str) -> None:
        while self._member_id == member_id:
            try:
                await self._converse(member_id)
            except NotShared:
                continue
            except TransportRefused as error:
                # An older node, or a limit of rights: the member polls and is none the worse for it.
                log.info("%s; heartbeats go by calls", error)
                self._offered = False
                return
            except ClientError as error:
                log.info("%s; heartbeats go by calls meanwhile", error)
            if self._member_id != member_id:
                return
            await asyncio.sleep(self._backoff.next_ms() / 1000)

    async def _converse(self, member_id: str) -> None:
        """One stream, from hello to its end."""
        address = await self._calls.coordinator()
        call = shared_streams().line(self._transport, address, self._calls.members_per_stream)
        hello = pb.SessionHello(
            group_id=self._settings.group_id,
            member_id=member_id,
            group_instance_id=self._settings.group_instance_id,
        )
        try:
            await call.write(pb.SessionRequest(hello=hello))
            async for response in call:
                self._take(response, call)
        except grpc.aio.AioRpcError as error:
            if isinstance(call, StreamPlace) and call.refused:
                raise NotShared from None
            raise self._transport.translated(error, address, f"session of {self._settings.group_id!r}", 0) from None
        except asyncio.InvalidStateError:
            raise Unreachable(address, 0, f"session of {self._settings.group_id!r}") from None
        except asyncio.CancelledError:
            # So gRPC tells of a call that was broken off as well; this task ends only if it is cancelled itself.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise Unreachable(address, 0, f"session of {self._settings.group_id!r}") from None
        finally:
            if self._call is call:
                self._over()
            if not call.done():
                call.cancel()

    def _break_off(self) -> None:
        """An answer is missing: whatever carries the stream may be dead, and nobody else is to come on it."""
        if isinstance(self._call, StreamPlace):
            self._call.distrust()
        if self._call is not None:
            self._call.cancel()

    def _take(self, response: pb.SessionResponse, call: SessionCall) -> None:
        self._acknowledged = response.sequence_number
        if response.HasField("welcome"):
            self._backoff.reset()
            self._call = call
            self._opened(
                response.welcome.heartbeat_interval_ms, call.in_step_ms if isinstance(call, StreamPlace) else None
            )
        elif not response.request_number:
            self._heard(response)
        elif (future := self._waiting.get(response.request_number)) is not None and not future.done():
            future.set_result(response)

    def _over(self) -> None:
        """Whoever waits for an answer asks again by a call."""
        self._call = None
        self._acknowledged = 0
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(self._broken(0))
        self._lost()

    def _broken(self, waited_ms: int) -> Unreachable:
        return Unreachable(self._transport.bootstrap, waited_ms, f"session of group {self._settings.group_id!r}")
