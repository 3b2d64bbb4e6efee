"""What a node says of its doors."""

import json

from muster.coordinator.config import Address
from muster.coordinator.server.services.zookeeper_registration import build_registration
from muster.coordinator.zookeeper.layout import read_broker
from muster.coordinator.zookeeper.node_registry import same_listeners


def test_kafkas_door_is_where_tools_of_that_era_connect() -> None:
    both = build_registration(Address("box", 9290), Address("box", 9092), 17)
    assert (both.host, both.port, both.timestamp_ms) == ("box", 9092, 17)
    assert both.grpc == ("box", 9290)
    assert both.address == "box:9092"


def test_clients_of_kafka_see_no_door_that_they_cannot_use() -> None:
    """Kafka 0.9 fails at a listener called GRPC; 0.10.2 to 1.1 spoke Kafka's protocol to it, for it came first and was
    mapped to PLAINTEXT."""
    both = build_registration(Address("box", 9290), Address("box", 9092), 17)
    assert json.loads(both.to_json()) == {
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "endpoints": ["PLAINTEXT://box:9092"],
        "jmx_port": -1,
        "host": "box",
        "timestamp": "17",
        "port": 9092,
        "version": 4,
        "muster": {"endpoints": ["GRPC://box:9290"]},
    }


def test_a_node_without_it_has_nothing_for_them() -> None:
    """As a broker of Kafka registers that has no plaintext listener."""
    alone = build_registration(Address("::1", 9290), None, 17)
    body = json.loads(alone.to_json())
    assert (body["host"], body["port"], body["endpoints"]) == (None, -1, [])
    assert read_broker("/brokers/ids/1", alone.to_json()) == alone
    assert (alone.grpc, alone.address) == (("::1", 9290), "[::1]:9290")


def test_a_registration_of_before_is_the_same_node_s() -> None:
    before = (
        b'{"listener_security_protocol_map":{"GRPC":"PLAINTEXT"},"endpoints":["GRPC://box:9290"],"jmx_port":-1,'
        b'"host":"box","timestamp":"5","port":9290,"version":4}'
    )
    assert same_listeners(read_broker("/brokers/ids/1", before), build_registration(Address("box", 9290), None, 17))


def test_a_kafka_listener_with_tls_or_logins_is_no_plaintext_one() -> None:
    """It was registered as PLAINTEXT: old clients spoke plain text to a listener with TLS."""
    found = build_registration(Address("box", 9290), Address("box", 9093), 17, "SASL_SSL")
    body = json.loads(found.to_json())
    assert (body["host"], body["port"], body["endpoints"]) == (None, -1, ["SASL_SSL://box:9093"])
    assert body["listener_security_protocol_map"] == {"SASL_SSL": "SASL_SSL"}
    assert read_broker("/brokers/ids/1", found.to_json()) == found
