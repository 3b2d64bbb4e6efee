"""Positions in transactions: AddOffsetsToTxn, TxnOffsetCommit."""

from copy import copy
from typing import Any, Final

from muster.coordinator.kafka.authorization.judging import (
    AccessCheck,
    PartialRequest,
    RefusalAnswer,
    Verdict,
    refusal_code,
)
from muster.coordinator.kafka.authorization.offsets import append_topics, refused_partition_rows
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import KafkaCall
from muster.coordinator.security.rights import API_RIGHTS

ADD_OFFSETS_TO_TXN: Final = "AddOffsetsToTxn"
TXN_OFFSET_COMMIT: Final = "TxnOffsetCommit"
ADD_OFFSETS_TRANSACTION_RIGHT, ADD_OFFSETS_GROUP_RIGHT = API_RIGHTS[ADD_OFFSETS_TO_TXN]
TXN_COMMIT_TRANSACTION_RIGHT, TXN_COMMIT_GROUP_RIGHT, TXN_COMMIT_TOPIC_RIGHT = API_RIGHTS[TXN_OFFSET_COMMIT]


def judge_add_offsets_to_txn(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    for right, name in (
        (ADD_OFFSETS_TRANSACTION_RIGHT, request.transactional_id),
        (ADD_OFFSETS_GROUP_RIGHT, request.group_id),
    ):
        if not may(call, right, name, api=ADD_OFFSETS_TO_TXN):
            return RefusalAnswer(struct("AddOffsetsToTxnResponse")(error_code=refusal_code(right)))
    return None


def judge_txn_offset_commit(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    for right, name in (
        (TXN_COMMIT_TRANSACTION_RIGHT, request.transactional_id),
        (TXN_COMMIT_GROUP_RIGHT, request.group_id),
    ):
        if not may(call, right, name, api=TXN_OFFSET_COMMIT):
            return RefusalAnswer(
                struct("TxnOffsetCommitResponse")(
                    topics=refused_partition_rows(TXN_OFFSET_COMMIT, request.topics, refusal_code(right))
                )
            )
    allowed, refused = may.split(
        call, TXN_COMMIT_TOPIC_RIGHT, request.topics, lambda topic: str(topic.name), api=TXN_OFFSET_COMMIT
    )
    if not refused:
        return None
    rows = refused_partition_rows(TXN_OFFSET_COMMIT, refused, refusal_code(TXN_COMMIT_TOPIC_RIGHT))
    if not allowed:
        return RefusalAnswer(struct("TxnOffsetCommitResponse")(topics=rows))
    left = copy(request)
    left.topics = allowed
    return PartialRequest(left, lambda answer: append_topics(answer, rows))
