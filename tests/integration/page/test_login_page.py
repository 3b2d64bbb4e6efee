"""The page of a node that asks who calls, in a real browser: a token is typed once, and ends with its session."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from muster.coordinator.server.security.security_store import SecurityStore
from muster.storage.broker.broker import Broker
from tests.support.chromium import Watched
from tests.support.logins import give_token
from tests.support.node import running_node

pytestmark = pytest.mark.integration
SETTINGS = {"http.listeners": "127.0.0.1:0", "authorizer": "acl", "super.users": "User:admin"}


def given_token(data: Path) -> str:
    broker = Broker(data, node_id=1)
    store = SecurityStore(broker)
    store.load()
    token = asyncio.run(give_token(store, 1, "User:admin"))
    broker.close()
    return token


@pytest.fixture(scope="module")
def token_and_data(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Before a browser has its loop: no other can be started then."""
    data = tmp_path_factory.mktemp("login") / "data"
    return given_token(data), data


def test_a_token_is_typed_once_and_logged_out(token_and_data: tuple[str, Path], chromium: Any) -> None:
    token, data = token_and_data
    with running_node(data, SETTINGS) as node:
        watched = Watched(chromium, f"http://{node.http}")
        page = watched.page
        page.goto(f"{watched.url}/topics")
        assert page.url == f"{watched.url}/login?next=/topics"
        for typed, there in (("wrong", "/login"), (token, "/topics")):
            page.fill("input[name=token]", typed)
            page.get_by_role("button", name="Log in").click()
            page.wait_for_url(watched.url + there)
        assert "Topics" in page.inner_text("main")
        assert [token in str(cookie) for cookie in watched.context.cookies() if cookie["httpOnly"]] == [True]
        assert token not in page.evaluate("document.cookie")
        watched.open("/login")
        page.get_by_role("button", name="Log out").click()
        page.wait_for_url(f"{watched.url}/login")
        page.goto(f"{watched.url}/")
        assert page.url == f"{watched.url}/login?next=/"
        assert [said for said in watched.wrong if "401" not in said] == []
        watched.context.close()
