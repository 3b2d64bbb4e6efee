"""The HTTP server: uvicorn on a socket and in a loop that are the node's, with the limits that uvicorn lacks."""

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Any, Final

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from muster.coordinator.edge.listener_base import CERTIFICATE, ListenerTls
from muster.coordinator.web.http.guard import MOST_HEADER_BYTES, SECURITY_HEADERS
from muster.coordinator.web.http.node_port import HttpRefusal
from muster.coordinator.web.http.responses import JSON, response_of

if TYPE_CHECKING:
    from muster.coordinator.edge.tls_flow_control import TlsHandshakes

BACKLOG: Final = 512

REQUEST_S: Final = 10.0
"""A request has to be there so long after its first byte, or after its connection came."""

UNREAD_S: Final = 30.0
"""A client has to take what was written within so long: a reader that stands still keeps its place no longer."""

IDLE_S: Final = 30
"""A connection on which nothing is asked any more is closed after so long."""


class BoundedHttpConnection(H11Protocol):
    """Of uvicorn's, with limits: connections, the time that a request takes to arrive and an answer to be read.

    Where there are as many as may be, one on which nothing is asked gives its place to who comes; a probe would
    be locked out by clients that are done. Its refusals are JSON.
    """

    most: int
    """Connections at once; of a class made for one listener."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._late: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        transport.set_write_buffer_limits(high=0)  # Every byte that is not taken at once is waited for.
        if len(self.connections) >= self.most and not self._place_made():
            transport.abort()
        handshake = transport.get_extra_info("ssl_object")
        if handshake is not None and (certificate := handshake.getpeercert(binary_form=True)) is not None:
            self.app = add_certificate(self.app, certificate)
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        self._all_read()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not take what was written, for now."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(UNREAD_S, self.transport.abort)

    def resume_writing(self) -> None:
        self._all_read()
        super().resume_writing()

    def handle_events(self) -> None:
        super().handle_events()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP, or has headers without end."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        text = f"no request of HTTP/1.1 whose headers have at most {MOST_HEADER_BYTES} bytes; send one"
        answer = response_of(HttpRefusal(400, "MALFORMED_REQUEST", text))
        headers = [(b"content-type", JSON.encode()), (b"connection", b"close"), *SECURITY_HEADERS]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=bytes(answer.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _watch(self) -> None:
        """A request that is on its way is waited for, but not for ever."""
        unread, _ = self.conn.trailing_data
        begun = self.conn.their_state is h11.SEND_BODY or (self.conn.their_state is h11.IDLE and bool(unread))
        if not begun and self.cycle is not None:
            self._stop_watching()
        elif self._late is None:
            self._late = self.loop.call_later(REQUEST_S, self._too_late)

    def _stop_watching(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _all_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _place_made(self) -> bool:
        """Whether a connection was there that had its answer and asked no more; it is closed."""
        for each in self.connections:
            if isinstance(each, BoundedHttpConnection) and each.is_done():
                each.transport.abort()
                return True
        return False

    def is_done(self) -> bool:
        """Whether all that was asked is answered, and the answer gone."""
        answered = self.cycle is not None and self.cycle.response_complete
        return answered and self._late is None and self._unread is None and not self.transport.is_closing()

    def _too_late(self) -> None:
        self.transport.abort()


class HttpListener:
    """Serves on a socket that is bound and listens. `max_connections` are those at once."""

    def __init__(self, listening: socket.socket, max_connections: int) -> None:
        self._socket = listening
        self._max_connections = max_connections
        self._server: Server | None = None
        self._handshakes: TlsHandshakes | None = None

    async def start(self, app: ASGIApp, tls: ListenerTls | None = None) -> None:
        """Answer requests. No thread, no signal handler, and no clock of its own: an idle listener does nothing."""
        # Uvicorn tells of each client that speaks no HTTP; what fails inside the application is told by the guard.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        server = Server(make_uvicorn_config(app, self._max_connections))
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        if tls is None:
            await server.startup(sockets=[self._socket])
        else:
            await self._start_tls(server, tls)
        self._server = server

    async def _start_tls(self, server: Server, tls: ListenerTls) -> None:
        """As the server would, but that handshakes are bounded."""
        from muster.coordinator.edge.tls_flow_control import TlsHandshakes

        config = server.config
        await server.lifespan.startup()
        server.servers, server.started = [], True
        made: Any = config.http_protocol_class
        self._handshakes = TlsHandshakes(
            tls,
            self._socket,
            lambda: made(config=config, server_state=server.server_state, app_state=server.lifespan.state),
            admits=lambda host: 0.0,
        )
        self._handshakes.start()

    @property
    def connections(self) -> int:
        """How many are open."""
        return 0 if self._server is None else len(self._server.server_state.connections)

    async def close(self, grace_s: float) -> None:
        """Let nobody in any more, wait for answers under way, and cut off whoever is left after the grace."""
        server, self._server = self._server, None
        if self._handshakes is not None:
            self._handshakes.close()
        if server is None:
            self._socket.close()
            return
        state = server.server_state
        try:
            async with asyncio.timeout(grace_s):
                await server.shutdown(sockets=[self._socket])
        except TimeoutError:
            for task in tuple(state.tasks):
                task.cancel()
        for connection in tuple(state.connections):
            connection.transport.abort()


def add_certificate(app: ASGIApp, certificate: bytes) -> ASGIApp:
    """The application, told who asks by what certificate."""

    async def told(scope: Scope, receive: Receive, send: Send) -> None:
        extensions = {**scope.get("extensions", {}), CERTIFICATE: certificate}
        await app({**scope, "extensions": extensions}, receive, send)

    return told


def make_uvicorn_config(app: ASGIApp, max_connections: int) -> Config:
    bounded: Any = type("BoundedConnection", (BoundedHttpConnection,), {"most": max_connections})
    return Config(
        app,
        http=bounded,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=IDLE_S,
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
    )
