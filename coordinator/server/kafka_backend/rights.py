"""A node's part in who may do what, over somebody's Kafka: looked at before its groups are, read before it answers."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from muster.coordinator.config import Settings
from muster.coordinator.edge.clock import wall_ms
from muster.coordinator.kafka_backend import secured_starting
from muster.coordinator.kafka_backend.starting import UnusableUpstream
from muster.coordinator.kafka_backend.upstream.upstream import Upstream
from muster.coordinator.runtime.conditions import GROUPS, Conditions
from muster.coordinator.security.records import encode_security_record
from muster.coordinator.server.kafka_backend.gated_engine import GatedEngine
from muster.coordinator.server.kafka_backend.rights_store import BEGUN, BEHIND, UpstreamSecurityStore
from muster.storage.broker.broker import Broker

if TYPE_CHECKING:
    from muster.coordinator.server.security.node_security import NodeSecurity


async def prepare_security(settings: Settings, upstream: Upstream, *, anew: bool = False) -> None:
    """Before the state topic is made: the topic of rights comes first, so that a node which finds the one finds the
    other. anew: an operator wants it made. Raises Unusable, UpstreamError."""
    topic = settings.security_topic
    if settings.authorizer == "none":
        if await secured_starting.security_topic_exists(upstream, topic):
            raise UnusableUpstream(
                f"authorizer is none, but the upstream has {topic}: other nodes of the cluster ask who may do what, "
                "and whoever reaches this one would need no right; set authorizer=acl as at the others"
            )
        return
    await secured_starting.prepare_security_topic(
        upstream,
        topic,
        replication=settings.engine_kafka_state_replication_factor,
        id_base=settings.engine_kafka_node_id_base,
        new=anew
        or await secured_starting.is_new_cluster(upstream, settings.state_topic, settings.engine_kafka_cluster),
        mark=[(*encode_security_record(BEGUN), None)],
        now_ms=wall_ms(),
    )


class UpstreamSecurity:
    """`share`, then `judge` once there is an engine; `look` every now and then."""

    def __init__(
        self,
        settings: Settings,
        broker: Broker,
        upstream: Upstream,
        instance: str,
        fail: Callable[[BaseException], None],
    ) -> None:
        """fail: hears why the node may not go on."""
        self.store = UpstreamSecurityStore(
            broker, upstream, settings.security_topic, node=settings.node_id, instance=instance, wall_ms=wall_ms
        )
        self._fail = fail

    async def share(self, security: "NodeSecurity") -> None:
        """Returns once it is known who may do what. Raises SecurityDamaged, StorageError."""
        await self.store.know(self._fail)
        await security.start()

    def judge(self, engine: GatedEngine) -> None:
        """What the engine is asked is refused while nobody knows."""
        engine.doubts = self.store.stale

    def look(self, conditions: Conditions) -> None:
        if sentence := self.store.behind():
            conditions.report(BEHIND, sentence, impairs=GROUPS)
        else:
            conditions.clear(BEHIND)

    def stop(self) -> None:
        self.store.stop()
