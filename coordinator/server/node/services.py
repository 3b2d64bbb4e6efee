"""The gRPC services that every node offers."""

from muster.coordinator.rpc.v1 import coordinator_service_pb2, fence_service_pb2
from muster.storage.rpc.v1 import broker_service_pb2, staging_service_pb2

GROUP_SERVICE = coordinator_service_pb2.DESCRIPTOR.services_by_name["GroupCoordinator"]
FENCE_SERVICE = fence_service_pb2.DESCRIPTOR.services_by_name["Fencing"]
BROKER_SERVICE = broker_service_pb2.DESCRIPTOR.services_by_name["Broker"]
STAGING_SERVICE = staging_service_pb2.DESCRIPTOR.services_by_name["Staging"]

EVERYTHING = ""
"""The name under which the health service reports the whole node."""

NAMES = (
    EVERYTHING,
    *(service.full_name for service in (GROUP_SERVICE, FENCE_SERVICE, BROKER_SERVICE, STAGING_SERVICE)),
)
"""What the health service knows."""
