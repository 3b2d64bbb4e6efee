"""`muster engine`: what is asked for wrongly, the lines for kafka-acls, and how a survey is told."""

from pathlib import Path

import pytest

from muster.cli.common.commands import Exit
from muster.cli.engine import find_troubles, node_rows, shard_rows, status_document
from muster.cli.main import main
from muster.coordinator.kafka_backend.inspection import BackendSurvey, SurveyedShard, assignment_of
from muster.coordinator.kafka_backend.shard_ownership.shard_assignment import (
    AssignedNode,
    ShardAssignment,
    encode_assignment,
)
from muster.coordinator.kafka_backend.upstream.group_requests import UpstreamMember

OVER = ["--engine", "kafka://b1:9092"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["engine", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["status"], "no Kafka is named; expected --engine kafka://HOST:PORT, or engine in --config"),
        (["adopt", *OVER], "name groups, or say --all PATTERN"),
        (["adopt", *OVER, "g", "--all", ".*"], "name groups, or say --all PATTERN"),
        (["acls", *OVER], "who Muster's nodes are in that Kafka is not known; expected --principal User:NAME"),
    ],
)
def test_what_is_asked_for_wrongly(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    code, _, err = run(capsys, *arguments)
    assert (code, said in err) == (Exit.USAGE, True)


def test_an_upstream_that_does_not_answer_is_unhealthy(capsys: pytest.CaptureFixture[str], unused: int) -> None:
    code, _, err = run(capsys, "status", "--engine", f"kafka://127.0.0.1:{unused}")
    assert code == Exit.UNHEALTHY
    assert "no broker of the upstream at 127.0.0.1" in err


def test_a_nodes_own_file_will_do_though_it_says_where_the_node_listens(
    capsys: pytest.CaptureFixture[str], unused: int, tmp_path: Path
) -> None:
    """Its addresses come with the command that starts it, as in deploy/engine; these commands want none."""
    text = (Path(__file__).parents[3] / "deploy/engine/engine.properties").read_text()
    file = tmp_path / "engine.properties"
    file.write_text(text.replace("kafka:9092", f"127.0.0.1:{unused}"))
    code, _, err = run(capsys, "status", "--config", str(file))
    assert (code, f"no broker of the upstream at 127.0.0.1:{unused} answers" in err) == (Exit.UNHEALTHY, True), err


@pytest.fixture
def unused() -> int:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_acls_are_lines_for_kafkas_tool(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "acls", *OVER, "--principal", "User:muster", "--group", "shop", "--deny", "User:an app")
    tool = "kafka-acls.sh --bootstrap-server b1:9092 --add"
    lines = [line for line in out.splitlines() if not line.startswith("#")]
    assert code == Exit.OK
    assert lines[0] == (
        f"{tool} --allow-principal User:muster --topic muster.state --operation Read --operation Write "
        "--operation Create --operation Describe --operation DescribeConfigs"
    )
    assert lines[-2:] == [
        f"{tool} --allow-principal User:muster --group shop --operation Read",
        f"{tool} --deny-principal 'User:an app' --group shop --operation Read",
    ]


def test_those_as_whom_clients_come_are_denied_what_is_muster_s(capsys: pytest.CaptureFixture[str]) -> None:
    given = {
        "engine.kafka.security.protocol": "SSL",
        "engine.kafka.proxy.principal": "User:CN=the apps",
        "engine.kafka.proxy.ssl.keystore.location": "apps.pem",
    }
    more = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    _, out, _ = run(capsys, "acls", *OVER, "--principal", "User:muster", *more)
    denied = "kafka-acls.sh --bootstrap-server b1:9092 --add --deny-principal 'User:CN=the apps'"
    assert [line for line in out.splitlines() if not line.startswith("#")][-5:] == [
        f"{denied} --topic muster.state --operation All",
        f"{denied} --topic muster.security --operation All",
        f"{denied} --transactional-id muster.shard- --resource-pattern-type prefixed --operation All",
        f"{denied} --transactional-id muster.security --operation All",
        f"{denied} --group muster.nodes --operation All",
    ]


def test_without_a_group_they_are_made_of_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "acls", *OVER, "--principal", "User:muster")
    assert out.splitlines()[-1].endswith("--group '*' --operation Read")


NODES = (
    AssignedNode(1, "i1", {"grpc": "m1:9290", "kafka": "m1:9092"}, (0, 1)),
    AssignedNode(2, "i2", {"grpc": "m2:9290"}, (2,), draining=True),
)
FOUND = BackendSurvey(
    "upstream",
    {1: "b1:9092"},
    1,
    "muster.state",
    NODES,
    {1: "/10.0.0.1"},
    (SurveyedShard(0, 1, 1, 10), SurveyedShard(1, 1, -1), SurveyedShard(2, 2, 1, 0), SurveyedShard(3, -1, 1, 0)),
)


def test_a_survey_for_people_and_for_programs() -> None:
    assert [(row["node"], row["state"], row["shards"], row["host"]) for row in node_rows(FOUND)] == [
        (1, "up", 2, "10.0.0.1"),
        (2, "draining", 1, None),
    ]
    assert [tuple(row.values()) for row in shard_rows(FOUND)] == [
        (0, 1, 1, 10),
        (1, 1, None, None),
        (2, 2, 1, 0),
        (3, None, 1, 0),
    ]
    assert status_document(FOUND)["upstream"]["brokers"] == [{"id": 1, "address": "b1:9092"}]
    assert find_troubles(FOUND) == ["1 shard nobody's: 3", "1 shard without a leader in muster.state: 1"]


def test_the_map_is_read_from_what_members_were_given() -> None:
    told = encode_assignment(ShardAssignment(4, {node.node: node for node in NODES}))
    assignment, hosts = assignment_of(
        {
            UpstreamMember("node-1-uuid", "", "/10.0.0.1"): told,
            UpstreamMember("node-12-uuid", "", "/x"): b"",
            UpstreamMember("?", "", ""): b"[",
        }
    )
    assert (assignment.nodes[1], hosts) == (NODES[0], {1: "/10.0.0.1"})
