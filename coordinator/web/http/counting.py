"""Counts what the listener answers, by endpoint and status, for whoever looks at the node's metrics."""

from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Final

from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from muster.coordinator.observability.metrics.instruments import RequestMeter

ENDPOINT: Final = "muster.endpoint"
"""Where a request's scope has the endpoint that it came to: a list of one, or empty."""
NOWHERE: Final = "none"
"""The endpoint of what was refused before it came to one: another host's name, a path that is not there."""
ABORTED: Final = "ABORTED"
STREAM: Final = "/events"
FAILURE: Final = 400

MeterOfEndpoint = Callable[[str], RequestMeter]
"""Where the requests of an endpoint are counted."""


class CountingApp:
    """An application, and what it answers."""

    def __init__(self, app: ASGIApp, meters: MeterOfEndpoint) -> None:
        self._app = app
        self._meters = meters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, endpoint, began_s = 0, list[str](), perf_counter()

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app({**scope, ENDPOINT: endpoint}, receive, noted)
        finally:
            self._note(endpoint[0] if endpoint else NOWHERE, status, perf_counter() - began_s)

    def _note(self, endpoint: str, status: int, seconds: float) -> None:
        meter = self._meters(endpoint)
        refused = ABORTED if not status else str(status) if status >= FAILURE else ""
        if endpoint == STREAM:
            meter.ended(refused)
        elif refused:
            meter.refused(seconds, refused)
        else:
            meter.answered(seconds, 0)


def mark_routes(routes: Iterable[Route]) -> list[Route]:
    """The same routes, which say of each request that it came to them."""
    return [mark_route(route) for route in routes]


def mark_route(route: Route) -> Route:
    inner = route.app

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if ENDPOINT in scope:
            acts = scope["method"] not in ("GET", "HEAD")
            scope[ENDPOINT].append(f"{scope['method']} {route.path}" if acts else route.path)
        await inner(scope, receive, send)

    route.app = app
    return route
