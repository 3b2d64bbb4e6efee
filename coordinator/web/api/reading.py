"""What the API shows: the rows that the command line prints with `-o json`."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from starlette.responses import Response
from typing_extensions import TypedDict

from muster.coordinator.observability.advice.table import GroupAdvice, GroupAdviceDocument, advise_group
from muster.coordinator.observability.views import groups as group_views
from muster.coordinator.observability.views.incidents import (
    GroupIncident,
    IncidentDocument,
    find_incidents,
    incident_document,
    latest_incidents,
)
from muster.coordinator.observability.views.ledger import RebalanceRow, entry_document, rebalance_row
from muster.coordinator.observability.views.member_names import names_of
from muster.coordinator.observability.views.settings import (
    GroupSettingRow,
    NodeSettingRow,
    group_setting_rows,
    node_setting_row,
)
from muster.coordinator.observability.views.topics import (
    TopicDocument,
    TopicRow,
    partition_rows,
    topic_document,
    topic_row,
)
from muster.coordinator.rpc.v1.ledger_pb2 import Rebalance
from muster.coordinator.web.api.endpoint import LIMIT, OFFSET, ApiEndpoint, EndpointRequest, QueryParameter
from muster.coordinator.web.api.node_queries import EARLIEST, LATEST, NodeQueries
from muster.coordinator.web.http.monitoring import ConditionRow, condition_row
from muster.coordinator.web.http.node_port import HttpRefusal
from muster.coordinator.web.http.responses import compact_json, document_response, rows_response
from muster.long_work import make_aside, run_in_answer_thread

T = TypeVar("T")

STATES: Final = (
    *("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"),
    *("Assigning", "Reconciling"),  # KIP-848
    *("Waiting", "Stopping", "Starting", "BackingOff"),  # central
)
TYPES: Final = ("classic", "consumer", "central", "zookeeper")
WEEK_MS: Final = 604_800_000
MOST_JUDGED: Final = 2
OVERLOADED: Final = "OVERLOADED"
MOST_ENTRIES: Final = 1_000
"""Rebalances told whole in one answer; each may have thousands of moves."""


class NodeDocument(TypedDict):
    node_id: int
    version: str
    address: str
    kafka_address: str
    http_address: str
    started_ms: int
    shards: int
    watched: str
    conditions: list[ConditionRow]


async def groups(asking: NodeQueries, given: EndpointRequest) -> Response:
    found = await asking.groups(given["state"], given["type"])
    if given["with_members"]:
        found = [each for each in found if each.has_members]
    return page_response(given, found, group_views.group_row, missing_shards_headers(asking))


async def group(asking: NodeQueries, given: EndpointRequest) -> Response:
    name = given.names["group"]
    found, holds = await asking.group(name), await asking.describe_holds(name)
    return rows_response([found], lambda group: group_views.state_row(group, holds))


async def members(asking: NodeQueries, given: EndpointRequest) -> Response:
    found = await asking.group(given.names["group"])
    return page_response(given, found.members, lambda member: group_views.member_row(found.group_id, member))


async def lag(asking: NodeQueries, given: EndpointRequest) -> Response:
    found = await asking.group(given.names["group"])
    lags, known = await asking.lags(found)
    owners = {member.member_id: member for member in found.members}
    return page_response(
        given,
        lags,
        lambda lag: group_views.offset_row(found.group_id, lag, owners.get(lag.owner), known=known),
    )


async def history(asking: NodeQueries, given: EndpointRequest) -> Response:
    entries = await asking.rebalances(given.names["group"], given["limit"])
    names = names_of(entries, full=True)
    return rows_response(entries, lambda entry: rebalance_row(entry, names))


async def explain(asking: NodeQueries, given: EndpointRequest) -> Response:
    """Whole entries may be long: each is made in a thread, which holds nobody up."""
    generation = given["generation"] or 0
    limit = 0 if generation else given["limit"]
    entries = await asking.rebalances(given.names["group"], limit, generation, snapshots=given["snapshots"])
    written = [await run_in_answer_thread(partial(write_entry, entry)) for entry in entries]
    return Response(f"[{','.join(written)}]".encode(), 200, {"cache-control": "no-store"}, "application/json")


def write_entry(entry: Rebalance) -> str:
    return compact_json(entry_document(entry))


async def incidents(asking: NodeQueries, given: EndpointRequest) -> Response:
    answer = await asking.explained(given.names["group"])
    entries = list(answer.rebalances)[::-1]

    def find() -> list[GroupIncident]:
        found = find_incidents(entries, names_of(entries), answer.stalls, answer.moves)
        return latest_incidents(found, entries, given["limit"])

    return rows_response(await run_in_answer_thread(find), incident_document)


class GroupAdviser:
    """Judges histories of groups in threads: plans are made again, which may take a second. Few at a time."""

    def __init__(self) -> None:
        self._running = 0

    async def advise(self, asking: NodeQueries, group: str, window_ms: int = WEEK_MS) -> GroupAdvice:
        """Raises HttpRefusal: 404 where there is no such group, 503 while as many are judged as may be."""
        if self._running >= MOST_JUDGED:
            busy = f"the histories of {MOST_JUDGED} groups are being judged; try again shortly"
            raise HttpRefusal(503, OVERLOADED, busy, headers={"retry-after": "1"})
        self._running += 1
        try:
            examined, partitions = await asking.examined(group)
            now_ms = time.time_ns() // 1_000_000
            return await asyncio.to_thread(advise_group, examined, partitions, now_ms, now_ms - window_ms)
        finally:
            self._running -= 1


ADVISER: Final = GroupAdviser()
"""Of this process."""


async def advice(asking: NodeQueries, given: EndpointRequest) -> Response:
    found = await ADVISER.advise(asking, given.names["group"], given["window_ms"])
    return rows_response([found], GroupAdvice.to_dict)


async def group_settings(asking: NodeQueries, given: EndpointRequest) -> Response:
    name = given.names["group"]
    found = await asking.settings(name)
    return rows_response(group_setting_rows(name, found.version, found.values, found.defaults, found.suspended), dict)


async def topics(asking: NodeQueries, given: EndpointRequest) -> Response:
    found = await asking.topics(internal=given["internal"])
    return page_response(given, found, lambda topic: topic_row(topic.name, topic.partitions))


async def topic(asking: NodeQueries, given: EndpointRequest) -> Response:
    found = await asking.topic(given.names["topic"])
    places = [(found.name, number) for number in range(found.partitions)]
    starts = await asking.offsets_at(dict.fromkeys(places, EARLIEST))
    ends = await asking.offsets_at(dict.fromkeys(places, LATEST))
    configs = await asking.configs_if_allowed(found.name)

    def written() -> Response:
        rows = partition_rows(
            found.name, ((number, starts[name, number], ends[name, number]) for name, number in places)
        )
        return document_response(topic_document(found.name, found.topic_id, found.internal, rows, configs))

    return await make_aside(written, len(places))


async def nodes(asking: NodeQueries, given: EndpointRequest) -> Response:
    conditions = [condition_row(each) for each in asking.node.health().conditions if asking.node.sees_node()]
    return rows_response([asdict(asking.node.node()) | {"conditions": conditions}], dict)


async def settings(asking: NodeQueries, given: EndpointRequest) -> Response:
    told = await asking.configs()
    rows = [node_setting_row(name, value) for name, value in told.items()]
    return page_response(given, [row for row in rows if not given["changed"] or row["value"] != row["default"]], dict)


def page_response(
    given: EndpointRequest, items: Sequence[T], row: Callable[[T], Any], headers: dict[str, str] | None = None
) -> Response:
    """The rows from `offset` on, at most `limit`; where more follow, a Link says at which address."""
    first, limit = given["offset"], given["limit"]
    told = {"x-total-count": str(len(items)), **(headers or {})}
    if first + limit < len(items):
        query = {key: value for key, value in given.values.items() if value not in (None, ())}
        pairs = urlencode(query | {"offset": first + limit, "limit": limit}, doseq=True)
        told["link"] = f'<{given.path}?{lower_switches(pairs)}>; rel="next"'
    return rows_response(items[first : first + limit], row, told)


def lower_switches(pairs: str) -> str:
    """Switches as the API writes them."""
    return pairs.replace("=True", "=true").replace("=False", "=false")


def missing_shards_headers(asking: NodeQueries) -> dict[str, str]:
    """Whose groups are not in the answer: the groups of these shards are not served at the moment."""
    loading = asking.node.health().loading
    return {"x-missing-shards": ",".join(map(str, loading))} if loading else {}


WINDOW: Final = (LIMIT, OFFSET)

READING_ENDPOINTS: Final = (
    ApiEndpoint(
        "/groups",
        "All groups, as `muster groups list -o json`.",
        list[group_views.GroupRow],
        groups,
        (
            QueryParameter("state", "Only groups in this state.", many=True, words=STATES),
            QueryParameter("type", "Only groups of this type.", many=True, words=TYPES),
            QueryParameter("with_members", "Only groups that have members.", bool, False),
            *WINDOW,
        ),
    ),
    ApiEndpoint(
        "/groups/{group}",
        "One group, as `muster groups describe --state -o json`.",
        list[group_views.StateRow],
        group,
    ),
    ApiEndpoint(
        "/groups/{group}/lag",
        "Positions and lag by partition, as `muster groups describe -o json`.",
        list[group_views.OffsetRow],
        lag,
        WINDOW,
        few_at_once=True,
    ),
    ApiEndpoint(
        "/groups/{group}/members",
        "Members and what they own, as `muster groups members -o json`.",
        list[group_views.MemberRow],
        members,
        WINDOW,
        few_at_once=True,
    ),
    ApiEndpoint(
        "/groups/{group}/history",
        "The last rebalances, oldest first, as `muster groups history -o json`.",
        list[RebalanceRow],
        history,
        (QueryParameter("limit", "How many, at most.", int, 100, least=1, most=MOST_ENTRIES),),
    ),
    ApiEndpoint(
        "/groups/{group}/explain",
        "Why the group rebalanced, whole entries of the ledger, oldest first, as `muster groups explain --entries -o "
        "json`.",
        list[dict[str, Any]],
        explain,
        (
            QueryParameter("limit", "How many, at most.", int, 10, least=1, most=MOST_ENTRIES),
            QueryParameter("generation", "Only the one that led to this generation.", int, most=2**31 - 1),
            QueryParameter("snapshots", "With the assignor's input.", bool, False),
        ),
    ),
    ApiEndpoint(
        "/groups/{group}/incidents",
        "What has happened to the group, oldest first: `incidents` of `muster groups explain -o json`.",
        list[IncidentDocument],
        incidents,
        (QueryParameter("limit", "Those of the last so many rebalances.", int, 10, least=1, most=MOST_ENTRIES),),
    ),
    ApiEndpoint(
        "/groups/{group}/advice",
        "What to change about the group, what helps most first, as `muster advise GROUP -o json`.",
        list[GroupAdviceDocument],
        advice,
        (QueryParameter("window_ms", "Judge this long until now.", int, WEEK_MS, least=1, most=10**13),),
    ),
    ApiEndpoint(
        "/groups/{group}/settings",
        "What is set for the group, as `muster groups settings -o json`.",
        list[GroupSettingRow],
        group_settings,
    ),
    ApiEndpoint(
        "/topics",
        "All topics, as `muster topics list -o json`.",
        list[TopicRow],
        topics,
        (QueryParameter("internal", "Also those the node keeps for itself.", bool, False), *WINDOW),
    ),
    ApiEndpoint(
        "/topics/{topic}",
        "One topic, its partitions and settings, as `muster topics describe -o json`.",
        TopicDocument,
        topic,
        few_at_once=True,
    ),
    ApiEndpoint(
        "/nodes", "This node: what it is, where its doors are, what is wrong with it.", list[NodeDocument], nodes
    ),
    ApiEndpoint(
        "/settings",
        "What the node runs with, as `muster settings --running -o json`.",
        list[NodeSettingRow],
        settings,
        (QueryParameter("changed", "Only what differs from its default.", bool, False), *WINDOW),
    ),
)
