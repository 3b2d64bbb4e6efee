"""No door stands open by mistake: what settings of doors, certificates and rights may say together."""

from pathlib import Path

import pytest

from muster.coordinator.config import Settings, load_settings
from muster.coordinator.server.node_events import changed_settings
from tests.support.complaints import complaint

SECURE = {"ssl.keystore.location": "/etc/muster/node.pem"}


@pytest.mark.parametrize(
    "given",
    [
        {"listeners": "PLAINTEXT://127.0.0.1:0"},
        {
            "listeners": "localhost:0",
            "kafka.listeners": "PLAINTEXT://[::1]:0",
            "http.listeners": "PLAINTEXT://127.0.0.9:0",
        },
        {"listeners": "10.0.0.1:9290", "allow.insecure.listeners": "true"},
        {"http.listeners": "10.0.0.1:9291", "http.insecure": "true"},
        {"kafka.listeners": "10.0.0.1:9092", "allow.insecure.listeners": "true", "http.listeners": "10.0.0.1:9291"},
    ],
)
def test_a_door_is_plaintext_on_loopback_or_by_name(given: dict[str, str]) -> None:
    load_settings(None, given)


@pytest.mark.parametrize("protocol", ["", "PLAINTEXT://"])
@pytest.mark.parametrize("host", ["10.0.0.1", "muster.example", "[fe80::1]"])
@pytest.mark.parametrize("setting", ["listeners", "kafka.listeners", "http.listeners"])
def test_a_plaintext_door_that_others_reach_is_refused_with_its_cure(setting: str, host: str, protocol: str) -> None:
    told = complaint({setting: f"{protocol}{host}:9999"})
    assert told.startswith(f"--set: {setting} is {host}:9999 (PLAINTEXT), which other machines reach")
    assert "expected SSL:// with ssl.keystore.location, a loopback address" in told
    assert "allow.insecure.listeners=true" in told
    assert ("http.insecure=true" in told) == (setting == "http.listeners")


def test_the_word_for_http_opens_no_other_door() -> None:
    given = {"listeners": "10.0.0.1:9290", "http.listeners": "10.0.0.1:9291", "http.insecure": "true"}
    assert complaint(given).startswith("--set: listeners is 10.0.0.1:9290")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"kafka.listeners": "SASL_SSL://127.0.0.1:0"}, "ssl.keystore.location is empty, but kafka.listeners speaks"),
        ({"kafka.listeners": "SASL_PLAINTEXT://127.0.0.1:0"}, "sasl.enabled.mechanisms is empty"),
        ({"http.listeners": "SASL_SSL://127.0.0.1:0"}, "'SASL_SSL' is not supported here; expected one of"),
        ({"kafka.listeners": "ssl://127.0.0.1:0"}, "'ssl' is not supported here"),
        (
            {"kafka.listeners": "127.0.0.1:0", "kafka.advertised.listeners": "SSL://muster.example:1"},
            "SSL://muster.example:1 says SSL, but what listens there speaks PLAINTEXT; write PLAINTEXT:// or none",
        ),
        ({"ssl.client.auth": "required"}, "ssl.client.auth is required, but no listener speaks TLS"),
        (
            {"listener.name.kafka.ssl.client.auth": "required"},
            "listener.name.kafka.ssl.client.auth has no effect: kafka.listeners is empty; expected SSL:// there",
        ),
        (
            {"listener.name.grpc.ssl.client.auth": "required"},
            "listener.name.grpc.ssl.client.auth has no effect: listeners is 127.0.0.1:9290 (PLAINTEXT)",
        ),
        (
            {"listener.name.kafka.ssl.client.aut": "none"},
            "listener.name.kafka.ssl.client.aut is not a setting of this node; did you mean "
            "listener.name.kafka.ssl.client.auth?",
        ),
        ({"ssl.keystore.type": "JKS"}, "ssl.keystore.type is 'JKS', expected one of PEM"),
        ({"ssl.keystore.password": "x"}, "ssl.keystore.password is not a setting of this node; did you mean"),
        (
            {"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"},
            "expected TLSv1.2 and TLSv1.3, by a comma, or one of them (older",
        ),
        (
            {"ssl.principal.mapping.rules": "RULE:^CN=(.*$/$1/"},
            "'^CN=(.*$' is not a regular expression: missing ), unterminated subpattern",
        ),
        (
            {"authorizer": "acl", "zookeeper.connect": "127.0.0.1,zk2/kafka"},
            "zookeeper.connect is 127.0.0.1,zk2/kafka, without TLS and credentials, and authorizer is acl",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, str], sentence: str) -> None:
    assert sentence in complaint(given)


def test_a_zookeeper_on_this_machine_governs_with_lists(tmp_path: Path) -> None:
    load_settings(None, {"authorizer": "acl", "zookeeper.connect": "localhost:2181,[::1]:2181/kafka"})
    load_settings(None, {"authorizer": "acl", "zookeeper.connect": "zk", "allow.insecure.listeners": "true"})
    load_settings(None, {"authorizer": "none", "zookeeper.connect": "zk"})


def test_what_clients_are_told_has_no_protocol() -> None:
    given = {"kafka.listeners": "PLAINTEXT://127.0.0.1:0", "kafka.advertised.listeners": "PLAINTEXT://muster.example:0"}
    assert load_settings(None, given).kafka_advertised_address(4711) == ("muster.example", 4711)
    given = {"listeners": "PLAINTEXT://127.0.0.1:0", "advertised.listeners": "muster.example:1"}
    assert load_settings(None, given).advertised_address(4711) == ("muster.example", 1)


def test_a_secret_is_never_shown() -> None:
    settings = load_settings(None, {"ssl.key.password": "hunter2", "ssl.keystore.key": "-----BEGIN hunter2"})
    assert "hunter2" not in repr(settings) + str(settings) + str(dict(changed_settings(settings)))
    assert dict(changed_settings(settings))["ssl.key.password"] == "**********"
    own = Settings().model_copy(
        update={"listener_name": {"kafka.ssl.key.password": "hunter2", "kafka.ssl.client.auth": "none"}}
    )
    assert "hunter2" not in repr(own) + str(own)
    told = dict(changed_settings(own))
    assert told["listener.name.kafka.ssl.key.password"] == "**********"
    assert told["listener.name.kafka.ssl.client.auth"] == "none"


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ("admin", "'admin' is not a principal"),
        ("user:admin", "'user:admin' names nobody; expected User:admin"),
        ("User:*", "'User:*' names nobody"),
        ("User:admin,User:bob", "expected semicolons between several"),
    ],
)
def test_super_users_who_would_be_nobody_are_refused(names: str, why: str) -> None:
    told = complaint({"authorizer": "acl", "super.users": names})
    assert "super.users" in told
    assert why in told
