"""`muster demo --exactly-once`: a worker and the node are killed in mid-transaction, and each order is billed once.

Two workers read orders, write a bill for each, and commit the bills and their group's offsets in one transaction
(docs/transactions.md). Worker 1 is killed while a transaction is open, and started again; then the node, while one of
worker 2 is open. A reader of committed records counts and adds up the bills afterwards; one of all records shows what
the aborted transactions left in the log.
"""

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from muster.cli.common.commands import CommandError, stop_with_stdin
from muster.cli.demo.processes import DemoProcesses, DemoRun
from muster.coordinator.observability.views.formatting import plural

if TYPE_CHECKING:
    from muster.client import Consumer, Producer
    from muster.client.types import IsolationLevel

GROUP: Final = "billing"
ORDERS, BILLS = "orders", "bills"
PARTITIONS: Final = 4
PORTION: Final = 3_000
"""Orders that are written at a time: whenever the story needs that workers have some to bill."""
BATCH: Final = 100
"""Most orders of one transaction."""
POLL_S: Final = 0.1
LOOK_S: Final = 0.05
WORKERS: Final = ("worker-1", "worker-2")
SESSION_MS: Final = 3_000
TRANSACTION_MS: Final = 20_000
PATIENCE_S: Final = 60.0
"""For each step; usually one takes a second or two."""
NODE_SETTINGS: Final = ("group.min.session.timeout.ms=1000", "group.initial.rebalance.delay.ms=500")


def bill_of(order: bytes) -> bytes:
    """What an order costs with its tax, in cents.

    >>> bill_of(b"1000")
    b'1190'
    """
    return b"%d" % (int(order) * 119 // 100)


# A worker
# --------


@click.command("demo-exactly-once-worker")
@click.option("--bootstrap", required=True)
@click.option("--name", required=True)
@click.option("--folder", required=True, type=click.Path(path_type=Path))
def demo_exactly_once_worker(bootstrap: str, name: str, folder: Path) -> None:
    """One worker of `muster demo --exactly-once`."""
    from muster.client import Consumer, Producer

    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.set())
    stop_with_stdin()
    source = {
        "bootstrap.servers": bootstrap,
        "client.id": name,
        "group.id": GROUP,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": SESSION_MS // 6,
    }
    target = {
        "bootstrap.servers": bootstrap,
        "client.id": name,
        "transactional.id": f"{GROUP}-{name}",
        "transaction.timeout.ms": TRANSACTION_MS,
    }
    diary = WorkerDiary(folder, name)
    with Producer(target) as producer, Consumer(source) as consumer:
        producer.init_transactions()
        diary.note("ready")
        consumer.subscribe(ORDERS)
        bill_until_stopped(consumer, producer, diary, stopping)


class WorkerDiary:
    """What a worker tells the demo, a line of JSON each, and whether the demo wants it to stand still."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / f"{name}.jsonl"
        self.hold = folder / f"{name}.hold"
        self.pid = os.getpid()

    def note(self, what: str, records: int = 0) -> None:
        line = json.dumps({"pid": self.pid, "what": what, "records": records})
        with self.path.open("a") as file:
            file.write(line + "\n")

    def read(self, pid: int | None = None) -> list[dict[str, Any]]:
        """All that was told, by one process or by all."""
        if not self.path.exists():
            return []
        whole, _, _ = self.path.read_text().rpartition("\n")  # the last line may be being written
        told = [json.loads(line) for line in whole.splitlines()]
        return [each for each in told if pid is None or each["pid"] == pid]


def bill_until_stopped(
    consumer: "Consumer", producer: "Producer", diary: WorkerDiary, stopping: threading.Event
) -> None:
    """Read, process, write: a transaction for each batch, with the offsets of what was read."""
    from muster.client import OutcomeUnknown, TransactionAborted

    while not stopping.is_set():
        orders = consumer.consume(BATCH, POLL_S)
        if not orders:
            continue
        try:
            with producer.transaction():
                for order in orders:
                    producer.produce(BILLS, bill_of(order.value or b"0"), key=order.key)
                producer.send_offsets(consumer)
                if diary.hold.exists():
                    producer.flush()
                    diary.note("open", len(orders))
                    while diary.hold.exists():
                        time.sleep(LOOK_S)
        except TransactionAborted:
            diary.note("aborted", len(orders))
            consumer.seek_to_committed()
        except OutcomeUnknown:
            diary.note("unknown", len(orders))
            producer.init_transactions()  # settles it, so that the offsets are committed or not
            consumer.seek_to_committed()
        else:
            diary.note("committed", len(orders))


# The proof
# ---------


class BillingProof(NamedTuple):
    """Orders against bills: how many there are, what they add up to, and which orders were not billed exactly once.

    `left_in_log` counts the bills that only a reader of uncommitted records sees, `seen` is the sum of all it sees.
    """

    orders: int
    ordered: int
    bills: int
    billed: int
    due: int
    missing: int
    repeated: int
    wrong: int
    left_in_log: int
    seen: int

    @property
    def holds(self) -> bool:
        """Every order was billed exactly once, and aborted transactions had been there to make that hard."""
        return not (self.missing or self.repeated or self.wrong) and self.billed == self.due and self.left_in_log > 0


Bill = tuple[bytes, bytes]
"""An order's key, and what it costs."""


def prove_billing(orders: Mapping[bytes, bytes], bills: Sequence[Bill], everything: Sequence[Bill]) -> BillingProof:
    """`bills`: what a reader of committed records got; `everything`: what one of all records got.

    >>> once, again = [(b"a", b"119"), (b"b", b"238")], (b"a", b"119")
    >>> prove_billing({b"a": b"100", b"b": b"200"}, once, [*once, again]).holds
    True
    >>> prove_billing({b"a": b"100", b"b": b"200"}, [again, again], [again, again])[5:8]
    (1, 1, 0)
    """
    due = {key: bill_of(order) for key, order in orders.items()}
    times = Counter(key for key, _ in bills)
    return BillingProof(
        orders=len(orders),
        ordered=sum(map(int, orders.values())),
        bills=len(bills),
        billed=sum(int(amount) for _, amount in bills),
        due=sum(map(int, due.values())),
        missing=sum(1 for key in due if key not in times),
        repeated=sum(count - 1 for count in times.values()),
        wrong=sum(1 for key, amount in bills if due.get(key) != amount),
        left_in_log=len(everything) - len(bills),
        seen=sum(int(amount) for _, amount in everything),
    )


PROOF_WIDTH: Final = 100
"""Columns that the proof takes where its figures are large; a narrower terminal breaks the lines itself."""


def show_billing_proof(out: Console, proof: BillingProof) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    table.add_column("records", justify="right", no_wrap=True)
    table.add_column("sum in cents", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    right = not (proof.missing or proof.repeated or proof.wrong)
    verdict = (
        "each order is billed exactly once"
        if right
        else f"{proof.missing} orders not billed, {proof.repeated} billed again, {proof.wrong} bills wrong"
    )
    added = f"19 % tax makes {proof.due:,} due"
    left = f"{plural(proof.left_in_log, 'record')} more, of aborted transactions"
    style = "green" if right else "bold red"
    table.add_row("orders", f"{proof.orders:,}", f"{proof.ordered:,}", added)
    table.add_row("bills, read_committed", f"{proof.bills:,}", f"{proof.billed:,}", Text(verdict, style=style))
    table.add_row("bills, read_uncommitted", f"{proof.bills + proof.left_in_log:,}", f"{proof.seen:,}", left)
    out.print()
    wide = out.options.update(width=max(out.width, PROOF_WIDTH))
    for line in out.render_lines(table, wide, pad=False):
        out.print(Text.assemble(*((part.text, part.style or "") for part in line)), soft_wrap=True)
    out.print()
    if proof.holds:
        out.print(Text("all of it holds: exactly once", style="bold green"))
    elif right:
        out.print(Text("NO TRANSACTION WAS ABORTED, SO THIS RUN PROVES LITTLE", style="bold red"))
    else:
        out.print(Text("NOT EXACTLY ONCE", style="bold red"))


def read_bills(address: str, isolation: "IsolationLevel") -> list[Bill]:
    """All bills up to where such a reader's log ends."""
    from muster.client import Consumer

    found: list[Bill] = []
    deadline = time.monotonic() + PATIENCE_S
    with Consumer({"bootstrap.servers": address, "isolation.level": isolation}) as consumer:
        places = [(BILLS, number) for number in range(PARTITIONS)]
        consumer.assign(places)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(places)
        while any(consumer.position(place) < end for place, end in ends.items()):
            found += [(each.key or b"", each.value or b"") for each in consumer.consume(5_000, POLL_S)]
            if time.monotonic() > deadline:
                raise CommandError(f"{BILLS} could not be read to its end within {PATIENCE_S:g} s", "", "--keep")
    return found


# The story
# ---------


class ExactlyOnceDemo(DemoRun):
    """Runs one demo; `run` may be called once."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._orders: dict[bytes, bytes] = {}
        self._diaries = {name: WorkerDiary(folder, name) for name in WORKERS}

    def run(self) -> bool:
        """Whether each order was billed exactly once."""
        from muster.client import Admin

        with ExitStack() as stack:
            children = self._children = stack.enter_context(DemoProcesses(self._folder))
            settings = [word for setting in NODE_SETTINGS for word in ("--set", setting)]
            self._node = ["--data", str(self._folder / "data"), *settings]
            self._address = children.start_node(self._node).address
            admin = self._admin = stack.enter_context(Admin(bootstrap_servers=self._address))
            for topic in (ORDERS, BILLS):
                admin.create_topic(topic, PARTITIONS)
            self._say(
                f"a node answers at {self._address}; the topics {ORDERS} and {BILLS} have {PARTITIONS} partitions"
            )
            return self._play()

    def _play(self) -> bool:
        pids = self._begin()
        killed = self._kill_worker(pids[WORKERS[0]])
        self._kill_node(pids[WORKERS[1]])
        return self._finish(killed)

    def _begin(self) -> dict[str, int]:
        pids = {name: self._start(name) for name in WORKERS}
        self._until(self._is_shared, "two workers share the partitions")
        self._write_orders()
        self._until(
            lambda: all(self._times(name, "committed", pid) for name, pid in pids.items()), "both workers commit"
        )
        self._say("two workers bill the orders, a transaction for each batch of bills and the offsets of its orders")
        return pids

    def _kill_worker(self, pid: int) -> int:
        """How many bills the transaction had that died with it."""
        name = WORKERS[0]
        records = self._hold_open(name, pid)
        before = {member.member_id for member in self._admin.describe_group(GROUP).members if member.client_id == name}
        self._children.kill(name)
        self._say(f"{name} is killed in the middle of a transaction: its {records} bills are in the log, not committed")
        self._diaries[name].hold.unlink()
        again = self._start(name)
        self._until(lambda: self._times(name, "ready", again) > 0, f"{name} is back")
        self._say(f"{name} is started again under its transactional id, and the coordinator aborts what it left open")
        self._until(lambda: self._is_shared(before), f"{name} has partitions again")
        self._write_orders()
        self._until(lambda: self._times(name, "committed", again) > 0, f"{name} commits")
        return records

    def _kill_node(self, pid: int) -> None:
        name = WORKERS[1]
        records = self._hold_open(name, pid)
        before = len(self._ends(name, pid))
        self._children.kill("node")
        self._say(f"the node is killed in the middle of a transaction of {name} with {records} bills")
        self._children.start_node(self._node, listen=self._address)
        self._say("the node is started again, and finds the transaction in its log, still open")
        self._diaries[name].hold.unlink()
        self._until(lambda: len(self._ends(name, pid)) > before, f"{name} ends its transaction")
        self._say(f"{name} goes on where it was; its transaction ends: {self._ends(name, pid)[before]}")

    def _finish(self, killed: int) -> bool:
        self._until(self._is_all_committed, f"the offsets of all {len(self._orders):,} orders are committed")
        self._children.stop(WORKERS)
        notes = [note for diary in self._diaries.values() for note in diary.read()]
        count = Counter(note["what"] for note in notes)
        lost = count["aborted"] + count["unknown"] + 1  # and that of the killed worker, which told nothing
        self._say(
            f"all {len(self._orders):,} orders are done, in {plural(count['committed'], 'transaction')}; "
            f"{plural(lost, 'other')} came to nothing"
        )
        committed = read_bills(self._address, "read_committed")
        everything = read_bills(self._address, "read_uncommitted")
        proof = prove_billing(self._orders, committed, everything)
        show_billing_proof(self._out, proof)
        return proof.holds and proof.left_in_log >= killed

    # Steps

    def _write_orders(self) -> None:
        """Another portion; amounts look like amounts, and are the same in every run."""
        from muster.client import Producer

        first = len(self._orders)
        with Producer(bootstrap_servers=self._address) as producer:
            for number in range(first, first + PORTION):
                key, order = b"order-%d" % number, b"%d" % (100 + number * 7919 % 99_900)
                self._orders[key] = order
                producer.produce(ORDERS, order, key=key)
            producer.flush()

    def _start(self, name: str) -> int:
        arguments = ["--bootstrap", self._address, "--name", name, "--folder", str(self._folder)]
        return self._children.start(name, ["demo-exactly-once-worker", *arguments]).pid

    def _hold_open(self, name: str, pid: int) -> int:
        """The worker stops with a transaction open, in which this many bills are written and flushed."""
        self._diaries[name].hold.touch()
        self._write_orders()
        self._until(lambda: self._times(name, "open", pid) > 0, f"{name} has a transaction open")
        return next(int(note["records"]) for note in self._diaries[name].read(pid) if note["what"] == "open")

    def _is_shared(self, gone: Collection[str] = ()) -> bool:
        """Whether two workers have all partitions between them, and neither is a member that has gone."""
        from muster.client.errors import GroupNotFound

        try:
            found = self._admin.describe_group(GROUP)
        except GroupNotFound:
            return False
        shares = [len(member.assignment) for member in found.members if member.member_id not in gone]
        return found.state == "Stable" and shares == [PARTITIONS // 2] * 2

    def _times(self, name: str, what: str, pid: int) -> int:
        return sum(1 for note in self._diaries[name].read(pid) if note["what"] == what)

    def _ends(self, name: str, pid: int) -> Sequence[str]:
        told = [note["what"] for note in self._diaries[name].read(pid)]
        return [what for what in told if what in ("committed", "aborted", "unknown")]

    def _is_all_committed(self) -> bool:
        lags = [each for each in self._admin.group_lag(GROUP) if each.partition[0] == ORDERS]
        return len(lags) == PARTITIONS and not any(each.lag for each in lags)
