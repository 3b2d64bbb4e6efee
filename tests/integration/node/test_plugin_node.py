"""Plugins as one would rather not have them, on a real node: what they do is their group's trouble, and told."""

import os
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from muster.client import Admin, Consumer
from muster.coordinator.rpc.v1.ledger_pb2 import RebalanceCause
from tests.support import plugins
from tests.support.client_stories import Told, poll_until
from tests.support.node import NodeProcess, running_node
from tests.support.pace import pace

pytestmark = pytest.mark.integration
names = count()

DEADLINE_MS = 400
SETTINGS = {
    "group.remote.assignors": ",".join(
        f"tests.support.plugins:{kind.__name__}" for kind in [*plugins.NASTY, plugins.Prints]
    ),
    "group.assignor.deadline.ms": str(DEADLINE_MS),
    "group.assignor.max.memory.bytes": str(128 << 20),
    "group.assignor.max.processes": "2",
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    # Which of its limits a plugin meets first is not for the machine's load to say.
    deadline = {"group.assignor.deadline.ms": str(round(DEADLINE_MS * pace()))}
    with running_node(Path(tmp_path_factory.mktemp("plugins") / "data"), SETTINGS | deadline) as running:
        yield running


@pytest.fixture
def admin(node: NodeProcess) -> Iterator[Admin]:
    with Admin(bootstrap_servers=node.address) as admin:
        yield admin


@pytest.fixture
def topic(admin: Admin) -> str:
    name = f"nasty-{next(names)}"
    admin.create_topic(name, 4)
    return name


def member(node: NodeProcess, topic: str, group: str, told: Told | None = None, **more: object) -> Consumer:
    quick = {"heartbeat_interval_ms": 50, "session_timeout_ms": 2_000}
    consumer = Consumer(bootstrap_servers=node.address, group_id=group, **(quick | more))
    consumer.subscribe([topic], **(told.callbacks() if told else {}))
    return consumer


def health(node: NodeProcess) -> tuple[int, str]:
    words = ["health", "--bootstrap", node.address]
    run = f"import sys; from muster.cli.main import main; sys.exit(main({words!r}))"
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True)
    return done.returncode, done.stderr


def children(node: NodeProcess) -> list[int]:
    assert node._process is not None
    threads = Path(f"/proc/{node._process.pid}/task").iterdir()
    found: list[int] = []
    for thread in threads:
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            found += map(int, (thread / "children").read_text().split())
    return found


@pytest.mark.parametrize("kind", plugins.NASTY, ids=lambda kind: kind.name)
def test_a_bad_plugin_costs_its_group_a_plan_and_nobody_else_anything(
    node: NodeProcess, admin: Admin, topic: str, kind: type
) -> None:
    neighbours, said = Told(), plugins.NASTY[kind]
    with member(node, topic, f"{topic}-neighbour", neighbours) as neighbour:
        poll_until(lambda: len(neighbour.assignment()) == 4, neighbour, what="the neighbour has all")

        def tried_twice() -> bool:
            entries = admin.explain(topic) if topic in {group.group_id for group in admin.list_groups()} else []
            failures = [e for e in entries if e.cause == RebalanceCause.REBALANCE_CAUSE_ASSIGNOR_FAILED]
            return any(said in line for e in failures for line in [e.detail, *e.also])

        word = f"tests.support.plugins:{kind.__name__}"
        with member(node, topic, topic, group_remote_assignor=word) as stuck:
            poll_until(tried_twice, neighbour, stuck, what="the ledger tells of the failure")
            code, complaint = health(node)
            assert code == 4
            assert f"assignor-failing:{topic}: group '{topic}': assignor" in complaint
            assert said in complaint
        assert len(neighbours.assigned) == 1, "the neighbour was left alone"
        assert not neighbours.lost
    told = (node.data.parent / f"{node.data.name}.log").read_text()
    assert told.count(f"assignor-failing:{topic}") == 1, "one line when it begins, however often it fails"
    assert len(children(node)) <= 2


@pytest.mark.parametrize("kind", [plugins.Raises, plugins.Loops], ids=lambda kind: kind.name)
def test_a_bad_plugin_is_refused_when_it_is_set(node: NodeProcess, admin: Admin, topic: str, kind: type) -> None:
    """It is tried first: the sentence has file and line, the node's log the traceback, and the group goes on."""
    with member(node, topic, topic) as consumer:
        poll_until(lambda: len(consumer.assignment()) == 4, consumer, what="all")
        with pytest.raises(Exception, match=re.escape(plugins.__file__) + r", line \d+, in assign") as refused:
            admin.alter_group_settings(topic, {"assignor": f"tests.support.plugins:{kind.__name__}"})
        assert "tried on the group as it is, and nothing was changed" in str(refused.value)
        assert "assignor" not in admin.group_settings(topic).values
    told = (node.data.parent / f"{node.data.name}.log").read_text()
    assert f"assignor-failing:{topic}" not in told
    assert ("Traceback" in told and "out of cheese" in told) or kind is plugins.Loops


def test_one_that_prints_is_as_good_as_any(node: NodeProcess, admin: Admin, topic: str) -> None:
    with member(node, topic, topic, group_remote_assignor="tests.support.plugins:Prints") as consumer:
        poll_until(lambda: len(consumer.assignment()) == 4, consumer, what="all")
    assert "spam" not in node.log_tail()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_node_ends_in_the_middle_of_an_endless_plan_and_leaves_nothing_behind(tmp_path: Path, how: str) -> None:
    """One call in C that would take hours; by SIGTERM in order, and by SIGKILL at once."""
    counts = {"group.remote.assignors": "tests.support.plugins:Counts"}
    with running_node(tmp_path / "data", counts) as node, Admin(bootstrap_servers=node.address) as admin:
        admin.create_topic("t", 4)
        with member(node, "t", "g", group_remote_assignor="tests.support.plugins:Counts") as stuck:
            poll_until(lambda: bool(children(node)), stuck, what="a process at work on the plan")
            watched = [os.pidfd_open(pid) for pid in children(node)]
            if how == "stop":
                assert node.stop() == 0
            else:
                node.kill()
    for descriptor in watched:
        assert select.select([descriptor], [], [], 30)[0], "a plugin's process outlives its node"
        os.close(descriptor)
