"""DescribeConfigs: the settings of topics and of the node, where each value comes from, and what it means."""

from collections.abc import Collection, Mapping
from typing import Any, Final, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from coordinator.kafka.codec import struct
from coordinator.kafka.dispatch import KafkaCall
from storage.broker import Broker
from storage.catalog import check_name
from storage.config import LogSettings, TopicSettings, node_setting
from storage.errors import InvalidRequest, StorageError
from storage.in_turns import in_turns
from storage.wording import as_text, bound, without_none

TOPIC: Final = 2
BROKER: Final = 4

# Where a value comes from.
SET_FOR_TOPIC: Final = 1
SET_FOR_NODE: Final = 4
DEFAULT: Final = 5

# What kind of value it is.
BOOLEAN, STRING, INT, LONG, DOUBLE = 1, 2, 3, 5, 6
_MAX_INT = 2**31 - 1


class ConfigHandlers:
    """Handlers that show settings; nothing is changed here."""

    def __init__(self, broker: Broker, node_id: int) -> None:
        self._broker = broker
        self._node_id = node_id

    async def describe_configs(self, request: Any, call: KafkaCall) -> Any:
        once = {(each.resource_type, each.resource_name): each for each in request.resources}.values()
        results = await in_turns(lambda each: self._result(each, request), once)
        return struct("DescribeConfigsResponse")(results=results)

    def _result(self, resource: Any, request: Any) -> Any:
        made = struct("DescribeConfigsResponse.results")
        about = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        try:
            configs = self._configs(resource, request)
        except StorageError as error:
            return made(error_code=error.code, error_message=str(error), configs=[], **about)
        return made(error_message=None, configs=configs, **about)

    def _configs(self, resource: Any, request: Any) -> list[Any]:
        path, wanted = "DescribeConfigsResponse.results.configs", resource.configuration_keys
        node = self._broker.settings
        name = resource.resource_name
        if resource.resource_type == TOPIC:
            check_name(name, {})
            settings: BaseModel = self._broker.topic_settings(name)
            given: Mapping[str, str] = self._broker.topic(name).configs
        elif resource.resource_type == BROKER:
            if name not in ("", str(self._node_id)):
                raise InvalidRequest(f"There is no node '{name}'; expected '{self._node_id}'.")
            settings, given = node, {}
        else:
            raise InvalidRequest(
                f"Resource type {resource.resource_type} has no settings here; "
                f"expected {TOPIC} (topic) or {BROKER} (node)."
            )
        entries = described(path, settings, node, given, wanted)
        for entry in entries:
            entry.synonyms = synonyms(entry, settings, node) if request.include_synonyms else []
            if not request.include_documentation:
                entry.documentation = None
        return entries


def described(
    path: str,
    settings: BaseModel,
    node: LogSettings,
    given: Mapping[str, str],
    wanted: Collection[str] | None = None,
) -> list[Any]:
    """The settings as structs of the schema's `path`; `given` are those that the topic itself sets.

    No `wanted` names, or an empty list of them, ask for all, as in Kafka.
    """
    made = struct(path)
    known = {field.alias or name: (name, field) for name, field in type(settings).model_fields.items()}
    entries = []
    for alias, (name, field) in sorted(known.items()):
        if wanted and alias not in wanted:
            continue
        about = {
            "name": alias,
            "value": as_text(getattr(settings, name)),
            "read_only": settings is node,
            "config_source": source(alias, name, field, node, given),
            "is_sensitive": False,
            "config_type": kind(field),
            "documentation": field.description,
        }
        entries.append(made(**{key: value for key, value in about.items() if key in made.__slots__}))
    return entries


def source(alias: str, name: str, field: FieldInfo, node: LogSettings, given: Mapping[str, str]) -> int:
    """Who decided about a value."""
    if alias in given:
        return SET_FOR_TOPIC
    above = node_setting(alias) or name
    decided = type(node).model_fields.get(above)
    return SET_FOR_NODE if decided and getattr(node, above) != decided.default else DEFAULT


def synonyms(entry: Any, settings: BaseModel, node: LogSettings) -> list[Any]:
    """The value and, for a topic, the node's setting that it stands in for, in the order in which they count."""
    made = struct("DescribeConfigsResponse.results.configs.synonyms")
    found = [made(name=entry.name, value=entry.value, source=entry.config_source)]
    above = node_setting(entry.name) if isinstance(settings, TopicSettings) else None
    if above is None:
        return found
    field = type(node).model_fields[above]
    where = source(entry.name, above, field, node, {})
    inherited = made(name=field.alias, value=as_text(getattr(node, above)), source=where)
    return [*found, inherited] if entry.config_source == SET_FOR_TOPIC else [inherited]


def kind(field: FieldInfo) -> int:
    """Kafka's number for the kind of value."""
    of = without_none(field.annotation)
    if get_origin(of) is not None or of is str:
        return STRING
    if of is bool:
        return BOOLEAN
    if of is float:
        return DOUBLE
    if of is int:
        most = bound(field, "le")
        return INT if most is not None and most <= _MAX_INT else LONG
    return STRING
