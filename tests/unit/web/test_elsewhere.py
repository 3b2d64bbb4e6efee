"""A group that another node coordinates: its addresses lead there, whatever they ask."""

import httpx
import pytest

from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.web.http.node_port import CoordinatingNode
from tests.fakes.asked_node import AskedNode
from tests.support.web import browse, get

THERE = CoordinatingNode(8, "node-8.example:9290", "node-8.example:9291")


@pytest.fixture
def node() -> AskedNode:
    node = AskedNode()
    node.owners = dict.fromkeys(("far", "a/b", ".."), THERE)
    node.answers["ListGroups"] = lambda request: pb.ListGroupsResponse()
    return node


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/groups/far",
        "/api/v1/groups/far/lag?limit=5&offset=2",
        "/api/v1/groups/a%2Fb/history",
        "/api/v1/groups/=../settings",
        "/groups/far",
        "/groups/a%2Fb/what-if?add=x%20y",
        "/groups/far/rebalances/7",
    ],
)
def test_what_is_asked_of_a_group_is_answered_by_its_coordinator(node: AskedNode, path: str) -> None:
    answer = get(node, path)
    assert (answer.status_code, answer.headers["location"]) == (307, f"http://node-8.example:9291{path}")
    assert answer.headers["cache-control"] == "no-store"
    body = answer.json()
    assert body["error"]["code"] == "NOT_COORDINATOR"
    assert body["owner"] == {"node": 8, "address": "node-8.example:9290", "http_address": "node-8.example:9291"}
    assert node.asked == []


def test_an_act_goes_there_as_it_is(node: AskedNode) -> None:
    async def visit(client: httpx.AsyncClient) -> None:
        answer = await client.post("/api/v1/groups/far/delete", json={"dry_run": False})
        assert (answer.status_code, answer.headers["location"][-27:]) == (307, ":9291/api/v1/groups/far/delete"[-27:])

    browse(node, visit)
    assert node.asked == []


def test_a_coordinator_without_a_page_is_named(node: AskedNode) -> None:
    node.owners["far"] = CoordinatingNode(9, "node-9.example:9290", "")
    answer = get(node, "/api/v1/groups/far")
    assert answer.status_code == 503
    assert "node 9 at node-9.example:9290, which serves no HTTP" in answer.json()["error"]["message"]
    assert answer.json()["owner"]["node"] == 9


def test_what_is_of_no_group_is_answered_here(node: AskedNode) -> None:
    assert get(node, "/api/v1/groups").status_code == 200
    assert get(node, "/healthz").status_code == 200
