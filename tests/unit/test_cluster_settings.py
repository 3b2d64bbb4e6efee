"""Settings of many nodes: what holds, what is refused with which sentence, and that nothing pretends to be finished."""

import pytest

from muster.coordinator.config import Settings, load_settings
from muster.coordinator.config.listener_security import find_open_listeners
from tests.support.complaints import complaint

MANY = {"inter.broker.listeners": "127.0.0.1:0", "zookeeper.connect": "zk"}
TLS = {"inter.broker.listeners": "SSL://10.0.0.1:9293", "ssl.keystore.location": "/etc/muster/node.pem"}
SHOWN = {
    "listener.name.replication.ssl.client.auth": "required",
    "listener.name.replication.ssl.truststore.location": "/etc/muster/ca.pem",
}


def test_defaults_lose_nothing_that_was_acknowledged_with_one_node() -> None:
    settings = Settings()
    assert (settings.default_replication_factor, settings.min_insync_replicas) == (3, 2)
    assert settings.offsets_topic_replication_factor == 3
    assert not settings.unclean_leader_election_enable
    assert settings.replication_listener is None, "a node is alone unless it is told otherwise"


def test_the_door_between_nodes_takes_protocol_and_address_as_the_others_do() -> None:
    settings = load_settings(None, MANY | TLS | SHOWN)
    assert settings.replication_listener is not None
    assert (settings.replication_listener.protocol, settings.replication_listener.address.port) == ("SSL", 9293)
    assert settings.replication_advertised_address(4711) == ("10.0.0.1", 4711)
    assert settings.listener_addresses["replication"] == settings.replication_listener
    told = load_settings(None, MANY | {"inter.broker.advertised.listeners": "muster-1.example:0"})
    assert told.replication_advertised_address(4711) == ("muster-1.example", 4711)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"inter.broker.listeners": "127.0.0.1:9293"},
            "--set: inter.broker.listeners is 127.0.0.1:9293, but zookeeper.connect is empty: nodes of a cluster find",
        ),
        (
            {"inter.broker.advertised.listeners": "a:1"},
            "--set: inter.broker.advertised.listeners is a:1, but inter.broker.listeners is empty; set it",
        ),
        (
            MANY | {"inter.broker.listeners": "0.0.0.0:1", "allow.insecure.listeners": "true"},
            "other nodes would be told to connect to 0.0.0.0, which is not the address of a machine; set "
            "inter.broker.advertised.listeners to the HOST:PORT",
        ),
        (
            MANY | {"inter.broker.listeners": "10.0.0.1:9293"},
            "inter.broker.listeners is 10.0.0.1:9293 (PLAINTEXT), which other machines reach",
        ),
        (
            MANY | {"inter.broker.listeners": "SASL_SSL://10.0.0.1:9293"},
            "'SASL_SSL' is not supported here; expected one of PLAINTEXT, SSL",
        ),
        (
            {"replica.fetch.wait.max.ms": "6000"},
            "replica.lag.time.max.ms is 10000, but replica.fetch.wait.max.ms is 6000: a replica that waits for records "
            "would be out of sync; expected at least 12000, or a shorter wait",
        ),
        ({"replica.lag.time.max.ms": "999"}, "replica.lag.time.max.ms is 999, but replica.fetch.wait.max.ms is 500"),
        (
            MANY | {"zookeeper.session.timeout.ms": "900"},
            "replica.fetch.wait.max.ms is 500, but zookeeper.session.timeout.ms is 900: while replicas wait for "
            "records, their groups would get no answers; expected at most 450, or a longer session",
        ),
        ({"min.insync.replicas": "0"}, "min.insync.replicas is '0', expected a whole number from 1 to 2147483647"),
        ({"default.replication.factor": "0"}, "default.replication.factor is '0', expected a whole number from 1 to"),
        ({"offsets.topic.replication.factor": "40000"}, "expected a whole number from 1 to 32767"),
        ({"leader.imbalance.per.broker.percentage": "101"}, "expected a whole number from 0 to 100"),
        ({"unclean.leader.election.enable": "perhaps"}, "expected true or false"),
        ({"replica.fetch.wait.max.ms": "0"}, "expected a whole number from 1 to"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, str], sentence: str) -> None:
    assert sentence in complaint(given)


def test_topics_that_say_nothing_go_by_the_node_s_minimum_where_there_are_copies() -> None:
    """`kafka-configs --describe` shows what counts: on a node alone one copy, whatever its settings say."""
    more = {"min.insync.replicas": "3", "unclean.leader.election.enable": "true"}
    many, alone = load_settings(None, MANY | more), load_settings(None, more)
    own = {"min.insync.replicas": "1", "unclean.leader.election.enable": "false"}
    for settings, configs, minimum, unclean in (
        (many, {}, 3, True),
        (many, own, 1, False),
        (alone, {}, 1, False),
        (alone, {"min.insync.replicas": "2"}, 2, False),
    ):
        found = settings.for_topic(configs)
        assert (found.min_insync_replicas, found.unclean_leader_election_enable) == (minimum, unclean)


def test_twice_the_wait_is_enough() -> None:
    load_settings(None, {"replica.lag.time.max.ms": "1000"})
    load_settings(None, MANY | {"zookeeper.session.timeout.ms": "1000"})
    load_settings(None, {"zookeeper.connect": "zk", "zookeeper.session.timeout.ms": "100"})


def test_with_tls_nodes_show_each_other_certificates() -> None:
    told = complaint(MANY | TLS)
    assert "ssl.client.auth is none, but inter.broker.listeners speaks TLS, where nodes present certificates to" in told
    assert "set listener.name.replication.ssl.client.auth=required" in told
    half = {"listener.name.replication.ssl.client.auth": "required"}
    assert "no authority is set whose certificates would be trusted" in complaint(MANY | TLS | half)
    settings = load_settings(None, MANY | TLS | SHOWN)
    assert list(find_open_listeners(settings.listener_addresses, "none")) == [], (
        "who shows no certificate is not let in"
    )
    assert settings.certificates_of("kafka").ssl_client_auth == "none", "other doors stay as they are"


def test_nodes_that_ask_who_may_do_what_show_each_other_certificates() -> None:
    """Whoever reaches a door in the clear could give himself any right."""
    given = MANY | {"authorizer": "acl", "super.users": "User:CN=node"}
    assert "inter.broker.listeners is 127.0.0.1:0 (PLAINTEXT), and authorizer is acl: nodes read" in complaint(given)
    load_settings(None, given | TLS | SHOWN | {"zookeeper.connect": "127.0.0.1"})
