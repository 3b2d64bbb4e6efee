"""The HTTP application beside a test, without a socket."""

import asyncio
from collections.abc import Awaitable, Callable

import httpx

from muster.coordinator.config import Settings, load_settings
from muster.coordinator.web.app import make_app
from muster.coordinator.web.http.node_port import NodePort


def web_settings(**more: str) -> Settings:
    """Of a node that serves HTTP on loopback."""
    given = {"log.dirs": "/data", "http.listeners": "127.0.0.1:0"}
    return load_settings(None, given | {key.replace("_", "."): value for key, value in more.items()})


def browse(asks: NodePort, visit: Callable[[httpx.AsyncClient], Awaitable[None]], **settings: str) -> None:
    """Run `visit` with a client of the node's application."""

    async def run() -> None:
        transport = httpx.ASGITransport(app=make_app(asks, web_settings(**settings)), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:9291") as client:
            await visit(client)

    asyncio.run(run())


def get(asks: NodePort, path: str, **headers: str) -> httpx.Response:
    """One answer. Underscores of a header's name stand for hyphens."""
    answers = []

    async def visit(client: httpx.AsyncClient) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answers.append(await client.get(path, headers=named))

    browse(asks, visit)
    return answers[0]
