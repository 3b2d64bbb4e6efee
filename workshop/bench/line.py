"""A lean connection of Kafka's protocol for load: requests one at a time, or one and the same as fast as it goes."""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar, cast

from muster.coordinator.kafka.apis import APIS
from muster.coordinator.kafka.codec.codec import decode, decode_frame, encode, is_flexible, struct
from muster.coordinator.kafka.codec.emitter import Frame
from muster.coordinator.kafka.connections.frames import FrameBuffer

Answer = TypeVar("Answer")

KEYS = {api.name: api.key for api in APIS}
LARGEST = 1 << 28
CALL_S = 120.0


class LoadConnection(asyncio.Protocol):
    """Answers come in order, so whoever waits longest gets the next one."""

    def __init__(self) -> None:
        self._frames = FrameBuffer(LARGEST)
        self._waiting: deque[Callable[[Frame], None]] = deque()
        self._correlation = 0
        self._asked: set[asyncio.Future[Any]] = set()
        """Of those who wait, whoever wants to hear of it when the connection is lost."""
        self._lost: ConnectionError | None = None

    @classmethod
    async def to(cls, address: str, tls: ssl.SSLContext | None = None) -> "LoadConnection":
        host, _, port = address.rpartition(":")
        _, line = await asyncio.get_running_loop().create_connection(cls, host, int(port), ssl=tls)
        return line

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            self._waiting.popleft()(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = ConnectionResetError(f"the server closed the connection{f' ({exc})' if exc else ''}")
        for future in self._asked:
            if not future.done():
                future.set_exception(self._lost)

    def close(self) -> None:
        self._transport.close()

    @property
    def unsent(self) -> int:
        """Bytes of requests that the other side has not taken."""
        return self._transport.get_write_buffer_size()

    async def ask(self, name: str, version: int, message: object) -> Any:
        """One request and its answer."""
        return self.read(name, version, await self.pass_on(self.request(name, version, message)))

    async def pass_on(self, request: bytes) -> Frame:
        """A request that is bytes already, and the bytes of its answer. Raises OSError, which says why not."""
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self.send(request, lambda frame: None if answer.done() else answer.set_result(frame))
        try:
            async with asyncio.timeout(CALL_S):
                return await self._answered(answer)
        except TimeoutError:
            raise TimeoutError(f"no answer within {CALL_S:.0f} s") from None

    async def _answered(self, answer: "asyncio.Future[Answer]") -> Answer:
        """Raises ConnectionError when the connection is lost before."""
        if self._lost is not None:
            raise self._lost
        self._asked.add(answer)
        try:
            return await answer
        finally:
            self._asked.discard(answer)

    def read(self, name: str, version: int, frame: Frame) -> Any:
        tagged = is_flexible(f"{name}Response", version)
        _, begin = decode("ResponseHeader", int(tagged), frame)
        return decode_frame(f"{name}Response", version, frame, begin)

    def send(self, request: bytes, answered: Callable[[Frame], None]) -> None:
        """One request; whoever waits before it hears its own answer first."""
        self._waiting.append(answered)
        self._transport.write(request)

    async def repeat(self, request: bytes, depth: int, go_on: Callable[[], bool]) -> int:
        """Keep `depth` copies of one request in flight while `go_on`; how many were answered.

        The first answer stands for all: the rest is not even looked at, so that the load costs less than the server.
        """
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        counted = 0

        def answered(frame: Frame) -> None:
            nonlocal counted
            counted += 1
            if go_on():
                self._waiting.append(answered)
                self._transport.write(request)
            elif not self._waiting:
                done.set_result(counted)

        self._waiting.extend([answered] * depth)
        self._transport.write(request * depth)
        return await self._answered(done)

    def request(self, name: str, version: int, message: object) -> bytes:
        """The bytes of a request, with header and length."""
        self._correlation += 1
        header = struct("RequestHeader")(
            request_api_key=KEYS[name],
            request_api_version=version,
            correlation_id=self._correlation,
            client_id="bench",
        )
        head = b"".join(encode("RequestHeader", 1 + is_flexible(f"{name}Request", version), header))
        body = b"".join(encode(f"{name}Request", version, message))
        return (len(head) + len(body)).to_bytes(4, "big") + head + body
