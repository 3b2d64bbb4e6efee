"""Who may ask at the door between nodes: what they ask of each other needs CLUSTER_ACTION on CLUSTER, as in Kafka."""

from collections.abc import Callable
from typing import Any, TypeAlias

from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import Handler, HangUp, Immediate, KafkaCall, fields_of
from muster.coordinator.security.identity import Identity

Who: TypeAlias = Callable[[Identity], bool]


class NodesOnly:
    """Stands before each handler but ApiVersions'."""

    def __init__(self, may: Who) -> None:
        self._may = may

    def guarded(
        self, api: str, version: int, handler: Handler | None, immediate: Immediate | None
    ) -> tuple[Handler | None, Immediate | None]:
        """See `Guarding`."""
        if handler is None:
            return handler, immediate
        name, told = f"{api}Response", "error_code" in fields_of(f"{api}Response", version)

        async def answered(request: Any, call: KafkaCall) -> Any:
            if self._may(call.identity):
                return await handler(request, call)
            if not told:
                raise HangUp(f"{call.identity.principal} may not ask for {api}: it needs CLUSTER_ACTION on CLUSTER")
            return struct(name)(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

        return answered, None
