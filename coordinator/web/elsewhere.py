"""Sends whoever asks about a group to the node that coordinates it, where that is another one.

What is at stake is decided by the address alone: a path with a group in it. The answer keeps method and body (307).
"""

from collections.abc import Iterable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from muster.coordinator.web.addresses import name_of
from muster.coordinator.web.api.table import PREFIX
from muster.coordinator.web.asks import Asks, Owner
from muster.coordinator.web.refusals import json_response, refusal

OF_A_GROUP: Final = ("/groups/", f"{PREFIX}/groups/")
"""What an address begins with that goes on with the name of a group."""


def at_their_owners(routes: Iterable[Route], asks: Asks) -> list[Route]:
    """The same routes, of which those of a group answer at its coordinator only."""
    return [at_its_owner(route, asks) if route.path.startswith(OF_A_GROUP) else route for route in routes]


def at_its_owner(route: Route, asks: Asks) -> Route:
    inner: ASGIApp = route.app
    place = next(prefix for prefix in OF_A_GROUP if route.path.startswith(prefix)).count("/")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        group = name_of(scope["raw_path"].decode("latin-1").split("/")[place])
        owner = asks.owner(group)
        answer = inner if owner is None else moved(Request(scope), group, owner)
        await answer(scope, receive, send)

    route.app = app
    return route


def moved(request: Request, group: str, owner: Owner) -> Response:
    """307 to the same address there; 503 where it serves no HTTP. Either names the owner."""
    why = f"group {group[:100]!r} is coordinated by node {owner.node_id} at {owner.address}"
    document = refusal("NOT_COORDINATOR", why if owner.http_address else f"{why}, which serves no HTTP; ask there")
    document["owner"] = {"node": owner.node_id, "address": owner.address, "http_address": owner.http_address}
    if not owner.http_address:
        return json_response(document, 503)
    path, query = request.scope["raw_path"].decode("latin-1"), request.scope["query_string"].decode("latin-1")
    there = f"{request.url.scheme}://{owner.http_address}{path}{'?' * bool(query)}{query}"
    return json_response(document, 307, {"location": there})
