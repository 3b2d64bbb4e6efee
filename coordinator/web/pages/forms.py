"""What an operator may change from the page: announced first, with figures, and done only after it is confirmed.

The actions are the API's own; a form needs no script. The token in a form is one that a foreign page cannot have.
"""

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response

from muster.coordinator.observability.views.groups import watched_words
from muster.coordinator.web.api.actions import (
    Act,
    AlterSettingsBody,
    DeleteGroupBody,
    RemoveMembers,
    ResetOffsets,
    alter_settings,
    delete_group,
    remove_members,
    reset_offsets,
)
from muster.coordinator.web.api.endpoint import EndpointRequest, Handler, validate_body
from muster.coordinator.web.api.node_queries import NodeQueries
from muster.coordinator.web.api.overrides import (
    EndCanaryBody,
    HoldGroupBody,
    ResumeGroupBody,
    StartCanaryBody,
    end_canary,
    hold_group,
    resume_group,
    start_canary,
)
from muster.coordinator.web.http.identity import SessionTokens, identity_of
from muster.coordinator.web.http.node_port import HttpCaller, HttpRefusal, NodePort
from muster.coordinator.web.pages.rendering import PageRenderer

HANDLERS: Final[Mapping[type[Act], Handler]] = {
    RemoveMembers: remove_members,
    ResetOffsets: reset_offsets,
    DeleteGroupBody: delete_group,
    AlterSettingsBody: alter_settings,
    HoldGroupBody: hold_group,
    ResumeGroupBody: resume_group,
    StartCanaryBody: start_canary,
    EndCanaryBody: end_canary,
}
QUESTIONS: Final = {
    "remove": "Remove a member?",
    "reset": "Reset offsets?",
    "delete": "Delete this group?",
    "set": "Change a setting?",
    "unset": "Unset a setting?",
    "freeze": "Freeze this group?",
    "deploy": "Begin a deploy?",
    "drain": "Drain a member?",
    "pin": "Pin a partition?",
    "resume": "End what is held of this group?",
    "canary": "Try another assignor?",
    "promote": "Keep the assignor on trial?",
    "rollback": "End the trial?",
}
FIELDS: Final = (
    *("act", "member", "to", "name", "value", "reason"),
    *("orphans", "expect", "for_ms", "topic", "partition", "what", "assignor"),
)
MOST_ROWS: Final = 50
ADOPT: Final = (
    "To have Muster coordinate it, run nodes over that Kafka and use muster engine adopt (docs/over-your-kafka.md)."
)


class ActionPages:
    def __init__(self, asks: NodePort, pages: PageRenderer, tokens: SessionTokens, *, actions: bool) -> None:
        self._asks = asks
        self._pages = pages
        self._tokens = tokens
        self.allowed = actions

    async def answer(self, request: Request, group: str) -> Response:
        """GET says what would be done; POST, with the token of that page, does it."""
        if watched := self._asks.node().watched:
            raise HttpRefusal(409, "ONLY_WATCHED", f"{watched_words(watched)}, so nothing can be changed here. {ADOPT}")
        if not self.allowed:
            raise HttpRefusal(403, "READ_ONLY", "this node only shows (http.actions=false); use the command line")
        doing = request.method == "POST"
        given = parse_form(await request.body()) if doing else dict(request.query_params)
        if doing:
            self._tokens.check(request, given.get("token", ""))
        act = make_act(given, dry_run=not doing)
        host = request.client.host if request.client else ""
        caller = HttpCaller(host, request.headers.get("user-agent", "")[:200], act.reason, identity_of(request.scope))
        told = await HANDLERS[type(act)](
            NodeQueries(self._asks, caller), EndpointRequest({"group": group}, {}, "", act)
        )
        found = json.loads(bytes(told.body))
        token = self._tokens.token(request)

        def make() -> Mapping[str, Any]:
            rows, moves = found.get("rows", []), found.get("moves") or []
            return {
                "title": QUESTIONS[given["act"]],
                "question": QUESTIONS[given["act"]],
                "group": group,
                "done": doing,
                "sentence": found["sentence"],
                "warnings": found["warnings"][:MOST_ROWS],
                "rows": rows[:MOST_ROWS],
                "more": max(0, len(rows) - MOST_ROWS),
                "moves": moves[:MOST_ROWS],
                "more_moves": max(0, len(moves) - MOST_ROWS),
                "given": {key: given[key] for key in FIELDS if key in given and key != "reason"},
                "reason": given.get("reason", ""),
                "token": token,
            }

        answer = await self._pages.page("act.html", "Groups", make)
        self._tokens.remember(answer, token)
        return answer


def parse_form(body: bytes) -> dict[str, str]:
    """What a form sent; refused (400) when it is none."""
    try:
        return dict(parse_qsl(body.decode()))
    except ValueError:
        text = "the body is not a form in UTF-8; send what the page's own forms do"
        raise HttpRefusal(400, "MALFORMED_REQUEST", text) from None


def make_act(given: Mapping[str, str], *, dry_run: bool) -> Act:
    """What a form asks for; refused (400) when it is no act."""
    act = given.get("act", "")
    common: dict[str, Any] = {"dry_run": dry_run, "reason": given.get("reason", "")[:1_000]}
    match act:
        case "remove":
            return RemoveMembers(members=[given.get("member", "")], **common)
        case "reset":
            return ResetOffsets(to=given.get("to", "")[:100], all_topics=True, **common)
        case "delete":
            return DeleteGroupBody(**common)
        case "set":
            return AlterSettingsBody(set={given.get("name", ""): parse_setting(given.get("value", ""))}, **common)
        case "unset":
            return AlterSettingsBody(unset=[given.get("name", "")], **common)
        case "freeze" | "deploy" | "drain" | "pin":
            return validate_body(HoldGroupBody, {"verb": act, **make_override_fields(given), **common})
        case "canary":
            said = make_override_fields(given)
            return validate_body(
                StartCanaryBody, {"assignor": given.get("assignor", ""), "for_ms": said.get("for_ms"), **common}
            )
        case "promote" | "rollback":
            return EndCanaryBody(promote=act == "promote", **common)
        case "resume":
            return validate_body(ResumeGroupBody, {"what": given.get("what", ""), **common})
        case _:
            expected = ", ".join(QUESTIONS)
            raise HttpRefusal(400, "INVALID_VALUE", f"{act[:50]!r} is not an act; expected {expected}", field="act")


def make_override_fields(given: Mapping[str, str]) -> dict[str, Any]:
    """What a form of a verb says; a number that is none is refused (400) by its name."""
    said: dict[str, Any] = {key: given[key] for key in ("orphans", "name", "topic") if given.get(key)}
    for key in ("expect", "for_ms", "partition"):
        if text := given.get(key, ""):
            if not (text.isascii() and text.isdigit() and len(text) <= 15):
                raise HttpRefusal(400, "INVALID_VALUE", f"{key} is {text[:50]!r}; expected a whole number", field=key)
            said[key] = int(text)
    return said


def parse_setting(text: str) -> JsonValue:
    """JSON, or text where it is none, as `muster groups set` takes it.

    >>> parse_setting('{"a": 1}'), parse_setting("plain")
    ({'a': 1}, 'plain')
    """
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value
