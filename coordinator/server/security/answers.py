"""What is taken out of answers before they leave: names that whoever asked may not know of. By the method's name."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from muster.coordinator.errors import ErrorCode
from muster.coordinator.security.identity import Identity
from muster.coordinator.security.model import CLUSTER_NAME, Operation, ResourceType
from muster.coordinator.security.rights import RequiredRight
from muster.coordinator.server.security.asking import CallRights, IdentifiedCall
from muster.coordinator.server.security.redacting import (
    drop_hidden_rows,
    find_hidden,
    redact_entry,
    redact_text,
    topics_of_snapshot,
)

DESCRIBE: Final = Operation.DESCRIBE
SEE_TOPIC: Final = RequiredRight(DESCRIBE, ResourceType.TOPIC, "topics of the answer")
LARGE_CHARACTERS: Final = 64 << 10

AnswerFilter: TypeAlias = Callable[[Any, Any, IdentifiedCall, CallRights], Awaitable[Any]]
"""Of an answer, its request, and the call: the answer that leaves."""


def topic_filter(call: IdentifiedCall, rights: CallRights) -> Callable[[str], bool]:
    return partial(rights.may_see, call.identity)


def keep_rows(rows: Any, wanted: Callable[[Any], bool]) -> None:
    if all(map(wanted, rows)):
        return
    left = [type(row).FromString(row.SerializeToString()) for row in rows if wanted(row)]
    del rows[:]
    rows.extend(left)


async def filter_list_groups(answer: Any, request: Any, call: IdentifiedCall, rights: CallRights) -> Any:
    who = call.identity
    if not rights.may(who, DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        keep_rows(answer.groups, lambda group: rights.may(who, DESCRIBE, ResourceType.GROUP, group.group_id))
    return answer


async def filter_all_topics(answer: Any, request: Any, call: IdentifiedCall, rights: CallRights) -> Any:
    """Of Metadata and OffsetFetch: rows that say no stand for names that the request itself has."""
    if request.all_topics:
        may_see, asked = (
            topic_filter(call, rights),
            {name if isinstance(name, str) else name.name for name in request.topics},
        )
        keep_rows(answer.topics, lambda row: row.name in asked or may_see(row.name))
    return answer


async def filter_describe_groups(answer: Any, request: Any, call: IdentifiedCall, rights: CallRights) -> Any:
    may_see = topic_filter(call, rights)
    for group in answer.groups:
        drop_hidden_rows(group.fences.newest, find_hidden((fence.topic for fence in group.fences.newest), may_see))
        for member in group.members:
            member.subscribed_topic_names[:] = filter(may_see, member.subscribed_topic_names)
    return answer


async def filter_consumer_group_describe(answer: Any, request: Any, call: IdentifiedCall, rights: CallRights) -> Any:
    """As Kafka: a group that reads what the reader may not describe is not described."""
    may_see = topic_filter(call, rights)
    for group in answer.groups:
        names = {
            part.topic_name
            for member in group.members
            for plan in (member.assignment, member.target_assignment)
            for part in plan.topic_partitions
            if part.topic_name
        } | {name for member in group.members for name in member.subscribed_topic_names}
        if find_hidden(names, may_see):
            group_id = group.group_id
            group.Clear()
            group.group_id, group.error_code = group_id, int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            group.error_message = "the group reads topics that you may not describe"
    return answer


async def filter_explain_group(answer: Any, request: Any, call: IdentifiedCall, rights: CallRights) -> Any:
    redact = partial(redact_all, answer.rebalances, topic_filter(call, rights), rights)
    if sum(len(entry.snapshot_json) for entry in answer.rebalances) > LARGE_CHARACTERS:
        await asyncio.to_thread(redact)
    else:
        redact()
    return answer


def redact_all(entries: Any, may_see: Callable[[str], bool], rights: CallRights) -> None:
    for entry in entries:
        redact_entry(entry, may_see, rights.topics())


async def filter_simulate_assignment(answer: Any, request: Any, call: IdentifiedCall, rights: CallRights) -> Any:
    """Who brings a snapshot of their own knows what is in it."""
    if request.snapshot_json or not answer.snapshot_json:
        return answer
    topics = await asyncio.to_thread(lambda: set(topics_of_snapshot(json.loads(answer.snapshot_json))))
    if find_hidden(topics, topic_filter(call, rights)):
        code, _ = rights.refuse(
            call, SEE_TOPIC, sorted(find_hidden(topics, topic_filter(call, rights)))[0], "SimulateAssignment"
        )
        return type(answer)(error_code=int(code), error_message="the group reads topics that you may not describe")
    return answer


async def filter_overrides(answer: Any, request: Any, call: IdentifiedCall, rights: CallRights) -> Any:
    may_see = topic_filter(call, rights)
    keep_rows(answer.holds.pins, lambda held: may_see(held.pin.topic))
    if answer.DESCRIPTOR.fields_by_name.get("sentence"):
        answer.sentence = redact_sentence(answer.sentence, call, rights)
    return answer


async def filter_causes(answer: Any, request: Any, call: IdentifiedCall, rights: CallRights) -> Any:
    """Sentences on causes, which members hear of their own groups."""
    if answer.cause_detail:
        answer.cause_detail = redact_sentence(answer.cause_detail, call, rights)
    return answer


def redact_sentence(text: str, call: IdentifiedCall, rights: CallRights) -> str:
    return redact_text(text, (), topic_filter(call, rights), rights.topics())


def filter_watch_notice(answer: Any, call: IdentifiedCall, rights: CallRights) -> None:
    """Of WatchGroup, in place."""
    if answer.HasField("rebalance"):
        redact_entry(answer.rebalance, topic_filter(call, rights), rights.topics())


def filter_member_push(answer: Any, who: Identity, rights: CallRights) -> None:
    """Of Session, in place: why, without names."""
    said: Any = getattr(answer, str(answer.WhichOneof("event")), None)
    if said is not None and "order" in said.DESCRIPTOR.oneofs_by_name:
        said = getattr(said, str(said.WhichOneof("order")), None)
    if said is not None and "cause_detail" in said.DESCRIPTOR.fields_by_name and said.cause_detail:
        said.cause_detail = redact_text(said.cause_detail, (), partial(rights.may_see, who), rights.topics())


ANSWER_FILTERS: Final[Mapping[str, AnswerFilter]] = {
    "ListGroups": filter_list_groups,
    "Metadata": filter_all_topics,
    "OffsetFetch": filter_all_topics,
    "DescribeGroups": filter_describe_groups,
    "ConsumerGroupDescribe": filter_consumer_group_describe,
    "ExplainGroup": filter_explain_group,
    "SimulateAssignment": filter_simulate_assignment,
    "HoldGroup": filter_overrides,
    "ResumeGroup": filter_overrides,
    "DescribeHolds": filter_overrides,
    "JoinGroup": filter_causes,
    "Heartbeat": filter_causes,
    "ConsumerGroupHeartbeat": filter_causes,
}
