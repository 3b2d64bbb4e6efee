"""Members of groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, ConsumerGroupHeartbeat."""

from typing import Any, Final

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import KafkaCall
from muster.coordinator.kafka.rights.judging import Instead, May, Verdict, code_of
from muster.coordinator.security.acl.rights import API_RIGHTS

BEAT: Final = "ConsumerGroupHeartbeat"
(JOINS,) = API_RIGHTS["JoinGroup"]
IN_GROUP, SUBSCRIBED, _ = API_RIGHTS[BEAT]

NULLABLE_PROTOCOL: Final = 7
"""A refused join names no protocol from this version on; before, an empty one."""


def join_group(may: May, request: Any, call: KafkaCall) -> Verdict:
    if may(call, JOINS, request.group_id, api="JoinGroup"):
        return None
    named = None if call.api_version >= NULLABLE_PROTOCOL else ""
    return Instead(struct("JoinGroupResponse")(error_code=code_of(JOINS), protocol_name=named))


class OfMember:
    """Judges one of the APIs whose answer has a code of its own, and nothing else that a refusal must have."""

    def __init__(self, api: str) -> None:
        (self.right,) = API_RIGHTS[api]
        self._api = api

    def __call__(self, may: May, request: Any, call: KafkaCall) -> Verdict:
        if may(call, self.right, request.group_id, api=self._api):
            return None
        return Instead(struct(f"{self._api}Response")(error_code=code_of(self.right)))


def consumer_group_heartbeat(may: May, request: Any, call: KafkaCall) -> Verdict:
    """One name that may not be described refuses the whole heartbeat."""
    if not may(call, IN_GROUP, request.group_id, api=BEAT):
        return beat_refused(code_of(IN_GROUP), may.why(call, IN_GROUP, request.group_id))
    names = request.subscribed_topic_names or ()
    sees = may.each(call, SUBSCRIBED, len(names))
    hidden = next((name for name in names if not sees(name)), None)
    if hidden is None:
        return None
    may.told(call, SUBSCRIBED, [hidden], api=BEAT)
    return beat_refused(code_of(SUBSCRIBED), may.why(call, SUBSCRIBED, hidden))


def beat_refused(code: int, message: str) -> Instead:
    return Instead(struct("ConsumerGroupHeartbeatResponse")(error_code=code, error_message=message))
