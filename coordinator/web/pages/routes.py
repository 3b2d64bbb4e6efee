"""Every route of the page, for `app_of`."""

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from muster.coordinator.web.http.entry import LOGIN, HttpAuthenticator
from muster.coordinator.web.http.node_port import HttpRefusal, NodePort
from muster.coordinator.web.http.tokens import SessionTokens
from muster.coordinator.web.pages.assets import PageAssets
from muster.coordinator.web.pages.forms import ActionPages
from muster.coordinator.web.pages.group_pages import GroupPages
from muster.coordinator.web.pages.listing_pages import ListingPages
from muster.coordinator.web.pages.login_pages import LoginPages
from muster.coordinator.web.pages.rendering import PageRenderer

Endpoint = Callable[[Request], Awaitable[Response]]
AGAIN_S = 3
"""A page that the node cannot show at the moment (its shard is being loaded, it is being stopped) asks again."""
HEADINGS = {404: "There is no such thing", 400: "That cannot be", 403: "That is not for you", 503: "Not now"}


def page_routes(
    asks: NodePort, tokens: SessionTokens, *, actions: bool, entry: HttpAuthenticator | None = None
) -> list[Route]:
    assets = PageAssets()
    pages = PageRenderer(asks, assets, login=LOGIN if entry is not None else "")
    acting = ActionPages(asks, pages, tokens, actions=actions)
    shown = [*ListingPages(asks, pages).routes(), *GroupPages(asks, pages, acting).routes()]
    people = (
        Route(each.path, refuse_with_page(each.endpoint, pages), methods=list(each.methods or ())) for each in shown
    )
    login = LoginPages(entry, pages).routes() if entry is not None else []
    return [*people, *login, *assets.routes()]


def refuse_with_page(endpoint: Endpoint, pages: PageRenderer) -> Endpoint:
    """A refusal as a page, where a program gets JSON."""

    @wraps(endpoint)
    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except HttpRefusal as refused:
            heading, text = HEADINGS.get(refused.status, "The node did not answer"), refused.text
            again_s = AGAIN_S if refused.status >= 500 and request.method == "GET" else 0

            def make() -> Mapping[str, Any]:
                return {"title": heading, "heading": heading, "text": text, "again_s": again_s}

            return await pages.page("refusal.html", "", make, refused.status)

    return answered
