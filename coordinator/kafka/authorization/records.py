"""Records: Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, InitProducerId."""

from copy import copy
from typing import Any, Final

from muster.coordinator.kafka.authorization.judging import (
    AccessCheck,
    PartialRequest,
    RefusalAnswer,
    Verdict,
    refusal_code,
)
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import HangUp, KafkaCall
from muster.coordinator.kafka.handlers.single_batch_produce import SingleBatch
from muster.coordinator.security.rights import API_RIGHTS, RequiredRight

PRODUCE: Final = "Produce"
FETCH: Final = "Fetch"
LIST_OFFSETS: Final = "ListOffsets"
OFFSET_FOR_LEADER_EPOCH: Final = "OffsetForLeaderEpoch"
INIT_PRODUCER_ID: Final = "InitProducerId"
PRODUCE_TOPIC_RIGHT, PRODUCE_TRANSACTION_RIGHT = API_RIGHTS[PRODUCE]
(FETCH_RIGHT,) = API_RIGHTS[FETCH]
(LIST_OFFSETS_RIGHT,) = API_RIGHTS[LIST_OFFSETS]
(LEADER_EPOCH_RIGHT,) = API_RIGHTS[OFFSET_FOR_LEADER_EPOCH]
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
    allowed, refused = may.split(
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
    """Who wants no answer is told by the connection's end, as of any other failure."""
    made, row = struct("ProduceResponse.responses"), struct("ProduceResponse.responses.partition_responses")
    rows = [
        made(
            name=topic.name,
            partition_responses=[
                row(
                    index=one.index,
                    error_code=refusal_code(right),
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
        return RefusalAnswer(struct("ProduceResponse")(responses=rows))
    left = copy(request)
    left.topic_data = allowed

    def amend(answer: Any) -> Any:
        if silent or answer is None:
            raise HangUp(f"a produce with acks=0 was refused: {may.why(call, right, about)}")
        answer.responses = [*answer.responses, *rows]
        return answer

    return PartialRequest(left, amend)


# -- fetch ------------------------------------------------------------------------------------------------


def judge_fetch(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    if may.all(call, FETCH_RIGHT, [topic.topic for topic in request.topics]):
        return None
    allowed, refused = may.split(call, FETCH_RIGHT, request.topics, lambda topic: str(topic.topic), api=FETCH)
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


# -- offsets ----------------------------------------------------------------------------------------------


def judge_list_offsets(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    allowed, refused = may.split(
        call, LIST_OFFSETS_RIGHT, request.topics, lambda topic: str(topic.name), api=LIST_OFFSETS
    )
    if not refused:
        return None
    made, row = struct("ListOffsetsResponse.topics"), struct("ListOffsetsResponse.topics.partitions")
    rows = [
        made(
            name=topic.name,
            partitions=[
                row(partition_index=one.partition_index, error_code=refusal_code(LIST_OFFSETS_RIGHT))
                for one in topic.partitions
            ],
        )
        for topic in refused
    ]
    left = copy(request)
    left.topics = allowed

    def amend(answer: Any) -> Any:
        answer.topics = [*answer.topics, *rows]
        return answer

    return PartialRequest(left, amend)


def judge_offset_for_leader_epoch(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    allowed, refused = may.split(
        call, LEADER_EPOCH_RIGHT, request.topics, lambda topic: str(topic.topic), api=OFFSET_FOR_LEADER_EPOCH
    )
    if not refused:
        return None
    made, row = struct("OffsetForLeaderEpochResponse.topics"), struct("OffsetForLeaderEpochResponse.topics.partitions")
    rows = [
        made(
            topic=topic.topic,
            partitions=[
                row(partition=one.partition, error_code=refusal_code(LEADER_EPOCH_RIGHT)) for one in topic.partitions
            ],
        )
        for topic in refused
    ]
    left = copy(request)
    left.topics = allowed

    def amend(answer: Any) -> Any:
        answer.topics = [*answer.topics, *rows]
        return answer

    return PartialRequest(left, amend)


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
