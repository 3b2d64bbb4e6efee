"""`muster demo --cluster`: three nodes, a kill of the one that coordinates, its return, and the proof.

A producer sends numbered lines with acks=all and records what was acknowledged when. The demo shows which node leads
and which worker owns what, the takeover as the ledger has it, and what members noticed of it.
"""

import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from muster.cli.common.commands import CommandError, raise_if_interrupted
from muster.cli.demo.delivery_proof import (
    Place,
    ProofTable,
    ReportedReads,
    checksum,
    find_double_owners,
    longest_gap_s,
    ownership_spans,
)
from muster.cli.demo.processes import DemoProcesses, DemoRun
from muster.cli.groups.rebalance_story import move_line
from muster.cli.nodes.cluster import fetch_elections
from muster.client import Admin, Producer, RecordMetadata
from muster.client.described import GroupDescription
from muster.client.errors import GroupNotFound, Refused, TransportRefused, Unreachable
from muster.coordinator.observability.views.formatting import host_and_port, plural, spans
from muster.coordinator.runtime.shards import partition_for
from muster.coordinator.zookeeper.local_ensemble import ServerTuning, open_or_create_ensemble

if TYPE_CHECKING:
    from muster.coordinator.rpc.v1.cluster_service_pb2 import DescribeClusterResponse, Election
    from muster.coordinator.rpc.v1.ledger_pb2 import CoordinatorMove


# The producer
# ------------

LINES_PER_S: Final = 300.0
SEND_POLL_S: Final = 0.02


class NumberedLines:
    """Sends from `start` until `stop`. What was given up is in `failed`."""

    def __init__(self, address: str, topic: str, partitions: int) -> None:
        given = {"bootstrap.servers": address, "client.id": "demo-producer", "acks": "all", "linger.ms": 5}
        self._producer = Producer(given)
        self._topic = topic
        self._partitions = partitions
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._send, name="demo-producer", daemon=True)
        self.sent = 0
        self.acked: dict[Place, int] = {}
        self.acked_at_ns: list[int] = []
        self.failed: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self, patience_s: float) -> None:
        """Send no more, and wait for the last word on all that was sent."""
        self._stopping.set()
        self._thread.join()
        self._producer.close(patience_s)

    def _send(self) -> None:
        began = time.monotonic()
        while not self._stopping.wait(SEND_POLL_S):
            due = int((time.monotonic() - began) * LINES_PER_S)
            while self.sent < due and not self._stopping.is_set():
                self._send_one(self.sent)
                self.sent += 1

    def _send_one(self, number: int) -> None:
        value = f"line {number:06d}".encode()

        def delivered(error: Exception | None, where: RecordMetadata | None) -> None:
            if where is None:
                self.failed.append(str(error))
                return
            self.acked[where.partition, where.offset] = checksum(None, value)
            self.acked_at_ns.append(time.monotonic_ns())

        self._producer.produce(self._topic, value, None, number % self._partitions, delivered)


# What is shown
# -------------

Process: TypeAlias = "subprocess.Popen[bytes]"

GONE = 4
"""NODE_STATE_GONE."""


class DemoStanding(NamedTuple):
    """Cluster and group at one moment. members: ids by worker; owned: partitions by worker."""

    cluster: "DescribeClusterResponse"
    coordinator: str
    generation: int
    members: Mapping[str, str]
    owned: Mapping[str, Sequence[int]]


class StandingBefore(NamedTuple):
    """What is not to change."""

    generation: int
    members: Mapping[str, str]


class ClusterProof(NamedTuple):
    """All that decides the exit code, and what it is worth."""

    before: StandingBefore
    after: StandingBefore
    sent: int
    acked: int
    given_up: int
    lacking: int
    again: int
    twice_owned: int
    without_coordinator_s: float
    without_ack_s: float

    @property
    def holds(self) -> bool:
        return (
            self.before == self.after
            and self.acked == self.sent
            and not (self.given_up or self.lacking or self.twice_owned)
        )


def show_standing(out: Console, title: str, now: DemoStanding) -> None:
    """A row for each node; then one for each worker."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for heading in ("node", "state", "leads", "of the lines", "copies", "behind", ""):
        table.add_column(heading)
    for node in now.cluster.nodes:
        led = [row.partition for row in now.cluster.partitions if row.leader_id == node.node_id]
        words = []
        if host_and_port(node.host, node.port) == now.coordinator:
            words.append("coordinates the group")
        if node.node_id == now.cluster.controller_id:
            words.append("controller")
        state = "up" if node.state != GONE else Text("gone", style="red")
        figures = (str(node.leads), spans(led) or "-", str(node.holds), str(node.behind))
        table.add_row(str(node.node_id), state, *figures, ", ".join(words))
    out.print(table)
    owned = ", ".join(f"{worker} {spans(numbers) or '-'}" for worker, numbers in sorted(now.owned.items()))
    out.print(Text(f"generation {now.generation}: {owned}"), soft_wrap=True)
    out.print()


def show_takeover(out: Console, moves: "Sequence[CoordinatorMove]", elections: "Sequence[Election]") -> None:
    """Who took the group over, by its own ledger; and how many leaders the kill moved, by that of elections."""
    out.print(Text("The takeover, from the ledger", style="bold"))
    for move in moves:
        out.print(move_line(move), soft_wrap=True)
    causes = ", ".join(sorted({one.cause for one in elections}))
    out.print(Text(f"{plural(len(elections), 'leader')} changed with it: {causes}"), soft_wrap=True)


def show_cluster_proof(out: Console, proved: ClusterProof) -> None:
    table = ProofTable()
    row = table.add_check
    lost = proved.sent - proved.acked
    row("lines acknowledged", f"{proved.acked:,}", good=not lost, note=f"of {proved.sent:,} sent, acks=all")
    row("of these not read", f"{proved.lacking:,}", good=not proved.lacking)
    table.add_row("read again", f"{proved.again:,}", "after the last commit before the kill")
    row("partitions owned twice at a time", f"{proved.twice_owned:,}", good=not proved.twice_owned)
    before, after = proved.before, proved.after
    same = before.generation == after.generation
    row("generation", f"{before.generation} -> {after.generation}", good=same, note="unchanged" if same else "CHANGED")
    kept = sum(after.members.get(worker) == member for worker, member in before.members.items())
    whole = before.members == after.members
    row("members' ids unchanged", f"{kept} of {len(before.members)}", good=whole)
    table.add_row("without a coordinator", f"{proved.without_coordinator_s:.2f} s", "from the kill to the first answer")
    table.add_row("longest time without an acknowledgement", f"{proved.without_ack_s:.2f} s", "")
    table.show(out, holds=proved.holds)


# The course
# ----------

NODES: Final = (1, 2, 3)
WORKERS: Final = 3
PARTITIONS: Final = 6
SHARDS: Final = 8
TOPIC: Final = "lines"
OFFSETS: Final = "__consumer_offsets"
SESSION_MS: Final = 10_000
LOOK_S: Final = 0.05
BEFORE_S, AFTER_S = 3.0, 3.0
STALLED_S: Final = 40.0
ZOOKEEPER: Final = ServerTuning(tick_ms=500, heap_mb=64, logs=False, durable=False, tied=True)

NODE_SETTINGS: Final = {
    "inter.broker.listeners": "127.0.0.1:0",
    "zookeeper.session.timeout.ms": "3000",
    "offsets.topic.num.partitions": str(SHARDS),
    "group.initial.rebalance.delay.ms": "1500",
    "logging.level": "warning",
}


class ClusterDemo(DemoRun):
    """Runs one demo in `folder`. `run` may be called once."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._addresses: dict[int, str] = {}
        self._read = ReportedReads()
        self._reports: dict[str, Path] = {}
        self._owned: dict[str, Path] = {}

    def run(self) -> bool:
        """Whether all that is promised was kept. All processes are gone when it returns or raises."""
        with ExitStack() as stack:
            self._children = DemoProcesses(self._folder)
            zookeeper = open_or_create_ensemble(self._folder / "zookeeper", 1, tuning=ZOOKEEPER)
            stack.callback(zookeeper.stop)
            zookeeper.start()
            self._say(f"ZooKeeper at {zookeeper.connect}")
            stack.enter_context(self._children)
            self._start_nodes(zookeeper.connect)
            self._admin = stack.enter_context(self._admin_of(self._addresses.values()))
            self._wait(lambda: self._up() == len(NODES), "the nodes know each other")
            self._admin.create_topic(TOPIC, PARTITIONS)
            self._wait(self._whole, "every copy is in sync")
            group, victim = self._choose()
            self._lines = NumberedLines(",".join(self._addresses.values()), TOPIC, PARTITIONS)
            self._lines.start()
            self._say(f"a producer sends {LINES_PER_S:.0f} numbered lines a second, acks=all")
            proved = self._play(group, victim, zookeeper.connect)
        shutil.rmtree(self._folder / "zookeeper", ignore_errors=True)
        self._out.print()
        show_cluster_proof(self._out, proved)
        return proved.holds

    # The course.

    def _play(self, group: str, victim: int, connect: str) -> ClusterProof:
        for number in range(1, WORKERS + 1):
            self._start_worker(f"worker-{number}", group)
        self._wait(lambda: self._settled(group), f"{WORKERS} workers are in the group")
        self._watch_for(BEFORE_S)
        before = self._standing(group)
        self._out.print()
        show_standing(self._out, "Before", before)

        pid = self._children.kill(f"node-{victim}")
        killed = time.monotonic()
        self._say(f"SIGKILL to node {victim} (pid {pid}): it coordinates group {group}, and leads most")
        with self._admin_of(address for number, address in self._addresses.items() if number != victim) as left:
            self._wait(lambda: self._coordinated(left, group, self._addresses[victim]), "another node coordinates")
            without_s = time.monotonic() - killed
            self._say(f"another node coordinates the group after {without_s:.2f} s")
            acked = len(self._lines.acked)
            self._wait(lambda: len(self._lines.acked) > acked + PARTITIONS, "lines are acknowledged again")
            self._watch_for(AFTER_S)
            after = self._standing(group, left)
            self._out.print()
            show_standing(self._out, f"Without node {victim}", after)
            told, moves = fetch_elections(left, 100, ""), left.moves(group)

        self._start_node(victim, connect, self._addresses[victim])
        self._say(f"node {victim} is back")
        self._wait(self._whole, "every copy is in sync again")
        self._say("every copy is in sync again")
        self._watch_for(AFTER_S / 2)
        self._lines.stop(STALLED_S)
        self._say(f"{self._lines.sent:,} lines sent, {len(self._lines.acked):,} acknowledged")
        self._wait(lambda: not self._read.lacks(self._lines.acked), "every acknowledged line is read")
        last = self._standing(group)
        now = time.monotonic_ns()
        spans = [
            span
            for worker, file in self._owned.items()
            for span in ownership_spans(worker, file.read_text().splitlines(), now)
        ]
        self._children.stop(list(self._reports))
        self._out.print()
        show_takeover(self._out, moves[:1], self._of_the_kill(told, victim))
        return ClusterProof(
            before=StandingBefore(before.generation, before.members),
            after=StandingBefore(last.generation, last.members),
            sent=self._lines.sent,
            acked=len(self._lines.acked),
            given_up=len(self._lines.failed),
            lacking=len(self._read.lacks(self._lines.acked)),
            again=self._read.again,
            twice_owned=len(find_double_owners(spans)),
            without_coordinator_s=without_s,
            without_ack_s=longest_gap_s(self._lines.acked_at_ns),
        )

    def _choose(self) -> tuple[str, int]:
        """The node that leads most, and a name for the group by which that is its coordinator, too."""
        answer = self._cluster("all", (OFFSETS, TOPIC))
        leads = {node.node_id: node.leads for node in answer.nodes}
        shards = {row.partition: row.leader_id for row in answer.partitions if row.topic == OFFSETS}
        victim = max(sorted(set(shards.values())), key=lambda node: leads[node])
        names = (f"demo-{number}" for number in range(1_000))
        return next(name for name in names if shards[partition_for(name, len(shards))] == victim), victim

    # Processes.

    def _start_nodes(self, connect: str) -> None:
        begun = {number: self._begin_node(number, connect, "127.0.0.1:0") for number in NODES}
        for number, process in begun.items():
            node = self._children.answers(process, f"node-{number}")
            self._addresses[number] = node.address
            self._say(f"node {number} at {node.address} (pid {node.pid})")

    def _start_node(self, number: int, connect: str, listen: str) -> None:
        self._children.answers(self._begin_node(number, connect, listen), f"node-{number}")

    def _begin_node(self, number: int, connect: str, listen: str) -> "Process":
        settings = NODE_SETTINGS | {"node.id": str(number), "zookeeper.connect": f"{connect}/demo"}
        arguments = ["--data", str(self._folder / f"data-{number}")]
        arguments += [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        return self._children.begin_node(arguments, f"node-{number}", listen)

    def _start_worker(self, name: str, group: str) -> None:
        report, owned = self._folder / f"{name}.report", self._folder / f"{name}.owned"
        for file in (report, owned):
            file.touch()
        arguments = ["demo-cluster-worker", "--bootstrap", ",".join(self._addresses.values()), "--topic", TOPIC]
        arguments += ["--group", group, "--name", name, "--report", str(report), "--owned", str(owned)]
        arguments += ["--pace", str(4 * LINES_PER_S), "--set", f"session.timeout.ms={SESSION_MS}"]
        arguments += ["--set", "heartbeat.interval.ms=500"]
        self._children.start(name, arguments)
        self._reports[name], self._owned[name] = report, owned

    # Looking.

    def _admin_of(self, addresses: Iterable[str]) -> Admin:
        return Admin(
            {
                "bootstrap.servers": ",".join(addresses),
                "client.id": "demo",
                "default.api.timeout.ms": 30_000,
                "request.timeout.ms": 5_000,  # On a busy machine a topic takes longer than a second to be made.
            }
        )

    def _cluster(self, wanted: str = "none", topics: tuple[str, ...] = ()) -> "DescribeClusterResponse":
        return self._admin.describe_cluster(wanted, topics)  # type: ignore[arg-type]

    def _up(self) -> int:
        return sum(node.state != GONE for node in self._cluster().nodes)

    def _whole(self) -> bool:
        """Groups have their shards, and everything has all its copies."""
        now = self._cluster()
        return now.partition_count > 2 * SHARDS and self._up() == len(NODES) and not now.under_replicated_count

    def _group(self, admin: Admin, group: str) -> GroupDescription | None:
        try:
            return admin.describe_group(group)
        except (GroupNotFound, Refused, TransportRefused, Unreachable):
            return None

    def _settled(self, group: str) -> bool:
        found = self._group(self._admin, group)
        return (
            found is not None
            and len(found.members) == WORKERS
            and sum(len(member.assignment) for member in found.members) == PARTITIONS
        )

    def _coordinated(self, admin: Admin, group: str, former: str) -> bool:
        found = self._group(admin, group)
        return found is not None and found.coordinator != former and bool(found.members)

    def _standing(self, group: str, admin: Admin | None = None) -> DemoStanding:
        asked = admin or self._admin
        found = asked.describe_group(group)
        return DemoStanding(
            asked.describe_cluster("all", (TOPIC,)),
            found.coordinator,
            found.generation,
            {member.client_id: member.member_id for member in found.members},
            {member.client_id: sorted(each.partition for each in member.assignment) for member in found.members},
        )

    def _of_the_kill(self, told: "list[Election]", victim: int) -> "list[Election]":
        """The elections that the kill led to: the youngest ones away from that node."""
        return [one for one in told if one.from_node_id == victim and one.to_node_id != victim]

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        """Look again and again until `condition` holds; raise CommandError where that takes too long."""
        deadline = time.monotonic() + STALLED_S
        while True:
            self._check_nodes()
            try:
                if condition():
                    return
            except (Unreachable, Refused):
                pass  # A node that is on its way up or down.
            if time.monotonic() > deadline:
                raise CommandError(
                    f"nothing came of it within {STALLED_S:.0f} s",
                    f"expected that {what}",
                    "run it again with --keep and look into the logs",
                )
            time.sleep(LOOK_S)

    def _watch_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._check_nodes()
            time.sleep(LOOK_S)

    def _check_nodes(self) -> None:
        raise_if_interrupted()
        self._children.must_be_alive()
        for report in self._reports.values():
            self._read.follow(report)
