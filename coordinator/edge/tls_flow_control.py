"""TLS connections of a listener: handshakes bounded in time and number, and writes that count every waiting byte.

Connections are let in one by one; past the limit the handshake that has taken longest is cut off, and each failure
gets a throttled line. asyncio's transport for TLS, and uvloop's, encrypts at once all that it is given and hands it
to the socket's own transport, and neither reports what that one cannot send. So a connection is given little at a
time: at most twice `PIECE` is out of sight.

Imported only where a listener speaks TLS.
"""

import asyncio
import errno
import socket
import ssl
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

import structlog

from muster.coordinator.edge.background_tasks import RestartedTask
from muster.coordinator.edge.listener_base import ListenerTls
from muster.coordinator.edge.overload import LogThrottle

# Flow control
# ------------

PIECE: Final = 64 << 10
"""Bytes that are encrypted at once."""

Bytes = bytes | bytearray | memoryview


class TlsFlowControl(asyncio.Protocol):
    """What the TLS transport sees as its protocol; `inner` gets an `ThrottledTransport` for a transport."""

    def __init__(self, inner: asyncio.Protocol) -> None:
        self.hand_to(inner)

    def hand_to(self, inner: asyncio.Protocol) -> None:
        """What comes is this one's from now on, without a call between."""
        self.inner = inner
        self.data_received = inner.data_received  # type: ignore[method-assign]
        self.eof_received = inner.eof_received  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        below = cast(asyncio.Transport, transport)
        self._outlet = ThrottledTransport(below, self)
        self.inner.connection_made(self._outlet)
        below.set_write_buffer_limits(high=1, low=0)  # It stops as soon as the socket takes no more.

    def connection_lost(self, exc: Exception | None) -> None:
        self._outlet.lost()
        self.inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._outlet.stop()

    def resume_writing(self) -> None:
        self._outlet.resume_writing()


class ThrottledTransport(asyncio.Transport):
    """A transport that holds back what the one below it cannot send yet."""

    def __init__(self, below: Any, paced: TlsFlowControl) -> None:
        super().__init__()
        self._below = below
        self._paced = paced
        self._held: deque[Bytes] = deque()
        self._size = 0
        self._stopped = False
        self._closing = False
        self._lost = False
        self._told = False
        self._high, self._low = PIECE, PIECE // 4

    def write(self, data: Bytes) -> None:
        if self._closing:
            return
        if not (self._stopped or self._held) and len(data) <= PIECE:
            self._below.write(data)
        else:
            self._held.append(data)
            self._size += len(data)
            self._write_held()
        self._notify_pressure()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        for data in list_of_data:
            self.write(data)

    def stop(self) -> None:
        """The transport below is full."""
        self._stopped = True
        self._notify_pressure()

    def resume_writing(self) -> None:
        """It has room again."""
        self._stopped = False
        self._write_held()
        self._notify_pressure()

    def lost(self) -> None:
        """Nobody takes anything any more."""
        self._held.clear()
        self._size = 0
        self._closing = self._lost = True

    def get_write_buffer_size(self) -> int:
        return self._size + int(self._below.get_write_buffer_size())

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = PIECE if high is None else high
        self._low = self._high // 4 if low is None else low

    def close(self) -> None:
        """Once all is sent."""
        if self._held:
            self._closing = True
            self._below.pause_reading()
        else:
            self._below.close()

    def abort(self) -> None:
        self.lost()
        self._below.abort()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._paced.hand_to(cast(asyncio.Protocol, protocol))
        self._below.set_protocol(self._paced)  # It may have kept what it calls.

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._paced.inner

    def is_closing(self) -> bool:
        return self._closing or bool(self._below.is_closing())

    def pause_reading(self) -> None:
        self._below.pause_reading()

    def resume_reading(self) -> None:
        if not self._closing:
            self._below.resume_reading()

    def is_reading(self) -> bool:
        return bool(self._below.is_reading())

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._below.get_extra_info(name, default)

    def _write_held(self) -> None:
        """Give the transport below a piece after the other, until it says that it is full."""
        while self._held and not self._stopped:
            data = self._held.popleft()
            if len(data) > PIECE:
                whole = memoryview(data)
                data = whole[:PIECE]
                self._held.appendleft(whole[PIECE:])
            self._size -= len(data)
            self._below.write(data)
        if self._closing and not (self._held or self._lost):
            self._below.close()

    def _notify_pressure(self) -> None:
        size = self.get_write_buffer_size()
        if not self._told and size > self._high:
            self._told = True
            self._paced.inner.pause_writing()
        elif self._told and size <= self._low:
            self._told = False
            self._paced.inner.resume_writing()


# Handshakes
# ----------

MOST: Final = 1_000
"""Handshakes at once. One takes milliseconds: beyond it the one that has taken longest is cut off."""

CLOSING_S: Final = 5.0
"""How long a connection that is closed waits for its peer to say so."""

TELL_EVERY_S: Final = 10.0
PAUSE_S: Final = 1.0
"""Before the next try when there is no room for another open file."""

NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

log = structlog.get_logger("muster.tls")


class TlsHandshakes:
    """Takes connections from a listening socket; what speaks on one is made when its handshake is done.

    `admits` is asked for every address before a byte is read: in how many seconds it may begin, None: not. It lives
    on the event loop that starts it.
    """

    def __init__(
        self,
        tls: ListenerTls,
        listening: socket.socket,
        make: Callable[[], asyncio.Protocol],
        admits: Callable[[str], float | None],
    ) -> None:
        self._tls = tls
        self._listening = listening
        self._make = make
        self._admits = admits
        self._under_way: dict[asyncio.Task[None], str] = {}
        self._hosts: Counter[str] = Counter()
        self._told = LogThrottle(TELL_EVERY_S)
        self._accepting = RestartedTask("TLS connections", self._accept)

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    def of(self, host: str) -> int:
        """How many of them come from one address."""
        return self._hosts[host]

    def start(self) -> None:
        self._accepting.start()

    def close(self) -> None:
        """Let nobody in any more; handshakes under way are broken off."""
        self._accepting.cancel()
        for task in tuple(self._under_way):
            task.cancel()
        self._listening.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(self._listening)
            except OSError as error:
                if self._listening.fileno() < 0:
                    await asyncio.Event().wait()  # closed: until it is cancelled
                if error.errno in NO_ROOM:
                    self._log_failure("", f"no further connection can be taken: {error.strerror}")
                    await asyncio.sleep(PAUSE_S)
                continue
            self._begin_handshake(sock, str(address[0]) if isinstance(address, tuple) else "")
            await asyncio.sleep(0)  # A flood of connections has turns between, as everything has.

    def _begin_handshake(self, sock: socket.socket, host: str) -> None:
        wait_s = self._admits(host)
        if wait_s is None:
            sock.close()
            return
        if len(self._under_way) >= MOST:
            self._cut_longest()
        task = asyncio.get_running_loop().create_task(self._greet(sock, host, wait_s))
        self._under_way[task] = host
        self._hosts[host] += 1
        task.add_done_callback(self._over)

    async def _greet(self, sock: socket.socket, host: str, wait_s: float) -> None:
        if wait_s:
            try:
                await asyncio.sleep(wait_s)
            except asyncio.CancelledError:
                sock.close()
                raise
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: TlsFlowControl(self._make()),
                sock,
                ssl=self._tls.context,
                ssl_handshake_timeout=self._tls.handshake_s,
                ssl_shutdown_timeout=CLOSING_S,
            )
        except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError
            self._log_failure(host, explain_handshake_failure(error))

    def _over(self, task: asyncio.Task[None]) -> None:
        host = self._under_way.pop(task)
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a handshake could not be made", door=self._tls.door, peer=host, exc_info=error)

    def _cut_longest(self) -> None:
        task, host = next(iter(self._under_way.items()))
        task.cancel()
        self._log_failure(host, f"{MOST} handshakes are under way, and this one took longest")

    def _log_failure(self, host: str, why: str) -> None:
        untold = self._told.count_suppressed(f"{host} {why}", asyncio.get_running_loop().time())
        if untold is not None:
            log.warning("no TLS connection", door=self._tls.door, peer=host, why=why, untold=untold)


def explain_handshake_failure(error: Exception) -> str:
    """In words of whoever looks for the reason at the other end.

    >>> explain_handshake_failure(TimeoutError())
    'the handshake was not over in time'
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not believed: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        return REASONS.get(error.reason or "", reason)
    if isinstance(error, TimeoutError) or "handshake is taking longer" in str(error):
        return "the handshake was not over in time"
    return "the client went away in the middle of the handshake"


REASONS: Final = {
    "HTTP_REQUEST": "the client speaks HTTP without TLS",
    "WRONG_VERSION_NUMBER": "the client speaks no TLS; is its protocol PLAINTEXT?",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client showed no certificate (ssl.client.auth=required)",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not know the authority of the node's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not believe the node's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not believe the node's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client says that the node's certificate has ended",
    "UNSUPPORTED_PROTOCOL": "the client speaks none of ssl.enabled.protocols",
    "CALLBACK_FAILED": "the client asked for a host that is not here (engine.kafka.broker.hosts)",
    "NO_SHARED_CIPHER": "the client has none of ssl.cipher.suites",
}
"""What OpenSSL calls them -> what they mean here."""
