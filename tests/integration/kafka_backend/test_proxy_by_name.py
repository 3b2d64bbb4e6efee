"""Brokers told apart by names (SNI) on one TLS port: clients come by the name that they were told, and by no other."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from aiokafka.helpers import create_ssl_context
from kafka import KafkaConsumer, KafkaProducer

from muster.cli.security import certificate_authority
from muster.client import Admin
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.zookeeper.local_ensemble import free_port
from tests.support import certificates
from tests.support.kafka.client import frame
from tests.support.kafka_backend.hellos import Hellos, hellos
from tests.support.kafka_backend.named_client import can_have_names, named_client
from tests.support.kafka_backend.served import make_topics, over
from tests.support.node import NodeProcess
from tests.support.pace import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

DOMAIN: Final = ".muster.test"
PATTERN: Final = f"broker-$(id){DOMAIN}"
NODE: Final = f"node-1{DOMAIN}"
ALL: Final = f"all{DOMAIN}"
"""That of all nodes together: no broker's, but in the certificate."""
SAN: Final = (NODE, ALL, f"broker-1{DOMAIN}", f"broker-9{DOMAIN}")
RECORDS: Final = 50
LATEST: Final = -1
NODE_ID: Final = 1
"""The default of node.id."""


@pytest.fixture(autouse=True)
def names_lead_here(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo

    def known(host: Any, *more: Any, **other: Any) -> Any:
        return resolve("127.0.0.1" if str(host).endswith(DOMAIN) else host, *more, **other)

    monkeypatch.setattr(socket, "getaddrinfo", known)


@pytest.fixture(scope="module")
def listener() -> int:
    return free_port()


@pytest.fixture(scope="module")
def tap(listener: int) -> Iterator[Hellos]:
    """Where the node tells clients to go: its own listener is behind."""
    with hellos(listener) as tapped:
        yield tapped


@pytest.fixture(scope="module")
def node(
    real_kafka: Any, listener: int, tap: Hellos, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NodeProcess]:
    make_topics(real_kafka.address, {"by-name": 2})
    place = Path(tmp_path_factory.mktemp("by-name"))
    shown = certificate_authority.issue_server_certificate(certificates.authority(), SAN, 30)
    settings = {
        "kafka.listeners": f"SSL://127.0.0.1:{listener}",
        "kafka.advertised.listeners": f"SSL://{NODE}:{tap.port}",
        "engine.kafka.broker.hosts": PATTERN,
        "ssl.keystore.location": certificates.write(place, "server.pem", shown.pem()),
    }
    running = NodeProcess(place / "n1", {**over(real_kafka.address, "by-name"), **settings})
    with ExitStack() as stack:
        stack.callback(running.stop)
        running.start()
        yield running


def trusting(tmp_path: Path) -> str:
    return certificates.write(tmp_path, "ca.pem", certificates.authority().certificate_pem)


def shaken(node: NodeProcess, name: str | None, tmp_path: Path) -> ssl.SSLSocket:
    """A connection after its handshake, in which this name was asked for."""
    context = ssl.create_default_context(cafile=trusting(tmp_path))
    context.check_hostname = False  # the name that is asked for need not be in the certificate
    port = int(node.kafka_address.rpartition(":")[2])
    return context.wrap_socket(socket.create_connection(("127.0.0.1", port), 30), server_hostname=name)


@pytest.mark.parametrize("first", [NODE, ALL, f"broker-1{DOMAIN}"])
def test_a_client_writes_and_reads_by_names(node: NodeProcess, tmp_path: Path, first: str) -> None:
    port = node.kafka_address.rpartition(":")[2]
    how = {
        "bootstrap_servers": f"{first}:{port}",
        "security_protocol": "SSL",
        "ssl_context": create_ssl_context(cafile=trusting(tmp_path)),
    }
    group = f"by-{first.partition('.')[0]}"
    with ExitStack() as stack:
        producer = KafkaProducer(**how)
        stack.callback(producer.close)
        consumer = KafkaConsumer("by-name", group_id=group, auto_offset_reset="earliest", **how)
        stack.callback(consumer.close)
        for number in range(RECORDS):
            producer.send("by-name", f"{group} {number}".encode())
        producer.flush(60)
        read: set[bytes] = set()

        def all_read() -> bool:
            found = consumer.poll(200)
            read.update(record.value for records in found.values() for record in records)
            return {f"{group} {number}".encode() for number in range(RECORDS)} <= read

        until(all_read, node.log_tail)
        consumer.commit()


@pytest.mark.parametrize("first", [NODE, ALL, f"broker-1{DOMAIN}"])
def test_librdkafka_asks_in_its_handshake_for_the_names_that_it_was_told(
    node: NodeProcess, tap: Hellos, tmp_path: Path, first: str
) -> None:
    if not can_have_names():
        pytest.skip("librdkafka asks the system where names lead: it takes unshare, and the right to mount")
    how = {
        "bootstrap.servers": f"{first}:{tap.port}",
        "security.protocol": "SSL",
        "ssl.ca.location": trusting(tmp_path),
        "group.id": f"librdkafka-by-{first.partition('.')[0]}",
    }
    before = len(tap.asked)
    said = named_client(SAN, tmp_path, how, "by-name", RECORDS)
    with Admin(bootstrap_servers=node.address) as admin:
        found = {str(place.partition): each.offset for place, each in admin.group_offsets(how["group.id"]).items()}
        ends = admin.list_offsets({("by-name", number): LATEST for number in range(2)})
    assert found == said["committed"] == {str(place.partition): end.offset for place, end in ends.items()}
    broker, me = f"broker-1{DOMAIN}", f"{NODE}:{tap.port}"
    assert said["brokers"] == {"1": f"{broker}:{tap.port}", str(1_000_000 + NODE_ID): me}
    assert set(tap.asked[before:]) == {first, broker, NODE}


def test_a_name_that_nobody_has_ends_in_the_handshake(node: NodeProcess, tmp_path: Path) -> None:
    for unknown in (f"broker-01{DOMAIN}", f"broker-x{DOMAIN}", "elsewhere.example"):
        with pytest.raises((ssl.SSLError, ConnectionError)):  # uvloop hangs up before the alert has left
            shaken(node, unknown, tmp_path)
    assert "the client asked for a host that is not here (engine.kafka.broker.hosts)" in node.log_tail()


def test_a_broker_that_is_not_there_closes_at_once(node: NodeProcess, tmp_path: Path) -> None:
    with shaken(node, f"broker-9{DOMAIN}", tmp_path) as client:
        assert client.recv(1) == b""


def test_without_a_name_it_is_the_node(node: NodeProcess, tmp_path: Path) -> None:
    with shaken(node, None, tmp_path) as client:
        request = frame("FindCoordinator", 0, 7, struct("FindCoordinatorRequest")(key="group"))
        client.sendall(request)
        size = int.from_bytes(client.recv(4), "big")
        assert NODE.encode() in client.recv(size)


def test_a_certificate_that_lacks_a_broker_s_name_is_told(real_kafka: Any, tmp_path: Path) -> None:
    shown = certificate_authority.issue_server_certificate(certificates.authority(), (NODE,), 30)
    settings = {
        "kafka.listeners": "SSL://127.0.0.1:0",
        "kafka.advertised.listeners": f"SSL://{NODE}:9092",
        "engine.kafka.broker.hosts": PATTERN,
        "ssl.keystore.location": certificates.write(tmp_path, "server.pem", shown.pem()),
    }
    node = NodeProcess(tmp_path / "n1", {**over(real_kafka.address, "by-name-not"), **settings})
    node.start()
    try:
        told = f"the certificate that kafka.listeners shows is not for broker-1{DOMAIN}: clients that check names"
        until(lambda: told in node.log_tail(), node.log_tail)
    finally:
        node.stop()
