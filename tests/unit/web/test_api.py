"""The API's own part: parameters, pages of rows, refusals, and turns of the loop that stay short."""

import asyncio
from itertools import pairwise

import httpx
import pytest

from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.web.http.responses import encode_rows
from tests.fakes.asked_node import AskedNode
from tests.support.web import browse, get


@pytest.fixture
def node() -> AskedNode:
    """With 25 groups, g00 to g24."""
    node = AskedNode()
    listed = [pb.ListedGroup(group_id=f"g{number:02}", group_state="Stable") for number in range(25)]
    node.answers["ListGroups"] = lambda request: pb.ListGroupsResponse(groups=reversed(listed))
    return node


def test_rows_come_in_pages_and_each_says_where_the_next_one_is(node: AskedNode) -> None:
    seen: list[str] = []

    async def visit(client: httpx.AsyncClient) -> None:
        path = "/api/v1/groups?limit=10&state=Stable&state=Empty"
        while path:
            answer = await client.get(path)
            assert answer.headers["x-total-count"] == "25"
            seen.extend(row["group"] for row in answer.json())
            path = answer.links.get("next", {}).get("url", "")

    browse(node, visit)
    assert seen == [f"g{number:02}" for number in range(25)]
    assert [list(request.states_filter) for _, request, _ in node.asked] == [["Stable", "Empty"]] * 3


def test_a_method_that_is_not_taken_hears_which_are(node: AskedNode) -> None:
    async def visit(client: httpx.AsyncClient) -> None:
        answer = await client.put("/api/v1/groups")
        assert answer.status_code == 405
        said = answer.json()["error"]["message"]
        assert said.endswith(f"expected {answer.headers['allow']}")
        assert "GET" in said
        answer = await client.put("/api/v1/groups/g/settings")
        assert answer.headers["allow"] == "GET, HEAD, POST"

    browse(node, visit)


@pytest.mark.parametrize(
    ("query", "field", "said"),
    [
        ("limit=0", "limit", "expected a whole number from 1 to 100000"),
        ("limit=100001", "limit", "expected a whole number from 1 to 100000"),
        ("limit=-1", "limit", "'-1'"),
        ("limit=%D9%A1", "limit", "expected a whole number"),
        ("limit=" + "9" * 5000, "limit", "expected a whole number"),
        ("limit=1&limit=2", "limit", "expected one value"),
        ("state=Happy", "state", "expected one of Empty, PreparingRebalance"),
        ("type=bogus", "type", "expected one of classic, consumer, central, zookeeper"),
        ("stat=Stable", "stat", "expected state, type, with_members, limit, offset"),
    ],
)
def test_a_parameter_that_is_wrong_is_named(node: AskedNode, query: str, field: str, said: str) -> None:
    answer = get(node, f"/api/v1/groups?{query}")
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["code"], error["field"]) == ("MALFORMED_REQUEST", field)
    assert said in error["message"]
    assert len(error["message"]) < 500
    assert node.asked == []


def test_groups_of_shards_that_are_not_served_are_missed_aloud(node: AskedNode) -> None:
    assert "x-missing-shards" not in get(node, "/api/v1/groups").headers
    node.load(2, done=False)
    assert get(node, "/api/v1/groups").headers["x-missing-shards"] == "2"


@pytest.mark.parametrize(("code", "status"), [(14, 503), (16, 503), (-1, 500), (42, 400), (69, 404)])
def test_a_refusal_of_the_protocol_has_its_own_status(node: AskedNode, code: int, status: int) -> None:
    node.answers["ListGroups"] = lambda request: pb.ListGroupsResponse(error_code=code, error_message="because")
    answer = get(node, "/api/v1/groups")
    assert answer.status_code == status
    assert "because" in answer.json()["error"]["message"]
    assert ("retry-after" in answer.headers) is (status == 503)


def test_who_asks_is_told_to_the_node(node: AskedNode) -> None:
    get(node, "/api/v1/groups", user_agent="Mozilla/5.0")
    [(_, _, by)] = node.asked
    assert (by.host, by.software) == ("127.0.0.1", "muster-http")


def test_a_long_list_lets_others_have_their_turn() -> None:
    """Each row takes longer than a turn of the writer may: after each, whoever waits is let in."""
    turns: list[str] = []

    def slow_row(number: int) -> int:
        until = asyncio.get_running_loop().time() + 0.002
        while asyncio.get_running_loop().time() < until:
            pass
        turns.append("row")
        return number

    async def other() -> None:
        for _ in range(20):
            turns.append("other")
            await asyncio.sleep(0)

    async def run() -> bytes:
        beside = asyncio.create_task(other())
        written = b"".join([piece async for piece in encode_rows(range(10), slow_row)])
        await beside
        return written

    assert asyncio.run(run()) == b"[0,1,2,3,4,5,6,7,8,9]"
    assert ("row", "row") not in pairwise(turns)
