"""The JSON API: what the command line prints with `-o json`, by address, and the same acts.

`table.py` says what an endpoint is, `reading.py` and `acting.py` list them; routes, checks of every parameter and the
OpenAPI document are made of those lists.
"""

import asyncio
import json
from dataclasses import replace
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from muster.coordinator.web.api.acting import ACTING as ACTS
from muster.coordinator.web.api.asking import Asking
from muster.coordinator.web.api.holding import HOLDING, HOLDS
from muster.coordinator.web.api.openapi import openapi
from muster.coordinator.web.api.reading import READING as QUESTIONS
from muster.coordinator.web.api.rendering import document_response
from muster.coordinator.web.api.table import PREFIX, Endpoint, Given, named, read_query, validated
from muster.coordinator.web.api.tokens import Tokens
from muster.coordinator.web.api.trying import CANARY, TRYING
from muster.coordinator.web.asks import Asks, Caller, Refused
from muster.coordinator.web.entry import identity_of

READING: Final = (*QUESTIONS, HOLDS, CANARY)
ACTING: Final = (*ACTS, *HOLDING, *TRYING)

DOCUMENT: Final = f"{PREFIX}/openapi.json"
TOKEN: Final = f"{PREFIX}/token"

LARGE_BYTES: Final = 16 << 10
"""A body above this is read in a thread."""


def routes(asks: Asks, tokens: Tokens, *, actions: bool) -> list[Route]:
    """Every endpoint, and the document that describes them. Without `actions` each act is refused."""

    async def document(request: Request) -> Response:
        return document_response(openapi((*READING, *ACTING), asks.node().version))

    async def token(request: Request) -> Response:
        told = tokens.token(request)
        answer = document_response({"token": told, "actions": actions})
        tokens.remember(answer, told)
        return answer

    return [
        Route(DOCUMENT, document),
        Route(TOKEN, token),
        *(route(endpoint, asks) for endpoint in READING),
        *(acting_route(endpoint, asks, tokens, actions=actions) for endpoint in ACTING),
    ]


def route(endpoint: Endpoint, asks: Asks) -> Route:
    async def answer(request: Request) -> Response:
        given = Given(named(request), read_query(endpoint, request), raw_path(request))
        return await endpoint.handler(Asking(asks, caller_of(request)), given)

    return Route(PREFIX + endpoint.path, answer, methods=[endpoint.method])


def acting_route(endpoint: Endpoint, asks: Asks, tokens: Tokens, *, actions: bool) -> Route:
    async def answer(request: Request) -> Response:
        if not actions:
            text = "this node only shows (http.actions=false); use the command line, or another node's listener"
            raise Refused(403, "READ_ONLY", text)
        tokens.check(request)
        values = read_query(endpoint, request)
        given = Given(named(request), values, raw_path(request), await read_body(endpoint, request))
        by = replace(caller_of(request), reason=given.body.reason)
        return await endpoint.handler(Asking(asks, by), given)

    return Route(PREFIX + endpoint.path, answer, methods=[endpoint.method])


async def read_body(endpoint: Endpoint, request: Request) -> Any:
    """What was sent, as the endpoint's model. Raises Refused, which names the field."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(415, "UNSUPPORTED_MEDIA_TYPE", f"the body is {kind[:100]!r}; expected application/json")
    data = await request.body()
    if len(data) > LARGE_BYTES:
        return await asyncio.to_thread(parsed, endpoint, data)
    return parsed(endpoint, data)


def parsed(endpoint: Endpoint, data: bytes) -> Any:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise Refused(400, "MALFORMED_REQUEST", "the body is no JSON object; send one")
    return validated(endpoint.body, document)


def raw_path(request: Request) -> str:
    path: bytes = request.scope["raw_path"]
    return path.decode("latin-1")


def caller_of(request: Request) -> Caller:
    """Who asks; a browser's user agent is no name of a client's software."""
    return Caller(request.client.host if request.client else "", "muster-http", identity=identity_of(request.scope))
