"""All that HTTP answers, as one ASGI application. A new kind of page or figure is a file with `routes`, named here."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp

from muster.coordinator.config import Settings
from muster.coordinator.edge.gate import AsksWho
from muster.coordinator.web import api, events, metrics_route, probes
from muster.coordinator.web.api.tokens import Tokens
from muster.coordinator.web.asks import Asks, Refused
from muster.coordinator.web.counting import Counted, Meters, telling
from muster.coordinator.web.elsewhere import at_their_owners
from muster.coordinator.web.entry import Entry
from muster.coordinator.web.guard import Guard
from muster.coordinator.web.pages import routes as pages
from muster.coordinator.web.refusals import response_of


def app_of(asks: Asks, settings: Settings, meters: Meters | None = None, gate: AsksWho | None = None) -> ASGIApp:
    """The application of one node. It does nothing before it is asked; `meters`: where it counts what it answers.

    `gate`: who knows who asks; None: nobody is asked.
    """
    entry = None if gate is None else Entry(gate, probes_anonymous=settings.http_probes_anonymous)
    tokens = Tokens()
    inner = Routes(
        routes=telling(
            at_their_owners(
                (
                    *probes.routes(asks),
                    *metrics_route.routes(asks),
                    *api.routes(asks, tokens, actions=settings.http_actions),
                    *events.routes(asks, settings.http_max_event_streams),
                    *pages.routes(asks, tokens, actions=settings.http_actions, entry=entry),
                ),
                asks,
            )
        ),
        exception_handlers={HTTPException: refuse},
    )
    inner.router.redirect_slashes = False
    most_bytes = settings.http_max_request_bytes
    guarded = Guard(inner, host_names=settings.http_host_names, max_body_bytes=most_bytes, entry=entry)
    return guarded if meters is None else Counted(guarded, meters)


class Routes(Starlette):
    """Starlette without its outermost layer: what fails unexpectedly is the guard's to tell."""

    def build_middleware_stack(self) -> ASGIApp:
        return ExceptionMiddleware(self.router, self.exception_handlers)


async def refuse(request: Request, error: Exception) -> Response:
    """No such path, or no such method there."""
    assert isinstance(error, HTTPException)
    path = request.url.path[:200]
    headers = error.headers
    if error.status_code == 405:
        headers = {"Allow": ", ".join(methods_at(request))}
    allowed = (headers or {}).get("Allow", "")
    texts = {
        404: ("NOT_FOUND", f"there is nothing at {path!r}; /api/v1/openapi.json lists what there is"),
        405: ("METHOD_NOT_ALLOWED", f"{request.method} is not for {path!r}; expected {allowed}"),
    }
    code, text = texts.get(error.status_code, (f"HTTP_{error.status_code}", error.detail))
    return response_of(Refused(error.status_code, code, text, headers=headers))


def methods_at(request: Request) -> list[str]:
    """All that the path takes: what is read and what is changed there are two routes."""
    there = (route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE)
    return sorted({method for route in there for method in route.methods or ()})
