"""A node with authorizer=acl: what somebody with no right, and with few, sees of it by gRPC and by HTTP."""

import asyncio
import io
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from muster.assignors.data.consumer_protocol import Subscription, encode_assignment, encode_subscription
from muster.cli.common.commands import Exit
from muster.cli.main import main
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.security.access_model import Acl, Operation, PatternType, Permission, ResourceType
from muster.coordinator.security.state import AclKey, SecurityRecord
from muster.coordinator.server.node.node import CoordinatorNode
from muster.coordinator.server.security.node_security import NodeSecurity
from muster.coordinator.web.api.routes import ALL_ACTION_ENDPOINTS, ALL_READING_ENDPOINTS
from muster.storage.rpc.v1 import broker_service_pb2 as log_pb
from tests.integration.conftest import Run
from tests.support.grpc_node import commit, connected, join_request, serving
from tests.support.logins import bearer, give_token
from tests.support.stubs import BrokerStub, GroupCoordinatorStub

pytestmark = pytest.mark.integration
SECURED = {"authorizer": "acl", "super_users": "User:admin", "http_listeners": "127.0.0.1:0"}
GROUPS = ("billing", "zebra-group")
TOPICS = ("orders", "zebra-topic")
HIDDEN = "zebra"
OF_THE_NODE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[")
"""A line of the node's own log, which is in the same process."""


def allow(kind: str, operation: str, name: str, permission: str = "ALLOW") -> Acl:
    return Acl(
        ResourceType[kind], PatternType.LITERAL, name, "User:bob", "*", Operation[operation], Permission[permission]
    )


@dataclass
class Place:
    node: CoordinatorNode
    security: NodeSecurity
    groups: GroupCoordinatorStub
    broker: BrokerStub
    browser: httpx.AsyncClient
    admin: tuple[tuple[str, str], ...]
    bob: tuple[tuple[str, str], ...]

    async def grant(self, *acls: Acl) -> None:
        await self.security.store.write([SecurityRecord(AclKey(acl), acl) for acl in acls])

    async def take(self, *acls: Acl) -> None:
        await self.security.store.write([SecurityRecord(AclKey(acl), None) for acl in acls])

    async def get(self, path: str, who: tuple[tuple[str, str], ...]) -> httpx.Response:
        return await self.browser.get(path, headers=dict(who))


@asynccontextmanager
async def place(tmp_path: Path, **settings: str) -> AsyncIterator[Place]:
    """Two groups with positions in two topics each; bob may nothing."""
    async with serving(tmp_path, **SECURED, **settings) as node, connected(node, apart=True) as channel:
        security = node._security
        assert security is not None
        assert node.http_bound is not None
        admin = bearer(await give_token(security.store, 1, "User:admin"))
        bob = bearer(await give_token(security.store, 2, "User:bob"))
        host, port = node.http_bound
        async with httpx.AsyncClient(base_url=f"http://{host}:{port}") as browser:
            here = Place(node, security, GroupCoordinatorStub(channel), BrokerStub(channel), browser, admin, bob)
            wanted = [log_pb.NewTopic(name=name, num_partitions=2) for name in TOPICS]
            await here.broker.CreateTopics(log_pb.CreateTopicsRequest(topics=wanted), metadata=admin)
            for group in GROUPS:
                for topic in TOPICS:
                    request = commit(3, 0, topic=topic, group_id=group)
                    assert (await here.groups.OffsetCommit(request, metadata=admin)).topics[0].partitions[
                        0
                    ].error_code == 0
            yield here


def paths(names: dict[str, str]) -> Iterable[str]:
    for endpoint in ALL_READING_ENDPOINTS:
        yield "/api/v1" + endpoint.path.format(**names)
    yield from ("/", "/ledger", "/topics", "/nodes", "/metrics", f"/ledger?group={names['group']}")
    yield from (f"/groups/{names['group']}", f"/groups/{names['group']}/what-if", f"/topics/{names['topic']}")
    yield f"/groups/{names['group']}/rebalances/1"


def plain(text: str, *names: str) -> str:
    """Without what differs from answer to answer, and the names that were asked for."""
    for name in names:
        text = text.replace(name, "NAME")
    return re.sub(r"[0-9a-f]{12,}|\d+", "0", text)


def test_to_who_has_no_right_nothing_exists_by_http(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with place(tmp_path) as here:
            real = list(paths({"group": "zebra-group", "topic": "zebra-topic"}))
            none = list(paths({"group": "nobody-here", "topic": "nothing-there"}))
            for path, other in zip(real, none, strict=True):
                found, missing = await here.get(path, here.bob), await here.get(other, here.bob)
                assert found.status_code == missing.status_code, path
                texts = (
                    plain(found.text, "zebra-group", "zebra-topic"),
                    plain(missing.text, "nobody-here", "nothing-there"),
                )
                assert texts[0] == texts[1], path
                assert found.status_code < 500, (path, found.text)
                if HIDDEN not in path:
                    assert HIDDEN not in found.text, path
            assert (await here.get("/metrics", here.bob)).status_code == 403
            assert HIDDEN in (await here.get("/metrics", here.admin)).text
            assert HIDDEN in (await here.get("/topics", here.admin)).text

    run(story)


def test_who_may_see_one_group_sees_nothing_of_the_other(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with place(tmp_path) as here:
            await here.grant(allow("GROUP", "READ", "billing"), allow("TOPIC", "READ", "orders"))
            for path in paths({"group": "billing", "topic": "orders"}):
                found = await here.get(path, here.bob)
                assert HIDDEN not in found.text, path
            listed = (await here.get("/api/v1/groups", here.bob)).json()
            assert [row["group"] for row in listed] == ["billing"]
            lag = (await here.get("/api/v1/groups/billing/lag", here.bob)).json()
            assert {row["topic"] for row in lag} == {"orders"}
            fetched = await here.groups.OffsetFetch(
                pb.OffsetFetchRequest(group_id="billing", all_topics=True), metadata=here.bob
            )
            assert [topic.name for topic in fetched.topics] == ["orders"]

    run(story)


async def join_both_topics(here: Place, group: str) -> None:
    """A classic member of the one group, a KIP-848 member of the other, that read both topics, and their samples."""
    if group == GROUPS[0]:
        joining = join_request("", group)
        joining.protocols[0].metadata = encode_subscription(Subscription(1, TOPICS, HIDDEN.encode()))
        joining.member_id = (await here.groups.JoinGroup(joining, metadata=here.admin)).member_id
        joined = await here.groups.JoinGroup(joining, metadata=here.admin)
        share = encode_assignment(dict.fromkeys(TOPICS, (0, 1)))
        plan = pb.SyncGroupAssignment(member_id=joined.member_id, assignment=share)
        request = pb.SyncGroupRequest(
            group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[plan]
        )
        assert (await here.groups.SyncGroup(request, metadata=here.admin)).error_code == 0
    else:
        heartbeat = pb.ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="m",
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=pb.SubscribedTopicNames(names=TOPICS),
            topic_partitions=pb.ConsumerAssignment(),
        )
        assert (await here.groups.ConsumerGroupHeartbeat(heartbeat, metadata=here.admin)).error_code == 0


async def sampled(here: Place) -> None:
    """Until the node's sampler has seen both groups with both topics."""
    request = pb.DescribeGroupsRequest(groups=GROUPS)
    async with asyncio.timeout(20):
        while not all(
            group.HasField("progress")
            for group in (await here.groups.DescribeGroups(request, metadata=here.admin)).groups
        ):
            pass


async def printed(here: Place, who: tuple[tuple[str, str], ...], *arguments: str) -> str:
    """What a command prints, both streams."""
    out = io.StringIO()
    given = [*arguments, "--bootstrap", f"127.0.0.1:{here.node.bound.port}"]
    given += ["--set", f"token={dict(who)['authorization'].removeprefix('Bearer ')}"]

    def run() -> None:
        with redirect_stdout(out), redirect_stderr(out):
            assert main(given) in (Exit.OK, Exit.UNHEALTHY), (arguments, out.getvalue())

    await asyncio.to_thread(run)
    return "\n".join(line for line in out.getvalue().splitlines() if not OF_THE_NODE.match(line))


COMMANDS = (
    ("groups", "list", "-o", "wide"),
    ("groups", "list", "-o", "json"),
    *(
        ("groups", *words, group)
        for group in GROUPS
        for words in (
            *(("describe",), ("describe", "--state", "-o", "json"), ("members", "-o", "wide"), ("explain",)),
            *(("explain", "--entries", "--snapshots", "-o", "json"), ("history",)),
        )
    ),
    ("topics", "list"),
    ("top", "--once"),
    ("doctor",),
)


def test_no_door_tells_the_topics_of_a_group_that_somebody_may_not_describe(run: Run, tmp_path: Path) -> None:
    """Groups that bob may see read a topic that he may not: by gRPC, HTTP, page and command line."""

    async def story() -> None:
        hidden, groups = TOPICS[1], GROUPS
        async with place(tmp_path, observe_sample_ms="100") as here:
            for group in groups:
                await join_both_topics(here, group)
                await here.grant(allow("GROUP", "DESCRIBE", group), allow("GROUP", "DESCRIBE_CONFIGS", group))
            await here.grant(allow("TOPIC", "DESCRIBE", TOPICS[0]))
            await sampled(here)
            found: dict[str, str] = {}
            for group in groups:
                for path in paths({"group": group, "topic": TOPICS[0]}):
                    if path == "/metrics":
                        continue
                    answer = await here.get(path, here.bob)
                    assert answer.status_code < 500, (path, answer.text)
                    found[path] = answer.text
            request = pb.DescribeGroupsRequest(groups=groups)
            described = await here.groups.DescribeGroups(request, metadata=here.bob)
            found["DescribeGroups"] = str(described)
            found["ListGroups"] = str(await here.groups.ListGroups(pb.ListGroupsRequest(), metadata=here.bob))
            for command in COMMANDS:
                found[" ".join(command)] = await printed(here, here.bob, *command)
            assert [where for where, text in found.items() if hidden in text] == []
            assert [group.hidden_topics for group in described.groups] == [1, 1]
            assert not any(group.HasField("progress") for group in described.groups)
            for where in (f"groups describe {groups[0]}", f"groups members -o wide {groups[1]}"):
                assert "1 topic that you may not describe is not shown" in found[where]
            assert "everything read" not in found[f"/groups/{groups[0]}"]
            assert hidden in (await here.get(f"/groups/{groups[0]}", here.admin)).text

    run(story)


def test_acts_by_http_need_the_right_of_their_call(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with place(tmp_path) as here:
            await here.grant(allow("GROUP", "DESCRIBE", "billing"), allow("TOPIC", "DESCRIBE", "orders"))
            told = (await here.get("/api/v1/token", here.bob)).json()
            headers = {**dict(here.bob), "x-muster-token": str(told["token"])}
            bodies: dict[str, dict[str, Any]] = {
                "/groups/{group}/hold": {"freeze": {}},
                "/groups/{group}/settings": {"set": {"balance": "watch"}},
                "/groups/{group}/canary": {"assignor": "uniform", "for_ms": 60_000},
            }
            for endpoint in ALL_ACTION_ENDPOINTS:
                path = "/api/v1" + endpoint.path.format(group="billing")
                body = bodies.get(endpoint.path, {}) | {"reason": "test", "dry_run": False}
                answer = await here.browser.request(endpoint.method, path, json=body, headers=headers)
                assert answer.status_code in (400, 403), (path, answer.text)
            removed = await here.browser.post(
                "/api/v1/groups/billing/delete", json={"reason": "test", "dry_run": False}, headers=headers
            )
            assert removed.status_code == 403, removed.text
            assert "lacks DELETE on GROUP 'billing'" in removed.text
            assert "muster acls add" in removed.text
            still = await here.groups.ListGroups(pb.ListGroupsRequest(), metadata=here.admin)
            assert [group.group_id for group in still.groups] == list(GROUPS)

    run(story)


def test_pushed_news_name_no_group_that_the_reader_may_not_see(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with place(tmp_path) as here:
            await here.grant(allow("GROUP", "READ", "billing"))
            async with here.browser.stream("GET", "/events", headers=dict(here.bob)) as events:
                lines = events.aiter_lines()
                for group in ("zebra-group", "billing"):
                    first = await here.groups.JoinGroup(join_request("", group), metadata=here.admin)
                    await here.groups.JoinGroup(join_request(first.member_id, group), metadata=here.admin)
                async with asyncio.timeout(5):
                    async for line in lines:
                        assert HIDDEN not in line
                        if "billing" in line:
                            break

    run(story)


def test_rights_that_are_given_and_taken_hold_at_once(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with place(tmp_path) as here:
            right = allow("GROUP", "DESCRIBE", "billing")
            await here.grant(right)
            watch = here.groups.WatchGroup(pb.WatchGroupRequest(group_id="billing"), metadata=here.bob)
            assert (await watch.read()).group_id == "billing"
            await here.take(right)
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                async with asyncio.timeout(10):
                    await watch.read()
            assert ended.value.code() is grpc.StatusCode.PERMISSION_DENIED
            described = await here.groups.DescribeGroups(
                pb.DescribeGroupsRequest(groups=["billing"]), metadata=here.bob
            )
            assert described.groups[0].error_code == 30

    run(story)


def test_an_open_stream_loses_what_its_member_may_read_no_longer(run: Run, tmp_path: Path) -> None:
    """A KIP-848 member that listens hears at once that it is to let go, and that it may have more."""

    async def story() -> None:
        async with place(tmp_path) as here:
            reads = [allow("TOPIC", "READ", topic) for topic in TOPICS]
            await here.grant(allow("GROUP", "READ", "pushed"), *reads)
            session = here.groups.Session(metadata=here.bob)
            await session.write(pb.SessionRequest(hello=pb.SessionHello(group_id="pushed", member_id="m")))
            assert (await session.read()).WhichOneof("event") == "welcome"
            joining = pb.ConsumerGroupHeartbeatRequest(
                rebalance_timeout_ms=30_000,
                subscribed_topic_names=pb.SubscribedTopicNames(names=TOPICS),
                topic_partitions=pb.ConsumerAssignment(),
            )
            await session.write(pb.SessionRequest(request_number=1, consumer_group_heartbeat=joining))

            async def hears(epoch: int, wanted: set[str]) -> int:
                """Until its share has these topics: what it is told it confirms."""
                async with asyncio.timeout(10):
                    while True:
                        told = (await session.read()).consumer_group_heartbeat
                        epoch = max(epoch, told.member_epoch)
                        if told.HasField("assignment"):
                            share = told.assignment
                            confirmed = pb.ConsumerGroupHeartbeatRequest(member_epoch=epoch, topic_partitions=share)
                            sent = pb.SessionRequest(
                                acknowledged=1_000, request_number=2, consumer_group_heartbeat=confirmed
                            )
                            await session.write(sent)
                            if {part.topic_name for part in share.topic_partitions} == wanted:
                                return epoch

            epoch = await hears(0, set(TOPICS))
            await here.take(reads[1])
            epoch = await hears(epoch, {TOPICS[0]})
            await here.grant(reads[1])
            await hears(epoch, set(TOPICS))
            session.cancel()

    run(story)
