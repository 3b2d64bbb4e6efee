"""Connections to the brokers of the upstream: one connection, how it begins (versions, then login), and the pool of
them.

When a connection breaks, everything in flight fails with `Unreached`: whether the broker did it is not known. A
fetch that waits, or a JoinGroup, delays what is sent behind it, so each purpose has connections of its own. The
pool opens them on demand and keeps them while they hold.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeAlias

from muster.coordinator.config import Address
from muster.coordinator.kafka.codec.codec import Frame, MalformedFrame, Unencodable, decode, struct
from muster.coordinator.kafka.connections.client import ClientConnection, ClientLimits, RequestFailures, body_position
from muster.coordinator.kafka_backend.upstream.protocol import (
    READING_APIS,
    SUPPORTED_APIS,
    Unreached,
    Unspoken,
    UpstreamAddress,
    UpstreamCredentials,
    UpstreamError,
    UpstreamRefused,
    describe_address,
    describe_code,
    negotiate_versions,
)

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

    async def send_request(self, api: str, request: object, deadline_s: float) -> Any:
        """The answer, in the version agreed on; see `exchange`."""
        version = self._version(api)
        return self.read(api, version, await self.ask_in(version, api, request, deadline_s))

    def ask_then(self, api: str, request: object, deadline_s: float, tell: Callable[[Any], None]) -> None:
        """As `send_request`, by calls alone, and without waiting for room: for who has one request under way. tell:
        gets once, later, the answer, or the UpstreamError why there is none; see `Told`."""

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


# How a connection begins: versions, then login
# ---------------------------------------------

SOFTWARE: Final = "muster"
UNSUPPORTED_VERSION: Final = 35
Say: TypeAlias = Callable[[bytes], Awaitable[bytes]]
"""One round of SaslAuthenticate."""

OF_LIFETIME: Final = 0.8
"""After this share of a login's time another connection is made."""


async def open_connection(address: Address, reach: UpstreamAddress) -> UpstreamConnection:
    """A connection that is greeted and logged in, within `reach.connect_s`. Raises UpstreamError."""
    try:
        async with asyncio.timeout(reach.connect_s):
            line = await UpstreamConnection.opened(address, reach)
            try:
                await negotiate(line, reach.connect_s)
                if reach.reads_only:
                    line.versions = {api: version for api, version in line.versions.items() if api in READING_APIS}
                if reach.login is not None:
                    await log_in(line, reach.login, reach.connect_s)
            except BaseException:
                line.close()
                raise
            line.let_in()
            return line
    except TimeoutError:
        raise Unreached(f"{describe_address(address)} did not let us in within {reach.connect_s:g} s") from None


async def negotiate(line: UpstreamConnection, deadline_s: float) -> None:
    """Ask for versions. An upstream that does not know this version of the question answers in the first one."""
    request = struct("ApiVersionsRequest")(client_software_name=SOFTWARE, client_software_version="1")
    frame = await line.ask_in(3, "ApiVersions", request, deadline_s)
    code = int.from_bytes(frame[4:6], "big", signed=True)
    if code == UNSUPPORTED_VERSION:
        frame = await line.ask_in(0, "ApiVersions", request, deadline_s)
        code = int.from_bytes(frame[4:6], "big", signed=True)
        answer = line.read("ApiVersions", 0, frame)
    else:
        answer = line.read("ApiVersions", 3, frame)
    if code:
        raise UpstreamRefused(f"greeting {describe_address(line.address)}", code)
    line.versions = negotiate_versions({one.api_key: (one.min_version, one.max_version) for one in answer.api_keys})


async def log_in(line: UpstreamConnection, login: UpstreamCredentials, deadline_s: float) -> None:
    """Raises UpstreamError; no secret is in it, nor what the upstream makes of one."""
    where = describe_address(line.address)
    shaken = await line.send_request(
        "SaslHandshake", struct("SaslHandshakeRequest")(mechanism=login.mechanism), deadline_s
    )
    if shaken.error_code:
        offered = ", ".join(shaken.mechanisms) or "none"
        raise UpstreamError(
            f"{where} does not take {login.of}sasl.mechanism {login.mechanism}: {describe_code(shaken.error_code)}; "
            f"it offers {offered}"
        )

    lifetimes = [0]

    async def say(data: bytes) -> bytes:
        answer = await line.send_request(
            "SaslAuthenticate", struct("SaslAuthenticateRequest")(auth_bytes=data), deadline_s
        )
        if answer.error_code:
            raise UpstreamError(f"{where} refuses the login by {login.mechanism}: {describe_code(answer.error_code)}")
        lifetimes.append(answer.session_lifetime_ms)
        return bytes(answer.auth_bytes)

    if login.mechanism == "PLAIN":
        await say(f"\0{login.username}\0{login.password}".encode())
    elif login.mechanism == "OAUTHBEARER":
        if await say(f"n,,\x01auth=Bearer {login.token()}\x01\x01".encode()):
            await say(b"\x01")  # it has said why in JSON, and refuses in its next answer
            raise UpstreamError(f"{where} refuses the token")
    else:
        await by_scram(say, login, where)
    if lifetimes[-1] > 0:
        line.stale_s = asyncio.get_running_loop().time() + lifetimes[-1] / 1000 * OF_LIFETIME


async def by_scram(say: Say, login: UpstreamCredentials, where: str) -> None:
    """Both ends prove that they know the password; it is never sent."""
    try:
        from scramp import ScramClient, ScramException
    except ImportError:
        raise UpstreamError(
            f"{login.mechanism} needs the package scramp, which is not installed; install muster-groups[security]"
        ) from None
    client = ScramClient([login.mechanism], login.username, login.password)
    try:
        client.set_server_first((await say(client.get_client_first().encode())).decode())
        # In a thread: the password is hashed as often as the broker says, and clients come in many at once.
        final = await asyncio.to_thread(client.get_client_final)
        client.set_server_final((await say(final.encode())).decode())
    except (ScramException, UnicodeDecodeError) as error:
        raise UpstreamError(f"{where} did not prove by {login.mechanism} that it knows the password") from error


# The pool: one connection per broker and purpose
# -----------------------------------------------

ASK: Final = "ask"
WRITE: Final = "write"
READ: Final = "read"
MEMBER: Final = "member"
BEAT: Final = "beat"
LOOK_PURPOSE: Final = "look"
FOLLOW: Final = "follow"
CLIENTS: Final = tuple(f"clients-{number}" for number in range(4))
"""Purposes. What is written in clients' names has several: each is a request of its own, and a broker begins with the
next one of a connection when it has answered the one before."""

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0


@dataclass(slots=True)
class PooledConnection:
    """One broker's connection of one purpose."""

    line: UpstreamConnection | None = None
    making: asyncio.Lock = field(default_factory=asyncio.Lock)
    failures: int = 0
    """In a row: it could not be made."""
    silent: int = 0
    """In a row: nothing was answered, be it that it could be made."""
    not_before_s: float = 0.0


def pause_s(failures: int) -> float:
    """How long an address is left alone after so many failures in a row.

    >>> pause_s(1), pause_s(2), pause_s(100)
    (0.1, 0.2, 5.0)
    """
    return min(FIRST_PAUSE_S * (1 << min(failures - 1, 16)), LONGEST_PAUSE_S)


class ConnectionPool:
    def __init__(self, reach: UpstreamAddress) -> None:
        self._reach = reach
        self._places: dict[tuple[Address, str], PooledConnection] = {}
        self._closed = False

    async def to(self, address: Address, purpose: str = ASK) -> UpstreamConnection:
        """A connection that holds, once the address may be tried again. Raises UpstreamError."""
        line = self.standing(address, purpose)
        if line is not None:
            return line
        place = self._places.setdefault((address, purpose), PooledConnection())
        async with place.making:
            line = self._standing(place)
            if line is not None:
                return line
            loop = asyncio.get_running_loop()
            await asyncio.sleep(max(place.not_before_s - loop.time(), 0))
            if self._closed:
                raise Unreached("this node stops")
            try:
                line = await open_connection(address, self._reach)
            except UpstreamError:
                place.failures += 1
                place.not_before_s = loop.time() + pause_s(place.failures)
                raise
            if self._closed:
                line.close()
                raise Unreached("this node stops")
            place.line, place.failures = line, 0
            return line

    def standing(self, address: Address, purpose: str) -> UpstreamConnection | None:
        """The connection, where there is one that holds."""
        place = self._places.get((address, purpose))
        return None if place is None else self._standing(place)

    def failures(self, address: Address) -> int:
        """How often in a row it could not be reached, or did not answer, for whatever purpose."""
        places = (place for (at, _), place in self._places.items() if at == address)
        return max((max(place.failures, place.silent) for place in places), default=0)

    def failed(self, address: Address, purpose: str) -> None:
        """It let us in, or not, and did not answer: others are asked first, until it does."""
        place = self._places.get((address, purpose))
        if place is not None:
            place.silent += 1

    def answered(self, address: Address, purpose: str) -> None:
        place = self._places.get((address, purpose))
        if place is not None:
            place.silent = 0

    def hang_up(self, purpose: str) -> None:
        """End all connections of a purpose: what is asked on one waits behind what nobody wants to know any more."""
        for (_, made_for), place in self._places.items():
            if made_for == purpose and place.line is not None:
                place.line.close()

    def forget(self, keep: set[Address]) -> None:
        """Close what leads to addresses that nobody has any more."""
        for (address, purpose), place in list(self._places.items()):
            if address not in keep and not place.making.locked():
                if place.line is not None:
                    place.line.close_when_idle()
                del self._places[address, purpose]

    def close(self) -> None:
        self._closed = True
        for place in self._places.values():
            if place.line is not None:
                place.line.close()
        self._places.clear()

    def _standing(self, place: PooledConnection) -> UpstreamConnection | None:
        line = place.line
        if line is None or (line.open and not line.stale):
            return line
        line.close_when_idle()
        place.line = None
        return None
