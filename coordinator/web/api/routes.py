"""The routes of the JSON API and its OpenAPI 3.1 document, both made from the endpoints.

The API shows what the command line prints with `-o json`, and offers the same actions. Names of schemas in the
document are those of the types in the code. Without `http.actions` every action is refused.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from muster.coordinator.web.api.actions import ACTION_ENDPOINTS as ACTS
from muster.coordinator.web.api.actions import require_coordinated
from muster.coordinator.web.api.endpoint import (
    PREFIX,
    ApiEndpoint,
    EndpointRequest,
    QueryParameter,
    path_names,
    read_query,
    validate_body,
)
from muster.coordinator.web.api.node_queries import NodeQueries
from muster.coordinator.web.api.overrides import (
    CANARY_ENDPOINT,
    CANARY_ENDPOINTS,
    OVERRIDE_ENDPOINTS,
    OVERRIDES_ENDPOINT,
)
from muster.coordinator.web.api.reading import READING_ENDPOINTS as QUESTIONS
from muster.coordinator.web.http.identity import SessionTokens, identity_of
from muster.coordinator.web.http.node_port import HttpCaller, HttpRefusal, NodePort
from muster.coordinator.web.http.responses import document_response
from muster.long_work import run_in_request_thread

# The OpenAPI document
# --------------------

ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "string", "description": "A word for programs."},
                "message": {"type": "string", "description": "Which value, what was expected, and what to do."},
                "field": {"type": "string", "description": "Which part of the request it was."},
            },
        }
    },
}
TYPES = {int: "integer", bool: "boolean", str: "string"}


def openapi_document(endpoints: Iterable[ApiEndpoint], version: str) -> dict[str, Any]:
    """The document. Names of schemas are those of the types in the code."""
    schemas: dict[str, Any] = {"Error": ERROR}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(PREFIX + endpoint.path, {})[endpoint.method.lower()] = describe_operation(endpoint, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Muster",
            "version": version,
            "description": "What the command line prints with -o json, and the acts of an operator.",
        },
        "paths": paths,
        "components": {"schemas": schemas},
    }


def describe_operation(endpoint: ApiEndpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    name = re.sub(r"\W+", " ", f"{endpoint.method.lower()} {endpoint.path}").title().replace(" ", "")
    found: dict[str, Any] = {
        "operationId": name[0].lower() + name[1:],
        "summary": endpoint.summary,
        "parameters": [
            *(path_parameter(word) for word in re.findall(r"{(\w+)}", endpoint.path)),
            *(query_parameter(query) for query in endpoint.queries),
        ],
        "responses": {
            "200": {"description": "The answer.", "content": json_content(schema_of(endpoint.answer, schemas))},
            "default": {
                "description": "A refusal.",
                "content": json_content({"$ref": "#/components/schemas/Error"}),
            },
        },
    }
    if endpoint.body is not None:
        found["requestBody"] = {"required": True, "content": json_content(schema_of(endpoint.body, schemas))}
    return found


def path_parameter(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": f"The {name}'s name; a slash in it is written %2F.",
        "schema": {"type": "string", "minLength": 1},
    }


def query_parameter(query: QueryParameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": TYPES[query.kind]}
    if query.kind is int:
        schema |= {"minimum": query.least, "maximum": query.most}
    if query.words:
        schema["enum"] = list(query.words)
    if query.default is not None:
        schema["default"] = query.default
    if query.many:
        schema = {"type": "array", "items": schema}
    return {"name": query.name, "in": "query", "description": query.meaning, "schema": schema}


def json_content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def schema_of(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """The type's schema; those it is made of go to `schemas`."""
    found = TypeAdapter(kind).json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(found.pop("$defs", {}))
    return found


# Routes
# ------

ALL_READING_ENDPOINTS: Final = (*QUESTIONS, OVERRIDES_ENDPOINT, CANARY_ENDPOINT)
ALL_ACTION_ENDPOINTS: Final = (*ACTS, *OVERRIDE_ENDPOINTS, *CANARY_ENDPOINTS)

DOCUMENT: Final = f"{PREFIX}/openapi.json"
TOKEN: Final = f"{PREFIX}/token"

READ_AT_ONCE: Final = 4
"""Answers that are in the making together: of fifty with 10,000 rows each, the rows would be a million objects, and a
garbage collection holds everything up while it looks at them."""
WRITTEN_BYTES: Final = 2 << 20
"""Of an answer, made before it is read: some 10,000 rows. Who does not read costs no more than that."""
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

    places = asyncio.Semaphore(READ_AT_ONCE)
    return [
        Route(DOCUMENT, document),
        Route(TOKEN, token),
        *(reading_route(endpoint, asks, places) for endpoint in ALL_READING_ENDPOINTS),
        *(acting_route(endpoint, asks, tokens, actions=actions) for endpoint in ALL_ACTION_ENDPOINTS),
    ]


def reading_route(endpoint: ApiEndpoint, asks: NodePort, places: asyncio.Semaphore) -> Route:
    """places: of requests that look much up and are answered at the same time, until the answer is in bytes."""

    async def answer(request: Request) -> Response:
        given = EndpointRequest(path_names(request), read_query(endpoint, request), raw_path(request))
        async with places if endpoint.few_at_once else nullcontext():
            response = await endpoint.handler(NodeQueries(asks, caller_of(request)), given)
            if endpoint.few_at_once and isinstance(response, StreamingResponse):
                return await write_ahead(response)
            return response

    return Route(PREFIX + endpoint.path, answer, methods=[endpoint.method])


Piece: TypeAlias = str | bytes | memoryview


async def write_ahead(response: StreamingResponse) -> StreamingResponse:
    """The same, with its first bytes made, which are all of nearly every answer. The rest is made as it is read."""
    pieces, size, left = list[Piece](), 0, response.body_iterator
    async for piece in left:
        pieces.append(piece)
        size += len(piece)
        if size >= WRITTEN_BYTES:
            break
    response.body_iterator = chain_pieces(pieces, left)
    return response


async def chain_pieces(pieces: Sequence[Piece], left: AsyncIterable[Piece]) -> AsyncIterator[Piece]:
    for piece in pieces:
        yield piece
    async for piece in left:
        yield piece


def acting_route(endpoint: ApiEndpoint, asks: NodePort, tokens: SessionTokens, *, actions: bool) -> Route:
    async def answer(request: Request) -> Response:
        if not actions:
            text = "this node only shows (http.actions=false); use the command line, or another node's listener"
            raise HttpRefusal(403, "READ_ONLY", text)
        tokens.check(request)
        values = read_query(endpoint, request)
        given = EndpointRequest(path_names(request), values, raw_path(request), await read_body(endpoint, request))
        require_coordinated(asks.node(), given.names.get("group", ""))
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
        return await run_in_request_thread(partial(parse_body, endpoint, data))
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
