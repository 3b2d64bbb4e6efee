"""Our clients and commands against a real node that wants TLS and a certificate, and asks for rights."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.cli.main import main
from muster.client import Admin, Consumer, Producer, Worker
from muster.client.errors import AuthorizationError, Unreachable
from tests.support.certificates import client, secure, write
from tests.support.node import NodeProcess, running_node

pytestmark = pytest.mark.integration


class Secured:
    def __init__(self, directory: Path, node: NodeProcess) -> None:
        self.directory, self.node = directory, node

    def properties(self, who: str = "alice") -> dict[str, Any]:
        return {
            "bootstrap.servers": self.node.address,
            "security.protocol": "SSL",
            "ssl.truststore.location": str(self.directory / "ca.pem"),
            "ssl.keystore.location": write(self.directory, f"{who}.pem", client(who).pem()),
        }

    def file(self, who: str = "alice") -> str:
        lines = [f"{name}={value}\n" for name, value in self.properties(who).items()]
        return write(self.directory, f"{who}.properties", "".join(lines).encode())


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("tls")
    settings = secure(
        directory,
        listeners="SSL://127.0.0.1:0",
        ssl_client_auth="required",
        authorizer="acl",
        super_users="User:CN=alice",
        group_initial_rebalance_delay_ms="0",
    )
    with running_node(directory / "data", settings) as node:
        yield Secured(directory, node)


@pytest.mark.parametrize("protocol", ["classic", "consumer", "central"])
def test_clients_of_every_kind_come_in_by_their_certificate(secured: Secured, protocol: str) -> None:
    given, topic = secured.properties(), f"t-{protocol}"
    with Admin(given) as admin:
        admin.create_topic(topic, 2)
    with Producer(given) as producer:
        producer.produce(topic, b"hello")
    with Consumer(given, group_id=f"g-{protocol}", group_protocol=protocol, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(topic)
        message = consumer.poll(20)
        assert message is not None
        assert message.value == b"hello"


def test_a_worker_too(secured: Secured) -> None:
    gained = threading.Event()
    with Worker(secured.properties(), group_id="workers") as worker:
        worker.join(resources=["r"], on_gain=lambda *told: gained.set())
        for _ in range(200):
            worker.poll(0.1)
            if gained.is_set():
                break
        assert gained.is_set()


def test_who_has_no_right_is_told_which_is_missing(secured: Secured) -> None:
    with Admin(secured.properties("bob")) as bob:
        with pytest.raises(AuthorizationError, match=r"bobs: this principal has no right to that; .*muster acls"):
            bob.create_topic("bobs")
        assert bob.list_topics() == {}, "what one may not see does not exist"
    with Consumer(secured.properties("bob"), group_id="bobs") as consumer:
        consumer.subscribe("t-classic")
        with pytest.raises(AuthorizationError, match="bobs"):
            consumer.poll(20)


def test_who_shows_no_certificate_is_told_so(secured: Secured) -> None:
    given = secured.properties()
    del given["ssl.keystore.location"]
    with (
        Admin(given, default_api_timeout_ms=500) as admin,
        pytest.raises(Unreachable, match=r"ssl\.keystore\.location"),
    ):
        admin.list_topics()


def test_commands_come_in_by_one_file(
    secured: Secured, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MUSTER_CONFIG", secured.file())
    assert main(["topics", "create", "by-command"]) == 0
    assert main(["health"]) == 0
    assert main(["settings", "--running", "authorizer", "-o", "csv"]) == 0
    assert main(["groups", "list"]) == 0
    assert main(["doctor", "--over", "0", "-o", "json"]) in (0, 4)
    assert main(["top", "--once"]) == 0
    assert main(["quotas", "set", "--user", "CN=bob", "topic_count=1"]) == 0
    out = capsys.readouterr().out
    assert "SERVING" in out
    assert "authorizer,acl" in out
    assert main(["consumer-groups", "--bootstrap-server", secured.node.address, "--list"]) == 0
    assert main(["topics", "create", "bobs", "--command-config", secured.file("bob")]) == 1
    assert "TOPIC_AUTHORIZATION_FAILED: bobs: this principal has no right" in capsys.readouterr().err
    monkeypatch.delenv("MUSTER_CONFIG")
    assert main(["health", "--bootstrap", secured.node.address]) == 4
    assert main(["topics", "list", "--bootstrap", secured.node.address]) == 4
    assert "speaks TLS, and this client does not; set security.protocol=SSL" in capsys.readouterr().err
