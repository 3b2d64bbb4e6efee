"""Settings of topics and of the node as rows: where each value comes from, and what it means."""

from collections.abc import Collection, Mapping
from typing import Any, Final, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from muster.coordinator.kafka.codec.codec import struct
from muster.storage.config import LogSettings, TopicSettings, node_setting
from muster.storage.wording import is_secret, read_bound, setting_as_text, shown_setting, without_none

# Where a value comes from.
SET_FOR_TOPIC: Final = 1
SET_FOR_NODE: Final = 4
DEFAULT: Final = 5

# What kind of value it is.
BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7
_MAX_INT = 2**31 - 1

LIST_SETTINGS: Final = frozenset(
    {
        *("cleanup.policy", "log.cleanup.policy"),
        *("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"),
    }
)
"""Settings whose value is words with commas between them."""


def describe_settings(
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
        if not field.repr or (wanted and alias not in wanted):
            continue
        about = {
            "name": alias,
            "value": None if is_secret(settings, alias, field) else setting_as_text(getattr(settings, name)),
            "read_only": settings is node,
            "config_source": value_source(alias, name, field, node, given),
            "is_sensitive": is_secret(settings, alias, field),
            "config_type": LIST if alias in LIST_SETTINGS else config_type(field),
            "documentation": field.description,
        }
        entries.append(made(**{key: value for key, value in about.items() if key in made.__slots__}))
    return entries


def value_source(alias: str, name: str, field: FieldInfo, node: LogSettings, given: Mapping[str, str]) -> int:
    """Who decided about a value."""
    if alias in given:
        return SET_FOR_TOPIC
    above = node_setting(alias) or name
    decided = type(node).model_fields.get(above)
    return SET_FOR_NODE if decided and getattr(node, above) != decided.default else DEFAULT


def value_synonyms(entry: Any, settings: BaseModel, node: LogSettings) -> list[Any]:
    """The value and, for a topic, the node's setting that it stands in for, in the order in which they count."""
    made = struct("DescribeConfigsResponse.results.configs.synonyms")
    found = [made(name=entry.name, value=entry.value, source=entry.config_source)]
    above = broker_default_of(entry.name, node) if isinstance(settings, TopicSettings) else None
    if above is None:
        return found
    field = type(node).model_fields[above]
    where = value_source(entry.name, above, field, node, {})
    inherited = made(name=field.alias, value=shown_setting(node, field.alias or above, above), source=where)
    return [*found, inherited] if entry.config_source == SET_FOR_TOPIC else [inherited]


def broker_default_of(name: str, node: LogSettings) -> str | None:
    """The node's field that a topic's setting stands in for, if there is one."""
    return node_setting(name) or (name.replace(".", "_") if name in node.of_every_topic() else None)


def config_type(field: FieldInfo) -> int:
    """Kafka's number for the kind of value."""
    of = without_none(field.annotation)
    if get_origin(of) is not None or of is str:
        return STRING
    if of is bool:
        return BOOLEAN
    if of is float:
        return DOUBLE
    if of is int:
        most = read_bound(field, "le")
        return INT if most is not None and most <= _MAX_INT else LONG
    return STRING
