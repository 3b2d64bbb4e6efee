"""Clients that nobody here wrote, over TLS and by their certificates, against a real node with uvloop, on all doors."""

import asyncio
import http.client
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer

from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from tests.support.certificates import authority, client, secure, server, stranger, write
from tests.support.node import NodeProcess, running_node
from tests.support.pace import pace
from tests.support.stubs import GroupCoordinatorStub

pytestmark = pytest.mark.integration

PATIENCE_S = 30.0
MESSAGES = 200
LARGE = 700_000
SWAPS = 20


class Secured:
    """A node whose doors speak TLS, and what a client needs to come in."""

    def __init__(self, directory: Path, node: NodeProcess) -> None:
        self.directory, self.node = directory, node
        self.ca = str(directory / "ca.pem")
        self.own = write(directory, "alice.pem", client().pem())

    def librdkafka(self, **more: Any) -> dict[str, Any]:
        given = {"bootstrap.servers": self.node.kafka_address, "security.protocol": "ssl", "ssl.ca.location": self.ca}
        return given | {"ssl.certificate.location": self.own, "ssl.key.location": self.own} | more

    def python(self) -> dict[str, Any]:
        """As kafka-python has them."""
        return {
            "bootstrap_servers": self.node.kafka_address,
            "security_protocol": "SSL",
            "ssl_cafile": self.ca,
            "ssl_certfile": self.own,
            "ssl_keyfile": self.own,
        }

    def context(self, certificate: bool = True) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        if certificate:
            context.load_cert_chain(self.own)
        return context

    def channel(self, who: str = "alice") -> grpc.Channel:
        shown = client(who)
        ca = authority().certificate_pem
        own = grpc.ssl_channel_credentials(ca, shown.key_pem(), shown.certificate_pem)
        return grpc.secure_channel(self.node.address, own, [("grpc.use_local_subchannel_pool", 1)])

    def get(self, path: str, certificate: bool = True) -> tuple[int, bytes]:
        host, _, port = self.node.http.rpartition(":")
        connection = http.client.HTTPSConnection(host, int(port), timeout=PATIENCE_S, context=self.context(certificate))
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("tls")
    settings = secure(
        directory,
        listeners="SSL://127.0.0.1:0",
        kafka_listeners="SSL://127.0.0.1:0",
        http_listeners="SSL://127.0.0.1:0",
        ssl_client_auth="required",
        authorizer="acl",
        super_users="User:CN=alice",
    )
    settings["listener.name.http.ssl.client.auth"] = "requested"
    with running_node(directory / "data", settings) as node:
        yield Secured(directory, node)


def texts(prefix: str) -> list[bytes]:
    return [b"%s-%d" % (prefix.encode(), number) for number in range(MESSAGES)] + [b"x" * LARGE]


def test_confluent_kafka_writes_and_reads(secured: Secured) -> None:
    producer = Producer(secured.librdkafka())
    for text in texts("confluent"):
        producer.produce("confluent", text)
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer(secured.librdkafka(**{"group.id": "c", "auto.offset.reset": "earliest"}))
    consumer.subscribe(["confluent"])
    read: list[bytes] = []
    while len(read) <= MESSAGES:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None
        read.append(message.value())
    consumer.close()
    assert read == texts("confluent")


def test_kafka_python_writes_and_reads(secured: Secured) -> None:
    producer = KafkaProducer(**secured.python())
    for text in texts("python"):
        producer.send("python", text)
    producer.flush(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer(
        "python",
        **secured.python(),
        group_id="p",
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(PATIENCE_S * 1000),
    )
    read = [next(consumer).value for _ in range(MESSAGES + 1)]
    consumer.close()
    assert read == texts("python")


def test_aiokafka_writes_and_reads(secured: Secured) -> None:
    async def story() -> None:
        given = {
            "bootstrap_servers": secured.node.kafka_address,
            "security_protocol": "SSL",
            "ssl_context": secured.context(),
        }
        async with AIOKafkaProducer(**given) as producer:
            for text in texts("aio"):
                await producer.send("aio", text)
        async with AIOKafkaConsumer("aio", **given, group_id="a", auto_offset_reset="earliest") as consumer:
            async with asyncio.timeout(PATIENCE_S):
                assert [(await anext(consumer)).value for _ in range(MESSAGES + 1)] == texts("aio")

    asyncio.run(story())


def test_who_shows_no_certificate_or_a_strangers_gets_in_nowhere(secured: Secured) -> None:
    strange = write(secured.directory, "strange.pem", stranger_client())
    for given in (
        {"ssl.certificate.location": "", "ssl.key.location": ""},
        {"ssl.certificate.location": strange, "ssl.key.location": strange},
    ):
        with pytest.raises(KafkaException):
            AdminClient(secured.librdkafka(**given) | {"log_level": 0}).list_topics(timeout=1)
    alone = grpc.ssl_channel_credentials(authority().certificate_pem)
    with grpc.secure_channel(secured.node.address, alone) as channel, pytest.raises(grpc.RpcError) as refused:
        GroupCoordinatorStub(channel).ListGroups(pb.ListGroupsRequest(), timeout=PATIENCE_S)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    told = (secured.directory / "data.log").read_text()
    assert "no TLS connection" in told
    assert "the client showed no certificate (ssl.client.auth=required)" in told or "is not believed" in told


def stranger_client() -> bytes:
    from muster.cli.security import certificate_authority

    return certificate_authority.issue_client_certificate(stranger(), "alice", 1).pem()


def test_who_shows_one_is_who_it_says(secured: Secured) -> None:
    with secured.channel() as channel:
        GroupCoordinatorStub(channel).ListGroups(pb.ListGroupsRequest(), timeout=PATIENCE_S)
    assert secured.get("/api/v1/groups")[0] == 200
    assert secured.get("/api/v1/groups", certificate=False)[0] == 401, "requested: it may come without, as nobody"
    status, body = secured.get("/metrics")
    assert status == 200
    for listener in ("listeners", "kafka.listeners", "http.listeners"):
        assert f'muster_certificate_expiry_timestamp_seconds{{listener="{listener}"}} 1.' in body.decode()


def test_plaintext_is_not_answered_where_tls_is_spoken(secured: Secured) -> None:
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": secured.node.kafka_address, "log_level": 0}).list_topics(timeout=1)
    with grpc.insecure_channel(secured.node.address) as channel, pytest.raises(grpc.RpcError):
        GroupCoordinatorStub(channel).ListGroups(pb.ListGroupsRequest(), timeout=5)
    assert "the client speaks no TLS; is its protocol PLAINTEXT?" in (secured.directory / "data.log").read_text()


def test_a_name_that_a_stranger_calls_the_node_by_is_not_written_to_its_log(secured: Secured) -> None:
    """gRPC's library would, as it came: nothing of a stranger's is to look like a line of the node's."""
    host, _, port = secured.node.address.rpartition(":")
    for name in ("evil-name.example", "other.example"):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        with pytest.raises(ssl.SSLWantReadError):
            secured.context().wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as sock:
            sock.sendall(outgoing.read())
            assert sock.recv(5)[:1] in (b"\x15", b"\x16"), "the handshake is answered: the name has been looked at"
    assert ".example" not in (secured.directory / "data.log").read_text()


def test_certificates_are_changed_under_load_and_no_request_fails(secured: Secured) -> None:
    """Clients that come anew for each request, on all doors, while the node's certificate is changed."""
    failed: list[str] = []
    done, served = threading.Event(), dict.fromkeys(("kafka", "grpc", "http"), 0)
    shown: set[bytes] = set()

    def again(door: str) -> None:
        host, _, port = secured.node.kafka_address.rpartition(":")
        while not done.is_set():
            try:
                if door == "grpc":
                    with secured.channel() as channel:
                        GroupCoordinatorStub(channel).ListGroups(pb.ListGroupsRequest(), timeout=PATIENCE_S)
                elif door == "http":
                    assert secured.get("/readyz")[0] == 200
                else:
                    AdminClient(secured.librdkafka()).list_topics(timeout=PATIENCE_S)
                    plain = socket.create_connection((host, int(port)))
                    with secured.context().wrap_socket(plain, server_hostname=host) as sock:
                        shown.add(sock.getpeercert(binary_form=True) or b"")
                served[door] += 1
            except Exception as error:
                failed.append(f"{door}: {error!r}")

    threads = [threading.Thread(target=again, args=[door]) for door in served]
    for thread in threads:
        thread.start()
    try:
        path = secured.directory / "server.pem"
        for _ in range(SWAPS):
            known = len(shown)
            new = path.with_suffix(".new")
            new.write_bytes(server().pem())
            new.replace(path)
            patience = threading.Event()
            for _ in range(round(1000 * pace())):
                if len(shown) > known or failed:
                    break
                patience.wait(0.02)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert failed == []
    assert len(shown) >= SWAPS, "each was shown to somebody"
    assert min(served.values()) > 0, served
