"""Members of groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, ConsumerGroupHeartbeat."""

from typing import Any, Final

from muster.coordinator.kafka.authorization.judging import AccessCheck, RefusalAnswer, Verdict, refusal_code
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import KafkaCall
from muster.coordinator.security.rights import API_RIGHTS

CONSUMER_GROUP_HEARTBEAT: Final = "ConsumerGroupHeartbeat"
(JOIN_RIGHT,) = API_RIGHTS["JoinGroup"]
CONSUMER_GROUP_RIGHT, SUBSCRIBED_TOPIC_RIGHT, _ = API_RIGHTS[CONSUMER_GROUP_HEARTBEAT]

NULLABLE_PROTOCOL: Final = 7
"""A refused join names no protocol from this version on; before, an empty one."""


def judge_join_group(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    if may(call, JOIN_RIGHT, request.group_id, api="JoinGroup"):
        return None
    named = None if call.api_version >= NULLABLE_PROTOCOL else ""
    return RefusalAnswer(struct("JoinGroupResponse")(error_code=refusal_code(JOIN_RIGHT), protocol_name=named))


class MemberJudge:
    """Judges one of the APIs whose answer has a code of its own, and nothing else that a refusal must have."""

    def __init__(self, api: str) -> None:
        (self.right,) = API_RIGHTS[api]
        self._api = api

    def __call__(self, may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
        if may(call, self.right, request.group_id, api=self._api):
            return None
        return RefusalAnswer(struct(f"{self._api}Response")(error_code=refusal_code(self.right)))


def judge_consumer_group_heartbeat(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    """One name that may not be described refuses the whole heartbeat."""
    if not may(call, CONSUMER_GROUP_RIGHT, request.group_id, api=CONSUMER_GROUP_HEARTBEAT):
        return refuse_consumer_heartbeat(
            refusal_code(CONSUMER_GROUP_RIGHT), may.why(call, CONSUMER_GROUP_RIGHT, request.group_id)
        )
    names = request.subscribed_topic_names or ()
    sees = may.each(call, SUBSCRIBED_TOPIC_RIGHT, len(names))
    hidden = next((name for name in names if not sees(name)), None)
    if hidden is None:
        return None
    may.told(call, SUBSCRIBED_TOPIC_RIGHT, [hidden], api=CONSUMER_GROUP_HEARTBEAT)
    return refuse_consumer_heartbeat(
        refusal_code(SUBSCRIBED_TOPIC_RIGHT), may.why(call, SUBSCRIBED_TOPIC_RIGHT, hidden)
    )


def refuse_consumer_heartbeat(code: int, message: str) -> RefusalAnswer:
    return RefusalAnswer(struct("ConsumerGroupHeartbeatResponse")(error_code=code, error_message=message))
