"""A proxy's door over an upstream, with groups in memory, in the loop of a test."""

from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, Self, cast

from muster.coordinator.config import Address, Settings, load_settings
from muster.coordinator.edge.cluster_view import ClusterView
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamAddress, UpstreamError
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.server.listeners.kafka_listener import KafkaListenerContext
from muster.coordinator.server.listeners.proxy_listener import NodeProxyListener
from tests.interop.kafka_broker import free_port
from tests.support.kafka.client import KafkaClient
from tests.support.kafka.memory_node import SHARDS, MemoryNode

ID_BASE = 1_000_000
TRIES = 20


def free_ports(count: int) -> range:
    """Ports in a row of which none was taken a moment ago."""
    import socket

    for _ in range(TRIES):
        first = free_port()
        with ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
            except (OSError, OverflowError):
                continue
        return range(first, first + count)
    raise RuntimeError(f"no {count} free ports in a row in {TRIES} tries")


class Proxied:
    """Use it in an `async with`. `topics`: partition counts of the upstream's topics, for the groups."""

    def __init__(
        self,
        servers: tuple[Address, ...],
        topics: dict[str, int] | None = None,
        *,
        brokers: int = 4,
        cluster: ClusterView | None = None,
        transactions: object | None = None,
        driver_of: Callable[[Any], Any] = lambda driver: driver,
        security: Callable[[Settings], Any] | None = None,
        **settings: str,
    ) -> None:
        self.ports = free_ports(brokers)
        given = {
            "engine": "kafka://" + ",".join(f"{host}:{port}" for host, port in servers),
            "engine.kafka.broker.ports": f"{self.ports[0]}-{self.ports[-1]}",
            "kafka.listeners": "127.0.0.1:0",
            "node.id": "1",
        }
        self.settings = load_settings(None, given | {name.replace("_", "."): value for name, value in settings.items()})
        self.upstream = Upstream(UpstreamAddress(servers, connect_s=10, answer_s=10))
        self.door = NodeProxyListener(self.settings)
        self.node = MemoryNode(topics or {})
        self.changed = 0
        self._topics = topics or {}
        self._cluster = cluster
        self._transactions = transactions
        self._driver_of = driver_of
        self.security = None if security is None else security(self.settings)

    async def __aenter__(self) -> Self:
        self.door.bind()
        await self.node.__aenter__()
        with suppress(UpstreamError):  # it may not be there yet
            await self.upstream.refresh([])
        context = KafkaListenerContext(
            driver=cast(Any, self._driver_of(self.node.driver)),
            partitions=lambda: self._topics,
            tell=lambda *_, **__: None,
            security=self.security,
        )
        await self.door.start(
            context,
            self.upstream,
            shards=SHARDS,
            log_span=lambda topic, partition: (0, 0),
            cluster=self._cluster,
            transactions=self._transactions,
            topics_changed=self._changed,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.door.close(0.1)
        self.upstream.close()
        await self.node.__aexit__()

    @property
    def own(self) -> str:
        """The node's own port, as clients are given it."""
        return f"127.0.0.1:{self.door.bound.port}"

    def client(self, broker: int | None = None) -> KafkaClient:
        """Of the node's own port, or of that of a broker."""
        first = self.settings.engine_kafka_broker_id_first
        port = self.door.bound.port if broker is None else self.ports[broker - first]
        return KafkaClient("127.0.0.1", port)

    def _changed(self) -> None:
        self.changed += 1


Story = Callable[[Proxied], Any]
