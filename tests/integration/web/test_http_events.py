"""Live events of a real node: a rebalance is heard of at once, and open streams hold up nobody's end."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.grpc_node import connected, create_topic, groups, lone_member, serving
from tests.support.node import running_node

pytestmark = pytest.mark.integration
PATIENCE_S = 30


async def changed(lines: AsyncIterator[str], group: str) -> dict[str, Any]:
    """The next event that names the group."""
    async with asyncio.timeout(PATIENCE_S):
        async for line in lines:
            if line.startswith("data: "):
                news: dict[str, Any] = json.loads(line.removeprefix("data: "))
                if group in news["groups"]:
                    return news
    raise AssertionError("the stream ended")


def test_a_rebalance_and_a_lag_are_heard_of_as_they_happen(tmp_path: Path) -> None:
    async def run() -> None:
        async with groups(tmp_path, http_listeners="127.0.0.1:0", observe_sample_ms="100") as (node, stub):
            assert node.http_bound is not None
            url = f"http://127.0.0.1:{node.http_bound.port}/events?group=g"
            async with httpx.AsyncClient(timeout=PATIENCE_S) as client, client.stream("GET", url) as stream:
                assert stream.headers["content-type"].startswith("text/event-stream")
                lines = stream.aiter_lines()
                await lone_member(stub)
                first = await changed(lines, "g")
                explained = await client.get(f"http://127.0.0.1:{node.http_bound.port}/api/v1/groups/g/history")
                assert len(explained.json()) == 1
            async with (
                httpx.AsyncClient(timeout=PATIENCE_S) as client,
                client.stream("GET", url, headers={"last-event-id": "another-life-3"}) as stream,
            ):
                async for line in stream.aiter_lines():
                    if line.startswith("data: "):
                        assert json.loads(line.removeprefix("data: "))["all_known"] is False
                        break
            assert first["mark"] != ""

    asyncio.run(run())


def test_a_node_with_open_streams_ends_when_told_to(tmp_path: Path) -> None:
    """Some are read and some are not; all of them end, and none is waited for longer than the last words."""
    with running_node(tmp_path / "data", {"http.listeners": "127.0.0.1:0"}) as node:
        host, _, port = node.http.partition(":")
        streams = [socket.create_connection((host, int(port))) for _ in range(20)]
        for stream in streams:
            stream.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert stream.recv(15) == b"HTTP/1.1 200 OK"
        half = socket.create_connection((host, int(port)))
        half.sendall(b"GET /readyz HTTP/1.1\r\nHost: local")
        assert node.stop() == 0
        for stream in streams:
            while stream.recv(65_536):
                pass
            stream.close()
        half.close()


def test_streams_beyond_the_limit_are_turned_away(tmp_path: Path) -> None:
    async def run() -> None:
        settings = {"http_listeners": "127.0.0.1:0", "http_max_event_streams": "1"}
        async with serving(tmp_path, **settings) as node, connected(node) as channel:
            assert node.http_bound is not None
            await create_topic(channel, "t", 1)
            url = f"http://127.0.0.1:{node.http_bound.port}/events"
            async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
                async with client.stream("GET", url):
                    refused = await client.get(url)
                    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "LIMIT_REACHED")
                async with asyncio.timeout(PATIENCE_S):
                    while True:
                        async with client.stream("GET", url) as again:
                            if again.status_code == 200:
                                break

    asyncio.run(run())
