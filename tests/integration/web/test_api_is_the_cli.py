"""What the API answers is what the command line prints with `-o json`: the same objects, of the same node."""

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import pytest
from openapi_spec_validator import validate

from muster.cli.main import main
from muster.client import Admin, Consumer
from tests.support.node import NodeProcess, running_node
from tests.support.pace import Patience

pytestmark = pytest.mark.integration

GROUP = "orders/of 100%"
"""With what an address has words of its own for."""
ADDRESS = "orders%2Fof%20100%25"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """With a topic of four partitions, and a group of one member that has committed in it, set up and rebalanced."""
    data: Path = tmp_path_factory.mktemp("api") / "data"
    settings = {"http.listeners": "127.0.0.1:0", "group.initial.rebalance.delay.ms": "0"}
    with running_node(data, settings) as running, Admin({"bootstrap.servers": running.address}) as admin:
        admin.create_topic("orders", 4, {"retention.ms": "3600000"})
        admin.alter_group_settings(GROUP, {"assignor.options": {"seed": 1}})
        with Consumer({"bootstrap.servers": running.address, "group.id": GROUP, "client.id": "one"}) as member:
            member.subscribe(["orders"])
            patience = Patience(60)
            while len(member.assignment()) < 4:
                assert patience.lasts()
                member.poll(0.1)
            member.commit(offsets={("orders", 0): 0, ("orders", 2): 0})
            yield running


def printed(node: NodeProcess, *arguments: str) -> Any:
    out, err = io.StringIO(), io.StringIO()
    with mock.patch.dict("os.environ", {"MUSTER_BOOTSTRAP": node.address}), redirect_stdout(out), redirect_stderr(err):
        assert main([*arguments, "-o", "json"]) == 0, err.getvalue()
    return json.loads(out.getvalue())


SAME = (
    ("/groups", ("groups", "list")),
    ("/groups?state=Stable", ("groups", "list", "--state", "Stable")),
    ("/groups?state=Empty", ("groups", "list", "--state", "Empty")),
    (f"/groups/{ADDRESS}", ("groups", "describe", "--state", GROUP)),
    (f"/groups/{ADDRESS}/lag", ("groups", "describe", GROUP)),
    (f"/groups/{ADDRESS}/members", ("groups", "members", GROUP)),
    (f"/groups/{ADDRESS}/history", ("groups", "history", GROUP)),
    (f"/groups/{ADDRESS}/explain", ("groups", "explain", "--entries", GROUP)),
    (
        f"/groups/{ADDRESS}/explain?snapshots=true&limit=1",
        ("groups", "explain", "--entries", "--snapshots", "--limit", "1", GROUP),
    ),
    (f"/groups/{ADDRESS}/settings", ("groups", "settings", GROUP)),
    ("/topics", ("topics", "list")),
    ("/topics?internal=true", ("topics", "list", "--internal")),
    ("/topics/orders", ("topics", "describe", "orders")),
    ("/settings", ("settings", "--running")),
    ("/settings?changed=true", ("settings", "--running", "--changed")),
)


@pytest.mark.parametrize(("path", "command"), SAME, ids=[path for path, _ in SAME])
def test_both_say_the_same(node: NodeProcess, path: str, command: tuple[str, ...]) -> None:
    answer = httpx.get(f"http://{node.http}/api/v1{path}")
    assert answer.status_code == 200, answer.text
    assert answer.json() == printed(node, *command)


def test_advice_is_that_of_the_command(node: NodeProcess) -> None:
    """Both judge until now."""
    (answered,) = httpx.get(f"http://{node.http}/api/v1/groups/{ADDRESS}/advice").json()
    (told,) = printed(node, "advise", GROUP)
    assert answered["window"].pop("to_ms") <= told["window"].pop("to_ms")
    assert answered == told


def test_every_address_of_the_document_is_there_and_shown(node: NodeProcess) -> None:
    described = httpx.get(f"http://{node.http}/api/v1/openapi.json").json()
    validate(described)
    shown = {path.partition("?")[0].replace(ADDRESS, "{group}") for path, _ in SAME}
    reading = {path for path, item in described["paths"].items() if "get" in item}
    assert {path.removeprefix("/api/v1") for path in reading} == (shown - {"/topics/orders"}) | {
        "/topics/{topic}",
        "/nodes",
        "/groups/{group}/incidents",
        "/groups/{group}/advice",
        "/groups/{group}/holds",
        "/groups/{group}/canary",
    }


def test_what_is_not_there_is_404(node: NodeProcess) -> None:
    for path, code in (
        ("/groups/nobody", "GROUP_ID_NOT_FOUND"),
        ("/groups/nobody/members", "GROUP_ID_NOT_FOUND"),
        ("/groups/nobody/lag", "GROUP_ID_NOT_FOUND"),
        ("/topics/nothing", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("/groups/a/b", "NOT_FOUND"),
    ):
        answer = httpx.get(f"http://{node.http}/api/v1{path}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, code), path
