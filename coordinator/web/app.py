"""All that HTTP answers, as one ASGI application. A new kind of page or figure is a file with `probe_routes`, named
here.
"""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp

from muster.coordinator.config import Settings
from muster.coordinator.edge.gate import Authenticator
from muster.coordinator.web import event_streams
from muster.coordinator.web.api import api_init
from muster.coordinator.web.elsewhere import redirect_group_routes
from muster.coordinator.web.http import metrics_route, probes
from muster.coordinator.web.http.counting import CountingApp, MeterOfEndpoint, mark_routes
from muster.coordinator.web.http.entry import HttpAuthenticator
from muster.coordinator.web.http.guard import RequestGuard
from muster.coordinator.web.http.node_port import HttpRefusal, NodePort
from muster.coordinator.web.http.refusals import response_of
from muster.coordinator.web.http.tokens import SessionTokens
from muster.coordinator.web.pages import routes as pages


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
                    *probes.probe_routes(asks),
                    *metrics_route.metrics_routes(asks),
                    *api_init.api_routes(asks, tokens, actions=settings.http_actions),
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
