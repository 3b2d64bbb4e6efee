"""What the settings say to the parts of a node, in each part's own words."""

from typing import Final

from muster.assignors.plugin_pool import IsolationLimits
from muster.coordinator.config import Settings
from muster.coordinator.rpc.v1 import coordinator_service_pb2
from muster.coordinator.runtime.limits import limits_of
from muster.coordinator.server.grpc.adapter import GrpcCall
from muster.coordinator.server.grpc.burden import ConnectionLoadLimits
from muster.coordinator.server.grpc.listener import TransportLimits

GROUP_SERVICE: Final = coordinator_service_pb2.DESCRIPTOR.services_by_name["GroupCoordinator"]

UNBOUNDED: Final = 1 << 30
"""More bytes than any answer has."""


ENVELOPE_BYTES: Final = 1 << 20
"""More than all names in a JoinGroup take."""


def join_limit_bytes(settings: Settings) -> dict[str, int]:
    """What a member offers has to fit into its group's record, with room for the names around it."""
    return {f"/{GROUP_SERVICE.full_name}/JoinGroup": limits_of(settings).max_group_bytes + ENVELOPE_BYTES}


def answer_room(call: object) -> int:
    """How many bytes the answer to a call should have at most. What is asked within this process is not sent."""
    return call.answer_room if isinstance(call, GrpcCall) else UNBOUNDED


def isolation_limits(settings: Settings) -> IsolationLimits:
    return IsolationLimits(
        mode=settings.group_assignor_isolation,
        max_processes=settings.group_assignor_max_processes,
        max_memory_bytes=settings.group_assignor_max_memory_bytes,
    )


def burden_limits(settings: Settings) -> ConnectionLoadLimits:
    return ConnectionLoadLimits(
        max_calls=settings.grpc_max_streams_per_connection, max_unsent_bytes=settings.grpc_max_unsent_bytes
    )


def transport_limits(settings: Settings) -> TransportLimits:
    return TransportLimits(
        max_message_bytes=settings.grpc_max_message_bytes,
        max_pending_calls=settings.grpc_max_pending_calls,
        max_streams_per_connection=settings.grpc_max_streams_per_connection,
        keepalive_time_ms=settings.grpc_keepalive_time_ms,
        keepalive_timeout_ms=settings.grpc_keepalive_timeout_ms,
        min_ping_interval_ms=settings.grpc_min_ping_interval_ms,
        setup_timeout_ms=settings.connection_setup_timeout_ms,
    )
