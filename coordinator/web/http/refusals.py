"""How a refusal is told, and every other small document: as JSON."""

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from muster.coordinator.web.http.node_port import HttpRefusal

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
