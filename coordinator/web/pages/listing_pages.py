"""The routes of what is about many: groups, ledger, topics, the node."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from muster.coordinator.edge.large_answers import SharedAnswers
from muster.coordinator.observability.history.group_history import PartitionRates
from muster.coordinator.observability.read_model.groups import GroupListing
from muster.coordinator.observability.views.ledger import took_ms
from muster.coordinator.observability.views.member_names import names_of
from muster.coordinator.observability.views.sentences import CAUSES, cause_name
from muster.coordinator.rpc.v1.ledger_pb2 import Rebalance
from muster.coordinator.security.access_model import UNAUTHENTICATED, Identity
from muster.coordinator.web.http.identity import IDENTITY
from muster.coordinator.web.http.node_port import HttpRefusal, NodePort
from muster.coordinator.web.pages.group_pages import page_address, parse_number, rows_address
from muster.coordinator.web.pages.group_view import BUSY, HEALTH_CLASSES, SamplerFigures
from muster.coordinator.web.pages.listing_view import (
    PAGE,
    SORTS,
    GroupListQuery,
    group_row,
    make_cluster_view,
    select_groups,
    topic_rows,
)
from muster.coordinator.web.pages.page_data import PageQueries
from muster.coordinator.web.pages.pictures import PartitionCell, draw_strips
from muster.coordinator.web.pages.position_view import (
    MOST_READERS,
    knows_topic,
    partition_lines,
    reader_lines,
    row_page,
    written_to,
)
from muster.coordinator.web.pages.rebalance_view import rebalance_view
from muster.coordinator.web.pages.rendering import PageRenderer
from muster.long_work import iterate_in_turns, run_in_answer_thread

SHOWN_ENTRIES: Final = 100
OF_EACH_GROUP: Final = 20
SHOWN_TOPICS: Final = 500
WORSE: Final = {"": 0, "OK": 0, "NOTFOUND": 0, "IDLE": 0, "WARN": 1}
EARLIEST, LATEST = -2, -1


class GroupsSeen(NamedTuple):
    """All groups, by name. lags: records; troubled: the highest number for the worst; both by group."""

    groups: Sequence[GroupListing]
    lags: dict[str, int]
    troubled: dict[str, int]


class ListingPages:
    def __init__(self, asks: NodePort, pages: PageRenderer) -> None:
        self._asks = asks
        self._asking = PageQueries(asks)
        self._pages = pages
        self._figures = SamplerFigures(asks.history, asks.sees_figures)
        self._looks: SharedAnswers[Identity, GroupsSeen] = SharedAnswers()

    def routes(self) -> list[Route]:
        return [
            Route("/", self._groups),
            Route("/ledger", self._ledger),
            Route("/topics", self._topics),
            Route("/topics/{topic:path}", self._topic),
            Route("/nodes", self._nodes),
        ]

    def _around(self, request: Request) -> dict[str, Any]:
        """Many groups may change at once: such a page waits until they are quiet for a moment."""
        events = "/events?" + urlencode({"since": self._asks.changes.mark()})
        return {"here": page_address(request), "trigger": "changed delay:500ms, refresh", "events": events}

    async def _groups(self, request: Request) -> Response:
        given = request.query_params
        sort = given.get("sort", "trouble")
        page = max(1, parse_number(given.get("page", "1"), 10**6, "page"))
        wanted = GroupListQuery(
            given.get("q", ""),
            given.get("state", ""),
            bool(given.get("lag")),
            bool(given.get("members")),
            sort if sort in SORTS else "trouble",
            page,
        )
        around = self._around(request)
        groups, lags, troubled = await self._looks.get(request.scope.get(IDENTITY, UNAUTHENTICATED), self._look)
        latest = {}
        async for group in iterate_in_turns(groups if wanted.sort == "rebalance" else ()):
            last = await self._asking.last_rebalance(group.group_id)
            latest[group.group_id] = last.started_at_ms if last else 0
        found_groups = await run_in_answer_thread(partial(select_groups, groups, lags, troubled, latest, wanted))
        shown = found_groups[(page - 1) * PAGE : page * PAGE]
        headcounts = await self._asking.headcounts(group.group_id for group in shown)
        parts = []
        for group in shown:
            last = await self._asking.last_rebalance(group.group_id)
            lag = self._figures.lag(group.group_id)
            figures = self._figures.of(group.group_id)
            parts.append((group, headcounts.get(group.group_id), last, lag, figures))
            await asyncio.sleep(0)

        def page_href(number: int) -> str:
            return "/?" + urlencode(
                [*((key, value) for key, value in given.multi_items() if key != "page"), ("page", str(number))]
            )

        def make() -> Mapping[str, Any]:
            return around | {
                "title": "Groups",
                "wanted": wanted,
                "states": sorted({group.state for group in groups} | ({wanted.state} - {""})),
                "totals": SimpleNamespace(
                    groups=len(groups),
                    busy=sum(group.state in BUSY for group in groups),
                    unwell=sum(map(bool, troubled.values())),
                    idle=sum(not group.has_members for group in groups),
                    lag=sum(lags.values()),
                ),
                "rows": [group_row(*part) for part in parts],
                "found": len(found_groups),
                "pages": -(-len(found_groups) // PAGE),
                "page_href": page_href,
            }

        return await self._pages.page("groups.html", "Groups", make)

    async def _look(self) -> "GroupsSeen":
        """At all groups that whoever asks may see."""
        seen = GroupsSeen(await self._asking.groups(), {}, {})
        async for group in iterate_in_turns(seen.groups):
            seen.lags[group.group_id] = self._figures.lag(group.group_id) or 0
            seen.troubled[group.group_id] = WORSE.get(self._figures.health(group.group_id)[0], 2)
        return seen

    async def _ledger(self, request: Request) -> Response:
        given = request.query_params
        wanted = {key: given.get(key, "") for key in ("group", "cause", "culprit")}
        groups = [
            each.group_id for each in await self._asking.groups() if wanted["group"].lower() in each.group_id.lower()
        ]
        if wanted["group"] and wanted["group"] not in groups:
            groups.append(wanted["group"])  # it may be gone; the ledger tells who deleted it
        around = self._around(request)
        narrow = any(wanted.values())
        entries: list[Rebalance] = []
        for group in groups:
            found = (await self._asking.history(group, 0 if narrow else OF_EACH_GROUP)).rebalances
            entries.extend(entry for entry in found if is_wanted(entry, wanted["cause"], wanted["culprit"]))
            await asyncio.sleep(0)
        entries.sort(key=lambda entry: -entry.started_at_ms)
        shown = entries[:SHOWN_ENTRIES]

        def make() -> Mapping[str, Any]:
            longest = max(map(took_ms, shown), default=0)
            views = [rebalance_view(entry, names_of([entry]), longest) for entry in shown]
            return around | {
                "title": "Ledger",
                "wanted": wanted,
                "causes": list(CAUSES),
                "rebalances": views,
                "more": len(entries) - len(shown),
            }

        return await self._pages.page("ledger.html", "Ledger", make)

    async def _seen(self) -> list[tuple[str, PartitionRates]]:
        """What the sampler saw of each group that the caller may see."""
        return await self._figures.seen_by(filter(self._asks.sees_group, self._asks.history.groups))

    async def _topics(self, request: Request) -> Response:
        sizes = await self._asking.sizes()
        shown = dict(sorted(sizes.items())[:SHOWN_TOPICS])
        around, seen = self._around(request), await self._seen()
        starts, ends = await self._asking.ends(shown, EARLIEST), await self._asking.ends(shown, LATEST)
        held = await self._asking.log_bytes(shown)

        def make() -> Mapping[str, Any]:
            rows = topic_rows(shown, starts, ends, seen, held)
            return around | {"title": "Topics", "rows": rows, "more": len(sizes) - len(shown)}

        return await self._pages.page("topics.html", "Topics", make)

    async def _topic(self, request: Request) -> Response:
        topic = request.path_params["topic"]
        number = parse_number(request.query_params.get("page", "1"), 10**6, "page")
        sizes = await self._asking.sizes([topic])
        if topic not in sizes:
            raise HttpRefusal(404, "UNKNOWN_TOPIC_OR_PARTITION", f"there is no topic {topic!r} on this node")
        around, seen = self._around(request), await self._seen()
        starts, ends = await self._asking.ends(sizes, EARLIEST), await self._asking.ends(sizes, LATEST)
        held, settings = await self._asking.log_bytes(sizes), await self._asking.topic_settings(topic)
        health = {group: self._figures.health(group) for group, known in seen if knows_topic(known, topic)}

        def make() -> Mapping[str, Any]:
            shown, readers = row_page(number, sizes[topic]), reader_lines(topic, seen, health)
            return around | {
                "title": topic,
                "row": topic_rows(sizes, starts, ends, seen, held)[0],
                "partitions": partition_lines(topic, starts, ends, held, written_to(seen, [topic]), shown),
                "page": shown,
                "page_href": rows_address(request, "page"),
                "readers": readers[:MOST_READERS],
                "more_readers": max(0, len(readers) - MOST_READERS),
                "health_classes": HEALTH_CLASSES,
                "settings": settings,
            }

        return await self._pages.page("topic.html", "Topics", make)

    async def _nodes(self, request: Request) -> Response:
        around, groups = self._around(request), await self._asking.groups()
        health, shards = self._asks.health(), self._asks.node().shards
        has, cluster = await self._asking.resources(), await self._asking.cluster()
        led, me = self._asks.leads(), self._asks.node().node_id
        scheme = request.url.scheme

        def make() -> Mapping[str, Any]:
            cells = [
                PartitionCell(number, "unowned", f"shard {number}: not loaded")
                if number in health.loading
                else PartitionCell(number, "l0", f"shard {number}")
                if led is None or number in led
                else PartitionCell(number, "ln", f"shard {number}: another node leads it, or nobody")
                for number in range(shards)
            ]
            ready = not health.loading and all(condition.warning for condition in health.conditions)
            return around | {
                "title": "Node",
                "state": "stopping"
                if health.draining
                else "ready"
                if ready
                else "in trouble"
                if health.started
                else "loading",
                "loading": health.loading,
                "led": None if led is None else len(led),
                "cluster": None if cluster is None else make_cluster_view(cluster, me, scheme),
                "troubles": health.conditions,
                "groups": f"{len(groups):,}",
                "shards": draw_strips(cells, "shards"),
                "loop_late_ms": has.loop_late_ms,
                "disk": share_of(has.disk_free_bytes, has.disk_total_bytes),
                "memory": share_of(has.resident_bytes, has.memory_bytes),
                "descriptors": f"{has.open_descriptors:,} of {has.descriptor_limit:,}" if has.descriptor_limit else "",
            }

        return await self._pages.page("nodes.html", "Node", make)


def share_of(part: int, whole: int) -> str:
    """
    >>> share_of(3 << 29, 4 << 30), share_of(5 << 20, 64 << 20), share_of(0, 0)
    ('1.5 of 4.0 GiB', '5.0 of 64.0 MiB', '')
    """
    unit, word = (1 << 30, "GiB") if whole >= 1 << 30 else (1 << 20, "MiB")
    return f"{part / unit:,.1f} of {whole / unit:,.1f} {word}" if whole else ""


def is_wanted(entry: Rebalance, cause: str, culprit: str) -> bool:
    return cause in ("", cause_name(entry)) and culprit.lower() in f"{entry.culprit} {entry.culprit_client_id}".lower()
