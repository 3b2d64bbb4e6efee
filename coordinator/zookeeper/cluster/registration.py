"""A cluster node's entry in `/brokers/ids` (CL-Z2, CL-Z3): taken at the start, and kept right from then on.

The node epoch is the transaction that created the registration, so a new registration has a higher one.

Each node also writes down the length of its session before it may lead. `zookeeper.session.timeout.ms` should be the
same everywhere, but is not while an operator changes it node by node. A leader goes by its own session, so a node that
takes over waits for the longest session of any node.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from muster.coordinator.edge.background_tasks import RestartedTask
from muster.coordinator.replication.protocol.cluster_metadata import NO_EPOCH, ClusterNode
from muster.coordinator.zookeeper import layout as paths
from muster.coordinator.zookeeper.cluster import cluster_layout
from muster.coordinator.zookeeper.cluster.cluster_layout import SessionLength
from muster.coordinator.zookeeper.consumer_group import gather_bounded
from muster.coordinator.zookeeper.errors import (
    BadVersion,
    LoginUnreadable,
    MalformedZnode,
    NoAuth,
    NodeExists,
    NoNode,
    ZooKeeperError,
)
from muster.coordinator.zookeeper.node_registry import NodeIdTaken, is_cluster_registration
from muster.coordinator.zookeeper.session import SessionState, WatchEvent, Znode, ZooKeeperSession

# Session lengths
# ---------------


async def record_session_length(session: ZooKeeperSession, node_id: int, own: SessionLength) -> int:
    """Write this node's down, before it registers; the longest of all, in ms. Raises ZooKeeper's weather, and
    MalformedZnode.

    With the same directory (which is locked) the node's former life is over, and so is what it led by. With another
    one that life may go on, cut off somewhere: the longer of both counts. That of a node that was removed counts on.
    """
    path = f"{cluster_layout.SESSIONS}/{node_id}"
    found = await session.get(path)
    if found is not None:
        before = cluster_layout.read_session_length(path, found.data)
        if before.directory != own.directory or not own.directory:
            own = own._replace(session_ms=max(own.session_ms, before.session_ms))
    if found is None or found.data != own.to_json():
        await session.write(path, own.to_json())
    await session.sync(cluster_layout.SESSIONS)

    async def length(name: str) -> int:
        each = await session.get(f"{cluster_layout.SESSIONS}/{name}")
        return (
            0
            if each is None
            else cluster_layout.read_session_length(f"{cluster_layout.SESSIONS}/{name}", each.data).session_ms
        )

    return max(own.session_ms, *await gather_bounded(await session.children(cluster_layout.SESSIONS) or (), length))


# The secret of the cluster (CL-N4)
# ---------------------------------


def read_login(file: str) -> str:
    """USER:PASSWORD from a file; "" without one. Raises LoginUnreadable."""
    if not file:
        return ""
    try:
        login = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise LoginUnreadable(f"zookeeper.digest.file is {file}, which cannot be read: {error}") from None
    user, colon, password = login.partition(":")
    if not (user and colon and password) or "\n" in login:
        raise LoginUnreadable(f"zookeeper.digest.file is {file}; expected one line, USER:PASSWORD, in it")
    return login


async def settle_node_secret(session: ZooKeeperSession, fresh: bytes) -> bytes:
    """What nodes prove to each other that they know; `fresh` where there is none yet. Whoever writes first decides for
    all. For the session's login alone, if it has one. Raises MalformedZnode, NoAuth, and ZooKeeper's weather."""
    try:
        while (found := await session.get(cluster_layout.SECRET)) is None:
            await session.ensure(cluster_layout.SECRET.rpartition("/")[0])
            with suppress(NodeExists):
                await session.create_private(cluster_layout.SECRET, cluster_layout.secret_json(fresh))
        await session.make_private(cluster_layout.SECRET)
    except NoAuth:
        login = "as another user" if session.login else "without zookeeper.digest.file"
        raise NoAuth(
            f"the secret that nodes share ({cluster_layout.SECRET} of ZooKeeper at {session.connect}) cannot be read "
            f"{login}; expected the login of the other nodes. Give every node the same zookeeper.digest.file"
        ) from None
    return cluster_layout.read_secret(cluster_layout.SECRET, found.data)


# Registration
# ------------

RETRY_S = 0.1
ROOTS = (
    *paths.PERSISTENT_ROOTS,
    cluster_layout.CONFIG_BROKERS,
    paths.CONFIG_CHANGES,
    cluster_layout.CLUSTER_VERSION.rpartition("/")[0],
    cluster_layout.DRAINED,
)
"""Folders that are watched, or are the parents of what a multi makes."""

log = structlog.get_logger("muster.zookeeper")


class MixedNodeKinds(ZooKeeperError):
    """Nodes are registered that are beside each other, and make no cluster."""


class ClusterRegistration:
    """node: how it registers now (its epoch is not looked at).

    on_registered is told the node epoch of each registration, on the loop; on_taken, that another node has taken its
    place while this one ran: with an empty disk in its stead, or by a mistake.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        node: Callable[[], ClusterNode],
        *,
        wall_ms: Callable[[], int],
        on_registered: Callable[[int], None] = lambda epoch: None,
        on_taken: Callable[[NodeIdTaken], None] = lambda error: None,
    ) -> None:
        self._session = session
        self._node = node
        self._wall_ms = wall_ms
        self._on_registered = on_registered
        self._on_taken = on_taken
        self._path = paths.broker_path(node().id)
        self._stale = asyncio.Event()
        self._running = RestartedTask("registration in ZooKeeper", self._keep)
        self._over = NO_EPOCH
        self.epoch = NO_EPOCH
        """That of the registration; NO_EPOCH while there is none."""

    async def register(self) -> int:
        """Register, once, at the start; the node epoch. Raises MixedNodeKinds, NodeIdTaken (both name who is there),
        and ZooKeeper's weather. The node has locked its data directory by then: who is registered with the same is its
        own former life."""
        await self.prepare()
        await self._register()
        return self.epoch

    async def prepare(self) -> None:
        """What has to be before: folders, and no node of the other kind. Raises MixedNodeKinds, and ZooKeeper's
        weather."""
        for root in ROOTS:
            await self._session.ensure(root)
        await self._must_be_of_a_kind()

    def start(self) -> None:
        """Keep it right from now on."""
        self._session.on_state(self._session_changed)
        self._running.start()

    async def stop(self) -> None:
        """Look after nothing any more. The registration goes with the session."""
        await self._running.stop()

    def register_again(self, epoch: int) -> None:
        """The controller says that the registration of this epoch counts no more (CL-C9): make another."""
        if epoch == self.epoch != NO_EPOCH:
            self._over = epoch
            self._stale.set()

    async def _must_be_of_a_kind(self) -> None:
        others = []
        for name in await self._session.children(paths.BROKER_IDS) or ():
            path = f"{paths.BROKER_IDS}/{name}"
            znode = await self._session.get(path)
            if znode is not None and is_standalone_registration(path, znode):
                found = paths.read_broker(path, znode.data)
                others.append(f"{name} at {found.address}")
        if others:
            raise MixedNodeKinds(
                f"ZooKeeper at {self._session.connect} has nodes that make no cluster: {', '.join(others)}; this one "
                "has inter.broker.listeners. Give the cluster a chroot of its own in zookeeper.connect, or set "
                "inter.broker.listeners for all of them"
            )

    async def _keep(self) -> None:
        self._stale.set()
        while True:
            await self._stale.wait()
            await self._session.connected()
            self._stale.clear()
            try:
                await self._register()
            except NodeIdTaken as error:
                log.error("not registered", why=str(error))  # its end wakes us
                self._on_taken(error)
            except ZooKeeperError as error:
                log.debug("not registered for now", why=str(error))
                self._stale.set()
                await asyncio.sleep(RETRY_S)

    async def _register(self) -> None:
        """Be registered by this session, and watch it. Raises NodeIdTaken."""
        while True:
            found = await self._session.get(self._path, self._fired)
            if found is not None and found.owner == self._session.id and found.made != self._over:
                break
            if found is not None and found.owner != self._session.id:
                self._must_be_own(found)
            try:
                await self._make(instead=found is not None)
            except (NodeExists, NoNode, BadVersion):
                continue  # its former life has ended just now
        if found.made != self.epoch:
            self.epoch = found.made
            log.info("registered", path=self._path, epoch=found.made)
            self._on_registered(found.made)

    async def _make(self, *, instead: bool) -> None:
        earlier = await self._has_earlier_nodes()
        body = cluster_layout.registration_json(self._node(), timestamp_ms=self._wall_ms(), for_earlier=earlier)

        def build(together: Any) -> None:
            if instead:
                together.delete(self._path)
            together.create(self._path, body, ephemeral=True)

        await self._session.commit(build)

    async def _has_earlier_nodes(self) -> bool:
        """Whether nodes of an earlier version are there: while they are replaced one by one they must find this one."""
        others = [name for name in await self._session.children(paths.BROKER_IDS) or () if name != str(self._node().id)]
        found = await gather_bounded([f"{paths.BROKER_IDS}/{name}" for name in others], self._session.get)
        return any(znode is not None and cluster_layout.is_earlier_registration(znode.data) for znode in found)

    def _must_be_own(self, found: Znode) -> None:
        try:
            holder = cluster_layout.read_registration(self._path, found.data, found.made)
        except MalformedZnode as error:
            raise NodeIdTaken(
                f"{error}; it is held by another session, so this node does not take its place"
            ) from error
        mine = self._node()
        if holder is not None and holder.directory == mine.directory:
            return
        where = paths.read_broker(self._path, found.data)
        raise NodeIdTaken(
            f"broker id {mine.id} is registered by the node at {where.address} already, with another data "
            f"directory ({self._path} of ZooKeeper at {self._session.connect}); give this node another node.id, or "
            "stop that one; if it has just crashed, its registration goes with its session, within "
            f"{self._session.session_timeout_ms} ms"
        )

    def _fired(self, fired: WatchEvent) -> None:
        self._stale.set()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self.epoch = NO_EPOCH
        if state is SessionState.CONNECTED:
            self._stale.set()


def is_standalone_registration(path: str, znode: Znode) -> bool:
    """Whether it is the registration of a node that makes no cluster. What cannot be read is none."""
    try:
        known = cluster_layout.read_registration(path, znode.data, znode.made)
        return known is None and not is_cluster_registration(znode.data)
    except MalformedZnode:
        return False
