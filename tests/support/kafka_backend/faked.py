"""A whole node over a Kafka that is none: a state topic, the nodes' group, and what else a test puts there."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, Final

from muster.coordinator.config import load_settings
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.server.node.node import CoordinatorNode
from tests.fakes.group_desk import GroupDesk
from tests.fakes.state_topic import StateTopic
from tests.fakes.upstream_broker import HANG_UP, UpstreamBroker
from tests.support.kafka_backend.proxied import free_ports

SHARDS: Final = 4
BROKER: Final = 1
SESSION_MS: Final = 2_000
BROKER_RESOURCE: Final = 4


class FakeKafka:
    """host: what the broker calls itself; `settings`: what it tells of itself."""

    def __init__(self, broker: UpstreamBroker, host: str) -> None:
        self.broker = broker
        self.host = host
        self.topic = StateTopic(broker, "muster.state", SHARDS)
        self.topic.configs["min.insync.replicas"] = "1"
        self.desk = GroupDesk(broker, SESSION_MS)
        self.settings: dict[str, str] = {}
        self._state_metadata = broker.answers["Metadata"]
        broker.offers[17] = (0, 1)
        broker.offers[60] = (0, 1)
        broker.offers[44] = (0, 1)
        broker.answers |= {
            "Metadata": self._metadata,
            "FindCoordinator": self._coordinator,
            "DescribeConfigs": self._describe,
            "DescribeCluster": self._cluster,
            "SaslHandshake": lambda request: struct("SaslHandshakeResponse")(mechanisms=["PLAIN"]),
            "SaslAuthenticate": lambda request: struct("SaslAuthenticateResponse")(),
            "ListGroups": lambda request: struct("ListGroupsResponse")(),
            "IncrementalAlterConfigs": self._altered,
        }

    def refuse_others(self, apis: Sequence[str]) -> None:
        """These end the connection: it does not know them."""
        for api in apis:
            if api != "ApiVersions":
                self.broker.answers.setdefault(api, lambda request: HANG_UP)

    def _metadata(self, request: Any) -> Any:
        answer = self._state_metadata(request)
        for each in answer.brokers:
            each.host = self.host
        return answer

    def _coordinator(self, request: Any) -> Any:
        port = self.broker.address.port
        keys = [getattr(request, "key", "")] if not request.coordinator_keys else request.coordinator_keys
        made = struct("FindCoordinatorResponse.coordinators")
        rows = [made(key=key, node_id=BROKER, host=self.host, port=port) for key in keys]
        return struct("FindCoordinatorResponse")(node_id=BROKER, host=self.host, port=port, coordinators=rows)

    def _cluster(self, request: Any) -> Any:
        row = struct("DescribeClusterResponse.brokers")(broker_id=BROKER, host=self.host, port=self.broker.address.port)
        return struct("DescribeClusterResponse")(cluster_id="upstream", controller_id=BROKER, brokers=[row])

    def _describe(self, request: Any) -> Any:
        """A broker's own settings, and for whatever else is asked those of the state topic."""
        row, made = struct("DescribeConfigsResponse.results"), struct("DescribeConfigsResponse.results.configs")
        results = []
        for each in request.resources:
            found = self.settings if each.resource_type == BROKER_RESOURCE else self.topic.configs
            configs = [made(name=name, value=value) for name, value in found.items()]
            results.append(row(resource_type=each.resource_type, resource_name=each.resource_name, configs=configs))
        return struct("DescribeConfigsResponse")(results=results)

    def _altered(self, request: Any) -> Any:
        made = struct("IncrementalAlterConfigsResponse.responses")
        rows = [made(resource_type=each.resource_type, resource_name=each.resource_name) for each in request.resources]
        return struct("IncrementalAlterConfigsResponse")(responses=rows)


@asynccontextmanager
async def fake_kafka(host: str = "127.0.0.1", tls: Any = None) -> AsyncIterator[FakeKafka]:
    async with UpstreamBroker(tls=tls) as broker:
        kafka = FakeKafka(broker, host)
        try:
            yield kafka
        finally:
            kafka.desk.close()


@asynccontextmanager
async def node_over(
    kafka: FakeKafka, unchecked: Mapping[str, Any] = MappingProxyType({}), **given: str
) -> AsyncIterator[CoordinatorNode]:
    """A node with all its listeners, once it is served. given: settings, with underscores for dots. unchecked: fields
    of the settings as they are put there, whether or not they go together."""
    ports = free_ports(1)
    settings = {
        "engine": f"kafka://{kafka.host}:{kafka.broker.address.port}",
        "engine.kafka.state.replication.factor": "1",
        "engine.kafka.session.timeout.ms": str(SESSION_MS),
        "engine.kafka.heartbeat.interval.ms": "100",
        "engine.kafka.broker.ports": str(ports[0]),
        "engine.kafka.broker.id.first": str(BROKER),
        "offsets.topic.num.partitions": str(SHARDS),
        "node.id": "1",
        "listeners": "127.0.0.1:0",
        "http.listeners": "127.0.0.1:0",
        "kafka.listeners": "127.0.0.1:0",
        **{name.replace("_", "."): value for name, value in given.items()},
    }
    node = CoordinatorNode(load_settings(None, settings).model_copy(update=dict(unchecked)))
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


def broker_port(node: CoordinatorNode) -> int:
    """Where the node stands for the broker."""
    return node._settings.broker_ports[0]
