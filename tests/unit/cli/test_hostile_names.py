"""What others chose (client ids, reasons, names of groups and topics) can do nothing to whoever reads it."""

import json
import time
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2

from muster.assignors.data.consumer_protocol import Subscription, encode_assignment, encode_subscription
from muster.cli.common import options, output
from muster.cli.main import cli
from muster.client.calls.transport import Transport
from muster.coordinator.rpc.v1 import control_service_pb2 as control_pb
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.rpc.v1 import ledger_pb2
from muster.coordinator.rpc.v1.ledger_pb2 import (
    CoordinatorMove,
    FurtherTrigger,
    Incarnation,
    LateFetch,
    MemberPlan,
    PartitionMove,
    PhaseWait,
    Rebalance,
    RebalancePhase,
    TopicChange,
)
from muster.storage.rpc.v1 import broker_service_pb2 as log_pb

NOW = 1_700_000_000_000
EVIL = "pay\x1b[2J\x1b]0;pwn\x07\x9b2J\u202e\x00\r\n  cause    member crashed   by billing-7"
"""ESC, OSC, CSI as one character, what turns the direction of writing, NUL, and a line that looks like the ledger's."""
FORGED = "\n  cause    member crashed"
STYLES = ("table", "wide", "csv", "json", "yaml")
COMMANDS = [
    ["groups", "list"],
    ["groups", "describe", EVIL],
    ["groups", "describe", "--state", EVIL],
    ["groups", "members", EVIL],
    ["groups", "explain", EVIL],
    ["groups", "explain", "--entries", EVIL],
    ["groups", "history", EVIL],
    ["groups", "settings", EVIL],
    ["topics", "list"],
]
KAFKA_COMMANDS = [
    ["consumer-groups", "--list"],
    ["consumer-groups", "--list", "--state"],
    ["consumer-groups", "--describe", "--group", EVIL],
    ["consumer-groups", "--describe", "--members", "--verbose", "--group", EVIL],
    ["consumer-groups", "--describe", "--state", "--group", EVIL],
]


def make_group() -> pb.DescribedGroup:
    return pb.DescribedGroup(
        group_id=EVIL,
        group_state="PreparingRebalance",
        protocol_type="consumer",
        protocol_data=EVIL,
        generation_id=9,
        members=[
            pb.DescribedMember(
                member_id=EVIL,
                client_id=EVIL,
                client_host=EVIL,
                group_instance_id=EVIL,
                client_software=EVIL,
                member_metadata=encode_subscription(Subscription(1, ("t",))),
                member_assignment=encode_assignment({"t": [0]}),
            )
        ],
        waiting_for=[EVIL],
        progress=pb.GroupProgress(sampled_ms=NOW, lag=3, health="WARN", reason=EVIL),
        planner=pb.GroupPlanner(kept_out=EVIL, assignor=EVIL, by_setting=True),
    )


def make_entry(outcome: int = 1) -> Rebalance:
    snapshot = {"assignor": EVIL, "options": {"fallback": EVIL, "reason": EVIL, "held": EVIL}}
    return Rebalance(
        group_id=EVIL,
        number=4,
        generation=4,
        protocol_name=EVIL,
        cause=ledger_pb2.REBALANCE_CAUSE_MEMBER_LEFT,
        outcome=outcome,  # type: ignore[arg-type]
        culprit=EVIL,
        culprit_client_id=EVIL,
        culprit_client_host=EVIL,
        detail=EVIL + " left",
        client_reason=EVIL,
        certainty=ledger_pb2.CERTAINTY_INFERRED,
        evidence=EVIL,
        started_at_ms=NOW,
        ended_at_ms=NOW + 700,
        members=[MemberPlan(member_id=EVIL, client_id=EVIL, client_host=EVIL)],
        moves=[PartitionMove(topic=EVIL, source=EVIL, target=EVIL, why=EVIL)],
        phases=[
            RebalancePhase(
                name=EVIL, duration_ms=4, waits=[PhaseWait(member_id=EVIL, client_id=EVIL, came=2, after_ms=3)]
            )
        ],
        also=[EVIL],
        triggers=[FurtherTrigger(culprit=EVIL, detail=EVIL, at_ms=NOW)],
        topics=[TopicChange(topic=EVIL, kind=2, before=1, after=2, at_ms=NOW, by=EVIL)],
        incarnations=[Incarnation(member_id=EVIL, previous_id=EVIL, how=EVIL)],
        late_fetches=[LateFetch(member_id=EVIL, topic=EVIL, partitions=[0])],
        positions=[ledger_pb2.PositionChange(topic=EVIL)],
        snapshot_json=json.dumps(snapshot),
        snapshot_source="remote",
    )


def fetch_offsets(request: pb.OffsetFetchRequest) -> pb.OffsetFetchResponse:
    answer = pb.OffsetFetchResponse()
    answer.topics.add(name=EVIL).partitions.add(partition_index=0, committed_offset=1, log_end_offset=9)
    return answer


ANSWERS: dict[str, Any] = {
    "ListGroups": lambda request: pb.ListGroupsResponse(
        groups=[
            pb.ListedGroup(
                group_id=EVIL,
                group_state="Stable",
                protocol_type=EVIL,
                group_type="Classic",
                progress=pb.GroupProgress(health="WARN", reason=EVIL),
            )
        ]
    ),
    "DescribeGroups": lambda request: pb.DescribeGroupsResponse(groups=[make_group()]),
    "OffsetFetch": fetch_offsets,
    "Metadata": lambda request: log_pb.MetadataResponse(
        topics=[log_pb.TopicMetadata(name=EVIL, partitions=[log_pb.PartitionMetadata()])]
    ),
    "FindCoordinator": lambda request: pb.FindCoordinatorResponse(host="here", port=1),
    "DescribeConfigs": lambda request: log_pb.DescribeConfigsResponse(),
    "DescribeNode": lambda request: pb.DescribeNodeResponse(now_ms=NOW),
    "DescribeGroupSettings": lambda request: pb.DescribeGroupSettingsResponse(
        version=3, settings={"assignor": json.dumps(EVIL)}, suspended=EVIL
    ),
    "DescribeHolds": lambda request: control_pb.DescribeHoldsResponse(
        holds=control_pb.Holds(drains=[control_pb.HeldDrain(drain=control_pb.Drain(name=EVIL), left=1)])
    ),
    "DescribeCanary": lambda request: control_pb.DescribeCanaryResponse(),
    "Check": lambda request: health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING),
    "ExplainGroup": lambda request: pb.ExplainGroupResponse(
        rebalances=[make_entry(), make_entry(7)], moves=[CoordinatorMove(cause=EVIL, serving_ms=NOW)]
    ),
}


@pytest.fixture
def hostile_node(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(transport: Transport, method: Any, request: Message, **more: Any) -> Message:
        found: Message = ANSWERS[method.name](request)
        return found

    monkeypatch.setattr(Transport, "call", answer)
    monkeypatch.setattr(Transport, "retried", answer)
    monkeypatch.setattr(options, "require_listening_node", lambda servers: None)
    monkeypatch.setattr(time, "time", lambda: NOW / 1000)
    monkeypatch.setenv("COLUMNS", "4000")


def run(words: list[str]) -> str:
    """Both streams."""
    made = CliRunner().invoke(cli, words)
    if made.exception is not None and not isinstance(made.exception, SystemExit):
        raise made.exception
    assert made.output
    return made.output


def assert_harmless(text: str) -> None:
    assert not [char for char in text if not char.isprintable() and char != "\n"]
    assert FORGED not in text


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2]))
def test_no_command_passes_on_what_would_command_a_terminal(
    hostile_node: None, monkeypatch: pytest.MonkeyPatch, words: list[str], style: str, terminal: bool
) -> None:
    monkeypatch.setattr(output, "on_terminal", lambda: terminal)
    text = run([*words[:2], "-o", style, *words[2:]])
    if style == "csv" and not terminal:
        return  # it is for a program, and exact
    if style == "csv":
        # Line ends of a cell are the format's own: what stands in it begins no new command of the terminal.
        assert not [char for char in text if not char.isprintable() and char != "\n"]
    else:
        assert_harmless(text)


@pytest.mark.parametrize("words", KAFKA_COMMANDS, ids=" ".join)
def test_the_tables_of_kafka_s_tool_do_not_either(
    hostile_node: None, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    text = run(words)
    assert not [char for char in text if not char.isprintable() and char != "\n"]


def test_names_come_whole_out_of_json_and_yaml() -> None:
    document = [{"client": EVIL, "other": "grün \U0001f600 \U000e0001", "lines": "a\nb"}]
    assert json.loads(output.format_json(document)) == document
    assert yaml.safe_load(output.format_yaml(document)) == document
    assert_harmless(output.format_json(document).replace("\\n", ""))
    assert_harmless(output.format_yaml(document))


def test_a_client_id_forges_no_line_of_the_story(hostile_node: None) -> None:
    """A client called `x\\n  cause    member crashed   by payments-7` told whom to blame."""
    story = run(["groups", "explain", "--entries", EVIL])
    assert sum(line.startswith("  cause ") for line in story.splitlines()) <= 2
