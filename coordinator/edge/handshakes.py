"""Connections whose TLS handshake is under way: let in one by one, bounded in time and number, each failure told."""

import asyncio
import errno
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Final

import structlog

from muster.coordinator.edge.paced import TlsFlowControl
from muster.coordinator.edge.seldom import LogThrottle
from muster.coordinator.edge.tls import ListenerTls

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
        self._accepting: asyncio.Task[None] | None = None

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    def of(self, host: str) -> int:
        """How many of them come from one address."""
        return self._hosts[host]

    def start(self) -> None:
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    def close(self) -> None:
        """Let nobody in any more; handshakes under way are broken off."""
        if self._accepting is not None:
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
                    return
                if error.errno in NO_ROOM:
                    self._tell("", f"no further connection can be taken: {error.strerror}")
                    await asyncio.sleep(PAUSE_S)
                continue
            self._begin(sock, str(address[0]) if isinstance(address, tuple) else "")
            await asyncio.sleep(0)  # A flood of connections has turns between, as everything has.

    def _begin(self, sock: socket.socket, host: str) -> None:
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
            self._tell(host, explain_handshake_failure(error))

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
        self._tell(host, f"{MOST} handshakes are under way, and this one took longest")

    def _tell(self, host: str, why: str) -> None:
        untold = self._told.due(f"{host} {why}", asyncio.get_running_loop().time())
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
