"""Settings of an engine over Kafka: what holds, and what is refused in which words."""

import pytest

from muster.coordinator.config import Address, Settings, known_settings, load_settings
from muster.coordinator.config.kafka_backend import KafkaBackendSettings
from muster.coordinator.kafka_backend.backend_settings import (
    ownership_settings_of,
    state_topic_spec_of,
    upstream_address_of,
)
from tests.support.complaints import complaint

OVER = {"engine": "kafka://b1:9092, b2:9093"}
SASL = {
    "engine.kafka.security.protocol": "SASL_SSL",
    "engine.kafka.sasl.mechanism": "SCRAM-SHA-512",
    "engine.kafka.sasl.username": "muster",
    "engine.kafka.sasl.password": "correct-horse",
}


def test_a_node_keeps_its_own_state_unless_it_is_told_otherwise() -> None:
    assert (Settings().engine, Settings().upstream) == ("bundled", ())


def test_the_settings_in_the_words_of_the_engine() -> None:
    settings = load_settings(None, OVER | SASL | {"engine.kafka.cluster": "blue", "node.id": "3"})
    reach = upstream_address_of(settings)
    assert reach.servers == (Address("b1", 9092), Address("b2", 9093))
    assert reach.login is not None
    assert (reach.login.mechanism, reach.login.password, reach.client_id) == (
        "SCRAM-SHA-512",
        "correct-horse",
        "blue-3",
    )
    assert reach.certificates is not None
    assert state_topic_spec_of(settings) == ("blue.state", 50, 3, 1_000_000, "blue")
    rules = ownership_settings_of(settings, "i", 7_000_000, 0)
    assert (rules.node, rules.session_timeout_ms, rules.limits.batch_bytes) == (3, 10_000, 7_000_000)
    plain = upstream_address_of(load_settings(None, OVER))
    assert (plain.login, plain.certificates) == (None, None)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"engine": "kafka:b1"}, "engine is 'kafka:b1', expected bundled, or kafka://HOST:PORT,HOST:PORT"),
        ({"engine": "kafka://b1"}, "engine is 'kafka://b1', expected bundled, or kafka://HOST:PORT"),
        (
            OVER | {"log.dirs": "/d"},
            "--set: log.dirs is /d, but engine is kafka://b1:9092, b2:9093: such a node has no",
        ),
        (OVER | {"zookeeper.connect": "zk"}, "--set: zookeeper.connect is zk, but engine is kafka://b1:9092"),
        (
            OVER | {"zookeeper.connect": "zk", "inter.broker.listeners": "127.0.0.1:1"},
            "its nodes find each other in that Kafka, and groups of the ZooKeeper era need engine=bundled; leave",
        ),
        (
            OVER | {"kafka.listeners": "127.0.0.1:9092"},
            "--set: kafka.listeners is 127.0.0.1:9092, but engine.kafka.broker.ports is empty: Kafka's clients speak",
        ),
        (
            {"engine.kafka.cluster": "blue"},
            "--set: engine.kafka.cluster is blue, but engine is bundled: there is no Kafka",
        ),
        ({"engine.kafka.sasl.password": "correct-horse"}, "engine.kafka.sasl.password is set, but engine is bundled"),
        (
            OVER | {"engine.kafka.sasl.mechanism": "GSSAPI"},
            "expected one of SCRAM-SHA-256, SCRAM-SHA-512, PLAIN, OAUTHBEARER, or nothing ('GSSAPI' is not supported",
        ),
        (
            OVER | {"engine.kafka.sasl.mechanism": "PLAIN"},
            "engine.kafka.security.protocol is PLAINTEXT, but engine.kafka.sasl.mechanism is PLAIN; set both",
        ),
        (
            OVER | SASL | {"engine.kafka.sasl.username": ""},
            "engine.kafka.sasl.mechanism is SCRAM-SHA-512, but engine.kafka.sasl.username is empty",
        ),
        (
            OVER | SASL | {"engine.kafka.sasl.mechanism": "OAUTHBEARER"},
            "is OAUTHBEARER, but engine.kafka.sasl.oauthbearer.token.file is empty",
        ),
        (OVER | {"engine.kafka.cluster": "a b"}, "expected up to 200 letters, digits"),
        (OVER | {"engine.kafka.state.topic": "a b"}, "engine.kafka.state.topic is 'a b', expected a topic (up to 249"),
        (
            OVER | {"inter.broker.listeners": "127.0.0.1:1"},
            "inter.broker.listeners is 127.0.0.1:1, but engine is kafka://b1:9092, b2:9093: its nodes find each other",
        ),
        (
            OVER | {"engine.kafka.node.id.base": "2147483647", "node.id": "5"},
            "engine.kafka.node.id.base is 2147483647, but node.id is 5: Kafka's clients know a node by their sum",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_with_both_names(given: dict[str, str], sentence: str) -> None:
    assert sentence in complaint(given)


def test_lists_show_them() -> None:
    assert {field.alias for field in KafkaBackendSettings.model_fields.values()} <= known_settings().keys()


KAFKA = OVER | {"kafka.listeners": "127.0.0.1:0", "engine.kafka.broker.ports": "9100"}
BY_SASL = {
    "engine.kafka.security.protocol": "SASL_PLAINTEXT",
    "engine.kafka.sasl.mechanism": "PLAIN",
    "engine.kafka.sasl.username": "muster",
}
ASKING = {"kafka.listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "SCRAM-SHA-256"}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            KAFKA | BY_SASL,
            "kafka.listeners is 127.0.0.1:0 (PLAINTEXT), but engine.kafka.security.protocol is SASL_PLAINTEXT: clients",
        ),
        (
            KAFKA | ASKING | {"authorizer": "acl"},
            "but engine.kafka.security.protocol is PLAINTEXT: it is the brokers that decide about logins",
        ),
        (KAFKA | BY_SASL | ASKING, "authorizer is none, but kafka.listeners asks who clients are"),
        (
            KAFKA | {"engine.kafka.security.protocol": "SSL", "engine.kafka.ssl.keystore.location": "me.pem"},
            "engine.kafka.ssl.keystore.location is me.pem: by its certificate all clients",
        ),
        (
            KAFKA | {"connections.max.reauth.ms": "1000"},
            "connections.max.reauth.ms is 1000, but engine is a Kafka: its brokers say how long a login holds",
        ),
    ],
)
def test_nobody_comes_to_the_brokers_as_the_node_by_mistake(given: dict[str, str], sentence: str) -> None:
    assert sentence in complaint(given)


def test_a_clients_certificate_is_not_lost_in_silence() -> None:
    given = {
        "kafka.listeners": "SSL://127.0.0.1:0",
        "authorizer": "acl",
        "ssl.keystore.location": "server.pem",
        "ssl.truststore.location": "ca.pem",
        "listener.name.kafka.ssl.client.auth": "required",
    }
    told = complaint(KAFKA | given)
    assert "ssl.client.auth is required, but engine is a Kafka: TLS ends at this node" in told


def test_who_checks_tokens_of_clients_is_the_upstream() -> None:
    given = KAFKA | BY_SASL | ASKING | {"authorizer": "acl", "sasl.enabled.mechanisms": "OAUTHBEARER"}
    assert load_settings(None, given).mechanisms == ("OAUTHBEARER",)
