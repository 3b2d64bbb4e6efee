"""Sends whoever asks about a group to the node that coordinates it, where that is another one.

What is at stake is decided by the address alone: a path with a group in it. The answer keeps method and body (307).
"""

from collections.abc import Iterable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from muster.coordinator.web.api.endpoint import PREFIX
from muster.coordinator.web.http.addresses import name_of
from muster.coordinator.web.http.node_port import CoordinatingNode, NodePort
from muster.coordinator.web.http.refusals import json_response, refusal_document

GROUP_PREFIXES: Final = ("/groups/", f"{PREFIX}/groups/")
"""What an address begins with that goes on with the name of a group."""


def redirect_group_routes(routes: Iterable[Route], asks: NodePort) -> list[Route]:
    """The same routes, of which those of a group answer at its coordinator only."""
    return [
        redirect_to_coordinator(route, asks) if route.path.startswith(GROUP_PREFIXES) else route for route in routes
    ]


def redirect_to_coordinator(route: Route, asks: NodePort) -> Route:
    inner: ASGIApp = route.app
    place = next(prefix for prefix in GROUP_PREFIXES if route.path.startswith(prefix)).count("/")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        group = name_of(scope["raw_path"].decode("latin-1").split("/")[place])
        owner = asks.owner(group)
        answer = inner if owner is None else redirect_response(Request(scope), group, owner)
        await answer(scope, receive, send)

    route.app = app
    return route


def redirect_response(request: Request, group: str, owner: CoordinatingNode) -> Response:
    """307 to the same address there; 503 where it serves no HTTP. Either names the owner."""
    why = f"group {group[:100]!r} is coordinated by node {owner.node_id} at {owner.address}"
    document = refusal_document(
        "NOT_COORDINATOR", why if owner.http_address else f"{why}, which serves no HTTP; ask there"
    )
    document["owner"] = {"node": owner.node_id, "address": owner.address, "http_address": owner.http_address}
    if not owner.http_address:
        return json_response(document, 503)
    path, query = request.scope["raw_path"].decode("latin-1"), request.scope["query_string"].decode("latin-1")
    there = f"{request.url.scheme}://{owner.http_address}{path}{'?' * bool(query)}{query}"
    return json_response(document, 307, {"location": there})
