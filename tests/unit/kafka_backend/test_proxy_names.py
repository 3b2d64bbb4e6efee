"""Brokers told apart by the names that clients ask for: whom a name stands for, and which settings go together."""

import ssl
from typing import Any

import pytest

from muster.coordinator.config import SettingsError, load_settings
from muster.coordinator.kafka_backend.proxy.broker_addresses import (
    OWN_NAME,
    BrokerHosts,
    UnknownServerName,
    broker_of_name,
)
from muster.coordinator.server.security.listener_certificates import CurrentTlsContext, covers_host
from tests.support import certificates

OVER = {"engine": "kafka://b1:9092", "kafka.listeners": "SSL://127.0.0.1:9093"}
PATTERN = "broker-$(id).muster.example"


@pytest.mark.parametrize(
    ("name", "broker"),
    [
        (None, OWN_NAME),
        ("node-1.muster.example", OWN_NAME),
        ("NODE-1.muster.example", OWN_NAME),
        ("all.muster.example", OWN_NAME),
        ("broker-3.muster.example", 3),
        ("Broker-0.Muster.Example", 0),
    ],
)
def test_a_name_stands_for_a_broker_or_for_the_node(name: str | None, broker: int | None) -> None:
    hosts = BrokerHosts(PATTERN, lambda: 9093)
    assert broker_of_name(name, hosts, "node-1.muster.example", {"all.muster.example"}.__contains__) == broker


@pytest.mark.parametrize("name", ["broker-03.muster.example", "broker-.muster.example", "broker-x.muster.example", "x"])
def test_what_nobody_is_called_is_nobody(name: str) -> None:
    with pytest.raises(UnknownServerName):
        broker_of_name(name, BrokerHosts(PATTERN, lambda: 9093), "node-1.muster.example", lambda each: False)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"engine.kafka.broker.hosts": "broker.muster.example"},
            "expected a host's name with $(id) in it, or nothing ($(id) stands in it once",
        ),
        ({"engine.kafka.broker.hosts": "$(id)-$(id).example"}, "is of a name, such as broker-$(id).muster.example"),
        (
            {"engine.kafka.broker.hosts": "broker-$(id).muster.example:9092"},
            "is of a name, such as broker-$(id).muster.example",
        ),
        (
            {"engine.kafka.broker.hosts": PATTERN, "engine.kafka.broker.ports": "9100-9102"},
            f"engine.kafka.broker.ports is 9100-9102, and engine.kafka.broker.hosts is {PATTERN}: brokers are told",
        ),
        (
            {"engine.kafka.broker.hosts": PATTERN, "kafka.listeners": "127.0.0.1:9092"},
            f"engine.kafka.broker.hosts is {PATTERN}, but kafka.listeners speaks PLAINTEXT: a client tells the name",
        ),
        ({}, "or with TLS engine.kafka.broker.hosts to a name such as broker-$(id).muster.example"),
        (
            {"engine": "bundled", "engine.kafka.broker.hosts": PATTERN},
            f"engine.kafka.broker.hosts is {PATTERN}, but engine is bundled",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(None, OVER | given)
    assert sentence in str(caught.value)


def test_a_certificate_is_for_its_names_and_one_part_of_a_star() -> None:
    hosts = ("*.muster.example", "node.other.example")
    named = ["broker-1.muster.example", "Node.Other.example.", "a.b.muster.example", "muster.example", "other.example"]
    assert [covers_host(name, hosts) for name in named] == [True, True, False, False, False]


def test_names_are_told_behind_a_new_certificate_too(tmp_path: Any) -> None:
    def context() -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(certificates.write(tmp_path, "server.pem", certificates.server().pem()))
        return made

    current, told = CurrentTlsContext(context()), list[str | None]()
    current.on_name(lambda handshake, name: told.append(name))
    for name in ("first.example", "second.example"):
        shake(current, name)
        current.replace(context())
    assert told == ["first.example", "second.example"]


def shake(server: ssl.SSLContext, name: str) -> None:
    """A handshake in memory."""
    asking = ssl.create_default_context()
    asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client, answering = asking.wrap_bio(down, up, server_hostname=name), server.wrap_bio(up, down, server_side=True)
    for _ in range(3):
        for side in (client, answering):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert client.version() is not None
