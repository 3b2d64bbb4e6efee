"""HTTP where it is asked who asks: headers for programs, a login for browsers, nothing for anybody else."""

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest

from muster.coordinator.security.state import SecurityState
from muster.coordinator.server.security.authentication import CallerAuthenticator
from muster.coordinator.web.app import make_app
from tests.fakes.asked_node import AskedNode
from tests.support.logins import api_token
from tests.support.web import web_settings

TOKEN, KNOWN = api_token(1, "User:ci")
BEARER = {"authorization": f"Bearer {TOKEN}"}
PAGE = {"accept": "text/html,*/*"}

Visit = Callable[[httpx.AsyncClient], Awaitable[None]]


def visit(told: Visit, node: AskedNode | None = None, state: SecurityState | None = None, **settings: str) -> None:
    async def run() -> None:
        known = state or SecurityState()
        known.apply([KNOWN])
        app = make_app(node or AskedNode(), web_settings(**settings), gate=CallerAuthenticator(known))
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:9291") as client:
            await told(client)

    asyncio.run(run())


@pytest.mark.parametrize("path", ["/api/v1/nodes", "/metrics", "/events", "/api/v1/token", "/nothing", "/groups/a/act"])
def test_who_has_shown_nothing_hears_what_to_bring_and_nothing_else(path: str) -> None:
    async def told(client: httpx.AsyncClient) -> None:
        answer = await client.get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "NOT_AUTHENTICATED")
        assert answer.headers["www-authenticate"] == 'Bearer realm="muster"'
        assert "authorization: Bearer" in answer.json()["error"]["message"]

    visit(told)


def test_a_token_in_the_header_is_let_in_and_handlers_hear_whose() -> None:
    async def told(client: httpx.AsyncClient) -> None:
        assert (await client.get("/api/v1/nodes", headers=BEARER)).status_code == 200
        assert (await client.get("/api/v1/nodes", headers={"authorization": "Bearer x"})).status_code == 401

    visit(told)


def test_a_browser_is_led_to_the_login_and_back() -> None:
    node = AskedNode()
    node.draining = True

    async def told(client: httpx.AsyncClient) -> None:
        sent = await client.get("/nodes", headers=PAGE)
        assert (sent.status_code, sent.headers["location"]) == (303, "/login?next=/nodes")
        form = await client.get(sent.headers["location"])
        assert 'value="/nodes"' in form.text
        assert "127.0.0.1:9290" not in form.text
        wrong = await client.post("/login", data={"token": "muster_wrong", "next": "/nodes"})
        assert wrong.status_code == 401
        assert "not known here" in wrong.text
        right = await client.post("/login", data={"token": TOKEN, "next": "/nodes"})
        assert (right.status_code, right.headers["location"]) == (303, "/nodes")
        cookie = right.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert (await client.get("/nodes", headers=PAGE)).status_code == 503  # let in: the node says that it is stopped
        assert "User:ci" in (await client.get("/login")).text
        out = await client.post("/login")
        assert (out.status_code, out.headers["location"]) == (303, "/login")
        assert (await client.get("/nodes", headers=PAGE)).status_code == 303

    visit(told, node)


def test_a_foreign_page_logs_nobody_in_and_a_login_leads_nowhere_else() -> None:
    async def told(client: httpx.AsyncClient) -> None:
        data = {"token": TOKEN, "next": "//evil.example/"}
        foreign = await client.post("/login", data=data, headers={"origin": "http://evil.example"})
        assert foreign.status_code == 403
        own = await client.post("/login", data=data, headers={"origin": "http://localhost:9291"})
        assert own.headers["location"] == "/"

    visit(told)


def test_a_stranger_s_form_is_read_as_far_as_a_token_may_be_long() -> None:
    async def told(client: httpx.AsyncClient) -> None:
        answer = await client.post("/login", content=b"token=" + b"x" * (40 << 10))
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "REQUEST_TOO_LARGE")

    visit(told)


def test_a_part_of_a_page_that_is_asked_for_says_where_the_login_is() -> None:
    async def told(client: httpx.AsyncClient) -> None:
        answer = await client.get("/nodes", headers={"hx-request": "true", **PAGE})
        assert (answer.status_code, answer.headers["hx-redirect"]) == (401, "/login")

    visit(told)


def test_probes_say_yes_or_no_to_everybody_and_why_to_those_who_are_known() -> None:
    node = AskedNode()
    node.load(1, done=False)

    async def told(client: httpx.AsyncClient) -> None:
        assert (await client.get("/healthz")).status_code == 200
        plain = await client.get("/readyz")
        assert (plain.status_code, plain.json()) == (503, {"status": "not ready"})
        assert "missing" in (await client.get("/readyz", headers=BEARER)).json()

    visit(told, node)

    async def closed(client: httpx.AsyncClient) -> None:
        assert (await client.get("/readyz")).status_code == 401

    visit(closed, node, http_probes_anonymous="false")


def test_an_open_stream_of_events_ends_with_its_token() -> None:
    state = SecurityState()

    async def run() -> None:
        state.apply([KNOWN])
        gate, node = CallerAuthenticator(state), AskedNode()
        app = make_app(node, web_settings(), gate=gate)
        begun = asyncio.Event()

        async def receive() -> dict[str, object]:
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: object) -> None:
            begun.set()

        scope = {
            "type": "http", "method": "GET", "path": "/events", "raw_path": b"/events", "query_string": b"",
            "headers": [(b"authorization", f"Bearer {TOKEN}".encode())], "client": ("10.0.0.1", 1),
            "http_version": "1.1", "scheme": "http", "server": ("localhost", 1), "root_path": "",
        }  # fmt: skip
        stream = asyncio.create_task(app(scope, receive, send))  # type: ignore[arg-type]
        await begun.wait()
        state.apply([KNOWN._replace(value=None)])
        gate.changed()
        with pytest.raises(ConnectionAbortedError, match="revoked"):
            await stream

    asyncio.run(run())
