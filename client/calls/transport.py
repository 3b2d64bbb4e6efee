"""Channels to nodes and calls over them: deadlines, retries where they are safe, and the reason when a node cannot be
reached.

Lives on one event loop. Channels are created on first use, kept, and reconnected by gRPC. Channel options are those
whose effect was measured: without `http2.ping_timeout_ms` a frozen node would go unnoticed for a minute. When the
other side does not speak gRPC, one probe tells whether it speaks Kafka's protocol or TLS, so that a wrong port is
reported as such. The user agent names the client software, as in KIP-511.
"""

import asyncio
import contextlib
import logging
import os
import random
import struct
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
from google.protobuf.message import Message

from muster.client.calls.leaders import PartitionLeaders
from muster.client.calls.methods import METADATA, ClientMethod
from muster.client.errors import (
    AuthenticationError,
    CallNotAuthorized,
    IllegalState,
    NotTrusted,
    TransportRefused,
    Unreachable,
    WrongPort,
    WrongProcess,
)
from muster.client.members.coordinator_link import Backoff
from muster.client.twins import AFTER_FORK, BackgroundTasks, forget_channels, note_channels, refuse_after_fork

if TYPE_CHECKING:
    from muster.client.config import ClientConfig
    from muster.client.credentials import Credentials, Shown
    from muster.client.types import ConnectionConfig


# User agent
# ----------

NAME = "muster-python"
DISTRIBUTION = "muster-groups"


@cache
def user_agent() -> str:
    """Name and version; the name alone where Muster runs without having been installed."""
    try:
        return f"{NAME}/{version(DISTRIBUTION)}"
    except PackageNotFoundError:
        return NAME


# What listens at a wrong port
# ----------------------------

CLOSED_AT_ONCE = ("Socket closed", "Connection reset", "Endpoint closing")
NOT_HTTP2 = "Failed parsing HTTP/2"
"""What gRPC's detail says of a connection that came about and was not understood, by the other side or by us."""

PROBE_S = 1.0
API_VERSIONS, CORRELATION_ID = 18, 0x6D7573
MAX_ANSWER_BYTES = 1 << 20

SPEAKS_KAFKA = (
    "speaks Kafka's protocol and not gRPC: it is a port for Kafka's clients; bootstrap.servers takes a node's gRPC "
    "port here (listeners in its properties, --listen; 9290 unless told otherwise); a broker other than Muster has none"
)
NO_GRPC = "takes connections, but what listens there does not speak gRPC; is the port the one of a Muster node?"


SPEAKS_TLS = "speaks TLS, and this client does not; set security.protocol=SSL, and the CA in ssl.truststore.location"


async def diagnose_unreachable(error: Unreachable) -> Unreachable:
    """The same error, or a WrongPort that says what listens there instead of a node that talks plainly."""
    if error.address.startswith("unix:") or not any(sign in error.detail for sign in (*CLOSED_AT_ONCE, NOT_HTTP2)):
        return error
    if await speaks_kafka(error.address):
        return WrongPort(error, SPEAKS_KAFKA)
    if await speaks_tls(error.address):
        return WrongPort(error, SPEAKS_TLS)
    return WrongPort(error, NO_GRPC) if NOT_HTTP2 in error.detail else error


async def speaks_kafka(address: str) -> bool:
    """Whether an ApiVersions request, which every broker answers to anybody, is answered there."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(PROBE_S):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            try:
                header = struct.pack(">hhih", API_VERSIONS, 0, CORRELATION_ID, -1)
                writer.write(struct.pack(">i", len(header)) + header)
                size, correlation_id = struct.unpack(">ii", await reader.readexactly(8))
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (OSError, asyncio.IncompleteReadError, ValueError):
        # TimeoutError is an OSError.
        return False
    return bool(correlation_id == CORRELATION_ID and 4 < size <= MAX_ANSWER_BYTES)


async def speaks_tls(address: str) -> bool:
    """Whether a TLS handshake comes about there; nobody is trusted for it, and nothing is said over it."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(PROBE_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context)
            writer.transport.abort()
    except (OSError, ValueError):
        # TimeoutError and ssl.SSLError are OSErrors.
        return False
    return True


# What gRPC's detail says of a failed handshake
# ---------------------------------------------

HANDSHAKE = (
    (
        "certificate has expired",
        "shows a certificate that has expired; its operator has to renew it (muster doctor says when the others end)",
    ),
    (
        "certificate is not yet valid",
        "shows a certificate that is not valid yet; are the clocks of both machines right?",
    ),
    (
        "Hostname Verification Check failed",
        "shows a certificate for another name; use the name that is on it in bootstrap.servers, or say it with "
        "ssl.target.name",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "shows a certificate of a CA that this client does not trust; put that CA into ssl.truststore.location",
    ),
    (
        "WRONG_VERSION_NUMBER",
        "does not speak TLS; is it a plaintext port (security.protocol=PLAINTEXT), or the wrong one?",
    ),
    (
        "Failed to create security handshaker",
        "was not asked: what this client has to show cannot be used; expected in ssl.keystore.* a certificate and the "
        "key that belongs to it, in ssl.truststore.* certificates",
    ),
    (
        "CERTIFICATE_REQUIRED",
        "asks for a certificate of this client; set ssl.keystore.location",
    ),
    (
        "UNKNOWN_CA",
        "does not trust the certificate of this client; is it of a CA in the node's ssl.truststore.location?",
    ),
)
"""Signs in gRPC's and BoringSSL's words, and what is said of the address."""

CLOSED = "Socket closed"
CLOSED_ON_US = (
    "the connection was ended right after the handshake: the node may want a certificate of this client "
    "(ssl.keystore.location), or not trust the one it was shown, or it has just gone"
)


def describe_handshake_failure(detail: str) -> str | None:
    """What is wrong with certificates, as a predicate of the address; None where it is something else.

    >>> describe_handshake_failure("SSL routines:OPENSSL_internal:WRONG_VERSION_NUMBER")
    'does not speak TLS; is it a plaintext port (security.protocol=PLAINTEXT), or the wrong one?'
    """
    return next((words for sign, words in HANDSHAKE if sign in detail), None)


# Channels and calls
# ------------------

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response")

SuccessorChannel = Callable[[grpc.aio.Channel], bool]
"""Whether it takes a connection over, and closes it when it has no use for it any more."""

TRANSIENT = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.ABORTED,
        # A server in a storm cancels calls that it has not accepted yet.
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)
MAX_CHANNELS = 256
MAX_OUTDATED = 8
CONNECT_PATIENCE_MS = 1_000
"""A node that is busy or far away needs a while to greet; one that is not there refuses at once."""
QUIET_MS = 1_000
"""A call that goes on trying says so after this much silence; a node that restarts is often back before."""
QUIETLY_REFUSED_MS = 5_000
"""The same of a refusal: a coordinator that moves or loads is often there before."""
WHILE_WRITING = "Internal error from Core"
"""What gRPC says with INTERNAL, in place of the status, where a stream ended while something was written to it: mostly
that its connection broke."""
NEVER_CONNECTED = ("failed to connect", "DNS resolution failed", "errors resolving")
"""How gRPC begins its detail where no connection came about."""

log = logging.getLogger("muster.client")


def channel_options(config: "ClientConfig | ConnectionConfig") -> list[tuple[str, Any]]:
    return [
        ("grpc.primary_user_agent", user_agent()),
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.http2.ping_timeout_ms", 5_000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", config.reconnect_backoff_ms),
        # By its name a pause, by its effect how long the first attempt to connect may take.
        ("grpc.min_reconnect_backoff_ms", max(CONNECT_PATIENCE_MS, config.reconnect_backoff_ms)),
        ("grpc.max_reconnect_backoff_ms", max(config.reconnect_backoff_max_ms, config.reconnect_backoff_ms)),
        ("grpc.max_receive_message_length", config.receive_message_max_bytes),
        ("grpc.max_send_message_length", config.receive_message_max_bytes),
        # A node limits what one connection may have under way; clients of one process do not share one.
        ("grpc.use_local_subchannel_pool", 1),
        # Nodes are inside the network; a web proxy of the environment is not the way to them.
        ("grpc.enable_http_proxy", 0),
    ]


def load_credentials(config: "ClientConfig | ConnectionConfig") -> "Credentials | None":
    """None, and nothing is imported, where a client talks plainly and shows nothing."""
    if config.security is None:
        return None
    from muster.client.credentials import Credentials

    return Credentials(config.security)


def now_ms() -> int:
    """This process's steady clock; never compared with another process's."""
    return time.monotonic_ns() // 1_000_000


class Transport:
    """The calls of one client. `close()` it on the loop that used it."""

    def __init__(self, config: "ClientConfig | ConnectionConfig") -> None:
        refuse_after_fork()
        self.config = config
        self._pid = os.getpid()
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._stubs: dict[tuple[str, str], Callable[..., Any]] = {}
        self._servers = config.servers
        self._silent: set[str] = set()
        self._log_node: str | None = None
        self._closed = False
        self._credentials = load_credentials(config)
        self._tls = config.security is not None and config.security.tls
        self._renewing = False
        self._outdated: list[grpc.aio.Channel] = []
        self._given = list(self._servers)
        self._gone: dict[str, int] = {}
        self._closing = BackgroundTasks()
        self._lent: dict[grpc.aio.Channel, SuccessorChannel] = {}
        self.leaders = PartitionLeaders(self)

    @property
    def bootstrap(self) -> str:
        """The bootstrap server in use; the next one after a failure."""
        return self._servers[0]

    @property
    def alone(self) -> bool:
        """Whether there is no other bootstrap server to try."""
        return len(self._servers) == 1

    def use(self, servers: Sequence[str]) -> None:
        """Begin with these nodes from now on, instead of bootstrap.servers."""
        assert servers, "whoever knows of no node goes on with the old ones"
        self._servers, self._given = list(servers), list(servers)

    def know(self, nodes: Sequence[str]) -> None:
        """These are the nodes of the cluster: each answers what bootstrap.servers were asked for, which come last.

        The one in use stays in use; who came by another name begins with any of them. What leads to a node that has
        been none of these for metadata.max.age.ms is closed.
        """
        current = self._servers[0]
        if current not in nodes:
            self._servers = random.sample(nodes, len(nodes))
        else:
            self._servers = [current, *(node for node in nodes if node != current)]
        self._servers += [server for server in self._given if server not in nodes]
        at_ms = now_ms()
        self._gone = {node: self._gone.get(node, at_ms) for node in self._channels if node not in self._servers}
        for node, since_ms in list(self._gone.items()):
            if at_ms - since_ms >= self.config.metadata_max_age_ms:
                self._let_go(node)

    def _let_go(self, address: str) -> None:
        del self._gone[address]
        channel = self._channels.pop(address)
        self._forget_stubs(address)
        if self._inherited(channel):
            return
        self._closing.start(channel.close())

    def read_from(self, address: str | None) -> None:
        """Calls that name no address go to this node, whose log it is about; None: to the bootstrap server again."""
        self._log_node = address

    async def call(
        self,
        method: ClientMethod[Request, Response],
        request: Request,
        *,
        doing: str,
        address: str | None = None,
        timeout_ms: int | None = None,
    ) -> Response:
        """One attempt. Unreachable when trying again may help, TransportRefused when not."""
        target = address or self._log_node or self.bootstrap
        patience_ms = timeout_ms or self.config.request_timeout_ms
        started_ms = now_ms()
        call = self._stub(target, method)(request, timeout=patience_ms / 1000, metadata=self._shown())
        try:
            answer: Response = await call
        except grpc.aio.AioRpcError as error:
            translated = self.translated(error, target, doing, now_ms() - started_ms)
            if isinstance(translated, Unreachable) and not self._tls:
                translated = await diagnose_unreachable(translated)
            raise translated from None
        finally:
            if not call.done():
                call.cancel()
        self._silent.discard(target)
        if method is METADATA:
            self.leaders.learn(answer)  # type: ignore[arg-type]
        return answer

    async def retried(
        self,
        method: ClientMethod[Request, Response],
        request: Request,
        *,
        doing: str,
        address: str | None = None,
        timeout_ms: int | None = None,
    ) -> Response:
        """Attempts with back-off until `timeout_ms` (default.api.timeout.ms). Only for idempotent calls."""
        if not method.idempotent:
            return await self.call(method, request, doing=doing, address=address, timeout_ms=timeout_ms)
        patience = CallRetry(self, timeout_ms)
        while True:
            try:
                return await self.call(method, request, doing=doing, address=address, timeout_ms=patience.attempt_ms)
            except Unreachable as error:
                if not await patience.another_try(error):
                    raise error.after(patience.waited_ms) from None

    def announce(self, error: Unreachable) -> None:
        """Say, once per silence of a node, that somebody goes on trying."""
        if error.address not in self._silent:
            self._silent.add(error.address)
            log.warning("%s; trying again", error.brief)

    async def stream(
        self, method: ClientMethod[Request, Response], request: Request, *, doing: str, address: str | None = None
    ) -> AsyncIterator[Response]:
        """The answers of a server stream, until either side ends it."""
        target = address or self._log_node or self.bootstrap
        started_ms = now_ms()
        call = self._stub(target, method, streaming=True)(request, metadata=self._shown())
        try:
            async for answer in call:
                yield answer
        except grpc.aio.AioRpcError as error:
            raise self.translated(error, target, doing, now_ms() - started_ms) from None
        finally:
            call.cancel()

    def converse(
        self, method: ClientMethod[Request, Response], address: str
    ) -> "grpc.aio.StreamStreamCall[Request, Response]":
        """A stream both ways; whoever asked for it ends it. Errors come as gRPC's: see `translated`."""
        self._usable(method)
        self._renew()
        make: Callable[..., Any] = self._channel(address).stream_stream(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        return make(metadata=self._shown())  # type: ignore[no-any-return]

    def lend(self, address: str, successor: SuccessorChannel) -> None:
        """Others use the connection to this node as well: `successor` is asked before it is closed."""
        self._lent[self._channel(address)] = successor

    def _inherited(self, channel: grpc.aio.Channel) -> bool:
        successor = self._lent.pop(channel, None)
        return successor is not None and successor(channel)

    def backoff(self) -> Backoff:
        return Backoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms)

    async def close(self) -> None:
        self._closed = True
        await self.leaders.close()
        mine = [*self._channels.values(), *self._outdated]
        channels = [channel for channel in mine if not self._inherited(channel)]
        self._channels, self._outdated = {}, []
        self._stubs.clear()
        for channel in channels:
            await channel.close()
        forget_channels(self)

    def _stub(self, address: str, method: ClientMethod[Any, Any], streaming: bool = False) -> Callable[..., Any]:
        self._usable(method)
        self._renew()
        key = (address, method.path)
        if key not in self._stubs:
            channel = self._channel(address)
            make: Callable[..., Any] = channel.unary_stream if streaming else channel.unary_unary
            self._stubs[key] = make(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )
        return self._stubs[key]

    def _usable(self, method: ClientMethod[Any, Any]) -> None:
        if self._closed:
            raise IllegalState(f"{method.name}: this client is closed")
        if os.getpid() != self._pid:
            raise WrongProcess(f"{method.name}: this client was created in another process; {AFTER_FORK}")

    def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            if len(self._channels) >= MAX_CHANNELS:
                raise IllegalState(f"one client talks to at most {MAX_CHANNELS} nodes; {address} would be one more")
            options = channel_options(self.config)
            note_channels(self)
            self._channels[address] = (
                grpc.aio.insecure_channel(address, options=options)
                if self._credentials is None
                else self._credentials.channel(address, options)
            )
        return self._channels[address]

    def _shown(self) -> "Shown | None":
        """Who this is, for one call."""
        return None if self._credentials is None else self._credentials.metadata()

    def _renew(self, *, now: bool = False) -> None:
        """With other certificates in the files new connections are made of those; what is connected stays so."""
        if self._credentials is None or not (self._renewing or self._credentials.renewed(now=now)):
            return
        self._renewing = False
        for address, channel in list(self._channels.items()):
            if channel.get_state() is grpc.ChannelConnectivity.READY:
                self._renewing = True
                continue
            self._outdated.append(self._channels.pop(address))
            self._forget_stubs(address)
        # One that has no connection has no answer to give either; what is let go of closes by itself.
        del self._outdated[:-MAX_OUTDATED]

    def _forget_stubs(self, address: str) -> None:
        for key in [key for key in self._stubs if key[0] == address]:
            del self._stubs[key]

    def translated(self, error: grpc.aio.AioRpcError, address: str, doing: str, waited_ms: int) -> Exception:
        status, detail = error.code(), error.details() or ""
        if status is grpc.StatusCode.PERMISSION_DENIED:
            return CallNotAuthorized(address, doing, detail)
        if status is grpc.StatusCode.UNAUTHENTICATED:
            if self._credentials is not None and self._credentials.another_token():
                return Unreachable(address, waited_ms, doing, detail, f"{address} refused a token that was replaced")
            return AuthenticationError(address, doing, detail)
        if is_refusal(error):
            return TransportRefused(address, doing, status.name, detail)
        if address == self._servers[0] and len(self._servers) > 1:
            self._servers.append(self._servers.pop(0))
        silence = Unreachable(
            address, waited_ms, doing, f"{status.name}: {detail}", describe_outage(status, detail, address)
        )
        return self._distrust(silence) if self._tls else silence

    def _distrust(self, error: Unreachable) -> Unreachable:
        """The same, or what is wrong with a certificate."""

        self._renew(now=True)
        if (words := describe_handshake_failure(error.detail)) is not None:
            return NotTrusted(error, words)
        never_connected = any(sign in error.detail for sign in NEVER_CONNECTED)
        if never_connected and CLOSED in error.detail:
            return Unreachable(error.address, error.waited_ms, error.doing, CLOSED_ON_US)
        return error


def is_refusal(error: grpc.aio.AioRpcError) -> bool:
    """Whether the same call again would come to the same."""
    status, detail = error.code(), error.details() or ""
    too_large = status is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in detail
    broke = status is grpc.StatusCode.INTERNAL and detail == WHILE_WRITING
    return too_large or not (broke or status in TRANSIENT)


def describe_outage(status: grpc.StatusCode, detail: str, address: str) -> str:
    """What is known beyond that no answer came; nothing when the node was only silent."""
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        return ""
    if status is not grpc.StatusCode.UNAVAILABLE:
        return f"{address} gave the call up"
    return (
        f"{address} cannot be reached" if detail.startswith(NEVER_CONNECTED) else f"the connection to {address} broke"
    )


class CallRetry:
    """How long one call goes on trying: back-off between attempts, an end, and a word when it takes long."""

    def __init__(self, transport: Transport, timeout_ms: int | None = None) -> None:
        self._transport = transport
        self._started_ms = now_ms()
        self._deadline_ms = self._started_ms + (timeout_ms or transport.config.default_api_timeout_ms)
        self._backoff = transport.backoff()
        self._refusal_told = False

    @property
    def waited_ms(self) -> int:
        return now_ms() - self._started_ms

    @property
    def attempt_ms(self) -> int:
        """How long the next attempt may take."""
        return min(max(1, self._deadline_ms - now_ms()), self._transport.config.request_timeout_ms)

    async def another_try(self, error: Exception) -> bool:
        """Wait for the next attempt after `error`; False at once when there is no time left for one."""
        if isinstance(error, WrongPort) and self._transport.alone:
            return False
        wait_ms = self._backoff.next_ms()
        if now_ms() + wait_ms >= self._deadline_ms:
            return False
        quiet_ms = QUIET_MS if isinstance(error, Unreachable) else QUIETLY_REFUSED_MS
        if self.waited_ms + wait_ms >= quiet_ms:
            self._tell(error)
        await asyncio.sleep(wait_ms / 1000)
        return True

    def _tell(self, error: Exception) -> None:
        """Of silence once per node, of a refusal that lasts once per call."""
        if isinstance(error, Unreachable):
            self._transport.announce(error)
        elif not self._refusal_told:
            self._refusal_told = True
            log.warning("%s; trying again", error)
