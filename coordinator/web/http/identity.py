"""Who sends a request, and whether a page or a program may change something.

Where the node requires authentication, a header identifies the caller, or the cookie that a browser got for it on
`/login`.

A token allows changes to a page of this node or to a program that asked for one, and to no foreign page. It names a
session and carries its seal, by a key that lives as long as the process. The node gives it to any caller, with the
session as a cookie that no script reads and that a browser sends with this node's own pages only; a foreign page
cannot read what it is answered. A browser has to send both, and they have to match.
"""

import hmac
import secrets
from contextlib import AbstractAsyncContextManager, nullcontext
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import quote, urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from muster.coordinator.edge.listener_base import CERTIFICATE, Authenticator
from muster.coordinator.errors import NotAuthenticated, Overloaded
from muster.coordinator.security.access_model import UNAUTHENTICATED, Identity
from muster.coordinator.web.http.node_port import HttpRefusal

# Authentication
# --------------

IDENTITY: Final = "muster.identity"
"""Where a request's scope has who asks; nothing there means that nobody is asked."""
LOGIN_COOKIE: Final = "muster_login"
LISTENER: Final = "http"
LOGIN: Final = "/login"
PROBES: Final = frozenset({"/healthz", "/readyz", "/startupz"})
FOR_PROGRAMS: Final = ("/api/", "/metrics", "/events")
LASTING: Final = "/events"


class HttpAuthenticator:
    """Asks the gate for the guard."""

    def __init__(self, gate: Authenticator, *, probes_anonymous: bool) -> None:
        self.gate = gate
        self._open = {LOGIN, *(PROBES if probes_anonymous else ())}

    async def identified(self, scope: Scope) -> Identity:
        """Who asks: SOMEBODY for what anybody may see. Raises Refused: 401, or for a browser the way to the login."""
        path: str = scope["path"]
        free = path in self._open or path.startswith("/assets/")
        authorization = authorization_of(scope)
        if not authorization and free:
            return UNAUTHENTICATED
        try:
            return await self.gate.identify(
                host=scope["client"][0] if scope.get("client") else "",
                authorization=authorization,
                certificate=scope.get("extensions", {}).get(CERTIFICATE),
                door=LISTENER,
            )
        except NotAuthenticated as error:
            if free:
                return UNAUTHENTICATED
            raise login_refusal(scope, str(error)) from None
        except Overloaded as error:
            raise HttpRefusal(503, "LIMIT_REACHED", str(error), headers={"retry-after": "1"}) from None

    def lasting(self, path: str, identity: Identity) -> AbstractAsyncContextManager[None]:
        """Around an answer: one that goes on for long ends with who it is for."""
        return self.gate.lasting(identity) if path == LASTING else nullcontext()


def login_refusal(scope: Scope, text: str) -> HttpRefusal:
    headers = {name: value for name, value in scope["headers"] if name in (b"accept", b"hx-request")}
    path: str = scope["path"]
    if b"hx-request" in headers:
        return HttpRefusal(401, "NOT_AUTHENTICATED", text, headers={"hx-redirect": LOGIN})
    wants_page = scope["method"] in ("GET", "HEAD") and b"text/html" in headers.get(b"accept", b"")
    if wants_page and not path.startswith(FOR_PROGRAMS):
        back = scope["raw_path"].decode("latin-1")
        return HttpRefusal(
            303, "NOT_AUTHENTICATED", text, headers={"location": f"{LOGIN}?next={quote(back, safe='/')}"}
        )
    return HttpRefusal(401, "NOT_AUTHENTICATED", text, headers={"www-authenticate": 'Bearer realm="muster"'})


def authorization_of(scope: Scope) -> str:
    """The header, or what stands for it in the cookie; empty where neither is."""
    cookies = ""
    for name, value in scope["headers"]:
        if name == b"authorization":
            return str(value.decode("latin-1"))
        if name == b"cookie":
            cookies = value.decode("latin-1")
    if LOGIN_COOKIE not in cookies:
        return ""
    try:
        found = SimpleCookie(cookies).get(LOGIN_COOKIE)
    except CookieError:
        return ""
    return f"Bearer {found.value}" if found is not None and found.value else ""


def identity_of(scope: Scope) -> Identity:
    """Who sent this request."""
    identity: Identity = scope.get(IDENTITY, UNAUTHENTICATED)
    return identity


# Tokens of changes
# -----------------

HEADER: Final = "X-Muster-Token"
SESSION_COOKIE: Final = "muster_session"


class SessionTokens:
    """Those of one process."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def token(self, request: Request) -> str:
        """For the session that the request names, if it is ours, else for a new one; `remember` tells the browser."""
        session = request.cookies.get(SESSION_COOKIE, "")
        if not self._is_ours(session):
            name = secrets.token_hex(16)
            session = f"{name}.{self._seal('session', name)}"
        return f"{session}.{self._seal('token', session)}"

    def remember(self, response: Response, token: str) -> None:
        """Give the browser the token's session."""
        session = token.rpartition(".")[0]
        response.set_cookie(SESSION_COOKIE, session, httponly=True, samesite="strict", path="/")

    def check(self, request: Request, form: str | None = None) -> None:
        """Raises Refused (403) for a request that a foreign page may have sent.

        `form`: the token as a form has it, which cannot send the header.
        """
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != request.headers.get("host", ""):
            raise token_refusal(f"the Origin is {origin[:100]!r}; expected a page of this node's own")
        given = request.headers.get(HEADER, "") if form is None else form
        session, _, seal = given.rpartition(".")
        if not self._is_ours(session) or not equal_secrets(seal, self._seal("token", session)):
            raise token_refusal(
                f"{HEADER} is missing, or from before the node's last start; GET /api/v1/token tells one"
            )
        if is_browser(request) and not equal_secrets(request.cookies.get(SESSION_COOKIE, ""), session):
            raise token_refusal(f"the cookie {SESSION_COOKIE} does not fit {HEADER}; load the page again")

    def _is_ours(self, session: str) -> bool:
        name, _, seal = session.rpartition(".")
        return bool(name) and equal_secrets(seal, self._seal("session", name))

    def _seal(self, what: str, text: str) -> str:
        return hmac.new(self._key, f"{what}:{text}".encode(), sha256).hexdigest()


def is_browser(request: Request) -> bool:
    """Browsers say so by headers that a script cannot leave out."""
    return any(name in request.headers for name in ("origin", "sec-fetch-site", "cookie"))


def equal_secrets(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


def token_refusal(text: str) -> HttpRefusal:
    return HttpRefusal(403, "FORBIDDEN", text, field=HEADER)
