"""Probes (/healthz, /readyz, /startupz) for load balancers and the kubelet, and /metrics for Prometheus.

A large answer of /metrics is compressed in a thread, which releases the interpreter meanwhile; others have their
turn after each piece.
"""

import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from typing_extensions import TypedDict

from muster.coordinator.runtime.node_status import GROUPS, Condition
from muster.coordinator.web.http.identity import IDENTITY
from muster.coordinator.web.http.node_port import NodeHealth, NodePort
from muster.coordinator.web.http.responses import json_response
from muster.long_work import run_in_answer_thread, slice_queue

# Probes
# ------

NOT_WRITABLE = ("disk-full", "log-fenced", "log-gone")
"""Kinds of conditions by which the log takes no records. A shard that failed or starves says so for itself."""


def probe_routes(asks: NodePort) -> list[Route]:
    async def healthz(request: Request) -> Response:
        return json_response({"status": "ok"})

    async def readyz(request: Request) -> Response:
        return probe_response("ready", missing_for_readiness(asks.health()), tell=may_see_reasons(request, asks))

    async def startupz(request: Request) -> Response:
        health = asks.health()
        return probe_response(
            "started", [] if health.started else still_loading(health), tell=may_see_reasons(request, asks)
        )

    return [Route("/healthz", healthz), Route("/readyz", readyz), Route("/startupz", startupz)]


def may_see_reasons(request: Request, asks: NodePort) -> bool:
    """Whether reasons are told: where it is asked who asks, to those who may know how the node is."""
    return IDENTITY not in request.scope or (not request.scope[IDENTITY].anonymous and asks.sees_node())


def probe_response(well: str, lacking: list[dict[str, Any]], *, tell: bool = True) -> Response:
    """200, or 503 with what is missing: [{"name", "sentence", ...}]."""
    if not lacking:
        return json_response({"status": well})
    told = {"missing": lacking} if tell else {}
    return json_response({"status": f"not {well}", **told}, 503, {"retry-after": "1"})


def missing_for_readiness(health: NodeHealth) -> list[dict[str, Any]]:
    """What keeps the node from serving all its groups, or writing its log; nothing when it is ready."""
    found: list[dict[str, Any]] = [{**condition_row(each)} for each in health.conditions if prevents_readiness(each)]
    told = {row["name"] for row in found}
    if unsaid := [shard for shard in health.loading if f"shard-failed:{shard}" not in told]:
        found += still_loading(health, tuple(unsaid))
    if health.draining:
        found.append({"name": "draining", "sentence": "the node is being stopped; it takes no new requests"})
    return found


def still_loading(health: NodeHealth, shards: tuple[int, ...] | None = None) -> list[dict[str, Any]]:
    numbers = health.loading if shards is None else shards
    named = ", ".join(map(str, numbers[:20])) + (f" and {len(numbers) - 20} more" if len(numbers) > 20 else "")
    sentence = f"the groups of shards {named} are being loaded from the log" if numbers else "the node is starting"
    return [{"name": "shards-loading", "sentence": sentence, "shards": list(numbers)}]


def prevents_readiness(condition: Condition) -> bool:
    return condition.impairs == GROUPS or condition.name.partition(":")[0] in NOT_WRITABLE


class ConditionRow(TypedDict):
    name: str
    sentence: str
    since_ms: int
    count: int


def condition_row(condition: Condition) -> ConditionRow:
    return {
        "name": condition.name,
        "sentence": condition.sentence,
        "since_ms": condition.since_ms,
        "count": condition.count,
    }


# Metrics
# -------

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
    return await run_in_answer_thread(lambda: list(compress_pieces(pieces)))


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
            await slice_queue().wait()
            kept, size = [], 0
    if kept:
        yield b"".join(kept)
