"""What a caller of gRPC or HTTP may know: the lists are asked, refusals are audited, and answers are redacted.

What leaves in an answer is filtered by the method's name: groups and topics that the caller may not describe are left
out. Ledger entries and snapshots lose those topics and say how many, and what members and operators wrote themselves
goes too, since it may name them; sentences keep no hidden name. The table of rights is `coordinator/security`'s.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from functools import cache, partial
from typing import Any, Final, Protocol, TypeAlias

from google.protobuf.message import Message

from muster.coordinator.errors import ErrorCode
from muster.coordinator.security.access_model import CLUSTER_NAME, Identity, Operation, ResourceType
from muster.coordinator.security.authorizer import Authorizer, describe_missing_right, remember_allowed
from muster.coordinator.security.rights import REFUSALS, RequiredRight
from muster.coordinator.server.security.audit_log import AuditLog

# Asking the lists
# ----------------

DOOR: Final = "grpc"


class IdentifiedCall(Protocol):
    """What is known of a call."""

    @property
    def identity(self) -> Identity: ...


class RightsChanged:
    """Wakes whoever goes on for long, so that it looks at its rights again."""

    def __init__(self) -> None:
        self._waiting: asyncio.Event | None = None

    def notify_waiters(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.set()

    def event(self) -> asyncio.Event:
        """Set with the next change."""
        if self._waiting is None:
            self._waiting = asyncio.Event()
        return self._waiting


class CallRights:
    """Asks the lists, and tells the audit who was refused. `topics` are the catalog's names."""

    def __init__(
        self, authorizer: Authorizer, audit: AuditLog, topics: Callable[[], Container[str]] = lambda: frozenset()
    ) -> None:
        self.authorizer = authorizer
        self._audit = audit
        self.topics = topics
        self.changed = RightsChanged()
        self.believed: Callable[[Identity], bool] = lambda who: True
        """Whether what somebody has shown still counts: it may have been revoked since."""

    @property
    def moment(self) -> object:
        """See `Authorizer.moment`."""
        return self.authorizer.moment

    def may(self, who: Identity, operation: Operation, kind: ResourceType, name: str) -> bool:
        return self.authorizer.allows(who, operation, kind, name)

    def has_right(self, who: Identity, right: RequiredRight, name: str = CLUSTER_NAME) -> bool:
        """This right, or the one that does instead."""
        if self.authorizer.allows(who, right.operation, right.resource_type, name):
            return True
        other = right.instead
        if other is None:
            return False
        return self.has_right(who, other, CLUSTER_NAME if other.resource_type is ResourceType.CLUSTER else name)

    def clears(self, who: Identity, right: RequiredRight, name: str) -> bool:
        """`holds`, which is noted."""
        moment = self.authorizer.moment
        if not self.has_right(who, right, name):
            return False
        remember_allowed(who, right, name, moment)
        return True

    def may_somewhere(self, who: Identity, operation: Operation, kind: ResourceType) -> bool:
        """Whether there is a resource of the kind with which this is allowed."""
        return self.authorizer.allows_any(who, operation, kind)

    def may_see(self, who: Identity, topic: str) -> bool:
        return self.authorizer.allows(who, Operation.DESCRIBE, ResourceType.TOPIC, topic)

    def may_see_group(self, who: Identity, group: str) -> bool:
        return self.may(who, Operation.DESCRIBE, ResourceType.GROUP, group) or self.may_see_node(who)

    def may_see_node(self, who: Identity) -> bool:
        return self.may(who, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)

    def refuse(self, call: IdentifiedCall, right: RequiredRight, name: str, api: str) -> tuple[ErrorCode, str]:
        """The code, and a sentence: what is missing and how it is granted, to who may know of the resource."""
        who, door = call.identity, getattr(call, "door", DOOR)
        self._audit.refused(who, door, right.operation, right.resource_type, name, api)
        code = ErrorCode(REFUSALS[right.resource_type])
        knows = self.may(who, Operation.DESCRIBE, right.resource_type, name) or self.may(
            who, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME
        )
        return code, describe_missing_right(who, right.operation, right.resource_type, name) if knows else ""


# Redacting ledger entries and snapshots
# --------------------------------------

TOPIC: Final = "a topic you may not describe"
WORD: Final = re.compile(r"[A-Za-z0-9._-]+")
ENDS: Final = ".,-_"
NO_SENTENCES: Final = frozenset(
    {"group_id", "snapshot_json", "snapshot_source", "topic", "protocol_type", "protocol_name", "name", "how"}
)
"""Texts of an entry that name no topic: the group's own, and the ledger's words. Rows with a topic of their own and the
snapshot are redacted as a whole."""
BY_TOPIC: Final = ("topics", "lags", "racks", "stale")

MaySee = Callable[[str], bool]


def find_hidden(names: Iterable[str], may_see: MaySee) -> set[str]:
    return {name for name in set(names) if not may_see(name)}


def redact_entry(entry: Any, may_see: MaySee, catalog: Container[str]) -> None:
    """Of one rebalance (`Rebalance`), in place."""
    snapshot = json.loads(entry.snapshot_json) if entry.snapshot_json else None
    hidden = find_hidden(topics_of_entry(entry, snapshot), may_see)
    for member in entry.members:
        drop_hidden_rows(member.assigned, hidden)
    drop_hidden_rows(entry.moves, hidden)
    drop_hidden_rows(entry.positions, hidden)
    drop_hidden_rows(entry.topics, hidden)
    if snapshot is not None and hidden:
        entry.snapshot_json = json.dumps(redact_snapshot(snapshot, hidden), separators=(",", ":"))

    @cache
    def plain(text: str) -> str:
        return redact_text(text, hidden, may_see, catalog)

    redact_texts(entry, plain)
    if hidden:
        many = f"{len(hidden)} topic{'s' if len(hidden) > 1 else ''} you may not describe"
        entry.detail = f"{entry.detail} ({many} left out)" if entry.detail else f"{many} left out"


def redact_texts(message: Message, plain: Callable[[str], str]) -> None:
    """Every text of a message and of those in it, in place: a field that is added is covered, too."""
    for field, value in message.ListFields():
        if field.name in NO_SENTENCES or isinstance(value, int | float):
            continue
        if isinstance(value, str):
            setattr(message, field.name, plain(value))
        elif field.message_type is None:
            value[:] = [plain(each) if isinstance(each, str) else each for each in value]
        else:
            for each in (value,) if isinstance(value, Message) else value:
                redact_texts(each, plain)


def topics_of_entry(entry: Any, snapshot: Any) -> Iterable[str]:
    for member in entry.members:
        yield from (each.topic for each in member.assigned)
    yield from (each.topic for each in entry.moves)
    yield from (each.topic for each in entry.positions)
    yield from (each.topic for each in entry.topics)
    if snapshot is not None:
        yield from topics_of_snapshot(snapshot)


def topics_of_snapshot(snapshot: Any) -> Iterable[str]:
    """The topics that a snapshot (as JSON has it) names."""
    for field in BY_TOPIC:
        yield from snapshot.get(field) or ()
    for member in snapshot.get("members", ()):
        yield from member.get("topics", ())
        yield from member.get("owned") or ()


def redact_snapshot(snapshot: dict[str, Any], hidden: Container[str]) -> dict[str, Any]:
    """Without those topics; what members and operators wrote themselves goes, for it may name them."""
    made = {name: value for name, value in snapshot.items() if name != "options"}
    for field in BY_TOPIC:
        if made.get(field):
            made[field] = {topic: value for topic, value in made[field].items() if topic not in hidden}
    made["members"] = [redact_member(member, hidden) for member in snapshot.get("members", ())]
    return made


def redact_member(member: dict[str, Any], hidden: Container[str]) -> dict[str, Any]:
    made = {name: value for name, value in member.items() if name != "user_data"}
    made["topics"] = [topic for topic in member.get("topics", ()) if topic not in hidden]
    if member.get("owned"):
        made["owned"] = {topic: value for topic, value in member["owned"].items() if topic not in hidden}
    return made


def drop_hidden_rows(rows: Any, hidden: Container[str]) -> None:
    """Leave out, in place, the rows of those topics."""
    if any(row.topic in hidden for row in rows):
        left = [type(row).FromString(row.SerializeToString()) for row in rows if row.topic not in hidden]
        del rows[:]
        rows.extend(left)


def redact_text(text: str, hidden: Container[str], may_see: MaySee, catalog: Container[str]) -> str:
    """A sentence without the names of topics that are hidden, or known and not to be seen."""

    def plain(found: re.Match[str]) -> str:
        word = found.group()
        for name in (word, word.strip(ENDS)):
            if name and (name in hidden or (name in catalog and not may_see(name))):
                return word.replace(name, TOPIC)
        return word

    return WORD.sub(plain, text) if text else text


# Filtering answers by method
# ---------------------------

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
    if "moves" in answer.DESCRIPTOR.fields_by_name:
        leave_out_moves(answer, may_see)
    if answer.DESCRIPTOR.fields_by_name.get("sentence"):
        answer.sentence = redact_sentence(answer.sentence, call, rights)
    return answer


async def filter_canary(answer: Any, request: Any, call: IdentifiedCall, rights: CallRights) -> Any:
    leave_out_moves(answer, topic_filter(call, rights))
    return answer


def leave_out_moves(answer: Any, may_see: MaySee) -> None:
    """Of a forecast, in place. A part of the moves is none of a caller who would take it for the whole."""
    if find_hidden((move.topic for move in answer.moves), may_see):
        del answer.moves[:]
        answer.moves_unknown = "partitions of topics that you may not describe would move"


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
    "StartCanary": filter_canary,
    "JoinGroup": filter_causes,
    "Heartbeat": filter_causes,
    "ConsumerGroupHeartbeat": filter_causes,
}
