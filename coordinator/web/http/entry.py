"""Who asks by HTTP, where that is asked: by a header, or by the cookie that a browser got for it on `/login`."""

from contextlib import AbstractAsyncContextManager, nullcontext
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import quote

from starlette.types import Scope

from muster.coordinator.edge.gate import Authenticator
from muster.coordinator.edge.tls import CERTIFICATE
from muster.coordinator.errors import NotAuthenticated, Overloaded
from muster.coordinator.security.identity import UNAUTHENTICATED, Identity
from muster.coordinator.web.http.node_port import HttpRefusal

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
