"""Topics: Metadata, CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords."""

from collections.abc import Callable
from copy import copy
from typing import Any, Final

from muster.coordinator.kafka.authorization.groups import partial_request
from muster.coordinator.kafka.authorization.judging import (
    MAX_AUDITED_REFUSALS,
    AccessCheck,
    PartialRequest,
    Verdict,
    refusal_code,
)
from muster.coordinator.kafka.authorization.operations import allowed_operations
from muster.coordinator.kafka.authorized import OPERATIONS_NOT_REQUESTED
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import KafkaCall
from muster.coordinator.security.model import ResourceType
from muster.coordinator.security.rights import API_RIGHTS, DESCRIBE, RequiredRight, on_cluster

METADATA: Final = "Metadata"
METADATA_TOPIC_RIGHT, METADATA_CREATE_RIGHT, METADATA_VISIBLE_TOPIC_RIGHT = API_RIGHTS[METADATA]
DESCRIBE_CLUSTER_RIGHT: Final = on_cluster(DESCRIBE)
CREATE_TOPICS: Final = "CreateTopics"
CREATE_TOPICS_RIGHT, CREATED_CONFIGS_RIGHT = API_RIGHTS[CREATE_TOPICS]
DELETE_TOPICS: Final = "DeleteTopics"
(DELETE_TOPICS_RIGHT,) = API_RIGHTS[DELETE_TOPICS]
DELETED_TOPIC_VISIBLE_RIGHT: Final = RequiredRight(DESCRIBE, ResourceType.TOPIC, DELETE_TOPICS_RIGHT.of)
"""Who lacks it is not told whether there is such a topic, or what its name is."""
CREATE_PARTITIONS: Final = "CreatePartitions"
(CREATE_PARTITIONS_RIGHT,) = API_RIGHTS[CREATE_PARTITIONS]
DELETE_RECORDS: Final = "DeleteRecords"
(DELETE_RECORDS_RIGHT,) = API_RIGHTS[DELETE_RECORDS]

NO_ID: Final = bytes(16)
WITHOUT_NAME: Final = "Topic authorization failed."
"""Whoever asks by an id is not told the name."""

DELETE_BY_ID_SINCE: Final = 6
"""DeleteTopics names topics by id, too, from this version on."""


# -- metadata ---------------------------------------------------------------------------------------------


def judge_metadata(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    """The handler makes what is missing, so that whoever may not is refused before."""
    if request.topics is None or (call.api_version == 0 and not request.topics):
        return PartialRequest(request, lambda answer: visible_metadata(may, call, answer, []))
    made = struct("MetadataResponse.topics")
    sees, makes = (
        may.each(call, right, len(request.topics)) for right in (METADATA_TOPIC_RIGHT, METADATA_CREATE_RIGHT)
    )
    making = request.allow_auto_topic_creation and may.catalog.auto_create
    ids = may.catalog.by_id() if any(topic.name is None for topic in request.topics) else {}
    left: list[Any] = []
    rows: list[Any] = []
    for topic in request.topics:
        name = ids.get(topic.topic_id) if topic.name is None else topic.name
        if name is None or (sees(name) and (not making or may.catalog.exists(name) or makes(name))):
            left.append(topic)
            continue
        if len(rows) < MAX_AUDITED_REFUSALS:
            may.told(call, METADATA_CREATE_RIGHT if sees(name) else METADATA_TOPIC_RIGHT, [name], api=METADATA)
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
    """The answer without what the caller may not see, with what it may do, where that was asked for."""
    rows = []
    sees = may.each(call, METADATA_VISIBLE_TOPIC_RIGHT, len(answer.topics))
    for topic in answer.topics:
        if topic.name is not None and not sees(topic.name):
            continue
        if topic.topic_authorized_operations != OPERATIONS_NOT_REQUESTED:
            topic.topic_authorized_operations = allowed_operations(may, call, ResourceType.TOPIC, topic.name)
        rows.append(topic)
    answer.topics = [*rows, *refused]
    if answer.cluster_authorized_operations != OPERATIONS_NOT_REQUESTED:
        known = may.quietly(call, DESCRIBE_CLUSTER_RIGHT)
        answer.cluster_authorized_operations = allowed_operations(may, call, ResourceType.CLUSTER) if known else 0
    return answer


# -- create, grow -----------------------------------------------------------------------------------------


def judge_create_topics(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    """Who may not look at a topic's settings makes it all the same, and is not told them."""
    allowed, refused = may.split(call, CREATE_TOPICS_RIGHT, request.topics, topic_name, api=CREATE_TOPICS)
    if not refused and may.all(call, CREATED_CONFIGS_RIGHT, [topic_name(topic) for topic in allowed]):
        return None
    made = struct("CreateTopicsResponse.topics")
    rows = [
        made(
            name=topic.name,
            error_code=refusal_code(CREATE_TOPICS_RIGHT),
            error_message=may.why(call, CREATE_TOPICS_RIGHT, topic.name, len(refused)),
            configs=[],
        )
        for topic in refused
    ]

    def told(topic: Any) -> Any:
        if not topic.error_code and not may.quietly(call, CREATED_CONFIGS_RIGHT, topic.name):
            topic.topic_config_error_code = refusal_code(CREATED_CONFIGS_RIGHT)
            topic.num_partitions = topic.replication_factor = -1
            topic.configs = []
        return topic

    return partial_request(request, "topics", allowed, "CreateTopicsResponse", "topics", rows, told)


def judge_create_partitions(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    allowed, refused = may.split(call, CREATE_PARTITIONS_RIGHT, request.topics, topic_name, api=CREATE_PARTITIONS)
    if not refused:
        return None
    made = struct("CreatePartitionsResponse.results")
    rows = [
        made(
            name=topic.name,
            error_code=refusal_code(CREATE_PARTITIONS_RIGHT),
            error_message=may.why(call, CREATE_PARTITIONS_RIGHT, topic.name, len(refused)),
        )
        for topic in refused
    ]
    return partial_request(request, "topics", allowed, "CreatePartitionsResponse", "results", rows)


# -- delete -----------------------------------------------------------------------------------------------


def judge_delete_topics(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    if call.api_version >= DELETE_BY_ID_SINCE:
        return judge_deleted_topics(may, call, request, "topics", lambda topic: (topic.name, topic.topic_id))
    return judge_deleted_topics(may, call, request, "topic_names", lambda name: (name, NO_ID))


def judge_deleted_topics(
    may: AccessCheck, call: KafkaCall, request: Any, field: str, named: Callable[[Any], tuple[str | None, bytes]]
) -> Verdict:
    topics = getattr(request, field)
    rights = tuple(may.each(call, right, len(topics)) for right in (DELETED_TOPIC_VISIBLE_RIGHT, DELETE_TOPICS_RIGHT))
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
    may.told(call, DELETE_TOPICS_RIGHT, (row.name for row in rows if row.name), api=DELETE_TOPICS)
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
    """The row that refuses one topic; None for one that the handler may look at."""
    if real is None or (name is not None and topic_id != NO_ID):
        return None  # There is none, or the request does not say which: both the handler has words for.
    made = struct("DeleteTopicsResponse.responses")
    knows, deletes = rights
    known = knows(real)
    if known and (deletes(real) or not may.catalog.exists(real)):
        return None
    code = refusal_code(DELETE_TOPICS_RIGHT)
    if name is None:
        return made(name=real if known else None, topic_id=topic_id, error_code=code, error_message=WITHOUT_NAME)
    return made(
        name=name, topic_id=NO_ID, error_code=code, error_message=may.why(call, DELETE_TOPICS_RIGHT, name, among)
    )


def judge_delete_records(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    allowed, refused = may.split(call, DELETE_RECORDS_RIGHT, request.topics, topic_name, api=DELETE_RECORDS)
    if not refused:
        return None
    made, row = struct("DeleteRecordsResponse.topics"), struct("DeleteRecordsResponse.topics.partitions")
    rows = [
        made(
            name=topic.name,
            partitions=[
                row(
                    partition_index=one.partition_index, low_watermark=-1, error_code=refusal_code(DELETE_RECORDS_RIGHT)
                )
                for one in topic.partitions
            ],
        )
        for topic in refused
    ]
    return partial_request(request, "topics", allowed, "DeleteRecordsResponse", "topics", rows)


def topic_name(topic: Any) -> str:
    return str(topic.name)
