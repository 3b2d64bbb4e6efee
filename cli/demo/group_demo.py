"""The demos of one group: workers, a kill, a newcomer and the proof; or, with --balance, a hot partition.

The course of the first one: a node, a topic filled with lines, workers as processes, one of them killed, another one
started, the end, the proof, and which generation owned what and why. With --balance members live in this process: a
partition becomes hot, the load is evened within the budget, and then nothing moves any more.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from muster.cli.common.commands import CommandError, raise_if_interrupted
from muster.cli.demo.delivery_proof import DeliveryProof, ProducedLines, ProofTable, checksum
from muster.cli.demo.processes import DemoProcesses, DemoRun
from muster.cli.groups.rebalance_story import fetch_rebalances, print_story
from muster.cli.records.produce import LineSource, SourceLine
from muster.client import Admin, Consumer, Producer, RecordMetadata
from muster.client.described import GroupDescription, MemberDescription
from muster.client.errors import GroupNotFound, Unreachable
from muster.client.records.accumulator import choose_partition
from muster.coordinator.observability.views.formatting import duration, plural, spans
from muster.coordinator.observability.views.ledger import cause_word, outcome_word
from muster.coordinator.observability.views.member_names import Names, names_of
from muster.coordinator.rpc.v1.ledger_pb2 import Rebalance, RebalanceCause

# Filling the topic
# -----------------

LOOK_EVERY = 2_000
"""Lines between two looks at the clock and the bar."""

PROPERTIES = {"client.id": "demo", "linger.ms": 20, "batch.size": 128 << 10, "max.request.size": 4 << 20}


class FilledTopic(NamedTuple):
    produced: ProducedLines
    complete: bool


def fill(topic: str, partitions: int, source: LineSource, address: str, out: Console, deadline: float) -> FilledTopic:
    """Send lines until there are no more, or until `deadline` (monotonic seconds); every one is delivered then."""
    produced = ProducedLines(partitions)

    def delivered(error: Exception | None, where: RecordMetadata | None) -> None:
        if where is not None:
            produced.delivered(where.partition, where.offset)

    columns = (TextColumn("producing"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    total = sum(file.stat().st_size for file in source.files)
    with (
        Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as bar,
        Producer({"bootstrap.servers": address, **PROPERTIES}) as producer,
    ):
        task, sent, complete = bar.add_task("producing", total=total), 0, True
        for number, (partition, line) in enumerate(route_lines(source, partitions), start=1):
            produced.sent(partition, checksum(line.key, line.value))
            producer.produce(topic, line.value, line.key, partition, delivered)
            sent += len(line.value) + 1
            if number % LOOK_EVERY == 0:
                bar.update(task, completed=sent)
                if time.monotonic() > deadline:
                    complete = False
                    break
        producer.flush()
    return FilledTopic(produced, complete)


def route_lines(source: LineSource, partitions: int) -> Iterator[tuple[int, SourceLine]]:
    """Lines with the producer's own choice of partition, made once per key; without a key each takes its turn."""
    known: dict[bytes, int] = {}
    for number, line in enumerate(source.lines()):
        if line.key is None:
            yield number % partitions, line
            continue
        if line.key not in known:
            known[line.key] = choose_partition(line.key, partitions)
        yield known[line.key], line


# The report at the end
# ---------------------

COLOURS = ("cyan", "magenta", "blue", "yellow", "bright_red", "bright_green", "bright_cyan", "bright_magenta")


def show_ownership(out: Console, entries: Sequence[Rebalance]) -> None:
    """A row for each generation, a column for each worker; what a worker has just gained is bold."""
    names = names_of(entries)
    workers = sorted({member.member_id for entry in entries for member in entry.members}, key=lambda id: names[id])
    table = Table(title="Who owned which partitions", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column("generation", justify="right")
    for at, worker in enumerate(workers):
        table.add_column(names[worker], style=COLOURS[at % len(COLOURS)])
    table.add_column("because")
    before: dict[str, set[int]] = {}
    for entry in entries:
        owned = {member.member_id: partitions_of(entry, member.member_id) for member in entry.members}
        cells = [owned_text(owned.get(worker), before.get(worker, set())) for worker in workers]
        table.add_row(str(entry.generation), *cells, cause_text(entry, names))
        before = owned
    out.print(table)


def partitions_of(entry: Rebalance, member_id: str) -> set[int]:
    return {
        partition
        for member in entry.members
        if member.member_id == member_id
        for assigned in member.assigned
        for partition in assigned.partitions
    }


def owned_text(owned: set[int] | None, before: set[int]) -> Text:
    """Kept partitions plain, gained ones bold with a plus; a dash for a member without any, nothing for no member."""
    if owned is None:
        return Text("")
    parts = [Text(spans(owned & before))] if owned & before else []
    if owned - before:
        parts.append(Text(f"+{spans(owned - before)}", style="bold"))
    return Text(" ").join(parts) if parts else Text("-")


def cause_text(entry: Rebalance, names: Names) -> str:
    ending = "" if outcome_word(entry) == "completed" else f" ({outcome_word(entry)})"
    return f"{cause_word(entry)} {names[entry.culprit]}".strip() + ending


def show_explanations(out: Console, entries: Sequence[Rebalance]) -> None:
    out.print(Text("Why, from the ledger", style="bold"))
    out.print()
    print_story(out, entries)


def show_proof(out: Console, proof: DeliveryProof, lag: int, killed: str) -> None:
    """The figures that decide the exit code."""
    table = ProofTable()
    again = f"consumed by {killed} but not committed before it was killed" if proof.duplicates else ""
    table.add_row("lines produced", f"{proof.produced:,}", "")
    table.add_row("distinct lines consumed", f"{proof.distinct:,}", "by partition, offset and checksum of the content")
    table.add_row("duplicates", f"{proof.duplicates:,}", again)
    table.add_row("altered", Text(f"{proof.altered:,}", style=loss_verdict(proof.altered)), "")
    table.add_row("lost", Text(f"{proof.lost:,}", style=loss_verdict(proof.lost)), "")
    table.add_row("left to commit", Text(f"{lag:,}", style=loss_verdict(lag)), "lag of the group at the end")
    out.print(table)


def loss_verdict(count: int) -> str:
    return "bold red" if count else "bold green"


def key_shares(by_partition: Sequence[int]) -> str:
    """How evenly the keys spread.

    >>> key_shares([5, 15])
    '25 % to 75 % of the lines in a partition'
    """
    total = sum(by_partition) or 1
    low, high = 100 * min(by_partition) / total, 100 * max(by_partition) / total
    return f"{low:.0f} % to {high:.0f} % of the lines in a partition"


def summary(lines: int, description: str, keyed_by: str, by_partition: Sequence[int]) -> str:
    return f"{plural(lines, 'line')} of {description}, keyed by {keyed_by}: {key_shares(by_partition)}"


# The course
# ----------

TOPIC, GROUP = "lines", "demo"
LOOK_EVERY_S = 0.1
PRODUCE_AT_MOST_S = 20.0
"""A slow machine takes fewer lines of the standard library, and says so; the demo ends within a minute everywhere."""

STALLED_S = 30.0
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


class GroupDemo(DemoRun):
    """Runs one demo in `folder`. `run` may be called once."""

    def __init__(self, plan: DemoPlan, folder: Path) -> None:
        super().__init__(folder)
        self._plan = plan
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
        show_ownership(self._out, entries)
        show_explanations(self._out, entries)
        self._out.print()
        show_proof(self._out, proof, lag, killed)
        return proof.complete and proof.altered == 0

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
        self._say(summary(produced.lines, description, source.keyed_by, produced.by_partition()))
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


# The demo of continuous balance
# ------------------------------

BALANCE_GROUP, BALANCE_TOPIC, PARTITIONS, MEMBERS = "balanced", "orders", 12, 3
BUDGET = 4
BALANCE_SETTINGS: dict[str, Any] = {
    "balance": "act",
    "balance.sample.ms": 1_000,
    "balance.cooldown.ms": 600_000,
    "balance.move.budget": BUDGET,
}
USUAL, HOT = 5, 100
"""Records a turn to a partition, and to the hot one."""
AT_MOST_S = 60.0
"""So long each part of the story may take."""
AFTER_S = 12.0
"""So long is looked on, once the load is even: as long as it takes to decide four times."""


class BalanceDemo:
    """Members live in this process, and take turns with whoever writes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hot = -1

    def run(self) -> bool:
        """Whether it went as it should."""
        with ExitStack() as stack:
            children = stack.enter_context(DemoProcesses(self._folder))
            address = children.start_node(["--data", str(self._folder / "data")]).address
            admin = stack.enter_context(Admin(bootstrap_servers=address))
            admin.create_topic(BALANCE_TOPIC, PARTITIONS)
            self._producer = stack.enter_context(Producer(bootstrap_servers=address))
            common: dict[str, Any] = {
                "bootstrap_servers": address,
                "group_id": BALANCE_GROUP,
                "group_protocol": "consumer",
            }
            self._members = [
                stack.enter_context(Consumer(client_id=f"member-{n}", auto_commit_interval_ms=200, **common))
                for n in range(MEMBERS)
            ]
            for member in self._members:
                member.subscribe([BALANCE_TOPIC])
            return self._play(admin)

    def _play(self, admin: Admin) -> bool:
        if not self._turns_until(lambda: sorted(map(len, self._shares())) == [4, 4, 4]):
            return explain_shortfall("the group did not come to rest")
        print(f"3 members, 4 partitions each: {describe_shares(self._shares())}")
        admin.alter_group_settings(BALANCE_GROUP, BALANCE_SETTINGS)
        self._hot = min(self._shares()[0])
        print(f"{BALANCE_TOPIC}-{self._hot} becomes {HOT // USUAL} times as hot as the others")
        if not self._turns_until(lambda: bool(fetch_balance_rebalances(admin))):
            return explain_shortfall("nothing was moved")
        entry = fetch_balance_rebalances(admin)[0]
        print(f"rebalance {entry.number}, LAG_IMBALANCE: {entry.detail}")
        ends = time.monotonic() + AFTER_S
        self._turns_until(lambda: time.monotonic() > ends)
        entries = fetch_balance_rebalances(admin)
        moved = Counter((move.topic, move.partition) for each in entries for move in each.moves)
        print(f"afterwards: {describe_shares(self._shares())}")
        print(f"{len(entries)} rebalance(s), {moved.total()} moves, none twice: {max(moved.values()) == 1}")
        return max(moved.values()) == 1 and all(len(each.moves) <= BUDGET for each in entries)

    def _turns_until(self, done: Callable[[], bool]) -> bool:
        """Write and read, in turns, until it is so; False: it took too long."""
        ends = time.monotonic() + AT_MOST_S
        while not done():
            if time.monotonic() > ends:
                return False
            for partition in range(PARTITIONS):
                for _ in range(HOT if partition == self._hot else USUAL):
                    self._producer.produce(BALANCE_TOPIC, b"x", partition=partition)
            for member in self._members:
                member.consume(1_000, 0.05)
        return True

    def _shares(self) -> list[list[int]]:
        return [sorted(place.partition for place in member.assignment()) for member in self._members]


def fetch_balance_rebalances(admin: Admin) -> Sequence[Rebalance]:
    """Rebalances for the sake of balance that moved something, oldest first."""
    found = [
        each for each in admin.explain(BALANCE_GROUP) if each.cause == RebalanceCause.REBALANCE_CAUSE_LAG_IMBALANCE
    ]
    return [each for each in reversed(found) if each.moves]


def describe_shares(shares: list[list[int]]) -> str:
    return "; ".join(f"member-{n} has {', '.join(map(str, share)) or 'nothing'}" for n, share in enumerate(shares))


def explain_shortfall(why: str) -> bool:
    print(why)
    return False
