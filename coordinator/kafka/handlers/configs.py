"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources: settings of topics, groups and the node.

Each resource of a request is handled by itself: a refusal of one does not affect the others. A request becomes
changes to the settings that are there, which is pure (KIP-339); rows say where each value comes from. Settings of a
group are Kafka's resource GROUP: names and texts here, JSON values in the group's shard, so handlers ask the shards,
many groups in one turn. In a cluster, `handlers/cluster_backend.py` adds settings of nodes.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from muster.assignors.api import JsonValue
from muster.coordinator.core.control.settings_table import SETTINGS
from muster.coordinator.core.model import effects, events
from muster.coordinator.core.settings.shapes import KafkaType
from muster.coordinator.edge.cluster_view import GRPC, KAFKA, coordinates_shard
from muster.coordinator.edge.large_answers import SharedAnswers
from muster.coordinator.edge.request_limits import MAX_SETTING_CHARS, describe_too_long, name_operator
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.kafka.codec.codec import encode, struct
from muster.coordinator.kafka.dispatch import EncodedAnswer, KafkaCall, encode_aside
from muster.coordinator.kafka.handlers.group_requests import GroupRequests
from muster.coordinator.kafka.protocol import check_length
from muster.long_work import FEW, map_in_turns, run_in_answer_thread, sort_in_runs
from muster.storage.broker.requests import RecordRequests
from muster.storage.config import LogSettings, TopicSettings, node_setting
from muster.storage.errors import InvalidConfig, InvalidRequest, StorageError
from muster.storage.settings_text import is_secret, read_bound, setting_as_text, shown_setting, without_none
from muster.storage.topics.catalog import check_topic_name

if TYPE_CHECKING:
    from muster.coordinator.edge.cluster_view import ClusterView, OtherNodes


# Requested changes
# -----------------

SET, DELETE, APPEND, SUBTRACT = range(4)
OPERATIONS: Final = {SET: "SET", DELETE: "DELETE", APPEND: "APPEND", SUBTRACT: "SUBTRACT"}

ConfigValues: TypeAlias = Mapping[str, str]
ConfigChangeSet: TypeAlias = dict[str, str | None]
"""New values by name; None unsets."""

RequestedChanges: TypeAlias = Callable[[ConfigValues, ConfigValues], ConfigChangeSet]
"""From what is set, and what holds (set or not), to the changes."""


def parse_alter_configs(configs: Iterable[Any]) -> RequestedChanges:
    """What AlterConfigs asks for: these settings and no others. Raises InvalidRequest."""
    wanted = {each.name: config_value(each) for each in unique_configs(configs)}
    return lambda given, _: {**dict.fromkeys(given), **wanted}


def parse_incremental_changes(configs: Iterable[Any], lists: frozenset[str]) -> RequestedChanges:
    """What IncrementalAlterConfigs asks for (KIP-339). `lists` can be appended to. Raises StorageError."""
    steps = unique_configs(configs)
    for each in steps:
        if each.config_operation not in OPERATIONS:
            raise InvalidRequest(
                f"'{each.name}' comes with operation {each.config_operation}; expected 0 (set), 1 (delete), "
                "2 (append) or 3 (subtract)."
            )
        if each.config_operation != DELETE:
            config_value(each)
        if each.config_operation in (APPEND, SUBTRACT) and each.name not in lists:
            raise InvalidConfig(
                f"Can't {OPERATIONS[each.config_operation]} to key {each.name} because its type is not LIST; "
                "SET it instead."
            )
    return lambda given, held: {each.name: apply_step(each, held) for each in steps}


def apply_step(step: Any, held: ConfigValues) -> str | None:
    """The value after one step."""
    if step.config_operation == SET:
        return str(step.value)
    if step.config_operation == DELETE:
        return None
    words, named = split_list(held.get(step.name, "")), split_list(step.value)
    if step.config_operation == APPEND:
        return ",".join(dict.fromkeys([*words, *named]))
    return ",".join(word for word in words if word not in named)


def unique_configs(configs: Iterable[Any]) -> list[Any]:
    """The settings of one resource, each named once."""
    found = {each.name: each for each in configs}
    every = list(configs)
    if len(found) < len(every):
        twice = next(each.name for each in every if found[each.name] is not each)
        raise InvalidRequest(f"'{twice}' is named twice for one resource; expected each setting once.")
    return every


def config_value(config: Any) -> str:
    if config.value is None:
        raise InvalidRequest(f"'{config.name}' has no value; expected text. To unset it, delete it.")
    return str(config.value)


def split_list(text: str) -> list[str]:
    """The words of a list.

    >>> split_list("delete, compact,")
    ['delete', 'compact']
    """
    return [word.strip() for word in text.split(",") if word.strip()]


# Rows of DescribeConfigs
# -----------------------

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

NOT_FOR_CLIENTS: Final = re.compile(r"engine|engine\.kafka\.(proxy\.)?(sasl|ssl)\..*|engine\.kafka\.proxy\.principal")
"""Shown without their value: no client of a node over a Kafka learns where its brokers are, or how it logs in there."""


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
        named = NOT_FOR_CLIENTS.fullmatch(alias) and getattr(settings, name) != field.default
        hidden = is_secret(settings, alias, field) or named
        source = value_source(alias, name, node, given)
        about = {
            "name": alias,
            "value": None if hidden else setting_as_text(getattr(settings, name)),
            "read_only": settings is node,
            "is_default": source == DEFAULT,
            "config_source": source,
            "is_sensitive": hidden,
            "config_type": LIST if alias in LIST_SETTINGS else config_type(field),
            "documentation": field.description,
        }
        entries.append(made(**{key: value for key, value in about.items() if key in made.__slots__}))
    return entries


def value_source(alias: str, name: str, node: LogSettings, given: Mapping[str, str]) -> int:
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
    where = value_source(entry.name, above, node, {})
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


# Settings of groups
# ------------------

SET_FOR_GROUP: Final = 8

CALLS_AT_ONCE: Final = 20
"""Of groups that other nodes coordinate."""

Wanted = TypeVar("Wanted", effects.SettingsReply, effects.ListSettingsReply)

GROUP_LIST_SETTINGS: Final = frozenset(
    name for name, setting in SETTINGS.items() if setting.shape.kafka_type is KafkaType.LIST
)
"""Settings whose value is words with commas between them."""


class GroupConfigs:
    """Asks the shards of groups, many groups in a turn."""

    def __init__(self, groups: GroupRequests, cluster: "ClusterView | None" = None) -> None:
        self._groups = groups
        self._cluster = cluster
        self._listed: SharedAnswers[None, list[str]] = SharedAnswers()

    async def describe_settings(self, group_ids: Sequence[str]) -> list[effects.SettingsReply]:
        """What is set for each."""
        questions = [
            (self._groups.shard_of(group_id), events.DescribeSettings(self._groups.next_id(), group_id))
            for group_id in group_ids
        ]
        return await self._ask_shards(questions, effects.SettingsReply)

    async def listed(self) -> list[str]:
        """The groups that have settings: Kafka's tools ask one node for those of all (KIP-1142).

        Raises CoordinatorError where a shard cannot say: a part is not the whole."""
        return await self._listed.get(None, self._list)

    async def _list(self) -> list[str]:
        shards = range(self._groups.shards)
        here = (
            shards if self._cluster is None else [shard for shard in shards if coordinates_shard(self._cluster, shard)]
        )
        questions = [(shard, events.ListSettings(self._groups.next_id())) for shard in here]
        replies = await self._ask_shards(questions, effects.ListSettingsReply)
        for reply in replies:
            if reply.code is not ErrorCode.NONE:
                raise CoordinatorError(reply.code, reply.message)
        found = [group_id for reply in replies for group_id in reply.group_ids]
        if self._cluster is not None and self._cluster.elsewhere is not None:
            found += await list_configured_groups(self._cluster, self._cluster.elsewhere, shards)
        return sorted(found)

    async def change(
        self, wanted: Sequence[tuple[str, RequestedChanges]], operator: str, *, validate_only: bool
    ) -> list[CoordinatorError | None]:
        """What became of each group's changes. Two that change one group at once: the later one is refused."""
        found = await self.describe_settings([group_id for group_id, _ in wanted])
        outcomes: list[CoordinatorError | None] = []
        asked: dict[int, events.AlterSettings] = {}
        for place, ((group_id, changes_of), reply) in enumerate(zip(wanted, found, strict=True)):
            try:
                changes = group_changes(changes_of, reply)
                event = make_alter_event(
                    self._groups.next_id(), group_id, changes, reply.version, validate_only, operator
                )
            except CoordinatorError as refusal:
                outcomes.append(refusal)
                continue
            outcomes.append(None)
            if changes:
                asked[place] = event
        questions = [(self._groups.shard_of(event.group_id), event) for event in asked.values()]
        replies = await self._ask_shards(questions, effects.SettingsReply)
        for place, reply in zip(asked, replies, strict=True):
            if reply.code is not ErrorCode.NONE:
                outcomes[place] = CoordinatorError(reply.code, reply.message)
        return outcomes

    async def _ask_shards(self, questions: Sequence[tuple[int, events.Request]], wanted: type[Wanted]) -> list[Wanted]:
        """The replies. Who asks for settings has looked no coordinator up, and need not: where it is another node, that
        is asked."""
        cluster = self._cluster
        if (
            cluster is None
            or cluster.elsewhere is None
            or all(coordinates_shard(cluster, shard) for shard, _ in questions)
        ):
            return await self._asked_here(questions, wanted)
        away: list[int] = [at for at, (shard, _) in enumerate(questions) if not coordinates_shard(cluster, shard)]
        here = [question for at, question in enumerate(questions) if at not in {*away}]
        answers = iter(await self._asked_here(here, wanted))
        replies = await call_other_nodes(cluster.elsewhere, [questions[at] for at in away])
        told = dict(zip(away, replies, strict=True))
        return [told[at] if at in told else next(answers) for at in range(len(questions))]

    async def _asked_here(self, questions: Sequence[tuple[int, events.Request]], wanted: type[Wanted]) -> list[Wanted]:
        replies = await self._groups.ask_each(questions, wanted)
        return [unserved_reply(reply) if reply.code is ErrorCode.NOT_COORDINATOR else reply for reply in replies]


async def list_configured_groups(cluster: "ClusterView", elsewhere: "OtherNodes", shards: range) -> list[str]:
    """Those of the other nodes, one question each. Raises CoordinatorError."""
    nodes: set[int] = set()
    for shard in shards:
        if coordinates_shard(cluster, shard):
            continue
        node = cluster.coordinator(shard, GRPC)
        if node is None:
            raise CoordinatorError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"nobody coordinates the groups of shard {shard}"
            )
        nodes.add(node.node_id)
    found: list[str] = []
    for code, groups in await asyncio.gather(*(elsewhere.with_settings(node) for node in sorted(nodes))):
        if code is not ErrorCode.NONE:
            raise CoordinatorError(code, "another node cannot say which of its groups have settings; try again")
        found += groups
    return found


async def call_other_nodes(elsewhere: "OtherNodes", questions: Sequence[tuple[int, Any]]) -> list[Any]:
    """Some at a time: each is a call of its own."""
    replies = []
    for begin in range(0, len(questions), CALLS_AT_ONCE):
        some = questions[begin : begin + CALLS_AT_ONCE]
        replies += await asyncio.gather(*(elsewhere.settings(shard, event) for shard, event in some))
    return replies


def unserved_reply(reply: Wanted) -> Wanted:
    why = "" if reply.message == ErrorCode.NOT_COORDINATOR.meaning else reply.message
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return replace(reply, code=code, message=why or "nobody coordinates this group right now; try again")


def group_changes(asked: RequestedChanges, reply: effects.SettingsReply) -> ConfigChangeSet:
    """What is to change; to unset what is not set is no change, as in Kafka. Raises CoordinatorError."""
    if reply.code is not ErrorCode.NONE:
        raise CoordinatorError(reply.code, reply.message)
    given = setting_texts(reply.values)
    held = {**setting_texts(reply.defaults), **given}
    return {name: value for name, value in asked(given, held).items() if value is not None or name in given}


def setting_texts(values: Mapping[str, JsonValue]) -> dict[str, str]:
    """As Kafka's tools write them. What another version has set is shown as the JSON that it is."""
    return {
        name: SETTINGS[name].shape.text(value) if name in SETTINGS else json.dumps(value)
        for name, value in values.items()
    }


def make_alter_event(
    request_id: int, group_id: str, changes: ConfigChangeSet, version: int, validate_only: bool, operator: str
) -> events.AlterSettings:
    return events.AlterSettings(
        request_id,
        check_length("group_id", group_id),
        {
            check_length("a setting", name): parse_setting(name, text)
            for name, text in changes.items()
            if text is not None
        },
        tuple(name for name, text in changes.items() if text is None),
        version,
        validate_only,
        operator,
    )


def parse_setting(name: str, text: str) -> JsonValue:
    """The text's value, INVALID_CONFIG if it has none; of a setting that there is, for the core tells which are."""
    if name not in SETTINGS:
        return text
    if len(text) > MAX_SETTING_CHARS:
        raise CoordinatorError(ErrorCode.INVALID_CONFIG, describe_too_long(name, len(text), MAX_SETTING_CHARS))
    try:
        return SETTINGS[name].shape.of_text(text)
    except ValueError as error:
        raise CoordinatorError(ErrorCode.INVALID_CONFIG, f"{name} {error}") from None


def describe_group_settings(path: str, reply: effects.SettingsReply, wanted: Sequence[str] | None) -> list[Any]:
    """A group's settings as rows of the schema's `path`.

    What the node's settings say counts as a default, as in Kafka 4.1; each value is its own only synonym.
    """
    made, synonym = struct(path), struct(f"{path}.synonyms")
    given, held = setting_texts(reply.values), setting_texts({**reply.defaults, **reply.values})
    rows = []
    for name, text in sorted(held.items()):
        if wanted and name not in wanted:
            continue
        known, source = SETTINGS.get(name), SET_FOR_GROUP if name in given else DEFAULT
        about = {
            "name": name,
            "value": text,
            "config_source": source,
            "synonyms": [synonym(name=name, value=text, source=source)],
            "config_type": (known.shape.kafka_type if known else KafkaType.STRING).value,
            "documentation": known.meaning if known else "Set by another version of Muster; not known to this one.",
        }
        rows.append(made(read_only=False, is_sensitive=False, **about))
    return rows


# Handlers
# --------

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
        self, requests: RecordRequests, node_id: int, groups: GroupConfigs, cluster: "ClusterView | None" = None
    ) -> None:
        self._requests = requests
        self._broker = requests.broker
        self._node_id = node_id
        self._groups = groups
        self._cluster = cluster
        self._turn = asyncio.Lock()  # of requests about many resources

    # -- list ---------------------------------------------------------------------------------------------

    async def list_config_resources(self, request: Any, call: KafkaCall) -> Any:
        """What has settings, of the types asked for or of all (KIP-1142); version 0 is about metrics of clients."""
        made = struct("ListConfigResourcesResponse")
        types = (
            (CLIENT_METRICS_RESOURCE,) if call.api_version == 0 else tuple(request.resource_types or LISTED_RESOURCES)
        )
        if not LISTED_RESOURCES.issuperset(types):
            return made(error_code=ErrorCode.UNSUPPORTED_VERSION)
        found: dict[int, Collection[str]] = {TOPIC_RESOURCE: self._broker.topics().keys(), CLIENT_METRICS_RESOURCE: []}
        found[BROKER_RESOURCE] = found[BROKER_LOGGER_RESOURCE] = self._nodes()
        try:
            found[GROUP_RESOURCE] = await self._groups.listed() if GROUP_RESOURCE in types else []
        except CoordinatorError as error:
            return made(error_code=error.code)
        row = struct("ListConfigResourcesResponse.config_resources")

        def whole() -> Any:
            rows = [
                row(resource_name=name, resource_type=kind)
                for kind in sorted({*types}, reverse=True)
                for name in sort_in_runs(found[kind])
            ]
            return made(config_resources=rows)

        weight = sum(len(found[kind]) for kind in types)
        return await encode_aside("ListConfigResourcesResponse", call.api_version, whole, weight)

    def _nodes(self) -> list[str]:
        if self._cluster is None:
            return [str(self._node_id)]
        return [str(node.node_id) for node in self._cluster.nodes(KAFKA)]

    # -- describe -----------------------------------------------------------------------------------------

    async def describe_configs(self, request: Any, call: KafkaCall) -> Any:
        once = list({(each.resource_type, each.resource_name): each for each in request.resources}.values())
        of_groups = [each.resource_name for each in once if each.resource_type == GROUP_RESOURCE and each.resource_name]
        told = dict(zip(of_groups, await self._groups.describe_settings(of_groups), strict=True))
        if len(once) <= FEW:
            results = [self._result(each, request, told) for each in once]
            return struct("DescribeConfigsResponse")(results=results)
        async with self._turn:
            results = await map_in_turns(lambda each: self._result(each, request, told), once)
            answer = struct("DescribeConfigsResponse")(results=results)
            return await run_in_answer_thread(
                lambda: EncodedAnswer(encode("DescribeConfigsResponse", call.api_version, answer))
            )

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
        """What is asked of the node's own settings. Raises StorageError.

        None is set while the node runs, so there is nothing to take away: `kafka-reassign-partitions --verify` deletes
        throttles of every broker, whether it has any or not.
        """
        if resource.resource_name not in ("", str(self._node_id)):
            raise other_node_refusal(resource.resource_name, self._nodes(), self._node_id)
        if resource.configs and all(getattr(each, "config_operation", None) == DELETE for each in resource.configs):
            return asked_of(resource)
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
        GROUP_LIST_SETTINGS if resource.resource_type == GROUP_RESOURCE else LIST_SETTINGS,
    )


def group_rows(resource: Any, told: Mapping[str, Any]) -> list[Any]:
    """A group that nobody has heard of has defaults."""
    if not resource.resource_name:
        raise InvalidRequest("Group name must not be empty.")
    reply = told[resource.resource_name]
    if reply.code is not ErrorCode.NONE:
        raise CoordinatorError(reply.code, reply.message)
    wanted = resource.configuration_keys
    return describe_group_settings("DescribeConfigsResponse.results.configs", reply, wanted)
