"""Judges of the log APIs that need code: the rest of them are rows of `answer_shapes`.

Metadata names topics by id too, needs CREATE only for what is missing, and has a form of its own in version 0.
CreateTopics blanks fields of what was created. DeleteTopics names topics by id too. Produce has a fast path for one
batch, and ends the connection where acks=0. Fetch asks for nothing where a session goes on, and is judged again after
its wait. InitProducerId needs one of two rights. An answer never reveals that a topic exists to a caller that may not
describe it.
"""

from collections.abc import Callable
from copy import copy
from typing import Any, Final

from muster.coordinator.kafka.authorization.answer_shapes import Rows
from muster.coordinator.kafka.authorization.judge import (
    MAX_AUDITED_REFUSALS,
    AccessCheck,
    PartialRequest,
    RefusalAnswer,
    Verdict,
    allowed_operations,
    refusal_code,
)
from muster.coordinator.kafka.authorization.table_judges import RefusedRows, partial_request
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import HangUp, KafkaCall
from muster.coordinator.kafka.handlers.single_batch_produce import SingleBatch
from muster.coordinator.kafka.protocol import OPERATIONS_NOT_REQUESTED
from muster.coordinator.security.access_model import ResourceType
from muster.coordinator.security.rights import API_RIGHTS, DESCRIBE, RequiredRight, on_cluster

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
        if name is None or (sees(name) and (not making or may.catalog.exists(name) or makes(name))):
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
    if known and (deletes(real) or not may.catalog.exists(real)):
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
PRODUCE_TOPIC_RIGHT, PRODUCE_TRANSACTION_RIGHT = API_RIGHTS[PRODUCE]
(FETCH_RIGHT,) = API_RIGHTS[FETCH]
IDEMPOTENT_PRODUCER_RIGHT, TRANSACTIONAL_PRODUCER_RIGHT = API_RIGHTS[INIT_PRODUCER_ID]
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
