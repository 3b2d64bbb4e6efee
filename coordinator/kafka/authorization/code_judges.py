"""Judges of the APIs that need code: the rest of them are rows of `answer_shapes`.

Admin. DescribeCluster tells authorized operations. Settings are judged resource by resource, each by the right to its
type (DescribeConfigs, AlterConfigs, IncrementalAlterConfigs). ListConfigResources leaves out what the caller may not
see, where Kafka lists every topic to a caller that may describe the cluster's settings.

Groups. FindCoordinator has two wire forms, and the kind of key decides which right counts. DescribeGroups tells
authorized operations, and leaves topics out of what members exchange. ConsumerGroupDescribe hides a group because of
the topics in its answer. ConsumerGroupHeartbeat refuses all for the first topic that the caller may not describe.
OffsetCommit works on flat offsets, and a thread writes very large refusals. OffsetFetch has three wire forms, and each
group is refused, asked in part, or filtered.

Log. Metadata names topics by id too, needs CREATE only for what is missing, and has a form of its own in version 0.
CreateTopics blanks fields of what was created. DeleteTopics names topics by id too. Produce has a fast path for one
batch, and ends the connection where acks=0. Fetch asks for nothing where a session goes on, and is judged again after
its wait. InitProducerId needs one of two rights. An answer never reveals that a topic exists to a caller that may not
describe it.
"""

from collections.abc import Callable, Iterator
from copy import copy
from functools import partial
from typing import Any, Final

from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.authorization.answer_shapes import Parts, Rows
from muster.coordinator.kafka.authorization.judge import (
    MAX_AUDITED_REFUSALS,
    AccessCheck,
    Judge,
    PartialRequest,
    RefusalAnswer,
    Verdict,
    allowed_operations,
    refusal_code,
)
from muster.coordinator.kafka.authorization.table_judges import RefusedRows, partial_request
from muster.coordinator.kafka.codec.codec import encode, struct
from muster.coordinator.kafka.dispatch import EncodedAnswer, HangUp, KafkaCall, ThreadedAnswer
from muster.coordinator.kafka.handlers.offset_commit_reader import CommitShape, OffsetCommitRequest
from muster.coordinator.kafka.handlers.single_batch_produce import SingleBatch
from muster.coordinator.kafka.handlers.transaction_batches import BATCHED_SINCE, make_additions_response
from muster.coordinator.kafka.protocol import OPERATIONS_NOT_REQUESTED
from muster.coordinator.security.access_model import CLUSTER_NAME, ResourceType
from muster.coordinator.security.redaction import redact_member_blobs
from muster.coordinator.security.rights import API_RIGHTS, DESCRIBE, RequiredRight, on_cluster

# Admin APIs
# ----------

# The cluster as a whole
# ----------------------

(DESCRIBE_CLUSTER_OPERATIONS_RIGHT,) = API_RIGHTS["DescribeCluster"]


def judge_describe_cluster(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    """Every caller may list the nodes. Authorized operations are only for callers that may describe the cluster."""
    if not request.include_cluster_authorized_operations:
        return None

    def amend(answer: Any) -> Any:
        known = may.is_allowed(call, DESCRIBE_CLUSTER_OPERATIONS_RIGHT)
        answer.cluster_authorized_operations = allowed_operations(may, call, ResourceType.CLUSTER) if known else 0
        return answer

    return PartialRequest(request, amend)


# The log directory
# -----------------

LOG_DIRS_RIGHT, LOG_DIRS_TOPIC_RIGHT = API_RIGHTS["DescribeLogDirs"]


def judge_describe_log_dirs(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    """Before version 3 a refusal is an empty list, for there is no place for its code."""
    if not may(call, LOG_DIRS_RIGHT, CLUSTER_NAME, api="DescribeLogDirs"):
        return RefusalAnswer(struct("DescribeLogDirsResponse")(error_code=refusal_code(LOG_DIRS_RIGHT)))
    if may.allows_every(call, LOG_DIRS_TOPIC_RIGHT):
        return None

    def amend(answer: Any) -> Any:
        for directory in answer.results:
            sees = may.name_filter(call, LOG_DIRS_TOPIC_RIGHT, len(directory.topics))
            directory.topics = [topic for topic in directory.topics if sees(topic.name)]
        return answer

    return PartialRequest(request, amend)


# Settings
# --------

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
"""Kafka's types of resources with settings; they differ from those of its access control lists."""

RIGHT_BY_RESOURCE_TYPE: Final = {TOPIC: 0, GROUP: 1, BROKER: 2, BROKER_LOGGER: 2, CLIENT_METRICS: 2}
"""The index of the right that each type needs. The handler refuses unknown types."""

LIST_CONFIG_RESOURCES: Final = "ListConfigResources"
LIST_RESOURCES_RIGHT, VISIBLE_TOPIC_RIGHT, VISIBLE_GROUP_RIGHT = API_RIGHTS[LIST_CONFIG_RESOURCES]
VISIBLE_RIGHTS: Final = {TOPIC: VISIBLE_TOPIC_RIGHT, GROUP: VISIBLE_GROUP_RIGHT}


def make_resource_judge(api: str, rows_in: str) -> Judge:
    """For an API whose request lists resources; the answer's list `rows_in` has a row for each."""
    rights = API_RIGHTS[api]
    path = f"{api}Response.{rows_in}"

    def judge(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
        may_each = {right: may.name_filter(call, right, len(request.resources)) for right in rights}
        allowed, rows = [], []
        for resource in request.resources:
            right = resource_right(rights, resource)
            if right is None or may_each[right](judged_name(right, resource)):
                allowed.append(resource)
            else:
                rows.append(refused_resource_row(path, may, call, right, resource, len(request.resources)))
                may.audit_refusals(
                    call, right, [judged_name(right, resource)] if len(rows) <= MAX_AUDITED_REFUSALS else [], api=api
                )
        return (
            partial_request(request, "resources", allowed, f"{api}Response", rows_in, unique_rows(rows))
            if rows
            else None
        )

    return judge


def resource_right(rights: tuple[RequiredRight, ...], resource: Any) -> RequiredRight | None:
    place = RIGHT_BY_RESOURCE_TYPE.get(resource.resource_type)
    return None if place is None else rights[place]


def judged_name(right: RequiredRight, resource: Any) -> str:
    return str(resource.resource_name) if right.of else CLUSTER_NAME


def refused_resource_row(
    path: str, may: AccessCheck, call: KafkaCall, right: RequiredRight, resource: Any, among: int
) -> Any:
    row = struct(path)(
        error_code=refusal_code(right),
        error_message=may.explain_refusal(call, right, judged_name(right, resource), among),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    if path.startswith("DescribeConfigs"):
        row.configs = []
    return row


def unique_rows(rows: list[Any]) -> list[Any]:
    return list({(row.resource_type, row.resource_name): row for row in rows}.values())


def judge_list_config_resources(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    """Leaves out topics and groups that the caller may not describe. Kafka lists them all."""
    if not may(call, LIST_RESOURCES_RIGHT, api=LIST_CONFIG_RESOURCES):
        return RefusalAnswer(struct("ListConfigResourcesResponse")(error_code=refusal_code(LIST_RESOURCES_RIGHT)))

    def amend(answer: Any) -> Any:
        rows = answer.config_resources
        sees = {kind: may.name_filter(call, right, len(rows)) for kind, right in VISIBLE_RIGHTS.items()}
        answer.config_resources = [
            row for row in rows if row.resource_type not in sees or sees[row.resource_type](row.resource_name)
        ]
        return answer

    return PartialRequest(request, amend)


# Group APIs
# ----------

# Tools
# -----

FIND_COORDINATOR: Final = "FindCoordinator"
FIND_GROUP_RIGHT, FIND_TRANSACTION_RIGHT = API_RIGHTS[FIND_COORDINATOR]
RIGHT_OF_KEYS: Final = {0: FIND_GROUP_RIGHT, 1: FIND_TRANSACTION_RIGHT}
FIND_BATCHED_SINCE: Final = 4
"""FindCoordinator asks for several keys from this version on."""
NO_NODE: Final = {"node_id": -1, "port": -1}
refuse_keys: Final = RefusedRows(
    "FindCoordinatorResponse.coordinators", "", Rows("coordinators", "key", constants=NO_NODE)
)

DESCRIBE_GROUPS: Final = "DescribeGroups"
DESCRIBE_GROUPS_RIGHT, DESCRIBE_GROUP_TOPICS_RIGHT = API_RIGHTS[DESCRIBE_GROUPS]
refuse_described: Final = RefusedRows("DescribeGroupsResponse.groups", "", Rows("groups", "group_id"))
DESCRIBE_TRANSACTIONS: Final = "DescribeTransactions"
DESCRIBE_TRANSACTIONS_RIGHT, TRANSACTION_TOPICS_RIGHT = API_RIGHTS[DESCRIBE_TRANSACTIONS]
refuse_transactions_described: Final = RefusedRows(
    "DescribeTransactionsResponse.transaction_states", "", Rows("transaction_states", "transactional_id")
)
CONSUMER_GROUP_DESCRIBE: Final = "ConsumerGroupDescribe"
CONSUMER_GROUP_DESCRIBE_RIGHT, CONSUMER_GROUP_TOPICS_RIGHT = API_RIGHTS[CONSUMER_GROUP_DESCRIBE]
refuse_consumer_groups: Final = RefusedRows("ConsumerGroupDescribeResponse.groups", "", Rows("groups", "group_id"))

HIDDEN_TOPICS: Final = "The group has described topic(s) that the client is not authorized to describe."


def judge_find_coordinator(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    right = RIGHT_OF_KEYS.get(request.key_type)
    if right is None:
        return None
    if call.api_version < FIND_BATCHED_SINCE:
        if may(call, right, request.key, api=FIND_COORDINATOR):
            return None
        refusal = {"error_code": refusal_code(right), "error_message": may.explain_refusal(call, right, request.key)}
        return RefusalAnswer(struct("FindCoordinatorResponse")(**NO_NODE, **refusal))
    keys = list(dict.fromkeys(request.coordinator_keys))
    allowed, refused = may.split_allowed(call, right, keys, str, api=FIND_COORDINATOR)
    if not refused:
        return None
    rows = refuse_keys(may, call, right, refused)
    return partial_request(request, "coordinator_keys", allowed, "FindCoordinatorResponse", "coordinators", rows)


def judge_describe_groups(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    allowed, refused = may.split_allowed(
        call, DESCRIBE_GROUPS_RIGHT, dict.fromkeys(request.groups), str, api=DESCRIBE_GROUPS
    )
    rows = refuse_described(may, call, DESCRIBE_GROUPS_RIGHT, refused)
    sees_all = may.allows_every(call, DESCRIBE_GROUP_TOPICS_RIGHT)
    if sees_all and not (rows or request.include_authorized_operations):
        return None
    operations = operations_filler(may, call)

    def told(group: Any) -> Any:
        return operations(group if sees_all else hide_topics_of_members(may, call, group))

    return partial_request(request, "groups", allowed, "DescribeGroupsResponse", "groups", rows, told)


def hide_topics_of_members(may: AccessCheck, call: KafkaCall, group: Any) -> Any:
    """A group's members without topics that the caller may not describe. Kafka shows what members exchange."""
    sees = partial(may.is_allowed, call, DESCRIBE_GROUP_TOPICS_RIGHT)
    for member in group.members:
        told = redact_member_blobs(group.protocol_type, member.member_metadata, member.member_assignment, sees)
        member.member_metadata, member.member_assignment, _ = told
    return group


def judge_describe_transactions(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    """Topics that the caller may not describe are left out of a transaction."""
    names = dict.fromkeys(request.transactional_ids)
    allowed, refused = may.split_allowed(call, DESCRIBE_TRANSACTIONS_RIGHT, names, str, api=DESCRIBE_TRANSACTIONS)
    rows = refuse_transactions_described(may, call, DESCRIBE_TRANSACTIONS_RIGHT, refused)
    sees_all = may.allows_every(call, TRANSACTION_TOPICS_RIGHT)
    if sees_all and not rows:
        return None

    def told(transaction: Any) -> Any:
        if not sees_all:
            sees = may.name_filter(call, TRANSACTION_TOPICS_RIGHT, len(transaction.topics))
            transaction.topics = [row for row in transaction.topics if sees(row.topic)]
        return transaction

    answer = f"{DESCRIBE_TRANSACTIONS}Response"
    return partial_request(request, "transactional_ids", allowed, answer, "transaction_states", rows, told)


def judge_consumer_group_describe(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    """Describes a group only if the caller may describe all of its topics."""
    names = dict.fromkeys(request.group_ids)
    allowed, refused = may.split_allowed(call, CONSUMER_GROUP_DESCRIBE_RIGHT, names, str, api=CONSUMER_GROUP_DESCRIBE)
    rows = refuse_consumer_groups(may, call, CONSUMER_GROUP_DESCRIBE_RIGHT, refused)
    told = operations_filler(may, call)

    def seen(group: Any) -> Any:
        if may.allows_all(call, CONSUMER_GROUP_TOPICS_RIGHT, set(described_topics(group))):
            return told(group)
        return struct("ConsumerGroupDescribeResponse.groups")(
            group_id=group.group_id,
            error_code=refusal_code(CONSUMER_GROUP_TOPICS_RIGHT),
            error_message=HIDDEN_TOPICS,
        )

    return partial_request(request, "group_ids", allowed, "ConsumerGroupDescribeResponse", "groups", rows, seen)


def described_topics(group: Any) -> Iterator[str]:
    """Names of topics in the description of a group. A deleted topic has none."""
    for member in group.members:
        yield from member.subscribed_topic_names
        for assignment in (member.assignment, member.target_assignment):
            yield from (topic.topic_name for topic in assignment.topic_partitions if topic.topic_name)


def operations_filler(may: AccessCheck, call: KafkaCall) -> Callable[[Any], Any]:
    """Fills in the caller's authorized operations, if the request asked for them."""

    def told(group: Any) -> Any:
        if group.authorized_operations != OPERATIONS_NOT_REQUESTED:
            group.authorized_operations = allowed_operations(may, call, ResourceType.GROUP, group.group_id)
        return group

    return told


# Members
# -------

CONSUMER_GROUP_HEARTBEAT: Final = "ConsumerGroupHeartbeat"
CONSUMER_GROUP_RIGHT, SUBSCRIBED_TOPIC_RIGHT, _ = API_RIGHTS[CONSUMER_GROUP_HEARTBEAT]


def judge_consumer_group_heartbeat(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    """Refuses the whole heartbeat for one topic that the caller may not describe."""
    if not may(call, CONSUMER_GROUP_RIGHT, request.group_id, api=CONSUMER_GROUP_HEARTBEAT):
        return refuse_consumer_heartbeat(
            refusal_code(CONSUMER_GROUP_RIGHT), may.explain_refusal(call, CONSUMER_GROUP_RIGHT, request.group_id)
        )
    names = request.subscribed_topic_names or ()
    sees = may.name_filter(call, SUBSCRIBED_TOPIC_RIGHT, len(names))
    hidden = next((name for name in names if not sees(name)), None)
    if hidden is None:
        return None
    may.audit_refusals(call, SUBSCRIBED_TOPIC_RIGHT, [hidden], api=CONSUMER_GROUP_HEARTBEAT)
    return refuse_consumer_heartbeat(
        refusal_code(SUBSCRIBED_TOPIC_RIGHT), may.explain_refusal(call, SUBSCRIBED_TOPIC_RIGHT, hidden)
    )


def refuse_consumer_heartbeat(code: int, message: str) -> RefusalAnswer:
    return RefusalAnswer(struct("ConsumerGroupHeartbeatResponse")(error_code=code, error_message=message))


# Committed offsets
# -----------------

OFFSET_COMMIT: Final = "OffsetCommit"
OFFSET_FETCH: Final = "OffsetFetch"
COMMIT_GROUP_RIGHT, COMMIT_TOPIC_RIGHT = API_RIGHTS[OFFSET_COMMIT]
FETCH_GROUP_RIGHT, FETCH_TOPIC_RIGHT, FETCH_VISIBLE_TOPIC_RIGHT = API_RIGHTS[OFFSET_FETCH]

GROUP_CODE_SINCE: Final = 2
"""OffsetFetch has a code for the whole group from this version on."""
FETCH_BATCHED_SINCE: Final = 8
"""OffsetFetch asks for several groups from this version on."""

NO_POSITIONS: Final = Rows("topics", parts=Parts("partition_indexes", key="", constants={"committed_offset": -1}))
refuse_fetched: Final = RefusedRows("OffsetFetchResponse.topics", "name", NO_POSITIONS)
refuse_fetched_in_group: Final = RefusedRows("OffsetFetchResponse.groups.topics", "name", NO_POSITIONS)
refuse_fetched_groups: Final = RefusedRows("OffsetFetchResponse.groups", "group_id", Rows("groups", "group_id"))


# -- commit -----------------------------------------------------------------------------------------------


def judge_offset_commit(may: AccessCheck, commit: OffsetCommitRequest, call: KafkaCall) -> Verdict:
    request = commit.shape.request
    large = commit.made is not None
    if not may(call, COMMIT_GROUP_RIGHT, request.group_id, api=OFFSET_COMMIT):
        return refuse_commit(request.topics, refusal_code(COMMIT_GROUP_RIGHT), call.api_version, large=large)
    if may.allows_all(call, COMMIT_TOPIC_RIGHT, [topic.name for topic in request.topics]):
        return None
    allowed, refused = may.split_allowed(
        call, COMMIT_TOPIC_RIGHT, request.topics, lambda topic: str(topic.name), api=OFFSET_COMMIT
    )
    code = refusal_code(COMMIT_TOPIC_RIGHT)
    if not allowed:
        return refuse_commit(refused, code, call.api_version, large=large)
    return PartialRequest(
        partial_commit(commit, allowed), lambda answer: append_topics(answer, refused_commit_rows(refused, code))
    )


def refuse_commit(topics: list[Any], code: int, version: int, *, large: bool) -> RefusalAnswer:
    """The same code for all partitions. A thread encodes a large answer."""

    def answer() -> Any:
        return struct("OffsetCommitResponse")(topics=refused_commit_rows(topics, code))

    if not large:
        return RefusalAnswer(answer())
    return RefusalAnswer(ThreadedAnswer(lambda: EncodedAnswer(encode("OffsetCommitResponse", version, answer()))))


def refused_commit_rows(topics: list[Any], code: int) -> list[Any]:
    """As `RefusedRows`, without its generality: a commit may have very many partitions."""
    topic_row, row = struct("OffsetCommitResponse.topics"), struct("OffsetCommitResponse.topics.partitions")
    return [
        topic_row(
            name=topic.name,
            partitions=[row(partition_index=one.partition_index, error_code=code) for one in topic.partitions],
        )
        for topic in topics
    ]


def partial_commit(commit: OffsetCommitRequest, topics: list[Any]) -> OffsetCommitRequest:
    """The commit reduced to these topics."""
    kept = {id(topic) for topic in topics}
    offsets: list[int] = []
    at = 0
    for topic in commit.shape.request.topics:
        if id(topic) in kept:
            offsets += commit.offsets[at : at + len(topic.partitions)]
        at += len(topic.partitions)
    request = copy(commit.shape.request)
    request.topics = topics
    left = OffsetCommitRequest(CommitShape(request), offsets)
    return left if commit.made is None else OffsetCommitRequest(left.shape, offsets, left.positions())


# -- fetch ------------------------------------------------------------------------------------------------


def judge_offset_fetch(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    return (
        judge_fetch_of_groups(may, request, call)
        if call.api_version >= FETCH_BATCHED_SINCE
        else judge_fetch_of_one_group(may, request, call)
    )


def judge_fetch_of_one_group(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    if not may(call, FETCH_GROUP_RIGHT, request.group_id, api=OFFSET_FETCH):
        topics = (request.topics or ()) if call.api_version < GROUP_CODE_SINCE else ()
        rows = refuse_fetched(may, call, FETCH_GROUP_RIGHT, topics)
        return RefusalAnswer(struct("OffsetFetchResponse")(topics=rows, error_code=refusal_code(FETCH_GROUP_RIGHT)))
    if request.topics is None:
        return PartialRequest(request, lambda answer: hide_topics(may, call, answer))
    allowed, refused = may.split_allowed(
        call, FETCH_TOPIC_RIGHT, request.topics, lambda topic: str(topic.name), api=OFFSET_FETCH
    )
    if not refused:
        return None
    rows = refuse_fetched(may, call, FETCH_TOPIC_RIGHT, refused)
    return partial_request(
        request, "topics", allowed, "OffsetFetchResponse", "topics", rows, always_ask=True, unless_error=True
    )


def judge_fetch_of_groups(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    """Judges each group separately. A refused group has only its code."""
    allowed, refused = may.split_allowed(
        call, FETCH_GROUP_RIGHT, request.groups, lambda group: str(group.group_id), api=OFFSET_FETCH
    )
    codes = refuse_fetched_groups(may, call, FETCH_GROUP_RIGHT, refused)
    if not allowed:
        return RefusalAnswer(struct("OffsetFetchResponse")(groups=codes))
    rows: dict[str, list[Any]] = {}
    everything: set[str] = set()
    asked = [allowed_part_of_group(may, call, group, rows, everything) for group in allowed]
    if not (codes or rows or everything):
        return None

    def amend(answer: Any) -> Any:
        for group in answer.groups:
            if group.error_code:
                continue
            if group.group_id in everything:
                hide_topics(may, call, group)
            elif group.group_id in rows:
                append_topics(group, rows[group.group_id])
        answer.groups = [*answer.groups, *codes]
        return answer

    left = copy(request)
    left.groups = asked
    return PartialRequest(left, amend)


def allowed_part_of_group(
    may: AccessCheck, call: KafkaCall, group: Any, rows: dict[str, list[Any]], everything: set[str]
) -> Any:
    """The allowed part of a group's request. Refused topics go to `rows`, by group."""
    if group.topics is None:
        everything.add(group.group_id)
        return group
    allowed, refused = may.split_allowed(
        call, FETCH_TOPIC_RIGHT, group.topics, lambda topic: str(topic.name), api=OFFSET_FETCH
    )
    if not refused:
        return group
    rows[group.group_id] = refuse_fetched_in_group(may, call, FETCH_TOPIC_RIGHT, refused)
    asked = copy(group)
    asked.topics = allowed
    return asked


def hide_topics(may: AccessCheck, call: KafkaCall, answer: Any) -> Any:
    sees = may.name_filter(call, FETCH_VISIBLE_TOPIC_RIGHT, len(answer.topics))
    answer.topics = [topic for topic in answer.topics if sees(topic.name)]
    return answer


def append_topics(answer: Any, rows: list[Any]) -> Any:
    answer.topics = [*answer.topics, *rows]
    return answer


# Log APIs
# --------

# Metadata and topics
# -------------------

METADATA: Final = "Metadata"
METADATA_TOPIC_RIGHT, METADATA_CREATE_RIGHT, METADATA_VISIBLE_TOPIC_RIGHT = API_RIGHTS[METADATA]
DESCRIBE_CLUSTER_RIGHT: Final = on_cluster(DESCRIBE)
CREATE_TOPICS: Final = "CreateTopics"
CREATE_TOPICS_RIGHT, CREATED_CONFIGS_RIGHT = API_RIGHTS[CREATE_TOPICS]
refuse_created: Final = RefusedRows("CreateTopicsResponse.topics", "name", Rows("topics"))
DELETE_TOPICS: Final = "DeleteTopics"
(DELETE_TOPICS_RIGHT,) = API_RIGHTS[DELETE_TOPICS]
DELETED_TOPIC_VISIBLE_RIGHT: Final = RequiredRight(DESCRIBE, ResourceType.TOPIC, DELETE_TOPICS_RIGHT.of)
"""Without it, the answer reveals neither whether the topic exists nor its name."""

NO_ID: Final = bytes(16)
WITHOUT_NAME: Final = "Topic authorization failed."
"""For a request by id: without the name."""

DELETE_BY_ID_SINCE: Final = 6
"""DeleteTopics names topics by id, too, from this version on."""


# -- metadata ---------------------------------------------------------------------------------------------


def judge_metadata(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    """Refuses missing topics that the caller may not create; otherwise the handler would create them."""
    if request.topics is None or (call.api_version == 0 and not request.topics):
        return PartialRequest(request, lambda answer: visible_metadata(may, call, answer, []))
    made = struct("MetadataResponse.topics")
    sees, makes = (
        may.name_filter(call, right, len(request.topics)) for right in (METADATA_TOPIC_RIGHT, METADATA_CREATE_RIGHT)
    )
    making = request.allow_auto_topic_creation and may.catalog.auto_create
    ids = may.catalog.by_id() if any(topic.name is None for topic in request.topics) else {}
    left: list[Any] = []
    rows: list[Any] = []
    for topic in request.topics:
        name = ids.get(topic.topic_id) if topic.name is None else topic.name
        if name is None or (sees(name) and (not making or name in may.catalog or makes(name))):
            left.append(topic)
            continue
        if len(rows) < MAX_AUDITED_REFUSALS:
            may.audit_refusals(
                call, METADATA_CREATE_RIGHT if sees(name) else METADATA_TOPIC_RIGHT, [name], api=METADATA
            )
        topic_id = NO_ID if topic.name is not None else topic.topic_id
        rows.append(made(error_code=refusal_code(METADATA_TOPIC_RIGHT), name=topic.name, topic_id=topic_id))
    if not (rows or request.include_topic_authorized_operations or request.include_cluster_authorized_operations):
        return None
    asked = copy(request)
    asked.topics = left
    if not left and call.api_version == 0:  # which asks for all topics by that
        return PartialRequest(asked, lambda answer: visible_metadata(may, call, clear_topics(answer), rows))
    return PartialRequest(asked, lambda answer: visible_metadata(may, call, answer, rows))


def clear_topics(answer: Any) -> Any:
    answer.topics = []
    return answer


def visible_metadata(may: AccessCheck, call: KafkaCall, answer: Any, refused: list[Any]) -> Any:
    """Leaves out topics that the caller may not describe, and fills in authorized operations if requested."""
    rows = []
    sees = may.name_filter(call, METADATA_VISIBLE_TOPIC_RIGHT, len(answer.topics))
    for topic in answer.topics:
        if topic.name is not None and not sees(topic.name):
            continue
        if topic.topic_authorized_operations != OPERATIONS_NOT_REQUESTED:
            topic.topic_authorized_operations = allowed_operations(may, call, ResourceType.TOPIC, topic.name)
        rows.append(topic)
    answer.topics = [*rows, *refused]
    if answer.cluster_authorized_operations != OPERATIONS_NOT_REQUESTED:
        known = may.is_allowed(call, DESCRIBE_CLUSTER_RIGHT)
        answer.cluster_authorized_operations = allowed_operations(may, call, ResourceType.CLUSTER) if known else 0
    return answer


# -- create -----------------------------------------------------------------------------------------------


def judge_create_topics(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    """Without the right to describe settings, the topic is created, and the answer leaves its settings out."""
    allowed, refused = may.split_allowed(call, CREATE_TOPICS_RIGHT, request.topics, topic_name, api=CREATE_TOPICS)
    if not refused and may.allows_all(call, CREATED_CONFIGS_RIGHT, [topic_name(topic) for topic in allowed]):
        return None
    rows = refuse_created(may, call, CREATE_TOPICS_RIGHT, refused)

    def told(topic: Any) -> Any:
        if not topic.error_code and not may.is_allowed(call, CREATED_CONFIGS_RIGHT, topic.name):
            topic.topic_config_error_code = refusal_code(CREATED_CONFIGS_RIGHT)
            topic.num_partitions = topic.replication_factor = -1
            topic.configs = []
        return topic

    return partial_request(request, "topics", allowed, "CreateTopicsResponse", "topics", rows, told)


# -- delete -----------------------------------------------------------------------------------------------


def judge_delete_topics(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    if call.api_version >= DELETE_BY_ID_SINCE:
        return judge_deleted_topics(may, call, request, "topics", lambda topic: (topic.name, topic.topic_id))
    return judge_deleted_topics(may, call, request, "topic_names", lambda name: (name, NO_ID))


def judge_deleted_topics(
    may: AccessCheck, call: KafkaCall, request: Any, field: str, named: Callable[[Any], tuple[str | None, bytes]]
) -> Verdict:
    topics = getattr(request, field)
    rights = tuple(
        may.name_filter(call, right, len(topics)) for right in (DELETED_TOPIC_VISIBLE_RIGHT, DELETE_TOPICS_RIGHT)
    )
    ids = may.catalog.by_id() if any(named(topic)[0] is None for topic in topics) else {}
    allowed, rows = [], []
    for topic in topics:
        name, topic_id = named(topic)
        row = refused_deletion_row(
            may, call, rights, name, topic_id, ids.get(topic_id) if name is None else name, len(topics)
        )
        if row is None:
            allowed.append(topic)
        else:
            rows.append(row)
    may.audit_refusals(call, DELETE_TOPICS_RIGHT, (row.name for row in rows if row.name), api=DELETE_TOPICS)
    return partial_request(request, field, allowed, "DeleteTopicsResponse", "responses", rows) if rows else None


def refused_deletion_row(
    may: AccessCheck,
    call: KafkaCall,
    rights: tuple[Callable[[str], bool], ...],
    name: str | None,
    topic_id: bytes,
    real: str | None,
    among: int,
) -> Any:
    """The row that refuses one topic; None for a topic that goes to the handler."""
    if real is None or (name is not None and topic_id != NO_ID):
        return None  # The topic is missing or ambiguous; the handler refuses both.
    made = struct("DeleteTopicsResponse.responses")
    knows, deletes = rights
    known = knows(real)
    if known and (deletes(real) or real not in may.catalog):
        return None
    code = refusal_code(DELETE_TOPICS_RIGHT)
    if name is None:
        return made(name=real if known else None, topic_id=topic_id, error_code=code, error_message=WITHOUT_NAME)
    return made(
        name=name,
        topic_id=NO_ID,
        error_code=code,
        error_message=may.explain_refusal(call, DELETE_TOPICS_RIGHT, name, among),
    )


def topic_name(topic: Any) -> str:
    return str(topic.name)


# Records and producers
# ---------------------

PRODUCE: Final = "Produce"
FETCH: Final = "Fetch"
INIT_PRODUCER_ID: Final = "InitProducerId"
ADD_PARTITIONS: Final = "AddPartitionsToTxn"
PRODUCE_TOPIC_RIGHT, PRODUCE_TRANSACTION_RIGHT = API_RIGHTS[PRODUCE]
(FETCH_RIGHT,) = API_RIGHTS[FETCH]
IDEMPOTENT_PRODUCER_RIGHT, TRANSACTIONAL_PRODUCER_RIGHT = API_RIGHTS[INIT_PRODUCER_ID]
ADD_BY_ID_RIGHT, ADD_TOPIC_RIGHT, ADD_AS_NODE_RIGHT = API_RIGHTS[ADD_PARTITIONS]
ACKS_NONE: Final = 0


# -- produce ----------------------------------------------------------------------------------------------


def judge_produce(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    if isinstance(request, SingleBatch):
        if may(call, PRODUCE_TOPIC_RIGHT, request.topic, api=PRODUCE):
            return None
        return refuse_produce(may, request, call, [], request.topic_data)
    if request.transactional_id is not None and not may(
        call, PRODUCE_TRANSACTION_RIGHT, request.transactional_id, api=PRODUCE
    ):
        return refuse_produce(
            may, request, call, [], request.topic_data, PRODUCE_TRANSACTION_RIGHT, request.transactional_id
        )
    allowed, refused = may.split_allowed(
        call, PRODUCE_TOPIC_RIGHT, request.topic_data, lambda topic: str(topic.name), api=PRODUCE
    )
    return refuse_produce(may, request, call, allowed, refused) if refused else None


def refuse_produce(
    may: AccessCheck,
    request: Any,
    call: KafkaCall,
    allowed: list[Any],
    refused: list[Any],
    right: RequiredRight = PRODUCE_TOPIC_RIGHT,
    name: str = "",
) -> Verdict:
    """A request with acks=0 has no answer: its refusal ends the connection, as any other failure does."""
    made, row = struct("ProduceResponse.responses"), struct("ProduceResponse.responses.partition_responses")
    rows = [
        made(
            name=topic.name,
            partition_responses=[
                row(
                    index=one.index,
                    error_code=refusal_code(right),
                    base_offset=-1,
                    error_message=may.explain_refusal(call, right, name or topic.name, len(refused)),
                )
                for one in topic.partition_data
            ],
        )
        for topic in refused
    ]
    silent, about = request.acks == ACKS_NONE, name or next((topic.name for topic in refused), "")
    if not allowed:
        if silent:
            raise HangUp(f"a produce with acks=0 was refused: {may.explain_refusal(call, right, about)}")
        return RefusalAnswer(struct("ProduceResponse")(responses=rows))
    left = copy(request)
    left.topic_data = allowed

    def amend(answer: Any) -> Any:
        if silent or answer is None:
            raise HangUp(f"a produce with acks=0 was refused: {may.explain_refusal(call, right, about)}")
        answer.responses = [*answer.responses, *rows]
        return answer

    return PartialRequest(left, amend)


# -- fetch ------------------------------------------------------------------------------------------------


def judge_fetch(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    if may.allows_all(call, FETCH_RIGHT, [topic.topic for topic in request.topics]):
        return None
    allowed, refused = may.split_allowed(call, FETCH_RIGHT, request.topics, lambda topic: str(topic.topic), api=FETCH)
    made, row = struct("FetchResponse.responses"), struct("FetchResponse.responses.partitions")
    rows = [
        made(
            topic=topic.topic,
            partitions=[
                row(
                    partition_index=one.partition,
                    error_code=refusal_code(FETCH_RIGHT),
                    high_watermark=-1,
                    aborted_transactions=[],
                    records=b"",
                )
                for one in topic.partitions
            ],
        )
        for topic in refused
    ]
    if not allowed and not request.session_id:
        return RefusalAnswer(struct("FetchResponse")(responses=rows))
    left = copy(request)
    left.topics = allowed

    def amend(answer: Any) -> Any:
        if not answer.error_code:
            answer.responses = [*answer.responses, *rows]
        return answer

    return PartialRequest(left, amend)


# -- producer ids -----------------------------------------------------------------------------------------


def judge_init_producer_id(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    if request.transactional_id is None:
        allowed, right = may(call, IDEMPOTENT_PRODUCER_RIGHT, api=INIT_PRODUCER_ID), IDEMPOTENT_PRODUCER_RIGHT
    else:
        allowed, right = (
            may(call, TRANSACTIONAL_PRODUCER_RIGHT, request.transactional_id, api=INIT_PRODUCER_ID),
            TRANSACTIONAL_PRODUCER_RIGHT,
        )
    if allowed:
        return None
    return RefusalAnswer(
        struct("InitProducerIdResponse")(error_code=refusal_code(right), producer_id=-1, producer_epoch=-1)
    )


# -- transactions -----------------------------------------------------------------------------------------


def judge_add_partitions_to_txn(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    """One topic that may not be written to keeps all others out: they hear that nothing was attempted. Whoever asks
    about several transactions does so as a node, and needs no right to what they write."""
    api = ADD_PARTITIONS
    if call.api_version >= BATCHED_SINCE:
        if may(call, ADD_AS_NODE_RIGHT, api=api):
            return None
        return RefusalAnswer(make_additions_response((), refusal_code(ADD_AS_NODE_RIGHT)))
    if not may(call, ADD_BY_ID_RIGHT, request.transactional_id, api=api):
        return refuse_partitions(request, lambda topic: refusal_code(ADD_BY_ID_RIGHT))
    _, refused = may.split_allowed(call, ADD_TOPIC_RIGHT, request.topics, topic_name, api=api)
    if not refused:
        return None
    names = {topic_name(topic) for topic in refused}
    return refuse_partitions(
        request, lambda topic: refusal_code(ADD_TOPIC_RIGHT) if topic in names else ErrorCode.OPERATION_NOT_ATTEMPTED
    )


def refuse_partitions(request: Any, code_of: Callable[[str], int]) -> Verdict:
    topic_row = struct("AddPartitionsToTxnResponse.results")
    row = struct("AddPartitionsToTxnResponse.results.results_by_partition")
    return RefusalAnswer(
        struct("AddPartitionsToTxnResponse")(
            results=[
                topic_row(
                    name=topic.name,
                    results_by_partition=[
                        row(partition_index=number, partition_error_code=code_of(topic.name))
                        for number in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
    )
