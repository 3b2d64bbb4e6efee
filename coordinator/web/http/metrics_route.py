"""/metrics, for Prometheus and whoever speaks its formats."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from muster.coordinator.web.http.node_port import NodePort

PIECE_BYTES: Final = 256 << 10
"""About so much is handed on at once."""
SMALL_BYTES: Final = 32 << 10
"""What is compressed here and now: a fraction of a millisecond."""
GZIP: Final = 31
"""zlib's word for its window with gzip's header."""
LEVEL: Final = 1
"""Names that repeat themselves compress well at any; this one is fastest."""


def metrics_routes(asks: NodePort) -> list[Route]:
    async def metrics(request: Request) -> Response:
        exposition = await asks.metrics(request.headers.get("accept", ""))
        headers = {"cache-control": "no-store", "vary": "accept, accept-encoding"}
        headers["content-type"] = exposition.content_type
        pieces = exposition.pieces
        if takes_gzip(request.headers.get("accept-encoding", "")):
            headers["content-encoding"] = "gzip"
            pieces = await gzip_pieces(pieces)
        return StreamingResponse(pass_pieces(pieces), headers=headers)

    return [Route("/metrics", metrics)]


def takes_gzip(accepted: str) -> bool:
    """Whether an Accept-Encoding header takes it.

    >>> takes_gzip("gzip, deflate"), takes_gzip("gzip;q=0"), takes_gzip("identity"), takes_gzip("br, GZIP;q=0.5")
    (True, False, False, True)
    """
    for each in accepted.lower().split(","):
        name, _, weight = each.partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "").rstrip("0").rstrip(".") not in ("q=", "q=0")
    return False


async def gzip_pieces(pieces: Sequence[bytes]) -> Sequence[bytes]:
    """As one gzip stream; what is large is made in a thread, which lets go of the interpreter meanwhile."""
    if sum(map(len, pieces)) <= SMALL_BYTES:
        return list(compress_pieces(pieces))
    return await asyncio.to_thread(lambda: list(compress_pieces(pieces)))


def compress_pieces(pieces: Sequence[bytes]) -> Iterator[bytes]:
    """The same as one gzip stream."""
    stream = zlib.compressobj(LEVEL, wbits=GZIP)
    for piece in pieces:
        if made := stream.compress(piece):
            yield made
    yield stream.flush()


async def pass_pieces(pieces: Sequence[bytes]) -> AsyncIterator[bytes]:
    """The pieces, small ones together; others have their turn after each."""
    kept: list[bytes] = []
    size = 0
    for piece in pieces:
        kept.append(piece)
        size += len(piece)
        if size >= PIECE_BYTES:
            yield b"".join(kept)
            await asyncio.sleep(0)
            kept, size = [], 0
    if kept:
        yield b"".join(kept)
