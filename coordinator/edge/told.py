"""Where a node's clients are sent."""

from typing import NamedTuple

from muster.coordinator.config import Address


class ClientAddresses(NamedTuple):
    """Where clients are told to go by gRPC and, if they can, by Kafka's protocol; and where HTTP listens."""

    grpc: Address
    kafka: Address | None
    http: Address | None
