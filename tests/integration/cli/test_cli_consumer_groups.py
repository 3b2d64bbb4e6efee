"""`muster consumer-groups` beside what Kafka's own tool prints: flags, columns, sentences."""

import io
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from muster.cli.main import main
from muster.client import Admin, Consumer, Producer
from tests.support.client_stories import poll_until
from tests.support.node import NodeProcess, running_node

pytestmark = pytest.mark.integration
names = count()
HEADING = [
    "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID",
]  # fmt: skip


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        return [line.split() for line in self.out.splitlines() if line]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(Path(tmp_path_factory.mktemp("kafka-tool") / "data")) as running:
        yield running


def tool(node: NodeProcess, *arguments: str) -> Done:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(["consumer-groups", "--bootstrap-server", node.address, *arguments])
    return Done(code, out.getvalue(), err.getvalue())


@pytest.fixture
def topic(node: NodeProcess) -> str:
    """Two partitions of ten records each."""
    name = f"kafka-tool-{next(names)}"
    with Admin(bootstrap_servers=node.address) as admin:
        admin.create_topic(name, 2)
    with Producer(bootstrap_servers=node.address) as producer:
        for number in range(20):
            producer.produce(name, b"%d" % number, partition=number % 2)
    return name


def positioned(node: NodeProcess, topic: str, at: int) -> str:
    """A group without members that has committed `at` in both partitions."""
    group = f"g-{topic}"
    with Admin(bootstrap_servers=node.address) as admin:
        admin.alter_offsets(group, {(topic, 0): at, (topic, 1): at})
    return group


def test_list_is_names_and_with_state_and_type_a_table(node: NodeProcess, topic: str) -> None:
    group = positioned(node, topic, 3)
    assert group in tool(node, "--list").out.splitlines()
    assert [group, "Empty"] in tool(node, "--list", "--state").rows
    assert tool(node, "--list", "--state", "Stable").rows == [["GROUP", "STATE"]]
    assert [group, "Classic", "Empty"] in tool(node, "--list", "--state", "Empty", "--type").rows
    assert group not in tool(node, "--list", "--type", "consumer").out


def test_describe_shows_positions_members_and_state(node: NodeProcess, topic: str) -> None:
    group = f"g-{topic}"
    with Consumer(
        bootstrap_servers=node.address, group_id=group, client_id="app", enable_auto_commit=False
    ) as consumer:
        consumer.subscribe([topic])
        poll_until(lambda: len(consumer.assignment()) == 2, consumer, what="both partitions")
        member = consumer.consumer_group_metadata().member_id
        consumer.commit(offsets={(topic, 0): 4})
        offsets = tool(node, "--describe", "--group", group)
        assert offsets.rows == [
            HEADING,
            [group, topic, "0", "4", "10", "6", member, "/127.0.0.1", "app"],
            [group, topic, "1", "-", "10", "-", member, "/127.0.0.1", "app"],
        ]
        members = tool(node, "--describe", "--members", "--verbose", "--group", group)
        assert members.rows[1] == [group, member, "-", "/127.0.0.1", "app", "2", f"{topic}(0,1)"]
        state = tool(node, "--describe", "--state", "--group", group)
        assert state.rows[1] == [group, node.address, "(1)", "range", "Stable", "1"]
        refused = tool(node, "--reset-offsets", "--group", group, "--all-topics", "--to-latest", "--execute")
        assert refused.code == 5
        assert f"Assignments can only be reset if the group '{group}' is inactive" in refused.err
    gone = tool(node, "--describe", "--group", group)
    assert f"Consumer group '{group}' has no active members." in gone.err
    assert gone.rows[1] == [group, topic, "0", "4", "10", "6", "-", "-", "-"]


@pytest.mark.parametrize(
    ("position", "offset"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 10),
        (["--to-current"], 3),
        (["--to-offset", "7"], 7),
        (["--to-offset", "99"], 10),
        (["--shift-by", "-2"], 1),
        (["--by-duration", "P1D"], 0),
        (["--to-datetime", "1970-01-01T00:00:00.000"], 0),
    ],
)
def test_reset_to_every_kind_of_position(node: NodeProcess, topic: str, position: list[str], offset: int) -> None:
    group = positioned(node, topic, 3)
    scope = ["--reset-offsets", "--group", group, "--topic", f"{topic}:1", *position]
    dry = tool(node, *scope)
    assert dry.rows[1] == [group, topic, "1", str(offset)]
    assert "--execute option is missing" in dry.err
    assert tool(node, *scope, "--execute").code == 0
    rows = tool(node, "--describe", "--group", group).rows
    assert [row[3] for row in rows[1:]] == ["3", str(offset)]


def test_what_was_exported_can_be_read_back(node: NodeProcess, topic: str, tmp_path: Path) -> None:
    group = positioned(node, topic, 3)
    plan = tmp_path / "plan.csv"
    exported = tool(node, "--reset-offsets", "--group", group, "--all-topics", "--to-current", "--export")
    assert exported.out == f"{topic},0,3\n{topic},1,3\n"
    plan.write_text(exported.out.replace(",3", ",5"))
    done = tool(node, "--reset-offsets", "--group", group, "--from-file", str(plan), "--execute")
    assert [row[3] for row in done.rows[1:]] == ["5", "5"]
    plan.write_text(f"{topic},x,5\n")
    refused = tool(node, "--reset-offsets", "--group", group, "--from-file", str(plan))
    assert (refused.code, "line 1" in refused.err) == (2, True)


def test_offsets_and_groups_are_deleted(node: NodeProcess, topic: str) -> None:
    group = positioned(node, topic, 3)
    done = tool(node, "--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    assert done.rows[-1] == [topic, "0", "Successful"]
    assert [row[2] for row in tool(node, "--describe", "--group", group).rows[1:]] == ["1"]
    done = tool(node, "--delete", "--group", group)
    assert done.out == f"Deletion of requested consumer groups ('{group}') was successful.\n"
    missing = tool(node, "--describe", "--group", group)
    assert (missing.code, f"'{group}' does not exist" in missing.err) == (3, True)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--list", "--describe"],
        ["--describe"],
        ["--describe", "--group", "g", "--members", "--state"],
        ["--delete", "--group", "g", "--all-groups"],
        ["--delete-offsets", "--group", "g"],
        ["--reset-offsets", "--group", "g", "--to-latest"],
        ["--reset-offsets", "--group", "g", "--all-topics"],
        ["--reset-offsets", "--group", "g", "--all-topics", "--to-latest", "--to-earliest"],
        ["--reset-offsets", "--group", "g", "--all-topics", "--by-duration", "PT"],
        ["--reset-offsets", "--group", "g", "--all-topics", "--to-latest", "--execute", "--dry-run"],
    ],
)
def test_combinations_that_make_no_sense_are_refused(node: NodeProcess, arguments: list[str]) -> None:
    assert tool(node, *arguments).code == 2
