"""What is taken out of answers before they leave: names that whoever asked may not know of. By the method's name."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from muster.coordinator.errors import ErrorCode
from muster.coordinator.security.acl.model import CLUSTER_NAME, Operation, ResourceType
from muster.coordinator.security.acl.rights import Right
from muster.coordinator.security.identity import Identity
from muster.coordinator.server.security.rights.asking import Asks, Rights
from muster.coordinator.server.security.rights.redacting import (
    hidden_of,
    keep,
    redact_entry,
    redacted_text,
    topics_of_snapshot,
)

DESCRIBE: Final = Operation.DESCRIBE
SEE_TOPIC: Final = Right(DESCRIBE, ResourceType.TOPIC, "topics of the answer")
LARGE_CHARACTERS: Final = 64 << 10

After: TypeAlias = Callable[[Any, Any, Asks, Rights], Awaitable[Any]]
"""Of an answer, its request, and the call: the answer that leaves."""


def sees(call: Asks, rights: Rights) -> Callable[[str], bool]:
    return partial(rights.may_see, call.identity)


def keep_if(rows: Any, wanted: Callable[[Any], bool]) -> None:
    if all(map(wanted, rows)):
        return
    left = [type(row).FromString(row.SerializeToString()) for row in rows if wanted(row)]
    del rows[:]
    rows.extend(left)


async def list_groups(answer: Any, request: Any, call: Asks, rights: Rights) -> Any:
    who = call.identity
    if not rights.may(who, DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        keep_if(answer.groups, lambda group: rights.may(who, DESCRIBE, ResourceType.GROUP, group.group_id))
    return answer


async def all_topics(answer: Any, request: Any, call: Asks, rights: Rights) -> Any:
    """Of Metadata and OffsetFetch: rows that say no stand for names that the request itself has."""
    if request.all_topics:
        may_see, asked = sees(call, rights), {name if isinstance(name, str) else name.name for name in request.topics}
        keep_if(answer.topics, lambda row: row.name in asked or may_see(row.name))
    return answer


async def describe_groups(answer: Any, request: Any, call: Asks, rights: Rights) -> Any:
    may_see = sees(call, rights)
    for group in answer.groups:
        keep(group.fences.newest, hidden_of((fence.topic for fence in group.fences.newest), may_see))
        for member in group.members:
            member.subscribed_topic_names[:] = filter(may_see, member.subscribed_topic_names)
    return answer


async def consumer_group_describe(answer: Any, request: Any, call: Asks, rights: Rights) -> Any:
    """As Kafka: a group that reads what the reader may not describe is not described."""
    may_see = sees(call, rights)
    for group in answer.groups:
        names = {
            part.topic_name
            for member in group.members
            for plan in (member.assignment, member.target_assignment)
            for part in plan.topic_partitions
            if part.topic_name
        } | {name for member in group.members for name in member.subscribed_topic_names}
        if hidden_of(names, may_see):
            group_id = group.group_id
            group.Clear()
            group.group_id, group.error_code = group_id, int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            group.error_message = "the group reads topics that you may not describe"
    return answer


async def explain_group(answer: Any, request: Any, call: Asks, rights: Rights) -> Any:
    redact = partial(redact_all, answer.rebalances, sees(call, rights), rights)
    if sum(len(entry.snapshot_json) for entry in answer.rebalances) > LARGE_CHARACTERS:
        await asyncio.to_thread(redact)
    else:
        redact()
    return answer


def redact_all(entries: Any, may_see: Callable[[str], bool], rights: Rights) -> None:
    for entry in entries:
        redact_entry(entry, may_see, rights.topics())


async def simulate_assignment(answer: Any, request: Any, call: Asks, rights: Rights) -> Any:
    """Who brings a snapshot of their own knows what is in it."""
    if request.snapshot_json or not answer.snapshot_json:
        return answer
    topics = await asyncio.to_thread(lambda: set(topics_of_snapshot(json.loads(answer.snapshot_json))))
    if hidden_of(topics, sees(call, rights)):
        code, _ = rights.refuse(call, SEE_TOPIC, sorted(hidden_of(topics, sees(call, rights)))[0], "SimulateAssignment")
        return type(answer)(error_code=int(code), error_message="the group reads topics that you may not describe")
    return answer


async def holds(answer: Any, request: Any, call: Asks, rights: Rights) -> Any:
    may_see = sees(call, rights)
    keep_if(answer.holds.pins, lambda held: may_see(held.pin.topic))
    if answer.DESCRIPTOR.fields_by_name.get("sentence"):
        answer.sentence = plain(answer.sentence, call, rights)
    return answer


async def why(answer: Any, request: Any, call: Asks, rights: Rights) -> Any:
    """Sentences on causes, which members hear of their own groups."""
    if answer.cause_detail:
        answer.cause_detail = plain(answer.cause_detail, call, rights)
    return answer


def plain(text: str, call: Asks, rights: Rights) -> str:
    return redacted_text(text, (), sees(call, rights), rights.topics())


def told_to_watcher(answer: Any, call: Asks, rights: Rights) -> None:
    """Of WatchGroup, in place."""
    if answer.HasField("rebalance"):
        redact_entry(answer.rebalance, sees(call, rights), rights.topics())


def told_to_member(answer: Any, who: Identity, rights: Rights) -> None:
    """Of Session, in place: why, without names."""
    said: Any = getattr(answer, str(answer.WhichOneof("event")), None)
    if said is not None and "order" in said.DESCRIPTOR.oneofs_by_name:
        said = getattr(said, str(said.WhichOneof("order")), None)
    if said is not None and "cause_detail" in said.DESCRIPTOR.fields_by_name and said.cause_detail:
        said.cause_detail = redacted_text(said.cause_detail, (), partial(rights.may_see, who), rights.topics())


AFTER: Final[Mapping[str, After]] = {
    "ListGroups": list_groups,
    "Metadata": all_topics,
    "OffsetFetch": all_topics,
    "DescribeGroups": describe_groups,
    "ConsumerGroupDescribe": consumer_group_describe,
    "ExplainGroup": explain_group,
    "SimulateAssignment": simulate_assignment,
    "HoldGroup": holds,
    "ResumeGroup": holds,
    "DescribeHolds": holds,
    "JoinGroup": why,
    "Heartbeat": why,
    "ConsumerGroupHeartbeat": why,
}
