"""The answer to a request whose shard cannot take it: the right reply type, with a code and why."""

from typing import TypeGuard

from muster.coordinator.core.model import core_events, effects
from muster.coordinator.core.model.core_events import Event, Request
from muster.coordinator.core.model.effects import Reply
from muster.coordinator.core.model.refusals import REPLY_TYPES
from muster.coordinator.errors import ErrorCode


def is_request(event: Event) -> TypeGuard[Request]:
    return type(event) in REPLY_TYPES


def refusal_of(kind: type[Event], code: ErrorCode, why: str = "") -> Reply:
    return REPLY_TYPES[kind](code=code, message=why or code.meaning)


def refusal_while_loading(kind: type[Event]) -> Reply:
    """The answer of a shard that is not yet replayed.

    A heartbeat is answered as if all were well: a failover must not send members into a rejoin.
    """
    if kind is core_events.Heartbeat:
        return effects.HeartbeatReply()
    return refusal_of(kind, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
