"""A ZooKeeper session on an asyncio loop: requests are awaited, watches fire as callbacks on the loop.

kazoo talks to the servers in threads of its own; nothing here blocks the loop. All methods belong to the loop's thread.
kazoo is imported when a session is opened, so nodes without ZooKeeper do not need it. An expired session is renewed;
`epoch` counts the sessions.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from muster.coordinator.config import ConnectString, parse_connect
from muster.coordinator.zookeeper import errors

__all__ = ["ConnectString", "SessionState", "WatchEvent", "Znode", "ZooKeeperSession", "parse_connect"]

SESSION_TIMEOUT_MS = 6_000
CONNECTION_TIMEOUT_MS = 6_000
RECONNECT_DELAY_S = 0.05
MAX_RECONNECT_DELAY_S = 1.0


class SessionState(Enum):
    """How the session stands: in touch; out of touch, with its ephemerals still there; or over."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


MAX_REQUEST_BYTES = 0xFFFFF
"""A request of so many ZooKeeper refuses, by closing the connection (`jute.maxbuffer`, as it comes)."""
FRAME_BYTES = 64
"""At most so many go for a step of a request, and for what is around them, beside paths and data."""


class Znode(NamedTuple):
    """What a znode holds. `owner` is the session id that an ephemeral lives by, 0 for a persistent one.

    `made` is the number of the transaction that made it: one that was deleted and made again has another.
    """

    data: bytes
    version: int
    owner: int
    created_ms: int
    changed_ms: int
    made: int = 0


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A one-shot watch went off. `session`: the connection broke and took the watch along; read afresh, set it anew."""

    kind: Literal["created", "deleted", "changed", "children", "session"]
    path: str


Watch: TypeAlias = Callable[[WatchEvent], None]
StateListener: TypeAlias = Callable[[SessionState], None]


class ZooKeeperSession:
    """One client session, renewed by itself after it expired; `epoch` counts them.

    Listeners hear every change of `state`. After LOST comes CONNECTED with another `id` and the next `epoch`: what was
    ephemeral must then be made again. A watch fires once; see `WatchEvent` for what a broken connection does to it. It
    may fire before the read that set it has returned: note that it did, and read again.
    """

    state: SessionState
    epoch: int
    """0 until the first session; raised by each new one."""

    def __init__(
        self,
        connect: ConnectString | str,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        connection_timeout_ms: int = CONNECTION_TIMEOUT_MS,
        login: str = "",
    ) -> None:
        """Raises ExtraMissing without kazoo. session_timeout_ms: as it is asked for; the servers bound it to 2 to 20 of
        their ticks, and from the first session on it is what they have granted. login: USER:PASSWORD (scheme digest),
        or nothing."""
        self.connect = parse_connect(connect) if isinstance(connect, str) else connect
        self.session_timeout_ms = session_timeout_ms
        self.connection_timeout_ms = connection_timeout_ms
        self.login = login
        self.state = SessionState.LOST
        self.epoch = 0
        self._loop = asyncio.get_running_loop()
        self._listeners: list[StateListener] = []
        self._id = 0
        self._closed = False
        self._in_touch = asyncio.Event()
        self._asked: set[asyncio.Future[Any]] = set()
        self.client = self._client()

    @property
    def id(self) -> int:
        """The session id that this session's ephemerals show as their owner; 0 before the first."""
        return self._id

    def on_state(self, listener: StateListener) -> None:
        """Tell `listener` of each change from now on, on the loop."""
        self._listeners.append(listener)

    async def open(self, *, make_chroot: bool = True) -> None:
        """Connect, and make the chroot if it is not there. Raises Unreachable after the connection timeout.

        Without `make_chroot` raises MissingChroot instead: what only looks must not leave anything behind.
        """
        self.client.add_listener(self._heard)
        # kazoo looks host names up before it starts its threads.
        await asyncio.to_thread(self.client.start_async)
        try:
            async with asyncio.timeout(self.connection_timeout_ms / 1000):
                await self._in_touch.wait()
                if self.connect.chroot:
                    await self._enter_chroot(make_chroot)
        except (TimeoutError, errors.ConnectionLost, errors.SessionExpired) as error:
            await self.close()
            raise errors.ZooKeeperUnreachable(
                f"no ZooKeeper answered at {self.connect.hosts} within {self.connection_timeout_ms} ms "
                "(zookeeper.connection.timeout.ms); start one (muster zookeeper start), or correct zookeeper.connect"
            ) from error
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the session: its ephemerals go at once. Nobody is called any more; who waits hears SessionExpired."""
        if self._closed:
            return
        self._closed = True
        self.client.remove_listener(self._heard)
        self._listeners.clear()
        try:
            await asyncio.to_thread(self._stop)
        finally:
            for future in list(self._asked):
                settle_future(future, None, errors.SessionExpired("the session was closed"))

    def forget_what_was_seen(self) -> None:
        """Let servers in that know less than this session has seen: they were emptied, or restored from an older copy.
        They end the session, and a new one begins."""
        self.client.last_zxid = 0

    async def connected(self) -> None:
        """Return once the session is in touch with a server."""
        await self._in_touch.wait()

    # -- what can be asked. Each may raise ConnectionLost and SessionExpired -----------------------------------

    async def get(self, path: str, watch: Watch | None = None) -> Znode | None:
        """The znode, None when it is not there. `watch` fires on change or deletion; not set when it is not there."""
        try:
            data, stat = await self.perform(lambda c: c.get_async(path, self._kazoo_watch(watch)))
        except errors.NoNode:
            return None
        return make_znode(data, stat)

    async def exists(self, path: str, watch: Watch | None = None) -> bool:
        """Whether the znode is there. `watch` fires on creation, change or deletion."""
        return await self.perform(lambda c: c.exists_async(path, self._kazoo_watch(watch))) is not None

    async def children(self, path: str, watch: Watch | None = None) -> list[str] | None:
        """The names below, sorted; None when the znode is not there, and then `watch` fires once it is."""
        while True:
            try:
                names = await self.perform(lambda c: c.get_children_async(path, self._kazoo_watch(watch)))
            except errors.NoNode:
                if watch is not None and await self.exists(path, watch):
                    continue  # made meanwhile
                return None
            return sorted(cast(list[str], names))

    async def listing(self, path: str, watch: Watch | None = None) -> tuple[list[str], int] | None:
        """Like `children`, with the number of the transaction that last added or took one away."""
        try:
            names, stat = await self.perform(
                lambda c: c.get_children_async(path, self._kazoo_watch(watch), include_data=True)
            )
        except errors.NoNode:
            return None
        return sorted(names), int(stat.pzxid)

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, parents: bool = True) -> None:
        """Make the znode, and with `parents` the persistent ones above. Raises NodeExists; NoNode without a parent;
        ZooKeeperRequestTooLarge."""
        check_size([(path, data)])
        await self.perform(lambda c: c.create_async(path, data, ephemeral=ephemeral, makepath=parents))

    async def create_private(self, path: str, data: bytes) -> None:
        """Make a znode that is for this session's login alone, if it has one. Raises NodeExists; NoNode without a
        parent."""
        await self.perform(lambda c: c.create_async(path, data, acl=self._private_acl()))

    async def make_private(self, path: str) -> None:
        """Give it to this session's login alone. Nothing without a login."""
        if self.login:
            await self.perform(lambda c: c.set_acls_async(path, self._private_acl()))

    def _private_acl(self) -> Any:
        from kazoo.security import make_digest_acl

        user, _, password = self.login.partition(":")
        return [make_digest_acl(user, password, all=True)] if self.login else None

    async def put(self, path: str, data: bytes, version: int = -1) -> int:
        """Replace what the znode holds, if it still has that version (-1: any); its new one.

        Raises NoNode, BadVersion, ZooKeeperRequestTooLarge.
        """
        check_size([(path, data)])
        stat = await self.perform(lambda c: c.set_async(path, data, version))
        return int(stat.version)

    async def write(self, path: str, data: bytes) -> None:
        """Put it there, whether or not the znode was there before."""
        while True:
            try:
                await self.put(path, data)
            except errors.NoNode:
                try:
                    await self.create(path, data)
                except errors.NodeExists:
                    continue
            return

    async def ensure(self, path: str) -> None:
        """Make the persistent znode and those above it, as far as they are not there."""
        await self.perform(lambda c: c.ensure_path_async(path))

    async def delete(self, path: str, version: int = -1) -> bool:
        """Whether it was there. Raises NotEmpty, BadVersion."""
        try:
            await self.perform(lambda c: c.delete_async(path, version))
        except errors.NoNode:
            return False
        return True

    async def delete_all(self, path: str) -> None:
        """Delete the znode and all below it."""
        for name in await self.children(path) or ():
            await self.delete_all(f"{path}/{name}")
        await self.delete(path)

    async def commit(self, build: Callable[[Any], object]) -> None:
        """Do all or nothing of what `build` puts on kazoo's transaction; the error of the failed step is raised, and
        its `step` says which that was. Raises ZooKeeperRequestTooLarge before anything is sent."""
        transaction = self.client.transaction()
        build(transaction)
        check_size([(each.path, getattr(each, "data", b"")) for each in transaction.operations])
        results = await self.perform(lambda c: transaction.commit_async())
        failed = [(step, result) for step, result in enumerate(results) if isinstance(result, Exception)]
        if failed:
            step, error = next((each for each in failed if not is_consequence(each[1])), failed[0])
            raised = translate_error(error)
            if isinstance(raised, errors.ZooKeeperError):
                raised.step = step
            raise raised

    async def sync(self, path: str) -> None:
        """Have the server that this session talks to catch up with the leader, before it is read."""
        await self.perform(lambda c: c.sync_async(path))

    async def perform(self, call: Callable[[Any], Any]) -> Any:
        """Await one of kazoo's asynchronous calls, which `call` makes; its errors become ours."""
        if self._closed:
            raise errors.SessionExpired("the session was closed")
        result = call(self.client)  # first: what kazoo refuses at once is nothing to wait for
        future: asyncio.Future[Any] = self._loop.create_future()
        self._asked.add(future)
        future.add_done_callback(self._asked.discard)

        def hand_over(done: Any) -> None:  # in a thread of kazoo
            try:
                value, error = done.get(), None
            except Exception as raised:
                value, error = None, raised
            self.on_loop(settle_future, future, value, error)

        result.rawlink(hand_over)
        try:
            return await future
        except Exception as error:
            raise translate_error(error) from error

    # -- kazoo's side ---------------------------------------------------------------------------------------

    def _client(self) -> Any:
        try:
            from kazoo.client import KazooClient
            from kazoo.retry import KazooRetry
        except ImportError as missing:
            raise errors.ExtraMissing("kazoo") from missing
        quiet = SessionTimeoutLogger(self._granted)
        forever = KazooRetry(max_tries=-1, delay=RECONNECT_DELAY_S, max_delay=MAX_RECONNECT_DELAY_S)
        return KazooClient(
            hosts=self.connect.hosts,
            timeout=self.session_timeout_ms / 1000,
            connection_retry=forever,
            auth_data=[("digest", self.login)] if self.login else None,
            logger=quiet,
        )

    def _granted(self, timeout_ms: int) -> None:  # in a thread of kazoo, before it says that it is connected
        self.session_timeout_ms = timeout_ms

    async def _enter_chroot(self, make: bool) -> None:
        chroot = self.connect.chroot
        if make:
            await self.ensure(chroot)
        elif not await self.exists(chroot):
            raise errors.MissingChroot(
                f"there is no {chroot} in ZooKeeper at {self.connect.hosts}; expected the chroot that nodes and "
                "consumers have in their zookeeper.connect"
            )
        self.client.chroot = self.connect.chroot

    def _stop(self) -> None:
        self.client.stop()
        self.client.close()

    def _heard(self, state: str) -> None:  # in a thread of kazoo
        known = self.client.client_id
        self.on_loop(self._changed, SessionState(state.lower()), known[0] if known else 0)

    def _changed(self, state: SessionState, session_id: int) -> None:
        if self._closed:
            return
        self.state = state
        if state is SessionState.CONNECTED:
            if session_id != self._id:
                self._id = session_id
                self.epoch += 1
            self._in_touch.set()
        else:
            self._in_touch.clear()
        for listener in list(self._listeners):
            listener(state)

    def _kazoo_watch(self, watch: Watch | None) -> Callable[[Any], None] | None:
        """kazoo's own kind of watch: it tells ours, on the loop."""
        return None if watch is None else KazooWatch(self, watch)

    def fire(self, watch: Watch, kind: str, path: str | None) -> None:
        """For the watches that this session has handed to kazoo."""
        if not self._closed:
            word = EVENT_KINDS.get(kind, "session")
            watch(WatchEvent(cast(Any, word), self._relative(path or "")))

    def _relative(self, path: str) -> str:
        chroot = self.connect.chroot
        return path.removeprefix(chroot) if chroot and path.startswith(chroot) else path

    def on_loop(self, call: Callable[..., None], *arguments: object) -> None:
        """Call it on the session's loop, from any thread."""
        with suppress(RuntimeError):  # the loop was closed: nobody waits any more
            self._loop.call_soon_threadsafe(call, *arguments)


def check_size(writes: Sequence[tuple[str, bytes]]) -> None:
    """Refuse what is too large for one request. Raises ZooKeeperRequestTooLarge, which names the largest."""
    size = sum(len(path.encode()) + len(data) + FRAME_BYTES for path, data in writes) + FRAME_BYTES
    if size >= MAX_REQUEST_BYTES:
        raise errors.ZooKeeperRequestTooLarge(max(writes, key=lambda each: len(each[1]))[0], size, MAX_REQUEST_BYTES)


@dataclass(frozen=True, slots=True)
class KazooWatch:
    """A watch as kazoo calls it. Equal for equal watches: one that is set twice fires once."""

    session: ZooKeeperSession
    watch: Watch

    def __call__(self, event: Any) -> None:  # in a thread of kazoo
        self.session.on_loop(self.session.fire, self.watch, event.type, event.path)


class SessionTimeoutLogger(logging.Logger):
    """kazoo's logger: the only one that it tells how long a session the servers have granted.

    Of the rest errors are passed on: what matters of the connection is told by our own listeners.
    """

    def __init__(self, tell: Callable[[int], None]) -> None:
        super().__init__("muster.zookeeper.kazoo", logging.ERROR)
        self.parent = logging.getLogger("muster.zookeeper")
        self._tell = tell

    def log(self, level: int, msg: object, *args: object, **more: Any) -> None:
        if "negotiated session timeout" in str(msg):
            granted = args[GRANTED_TIMEOUT_ARGUMENT] if len(args) > GRANTED_TIMEOUT_ARGUMENT else None
            if isinstance(granted, int) and granted > 0:
                self._tell(granted)
        super().log(level, msg, *args, **more)


GRANTED_TIMEOUT_ARGUMENT = 2
"""Among the arguments of that line: after the session's id and its password."""

EVENT_KINDS = {"CREATED": "created", "DELETED": "deleted", "CHANGED": "changed", "CHILD": "children"}


def settle_future(future: "asyncio.Future[Any]", value: object, error: Exception | None) -> None:
    if future.done():
        return  # its waiter gave up
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)


def make_znode(data: bytes, stat: Any) -> Znode:
    return Znode(data, stat.version, stat.ephemeralOwner, stat.ctime, stat.mtime, stat.czxid)


def is_consequence(error: Exception) -> bool:
    """Whether a step of a transaction only failed because another one did."""
    from kazoo import exceptions as kazoo

    return isinstance(error, kazoo.RolledBackError | kazoo.RuntimeInconsistency)


def translate_error(error: Exception) -> Exception:
    """kazoo's exception as ours; what is none of its expected ones is a bug and stays as it is."""
    from kazoo import exceptions as kazoo
    from kazoo.handlers.threading import KazooTimeoutError

    table: tuple[tuple[tuple[type[Exception], ...], type[errors.ZooKeeperError], str], ...] = (
        ((kazoo.NoNodeError,), errors.NoNode, "there is no such znode"),
        ((kazoo.NodeExistsError,), errors.NodeExists, "the znode is there already"),
        ((kazoo.BadVersionError,), errors.BadVersion, "the znode was changed since it was read"),
        ((kazoo.NotEmptyError,), errors.NotEmpty, "the znode has children"),
        ((kazoo.NoAuthError,), errors.NoAuth, "the znode is for those who log in"),
        (
            (kazoo.SessionExpiredError, kazoo.ConnectionClosedError),
            errors.SessionExpired,
            "the ZooKeeper session is over",
        ),
        (
            (kazoo.ConnectionLoss, kazoo.OperationTimeoutError, KazooTimeoutError),
            errors.ConnectionLost,
            "the connection to ZooKeeper broke while the answer was awaited",
        ),
        ((kazoo.KazooException,), errors.ZooKeeperError, "ZooKeeper refused"),
    )
    for theirs, ours, sentence in table:
        if isinstance(error, theirs):
            return ours(f"{sentence} ({type(error).__name__})")
    return error
