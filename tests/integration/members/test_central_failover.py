"""A central group of processes: one is killed, one is frozen, the coordinator is killed and comes back."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from muster.client import Admin
from muster.client.described import GroupDescription
from muster.client.errors import ClientError
from muster.coordinator.core.model.types import Cause
from tests.support.node import NodeProcess, running_node
from tests.support.pace import Patience, pace

pytestmark = pytest.mark.integration

GROUP = TOPIC = "orders"
PARTITIONS = 6
SESSION_MS = 3_000
PATIENCE_S = 60.0
LOOK_EVERY_S = 0.05


@contextmanager
def consumers(node: NodeProcess, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """`muster consume` in processes of their own."""
    running = [consume(node) for _ in range(count)]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()


def consume(node: NodeProcess) -> subprocess.Popen[bytes]:
    command = [str(Path(sys.executable).with_name("muster")), "consume", "--bootstrap", node.address]
    command += ["--topic", TOPIC, "--group", GROUP]
    for setting in ("group.protocol=central", f"session.timeout.ms={SESSION_MS}"):
        command += ["--set", setting]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def described(node: NodeProcess, wanted: Callable[[GroupDescription], bool], what: str) -> GroupDescription:
    """The group, as soon as it is as wanted."""
    patience = Patience(PATIENCE_S)
    found: GroupDescription | None = None
    while patience.lasts():
        try:
            with Admin(bootstrap_servers=node.address, default_api_timeout_ms=2_000) as admin:
                found = admin.describe_group(GROUP)
        except ClientError:
            found = None
        if found is not None and wanted(found):
            return found
        time.sleep(LOOK_EVERY_S)
    raise AssertionError(f"not within {PATIENCE_S} s: {what}; the group is {found}")


def stable(members: int) -> Callable[[GroupDescription], bool]:
    def of_so_many(group: GroupDescription) -> bool:
        shares = [member.assignment for member in group.members]
        return group.state == "Stable" and len(shares) == members and sum(map(len, shares)) == PARTITIONS

    return of_so_many


def shares(group: GroupDescription) -> dict[str, object]:
    return {member.member_id: member.assignment for member in group.members}


def test_three_consumers_live_through_it(tmp_path: Path) -> None:
    with running_node(tmp_path / "data", {"group.central.rebalance.backoff.ms": "200"}) as node:
        with Admin(bootstrap_servers=node.address) as admin:
            admin.create_topic(TOPIC, PARTITIONS)
        with consumers(node, 3) as running:
            before = described(node, stable(3), "three consumers share")

            # The coordinator dies and comes back: everybody registers again with what it has, nothing is moved.
            node.kill()
            node.start()
            after = described(node, stable(3), "the same three are back")
            assert (shares(after), after.generation) == (shares(before), before.generation)

            # One is killed: its partitions are kept for its session, then they move.
            victim = running.pop(0)
            victim.kill()
            victim.wait()
            two = described(node, stable(2), "two are left")
            (gone,) = shares(before).keys() - shares(two).keys()
            assert newest_cause(node) == (Cause.SESSION_EXPIRED, gone)

            # Another one comes, and one leaves in good order.
            running.append(consume(node))
            described(node, stable(3), "the newcomer has its share")
            leaver = running.pop(0)
            leaver.send_signal(signal.SIGINT)
            leaver.wait(timeout=PATIENCE_S * pace())
            described(node, stable(2), "two are left again")
            assert newest_cause(node)[0] is Cause.MEMBER_LEFT

            # One is frozen for longer than its session: it is given up, and is a newcomer when it wakes.
            frozen = running[0]
            os.kill(frozen.pid, signal.SIGSTOP)
            described(node, stable(1), "the frozen one is given up")
            os.kill(frozen.pid, signal.SIGCONT)
            described(node, stable(2), "it is back")
            assert frozen.poll() is None


def newest_cause(node: NodeProcess) -> tuple[Cause, str]:
    with Admin(bootstrap_servers=node.address) as admin:
        newest = admin.explain(GROUP, limit=1)[0]
    return Cause(newest.cause), newest.culprit
