"""Topics: Metadata, CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords."""

from collections.abc import Callable
from copy import copy
from typing import Any, Final

from muster.coordinator.kafka.authorized import NOT_ASKED
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import KafkaCall
from muster.coordinator.kafka.rights.groups import partly
from muster.coordinator.kafka.rights.judging import MOST_TOLD, May, Partly, Verdict, code_of
from muster.coordinator.kafka.rights.operations import operations_on
from muster.coordinator.security.acl.model import ResourceType
from muster.coordinator.security.acl.rights import API_RIGHTS, DESCRIBE, Right, on_cluster

METADATA: Final = "Metadata"
ASKED_FOR, MADE, LISTED = API_RIGHTS[METADATA]
OF_CLUSTER: Final = on_cluster(DESCRIBE)
CREATE: Final = "CreateTopics"
CREATED, CONFIGS_TOLD = API_RIGHTS[CREATE]
DELETE: Final = "DeleteTopics"
(DELETED,) = API_RIGHTS[DELETE]
KNOWN_BY: Final = Right(DESCRIBE, ResourceType.TOPIC, DELETED.of)
"""Who lacks it is not told whether there is such a topic, or what its name is."""
GROW: Final = "CreatePartitions"
(GROWN,) = API_RIGHTS[GROW]
EMPTY: Final = "DeleteRecords"
(EMPTIED,) = API_RIGHTS[EMPTY]

NO_ID: Final = bytes(16)
WITHOUT_NAME: Final = "Topic authorization failed."
"""Whoever asks by an id is not told the name."""

BY_ID: Final = 6
"""DeleteTopics names topics by id, too, from this version on."""


# -- metadata ---------------------------------------------------------------------------------------------


def metadata(may: May, request: Any, call: KafkaCall) -> Verdict:
    """The handler makes what is missing, so that whoever may not is refused before."""
    if request.topics is None or (call.api_version == 0 and not request.topics):
        return Partly(request, lambda answer: described(may, call, answer, []))
    made = struct("MetadataResponse.topics")
    sees, makes = (may.each(call, right, len(request.topics)) for right in (ASKED_FOR, MADE))
    making = request.allow_auto_topic_creation and may.catalog.auto_create
    ids = may.catalog.by_id() if any(topic.name is None for topic in request.topics) else {}
    left: list[Any] = []
    rows: list[Any] = []
    for topic in request.topics:
        name = ids.get(topic.topic_id) if topic.name is None else topic.name
        if name is None or (sees(name) and (not making or may.catalog.exists(name) or makes(name))):
            left.append(topic)
            continue
        if len(rows) < MOST_TOLD:
            may.told(call, MADE if sees(name) else ASKED_FOR, [name], api=METADATA)
        topic_id = NO_ID if topic.name is not None else topic.topic_id
        rows.append(made(error_code=code_of(ASKED_FOR), name=topic.name, topic_id=topic_id))
    if not (rows or request.include_topic_authorized_operations or request.include_cluster_authorized_operations):
        return None
    asked = copy(request)
    asked.topics = left
    if not left and call.api_version == 0:  # which asks for all topics by that
        return Partly(asked, lambda answer: described(may, call, without_topics(answer), rows))
    return Partly(asked, lambda answer: described(may, call, answer, rows))


def without_topics(answer: Any) -> Any:
    answer.topics = []
    return answer


def described(may: May, call: KafkaCall, answer: Any, refused: list[Any]) -> Any:
    """The answer without what the caller may not see, with what it may do, where that was asked for."""
    rows = []
    sees = may.each(call, LISTED, len(answer.topics))
    for topic in answer.topics:
        if topic.name is not None and not sees(topic.name):
            continue
        if topic.topic_authorized_operations != NOT_ASKED:
            topic.topic_authorized_operations = operations_on(may, call, ResourceType.TOPIC, topic.name)
        rows.append(topic)
    answer.topics = [*rows, *refused]
    if answer.cluster_authorized_operations != NOT_ASKED:
        known = may.quietly(call, OF_CLUSTER)
        answer.cluster_authorized_operations = operations_on(may, call, ResourceType.CLUSTER) if known else 0
    return answer


# -- create, grow -----------------------------------------------------------------------------------------


def create_topics(may: May, request: Any, call: KafkaCall) -> Verdict:
    """Who may not look at a topic's settings makes it all the same, and is not told them."""
    allowed, refused = may.split(call, CREATED, request.topics, name_of, api=CREATE)
    if not refused and may.all(call, CONFIGS_TOLD, [name_of(topic) for topic in allowed]):
        return None
    made = struct("CreateTopicsResponse.topics")
    rows = [
        made(
            name=topic.name,
            error_code=code_of(CREATED),
            error_message=may.why(call, CREATED, topic.name, len(refused)),
            configs=[],
        )
        for topic in refused
    ]

    def told(topic: Any) -> Any:
        if not topic.error_code and not may.quietly(call, CONFIGS_TOLD, topic.name):
            topic.topic_config_error_code = code_of(CONFIGS_TOLD)
            topic.num_partitions = topic.replication_factor = -1
            topic.configs = []
        return topic

    return partly(request, "topics", allowed, "CreateTopicsResponse", "topics", rows, told)


def create_partitions(may: May, request: Any, call: KafkaCall) -> Verdict:
    allowed, refused = may.split(call, GROWN, request.topics, name_of, api=GROW)
    if not refused:
        return None
    made = struct("CreatePartitionsResponse.results")
    rows = [
        made(name=topic.name, error_code=code_of(GROWN), error_message=may.why(call, GROWN, topic.name, len(refused)))
        for topic in refused
    ]
    return partly(request, "topics", allowed, "CreatePartitionsResponse", "results", rows)


# -- delete -----------------------------------------------------------------------------------------------


def delete_topics(may: May, request: Any, call: KafkaCall) -> Verdict:
    if call.api_version >= BY_ID:
        return deleted(may, call, request, "topics", lambda topic: (topic.name, topic.topic_id))
    return deleted(may, call, request, "topic_names", lambda name: (name, NO_ID))


def deleted(
    may: May, call: KafkaCall, request: Any, field: str, named: Callable[[Any], tuple[str | None, bytes]]
) -> Verdict:
    topics = getattr(request, field)
    rights = tuple(may.each(call, right, len(topics)) for right in (KNOWN_BY, DELETED))
    ids = may.catalog.by_id() if any(named(topic)[0] is None for topic in topics) else {}
    allowed, rows = [], []
    for topic in topics:
        name, topic_id = named(topic)
        row = deletion_refused(
            may, call, rights, name, topic_id, ids.get(topic_id) if name is None else name, len(topics)
        )
        if row is None:
            allowed.append(topic)
        else:
            rows.append(row)
    may.told(call, DELETED, (row.name for row in rows if row.name), api=DELETE)
    return partly(request, field, allowed, "DeleteTopicsResponse", "responses", rows) if rows else None


def deletion_refused(
    may: May,
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
    code = code_of(DELETED)
    if name is None:
        return made(name=real if known else None, topic_id=topic_id, error_code=code, error_message=WITHOUT_NAME)
    return made(name=name, topic_id=NO_ID, error_code=code, error_message=may.why(call, DELETED, name, among))


def delete_records(may: May, request: Any, call: KafkaCall) -> Verdict:
    allowed, refused = may.split(call, EMPTIED, request.topics, name_of, api=EMPTY)
    if not refused:
        return None
    made, row = struct("DeleteRecordsResponse.topics"), struct("DeleteRecordsResponse.topics.partitions")
    rows = [
        made(
            name=topic.name,
            partitions=[
                row(partition_index=one.partition_index, low_watermark=-1, error_code=code_of(EMPTIED))
                for one in topic.partitions
            ],
        )
        for topic in refused
    ]
    return partly(request, "topics", allowed, "DeleteRecordsResponse", "topics", rows)


def name_of(topic: Any) -> str:
    return str(topic.name)
