"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: settings of topics and groups, and those of the node."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel

from muster.coordinator.edge.cluster import KAFKA
from muster.coordinator.edge.words import name_operator
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import KafkaCall
from muster.coordinator.kafka.handlers import groups_configs as group_configs
from muster.coordinator.kafka.handlers.config_changes import (
    ConfigChangeSet,
    RequestedChanges,
    parse_alter_configs,
    parse_incremental_changes,
)
from muster.coordinator.kafka.handlers.configs import LIST_SETTINGS, describe_settings, value_synonyms
from muster.coordinator.kafka.handlers.groups_configs import GroupConfigs
from muster.storage.broker.in_turns import map_in_turns
from muster.storage.broker.requests import LogRequests
from muster.storage.errors import InvalidRequest, StorageError
from muster.storage.topics.catalog import check_topic_name
from muster.storage.wording import setting_as_text

if TYPE_CHECKING:
    from muster.coordinator.edge.cluster import ClusterView

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
BROKER_LOGGER_RESOURCE: Final = 8
CLIENT_METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32
LISTED_RESOURCES: Final = frozenset(
    {TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE}
)

ConfigRefusal = StorageError | CoordinatorError
ConfigChanger = Callable[[Sequence[tuple[str, RequestedChanges]], bool, KafkaCall], Awaitable[Sequence[Any]]]
RESOURCE_NAMES = {TOPIC_RESOURCE: "topic", GROUP_RESOURCE: "group"}


class ConfigHandlers:
    """Each resource of a request for itself: one refusal does not hurt the others."""

    def __init__(
        self, requests: LogRequests, node_id: int, groups: GroupConfigs, cluster: "ClusterView | None" = None
    ) -> None:
        self._requests = requests
        self._broker = requests.broker
        self._node_id = node_id
        self._groups = groups
        self._cluster = cluster

    # -- list ---------------------------------------------------------------------------------------------

    async def list_config_resources(self, request: Any, call: KafkaCall) -> Any:
        """What has settings, of the types asked for or of all (KIP-1142); version 0 is about metrics of clients."""
        made = struct("ListConfigResourcesResponse")
        types = (
            (CLIENT_METRICS_RESOURCE,) if call.api_version == 0 else tuple(request.resource_types or LISTED_RESOURCES)
        )
        if not LISTED_RESOURCES.issuperset(types):
            return made(error_code=ErrorCode.UNSUPPORTED_VERSION)
        found = {TOPIC_RESOURCE: sorted(self._broker.topics()), CLIENT_METRICS_RESOURCE: []}
        found[BROKER_RESOURCE] = found[BROKER_LOGGER_RESOURCE] = self._nodes()
        try:
            found[GROUP_RESOURCE] = await self._groups.listed() if GROUP_RESOURCE in types else []
        except CoordinatorError as error:
            return made(error_code=error.code)
        row = struct("ListConfigResourcesResponse.config_resources")
        rows = [
            row(resource_name=name, resource_type=kind)
            for kind in sorted({*types}, reverse=True)
            for name in found[kind]
        ]
        return made(config_resources=rows)

    def _nodes(self) -> list[str]:
        if self._cluster is None:
            return [str(self._node_id)]
        return [str(node.node_id) for node in self._cluster.nodes(KAFKA)]

    # -- describe -----------------------------------------------------------------------------------------

    async def describe_configs(self, request: Any, call: KafkaCall) -> Any:
        once = list({(each.resource_type, each.resource_name): each for each in request.resources}.values())
        of_groups = [each.resource_name for each in once if each.resource_type == GROUP_RESOURCE and each.resource_name]
        told = dict(zip(of_groups, await self._groups.told(of_groups), strict=True))
        results = await map_in_turns(lambda each: self._result(each, request, told), once)
        return struct("DescribeConfigsResponse")(results=results)

    def _result(self, resource: Any, request: Any, told: Mapping[str, Any]) -> Any:
        made = struct("DescribeConfigsResponse.results")
        about = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        try:
            if resource.resource_type == GROUP_RESOURCE:
                configs = group_rows(resource, told)
            else:
                configs = self._rows(resource, request)
        except (StorageError, CoordinatorError) as error:
            return made(error_code=error.code, error_message=str(error), configs=[], **about)
        for entry in configs:
            if not request.include_documentation:
                entry.documentation = None
            if not request.include_synonyms:
                entry.synonyms = []
        return made(error_message="", configs=configs, **about)

    def _rows(self, resource: Any, request: Any) -> list[Any]:
        node, name = self._broker.settings, resource.resource_name
        given: Mapping[str, str] = {}
        settings: BaseModel = node
        if resource.resource_type == TOPIC_RESOURCE:
            check_topic_name(name, {})
            settings, given = self._broker.topic_settings(name), self._broker.topic(name).configs
        elif resource.resource_type != BROKER_RESOURCE:
            raise InvalidRequest(
                f"Resource type {resource.resource_type} has no settings here; "
                f"expected {TOPIC_RESOURCE} (topic), {BROKER_RESOURCE} (node) or {GROUP_RESOURCE} (group)."
            )
        elif name not in ("", str(self._node_id)):
            raise other_node_refusal(name, self._nodes(), self._node_id)
        path, wanted = "DescribeConfigsResponse.results.configs", resource.configuration_keys
        entries = describe_settings(path, settings, node, given, wanted)
        for entry in entries:
            entry.synonyms = value_synonyms(entry, settings, node) if request.include_synonyms else []
        return entries

    # -- alter --------------------------------------------------------------------------------------------

    async def alter_configs(self, request: Any, call: KafkaCall) -> Any:
        """Give topics and groups these settings and no others; what a request does not name is unset."""
        return struct("AlterConfigsResponse")(
            responses=await self._altered("AlterConfigs", request, call, requested_replacement)
        )

    async def incremental_alter_configs(self, request: Any, call: KafkaCall) -> Any:
        """Set, unset, append to and take from settings of topics and groups (KIP-339)."""
        answers = await self._altered("IncrementalAlterConfigs", request, call, requested_changes)
        return struct("IncrementalAlterConfigsResponse")(responses=answers)

    async def _altered(
        self, api: str, request: Any, call: KafkaCall, asked_of: Callable[[Any], RequestedChanges]
    ) -> list[Any]:
        """One answer for each resource, in order."""
        resources = request.resources
        times = Counter((each.resource_type, each.resource_name) for each in resources)
        outcomes = await map_in_turns(partial(self._looked_at, times=times, asked_of=asked_of), resources)
        for kind, change in self._changers():
            places = [
                place
                for place, found in enumerate(outcomes)
                if not isinstance(found, ConfigRefusal) and resources[place].resource_type == kind
            ]
            wanted = [(resources[place].resource_name, outcomes[place]) for place in places]
            for place, outcome in zip(places, await change(wanted, request.validate_only, call), strict=True):
                outcomes[place] = outcome
        made = struct(f"{api}Response.responses")
        return [
            made(
                error_code=outcome.code if isinstance(outcome, ConfigRefusal) else ErrorCode.NONE,
                error_message=str(outcome) if isinstance(outcome, ConfigRefusal) else None,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
            for each, outcome in zip(resources, outcomes, strict=True)
        ]

    def _changers(self) -> tuple[tuple[int, ConfigChanger], ...]:
        """Who changes what kind of resource, one kind after the other."""
        return (TOPIC_RESOURCE, self._change_topics), (GROUP_RESOURCE, self._change_groups)

    def _looked_at(
        self, resource: Any, times: Counter[tuple[int, str]], asked_of: Callable[[Any], RequestedChanges]
    ) -> Any:
        """What is asked of one resource, or what speaks against it without a look at what is set."""
        kind, name = resource.resource_type, resource.resource_name
        try:
            if times[kind, name] > 1:
                raise InvalidRequest(
                    f"The request names {RESOURCE_NAMES.get(kind, 'resource')} '{name}' twice; expected once."
                )
            if kind == BROKER_RESOURCE:
                return self._of_node(resource, asked_of)
            if kind not in RESOURCE_NAMES:
                raise InvalidRequest(
                    f"Resource type {kind} cannot be changed here; expected {TOPIC_RESOURCE} (topic) or "
                    f"{GROUP_RESOURCE} (group)."
                )
            if not name:
                raise InvalidRequest(
                    f"The {RESOURCE_NAMES[kind]} has no name: there are no defaults of all "
                    f"{RESOURCE_NAMES[kind]}s here."
                )
            if kind == TOPIC_RESOURCE:
                check_topic_name(name, {})
                self._broker.check_writable(name)
            return asked_of(resource)
        except StorageError as refusal:
            return refusal

    def _of_node(self, resource: Any, asked_of: Callable[[Any], RequestedChanges]) -> RequestedChanges:
        """What is asked of the node's own settings. Raises StorageError."""
        if resource.resource_name not in ("", str(self._node_id)):
            raise other_node_refusal(resource.resource_name, self._nodes(), self._node_id)
        raise InvalidRequest(
            "A node reads its settings when it starts: change its properties file and start it again. "
            "'muster settings' shows what holds now."
        )

    async def _change_topics(
        self, wanted: Sequence[tuple[str, RequestedChanges]], validate_only: bool, call: KafkaCall
    ) -> Sequence[Any]:
        changing = [(name, partial(self._changes_of, name, asked)) for name, asked in wanted]
        if not validate_only:
            return await self._requests.topics.change(changing)

        def refusal(one: tuple[str, Callable[[], ConfigChangeSet]]) -> StorageError | None:
            name, changes = one
            try:
                self._broker.plan_change(name, changes())
            except StorageError as error:
                return error
            return None

        return await map_in_turns(refusal, changing)

    async def _change_groups(
        self, wanted: Sequence[tuple[str, RequestedChanges]], validate_only: bool, call: KafkaCall
    ) -> Sequence[Any]:
        return await self._groups.change(wanted, name_operator(call.peer_host), validate_only=validate_only)

    def _changes_of(self, name: str, asked: RequestedChanges) -> ConfigChangeSet:
        settings = self._broker.topic_settings(name)
        fields = type(settings).model_fields.items()
        held = {field.alias or key: setting_as_text(getattr(settings, key)) or "" for key, field in fields}
        return asked(self._broker.topic(name).configs, held)


def other_node_refusal(name: str, nodes: Sequence[str], here: int) -> InvalidRequest:
    """A node tells of its own settings only, as a broker of Kafka does."""
    if name in nodes:
        return InvalidRequest(f"Node '{name}' itself tells of its settings; this is node '{here}'.")
    return InvalidRequest(f"There is no node '{name}'; expected '{here}'.")


def requested_replacement(resource: Any) -> RequestedChanges:
    """What AlterConfigs asks for of a topic or a group. Raises StorageError, like the next."""
    return parse_alter_configs(resource.configs)


def requested_changes(resource: Any) -> RequestedChanges:
    return parse_incremental_changes(
        resource.configs,
        group_configs.GROUP_LIST_SETTINGS if resource.resource_type == GROUP_RESOURCE else LIST_SETTINGS,
    )


def group_rows(resource: Any, told: Mapping[str, Any]) -> list[Any]:
    """A group that nobody has heard of has defaults."""
    if not resource.resource_name:
        raise InvalidRequest("Group name must not be empty.")
    reply = told[resource.resource_name]
    if reply.code is not ErrorCode.NONE:
        raise CoordinatorError(reply.code, reply.message)
    wanted = resource.configuration_keys
    return group_configs.describe_group_settings("DescribeConfigsResponse.results.configs", reply, wanted)
