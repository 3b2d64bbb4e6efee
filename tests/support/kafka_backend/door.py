"""`muster serve --engine kafka://... --kafka-listen` in a process of its own."""

from pathlib import Path
from typing import Final

from tests.support.kafka_backend.proxied import free_ports
from tests.support.kafka_backend.served import over
from tests.support.node import NodeProcess

LEASE_MS: Final = 3_000
BROKER: Final = 1
"""The id of the tests' broker."""


class DoorNode(NodeProcess):
    """With Kafka's door, and a port for the broker."""

    def __init__(self, kafka: str, cluster: str, number: int, place: Path, **given: str) -> None:
        ports = free_ports(1)
        more = {
            "node.id": str(number),
            "kafka.listeners": "127.0.0.1:0",
            "engine.kafka.broker.ports": f"{ports[0]}-{ports[-1]}",
            "engine.kafka.broker.id.first": str(BROKER),
            "engine.kafka.session.timeout.ms": str(LEASE_MS),
            "engine.kafka.heartbeat.interval.ms": "300",
        }
        super().__init__(place / f"n{number}", {**over(kafka, cluster, **given), **more})
        self.ports = ports
