"""Settings of groups as Kafka's resource GROUP has them: names and texts here, JSON values in the group's shard."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from muster.assignors.api import JsonValue
from muster.coordinator.core.control.settings_table import SETTINGS
from muster.coordinator.core.model import core_events, effects
from muster.coordinator.core.settings.shapes import KafkaType
from muster.coordinator.edge.cluster import GRPC, coordinates_shard
from muster.coordinator.edge.limits import MAX_SETTING_CHARS, describe_too_long
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.handlers.config_changes import ConfigChangeSet, RequestedChanges
from muster.coordinator.kafka.handlers.configs import DEFAULT
from muster.coordinator.kafka.handlers.group_requests import GroupRequests
from muster.coordinator.kafka.request_limits import check_length

if TYPE_CHECKING:
    from muster.coordinator.edge.cluster import ClusterView, OtherNodes

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

    async def told(self, group_ids: Sequence[str]) -> list[effects.SettingsReply]:
        """What is set for each."""
        questions = [
            (self._groups.shard_of(group_id), core_events.DescribeSettings(self._groups.next_id(), group_id))
            for group_id in group_ids
        ]
        return await self._ask(questions, effects.SettingsReply)

    async def listed(self) -> list[str]:
        """The groups that have settings: Kafka's tools ask one node for those of all (KIP-1142).

        Raises CoordinatorError where a shard cannot say: a part is not the whole."""
        shards = range(self._groups.shards)
        here = (
            shards if self._cluster is None else [shard for shard in shards if coordinates_shard(self._cluster, shard)]
        )
        questions = [(shard, core_events.ListSettings(self._groups.next_id())) for shard in here]
        replies = await self._ask(questions, effects.ListSettingsReply)
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
        found = await self.told([group_id for group_id, _ in wanted])
        outcomes: list[CoordinatorError | None] = []
        asked: dict[int, core_events.AlterSettings] = {}
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
        replies = await self._ask(questions, effects.SettingsReply)
        for place, reply in zip(asked, replies, strict=True):
            if reply.code is not ErrorCode.NONE:
                outcomes[place] = CoordinatorError(reply.code, reply.message)
        return outcomes

    async def _ask(self, questions: Sequence[tuple[int, core_events.Request]], wanted: type[Wanted]) -> list[Wanted]:
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

    async def _asked_here(
        self, questions: Sequence[tuple[int, core_events.Request]], wanted: type[Wanted]
    ) -> list[Wanted]:
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
) -> core_events.AlterSettings:
    return core_events.AlterSettings(
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
