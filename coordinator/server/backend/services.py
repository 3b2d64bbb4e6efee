"""The services that a node offers by gRPC, and the one table of their calls."""

from muster.coordinator.rpc.v1 import (
    acl_service_pb2,
    control_service_pb2,
    coordinator_service_pb2,
    fence_service_pb2,
    quota_service_pb2,
)
from muster.coordinator.server.backend.part import StagingHandlers
from muster.coordinator.server.rpc_dispatch import ServiceMethod, methods_of
from muster.coordinator.server.services.control import GroupControl
from muster.coordinator.server.services.groups import GroupCoordinator
from muster.storage.rpc.v1 import broker_service_pb2, staging_service_pb2
from muster.storage.service.broker import BrokerService

GROUP_SERVICE = coordinator_service_pb2.DESCRIPTOR.services_by_name["GroupCoordinator"]
CONTROL_SERVICE = control_service_pb2.DESCRIPTOR.services_by_name["GroupControl"]
ACL_SERVICE = acl_service_pb2.DESCRIPTOR.services_by_name["Acls"]
QUOTA_SERVICE = quota_service_pb2.DESCRIPTOR.services_by_name["Quotas"]
FENCE_SERVICE = fence_service_pb2.DESCRIPTOR.services_by_name["Fencing"]
BROKER_SERVICE = broker_service_pb2.DESCRIPTOR.services_by_name["Broker"]
STAGING_SERVICE = staging_service_pb2.DESCRIPTOR.services_by_name["Staging"]

WHOLE_NODE = ""
"""The name under which the health service reports the whole node."""

SERVICES = (GROUP_SERVICE, CONTROL_SERVICE, FENCE_SERVICE, BROKER_SERVICE, STAGING_SERVICE)
HEALTH_NAMES = (WHOLE_NODE, *(service.full_name for service in SERVICES))
"""What the health service knows."""


def make_method_table(
    groups: GroupCoordinator, control: GroupControl, records: BrokerService, staging: StagingHandlers
) -> dict[str, ServiceMethod]:
    """Every call by its full name. Raises LookupError when one has no handler."""
    return (
        methods_of(GROUP_SERVICE, groups)
        | methods_of(CONTROL_SERVICE, control)
        | methods_of(BROKER_SERVICE, records)
        | methods_of(STAGING_SERVICE, staging)
    )
