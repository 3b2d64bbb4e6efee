"""Whether the node lives, serves, and has come up: three questions that a load balancer or kubelet asks."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from typing_extensions import TypedDict

from muster.coordinator.runtime.conditions import GROUPS, Condition
from muster.coordinator.web.http.entry import IDENTITY
from muster.coordinator.web.http.node_port import NodeHealth, NodePort
from muster.coordinator.web.http.refusals import json_response

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
