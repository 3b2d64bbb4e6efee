"""The demo's course: node, topic, lines, workers, a kill, a newcomer, the end, the proof."""

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from muster.cli.common.errors import CommandError
from muster.cli.common.output import console
from muster.cli.common.signals import raise_if_interrupted
from muster.cli.demo import report
from muster.cli.demo.filling import fill
from muster.cli.demo.processes import DemoProcesses
from muster.cli.demo.proof import DeliveryProof, ProducedLines
from muster.cli.groups.rebalance_story import fetch_rebalances
from muster.cli.records.lines import LineSource
from muster.client import Admin
from muster.client.described import GroupDescription, MemberDescription
from muster.client.errors import GroupNotFound, Unreachable
from muster.coordinator.observability.views.formatting import duration, plural, spans

TOPIC, GROUP = "lines", "demo"
LOOK_EVERY_S = 0.1
PRODUCE_AT_MOST_S = 20.0
"""A slow machine takes fewer lines of the standard library, and says so; the demo ends within a minute everywhere."""

STALLED_S = 30.0
INDENT = 9
"""Columns that the time takes."""

SESSION_MS = 3_000
NODE_SETTINGS = {
    # Short enough for a demo: members may ask for sessions of three seconds instead of Kafka's 45.
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "1000",
    "offsets.topic.num.partitions": "4",
    "logging.level": "warning",
}


class DemoPlan(NamedTuple):
    """What the command line asked for. `seconds` is how long the workers should take for all lines."""

    source: LineSource
    workers: int
    partitions: int
    assignor: str
    seconds: float


class GroupDemo:
    """Runs one demo in `folder`. `run` may be called once."""

    def __init__(self, plan: DemoPlan, folder: Path) -> None:
        self._plan = plan
        self._folder = folder
        self._out = console()
        self._began = time.monotonic()
        self._workers: list[str] = []
        self._reports: list[Path] = []
        self._group: GroupDescription | None = None

    def run(self) -> bool:
        """Whether every line was consumed, unaltered. All processes are gone when it returns or raises."""
        with ExitStack() as stack:
            self._children = stack.enter_context(DemoProcesses(self._folder))
            self._address = self._start_node()
            given = {"bootstrap.servers": self._address, "client.id": "demo", "default.api.timeout.ms": 5_000}
            self._admin = stack.enter_context(Admin(given))
            self._admin.create_topic(TOPIC, self._plan.partitions)
            proof = DeliveryProof(self._fill().expected())
            killed = self._play(proof)
            # Asked now, because the workers' farewell would add a rebalance for each of them.
            entries = fetch_rebalances(self._admin, GROUP)
            self._children.stop(self._workers)
            self._follow(proof)
            lag = sum(partition.lag for partition in self._admin.group_lag(GROUP))
        self._out.print()
        report.show_ownership(self._out, entries)
        report.show_explanations(self._out, entries)
        self._out.print()
        report.show_proof(self._out, proof, lag, killed)
        return proof.complete and proof.altered == 0

    def _say(self, text: str) -> None:
        said = Text(text)
        lines = said.wrap(self._out, self._out.width - INDENT) if self._out.is_terminal else [said]
        for at, line in enumerate(lines):
            since = f"{time.monotonic() - self._began:5.1f} s  " if at == 0 else " " * INDENT
            self._out.print(Text.assemble((since, "dim"), line), soft_wrap=True)

    def _start_node(self) -> str:
        settings = [part for key, value in NODE_SETTINGS.items() for part in ("--set", f"{key}={value}")]
        node = self._children.start_node(["--data", str(self._folder / "data"), *settings])
        self._say(f"node at {node.address}, for Kafka clients at {node.kafka_address} (pid {node.pid})")
        return node.address

    def _fill(self) -> ProducedLines:
        source = self._plan.source
        # A file that somebody named is taken whole.
        deadline = self._began + PRODUCE_AT_MOST_S if len(source.files) > 1 else math.inf
        produced, complete = fill(TOPIC, self._plan.partitions, source, self._address, self._out, deadline)
        description = source.description if complete else f"the first of {source.description}"
        self._say(report.summary(produced.lines, description, source.keyed_by, produced.by_partition()))
        return produced

    # The group

    def _play(self, proof: DeliveryProof) -> str:
        """From the first worker to the last line. Returns who was killed."""
        pace = max(1.0, proof.produced / self._plan.seconds / self._plan.workers)
        for number in range(1, self._plan.workers + 1):
            self._start_worker(f"worker-{number}", pace)
        self._say(f"{plural(self._plan.workers, 'worker')} started, each for {pace:,.0f} lines a second")
        columns = (TextColumn("consuming"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._out, transient=True, disable=not self._out.is_terminal) as bar:
            task = bar.add_task("consuming", total=proof.produced)

            def until(condition: Callable[[], bool], what: str) -> None:
                self._wait(condition, what, proof, lambda: bar.update(task, completed=proof.distinct))

            until(lambda: all(self._settled(worker) for worker in self._workers), "every worker is in the group")
            until(lambda: proof.distinct * 3 >= proof.produced, "a third of the lines is consumed")
            victim = self._kill(proof)
            until(lambda: self._gone(victim), f"the group goes on without {victim}")
            self._say(f"the group is {self.state} in generation {self.generation} without {victim}")
            newcomer = f"worker-{self._plan.workers + 1}"
            self._start_worker(newcomer, pace)
            self._say(f"{newcomer} started")
            until(lambda: self._settled(newcomer), f"{newcomer} has its share")
            self._say(f"{newcomer} has {self._share(newcomer)} in generation {self.generation}")
            until(lambda: proof.complete, "every line is consumed")
            self._say(f"all {plural(proof.produced, 'line')} consumed")
        return victim

    def _start_worker(self, name: str, pace: float) -> None:
        file = self._folder / f"{name}.report"
        file.touch()
        properties = {
            "partition.assignment.strategy": self._plan.assignor,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": SESSION_MS // 6,
        }
        arguments = ["demo-worker", "--bootstrap", self._address, "--topic", TOPIC, "--group", GROUP, "--name", name]
        arguments += ["--report", str(file), "--pace", str(pace)]
        arguments += [part for key, value in properties.items() for part in ("--set", f"{key}={value}")]
        self._children.start(name, arguments)
        self._workers.append(name)
        self._reports.append(file)

    def _kill(self, proof: DeliveryProof) -> str:
        """SIGKILL to the second worker, or the only one."""
        victim = self._workers.pop(min(1, len(self._workers) - 1))
        share = self._share(victim)
        pid = self._children.kill(victim)
        done = 100 * proof.distinct / proof.produced
        self._say(f"{done:.0f} % consumed: SIGKILL to {victim} (pid {pid}), which had {share}")
        self._say(f"its silence will be noticed when its session of {duration(SESSION_MS)} is over")
        return victim

    def _wait(self, condition: Callable[[], bool], what: str, proof: DeliveryProof, tell: Callable[[], None]) -> None:
        """Look again and again until `condition` holds; raise CommandError when nothing moves any more."""
        seen, since = (-1, -1), time.monotonic()
        while True:
            raise_if_interrupted()
            self._children.must_be_alive()
            self._follow(proof)
            self._look_at_group()
            tell()
            if condition():
                return
            now = (proof.distinct, self.generation)
            if now != seen:
                seen, since = now, time.monotonic()
            if time.monotonic() - since > STALLED_S:
                raise CommandError(
                    f"nothing moved for {STALLED_S:.0f} s: {proof.distinct:,} of {proof.produced:,} lines consumed, "
                    f"the group is {self.state} in generation {self.generation}",
                    f"expected that {what}",
                    "run it again with --keep and look into the logs",
                )
            time.sleep(LOOK_EVERY_S)

    def _follow(self, proof: DeliveryProof) -> None:
        for file in self._reports:
            proof.follow(file)

    def _look_at_group(self) -> None:
        try:
            self._group = self._admin.describe_group(GROUP)
        except (GroupNotFound, Unreachable):
            # The next look at the processes tells whether the node is gone, or only slow.
            self._group = None

    @property
    def state(self) -> str:
        return self._group.state if self._group is not None else "not there yet"

    @property
    def generation(self) -> int:
        return self._group.generation if self._group is not None else 0

    def _member(self, worker: str) -> MemberDescription | None:
        members = self._group.members if self._group is not None else ()
        return next((member for member in members if member.client_id == worker), None)

    def _share(self, worker: str) -> str:
        member = self._member(worker)
        numbers = [partition for _, partition in member.assignment] if member is not None else []
        return f"partitions {spans(numbers)}" if numbers else "no partitions"

    def _settled(self, worker: str) -> bool:
        """It is a member of a stable group and owns something, if there is enough for everybody."""
        member = self._member(worker)
        enough = self._plan.partitions >= len(self._workers)
        return member is not None and self.state == "Stable" and (bool(member.assignment) or not enough)

    def _gone(self, worker: str) -> bool:
        return self._member(worker) is None and self.state in ("Stable", "Empty")
