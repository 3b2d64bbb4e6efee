"""Who may do what, in a cluster: a node's part in that, begun once it has joined."""

from time import monotonic
from typing import TYPE_CHECKING

from muster.coordinator.edge.clock import monotonic_ms, wall_ms
from muster.coordinator.replication.io.following import SecurityFollower
from muster.coordinator.replication.io.leading import PLACE, SecurityLeader
from muster.coordinator.replication.io.replica_manager import ReplicaManager
from muster.coordinator.replication.io.secured_mending import SecurityCopyRepair
from muster.coordinator.replication.io.wire.links import NodeLinks, address_in
from muster.coordinator.replication.protocol.facts import SECURITY
from muster.coordinator.server.cluster_backend.shared_store import SharedSecurityStore
from muster.storage.broker.broker import Broker
from muster.storage.errors import StorageError

if TYPE_CHECKING:
    from muster.coordinator.server.cluster_backend.joined import ClusterBackend
    from muster.coordinator.server.security.node_security import NodeSecurity


async def follow_cluster_security(security: "NodeSecurity | None", joined: "ClusterBackend", disk: Broker) -> None:
    """Returns once it is known who may do what. disk: where this node's copies are.

    Raises SecurityDamaged, StorageError.
    """
    if security is None:
        if SECURITY in joined.side.image.topics:
            raise StorageError(
                "authorizer is none, but the other nodes of the cluster ask who may do what: whoever reaches this one "
                "would need no right for what is theirs; set authorizer=acl as at the others"
            )
        return
    store = security.store
    assert isinstance(store, SharedSecurityStore), "it was made for one of many"
    side = joined.side

    def failed(why: BaseException) -> None:
        if not side.failure.done():
            side.failure.set_exception(why)

    await store.know(security_follower_of(side, disk), failed, there=SECURITY in side.image.topics)
    security.topics = joined.broker.topics
    await security.start()


def security_follower_of(side: ReplicaManager, disk: Broker) -> SecurityFollower:
    """A node's part in `__security`, whether it leads that or not."""
    leading = SecurityLeader(disk, side.replicas, appended=side.appended, wall_ms=wall_ms, happened=side.settle)
    mending = SecurityCopyRepair(PLACE, side.replicas, side.logs)

    def look() -> None:
        if mending.look(monotonic_ms()):
            side.settle()

    side.desk.security = leading
    side.on_moved(leading.moved)
    side.on_learned(lambda changes: leading.moved(PLACE))
    return SecurityFollower(
        side.replicas.me,
        side.image,
        leading,
        lambda: NodeLinks(side.calling, lambda node: address_in(side.image, node)),
        monotonic,
        look,
    )
