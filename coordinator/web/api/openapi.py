"""The OpenAPI 3.1 document of the API, made of its endpoints."""

import re
from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter

from muster.coordinator.web.api.endpoint import PREFIX, ApiEndpoint, QueryParameter

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
