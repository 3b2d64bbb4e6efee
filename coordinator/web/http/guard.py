"""The checks before every request: its host, its size and its sender; and the security headers of every answer.

A group's name may have any character, so it is escaped as one segment of a path. Browsers, proxies and `curl` take a
segment that is `.` or `..` for a folder and leave it out, however it is escaped
(https://url.spec.whatwg.org/#double-dot-path-segment): a group of such a name gets a `=` in front, which no other
name has unescaped.
"""

import ipaddress
from collections.abc import MutableMapping
from typing import Any, Final
from urllib.parse import quote, unquote
from uuid import uuid4

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from muster.coordinator.edge import request_limits
from muster.coordinator.errors import NotAuthenticated
from muster.coordinator.web.http.identity import IDENTITY, HttpAuthenticator
from muster.coordinator.web.http.node_port import CURRENT_IDENTITY, HttpRefusal
from muster.coordinator.web.http.responses import response_of

# Names as segments of a path
# ---------------------------

ESCAPED_FOLDERS: Final = {".": "=.", "..": "=.."}
UNESCAPED_FOLDERS: Final = {segment: name for name, segment in ESCAPED_FOLDERS.items()}


def segment_of(name: str) -> str:
    """
    >>> segment_of("a/b?<c>"), segment_of(".."), segment_of("=..")
    ('a%2Fb%3F%3Cc%3E', '=..', '%3D..')
    """
    return ESCAPED_FOLDERS.get(name) or quote(name, safe="")


def name_of(segment: str) -> str:
    """
    >>> name_of("a%2Fb%3F%3Cc%3E"), name_of("=.."), name_of("%3D..")
    ('a/b?<c>', '..', '=..')
    """
    return UNESCAPED_FOLDERS.get(segment) or unquote(segment)


# The guard
# ---------

MOST_HEADERS: Final = 100
MOST_HEADER_BYTES: Final = 32 << 10

SECURITY_HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'self'; script-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
        b"frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""With every answer. No script of a page is inline, and nothing comes from another host."""

log = structlog.get_logger("muster.http")


class RequestGuard:
    """Refuses what was meant for another host, is too large, or comes from somebody whom `entry` does not know.

    Every exception becomes a JSON refusal.
    """

    def __init__(
        self, app: ASGIApp, *, host_names: frozenset[str], max_body_bytes: int, entry: HttpAuthenticator | None = None
    ) -> None:
        self._entry = entry
        self._app = app
        self._host_names = host_names
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        begun = False

        async def guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message = add_security_headers(message)
            await send(message)

        try:
            self._check(scope)
            scope = {**scope, "path": whole_segments(scope["raw_path"])}
            if self._entry is None:
                await self._app(scope, self._counted(receive), guarded)
            else:
                await self._for_known(self._entry, scope, self._counted(receive), guarded)
        except HttpRefusal as refused:
            ending = refused
        except Exception as error:
            ending = internal_error(error, scope)
        else:
            return
        if not begun:
            await response_of(ending)(scope, receive, guarded)
        else:
            # Half an answer has gone out: its end must not look like a whole one.
            raise ConnectionAbortedError(ending.text)

    async def _for_known(self, entry: HttpAuthenticator, scope: Scope, receive: Receive, send: Send) -> None:
        identity = await entry.identified(scope)
        CURRENT_IDENTITY.set(identity)
        try:
            async with entry.lasting(scope["path"], identity):
                await self._app({**scope, IDENTITY: identity}, receive, send)
        except NotAuthenticated as error:
            raise HttpRefusal(401, "NOT_AUTHENTICATED", str(error)) from None

    def _check(self, scope: Scope) -> None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        size = sum(len(name) + len(value) for name, value in headers)
        if len(headers) > MOST_HEADERS or size > MOST_HEADER_BYTES:
            raise HttpRefusal(
                431,
                "HEADERS_TOO_LARGE",
                f"{len(headers)} headers of {size} bytes; expected at most {MOST_HEADERS} of {MOST_HEADER_BYTES} bytes",
            )
        self._check_host([value for name, value in headers if name == b"host"])
        for name, value in headers:
            if name == b"content-length" and int(value) > self._max_body_bytes:
                raise self._too_large(int(value))

    def _check_host(self, hosts: list[bytes]) -> None:
        """A page of a foreign name that resolves to this address would send that name; probes by HTTP/1.0 send none."""
        for host in hosts:
            text = host.decode("latin-1")
            name = host_of(text)
            if not is_address(name) and name not in self._host_names:
                raise HttpRefusal(
                    421,
                    "UNKNOWN_HOST",
                    f"the Host header is {text[:100]!r}; expected an address, localhost, or a name that is listed in "
                    "http.hosts",
                    field="Host",
                )

    def _counted(self, receive: Receive) -> Receive:
        left = self._max_body_bytes

        async def counted() -> MutableMapping[str, Any]:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise self._too_large(self._max_body_bytes - left)
            return message

        return counted

    def _too_large(self, size: int) -> HttpRefusal:
        return HttpRefusal(
            413,
            "REQUEST_TOO_LARGE",
            f"the body has {size} bytes or more; expected at most {self._max_body_bytes} (http.max.request.bytes)",
            headers={"connection": "close"},
        )


def whole_segments(raw_path: bytes) -> str:
    """The path decoded, but for what would end a segment or a route: a group may be called `a/b`, or have a line's end
    in its name. `unquote` gives its name.

    >>> whole_segments(b"/groups/a%2Fb%20c%25/lag"), whole_segments(b"/groups/a%0Ab"), whole_segments(b"/groups/=..")
    ('/groups/a%2Fb c%25/lag', '/groups/a%0Ab', '/groups/..')
    """
    segments = (name_of(segment) for segment in raw_path.decode("latin-1").split("/"))
    return "/".join(segment.replace("%", "%25").replace("/", "%2F").replace("\n", "%0A") for segment in segments)


def add_security_headers(message: Message) -> Message:
    """The start of an answer with what every answer has; what the answer says itself stands."""
    headers = list(message.get("headers", ()))
    known = {name.lower() for name, _ in headers}
    return {**message, "headers": headers + [pair for pair in SECURITY_HEADERS if pair[0] not in known]}


def internal_error(error: Exception, scope: Scope) -> HttpRefusal:
    """The client learns a reference into the node's log, and nothing of the inside."""
    reference = uuid4().hex[:12]
    log.error("an HTTP request failed", path=scope["path"][:200], reference=reference, exc_info=error)
    return HttpRefusal(500, "INTERNAL", request_limits.describe_failure(reference))


def host_of(text: str) -> str:
    """The host of a Host header, in lower case, without port and brackets; empty when it has no shape.

    >>> host_of("localhost:9291"), host_of("[::1]:9291"), host_of("[::1]"), host_of("Muster.Example"), host_of("a:b:c")
    ('localhost', '::1', '::1', 'muster.example', '')
    """
    host, port = text, ""
    if text.startswith("["):
        host, end, rest = text[1:].partition("]")
        if not end or (rest and not rest.startswith(":")):
            return ""
        port = rest[1:]
    elif ":" in text:
        host, _, port = text.partition(":")
    return host.lower().rstrip(".") if not port or (port.isascii() and port.isdigit()) else ""


def is_address(host: str) -> bool:
    """A page of a foreign name cannot make a browser send a plain address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
