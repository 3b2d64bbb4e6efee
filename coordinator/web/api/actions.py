"""What the API changes: positions, members, settings, and groups as a whole.

Each action first reports, with figures, what it would do: `dry_run` is true unless the request says otherwise. The
caller's address and reason stand in the ledger where it has a place for them, and always in the node's log: the
handlers that change something write it, whichever listener the request came through.
"""

import json
import time
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from starlette.responses import Response
from typing_extensions import TypedDict

from muster.coordinator.core.watched.watched_shard import ONLY_WATCHED
from muster.coordinator.errors import ErrorCode
from muster.coordinator.observability.read_model.groups import GroupDescription, MemberDescription
from muster.coordinator.observability.views.formatting import plural
from muster.coordinator.observability.views.settings import GroupSettingRow, group_setting_rows
from muster.coordinator.observability.views.topics import Position, ResetRow, parse_position, target_of
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.web.api.endpoint import ApiEndpoint, EndpointRequest
from muster.coordinator.web.api.node_queries import (
    EARLIEST,
    LATEST,
    NodeQueries,
    Place,
    by_topic,
    check_group_code,
    read_settings,
)
from muster.coordinator.web.http.node_port import HttpRefusal, NodeFacts
from muster.coordinator.web.http.responses import document_response
from muster.long_work import iterate_in_turns

MOST_NAMED: Final = 10_000
"""Topics, members or settings that one act names."""

NO_LEADER_EPOCH: Final = -1


class Act(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    dry_run: bool = Field(True, description="Say what it would do, and change nothing.")
    reason: str = Field("", max_length=1_000, description="Why: for the ledger and the node's log.")


class ResetOffsets(Act):
    """Move positions of a group without members."""

    to: str = Field(max_length=100, description="start, end, current, N, +N, -N, @TIME or @-1h.")
    topics: list[str] = Field([], max_length=MOST_NAMED, description="T, or T:P,P for some of its partitions.")
    all_topics: bool = Field(False, description="Every partition that the group has committed.")


class RemoveMembers(Act):
    """Remove members; one that still runs hears of it, and joins again."""

    members: list[str] = Field([], max_length=MOST_NAMED, description="By member id.")
    instances: list[str] = Field([], max_length=MOST_NAMED, description="By group.instance.id.")
    all: bool = Field(False, description="Every member.")


class DeleteGroupBody(Act):
    """Delete a group without members, its positions and its settings."""


class AlterSettingsBody(Act):
    """Set and unset something for a group, all or nothing."""

    set: dict[str, JsonValue] = Field({}, max_length=100, description="Values by name.")
    unset: list[str] = Field([], max_length=100, description="Names whose default shall count again.")
    expected_version: int | None = Field(None, ge=0, description="Only if the settings are at this version.")


class Told(TypedDict):
    dry_run: bool
    sentence: str
    warnings: list[str]


class ToldOffsets(Told):
    rows: list[ResetRow]


class RemovedRow(TypedDict):
    group: str
    consumer_id: str
    group_instance_id: str | None
    partitions: int


class ToldMembers(Told):
    rows: list[RemovedRow]


class ToldSettings(Told):
    rows: list[GroupSettingRow]


async def reset_offsets(asking: NodeQueries, given: EndpointRequest) -> Response:
    body: ResetOffsets = given.body
    group = given.names["group"]
    if bool(body.topics) == body.all_topics:
        raise field_refusal("topics", "which partitions is not said, or said twice; expected topics or all_topics")
    position = read_position(body.to)
    await require_inactive(asking, group)
    current = await asking.offsets(group)
    chosen = sorted(current) if body.all_topics else await resolve_partitions(asking, body.topics)
    rows, warnings = await find_targets(asking, group, chosen, position, current)
    if rows and not body.dry_run:
        await commit_targets(asking, group, rows, body.reason)
    return action_response(given, offsets_sentence(rows, dry_run=body.dry_run), rows, warnings)


async def remove_members(asking: NodeQueries, given: EndpointRequest) -> Response:
    body: RemoveMembers = given.body
    if body.all == bool(body.members or body.instances):
        raise field_refusal("members", "who shall go is not said, or said twice; expected members, instances or all")
    found = await asking.group(given.names["group"])
    going = [member for member in found.members if body.all or is_named(member, body)]
    known = {member.member_id for member in going} | {member.group_instance_id for member in going}
    if strangers := [name for name in (*body.members, *body.instances) if name not in known]:
        named = ", ".join(map(repr, strangers[:10]))
        raise HttpRefusal(404, "UNKNOWN_MEMBER_ID", f"group {found.group_id!r} has no member {named}", field="members")
    if going and not body.dry_run:
        reason = body.reason or "removed by an operator"
        request = pb.RemoveMembersRequest(group_id=found.group_id, reason=reason)
        for member in going:
            request.members.add(member_id=member.member_id, reason=reason)
        answer = await asking.call("RemoveMembers", request)
        check_group_code(answer.error_code, answer.error_message, f"group {found.group_id!r}")
        for result in answer.members:
            check_group_code(result.error_code, result.error_message, f"member {result.member_id!r}")
    rows = [removed_row(found.group_id, member) for member in going]
    return action_response(given, members_sentence(found, going, dry_run=body.dry_run), rows)


async def delete_group(asking: NodeQueries, given: EndpointRequest) -> Response:
    body: DeleteGroupBody = given.body
    group = given.names["group"]
    found = await asking.group(group)
    require_no_members(found)
    current = await asking.offsets(group)
    settings = await asking.settings_if_allowed(group)
    if not body.dry_run:
        answer = await asking.call("DeleteGroups", pb.DeleteGroupsRequest(groups_names=[group], reason=body.reason))
        for result in answer.results:
            check_group_code(result.error_code, result.error_message, f"group {group!r}")
    did = "would go" if body.dry_run else "are gone"
    sentence = (
        f"the group, its positions in {plural(len(current), 'partition')} and "
        f"{plural(len(settings.values), 'setting')} {did}"
    )
    return action_response(given, sentence)


async def alter_settings(asking: NodeQueries, given: EndpointRequest) -> Response:
    body: AlterSettingsBody = given.body
    group = given.names["group"]
    if not body.set and not body.unset:
        raise field_refusal("set", "nothing is to be changed; expected set or unset")
    before = await asking.settings(group)
    request = pb.AlterGroupSettingsRequest(
        group_id=group,
        # In ASCII: half a character in a value is the coordinator's to refuse, and no text of a message.
        set={name: json.dumps(value) for name, value in body.set.items()},
        unset=body.unset,
        expected_version=body.expected_version,
        validate_only=body.dry_run,
        reason=body.reason,
    )
    answer = await asking.call("AlterGroupSettings", request)
    check_group_code(answer.error_code, answer.error_message, f"group {group!r}")
    after = read_settings(answer)
    changed = sorted(
        name for name in {*before.values, *after.values} if before.values.get(name) != after.values.get(name)
    )
    did = "would change" if body.dry_run else "changed"
    sentence = f"{plural(len(changed), 'setting')} {did}: {', '.join(changed)}" if changed else "nothing changes"
    return action_response(given, sentence, group_setting_rows(group, after.version, after.values, {}, after.suspended))


def action_response(
    given: EndpointRequest,
    sentence: str,
    rows: list[Any] | None = None,
    warnings: tuple[str, ...] = (),
    **more: JsonValue,
) -> Response:
    body: Act = given.body
    document = {"dry_run": body.dry_run, "sentence": sentence, "warnings": list(warnings)}
    return document_response(document | ({} if rows is None else {"rows": rows}) | more)


async def find_targets(
    asking: NodeQueries, group: str, chosen: list[Place], position: Position, current: dict[Place, int]
) -> tuple[list[ResetRow], tuple[str, ...]]:
    """A row for each partition that would have a position, and what is worth a warning."""
    starts = await asking.offsets_at(dict.fromkeys(chosen, EARLIEST))
    ends = await asking.offsets_at(dict.fromkeys(chosen, LATEST))
    timed = chosen if position.kind == "time" else []
    times = await asking.offsets_at(dict.fromkeys(timed, position.value))
    rows: list[ResetRow] = []
    warnings: list[str] = []
    async for place in iterate_in_turns(chosen):
        topic, partition = place
        found = target_of(position, current.get(place), starts[place], ends[place], times.get(place, -1))
        if found is None:
            warnings.append(f"{topic}-{partition} has no committed offset to start from; it is left alone")
            continue
        if found.offset != found.wanted:
            span = f"offsets {starts[place]} to {ends[place]}"
            warnings.append(f"{topic}-{partition} has {span}; {found.wanted} becomes {found.offset}")
        rows.append(
            {
                "group": group,
                "topic": topic,
                "partition": partition,
                "current_offset": current.get(place),
                "new_offset": found.offset,
            }
        )
    return rows, tuple(warnings)


async def commit_targets(asking: NodeQueries, group: str, rows: list[ResetRow], reason: str) -> None:
    request = pb.OffsetCommitRequest(group_id=group, include_zookeeper=True, reason=reason)
    offsets = {(row["topic"], row["partition"]): row["new_offset"] for row in rows}
    for topic, numbers in by_topic(offsets).items():
        line = request.topics.add(name=topic)
        for number in numbers:
            line.partitions.add(
                partition_index=number, committed_offset=offsets[topic, number], committed_leader_epoch=NO_LEADER_EPOCH
            )
    answer = await asking.call("OffsetCommit", request)
    for topic_result in answer.topics:
        for result in topic_result.partitions:
            check_group_code(result.error_code, result.error_message, f"{topic_result.name}-{result.partition_index}")
    check_group_code(answer.error_code, answer.error_message, f"group {group!r}")


async def resolve_partitions(asking: NodeQueries, words: list[str]) -> list[Place]:
    """Every partition that TOPIC or TOPIC:0,1,2 names, each once."""
    chosen: dict[Place, None] = {}
    for word in words:
        name, colon, listed = word.partition(":")
        count = (await asking.topic(name)).partitions
        numbers = [parse_partition_number(word, text, count) for text in listed.split(",")] if colon else range(count)
        chosen.update(dict.fromkeys((name, number) for number in numbers))
    return sorted(chosen)


def parse_partition_number(word: str, text: str, count: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) < count):
        raise field_refusal(
            "topics", f"{word[:100]!r} names partition {text[:20]!r}; expected numbers from 0 to {count - 1}"
        )
    return int(text)


def require_coordinated(node: NodeFacts, group: str) -> None:
    """Raises what a node that only watches answers to the change itself: a dry run must not promise it."""
    if node.watched:
        check_group_code(ErrorCode.INVALID_REQUEST, ONLY_WATCHED, f"group {group!r}")


async def require_inactive(asking: NodeQueries, group: str) -> None:
    """Positions may be set before the first member ever comes."""
    try:
        found = await asking.group(group)
    except HttpRefusal as refused:
        if refused.code != "GROUP_ID_NOT_FOUND":
            raise
    else:
        require_no_members(found)


def require_no_members(found: GroupDescription) -> None:
    if found.members:
        text = (
            f"group {found.group_id!r} is {found.state} and has {plural(len(found.members), 'member')}; stop them first"
        )
        raise HttpRefusal(409, "NON_EMPTY_GROUP", text)


def read_position(text: str) -> Position:
    try:
        return parse_position(text, now_ms=time.time_ns() // 1_000_000)
    except ValueError as error:
        raise field_refusal("to", str(error)) from None


def is_named(member: MemberDescription, body: RemoveMembers) -> bool:
    return member.member_id in body.members or member.group_instance_id in body.instances


def removed_row(group_id: str, member: MemberDescription) -> RemovedRow:
    return {
        "group": group_id,
        "consumer_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "partitions": len(member.assignment),
    }


def members_sentence(found: GroupDescription, going: list[MemberDescription], *, dry_run: bool) -> str:
    held = sum(len(member.assignment) for member in going)
    did = "would be" if dry_run else "were"
    return (
        f"{len(going)} of {plural(len(found.members), 'member')} {did} removed; they hold {plural(held, 'partition')}, "
        "which go to others. One that still runs joins again"
    )


def offsets_sentence(rows: list[ResetRow], *, dry_run: bool) -> str:
    """How many positions move, and what that means for records."""
    moves = [(row["current_offset"], row["new_offset"]) for row in rows]
    again = sum(before - after for before, after in moves if before is not None and after < before)
    skipped = sum(after - before for before, after in moves if before is not None and after > before)
    changed = sum(before != after for before, after in moves)
    did = "would be set" if dry_run else "were set"
    return (
        f"{plural(changed, 'position')} of {len(rows)} {did}: {plural(again, 'record')} will be read again, "
        f"{plural(skipped, 'record')} will not be read"
    )


def field_refusal(field: str, text: str) -> HttpRefusal:
    return HttpRefusal(400, "MALFORMED_REQUEST", text, field=field)


ACTION_ENDPOINTS: Final = (
    ApiEndpoint(
        "/groups/{group}/offsets",
        "Move positions, as `muster groups reset-offsets`.",
        ToldOffsets,
        reset_offsets,
        method="POST",
        body=ResetOffsets,
    ),
    ApiEndpoint(
        "/groups/{group}/members/remove",
        "Remove members, as `muster groups remove-members`.",
        ToldMembers,
        remove_members,
        method="POST",
        body=RemoveMembers,
    ),
    ApiEndpoint(
        "/groups/{group}/delete",
        "Delete a group, as `muster groups delete`.",
        Told,
        delete_group,
        method="POST",
        body=DeleteGroupBody,
    ),
    ApiEndpoint(
        "/groups/{group}/settings",
        "Set or unset something, as `muster groups set` and `unset`.",
        ToldSettings,
        alter_settings,
        method="POST",
        body=AlterSettingsBody,
    ),
)
