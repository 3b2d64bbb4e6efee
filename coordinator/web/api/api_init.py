"""The JSON API: what the command line prints with `-o json`, by address, and the same acts.

`table.py` says what an endpoint is, `reading.py` and `actions.py` list them; routes, checks of every parameter and the
OpenAPI document are made of those lists.
"""

import asyncio
import json
from dataclasses import replace
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from muster.coordinator.web.api.actions import ACTION_ENDPOINTS as ACTS
from muster.coordinator.web.api.endpoint import (
    PREFIX,
    ApiEndpoint,
    EndpointRequest,
    path_names,
    read_query,
    validate_body,
)
from muster.coordinator.web.api.holding import OVERRIDE_ENDPOINTS, OVERRIDES_ENDPOINT
from muster.coordinator.web.api.node_queries import NodeQueries
from muster.coordinator.web.api.openapi import openapi_document
from muster.coordinator.web.api.reading import READING_ENDPOINTS as QUESTIONS
from muster.coordinator.web.api.trying import CANARY_ENDPOINT, CANARY_ENDPOINTS
from muster.coordinator.web.http.entry import identity_of
from muster.coordinator.web.http.node_port import HttpCaller, HttpRefusal, NodePort
from muster.coordinator.web.http.rendering import document_response
from muster.coordinator.web.http.tokens import SessionTokens

ALL_READING_ENDPOINTS: Final = (*QUESTIONS, OVERRIDES_ENDPOINT, CANARY_ENDPOINT)
ALL_ACTION_ENDPOINTS: Final = (*ACTS, *OVERRIDE_ENDPOINTS, *CANARY_ENDPOINTS)

DOCUMENT: Final = f"{PREFIX}/openapi.json"
TOKEN: Final = f"{PREFIX}/token"

LARGE_BYTES: Final = 16 << 10
"""A body above this is read in a thread."""


def api_routes(asks: NodePort, tokens: SessionTokens, *, actions: bool) -> list[Route]:
    """Every endpoint, and the document that describes them. Without `actions` each act is refused."""

    async def document(request: Request) -> Response:
        return document_response(openapi_document((*ALL_READING_ENDPOINTS, *ALL_ACTION_ENDPOINTS), asks.node().version))

    async def token(request: Request) -> Response:
        told = tokens.token(request)
        answer = document_response({"token": told, "actions": actions})
        tokens.remember(answer, told)
        return answer

    return [
        Route(DOCUMENT, document),
        Route(TOKEN, token),
        *(reading_route(endpoint, asks) for endpoint in ALL_READING_ENDPOINTS),
        *(acting_route(endpoint, asks, tokens, actions=actions) for endpoint in ALL_ACTION_ENDPOINTS),
    ]


def reading_route(endpoint: ApiEndpoint, asks: NodePort) -> Route:
    async def answer(request: Request) -> Response:
        given = EndpointRequest(path_names(request), read_query(endpoint, request), raw_path(request))
        return await endpoint.handler(NodeQueries(asks, caller_of(request)), given)

    return Route(PREFIX + endpoint.path, answer, methods=[endpoint.method])


def acting_route(endpoint: ApiEndpoint, asks: NodePort, tokens: SessionTokens, *, actions: bool) -> Route:
    async def answer(request: Request) -> Response:
        if not actions:
            text = "this node only shows (http.actions=false); use the command line, or another node's listener"
            raise HttpRefusal(403, "READ_ONLY", text)
        tokens.check(request)
        values = read_query(endpoint, request)
        given = EndpointRequest(path_names(request), values, raw_path(request), await read_body(endpoint, request))
        by = replace(caller_of(request), reason=given.body.reason)
        return await endpoint.handler(NodeQueries(asks, by), given)

    return Route(PREFIX + endpoint.path, answer, methods=[endpoint.method])


async def read_body(endpoint: ApiEndpoint, request: Request) -> Any:
    """What was sent, as the endpoint's model. Raises Refused, which names the field."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HttpRefusal(415, "UNSUPPORTED_MEDIA_TYPE", f"the body is {kind[:100]!r}; expected application/json")
    data = await request.body()
    if len(data) > LARGE_BYTES:
        return await asyncio.to_thread(parse_body, endpoint, data)
    return parse_body(endpoint, data)


def parse_body(endpoint: ApiEndpoint, data: bytes) -> Any:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise HttpRefusal(400, "MALFORMED_REQUEST", "the body is no JSON object; send one")
    return validate_body(endpoint.body, document)


def raw_path(request: Request) -> str:
    path: bytes = request.scope["raw_path"]
    return path.decode("latin-1")


def caller_of(request: Request) -> HttpCaller:
    """Who asks; a browser's user agent is no name of a client's software."""
    return HttpCaller(request.client.host if request.client else "", "muster-http", identity=identity_of(request.scope))
