"""What the API changes: only for who may, only when told to, with figures before and who and why with it."""

from typing import Any

import httpx
import pytest

from muster.assignors.data.consumer_protocol import encode_assignment
from muster.coordinator.core.watched.watched_shard import ONLY_WATCHED
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.web.pages.forms import parse_setting
from muster.storage.rpc.v1 import broker_service_pb2 as log_pb
from tests.fakes.asked_node import AskedNode
from tests.support.web import browse

FOREIGN = ({"origin": "http://evil.example"}, {"origin": "null"}, {"origin": "http://localhost:1"})


@pytest.fixture
def node() -> AskedNode:
    """With topic t of two partitions (5 to 20 each) and group g, without members, at 10 and 15."""
    node = AskedNode()
    node.answers["DescribeGroups"] = lambda request: pb.DescribeGroupsResponse(
        groups=[pb.DescribedGroup(group_id=request.groups[0], group_state="Empty")]
    )
    node.answers["OffsetFetch"] = offsets
    node.answers["Metadata"] = lambda request: log_pb.MetadataResponse(
        topics=[log_pb.TopicMetadata(name="t", partitions=[log_pb.PartitionMetadata()] * 2)]
    )
    node.answers["ListOffsets"] = ends
    node.answers["OffsetCommit"] = lambda request: pb.OffsetCommitResponse()
    return node


def offsets(request: pb.OffsetFetchRequest) -> pb.OffsetFetchResponse:
    rows = [pb.OffsetFetchPartition(partition_index=p, committed_offset=10 + 5 * p) for p in (0, 1)]
    return pb.OffsetFetchResponse(topics=[pb.OffsetFetchTopicResult(name="t", partitions=rows)])


def ends(request: log_pb.ListOffsetsRequest) -> log_pb.ListOffsetsResponse:
    at = {-2: 5, -1: 20}
    return log_pb.ListOffsetsResponse(
        topics=[
            log_pb.ListOffsetsTopicResult(
                name=topic.name,
                partitions=[
                    log_pb.ListOffsetsPartitionResult(partition_index=p.partition_index, offset=at[p.timestamp])
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def act(
    node: AskedNode,
    path: str,
    body: Any,
    headers: dict[str, str] | None = None,
    content: bytes | None = None,
    **settings: str,
) -> httpx.Response:
    """One act with a token, as a program asks for it; `content`: just these bytes."""
    answers = []

    async def visit(client: httpx.AsyncClient) -> None:
        token = (await client.get("/api/v1/token")).json()["token"]
        client.cookies.clear()
        given = {"x-muster-token": token, **(headers or {})}
        if content is None:
            answers.append(await client.post(f"/api/v1{path}", json=body, headers=given))
            return
        given["content-type"] = "application/json"
        answers.append(await client.post(f"/api/v1{path}", content=content, headers=given))

    browse(node, visit, **settings)
    return answers[0]


def acts(node: AskedNode) -> list[str]:
    return [method for method, _, _ in node.asked if method in ("OffsetCommit", "DeleteGroups", "RemoveMembers")]


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/groups/g/offsets", {"to": "12", "all_topics": True}),
        ("/groups/g/members/remove", {"all": True}),
        ("/groups/g/delete", {}),
        ("/groups/g/settings", {"set": {"assignor": "range"}}),
        ("/groups/g/canary/end", {"promote": True}),
    ],
)
def test_what_only_watches_refuses_a_dry_run_as_it_does_the_change(
    node: AskedNode, path: str, body: dict[str, Any], dry_run: bool
) -> None:
    node.watched = "the Kafka at b1:9092"
    answer = act(node, path, body | {"dry_run": dry_run})
    assert answer.status_code == 400
    assert answer.json()["error"] == {"code": "INVALID_REQUEST", "message": f"group 'g': {ONLY_WATCHED}"}
    assert [method for method, _, _ in node.asked if method != "Metadata"] == []


def test_a_dry_run_says_with_figures_what_it_would_do_and_does_nothing(node: AskedNode) -> None:
    answer = act(node, "/groups/g/offsets", {"to": "12", "all_topics": True})
    assert answer.status_code == 200, answer.text
    assert answer.json()["sentence"] == (
        "2 positions of 2 would be set: 3 records will be read again, 2 records will not be read"
    )
    assert [(row["current_offset"], row["new_offset"]) for row in answer.json()["rows"]] == [(10, 12), (15, 12)]
    assert acts(node) == []


def test_the_node_is_told_who_does_it_and_why(node: AskedNode) -> None:
    body = {"to": "-100", "topics": ["t:1"], "dry_run": False, "reason": "poison pill"}
    answer = act(node, "/groups/g/offsets", body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["warnings"] == ["t-1 has offsets 5 to 20; -85 becomes 5"]
    [(commit, by)] = [(request, by) for method, request, by in node.asked if method == "OffsetCommit"]
    assert isinstance(commit, pb.OffsetCommitRequest)
    assert [(p.partition_index, p.committed_offset) for p in commit.topics[0].partitions] == [(1, 5)]
    assert (by.host, by.reason) == ("127.0.0.1", "poison pill")


def test_members_that_go_are_counted_with_what_they_hold(node: AskedNode) -> None:
    share = encode_assignment({"t": [0, 1]})
    members = [pb.DescribedMember(member_id=name, member_assignment=share) for name in ("a", "b")]
    node.answers["DescribeGroups"] = lambda request: pb.DescribeGroupsResponse(
        groups=[pb.DescribedGroup(group_id="g", group_state="Stable", members=members)]
    )
    node.answers["RemoveMembers"] = lambda request: pb.RemoveMembersResponse()
    told = act(node, "/groups/g/members/remove", {"members": ["a"]}).json()["sentence"]
    assert told.startswith("1 of 2 members would be removed; they hold 2 partitions")
    assert acts(node) == []
    stranger = act(node, "/groups/g/members/remove", {"members": ["a", "c"], "dry_run": False})
    assert (stranger.status_code, acts(node)) == (404, [])
    assert act(node, "/groups/g/members/remove", {"members": ["a"], "dry_run": False, "reason": "x"}).status_code == 200
    [request] = [request for method, request, _ in node.asked if method == "RemoveMembers"]
    assert isinstance(request, pb.RemoveMembersRequest)
    assert [(member.member_id, member.reason) for member in request.members] == [("a", "x")]
    for path in ("/groups/g/offsets", "/groups/g/delete"):
        body = {"dry_run": False} | ({"to": "end", "all_topics": True} if path.endswith("offsets") else {})
        assert act(node, path, body).status_code == 409


def test_a_node_that_only_shows_changes_nothing(node: AskedNode) -> None:
    answer = act(node, "/groups/g/offsets", {"to": "end", "all_topics": True, "dry_run": False}, http_actions="false")
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "READ_ONLY")
    assert node.asked == []


@pytest.mark.parametrize("headers", [{"x-muster-token": ""}, {"x-muster-token": "a.b.c"}, *FOREIGN])
def test_a_foreign_page_changes_nothing(node: AskedNode, headers: dict[str, str]) -> None:
    answer = act(node, "/groups/g/offsets", {"to": "end", "all_topics": True, "dry_run": False}, headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "FORBIDDEN")
    assert node.asked == []


def test_a_browser_needs_the_session_that_its_token_is_of(node: AskedNode) -> None:
    statuses: list[int] = []

    async def visit(client: httpx.AsyncClient) -> None:
        first = await client.get("/api/v1/token")
        cookie = first.headers["set-cookie"].lower()
        assert all(word in cookie for word in ("httponly", "samesite=strict", "path=/"))
        own = {"x-muster-token": first.json()["token"], "origin": "http://localhost:9291"}
        body = {"to": "end", "all_topics": True}
        statuses.append((await client.post("/api/v1/groups/g/offsets", json=body, headers=own)).status_code)
        # The same session is told the same token: two open pages do not shut each other out.
        assert (await client.get("/api/v1/token")).json() == first.json()
        client.cookies.clear()
        statuses.append((await client.post("/api/v1/groups/g/offsets", json=body, headers=own)).status_code)
        other = (await client.get("/api/v1/token")).json()["token"]
        assert other != first.json()["token"]
        statuses.append((await client.post("/api/v1/groups/g/offsets", json=body, headers=own)).status_code)

    browse(node, visit)
    assert statuses == [200, 403, 403]


def test_no_answer_lets_another_site_read_it(node: AskedNode) -> None:
    async def visit(client: httpx.AsyncClient) -> None:
        for path in ("/api/v1/token", "/api/v1/groups/g/offsets"):
            asked = {"origin": "http://evil.example", "access-control-request-method": "POST"}
            for answer in (await client.options(path, headers=asked), await client.get(path, headers=asked)):
                assert not [name for name in answer.headers if name.startswith("access-control")]

    browse(node, visit)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ([], ""),
        ({"to": "end"}, "topics"),
        ({"to": "nowhere", "all_topics": True}, "to"),
        ({"to": "end", "all_topics": "yes"}, "all_topics"),
        ({"to": "end", "all_topics": True, "dryrun": False}, "dryrun"),
        ({"to": "end", "topics": ["t:2"]}, "topics"),
        ({"to": "end", "topics": ["t:٣"]}, "topics"),
        ({"to": "end", "all_topics": True, "reason": "x" * 1_001}, "reason"),
    ],
)
def test_a_body_that_is_wrong_is_told_where(node: AskedNode, body: Any, field: str) -> None:
    answer = act(node, "/groups/g/offsets", body)
    assert answer.status_code == 400
    assert answer.json()["error"].get("field", "") == field
    assert acts(node) == []


def test_a_body_that_is_no_object_is_told_what_is_expected(node: AskedNode) -> None:
    assert act(node, "/groups/g/offsets", []).json()["error"]["message"] == "the body is no JSON object; send one"


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b'{"to": NaN}'])
def test_a_body_that_is_no_json_is_refused(node: AskedNode, body: bytes) -> None:
    async def visit(client: httpx.AsyncClient) -> None:
        token = (await client.get("/api/v1/token")).json()["token"]
        headers = {"x-muster-token": token, "content-type": "application/json"}
        answer = await client.post("/api/v1/groups/g/offsets", content=body, headers=headers)
        assert answer.status_code == 400, answer.text
        form = await client.post("/api/v1/groups/g/offsets", data={"to": "end"}, headers={"x-muster-token": token})
        assert form.status_code == 415

    browse(node, visit)


@pytest.mark.parametrize("body", [b"\xff=1", b"token=t&act=set&value=\xff", b"act=%ff&token="])
def test_a_form_that_is_none_is_refused(node: AskedNode, body: bytes) -> None:
    async def visit(client: httpx.AsyncClient) -> None:
        answer = await client.post("/groups/g/act", content=body)
        assert answer.status_code in (400, 403), answer.text

    browse(node, visit)


def test_a_value_that_nests_without_end_or_has_half_a_character_is_the_coordinator_s_to_refuse(node: AskedNode) -> None:
    asked: list[pb.AlterGroupSettingsRequest] = []
    node.answers["DescribeGroupSettings"] = lambda _: pb.DescribeGroupSettingsResponse()
    node.answers["AlterGroupSettings"] = lambda request: (
        asked.append(request) or pb.AlterGroupSettingsResponse(error_code=40, error_message="half a character")
    )
    answer = act(node, "/groups/g/settings", None, content=b'{"set": {"a": "\\ud800"}}')
    assert (answer.status_code, asked[0].set["a"]) == (400, '"\\ud800"')
    assert parse_setting("[" * 100_000) == "[" * 100_000
