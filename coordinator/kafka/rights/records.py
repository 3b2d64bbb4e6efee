"""Records: Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, InitProducerId."""

from copy import copy
from typing import Any, Final

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import HangUp, KafkaCall
from muster.coordinator.kafka.log.produces import SingleBatch
from muster.coordinator.kafka.rights.judging import Instead, May, Partly, Verdict, code_of
from muster.coordinator.security.acl.rights import API_RIGHTS, Right

PRODUCE: Final = "Produce"
FETCH: Final = "Fetch"
LIST: Final = "ListOffsets"
EPOCHS: Final = "OffsetForLeaderEpoch"
INIT: Final = "InitProducerId"
WRITTEN, IN_TRANSACTION = API_RIGHTS[PRODUCE]
(READ,) = API_RIGHTS[FETCH]
(LISTED,) = API_RIGHTS[LIST]
(ENDED,) = API_RIGHTS[EPOCHS]
IDEMPOTENT, TRANSACTIONAL = API_RIGHTS[INIT]
ACKS_NONE: Final = 0


# -- produce ----------------------------------------------------------------------------------------------


def produce(may: May, request: Any, call: KafkaCall) -> Verdict:
    if isinstance(request, SingleBatch):
        if may(call, WRITTEN, request.topic, api=PRODUCE):
            return None
        return produced(may, request, call, [], request.topic_data)
    if request.transactional_id is not None and not may(call, IN_TRANSACTION, request.transactional_id, api=PRODUCE):
        return produced(may, request, call, [], request.topic_data, IN_TRANSACTION, request.transactional_id)
    allowed, refused = may.split(call, WRITTEN, request.topic_data, lambda topic: str(topic.name), api=PRODUCE)
    return produced(may, request, call, allowed, refused) if refused else None


def produced(
    may: May,
    request: Any,
    call: KafkaCall,
    allowed: list[Any],
    refused: list[Any],
    right: Right = WRITTEN,
    name: str = "",
) -> Verdict:
    """Who wants no answer is told by the connection's end, as of any other failure."""
    made, row = struct("ProduceResponse.responses"), struct("ProduceResponse.responses.partition_responses")
    rows = [
        made(
            name=topic.name,
            partition_responses=[
                row(
                    index=one.index,
                    error_code=code_of(right),
                    base_offset=-1,
                    error_message=may.why(call, right, name or topic.name, len(refused)),
                )
                for one in topic.partition_data
            ],
        )
        for topic in refused
    ]
    silent, about = request.acks == ACKS_NONE, name or next((topic.name for topic in refused), "")
    if not allowed:
        if silent:
            raise HangUp(f"a produce with acks=0 was refused: {may.why(call, right, about)}")
        return Instead(struct("ProduceResponse")(responses=rows))
    left = copy(request)
    left.topic_data = allowed

    def amend(answer: Any) -> Any:
        if silent or answer is None:
            raise HangUp(f"a produce with acks=0 was refused: {may.why(call, right, about)}")
        answer.responses = [*answer.responses, *rows]
        return answer

    return Partly(left, amend)


# -- fetch ------------------------------------------------------------------------------------------------


def fetch(may: May, request: Any, call: KafkaCall) -> Verdict:
    if may.all(call, READ, [topic.topic for topic in request.topics]):
        return None
    allowed, refused = may.split(call, READ, request.topics, lambda topic: str(topic.topic), api=FETCH)
    made, row = struct("FetchResponse.responses"), struct("FetchResponse.responses.partitions")
    rows = [
        made(
            topic=topic.topic,
            partitions=[
                row(
                    partition_index=one.partition,
                    error_code=code_of(READ),
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
        return Instead(struct("FetchResponse")(responses=rows))
    left = copy(request)
    left.topics = allowed

    def amend(answer: Any) -> Any:
        if not answer.error_code:
            answer.responses = [*answer.responses, *rows]
        return answer

    return Partly(left, amend)


# -- offsets ----------------------------------------------------------------------------------------------


def list_offsets(may: May, request: Any, call: KafkaCall) -> Verdict:
    allowed, refused = may.split(call, LISTED, request.topics, lambda topic: str(topic.name), api=LIST)
    if not refused:
        return None
    made, row = struct("ListOffsetsResponse.topics"), struct("ListOffsetsResponse.topics.partitions")
    rows = [
        made(
            name=topic.name,
            partitions=[
                row(partition_index=one.partition_index, error_code=code_of(LISTED)) for one in topic.partitions
            ],
        )
        for topic in refused
    ]
    left = copy(request)
    left.topics = allowed

    def amend(answer: Any) -> Any:
        answer.topics = [*answer.topics, *rows]
        return answer

    return Partly(left, amend)


def offset_for_leader_epoch(may: May, request: Any, call: KafkaCall) -> Verdict:
    allowed, refused = may.split(call, ENDED, request.topics, lambda topic: str(topic.topic), api=EPOCHS)
    if not refused:
        return None
    made, row = struct("OffsetForLeaderEpochResponse.topics"), struct("OffsetForLeaderEpochResponse.topics.partitions")
    rows = [
        made(
            topic=topic.topic,
            partitions=[row(partition=one.partition, error_code=code_of(ENDED)) for one in topic.partitions],
        )
        for topic in refused
    ]
    left = copy(request)
    left.topics = allowed

    def amend(answer: Any) -> Any:
        answer.topics = [*answer.topics, *rows]
        return answer

    return Partly(left, amend)


def init_producer_id(may: May, request: Any, call: KafkaCall) -> Verdict:
    if request.transactional_id is None:
        allowed, right = may(call, IDEMPOTENT, api=INIT), IDEMPOTENT
    else:
        allowed, right = may(call, TRANSACTIONAL, request.transactional_id, api=INIT), TRANSACTIONAL
    if allowed:
        return None
    return Instead(struct("InitProducerIdResponse")(error_code=code_of(right), producer_id=-1, producer_epoch=-1))
