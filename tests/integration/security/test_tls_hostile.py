"""Handshakes that come to nothing: garbage, silence, floods, readers that stand still; by asyncio and by uvloop."""

import asyncio
import os
import random
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop
from structlog.testing import capture_logs

from muster.coordinator.config import load_settings
from muster.coordinator.edge import tls_flow_control
from muster.coordinator.server.node.node import CoordinatorNode
from tests.support.certificates import authority, client, secure, write

pytestmark = pytest.mark.integration

PATIENCE_S = 30.0
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}

Story = Callable[[CoordinatorNode, Path], Coroutine[Any, Any, None]]
Run = Callable[..., list[dict[str, Any]]]


@asynccontextmanager
async def serving(tmp_path: Path, **more: str) -> AsyncIterator[CoordinatorNode]:
    always = {
        "log_dirs": str(tmp_path / "data"),
        "listeners": "127.0.0.1:0",
        "kafka_listeners": "SSL://127.0.0.1:0",
        "http_listeners": "SSL://127.0.0.1:0",
        "offsets_topic_num_partitions": "2",
    }
    given = secure(tmp_path, **always | more)
    node = CoordinatorNode(load_settings(None, given))
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


@pytest.fixture(params=sorted(LOOPS))
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """A story with a node; what it wrote to its log."""

    def told(story: Story, **more: str) -> list[dict[str, Any]]:
        async def whole() -> None:
            async with serving(tmp_path, **more) as node, asyncio.timeout(PATIENCE_S):
                await story(node, tmp_path)

        with capture_logs() as logged, asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(whole())
        assert [line for line in logged if line["log_level"] == "error"] == []
        return [cast(dict[str, Any], line) for line in logged]

    return told


def ports(node: CoordinatorNode) -> tuple[int, int]:
    assert node.kafka_bound is not None
    assert node.http_bound is not None
    return node.kafka_bound.port, node.http_bound.port


def trusting(certificate: str = "") -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority().certificate_pem.decode())
    if certificate:
        context.load_cert_chain(certificate)
    return context


async def versions(port: int, context: ssl.SSLContext | None = None) -> bytes:
    """ApiVersions 0, answered."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context or trusting(), server_hostname="localhost"
    )
    writer.write(frame(18, 0, 7))
    answer = await reader.readexactly(8)
    writer.close()
    return answer


def frame(key: int, version: int, correlation: int, body: bytes = b"") -> bytes:
    head = struct.pack(">hhih", key, version, correlation, -1)
    return struct.pack(">i", len(head) + len(body)) + head + body


def hello() -> bytes:
    """The first words of a client of TLS."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    speaking = trusting().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        speaking.do_handshake()
    return outgoing.read()


async def until_end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(-1)
    except ConnectionError:
        return b""


async def until(true: Callable[[], bool]) -> None:
    """Others have their turns meanwhile; who waits for it in vain is ended by the story's patience."""
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def sockets() -> int:
    """How many this process has open."""
    names = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    return sum(os.path.islink(name) and os.readlink(name).startswith("socket:") for name in names)


def why(logged: list[dict[str, Any]]) -> set[str]:
    return {str(line["why"]) for line in logged if line["event"] == "no TLS connection"}


def test_garbage_ends_its_connection_and_nothing_else(run: Run) -> None:
    drawn = random.Random(7)
    first = hello()

    def mangled() -> bytes:
        data = bytearray(first)
        for _ in range(drawn.randrange(1, 6)):
            data[drawn.randrange(len(data))] = drawn.randrange(256)
        return bytes(data[: drawn.randrange(1, len(data) + 1)])

    async def story(node: CoordinatorNode, path: Path) -> None:
        async def sent(port: int, data: bytes) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(data)
            writer.write_eof()
            assert b"\x00\x00\x00\x07" not in await until_end(reader), "nothing is answered in the clear"
            writer.close()

        for port in ports(node):
            plain = [b"GET / HTTP/1.1\r\n\r\n", frame(18, 0, 7), b"\x16\x03\x01\xff\xff" + bytes(70_000), b"\x00" * 9]
            for data in [*plain, *(drawn.randbytes(drawn.randrange(1, 400)) for _ in range(40))]:
                await sent(port, data)
            await asyncio.gather(*(sent(port, mangled()) for _ in range(60)))
        assert (await versions(ports(node)[0]))[4:] == b"\x00\x00\x00\x07"

    told = why(run(story))
    assert "the client speaks HTTP without TLS" in told
    assert "the client speaks no TLS; is its protocol PLAINTEXT?" in told


def test_who_says_nothing_is_cut_off_in_time_and_leaves_nothing_open(run: Run) -> None:
    async def story(node: CoordinatorNode, path: Path) -> None:
        port = ports(node)[0]
        await versions(port)
        before = sockets()
        waiting = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
        for number, (_, writer) in enumerate(waiting):
            writer.write(hello()[: number % 3 * 40])
        await asyncio.gather(*(until_end(reader) for reader, _ in waiting))
        for _, writer in waiting:
            writer.close()
        await until(lambda: sockets() <= before)
        assert (await versions(port))[4:] == b"\x00\x00\x00\x07"

    told = why(run(story, connection_setup_timeout_ms="400"))
    assert told == {"the handshake was not over in time"}


@pytest.mark.parametrize("protocol", ["SSL", "PLAINTEXT"])
def test_who_says_nothing_to_grpc_is_cut_off_in_time_as_well(run: Run, protocol: str) -> None:
    async def story(node: CoordinatorNode, path: Path) -> None:
        for said in (b"", b"\x16\x03\x01\x02", hello()[:60] if protocol == "SSL" else b"PRI * HTTP/2.0"):
            reader, writer = await asyncio.open_connection("127.0.0.1", node.bound.port)
            writer.write(said)
            await until_end(reader)
            writer.close()

    run(story, listeners=f"{protocol}://127.0.0.1:0", connection_setup_timeout_ms="300")


def test_who_is_quick_gets_in_whoever_is_slow(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of connections that never finish holds no place against somebody who does."""
    monkeypatch.setattr(tls_flow_control, "MOST", 20)

    async def story(node: CoordinatorNode, path: Path) -> None:
        port = ports(node)[0]
        slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
        for _ in range(10):
            assert (await versions(port))[4:] == b"\x00\x00\x00\x07"
        await asyncio.gather(*(until_end(reader) for reader, _ in slow[:70]))
        for _, writer in slow:
            writer.close()

    assert why(run(story)) == {"20 handshakes are under way, and this one took longest"}


def test_handshakes_count_as_connections(run: Run) -> None:
    async def story(node: CoordinatorNode, path: Path) -> None:
        port = ports(node)[0]
        waiting = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await until_end(reader) == b""
        writer.close()
        for _, each in waiting:
            each.close()

    logged = run(story, max_connections_per_ip="5")
    assert [line["why"] for line in logged if line["event"] == "connection refused"] == [
        "5 are open from it (max.connections.per.ip)"
    ]


def test_a_flood_costs_no_more_handshakes_than_connections_may_come(run: Run) -> None:
    """Who comes faster than max.connection.creation.rate waits, or is refused, before a handshake costs anything."""

    async def story(node: CoordinatorNode, path: Path) -> None:
        port = ports(node)[0]
        assert (await versions(port))[4:] == b"\x00\x00\x00\x07"
        came = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
        ended = await asyncio.gather(*(until_end(reader) for reader, _ in came[60:]))
        assert set(ended) == {b""}, "ten at once, ten for each of the next five seconds, no more"
        for _, writer in came:
            writer.close()

    refused = [line for line in run(story, max_connection_creation_rate="10") if line["event"] == "connection refused"]
    assert "too many come at once (max.connection.creation.rate)" in refused[0]["why"]


def test_an_answer_that_is_not_read_is_counted_whole(run: Run) -> None:
    """Encrypted bytes that wait are neither asyncio's to tell nor uvloop's: they are held back, and seen."""
    one, size = 8 << 20, 32 << 20

    async def story(node: CoordinatorNode, path: Path) -> None:
        port = ports(node)[0]
        await asyncio.to_thread(fill, port, str(path / "ca.pem"), size // one, one)
        sock = socket.create_connection(("127.0.0.1", port))
        speaking = await asyncio.to_thread(trusting().wrap_socket, sock, server_hostname="localhost")
        fetch = struct.pack(">iiii", -1, 100, 1, size + 65_536) + b"\x00" + struct.pack(">i", 1)
        fetch += struct.pack(">h", 5) + b"large" + struct.pack(">iiqi", 1, 0, 0, size + 65_536)
        await asyncio.to_thread(speaking.sendall, frame(1, 4, 9, fetch))
        door = node._kafka
        assert door is not None
        await until(lambda: door.unread > size // 2)  # the rest lies in sockets
        got = 0
        while got < size:
            got += len(await asyncio.to_thread(speaking.recv, 1 << 20))
        await until(lambda: not door.unread)
        speaking.close()

    run(story, message_max_bytes=str(one + 4096))


def fill(port: int, ca: str, number: int, size: int) -> None:
    from confluent_kafka import Producer

    given = {"bootstrap.servers": f"localhost:{port}", "security.protocol": "ssl", "ssl.ca.location": ca}
    producer = Producer(given | {"message.max.bytes": 10 << 20, "log_level": 0})
    for _ in range(number):
        producer.produce("large", bytes(size))
    assert producer.flush(PATIENCE_S) == 0


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_that_is_taken_up_again_is_still_its_owners(run: Run, version: ssl.TLSVersion) -> None:
    """The certificate is not sent again then; who it was is known."""

    async def story(node: CoordinatorNode, path: Path) -> None:
        port = ports(node)[0]
        context = trusting(write(path, "alice.pem", client().pem()))
        context.minimum_version = context.maximum_version = version
        session, seen, door = None, [], node._kafka
        assert door is not None
        for _ in range(2):
            sock = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port))
            speaking = await asyncio.to_thread(
                lambda sock=sock, session=session: context.wrap_socket(
                    sock, server_hostname="localhost", session=session
                )
            )
            await asyncio.to_thread(speaking.sendall, frame(18, 0, 7))
            await asyncio.to_thread(speaking.recv, 1 << 16)
            session, reused = speaking.session, speaking.session_reused
            seen += [str(each.peer.identity.principal) for each in door._listener._connections]
            speaking.close()
            await until(lambda: not door.connections)
        assert reused
        assert seen == ["User:CN=alice"] * 2

    run(story, ssl_client_auth="required", authorizer="acl", super_users="User:CN=alice")


def test_a_certificate_that_no_rule_names_is_let_in_nowhere(run: Run) -> None:
    async def story(node: CoordinatorNode, path: Path) -> None:
        kafka, http = ports(node)
        alice, bob = (trusting(write(path, f"{name}.pem", client(name).pem())) for name in ("alice", "bob"))
        assert (await versions(kafka, alice))[4:] == b"\x00\x00\x00\x07"
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await versions(kafka, bob)
        for context, status in ((alice, b"200"), (bob, b"401")):
            reader, writer = await asyncio.open_connection("127.0.0.1", http, ssl=context, server_hostname="localhost")
            writer.write(b"GET /api/v1/groups HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            assert (await until_end(reader)).startswith(b"HTTP/1.1 " + status)
            writer.close()

    logged = run(
        story,
        ssl_client_auth="required",
        authorizer="acl",
        super_users="User:alice",
        ssl_principal_mapping_rules="RULE:CN=(a.*)/$1/",
    )
    assert any("no rule of ssl.principal.mapping.rules" in text for text in why(logged))
