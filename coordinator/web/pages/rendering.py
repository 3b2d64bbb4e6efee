"""Templates to HTML, and what pages load besides: our style and script and three libraries, all from the wheel.

Autoescape is on and an unknown name is an error; a page that takes long is rendered in a thread. Assets are read
once, when the listener starts; their address has the content's hash, so that browsers keep them for good.
"""

import hashlib
import mimetypes
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import escape
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from muster.coordinator.observability.views.formatting import harmless, spans
from muster.coordinator.web.http.guard import segment_of
from muster.coordinator.web.http.node_port import HttpRefusal, NodePort
from muster.long_work import run_in_answer_thread

# Assets
# ------

FOLDER: Final = Path(__file__).parent.parent / "assets"
SERVED: Final = (".css", ".js", ".svg")
FOR_GOOD: Final = "public, max-age=31536000, immutable"
"""The address has the content's hash: another content has another address."""


class PageAssets:
    """Read once, when the listener starts."""

    def __init__(self) -> None:
        files = [each for each in sorted(FOLDER.rglob("*")) if each.suffix in SERVED]
        self._content = {each.relative_to(FOLDER).as_posix(): each.read_bytes() for each in files}
        self._hash = {name: hashlib.sha256(content).hexdigest()[:12] for name, content in self._content.items()}

    def address(self, name: str) -> str:
        """Where the page finds it. KeyError for a name that is not there."""
        return f"/assets/{name}?v={self._hash[name]}"

    def routes(self) -> list[Route]:
        return [Route("/assets/{name:path}", self._answer)]

    async def _answer(self, request: Request) -> Response:
        name = request.path_params["name"]
        content = self._content.get(name)
        if content is None:
            raise HttpRefusal(404, "NOT_FOUND", f"there is no asset {name[:100]!r}")
        known = request.query_params.get("v") == self._hash[name]
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return Response(content, 200, {"cache-control": FOR_GOOD if known else "no-cache"}, kind)


# Templates
# ---------

TEMPLATES: Final = Path(__file__).parent.parent / "templates"
HTML: Final = "text/html; charset=utf-8"
HEADERS: Final = {"cache-control": "no-store", "referrer-policy": "same-origin"}
"""Without a referrer to its own node a browser would send a form as from nowhere (Origin: null)."""


def moment_of(epoch_ms: int) -> datetime:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC)


def utc(epoch_ms: int) -> str:
    """
    >>> utc(0)
    '1970-01-01 00:00:00 UTC'
    """
    return moment_of(epoch_ms).strftime("%Y-%m-%d %H:%M:%S UTC")


def shown(value: object) -> object:
    """What every expression of a template goes through: names that others chose may hold what turns writing round.

    It is spelt out, as on a terminal. Forms and addresses keep the true name: they say so by the filter `exact`.
    """
    return harmless(value) if type(value) is str else value


class PageRenderer:
    """The templates, and what each page has besides its own. `login`: the page by which people come and go."""

    def __init__(self, asks: NodePort, assets: PageAssets, *, login: str = "") -> None:
        self._asks = asks
        self._environment = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
            finalize=shown,
        )
        self._environment.globals["asset"] = assets.address
        self._environment.globals["login"] = login
        self._environment.filters |= {
            "utc": utc,
            "path": segment_of,
            "exact": escape,
            "spans": spans,
            "iso": lambda ms: moment_of(ms).isoformat(),
        }

    async def page(
        self, template: str, section: str, make: Callable[[], Mapping[str, Any]], status: int = 200
    ) -> Response:
        """The page of what `make` makes, which is called in a thread: it may look at nothing that others change."""
        health = self._asks.health()
        around = {
            "section": section,
            "node": self._asks.node(),
            "conditions": [condition.sentence for condition in health.conditions if self._asks.sees_node()],
            "events": "",
            "missing": health.loading,
            "now_ms": time.time_ns() // 1_000_000,
            "charts": False,
        }

        def made() -> bytes:
            found = self._environment.get_template(template).render({**around, **make()})
            return found.encode()

        body = await run_in_answer_thread(made)
        return Response(body, status, HEADERS, HTML)
