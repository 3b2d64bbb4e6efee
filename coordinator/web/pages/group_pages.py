"""The routes of one group: its page, a rebalance's permanent page, what if, advice."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from muster.assignors import registry
from muster.coordinator.core.control.settings_table import SETTINGS
from muster.coordinator.observability.views.incidents import GroupIncident, find_incidents
from muster.coordinator.observability.views.ledger import is_rebalance
from muster.coordinator.observability.views.member_names import Names, names_of
from muster.coordinator.web.api.node_queries import NodeQueries
from muster.coordinator.web.api.reading import ADVISER, OVERLOADED
from muster.coordinator.web.http.guard import name_of, segment_of
from muster.coordinator.web.http.node_port import NOBODY, HttpRefusal, NodePort
from muster.coordinator.web.pages.advice_view import make_advice_view
from muster.coordinator.web.pages.forms import ActionPages
from muster.coordinator.web.pages.group_view import SamplerFigures, make_group_view, sentence_of
from muster.coordinator.web.pages.page_data import PageQueries, code_refusal
from muster.coordinator.web.pages.position_view import known_rates
from muster.coordinator.web.pages.rebalance_view import IncidentView, incident_view, rebalance_address, rebalance_view
from muster.coordinator.web.pages.rendering import PageRenderer
from muster.coordinator.web.pages.what_if_view import make_plan_view, question

MOST_LINES: Final = 500
MOST_NEW: Final = 1_000
SECTION: Final = "Groups"
SPANS: Final = {"until it is resumed": "", "15 minutes": 900_000, "1 hour": 3_600_000, "4 hours": 14_400_000}
"""How long something may be held, as the page offers it: words, and milliseconds."""
NODE: Final = ""
"""What is wrong with the node stands on every page, and changes under this name."""


class GroupPages:
    def __init__(self, asks: NodePort, pages: PageRenderer, acting: ActionPages) -> None:
        self._asks = asks
        self._asking = PageQueries(asks)
        self._acting = acting
        self._pages = pages
        self._figures = SamplerFigures(asks.history, asks.sees_figures)

    def routes(self) -> list[Route]:
        return [
            Route("/groups/{rest:path}", self._any, methods=["GET", "POST"]),
        ]

    async def _any(self, request: Request) -> Response:
        """A group's name may have any character, also a slash: the parts of the address are those it was sent with."""
        raw: bytes = request.scope["raw_path"]
        _, _, group, *rest = (name_of(part) for part in raw.decode("latin-1").split("/"))
        match rest:
            case [] if request.method != "POST":
                return await self._group(request, group)
            case ["act"]:
                return await self._acting.answer(request, group)
            case _ if request.method == "POST":
                raise HttpRefusal(405, "METHOD_NOT_ALLOWED", "POST is for acts alone; GET shows this page")
            case ["what-if"]:
                return await self._what_if(request, group)
            case ["advice"]:
                return await self._advice(group)
            case ["rebalances", number]:
                return await self._rebalance(group, parse_number(number, 10**9 - 1, "the rebalance"))
            case _:
                raise HttpRefusal(404, "NOT_FOUND", "there is no such page of a group")

    async def _group(self, request: Request, group: str) -> Response:
        now_ms = self._figures.now_ms()
        by = "rate" if request.query_params.get("by") == "rate" else "lag"
        all_members = request.query_params.get("members") == "all"
        position_page = parse_number(request.query_params.get("positions", "1"), 10**6, "positions")
        mark = self._asks.changes.mark()
        try:
            facts = await self._asking.group(group)
        except HttpRefusal as refusal:
            # Who deleted it is in the ledger; a page that is open says that its group is gone, and stays.
            opened = "hx-request" in request.headers
            if opened or refusal.code != "GROUP_ID_NOT_FOUND":
                raise
            if not (await self._asking.history(group, 1)).rebalances:
                raise
            return RedirectResponse("/ledger?" + urlencode({"group": group}), 303)
        sampled, known = self._figures.of(group), self._figures.rates(group)

        def make() -> Mapping[str, Any]:
            read, written = known_rates(known, "consumed"), known_rates(known, "produced")
            figures = replace(sampled, rates=read, written=written)
            view = make_group_view(facts, figures, now_ms, by, all_members, position_page)
            return {
                "title": group,
                "view": view,
                "self_href": f"/groups/{segment_of(group)}",
                "positions_href": rows_address(request, "positions"),
                "here": page_address(request),
                "trigger": "changed, refresh",
                "events": "/events?" + urlencode([("group", group), ("group", NODE), ("since", mark)]),
                "charts": bool(view.chart),
                "actions": self._acting.allowed and not facts.group.watched,
                "assignors": sorted(registry.known()),
                "known_settings": SETTINGS,
                "spans": SPANS,
            }

        return await self._pages.page("group.html", SECTION, make)

    async def _rebalance(self, group: str, number: int) -> Response:
        explained = await self._asking.history(group, 0)
        history = explained.rebalances
        entry = next((each for each in history if each.number == number), None)
        if entry is None:
            text = f"the ledger has no rebalance {number} of group {group!r}: it was never there, or is too old"
            raise HttpRefusal(404, "NOT_FOUND", text)
        newest = history[0].number

        def make() -> Mapping[str, Any]:
            names = names_of(history)
            incidents = find_incidents(history, names, explained.stalls, explained.moves)
            return {
                "title": f"{'Rebalance' if is_rebalance(entry) else 'Entry'} {number} of {group}",
                "view": rebalance_view(entry, names, 0, MOST_LINES),
                "incident": incident_of(number, incidents, group),
                "before": rebalance_address(group, number - 1),
                "after": rebalance_address(group, number + 1) if number < newest else "",
            }

        return await self._pages.page("rebalance.html", "Ledger", make)

    async def _what_if(self, request: Request, group: str) -> Response:
        given = request.query_params
        assignor, remove = given.get("assignor", ""), [each for each in given.getlist("remove") if each]
        count = parse_number(given.get("add", "0"), MOST_NEW, "add")
        add = [f"new-{number}" for number in range(1, count + 1)]
        answer = await self._asking.simulate(group, [assignor] if assignor else [], add, remove)
        if answer.error_code and not answer.error_message:
            raise code_refusal(answer.error_code, "")

        def make() -> Mapping[str, Any]:
            return {
                "title": f"What if: {group}",
                "group": group,
                "question": question(assignor, add, remove, Names.of_ids(remove)),
                "refusal": answer.error_message,
                "plans": [make_plan_view(each, add, remove) for each in answer.assignments],
            }

        return await self._pages.page("what_if.html", SECTION, make, 200 if not answer.error_code else 409)

    async def _advice(self, group: str) -> Response:
        """A page of its own, and the panel that a group's page loads once it is shown."""
        busy, found = "", None
        try:
            found = await ADVISER.advise(NodeQueries(self._asks, NOBODY), group)
        except HttpRefusal as refusal:
            if refusal.code != OVERLOADED:
                raise
            busy = sentence_of(refusal.text)

        def make() -> Mapping[str, Any]:
            view = make_advice_view(found) if found is not None else None
            return {"title": f"What to change about {group}", "group": group, "view": view, "busy": busy}

        return await self._pages.page("advice.html", SECTION, make)


def incident_of(number: int, incidents: Sequence[GroupIncident], group: str) -> IncidentView | None:
    """What this entry is a part of; None where it stands for itself."""
    found = next((each for each in incidents if number in each.entries), None)
    return None if found is None else incident_view(found, group, {})


def page_address(request: Request) -> str:
    """The address of the page itself, which asks for itself again."""
    path: bytes = request.scope["raw_path"]
    return path.decode("latin-1") + (f"?{request.url.query}" if request.url.query else "")


def rows_address(request: Request, name: str) -> str:
    """The page's own address up to the number of the page of rows, which is the parameter `name`."""
    kept = [(key, value) for key, value in request.query_params.multi_items() if key != name]
    return "?" + urlencode([*kept, (name, "")])


def parse_number(text: str, most: int, field: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) > most:
        raise HttpRefusal(
            400, "INVALID_VALUE", f"{field} is {text[:50]!r}; expected a number from 0 to {most}", field=field
        )
    return int(text)
