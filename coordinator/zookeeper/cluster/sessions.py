"""By how long a session each node of a cluster leads: written down before it may lead, read by who may take over.

`zookeeper.session.timeout.ms` is to be the same everywhere, and is not while an operator changes it one node after the
other. A leader goes by its own; so whoever takes over waits for the longest of any.
"""

from muster.coordinator.zookeeper.cluster import cluster_layout
from muster.coordinator.zookeeper.cluster.cluster_layout import SessionLength
from muster.coordinator.zookeeper.consumer import gather_bounded
from muster.coordinator.zookeeper.session import ZooKeeperSession


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
