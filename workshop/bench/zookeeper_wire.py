"""A lean ZooKeeper session for load: one connection, no threads, a thousand of them in a process.

kazoo has two threads for each session; a thousand members that read a thousand registrations each would measure
kazoo. Requests are frames that are made once for each path: the
servers answer a session in order, so all requests have the same number. Watches and answers go to callbacks.

The wire format is that of ZooKeeper's `zookeeper.jute`.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias, cast

CREATE, DELETE, GET, SET, CHILDREN, SYNC, PING, CLOSE = 1, 2, 4, 5, 8, 9, 11, -11
OK, NO_NODE, NODE_EXISTS = 0, -101, -110
WATCH_FIRED, PINGED = -1, -2
NUMBER: Final = 1
EPHEMERAL: Final = 1
ANYBODY: Final = struct.pack(">iii5sI6s", 1, 31, 5, b"world", 6, b"anyone")
"""One entry: all rights for everybody."""
REPLY: Final = struct.Struct(">iqi")
CONNECT: Final = struct.Struct(">iqiq")
LENGTH: Final = struct.Struct(">i")
OWNER_AT: Final = 44
"""Of the owner in a Stat, from its beginning."""
CONNECT_S: Final = 30.0
CLOSE_S: Final = 10.0


class WireReply(NamedTuple):
    """Of one request. `transaction` is the number of the last one that the server has seen."""

    transaction: int
    code: int
    body: bytes


class SessionKey(NamedTuple):
    """What a client needs to go on with a session on another connection."""

    id: int
    password: bytes


NO_SESSION: Final = SessionKey(0, bytes(16))


class SessionOver(Exception):
    """The session has expired, and what was ephemeral is gone."""


OnReply: TypeAlias = Callable[[WireReply], None]


class WireSession(asyncio.Protocol):
    """Open it with `opened`. `fired` gets the path of each watch that went off."""

    def __init__(
        self, timeout_ms: int, fired: Callable[[str], None], lost: Callable[[], None], known: SessionKey = NO_SESSION
    ) -> None:
        """known: an earlier session to go on with, whose connection broke. Its watches are gone."""
        self.key = NO_SESSION
        self._known = known
        self.watches_fired = self.requests = self.writes = 0
        self._timeout_ms = timeout_ms
        self._fired, self._lost = fired, lost
        self._waiting: deque[OnReply] = deque()
        self._unread = bytearray()
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pinging: asyncio.TimerHandle | None = None

    @classmethod
    async def opened(
        cls,
        host: str,
        port: int,
        timeout_ms: int,
        fired: Callable[[str], None],
        lost: Callable[[], None],
        known: SessionKey = NO_SESSION,
    ) -> "WireSession":
        """Raises OSError or TimeoutError where no server answers, SessionOver where the known session has ended."""
        loop = asyncio.get_running_loop()
        _, session = await loop.create_connection(lambda: cls(timeout_ms, fired, lost, known), host, port)
        async with asyncio.timeout(CONNECT_S):
            await session._opened
        return session

    def send(self, frames: Iterable[bytes], then: Iterable[OnReply], writes: int = 0) -> None:
        """As many callbacks as frames, in the same order."""
        before = len(self._waiting)
        self._waiting.extend(then)
        self.requests += len(self._waiting) - before
        self.writes += writes
        self._transport.write(b"".join(frames))

    def ask(self, frame: bytes, then: OnReply, *, writes: bool = False) -> None:
        self.send((frame,), (then,), int(writes))

    async def answer(self, frame: bytes, *, writes: bool = False) -> WireReply:
        future: asyncio.Future[WireReply] = asyncio.get_running_loop().create_future()
        self.ask(frame, future.set_result, writes=writes)
        return await future

    @property
    def id(self) -> int:
        """0 until there is a session."""
        return self.key.id

    async def close(self) -> None:
        """The session ends, and what is ephemeral with it."""
        with suppress(TimeoutError):  # the connection broke: the session's end does the rest
            async with asyncio.timeout(CLOSE_S):
                await self.answer(make_frame(CLOSE))
        self.drop()

    def drop(self) -> None:
        """As a process that dies: the session lives until its timeout."""
        if self._pinging is not None:
            self._pinging.cancel()
        self._lost = lambda: None
        self._transport.abort()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        body = CONNECT.pack(0, 0, self._timeout_ms, self._known.id) + text(self._known.password)
        self._transport.write(LENGTH.pack(len(body)) + body)

    def data_received(self, data: bytes) -> None:
        unread = self._unread
        unread += data
        at, end = 0, len(unread)
        while end - at >= 4:
            (size,) = LENGTH.unpack_from(unread, at)
            if end - at - 4 < size:
                break
            self._take(bytes(unread[at + 4 : at + 4 + size]))
            at += 4 + size
        del unread[:at]

    def connection_lost(self, exc: Exception | None) -> None:
        if self._pinging is not None:
            self._pinging.cancel()
        if self._opened.done() and self.id:
            self._lost()
        elif not self._opened.done():
            self._opened.set_exception(ConnectionError("the server closed the connection before there was a session"))

    def _take(self, frame: bytes) -> None:
        if not self.id:
            self._begin(frame)
            return
        number, transaction, code = REPLY.unpack_from(frame)
        if number == WATCH_FIRED:
            self.watches_fired += 1
            (size,) = LENGTH.unpack_from(frame, 24)
            self._fired(frame[28 : 28 + size].decode())
        elif number != PINGED:
            self._waiting.popleft()(WireReply(transaction, code, frame[16:]))

    def _begin(self, frame: bytes) -> None:
        _, granted_ms, session_id = struct.unpack_from(">iiq", frame)
        if session_id == 0:
            self._opened.set_exception(SessionOver("the servers have ended the session"))
            return
        self.key = SessionKey(session_id, frame[20:36])
        self._every_s = granted_ms / 3000
        self._ping()
        self._opened.set_result(None)

    def _ping(self) -> None:
        self._transport.write(PING_FRAME)
        self._pinging = asyncio.get_running_loop().call_later(self._every_s, self._ping)


# Frames and answers
# ------------------


def make_frame(kind: int, body: bytes = b"", number: int = NUMBER) -> bytes:
    return struct.pack(">iii", 8 + len(body), number, kind) + body


PING_FRAME: Final = make_frame(PING, number=PINGED)


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return LENGTH.pack(len(data)) + data


@lru_cache(100_000)
def get_frame(path: str, watch: bool = False) -> bytes:
    return make_frame(GET, text(path) + bytes((watch,)))


@lru_cache(1_000)
def children_frame(path: str, watch: bool = False) -> bytes:
    return make_frame(CHILDREN, text(path) + bytes((watch,)))


def create_frame(path: str, data: bytes, *, ephemeral: bool = False) -> bytes:
    return make_frame(CREATE, text(path) + text(data) + ANYBODY + LENGTH.pack(EPHEMERAL if ephemeral else 0))


def delete_frame(path: str) -> bytes:
    return make_frame(DELETE, text(path) + LENGTH.pack(-1))


def set_frame(path: str, data: bytes) -> bytes:
    return make_frame(SET, text(path) + text(data) + LENGTH.pack(-1))


def sync_frame(path: str) -> bytes:
    return make_frame(SYNC, text(path))


def read_data(reply: WireReply) -> tuple[bytes, int]:
    """What a znode holds, and the session that it lives by."""
    (size,) = LENGTH.unpack_from(reply.body)
    (owner,) = struct.unpack_from(">q", reply.body, 4 + size + OWNER_AT)
    return reply.body[4 : 4 + size], owner


def read_names(reply: WireReply) -> list[str]:
    (count,) = LENGTH.unpack_from(reply.body)
    names, at = list[str](), 4
    for _ in range(count):
        (size,) = LENGTH.unpack_from(reply.body, at)
        names.append(reply.body[at + 4 : at + 4 + size].decode())
        at += 4 + size
    return names
