"""Who may change something: a page of this node, or a program that asked for a token. No foreign page can.

A token is a name of a session and its seal, by a key that lives as long as the process. It is told to whoever asks,
with the session as a cookie that no script reads and that a browser sends with this node's own pages only; what a
foreign page asks for it cannot read. A browser has to send both, and they have to fit.
"""

import hmac
import secrets
from hashlib import sha256
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from muster.coordinator.web.http.node_port import HttpRefusal

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
