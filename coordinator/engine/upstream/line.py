"""One connection to a broker of the upstream: requests out, answers back in their order.

When it breaks, all that is under way fails at once with `Unreached`: whether that was done there is not known.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self, cast

from muster.coordinator.config import Address
from muster.coordinator.engine.upstream.errors import Unreached, UpstreamError, named
from muster.coordinator.engine.upstream.reach import Reach
from muster.coordinator.engine.upstream.speaking import SPOKEN
from muster.coordinator.kafka.codec.codec import MalformedFrame, Unencodable, decode, encode, is_flexible, struct
from muster.coordinator.kafka.codec.emitting import Frame
from muster.coordinator.kafka.connections.frames import Frames
from muster.coordinator.kafka.connections.keepalive import keep_alive

MOST_UNDER_WAY: Final = 64
MOST_REQUEST_BYTES: Final = 64 << 20
MOST_ANSWER_BYTES: Final = 64 << 20
"""Of one answer: a fetch asks for a few MB, but a single batch comes whole, however large."""
MOST_GREETING_BYTES: Final = 1 << 20
"""Of an answer before the connection is logged in."""
CORRELATIONS: Final = 2**31


class Pending(NamedTuple):
    correlation: int
    answer: "asyncio.Future[Frame]"


class Line(asyncio.Protocol):
    """Build it with `greeting.connected`. What it raises is an UpstreamError, whatever happened."""

    def __init__(self, address: Address, client_id: str) -> None:
        self.address = address
        self.versions: Mapping[str, int] = {}
        """Those that were agreed on."""
        self.stale_s: float | None = None
        """From when on, by the loop's clock, another one is to be made: the login ends soon (KIP-368)."""
        self._client_id = client_id
        self._frames = Frames(MOST_GREETING_BYTES)
        self._frames.shortest = 4
        self._pending: deque[Pending] = deque()
        self._correlation = 0
        self._transport: asyncio.Transport | None = None
        self._why: UpstreamError | None = None
        self._closes = False

    @classmethod
    async def opened(cls, address: Address, reach: Reach) -> Self:
        """A connection on which nothing was said yet. Raises UpstreamError."""
        tls = None if reach.certificates is None else reach.certificates.context()
        try:
            _, line = await asyncio.get_running_loop().create_connection(
                lambda: cls(address, reach.client_id),
                *address,
                ssl=tls,
                server_hostname=None if tls is None else address.host,
            )
        except OSError as error:  # ssl.SSLError is one
            raise Unreached(f"{named(address)} cannot be reached: {error.strerror or error}") from None
        return line

    @property
    def open(self) -> bool:
        return self._why is None and not self._closes

    @property
    def stale(self) -> bool:
        return self.stale_s is not None and asyncio.get_running_loop().time() >= self.stale_s

    @property
    def under_way(self) -> int:
        return len(self._pending)

    def close(self) -> None:
        self._end(Unreached(f"the connection to {named(self.address)} was closed at this end"))

    def close_when_idle(self) -> None:
        """Nothing more begins; what is under way is answered."""
        self._closes = True
        if not self._pending:
            self.close()

    def let_in(self) -> None:
        """The other end has taken us in: its answers may be large from now on."""
        self._frames.limit = MOST_ANSWER_BYTES

    async def ask(self, api: str, request: object, deadline_s: float) -> Any:
        """The answer, in the version agreed on. Without one in `deadline_s` the connection is at its end: answers come
        in order, so none behind it would come sooner."""
        if api not in self.versions:
            first, last = SPOKEN[api].first, SPOKEN[api].last
            raise UpstreamError(f"{named(self.address)} does not speak {api} {first} to {last}")
        version = self.versions[api]
        return self.read(api, version, await self.exchange(api, version, request, deadline_s))

    async def exchange(self, api: str, version: int, request: object, deadline_s: float) -> Frame:
        """The answer's bytes, header included."""
        answer = self._send(api, version, request)
        late = asyncio.get_running_loop().call_later(deadline_s, self._too_late, api, deadline_s)
        try:
            return await answer
        finally:
            late.cancel()

    def read(self, api: str, version: int, frame: Frame) -> Any:
        begin = 4
        try:
            if api != "ApiVersions" and is_flexible(f"{api}Response", version):
                if frame[4]:
                    raise MalformedFrame("its header has tagged fields; expected none")
                begin = 5
            # What follows it is passed over, as Kafka's own clients do: there are brokers that send a byte too many.
            return decode(f"{api}Response", version, frame, begin)[0]
        except (MalformedFrame, IndexError) as error:
            self._end(why := Unreached(f"{named(self.address)} sent what is no answer to {api}: {error}"))
            raise why from error

    def _send(self, api: str, version: int, request: object) -> "asyncio.Future[Frame]":
        where = named(self.address)
        if self._why is not None:
            raise Unreached(str(self._why))
        assert self._transport is not None, "made by `opened`"
        if len(self._pending) >= MOST_UNDER_WAY:
            raise UpstreamError(f"{len(self._pending)} requests to {where} are under way; at most so many may be")
        self._correlation = (self._correlation + 1) % CORRELATIONS
        header = struct("RequestHeader")(
            request_api_key=SPOKEN[api].key,
            request_api_version=version,
            correlation_id=self._correlation,
            client_id=self._client_id,
        )
        try:
            body = encode(f"{api}Request", version, request)
        except Unencodable as error:
            raise UpstreamError(f"{api} {version} cannot say this: {error}") from error
        head = encode("RequestHeader", 1 + is_flexible(f"{api}Request", version), header)
        size = sum(map(len, head)) + sum(map(len, body))
        if size > MOST_REQUEST_BYTES:
            raise UpstreamError(f"{api} of {size} bytes for {where}; at most {MOST_REQUEST_BYTES} are sent at once")
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._pending.append(Pending(self._correlation, answer))
        self._transport.writelines([size.to_bytes(4, "big"), *head, *body])
        return answer

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
            self._end(Unreached(f"{named(self.address)} sent what is no answer: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        why = f": {exc}" if exc is not None else ""
        self._end(Unreached(f"{named(self.address)} closed the connection{why}"))

    def _answered(self, frame: Frame) -> None:
        """Raises MalformedFrame."""
        if not self._pending:
            raise MalformedFrame("nothing was asked")
        pending = self._pending[0]
        correlation = int.from_bytes(frame[:4], "big")
        if correlation != pending.correlation:
            raise MalformedFrame(f"correlation id {correlation}; expected {pending.correlation}")
        self._pending.popleft()
        if not pending.answer.done():  # Who asked may want it no longer.
            pending.answer.set_result(frame)
        if self._closes and not self._pending:
            self.close()

    def _too_late(self, api: str, deadline_s: float) -> None:
        self._end(Unreached(f"{named(self.address)} did not answer {api} within {deadline_s:g} s"))

    def _end(self, why: UpstreamError) -> None:
        """All that is under way fails, and nothing more begins."""
        if self._why is not None:
            return
        self._why = why
        if self._transport is not None:
            self._transport.abort()
        pending, self._pending = self._pending, deque()
        for each in pending:
            if not each.answer.done():
                each.answer.set_exception(Unreached(str(why)))
                each.answer.exception()  # Where nobody waits any more, nobody misses it.
