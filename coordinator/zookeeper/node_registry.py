"""A node's entry in ZooKeeper: its registration, its topics, and the cluster id.

For nodes that make no cluster (those of a cluster register by `zookeeper/cluster/registration.py`). One task keeps
registration and topics right: it compares and repairs after a new session, a change of topics, or a znode deleted by
hand. While ZooKeeper is unreachable nothing waits for it. Topics are in `published_topics.py`.
"""

import asyncio
import json
from collections.abc import Callable, Collection

import structlog

from muster.coordinator.config.values import format_address
from muster.coordinator.edge.background_tasks import RestartedTask
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.errors import NodeExists, ZooKeeperError
from muster.coordinator.zookeeper.layout import BrokerZnode, read_broker, read_cluster_id
from muster.coordinator.zookeeper.published_topics import OwnTopics, PublishedTopics
from muster.coordinator.zookeeper.session import SessionState, WatchEvent, Znode, ZooKeeperSession

log = structlog.get_logger("muster.zookeeper")

RETRY_S = 1.0
EXPIRY_SLACK_MS = 3_000
"""How much later than its timeout a server may notice that a session is over."""


class NodeIdTaken(ZooKeeperError):
    """Another node is registered under this id."""


class ClusterNodesRegistered(ZooKeeperError):
    """Nodes are registered that make a cluster; this one is on its own."""


class ClusterMismatch(ZooKeeperError):
    """The data directory belongs to another cluster than ZooKeeper speaks of."""


class ClusterForgotten(ZooKeeperError):
    """ZooKeeper knows nothing of the cluster that the data directory has copies of."""


MOST_COPIES_NAMED = 5


async def settle_cluster_id(
    session: ZooKeeperSession, own: str | None, fresh: str, copies: Collection[str] = ()
) -> str:
    """The cluster's id: what ZooKeeper says, or else `own`, which the data directory has, or else `fresh`.

    copies: topics of the cluster in the data directory; who has any names no cluster. Whoever writes first decides for
    all. Raises ClusterMismatch when `own` is another one, ClusterForgotten.
    """
    found = await session.get(layout.CLUSTER_ID)
    if found is None and copies:
        named = ", ".join(sorted(copies)[:MOST_COPIES_NAMED]) + (", ..." if len(copies) > MOST_COPIES_NAMED else "")
        raise ClusterForgotten(
            f"ZooKeeper at {session.connect} knows no cluster, but the data directory has copies of topics of cluster "
            f"{own} ({named}): ZooKeeper has lost its data, or zookeeper.connect (and its chroot) leads elsewhere. The "
            "node does not start: it would begin a cluster without these topics and their groups. Correct "
            "zookeeper.connect, or restore ZooKeeper's data; to begin anew without these records, give every node an "
            "empty log.dirs"
        )
    if found is None:
        proposal = own or fresh
        try:
            await session.create(layout.CLUSTER_ID, layout.cluster_id_json(proposal))
        except NodeExists:
            return await settle_cluster_id(session, own, fresh, copies)
        log.info("named the cluster", cluster_id=proposal)
        return proposal
    known = read_cluster_id(layout.CLUSTER_ID, found.data)
    if own is not None and own != known:
        raise ClusterMismatch(
            f"the data directory belongs to cluster {own}, ZooKeeper at {session.connect} to {known}; "
            "expected the same; correct zookeeper.connect (and its chroot), or choose another data directory"
        )
    return known


class ZooKeeperRegistry:
    """What node `broker_id` keeps in ZooKeeper. `registration` and `topics` say how things are, whenever asked, and
    what tools ask for there is done to `topics`."""

    def __init__(
        self,
        session: ZooKeeperSession,
        broker_id: int,
        registration: Callable[[], BrokerZnode],
        topics: OwnTopics,
    ) -> None:
        self._session = session
        self._broker_id = broker_id
        self._registration = registration
        self._path = layout.broker_path(broker_id)
        self._stale = asyncio.Event()
        self._published = PublishedTopics(session, broker_id, topics, self._stale.set)
        self._running = RestartedTask("registration in ZooKeeper", self._keep_right)
        self.registered = False
        self.cluster_id = ""
        """Written again where it has gone"""
        self._rooted = True

    async def check_id_is_free(self) -> None:
        """Raises NodeIdTaken when another node is registered under this id, ClusterNodesRegistered where the nodes
        there keep copies for each other: asked before anything is made for this one."""
        holder = await self._session.get(self._path)
        if holder is not None and not self._is_own(holder):
            raise self._taken(holder)
        await self._must_be_beside_nodes_alone()

    async def register(self) -> None:
        """Take the node's place in /brokers/ids, once, at the start. Raises NodeIdTaken, naming the holder.

        A place that this node's own earlier session still holds, since it ended without a word, is waited for.
        """
        for root in layout.PERSISTENT_ROOTS:
            await self._session.ensure(root)
        deadline_s = (self._session.session_timeout_ms + EXPIRY_SLACK_MS) / 1000
        try:
            async with asyncio.timeout(deadline_s):
                while (holder := await self._create_znode()) is not None:
                    if not self._is_own(holder):
                        raise self._taken(holder)
                    log.warning(
                        "waiting for an earlier session of this node to end",
                        path=self._path,
                        at_most_ms=self._session.session_timeout_ms,
                    )
                    await self._gone()
        except TimeoutError as error:
            raise NodeIdTaken(
                f"broker id {self._broker_id} is still held after {deadline_s:.0f} s by a session that gives this "
                "node's own address; is it running twice? Stop the other one, or change node.id"
            ) from error
        self.registered = True
        log.info("registered", path=self._path, zookeeper=str(self._session.connect))

    async def _must_be_beside_nodes_alone(self) -> None:
        """Its topics, its own election of a controller, and what it unpublishes are not for a cluster's chroot."""
        cluster = []
        for name in await self._session.children(layout.BROKER_IDS) or ():
            path = layout.BROKER_IDS + "/" + name
            znode = await self._session.get(path)
            if znode is not None and is_cluster_registration(znode.data):
                found = read_broker(path, znode.data)
                cluster.append(f"{name} at {found.address}")
        if cluster:
            raise ClusterNodesRegistered(
                f"ZooKeeper at {self._session.connect} has nodes that make a cluster: {', '.join(cluster)}; this one "
                "has no inter.broker.listeners. Set it to make this one a node of that cluster, or give it a chroot of "
                "its own in zookeeper.connect"
            )
        if await self._session.exists(layout.CLUSTER_NODE_MARK):
            raise ClusterNodesRegistered(
                f"ZooKeeper at {self._session.connect} is a cluster's, of which no node is up now "
                f"({layout.CLUSTER_NODE_MARK} is there); this one has no inter.broker.listeners. Set it to make "
                "this one a "
                "node of that cluster, or give it a chroot of its own in zookeeper.connect"
            )

    def start(self) -> None:
        """Publish the topics, and keep all of it right from now on."""
        self._session.on_state(self._session_changed)
        self._running.start()

    async def stop(self) -> None:
        """Look after nothing any more. The registration goes with the session."""
        await self._running.stop()

    def changed(self) -> None:
        """The topics, or the doors, are others than before."""
        self._stale.set()

    def restore(self) -> None:
        """ZooKeeper has lost its data: write all that this node keeps there."""
        self._rooted = False
        self._published.forget_settings()
        self._stale.set()

    def has_elsewhere(self, topic: str) -> bool:
        """See `PublishedTopics.has_elsewhere`."""
        return self._published.has_elsewhere(topic)

    async def _keep_right(self) -> None:
        self._stale.set()
        while True:
            await self._stale.wait()
            await self._session.connected()
            self._stale.clear()
            try:
                await self._make_roots_again()
                await self._stay_registered()
                await self._published.reconcile()
            except ZooKeeperError as error:
                log.warning("the state of this node could not be written to ZooKeeper", why=str(error), retry_s=RETRY_S)
                self._stale.set()
                await asyncio.sleep(RETRY_S)

    async def _make_roots_again(self) -> None:
        """What any node makes, where ZooKeeper has lost its data. Raises ClusterMismatch."""
        if self._rooted:
            return
        for root in layout.PERSISTENT_ROOTS:
            await self._session.ensure(root)
        if self.cluster_id:
            await settle_cluster_id(self._session, self.cluster_id, self.cluster_id)
        self._rooted = True

    async def _stay_registered(self) -> None:
        holder = await self._create_znode()
        if holder is None:
            if not self.registered:
                log.info("registered again", path=self._path)
            self.registered = True
            wanted = self._registration()
            found = await self._session.get(self._path, self._fired)
            if found is not None and not same_listeners(read_broker(self._path, found.data), wanted):
                await self._session.put(self._path, wanted.to_json())
            elif found is None:
                self._stale.set()
            return
        self.registered = False
        await self._session.get(self._path, self._fired)  # its end wakes us
        if self._is_own(holder):
            log.warning("waiting for an earlier session of this node to end", path=self._path)
        else:
            log.error("not registered", why=str(self._taken(holder)))

    async def _create_znode(self) -> Znode | None:
        """Make the ephemeral znode; None when it is there and ours, else what another session has put there."""
        try:
            await self._session.create(self._path, self._registration().to_json(), ephemeral=True)
        except NodeExists:
            found = await self._session.get(self._path)
            if found is None:
                return await self._create_znode()
            return None if found.owner == self._session.id else found
        return None

    async def _gone(self) -> None:
        """Return once the znode has changed or is gone."""
        fired = asyncio.Event()
        if await self._session.exists(self._path, lambda _: fired.set()):
            await fired.wait()

    def _is_own(self, holder: Znode) -> bool:
        """Whether it was written by this node before: nobody else answers at its addresses, for this node has them."""
        return same_listeners(read_broker(self._path, holder.data), self._registration())

    def _taken(self, holder: Znode) -> NodeIdTaken:
        found = read_broker(self._path, holder.data)
        where = found.address if found.grpc is None else format_address(*found.grpc)
        return NodeIdTaken(
            f"broker id {self._broker_id} is registered by the node at {where} already "
            f"({self._path} of ZooKeeper at {self._session.connect}); give this node another node.id, or stop that "
            "one; if it has just crashed, its registration goes with its session, within "
            f"{self._session.session_timeout_ms} ms"
        )

    def _fired(self, fired: WatchEvent) -> None:
        self._stale.set()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self.registered = self._rooted = False
        if state is SessionState.CONNECTED:
            self._published.forget_settings()
            self._stale.set()


def same_listeners(one: BrokerZnode, other: BrokerZnode) -> bool:
    """Host and port are one of them, another one in what the first versions of Muster wrote."""
    return set(one.endpoints) == set(other.endpoints)


def is_cluster_registration(data: bytes) -> bool:
    """Whether a registration is that of a node that keeps copies for others. What cannot be read is none."""
    try:
        body = json.loads(data)
    except ValueError:
        return False
    return isinstance(body, dict) and isinstance(told := body.get("muster"), dict) and "directory" in told
