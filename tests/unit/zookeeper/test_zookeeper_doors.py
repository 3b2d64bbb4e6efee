"""What a node says of its doors."""

from muster.coordinator.config import Address
from muster.coordinator.server.services.zookeeper_registration import build_registration


def test_kafkas_door_is_where_tools_of_that_era_connect() -> None:
    both = build_registration(Address("box", 9290), Address("box", 9092), 17)
    assert (both.host, both.port, both.timestamp_ms) == ("box", 9092, 17)
    assert both.endpoints == ("GRPC://box:9290", "PLAINTEXT://box:9092")
    assert both.grpc == ("box", 9290)


def test_a_node_without_it_names_its_own() -> None:
    alone = build_registration(Address("::1", 9290), None, 17)
    assert (alone.host, alone.port) == ("::1", 9290)
    assert alone.endpoints == ("GRPC://[::1]:9290",)
