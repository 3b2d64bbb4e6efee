"""Who may ask at the door between nodes: what they ask of each other needs CLUSTER_ACTION on CLUSTER, as in Kafka."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import Handler, HangUp, Immediate, KafkaCall, fields_of
from muster.coordinator.security.identity import Identity

PeerIdentity: TypeAlias = Callable[[Identity], bool]

GREETING: Final = "ApiVersions"


class NodeGuard:
    """Stands before each handler but ApiVersions'."""

    def __init__(self, may: PeerIdentity) -> None:
        self._may = may

    def guarded(
        self, api: str, version: int, handler: Handler | None, immediate: Immediate | None
    ) -> tuple[Handler | None, Immediate | None]:
        """See `Guarding`."""
        if api == GREETING:
            return handler, immediate
        name, told = f"{api}Response", "error_code" in fields_of(f"{api}Response", version)

        def refusal(call: KafkaCall) -> Any:
            """None where it may ask."""
            if self._may(call.identity):
                return None
            if not told:
                raise HangUp(f"{call.identity.principal} may not ask for {api}: it needs CLUSTER_ACTION on CLUSTER")
            return struct(name)(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

        return guard_handler(handler, refusal), guard_immediate(immediate, refusal)


def guard_handler(handler: Handler | None, refusal: Callable[[KafkaCall], Any]) -> Handler | None:
    if handler is None:
        return None

    async def answered(request: Any, call: KafkaCall) -> Any:
        refused = refusal(call)
        return await handler(request, call) if refused is None else refused

    return answered


def guard_immediate(immediate: Immediate | None, refusal: Callable[[KafkaCall], Any]) -> Immediate | None:
    if immediate is None:
        return None

    def answered(request: Any, call: KafkaCall) -> Any:
        refused = refusal(call)
        return immediate(request, call) if refused is None else refused

    return answered
