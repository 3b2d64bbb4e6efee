"""Positions in transactions: AddOffsetsToTxn, TxnOffsetCommit."""

from copy import copy
from typing import Any, Final

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import KafkaCall
from muster.coordinator.kafka.rights.judging import Instead, May, Partly, Verdict, code_of
from muster.coordinator.kafka.rights.offsets import answers, with_topics
from muster.coordinator.security.acl.rights import API_RIGHTS

ADD: Final = "AddOffsetsToTxn"
COMMIT: Final = "TxnOffsetCommit"
ITS_OWN, OF_GROUP = API_RIGHTS[ADD]
WRITTEN, INTO_GROUP, OF_TOPIC = API_RIGHTS[COMMIT]


def add_offsets_to_txn(may: May, request: Any, call: KafkaCall) -> Verdict:
    for right, name in ((ITS_OWN, request.transactional_id), (OF_GROUP, request.group_id)):
        if not may(call, right, name, api=ADD):
            return Instead(struct("AddOffsetsToTxnResponse")(error_code=code_of(right)))
    return None


def txn_offset_commit(may: May, request: Any, call: KafkaCall) -> Verdict:
    for right, name in ((WRITTEN, request.transactional_id), (INTO_GROUP, request.group_id)):
        if not may(call, right, name, api=COMMIT):
            return Instead(struct("TxnOffsetCommitResponse")(topics=answers(COMMIT, request.topics, code_of(right))))
    allowed, refused = may.split(call, OF_TOPIC, request.topics, lambda topic: str(topic.name), api=COMMIT)
    if not refused:
        return None
    rows = answers(COMMIT, refused, code_of(OF_TOPIC))
    if not allowed:
        return Instead(struct("TxnOffsetCommitResponse")(topics=rows))
    left = copy(request)
    left.topics = allowed
    return Partly(left, lambda answer: with_topics(answer, rows))
