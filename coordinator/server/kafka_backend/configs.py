"""Settings of groups and of nodes, for Kafka's tools that pass a node (KB-X12); those of all else are the
upstream's."""

from muster.coordinator.kafka.handlers.config_handlers import ConfigHandlers
from muster.coordinator.kafka.handlers.groups_configs import GroupConfigs
from muster.coordinator.kafka_backend.proxy.places import ProxyAddresses
from muster.storage.broker.requests import LogRequests


class ProxyConfigs(ConfigHandlers):
    """As its base, of a node that clients know by another id."""

    def __init__(self, requests: LogRequests, groups: GroupConfigs, places: ProxyAddresses) -> None:
        super().__init__(requests, places.node_id, groups)
        self._places = places

    def _nodes(self) -> list[str]:
        return [str(node.node_id) for node in self._places.nodes()]
