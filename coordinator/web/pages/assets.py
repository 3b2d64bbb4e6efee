"""What the page loads besides itself: our style and script, and three libraries, all from the wheel."""

import hashlib
import mimetypes
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from muster.coordinator.web.http.node_port import HttpRefusal

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
