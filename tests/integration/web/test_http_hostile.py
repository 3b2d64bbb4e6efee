"""What a hostile client of the HTTP listener gets: an answer or an end, and nobody else has to wait for it."""

import asyncio
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import pytest

from muster.coordinator.web import listener
from muster.coordinator.web.http.guard import MOST_HEADER_BYTES
from tests.support.grpc_node import serving
from tests.support.node import NodeProcess, running_node

pytestmark = pytest.mark.integration
MOST = 50
PATIENCE_S = 30


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    data = tmp_path_factory.mktemp("hostile") / "data"
    with running_node(data, {"http.listeners": "127.0.0.1:0", "http.max.connections": str(MOST)}) as running:
        yield running


def connect(node: NodeProcess) -> socket.socket:
    host, _, port = node.http.partition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def said(node: NodeProcess, data: bytes) -> bytes:
    """What comes back for these bytes, until the node closes or we have one whole head."""
    with connect(node) as client:
        found = b""
        try:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            while chunk := client.recv(65_536):
                found += chunk
        except (ConnectionResetError, BrokenPipeError):
            pass
        return found


def test_garbage_never_ends_the_node_nor_gets_an_answer_of_success(node: NodeProcess) -> None:
    seeded = random.Random(7)
    pieces = [
        b"GET ",
        b"POST ",
        b"/",
        b"/healthz",
        b" HTTP/1.1",
        b"\r\n",
        b"Host: localhost",
        b"\x00",
        b"\xff\xfe",
        b":",
    ]
    pieces += [
        b"Content-Length: ",
        b"-1",
        b"99999999999999999999",
        b"Transfer-Encoding: chunked",
        b"\r\n\r\n",
        b"%2e%2e/",
    ]
    for _ in range(300):
        data = b"".join(seeded.choices(pieces, k=seeded.randrange(1, 14)))
        answer = said(node, data)
        assert not answer or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 200", b"HTTP/1.0 ")), (data, answer)
        assert b"500" not in answer[:20], (data, answer)
    assert httpx.get(f"http://{node.http}/readyz").status_code == 200
    assert "Traceback" not in node.log_tail()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * (MOST_HEADER_BYTES + 10), b"400"),
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"421"),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 200 + b"\r\n", b"431"),
        (b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404"),
        (b"GET /assets/..%2f..%2f..%2fetc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404"),
        (b"GET /assets//etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404"),
        (b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n", b"413"),
        (b"GET /healthz HTTP/1.0\r\n\r\n", b"200"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"400"),
    ],
)
def test_what_is_refused_has_its_status_and_the_security_headers(node: NodeProcess, data: bytes, status: bytes) -> None:
    answer = said(node, data)
    assert answer.split(b" ")[1] == status, answer[:300]
    assert b"frame-ancestors 'none'" in answer


def test_connections_beyond_the_limit_end_and_the_others_go_on(node: NodeProcess) -> None:
    held = [connect(node) for _ in range(MOST * 4)]
    try:
        ended = 0
        for client in held[MOST:]:
            try:
                ended += client.recv(1) == b""
            except ConnectionResetError:
                ended += 1
        assert ended == MOST * 3
        held[0].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert held[0].recv(12) == b"HTTP/1.1 200"
    finally:
        for client in held:
            client.close()


def test_a_request_that_does_not_arrive_is_not_waited_for(tmp_path: Path) -> None:
    async def story() -> list[bytes]:
        async with serving(tmp_path, http_listeners="127.0.0.1:0") as node:
            assert node.http_bound is not None
            port = node.http_bound.port
            ends = []
            for data in (
                b"",
                b"GET /healthz HTTP/1.1\r\nHost: loc",
                b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc",
                b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz",
            ):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(data)
                async with asyncio.timeout(PATIENCE_S):
                    ends.append(await read_all(reader))
                writer.close()
            return ends

    with mock.patch.object(listener, "REQUEST_S", 0.2):
        nothing, half, body, second = asyncio.run(story())
    assert (nothing, half) == (b"", b"")
    assert body.startswith(b"HTTP/1.1 405")
    assert second.count(b"HTTP/1.1 200") == 1


async def read_all(reader: asyncio.StreamReader) -> bytes:
    found = b""
    try:
        while chunk := await reader.read(65_536):
            found += chunk
    except ConnectionResetError:
        pass
    return found


def test_one_who_does_not_read_an_answer_costs_a_bounded_buffer(tmp_path: Path) -> None:
    """Of a long list no more is made than fits the buffers between: the rest waits for the reader."""
    made: list[int] = []

    async def story() -> None:
        from muster.coordinator.web.http import responses

        async def endless(items: Any, row: Any) -> Any:
            for number in range(1_000_000):
                made.append(number)
                yield b"x" * 10_000
                await asyncio.sleep(0)

        with mock.patch.object(responses, "encode_rows", endless):
            async with serving(tmp_path, http_listeners="127.0.0.1:0") as node:
                assert node.http_bound is not None
                reader, writer = await asyncio.open_connection("127.0.0.1", node.http_bound.port, limit=1_000)
                writer.write(b"GET /api/v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n")
                await reader.readexactly(12)
                async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
                    before = -1
                    while len(made) != before:
                        before = len(made)
                        for _ in range(20):
                            probe = await client.get(f"http://127.0.0.1:{node.http_bound.port}/healthz")
                            assert probe.status_code == 200
                assert len(made) * 10_000 < 10_000_000
                writer.close()

    asyncio.run(story())


def test_who_is_done_gives_the_place_to_who_comes(node: NodeProcess) -> None:
    """Clients that keep their connections after an answer cannot lock a probe out."""
    held = [connect(node) for _ in range(MOST)]
    try:
        for client in held:
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 200"
        for _ in range(3):
            assert httpx.get(f"http://{node.http}/readyz", timeout=PATIENCE_S).status_code == 200
    finally:
        for client in held:
            client.close()


def test_a_reader_that_stands_still_loses_its_place(tmp_path: Path) -> None:
    """Its connection would count among those at once for as long as it likes."""

    async def story() -> None:
        from muster.coordinator.web.http import responses

        ended = asyncio.Event()

        async def endless(items: Any, row: Any) -> Any:
            try:
                while True:
                    yield b"x" * 100_000
                    await asyncio.sleep(0)
            finally:
                ended.set()

        with mock.patch.object(responses, "encode_rows", endless), mock.patch.object(listener, "UNREAD_S", 0.2):
            async with serving(tmp_path, http_listeners="127.0.0.1:0") as node:
                assert node.http_bound is not None
                reader, writer = await asyncio.open_connection("127.0.0.1", node.http_bound.port, limit=1_000)
                writer.write(b"GET /api/v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n")
                await reader.readexactly(12)
                async with asyncio.timeout(PATIENCE_S):
                    await ended.wait()
                writer.close()

    asyncio.run(story())
