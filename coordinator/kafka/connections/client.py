"""The client's side of a connection: sends requests and matches the answers, which arrive in the same order.

When the connection breaks, all requests in flight fail; whether the other side carried them out is unknown.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Final, Generic, NamedTuple, TypeVar, cast

from muster.coordinator.kafka.codec.codec import Frame, MalformedFrame, encode, is_flexible
from muster.coordinator.kafka.connections.received_requests import HEAD, FrameBuffer, keep_alive

NO_TAGGED_FIELDS: Final = b"\0"
"""So ends the header of a request in a flexible version."""
CORRELATIONS: Final = 2**31
CORRELATION_BYTES: Final = 4
"""An answer's header; behind them a flexible version has its tagged fields."""

Failure = TypeVar("Failure", bound=Exception)


class RequestFailures(NamedTuple, Generic[Failure]):
    """What is raised, by what happened. Each is made of one sentence."""

    unsent: type[Failure]
    """The request did not leave; the connection stays."""
    silent: type[Failure]
    """It was not answered in time."""
    broken: type[Failure]
    """The connection ended, or what came is no answer."""


class ClientLimits(NamedTuple):
    """under_way: requests that are not answered yet. request_bytes, answer_bytes: of one, without its length."""

    under_way: int
    request_bytes: int
    answer_bytes: int


class AnswerCallback(Generic[Failure]):
    """Who hears an answer by a call, in the breath in which it is read: a future's waiter hears it a round of the loop
    later. Why there is none it hears in a round of its own, for a connection may end in the middle of anything."""

    __slots__ = ("_late", "_over", "_tell")

    def __init__(self, tell: Callable[[Frame | Failure], None]) -> None:
        self._tell = tell
        self._over = False
        self._late: asyncio.TimerHandle | None = None

    def late(self, handle: asyncio.TimerHandle) -> None:
        """What ends the connection where the answer does not come in time."""
        self._late = handle

    def done(self) -> bool:
        return self._over

    def set_result(self, frame: Frame) -> None:
        self._end()
        self._tell(frame)

    def set_exception(self, why: Failure) -> None:
        self._end()
        asyncio.get_running_loop().call_soon(self._tell, why)

    def _end(self) -> None:
        self._over = True
        if self._late is not None:
            self._late.cancel()


class InFlightRequest(NamedTuple, Generic[Failure]):
    correlation: int
    answer: "asyncio.Future[Frame] | AnswerCallback[Failure]"


class ClientConnection(asyncio.Protocol, Generic[Failure]):
    """Build it with the loop's `create_connection`. Who derives from it says whom it asks (`other_end`)."""

    def __init__(self, client_id: str, limits: ClientLimits, failures: RequestFailures[Failure]) -> None:
        name = client_id.encode()
        self._client_id = len(name).to_bytes(2, "big") + name
        self._limits = limits
        self._failures = failures
        self._frames = FrameBuffer(limits.answer_bytes)
        self._frames.shortest = CORRELATION_BYTES
        self._pending: deque[InFlightRequest[Failure]] = deque()
        self._correlation = 0
        self._heard = False
        """Whether anything was answered yet."""
        self._transport: asyncio.Transport | None = None
        self._why: Failure | None = None

    @property
    def other_end(self) -> str:
        """Who is asked, for people."""
        raise NotImplementedError

    @property
    def open(self) -> bool:
        return self._why is None

    @property
    def under_way(self) -> int:
        return len(self._pending)

    def close(self) -> None:
        self._end(self._failures.broken(f"the connection to {self.other_end} was closed at this end"))

    async def exchange(self, key: int, api: str, version: int, request: object, deadline_s: float) -> Frame:
        """The answer's bytes, header included; see `send`. Without one in `deadline_s` the connection is at its end:
        answers come in order, so that none behind it would come sooner."""
        answer = self.send(key, api, version, request)
        late = asyncio.get_running_loop().call_later(deadline_s, self._too_late, answer, api, deadline_s)
        try:
            return await answer
        finally:
            late.cancel()

    def exchange_then(
        self,
        key: int,
        api: str,
        version: int,
        request: object,
        deadline_s: float,
        tell: Callable[[Frame | Failure], None],
    ) -> None:
        """As `exchange`, by calls alone: see `AnswerCallback`. Raises as `send` does; then nobody is told."""
        told = AnswerCallback[Failure](tell)
        self._send(key, api, version, request, told)
        told.late(asyncio.get_running_loop().call_later(deadline_s, self._too_late, told, api, deadline_s))

    def send(self, key: int, api: str, version: int, request: object) -> "asyncio.Future[Frame]":
        """The answer's bytes, header included; the future fails when the connection ends. key: the number of `api`.

        Raises `unsent`, or `broken` at the end of the connection; Unencodable where this version cannot say it.
        """
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._send(key, api, version, request, answer)
        return answer

    def _send(
        self,
        key: int,
        api: str,
        version: int,
        request: object,
        answer: "asyncio.Future[Frame] | AnswerCallback[Failure]",
    ) -> None:
        if self._why is not None:
            raise self._failures.broken(f"the connection is at its end: {self._why}")
        assert self._transport is not None, "made by `create_connection`"
        if len(self._pending) >= self._limits.under_way:
            raise self._failures.unsent(
                f"{len(self._pending)} requests to {self.other_end} are under way; at most so many may be"
            )
        self._correlation = (self._correlation + 1) % CORRELATIONS
        head = HEAD.pack(key, version, self._correlation) + self._client_id
        if is_flexible(f"{api}Request", version):
            head += NO_TAGGED_FIELDS
        said = [head, *encode(f"{api}Request", version, request)]
        size = sum(map(len, said))
        if size > self._limits.request_bytes:
            raise self._failures.unsent(
                f"{api} of {size} bytes for {self.other_end}; at most {self._limits.request_bytes} are sent at once"
            )
        self._pending.append(InFlightRequest(self._correlation, answer))
        self._transport.writelines([size.to_bytes(4, "big"), *said])

    # -- asyncio.Protocol -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        keep_alive(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        if self._why is not None:
            return
        try:
            for frame in self._frames.feed(data):
                self._answered(frame)
        except MalformedFrame as error:
            self._end(self._failures.broken(f"{self.other_end} sent an invalid answer: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(self._failures.broken(f"{self.other_end} closed the connection{self._why_lost(exc)}"))

    # -- for who derives from it ------------------------------------------------------------------------------------

    def _why_lost(self, exc: Exception | None) -> str:
        """Behind the words that the connection was closed."""
        return f": {exc}" if exc is not None else ""

    def _answered(self, frame: Frame) -> None:
        """Raises MalformedFrame."""
        if not self._pending:
            raise MalformedFrame("nothing was asked")
        pending = self._pending[0]
        correlation = int.from_bytes(frame[:CORRELATION_BYTES], "big")
        if correlation != pending.correlation:
            raise MalformedFrame(f"correlation id {correlation}; expected {pending.correlation}")
        self._pending.popleft()
        self._heard = True
        if not pending.answer.done():  # Who asked may want it no longer.
            pending.answer.set_result(frame)

    def _too_late(self, answer: "asyncio.Future[Frame] | AnswerCallback[Failure]", api: str, deadline_s: float) -> None:
        """A process that stood still reads an answer and finds its time over in one turn of the loop: it has come."""
        if answer.done():
            return
        self._end(self._failures.silent(f"{self.other_end} did not answer {api} within {deadline_s:g} s"))

    def _no_answer(self, api: str, error: MalformedFrame) -> Failure:
        """What came for an answer is none: the connection is at its end."""
        why = self._failures.broken(f"{self.other_end} sent an invalid answer to {api}: {error}")
        self._end(why)
        return why

    def _end(self, why: Failure) -> None:
        """All that is under way fails, and nothing more begins."""
        if self._why is not None:
            return
        self._why = why
        if self._transport is not None:
            self._transport.abort()
        pending, self._pending = self._pending, deque()
        for each in pending:
            if not each.answer.done():
                each.answer.set_exception(type(why)(str(why)))
                if isinstance(each.answer, asyncio.Future):
                    each.answer.exception()  # Where nobody waits any more, nobody misses it.


@cache
def has_tagged_fields(api: str, version: int) -> bool:
    """Whether an answer's header has them: that of ApiVersions never does, so that everybody can read it."""
    return api != "ApiVersions" and is_flexible(f"{api}Response", version)


def body_position(api: str, version: int, frame: Frame) -> int:
    """Where the body of an answer begins. Raises MalformedFrame."""
    if not has_tagged_fields(api, version):
        return CORRELATION_BYTES
    if frame[CORRELATION_BYTES : CORRELATION_BYTES + 1] != b"\0":
        raise MalformedFrame("its header has tagged fields, or is cut; expected none")
    return CORRELATION_BYTES + 1
