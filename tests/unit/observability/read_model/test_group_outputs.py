"""What is told of groups, from a node's answers to what people and programs read: byte for byte as it was recorded.

The same answers go through the admin client, the command line, the HTTP API, the page of a group and the doctor.
`MUSTER_RECORD=1 pytest tests/unit/observability/read_model/test_group_outputs.py` records them again, for a change on
purpose.
"""

import asyncio
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from google.protobuf.message import Message

from muster.assignors.data.consumer_protocol import Subscription, encode_assignment, encode_subscription
from muster.cli.common import options
from muster.cli.main import cli
from muster.client.aio import AsyncAdmin
from muster.client.calls.transport import Transport
from muster.coordinator.rpc.v1 import control_service_pb2 as control_pb
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.rpc.v1 import errors_pb2
from muster.coordinator.rpc.v1.ledger_pb2 import MemberPlan, Rebalance
from muster.coordinator.web.pages.group_view import SampledFigures, make_group_view
from muster.coordinator.web.pages.page_data import PageQueries
from muster.storage.rpc.v1 import broker_service_pb2 as log_pb
from tests.fakes.asked_node import AskedNode
from tests.support.web import browse

RECORDED = Path(__file__).with_name("group_outputs.json")
NOW = 1_700_000_000_000
MINUTE = 60_000
TOPICS = {"t": 4, "u": 2}


def make_member(name: str, owned: dict[str, list[int]], **more: Any) -> pb.DescribedMember:
    given: dict[str, Any] = {
        "member_id": name,
        "client_id": name.partition("-")[0],
        "client_host": "10.0.0.1",
        "member_metadata": encode_subscription(Subscription(1, ("t",))),
        "member_assignment": encode_assignment(owned),
    }
    return pb.DescribedMember(**(given | more))


CANARY = control_pb.Canary(
    state=control_pb.CANARY_STATE_CANARY,
    assignor="lag",
    former="range",
    operator="op at 10.0.0.9",
    began_at_ms=NOW - MINUTE,
    until_ms=NOW + 10 * MINUTE,
    promotes=True,
    guards=[
        control_pb.CanaryGuard(guard="lag > 2x", baseline=10.5, figure=3.25),
        control_pb.CanaryGuard(guard="expired > 0", idle="too early"),
    ],
    lag_floor=1000,
    rebalances=2,
)
HOLDS = control_pb.Holds(
    version=7,
    freeze=control_pb.Freeze(orphans=control_pb.ORPHANS_KEEP),
    freeze_until_ms=NOW + MINUTE,
    deploy=control_pb.Deploy(expect=10),
    deploy_until_ms=NOW + 2 * MINUTE,
    back=7,
    hold_ms=30_000,
    drains=[
        control_pb.HeldDrain(drain=control_pb.Drain(by=control_pb.NAMED_BY_HOST, name="10.0.0.2"), left=1),
        control_pb.HeldDrain(drain=control_pb.Drain(name="b-2"), until_ms=NOW + MINUTE),
    ],
    pins=[
        control_pb.HeldPin(pin=control_pb.Pin(topic="t", partition=3, name="i-1")),
        control_pb.HeldPin(pin=control_pb.Pin(topic="u", partition=0, name="a"), until_ms=NOW + MINUTE),
    ],
    shares=[control_pb.HeldShare(member_id="m-1", client_id="m", partitions=2, until_ms=NOW + MINUTE)],
)
GROUPS = {
    "classic": pb.DescribedGroup(
        group_id="classic",
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        generation_id=9,
        leader="a-1",
        members=[
            make_member("a-1", {"t": [1, 0]}, session_timeout_ms=45_000, rebalance_timeout_ms=300_000),
            make_member(
                "b-2",
                {"t": [2], "u": [0]},
                group_instance_id="pod-2",
                client_software="librdkafka 2.16.0",
                offered_assignors=["range", "cooperative-sticky"],
                last_heard_ms=NOW - 900,
                session_timeout_ms=10_000,
                heartbeat_interval_ms=9_000,
                refused_commits=3,
                refused_commit_code=errors_pb2.ERROR_CODE_ILLEGAL_GENERATION,
                taken_over=4,
            ),
        ],
        progress=pb.GroupProgress(
            sampled_ms=NOW - 1_000, lag=60, trend=-4.12345, eta_seconds=15.06, health="WARN", reason="t-0 lags"
        ),
        planner=pb.GroupPlanner(kept_out="assignor=lag does not count: member a-1 offers stream"),
    ),
    "empty": pb.DescribedGroup(group_id="empty", group_state="Empty", protocol_type="consumer"),
    "foreign": pb.DescribedGroup(
        group_id="foreign",
        group_state="Stable",
        protocol_type="connect",
        protocol_data="sessioned",
        generation_id=2,
        leader="w-1",
        members=[pb.DescribedMember(member_id="w-1", member_metadata=b"\xff\xff", member_assignment=b"\xff\xff")],
    ),
    "kip848": pb.DescribedGroup(
        group_id="kip848",
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="uniform",
        generation_id=12,
        members=[
            make_member(
                "6a1f0c52-9f6e-4f5f-8f58-0242ac120002",
                {"t": [0, 1, 2, 3], "u": [1, 0]},
                client_id="c",
                member_metadata=b"",
                subscribed_topic_names=["u", "t"],
                refused_commits=1,
                refused_commit_code=12_345,
            ),
            make_member("idle", {}, client_id="", member_metadata=b"", subscribed_topic_names=["t"]),
        ],
        progress=pb.GroupProgress(sampled_ms=NOW, lag=0, health="OK", reason="it keeps up"),
        planner=pb.GroupPlanner(assignor="uniform", by_setting=True),
        canary=CANARY,
        balance=control_pb.GroupBalance(
            mode="act", heaviest="idle", ratio=1.98765, paid=2, rounds=3, resting=4, idle="it rests while a canary runs"
        ),
        fences=control_pb.GroupFences(
            count=3,
            newest=[
                control_pb.GroupFence(
                    topic="t",
                    partition=1,
                    member_id="idle",
                    generation=11,
                    producer_id=7000,
                    producer_epoch=1,
                    claimed_at_ms=NOW - MINUTE,
                )
            ],
        ),
    ),
    "rebalancing": pb.DescribedGroup(
        group_id="rebalancing",
        group_state="PreparingRebalance",
        protocol_type="consumer",
        generation_id=3,
        members=[make_member("a-1", {}), make_member("b-2", {}, group_instance_id="pod-2")],
        waiting_for=["b-2"],
        waiting_until_ms=NOW - 20_000,
        balance=control_pb.GroupBalance(mode="watch", idle="a rebalance is under way"),
    ),
    "zk": pb.DescribedGroup(
        group_id="zk",
        group_state="Stable",
        protocol_type="zookeeper",
        members=[make_member("zk_a", {"u": [1]}, member_metadata=b"")],
    ),
}
TYPES = {"kip848": "Consumer", "zk": "zookeeper"}
OF_THE_LEDGER = ("chart", "incidents", "last_moved", "rebalances", "series", "timeline")
HELD, TRIED = {"kip848", "classic"}, {"kip848"}
ENTRY = Rebalance(
    group_id="classic",
    number=4,
    cause=3,
    outcome=1,
    started_at_ms=NOW - 10 * MINUTE,
    ended_at_ms=NOW - 10 * MINUTE + 700,
    culprit="b-2",
    culprit_client_id="b",
    culprit_client_host="10.0.0.1",
    members=[MemberPlan(member_id="a-1", client_id="a"), MemberPlan(member_id="b-2", client_id="b")],
)


def list_groups(request: pb.ListGroupsRequest) -> pb.ListGroupsResponse:
    answer = pb.ListGroupsResponse()
    for name, group in reversed(GROUPS.items()):
        if request.types_filter and TYPES.get(name, "Classic") not in request.types_filter:
            continue
        progress = group.progress if group.HasField("progress") else None
        answer.groups.add(
            group_id=name,
            group_state=group.group_state,
            protocol_type=group.protocol_type,
            group_type=TYPES.get(name, "Classic"),
            progress=progress,
        )
    return answer


def describe_groups(request: pb.DescribeGroupsRequest) -> pb.DescribeGroupsResponse:
    dead = pb.DescribedGroup(group_id="gone", group_state="Dead")
    return pb.DescribeGroupsResponse(groups=[GROUPS.get(name, dead) for name in request.groups])


def fetch_offsets(request: pb.OffsetFetchRequest) -> pb.OffsetFetchResponse:
    """Nothing is committed in t-3, and when is not known of u-1."""
    answer = pb.OffsetFetchResponse()
    asked = {(topic.name, number) for topic in request.topics for number in topic.partition_indexes}
    if request.all_topics:
        asked |= {("t", 0), ("t", 1), ("t", 2), ("u", 1), ("gone", 0)}
    for topic in sorted({topic for topic, _ in asked}):
        line = answer.topics.add(name=topic)
        for number in sorted(number for name, number in asked if name == topic):
            row = line.partitions.add(partition_index=number, committed_offset=-1)
            if (topic, number) != ("t", 3):
                row.committed_offset = 10 + number
                row.commit_timestamp_ms = 0 if (topic, number) == ("u", 1) else NOW - (number + 5) * MINUTE
            if request.include_log_offsets and topic in TOPICS:
                row.log_start_offset, row.log_end_offset = 5, (8 if topic == "u" else 2_000 + number)
    return answer


def get_metadata(request: log_pb.MetadataRequest) -> log_pb.MetadataResponse:
    partitions = {topic: [log_pb.PartitionMetadata()] * count for topic, count in TOPICS.items()}
    return log_pb.MetadataResponse(
        topics=[
            log_pb.TopicMetadata(name=topic, partitions=found)
            for topic, found in partitions.items()
            if not request.topics or topic in request.topics
        ]
    )


def make_node() -> AskedNode:
    node = AskedNode()
    node.answers = {
        "ListGroups": list_groups,
        "DescribeGroups": describe_groups,
        "OffsetFetch": fetch_offsets,
        "Metadata": get_metadata,
        "FindCoordinator": lambda request: pb.FindCoordinatorResponse(host="here", port=1),
        "DescribeConfigs": lambda request: log_pb.DescribeConfigsResponse(),
        "DescribeNode": lambda request: pb.DescribeNodeResponse(now_ms=NOW),
        "DescribeGroupSettings": lambda request: pb.DescribeGroupSettingsResponse(
            version=3, settings={"assignor": '"lag"'}, defaults={"balance": '"off"'}, suspended="it is not offered"
        ),
        "DescribeHolds": lambda request: control_pb.DescribeHoldsResponse(
            holds=HOLDS if request.group_id in HELD else None
        ),
        "DescribeCanary": lambda request: control_pb.DescribeCanaryResponse(
            canary=CANARY if request.group_id in TRIED else None
        ),
        "EndCanary": lambda request: control_pb.EndCanaryResponse(
            canary=control_pb.Canary(state=control_pb.CANARY_STATE_PROMOTED, assignor="lag", ended="by an operator")
        ),
        "ExplainGroup": lambda request: pb.ExplainGroupResponse(
            rebalances=[ENTRY] if request.group_id == "classic" else []
        ),
        "Check": lambda request: health_answer(),
    }
    return node


def health_answer() -> Message:
    from grpc_health.v1 import health_pb2

    return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[AskedNode]:
    """What the clients call is answered by it as well."""
    node = make_node()

    async def answer(transport: Transport, method: Any, request: Message, **more: Any) -> Message:
        return node.answers[method.name](request)

    monkeypatch.setattr(Transport, "call", answer)
    monkeypatch.setattr(Transport, "retried", answer)
    monkeypatch.setattr(options, "require_listening_node", lambda servers: None)
    monkeypatch.setattr(time, "time", lambda: NOW / 1000)
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("COLUMNS", "400")
    time.tzset()
    yield node
    monkeypatch.undo()
    time.tzset()


def check(section: str, found: dict[str, Any]) -> None:
    """As it was recorded."""
    found = json.loads(json.dumps(found, default=str))
    recorded = json.loads(RECORDED.read_text("utf-8")) if RECORDED.exists() else {}
    if os.environ.get("MUSTER_RECORD"):
        text = json.dumps(dict(sorted((recorded | {section: found}).items())), indent=1, ensure_ascii=False)
        RECORDED.write_text(text + "\n", "utf-8")
    else:
        assert found.keys() == recorded[section].keys()
        for name, each in found.items():
            assert each == recorded[section][name], name


def test_values_of_the_admin_client(node: AskedNode) -> None:
    async def gather() -> dict[str, Any]:
        async with AsyncAdmin() as admin:
            found: dict[str, Any] = {"list": list(map(repr, await admin.list_groups()))}
            for name in GROUPS:
                found[f"describe {name}"] = repr(await admin.describe_group(name))
                found[f"lag {name}"] = list(map(repr, await admin.group_lag(name)))
                found[f"holds {name}"] = repr(await admin.group_holds(name))
                found[f"canary {name}"] = repr(await admin.canary(name))
                found[f"settings {name}"] = repr(await admin.group_settings(name))
            found["describe many"] = repr(await admin.describe_groups(["zk", "gone", "empty"]))
            return found

    check("admin", asyncio.run(gather()))


def test_the_command_line(node: AskedNode) -> None:
    found = {}
    commands = [["groups", "list"], ["doctor", "--over", "0"]]
    kinds = (["describe"], ["describe", "--state"], ["members"], ["settings"])
    commands += [["groups", *words, name] for name in GROUPS for words in kinds]
    for command in commands:
        for style in ("table", "wide", "json", "yaml", "csv"):
            result = CliRunner().invoke(cli, [*command, "-o", style])
            lines = [line.rstrip() for line in result.output.split("\n")]
            found[" ".join([*command, "-o", style])] = [result.exit_code, *lines]
    result = CliRunner().invoke(cli, ["top", "--once"])
    found["top --once"] = [result.exit_code, *(line.rstrip() for line in result.output.split("\n"))]
    check("command line", found)


def test_the_http_api(node: AskedNode) -> None:
    found = {}

    async def visit(client: httpx.AsyncClient) -> None:
        paths = ["/groups"]
        for name in (*GROUPS, "gone"):
            paths += [f"/groups/{name}{part}" for part in ("", "/members", "/lag", "/holds", "/canary", "/settings")]
        for path in paths:
            answer = await client.get(f"/api/v1{path}")
            found[path] = [answer.status_code, answer.text]
        token = (await client.get("/api/v1/token")).json()["token"]
        client.cookies.clear()
        given = {"x-muster-token": token}
        for name in ("kip848", "classic"):
            for path, body in (
                (f"/groups/{name}/members/remove", {"all": True}),
                (f"/groups/{name}/canary/end", {"promote": True}),
                (f"/groups/{name}/canary/end", {"promote": True, "dry_run": False}),
                (f"/groups/{name}/offsets", {"to": "start", "all_topics": True}),
            ):
                answer = await client.post(f"/api/v1{path}", json=body, headers=given)
                found[f"POST {path} {body}"] = [answer.status_code, answer.text]

    browse(node, visit)
    check("api", found)


def test_the_page_of_a_group(node: AskedNode) -> None:
    async def gather() -> dict[str, Any]:
        found = {}
        for name in GROUPS:
            facts = await PageQueries(node).group(name)
            view = make_group_view(facts, SampledFigures(rates={("t", 0): 2.5}), NOW)
            shown = asdict(view)
            for part in OF_THE_LEDGER:
                del shown[part]
            if shown["canary"]:
                kept = ("state", "assignor", "former", "until_ms", "promotes", "guards")
                shown["canary"] = {key: shown["canary"][key] for key in kept}
            found[name] = shown
        return found

    check("page", asyncio.run(gather()))


OF_THE_WIRE = re.compile(r"\b(?:pb|group_pb|coordinator_pb)\.(?:DescribedGroup|DescribedMember|ListedGroup)\b")
WRITERS = ("server/services/",)


def test_one_module_reads_what_the_wire_says_of_groups() -> None:
    """Whoever shows groups reads the values that it makes."""
    root = Path(__file__).parents[4]
    rooms = [path for room in ("cli", "client", "coordinator", "spark") for path in (root / room).rglob("*.py")]
    found = {
        str(path.relative_to(root / "coordinator") if path.is_relative_to(root / "coordinator") else path)
        for path in rooms
        if not path.name.endswith("_pb2.py") and OF_THE_WIRE.search(path.read_text("utf-8"))
    }
    readers = {name for name in found if not name.startswith(WRITERS)}
    assert readers == {"observability/read_model/group_mapper.py"}
