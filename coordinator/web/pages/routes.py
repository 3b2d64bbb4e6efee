"""Every route of the page, and the login: a form takes a token, and a cookie that no script reads carries it on.

The cookie goes with this node's own pages only (SameSite=Strict), and is worth what the token is worth: it ends when
the token ends or is revoked. A refusal is a page for people, where a program gets JSON.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from muster.coordinator.errors import NotAuthenticated
from muster.coordinator.web.http.identity import (
    LISTENER,
    LOGIN,
    LOGIN_COOKIE,
    HttpAuthenticator,
    SessionTokens,
    identity_of,
)
from muster.coordinator.web.http.node_port import HttpRefusal, NodePort
from muster.coordinator.web.pages.forms import ActionPages, parse_form
from muster.coordinator.web.pages.group_pages import GroupPages
from muster.coordinator.web.pages.listing_pages import ListingPages
from muster.coordinator.web.pages.rendering import PageAssets, PageRenderer

# Login
# -----

MOST_BYTES: Final = 32 << 10


class LoginPages:
    def __init__(self, entry: HttpAuthenticator, pages: PageRenderer) -> None:
        self._entry = entry
        self._pages = pages

    def routes(self) -> list[Route]:
        return [Route(LOGIN, self._show), Route(LOGIN, self._log_in, methods=["POST"])]

    async def _show(self, request: Request) -> Response:
        return await self._page(request, safe_return_path(request.query_params.get("next", "")))

    async def _log_in(self, request: Request) -> Response:
        """A token logs in; without one whoever is logged in is that no longer."""
        check_origin(request)
        given = parse_form(await read_small_body(request))
        token, back = given.get("token", "").strip(), safe_return_path(given.get("next", ""))
        if not token:
            answer: Response = RedirectResponse(LOGIN, 303)
            answer.delete_cookie(LOGIN_COOKIE, path="/", httponly=True, samesite="strict")
            return answer
        try:
            await self._entry.gate.identify(
                host=request.client.host if request.client else "",
                authorization=f"Bearer {token}",
                certificate=None,
                door=LISTENER,
            )
        except NotAuthenticated as error:
            return await self._page(request, back, str(error))
        answer = RedirectResponse(back, 303)
        secure = request.url.scheme == "https"
        answer.set_cookie(LOGIN_COOKIE, token, httponly=True, samesite="strict", path="/", secure=secure)
        return answer

    async def _page(self, request: Request, back: str, refused: str = "") -> Response:
        who = str(identity_of(request.scope).principal) if not identity_of(request.scope).anonymous else ""
        given = {"title": "Log in", "next": back, "refused": refused, "who": who}
        return await self._pages.page("login.html", "", lambda: given, 401 if refused else 200)


def safe_return_path(path: str) -> str:
    """A path of this node's own; nobody else's page is where a login leads to.

    >>> (safe_return_path("/groups/a"), safe_return_path("//evil.example/"), safe_return_path("https://evil.example"),
    ... safe_return_path("/\\\\evil"))
    ('/groups/a', '/', '/', '/')
    """
    plain = path.startswith("/") and not path.startswith("//") and path.isprintable() and "\\" not in path
    return path if plain and len(path) <= 8_192 else "/"


async def read_small_body(request: Request) -> bytes:
    """What a form of a token may be: nobody has shown yet who they are. Raises Refused."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BYTES:
            raise HttpRefusal(413, "REQUEST_TOO_LARGE", f"the form has more than {MOST_BYTES} bytes; send a token only")
    return body


def check_origin(request: Request) -> None:
    """A foreign page may log nobody in, or out."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host", ""):
        raise HttpRefusal(403, "FORBIDDEN", f"the Origin is {origin[:100]!r}; expected a page of this node's own")


# Routes
# ------

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
            if refused.code == "COORDINATOR_LOAD_IN_PROGRESS":
                heading = "Not read yet"
            again_s = AGAIN_S if refused.status >= 500 and request.method == "GET" else 0

            def make() -> Mapping[str, Any]:
                return {"title": heading, "heading": heading, "text": text, "again_s": again_s}

            return await pages.page("refusal.html", "", make, refused.status)

    return answered
