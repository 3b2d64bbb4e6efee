"""DescribeCluster: nodes and controller, without any topic (KIP-700)."""

from typing import Any, Final

from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.authorized import CLUSTER_OPERATIONS, OPERATIONS_NOT_REQUESTED
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import KafkaCall
from muster.coordinator.kafka.handlers.metadata import MetadataHandlers
from muster.storage.broker.requests import LogRequests

BROKERS: Final = 1
CONTROLLERS: Final = 2
"""Kinds of doors that a client may take this for (KIP-919)."""

MISMATCHED_ENDPOINT_TYPE: Final = 114
UNSUPPORTED_ENDPOINT_TYPE: Final = 115


class DescribeClusterHandlers:
    """Nodes as Metadata tells of them."""

    def __init__(self, requests: LogRequests, metadata: MetadataHandlers) -> None:
        self._broker = requests.broker
        self._metadata = metadata

    def describe_cluster_now(self, request: Any, call: KafkaCall) -> Any:
        made, node = struct("DescribeClusterResponse"), struct("DescribeClusterResponse.brokers")
        if request.endpoint_type != BROKERS:
            return made(**endpoint_type_refusal(request.endpoint_type))
        return made(
            error_code=ErrorCode.NONE,
            error_message=None,
            cluster_id=self._broker.cluster_id,
            controller_id=self._metadata.controller(),
            brokers=[
                node(broker_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
                for each in self._metadata.nodes()
            ],
            cluster_authorized_operations=CLUSTER_OPERATIONS
            if request.include_cluster_authorized_operations
            else OPERATIONS_NOT_REQUESTED,
        )


def endpoint_type_refusal(kind: int) -> dict[str, Any]:
    """The refusal of who takes this door for another."""
    if kind == CONTROLLERS:
        why = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        return {"error_code": MISMATCHED_ENDPOINT_TYPE, "error_message": why}
    return {"error_code": UNSUPPORTED_ENDPOINT_TYPE, "error_message": f"Unsupported endpoint type {kind}"}
