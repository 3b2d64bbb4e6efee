"""One judge per answer: what a caller of gRPC, HTTP or the command line may not describe is in no answer of a method.

A judge goes through the whole answer, whatever its method: rows of topics that the caller may not describe are left
out, and every text loses their names, also of fields that are added. What more there is to say about a part of an
answer is in `PART_JUDGES`, by the part's type, so that a group's description is the same wherever it is told. Answers
that are not judged are in `UNJUDGED`, each with its reason; a test plants hidden names in all others.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property, partial
from typing import Any, Final

from google.protobuf.message import Message

from muster.coordinator.errors import ErrorCode
from muster.coordinator.security.access_model import CLUSTER_NAME, Identity, Operation, ResourceType
from muster.coordinator.security.redaction import (
    count_words,
    find_hidden,
    keep_rows,
    redact_entry,
    redact_member_blobs,
    redact_text,
    topics_of_snapshot,
)
from muster.coordinator.security.rights import (
    ACLS,
    BROKER,
    FENCING,
    GROUPS,
    QUOTAS,
    SCALER,
    SECURITY,
    STAGING,
    TRANSACTIONS,
    RequiredRight,
)
from muster.coordinator.server.security.call_rights import CallRights, IdentifiedCall
from muster.long_work import LoopSlice, make_aside, run_in_answer_thread

# What is not judged
# ------------------

REQUESTED: Final = "It tells nothing but what becomes of the names in its request."
OF_NO_TOPIC: Final = "Its names are those of users, principals and their entries, for who may look after all of them."
ITS_SHARE: Final = (
    "A member hears its share of topics that it may read; a leader plans with all that members say, as in Kafka."
)

UNJUDGED: Final[Mapping[str, str]] = {
    **dict.fromkeys((GROUPS + "SyncGroup", GROUPS + "LeaveGroup"), ITS_SHARE),
    **{GROUPS + name: REQUESTED for name in ("FindCoordinator", "OffsetCommit", "OffsetDelete", "DeleteGroups")},
    GROUPS + "TxnOffsetCommit": REQUESTED,
    **{TRANSACTIONS + name: REQUESTED for name in ("InitProducerId", "EndTxn", "TerminateTransaction")},
    BROKER + "DescribeProducers": REQUESTED,
    BROKER + "WriteTxnMarkers": REQUESTED,
    GROUPS + "RemoveMembers": REQUESTED,
    FENCING + "ClaimFence": REQUESTED,
    **{
        BROKER + name: REQUESTED
        for name in ("Produce", "Fetch", "MultiFetch", "ListOffsets", "DeleteRecords", "InitProducerId", "AlterConfigs")
    },
    **{STAGING + name: REQUESTED for name in ("StageRecords", "CommitStaged", "AbortStaged")},
    **{ACLS + name: OF_NO_TOPIC for name in ("DescribeAcls", "CreateAcls", "DeleteAcls", "CheckAcl")},
    **{SECURITY + name: OF_NO_TOPIC for name in ("DescribeUsers", "AlterUsers", "DescribeTokens", "CreateToken")},
    SECURITY + "RevokeTokens": OF_NO_TOPIC,
    **{QUOTAS + name: OF_NO_TOPIC for name in ("DescribeQuotas", "AlterQuotas")},
    **{SCALER + name: REQUESTED for name in ("IsActive", "StreamIsActive", "GetMetricSpec", "GetMetrics")},
}
"""By the method's full name: why its answer can tell nothing that is hidden."""

OTHER_NAMES: Final = frozenset(
    {
        *("group_id", "group_instance_id", "member_id", "previous_id", "client_id", "client_host", "client_software"),
        *("leader", "culprit", "culprit_client_id", "culprit_client_host", "waiting_for"),
        *("waited_for", "heaviest", "source", "target", "assignor", "assignor_name", "former", "offered_assignors"),
        *("protocol_type", "protocol_data", "protocol_name", "snapshot_source", "snapshot_json", "forecast_json"),
        *("group_state", "group_type", "host", "rack", "rack_id", "cluster_id", "how", "name", "topic", "topic_name"),
        *("transactional_id", "state", "unknown_states", "client_address", "producer_address", "producer_software"),
    }
)
"""Fields whose text is the name of something, whole: those of topics are judged with their rows."""

# How a topic's rows are known
# ----------------------------

TOPIC_PATHS: Final[Mapping[str, str]] = {
    "TopicMetadata": "name",
    "OffsetFetchTopicResult": "name",
    "TopicResult": "name",
    "HeldPin": "pin.topic",
}
"""By the row's type, where its topic is called otherwise than `topic` or `topic_name`."""

TOPIC_LISTS: Final = frozenset({"subscribed_topic_names"})
"""Fields that list topics."""


@cache
def topic_path(kind: str, fields: frozenset[str]) -> tuple[str, ...]:
    path = TOPIC_PATHS.get(kind) or next((name for name in ("topic", "topic_name") if name in fields), "")
    return tuple(path.split(".")) if path else ()


def topic_of_row(row: Any) -> str | None:
    """The topic that a row of an answer is about; None: it is about none."""
    descriptor = row.DESCRIPTOR
    path = topic_path(descriptor.name, frozenset(descriptor.fields_by_name))
    for name in path:
        row = getattr(row, name)
    return str(row) if path else None


# The judge
# ---------


class AnswerJudge:
    """Of one answer to one caller; in place. Names that the request itself has are not hidden in it."""

    def __init__(self, who: Identity, rights: CallRights, request: Message | None = None) -> None:
        self.who = who
        self.rights = rights
        self._request = request
        self._catalog = rights.topics()

    @cached_property
    def _asked(self) -> frozenset[str]:
        return frozenset() if self._request is None else frozenset(texts_of(self._request))

    def may_see(self, topic: str) -> bool:
        return self.rights.may_see(self.who, topic) or topic in self._asked

    def judge(self, message: Any) -> None:
        part = PART_JUDGES.get(message.DESCRIPTOR.name)
        if part is not None:
            part(self, message)
        for field, value in message.ListFields():
            if field.message_type is None:
                if field.type == field.TYPE_STRING and field.name not in OTHER_NAMES:
                    self._judge_text(message, field, value)
            elif field.message_type.GetOptions().map_entry:
                for key, text in value.items():
                    if isinstance(text, str):
                        value[key] = self.plain(text)
            elif field.is_repeated:
                keep_rows(value, self._sees_row)
                for each in value:
                    self.judge(each)
            else:
                self.judge(value)

    def _judge_text(self, message: Any, field: Any, value: Any) -> None:
        if field.name in TOPIC_LISTS:
            value[:] = filter(self.may_see, value)
        elif field.is_repeated:
            value[:] = map(self.plain, value)
        elif (told := self.plain(value)) != value:
            setattr(message, field.name, told)

    def _sees_row(self, row: Any) -> bool:
        topic = topic_of_row(row)
        return topic is None or not topic or self.may_see(topic)

    def plain(self, text: str) -> str:
        """A sentence without names of topics that are hidden."""
        return redact_text(text, (), self.may_see, self._catalog)


def texts_of(message: Any) -> Iterator[str]:
    """Every text in a message."""
    for field, value in message.ListFields():
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for each in value if field.is_repeated else (value,):
                yield from texts_of(each)
        elif field.type == field.TYPE_STRING:
            yield from value if field.is_repeated else (value,)


# Parts of answers
# ----------------


def judge_entry(judge: AnswerJudge, entry: Any) -> None:
    hidden = redact_entry(entry, judge.may_see)
    if hidden:
        # Also those that are gone: the catalog knows them no more.
        for message in (entry, *entry.moves, *entry.triggers, *entry.shadows):
            redact_known_texts(message, hidden)
        many = f"{count_words(len(hidden))} left out"
        entry.detail = f"{entry.detail} ({many})" if entry.detail else many


def redact_known_texts(message: Any, hidden: set[str]) -> None:
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING and field.name not in OTHER_NAMES:
            if field.is_repeated:
                value[:] = [redact_text(each, hidden, bool, ()) for each in value]
            else:
                setattr(message, field.name, redact_text(value, hidden, bool, ()))


def judge_progress(judge: AnswerJudge, group: Any) -> None:
    """Figures over hidden topics are not told: a part of a sum is none."""
    if group.HasField("progress") and not judge.rights.may_see_figures(judge.who, group.group_id):
        group.ClearField("progress")


def judge_description(judge: AnswerJudge, group: Any) -> None:
    """Of a group of any kind."""
    hidden = find_hidden(judge.rights.topics_of_group(group.group_id), judge.may_see)
    for member in group.members:
        hidden |= find_hidden(member.subscribed_topic_names, judge.may_see)
        blobs = member.member_metadata, member.member_assignment
        told = redact_member_blobs(group.protocol_type, *blobs, judge.may_see)
        member.member_metadata, member.member_assignment, named = told
        hidden |= named
    judge_progress(judge, group)
    group.hidden_topics = len(hidden)


def judge_consumer_description(judge: AnswerJudge, group: Any) -> None:
    """As Kafka: a group that reads what the reader may not describe is not described by this call."""
    names = {
        part.topic_name
        for member in group.members
        for plan in (member.assignment, member.target_assignment)
        for part in plan.topic_partitions
        if part.topic_name
    } | {name for member in group.members for name in member.subscribed_topic_names}
    if find_hidden(names, judge.may_see):
        group_id = group.group_id
        group.Clear()
        group.group_id, group.error_code = group_id, int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        group.error_message = HIDDEN_TOPICS


HIDDEN_TOPICS: Final = "the group reads topics that you may not describe"


def judge_forecast(judge: AnswerJudge, answer: Any) -> None:
    """A part of the moves is none of a caller who would take it for the whole."""
    if find_hidden((move.topic for move in answer.moves), judge.may_see):
        del answer.moves[:]
        answer.moves_unknown = "partitions of topics that you may not describe would move"


def judge_condition(judge: AnswerJudge, condition: Any) -> None:
    """Its name says of what it is: a partition, for instance."""
    condition.name = judge.plain(condition.name)


PartJudge = Callable[[AnswerJudge, Any], None]

PART_JUDGES: Final[Mapping[str, PartJudge]] = {
    "Condition": judge_condition,
    "Rebalance": judge_entry,
    "ListedGroup": judge_progress,
    "WatchGroupResponse": judge_progress,
    "DescribedGroup": judge_description,
    "DescribedConsumerGroup": judge_consumer_description,
    "HoldGroupResponse": judge_forecast,
    "ResumeGroupResponse": judge_forecast,
    "StartCanaryResponse": judge_forecast,
}
"""By the type of a part of an answer: what there is to do with it before its rows and texts are judged."""


# Answers of methods
# ------------------

LARGE_BYTES: Final = 64 << 10
"""A larger answer is judged in a thread."""


async def judge_answer(answer: Any, request: Any, call: IdentifiedCall, rights: CallRights) -> Any:
    """The answer as it may leave: the given one, changed, or a copy of one that others share."""
    who = call.identity
    if answer.DESCRIPTOR.name == "ListGroupsResponse":
        answer = await copy_visible_groups(answer, who, rights)
    if answer.DESCRIPTOR.name == "ListTransactionsResponse":
        kind = ResourceType.TRANSACTIONAL_ID
        may_see = partial(
            keep_rows,
            answer.transactions,
            lambda row: rights.may(who, Operation.DESCRIBE, kind, row.transactional_id),
        )
        await make_aside(may_see, len(answer.transactions))
    if rights.sees_every_topic(who):
        return answer
    if answer.DESCRIPTOR.name == "SimulateAssignmentResponse":
        answer = await judge_simulation(answer, request, call, rights)
    judge = AnswerJudge(who, rights, request)
    if answer.ByteSize() > LARGE_BYTES:
        await run_in_answer_thread(partial(judge.judge, answer))
    else:
        judge.judge(answer)
    return answer


async def copy_visible_groups(answer: Any, who: Identity, rights: CallRights) -> Any:
    """The groups that the caller may know of, in a list of their own: callers who ask at once share the given one."""
    sees_all = rights.may(who, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    if sees_all and rights.sees_every_topic(who):
        return answer
    own, breath = type(answer)(), LoopSlice()
    for described, value in answer.ListFields():
        if described.name != "groups":
            setattr(own, described.name, value)
    for group in answer.groups:
        if sees_all or rights.may(who, Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
            own.groups.append(group)
        await breath.yield_if_used()
    return own


async def judge_simulation(answer: Any, request: Any, call: IdentifiedCall, rights: CallRights) -> Any:
    """A plan is told whole or not at all. Who brings a snapshot of their own knows what is in it."""
    if request.snapshot_json or not answer.snapshot_json:
        return answer
    topics = await run_in_answer_thread(lambda: set(topics_of_snapshot(json.loads(answer.snapshot_json))))
    hidden = sorted(find_hidden(topics, partial(rights.may_see, call.identity)))
    if not hidden:
        return answer
    code, _ = rights.refuse(call, SEE_TOPIC, hidden[0], "SimulateAssignment")
    return type(answer)(error_code=int(code), error_message=HIDDEN_TOPICS)


async def judge_causes(answer: Any, request: Any, call: IdentifiedCall, rights: CallRights) -> Any:
    """Of what members are answered all the time: sentences on causes and refusals, where there are any."""
    if answer.cause_detail or answer.error_message:
        judge_sentences(answer, call.identity, rights)
    return answer


def judge_push(answer: Any, call: IdentifiedCall, rights: CallRights) -> None:
    """Of a session, in place: sentences; the topics are those that the member may read."""
    said: Any = getattr(answer, str(answer.WhichOneof("event")), None)
    if said is not None and "order" in said.DESCRIPTOR.oneofs_by_name:
        said = getattr(said, str(said.WhichOneof("order")), None)
    if said is not None:
        judge_sentences(said, call.identity, rights)


def judge_sentences(message: Any, who: Identity, rights: CallRights) -> None:
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING and field.name in SENTENCES and not rights.sees_every_topic(who):
            setattr(message, field.name, AnswerJudge(who, rights).plain(value))


SENTENCES: Final = ("cause_detail", "error_message", "detail", "reason")
"""What members hear in words."""

JUDGED_BY_SENTENCE: Final = frozenset({GROUPS + "JoinGroup", GROUPS + "Heartbeat", GROUPS + "ConsumerGroupHeartbeat"})
"""Members ask these all the time; the rest of their answers is a member's share (see UNJUDGED)."""

SEE_TOPIC: Final = RequiredRight(Operation.DESCRIBE, ResourceType.TOPIC, "topics of the answer")
