"""One connection to a broker of the upstream, in the versions agreed on.

When it breaks, all that is under way fails at once with `Unreached`: whether that was done there is not known.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

from muster.coordinator.config import Address
from muster.coordinator.kafka.codec.codec import MalformedFrame, Unencodable, decode
from muster.coordinator.kafka.codec.emitter import Frame
from muster.coordinator.kafka.connections.client import ClientConnection, ClientLimits, RequestFailures, body_position
from muster.coordinator.kafka_backend.upstream.errors import Unreached, Unspoken, UpstreamError, describe_address
from muster.coordinator.kafka_backend.upstream.reach import UpstreamAddress
from muster.coordinator.kafka_backend.upstream.speaking import SUPPORTED_APIS

MOST_UNDER_WAY: Final = 64
MOST_WAITING: Final = 10_000
"""Those that are under way, and those that wait until they may be."""
MOST_REQUEST_BYTES: Final = 64 << 20
MOST_ANSWER_BYTES: Final = 64 << 20
"""Of one answer: a fetch asks for a few MB, but a single batch comes whole, however large."""
MOST_GREETING_BYTES: Final = 1 << 20
"""Of an answer before the connection is logged in."""


class UpstreamConnection(ClientConnection[UpstreamError]):
    """Build it with `greeting.connected`. What it raises is an UpstreamError, whatever happened."""

    def __init__(self, address: Address, client_id: str) -> None:
        super().__init__(
            client_id,
            ClientLimits(MOST_UNDER_WAY, MOST_REQUEST_BYTES, MOST_GREETING_BYTES),
            RequestFailures(unsent=UpstreamError, silent=Unreached, broken=Unreached),
        )
        self.address = address
        self.versions: Mapping[str, int] = {}
        """Those that were agreed on."""
        self.stale_s: float | None = None
        """From when on, by the loop's clock, another one is to be made: the login ends soon (KIP-368)."""
        self._closes = False
        self._room = asyncio.Semaphore(MOST_UNDER_WAY)
        self._waiting = 0

    @classmethod
    async def opened(cls, address: Address, reach: UpstreamAddress) -> Self:
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
            why = (
                error.strerror or str(error) or "it closes the connection" + " in the TLS handshake" * (tls is not None)
            )
            raise Unreached(f"{describe_address(address)} cannot be reached: {why}") from None
        return line

    @property
    def other_end(self) -> str:
        return describe_address(self.address)

    @property
    def open(self) -> bool:
        return super().open and not self._closes

    @property
    def stale(self) -> bool:
        return self.stale_s is not None and asyncio.get_running_loop().time() >= self.stale_s

    def close_when_idle(self) -> None:
        """Nothing more begins; what is under way is answered."""
        self._closes = True
        if not self.under_way:
            self.close()

    def let_in(self) -> None:
        """The other end has taken us in: its answers may be large from now on."""
        self._frames.limit = MOST_ANSWER_BYTES

    def hand_over(self, taker: asyncio.Protocol) -> None:
        """From now on the connection is `taker`'s, who is told of it as of a new one. Nothing may be under way. Raises
        Unreached at its end."""
        if self._why is not None:
            raise Unreached(str(self._why))
        assert self._transport is not None, "made by `create_connection`"
        self._transport.set_protocol(taker)
        taker.connection_made(self._transport)

    async def ask(self, api: str, request: object, deadline_s: float) -> Any:
        """The answer, in the version agreed on; see `exchange`."""
        version = self._version(api)
        return self.read(api, version, await self.ask_in(version, api, request, deadline_s))

    def ask_then(self, api: str, request: object, deadline_s: float, tell: Callable[[Any], None]) -> None:
        """As `ask`, by calls alone, and without waiting for room: for who has one request under way. tell: hears once,
        later, the answer, or the UpstreamError why there is none; see `Told`."""

        def told(frame: Frame | UpstreamError) -> None:
            if isinstance(frame, UpstreamError):
                tell(frame)
                return
            try:
                answer = self.read(api, version, frame)
            except UpstreamError as error:
                answer = error
            tell(answer)

        try:
            version = self._version(api)
            self.exchange_then(SUPPORTED_APIS[api].key, api, version, request, deadline_s, told)
        except Unencodable as error:
            asyncio.get_running_loop().call_soon(tell, encoding_error(api, version, error))
        except UpstreamError as error:
            asyncio.get_running_loop().call_soon(tell, error)

    def _version(self, api: str) -> int:
        if api not in self.versions:
            first, last = SUPPORTED_APIS[api].first, SUPPORTED_APIS[api].last
            raise Unspoken(f"{describe_address(self.address)} does not speak {api} {first} to {last}")
        return self.versions[api]

    async def ask_in(self, version: int, api: str, request: object, deadline_s: float) -> Frame:
        """The answer's bytes, header included; see `exchange`. It leaves once there is room: many clients may want the
        same broker asked at once, and what was not sent is not to look as if nobody knew what became of it."""
        if self._waiting >= MOST_WAITING:
            raise UpstreamError(f"{self._waiting} requests wait for {self.other_end}; at most so many may")
        self._waiting += 1
        try:
            async with self._room:
                return await self.exchange(SUPPORTED_APIS[api].key, api, version, request, deadline_s)
        except Unencodable as error:
            raise encoding_error(api, version, error) from error
        finally:
            self._waiting -= 1

    def read(self, api: str, version: int, frame: Frame) -> Any:
        try:
            # What follows it is passed over, as Kafka's own clients do: there are brokers that send a byte too many.
            return decode(f"{api}Response", version, frame, body_position(api, version, frame))[0]
        except MalformedFrame as error:
            raise self._no_answer(api, error) from error

    def _answered(self, frame: Frame) -> None:
        super()._answered(frame)
        if self._closes and not self.under_way:
            self.close()


def encoding_error(api: str, version: int, error: Unencodable) -> UpstreamError:
    return UpstreamError(f"{api} {version} cannot say this: {error}")
