"""How answers are written and counted: refusals and small documents as JSON, long documents in pieces.

No turn of the event loop spends more than a millisecond on a long document. Every answer is counted by endpoint and
status for the node's metrics.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any, Final, TypeVar

from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from muster.coordinator.observability.metrics.instruments import RequestMeter
from muster.coordinator.web.http.node_port import HttpRefusal
from muster.long_work import slice_queue

# Small documents
# ---------------

JSON = "application/json; charset=utf-8"


def response_of(refused: HttpRefusal) -> Response:
    return json_response(refusal_document(refused.code, refused.text, refused.field), refused.status, refused.headers)


def refusal_document(code: str, text: str, field: str = "") -> dict[str, Any]:
    """The body of every answer that is a refusal: {"error": {"code", "message"[, "field"]}}."""
    return {"error": {"code": code, "message": text} | ({"field": field} if field else {})}


def json_response(document: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A small document as JSON, never to be kept by a cache."""
    body = json.dumps(document, ensure_ascii=False, indent=2).encode()
    return Response(body, status, {"cache-control": "no-store", **(headers or {})}, JSON)


# Long documents
# --------------

T = TypeVar("T")
Row = TypeVar("Row")

TURN_S: Final = 0.001
"""What is done at a stretch; one element more, to be exact."""

Dump = Callable[[T], str]


def compact_json(value: Any) -> str:
    """JSON as programs like it: without spaces, any text as it is."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def rows_response(
    items: Sequence[T], row: Callable[[T], Any], headers: Mapping[str, str] | None = None
) -> StreamingResponse:
    """A list with a row for each item, made as it is sent."""
    return StreamingResponse(encode_rows(items, row), 200, {"cache-control": "no-store", **(headers or {})}, JSON)


async def encode_rows(items: Sequence[T], row: Callable[[T], Any]) -> AsyncIterator[bytes]:
    """The bytes of that list, a turn's work at a time."""
    written, between = ["["], ""
    until = perf_counter() + TURN_S
    for item in items:
        written.append(between + compact_json(row(item)))
        between = ","
        if perf_counter() >= until:
            yield "".join(written).encode()
            written = []
            await slice_queue().wait()
            until = perf_counter() + TURN_S
    yield ("".join(written) + "]").encode()


def document_response(document: Mapping[str, Any]) -> Response:
    """One document that is small."""
    return Response(compact_json(document).encode(), 200, {"cache-control": "no-store"}, JSON)


# Counting
# --------

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

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app({**scope, ENDPOINT: endpoint}, receive, send_counted)
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
