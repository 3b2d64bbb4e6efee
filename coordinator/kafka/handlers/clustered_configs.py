"""Settings of a node that is one of many: some of them can be changed while it runs (CL-A9)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from muster.coordinator.edge.cluster import ClusterView
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import KafkaCall
from muster.coordinator.kafka.handlers.config_changes import RequestedChanges
from muster.coordinator.kafka.handlers.config_handlers import (
    BROKER_RESOURCE,
    ConfigChanger,
    ConfigHandlers,
    other_node_refusal,
)
from muster.coordinator.kafka.handlers.groups_configs import GroupConfigs
from muster.storage.broker.requests import LogRequests
from muster.storage.errors import InvalidRequest, StorageError

DYNAMIC_BROKER_CONFIG: Final = 2
"""Where a value comes from."""
RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")

NodeConfigs = Mapping[str, str]


class NodeConfigStore(Protocol):
    """What `replication.admin.ClusterAdmin` does for nodes. Both raise StorageError."""

    async def node_configs(self, node: int) -> NodeConfigs: ...

    async def set_node_configs(
        self, node: int, asked: Callable[[NodeConfigs], Mapping[str, str | None]], *, validate_only: bool = ...
    ) -> None: ...


class ClusterConfigHandlers(ConfigHandlers):
    """As its base, with what is set for this node at ZooKeeper."""

    def __init__(
        self, requests: LogRequests, node_id: int, groups: GroupConfigs, cluster: ClusterView, nodes: NodeConfigStore
    ) -> None:
        super().__init__(requests, node_id, groups, cluster)
        self._node_configs = nodes

    async def describe_configs(self, request: Any, call: KafkaCall) -> Any:
        answer = await super().describe_configs(request, call)
        for result in answer.results:
            if result.resource_type == BROKER_RESOURCE and not result.error_code:
                try:
                    show_dynamic_values(
                        result, await self._node_configs.node_configs(self._node_id), request.include_synonyms
                    )
                except StorageError as error:
                    result.error_code, result.error_message, result.configs = error.code, str(error), []
        return answer

    def _changers(self) -> tuple[tuple[int, ConfigChanger], ...]:
        return (*super()._changers(), (BROKER_RESOURCE, self._change_nodes))

    def _of_node(self, resource: Any, asked_of: Callable[[Any], RequestedChanges]) -> RequestedChanges:
        if not resource.resource_name:
            raise InvalidRequest("The node has no name: there are no defaults of all nodes here; name each of them.")
        if resource.resource_name != str(self._node_id):
            raise other_node_refusal(resource.resource_name, self._nodes(), self._node_id)
        return asked_of(resource)

    async def _change_nodes(
        self, wanted: Sequence[tuple[str, RequestedChanges]], validate_only: bool, call: KafkaCall
    ) -> Sequence[Any]:
        """This one: no other is left."""
        return [await self._changed(asked, validate_only) for _, asked in wanted]

    async def _changed(self, asked: RequestedChanges, validate_only: bool) -> StorageError | None:
        try:
            await self._node_configs.set_node_configs(
                self._node_id, lambda given: asked(given, given), validate_only=validate_only
            )
        except StorageError as refusal:
            return refusal
        return None


def show_dynamic_values(result: Any, given: NodeConfigs, synonyms: bool) -> None:
    """The rows of what can be set while the node runs, as it is."""
    made = struct("DescribeConfigsResponse.results.configs.synonyms")
    for entry in result.configs:
        if entry.name not in RATES:
            continue
        entry.read_only = False
        if entry.name in given:
            entry.value, entry.config_source = given[entry.name], DYNAMIC_BROKER_CONFIG
            if synonyms:
                own = made(name=entry.name, value=entry.value, source=DYNAMIC_BROKER_CONFIG)
                entry.synonyms = [own, *entry.synonyms]
