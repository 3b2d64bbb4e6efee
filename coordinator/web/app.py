"""Everything that HTTP answers, as one ASGI application.

A new kind of page or figure is a module with a function that returns routes, which is named here. A request about a
group that another node coordinates is redirected to that node (307, which keeps method and body); the path alone
decides, because it names the group.
"""

from collections.abc import Iterable
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from muster.coordinator.config import Settings
from muster.coordinator.edge.listener_base import Authenticator
from muster.coordinator.web import event_streams
from muster.coordinator.web.api import routes
from muster.coordinator.web.api.endpoint import PREFIX
from muster.coordinator.web.http import monitoring
from muster.coordinator.web.http.guard import RequestGuard, name_of
from muster.coordinator.web.http.identity import HttpAuthenticator, SessionTokens
from muster.coordinator.web.http.node_port import CoordinatingNode, HttpRefusal, NodePort
from muster.coordinator.web.http.responses import (
    CountingApp,
    MeterOfEndpoint,
    json_response,
    mark_routes,
    refusal_document,
    response_of,
)
from muster.coordinator.web.pages import routes as pages

# Groups that another node coordinates
# ------------------------------------

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


# The application
# ---------------


def make_app(
    asks: NodePort, settings: Settings, meters: MeterOfEndpoint | None = None, gate: Authenticator | None = None
) -> ASGIApp:
    """The application of one node. It does nothing before it is asked; `meters`: where it counts what it answers.

    `gate`: who knows who asks; None: nobody is asked.
    """
    entry = None if gate is None else HttpAuthenticator(gate, probes_anonymous=settings.http_probes_anonymous)
    tokens = SessionTokens()
    inner = GuardedRoutes(
        routes=mark_routes(
            redirect_group_routes(
                (
                    *monitoring.probe_routes(asks),
                    *monitoring.metrics_routes(asks),
                    *routes.api_routes(asks, tokens, actions=settings.http_actions),
                    *event_streams.event_routes(asks, settings.http_max_event_streams),
                    *pages.page_routes(asks, tokens, actions=settings.http_actions, entry=entry),
                ),
                asks,
            )
        ),
        exception_handlers={HTTPException: refuse_unknown_route},
    )
    inner.router.redirect_slashes = False
    most_bytes = settings.http_max_request_bytes
    guarded = RequestGuard(inner, host_names=settings.http_host_names, max_body_bytes=most_bytes, entry=entry)
    return guarded if meters is None else CountingApp(guarded, meters)


class GuardedRoutes(Starlette):
    """Starlette without its outermost layer: what fails unexpectedly is the guard's to tell."""

    def build_middleware_stack(self) -> ASGIApp:
        return ExceptionMiddleware(self.router, self.exception_handlers)


async def refuse_unknown_route(request: Request, error: Exception) -> Response:
    """No such path, or no such method there."""
    assert isinstance(error, HTTPException)
    path = request.url.path[:200]
    headers = error.headers
    if error.status_code == 405:
        headers = {"Allow": ", ".join(allowed_methods(request))}
    allowed = (headers or {}).get("Allow", "")
    texts = {
        404: ("NOT_FOUND", f"there is nothing at {path!r}; /api/v1/openapi.json lists what there is"),
        405: ("METHOD_NOT_ALLOWED", f"{request.method} is not for {path!r}; expected {allowed}"),
    }
    code, text = texts.get(error.status_code, (f"HTTP_{error.status_code}", error.detail))
    return response_of(HttpRefusal(error.status_code, code, text, headers=headers))


def allowed_methods(request: Request) -> list[str]:
    """All that the path takes: what is read and what is changed there are two routes."""
    there = (route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE)
    return sorted({method for route in there for method in route.methods or ()})
