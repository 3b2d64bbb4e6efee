"""`muster demo --watch`: a real Kafka, a worker that dies, one that is too slow, and what Muster tells of both.

The workers are ordinary confluent-kafka consumers. Muster coordinates nothing here: `muster groups explain --kafka`
reads what the broker has recorded. Without Java, Maven's jars or confluent-kafka the records are those of an earlier
run, which are a part of the package.
"""

import gzip
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from muster.cli.common.commands import stop_with_stdin
from muster.cli.demo.processes import DemoProcesses, DemoRun
from muster.coordinator.java_runtime import JavaNotFound
from muster.workshop.bench.kafka_peer import JarsUnavailable, running_broker

GROUP: Final = "billing"
TOPIC: Final = "orders"
PARTITIONS: Final = 6
KILLED, SLOW, NEW = "worker-2", "worker-3", "worker-4"
SESSION_MS: Final = 6_000
POLL_MS: Final = 12_000
STALLS_S: Final = 16.0
"""How long the slow worker spends on one record: longer than its max.poll.interval.ms."""
RECORDS_A_SECOND: Final = 60
PATIENCE_S: Final = 60.0
LOOK_S: Final = 0.2
RECORDED: Final = Path(__file__).parent / "recorded" / "watched_billing.log.gz"
"""The group's segment of `__consumer_offsets`, as a run with --keep leaves it in kafka/logs, compressed."""

EXPECTED: Final = {KILLED: ("session expired",), SLOW: ("poll timeout",)}
"""What has to be told of whom."""


# A worker
# --------


@click.command("demo-watch-worker")
@click.option("--bootstrap", required=True)
@click.option("--name", required=True)
def demo_watch_worker(bootstrap: str, name: str) -> None:
    """One worker of `muster demo --watch`: SIGUSR1 makes its next record take long."""
    from confluent_kafka import Consumer

    stopping, slow = threading.Event(), threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.set())
    signal.signal(signal.SIGUSR1, lambda number, frame: slow.set())
    stop_with_stdin()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "client.id": name,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 1_000,
            "session.timeout.ms": SESSION_MS,
            "max.poll.interval.ms": POLL_MS,
            "log_level": 0,
        }
    )
    consumer.subscribe([TOPIC])
    while not stopping.is_set():
        consumer.poll(LOOK_S)
        if slow.is_set():
            slow.clear()
            stopping.wait(STALLS_S)
    consumer.close()


# The story
# ---------


class WatchDemo(DemoRun):
    """Runs one demo; `run` may be called once."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)

    def run(self) -> bool:
        """Whether Muster told what had happened."""
        try:
            import confluent_kafka  # noqa: F401

            with ExitStack() as stack:
                self._say("starting a Kafka (its jars come from Maven the first time)")
                broker = stack.enter_context(
                    running_broker(str(self._folder), delay_ms=1_000, more="offsets.topic.num.partitions=1\n")
                )
                return self._play(broker.address)
        except (ImportError, JavaNotFound, JarsUnavailable) as error:
            self._out.print(Text(f"No Kafka can be started here: {error}", style="yellow"), soft_wrap=True)
            return self.replay()

    def replay(self) -> bool:
        """The same of the records that an earlier run left."""
        segment = self._folder / "__consumer_offsets-0" / f"{0:020}.log"
        segment.parent.mkdir()
        segment.write_bytes(gzip.decompress(RECORDED.read_bytes()))
        self._out.print(
            "So this is a recording: what a Kafka 4.1.1 had on record of the group 'billing' after three\n"
            f"confluent-kafka workers had started, {KILLED} had been killed, {SLOW} had spent {STALLS_S:.0f} s on one\n"
            f"record, and {NEW} had joined.",
            soft_wrap=True,
        )
        return self._tell(["--segments", str(segment.parent)])

    def _play(self, address: str) -> bool:
        with DemoProcesses(self._folder) as children, written(address):
            self._children = children
            self._say(f"Kafka 4.1.1 answers at {address}; the topic {TOPIC} has {PARTITIONS} partitions")
            look = GroupLook(address)

            def start(name: str) -> "subprocess.Popen[bytes]":
                return children.start(name, ["demo-watch-worker", "--bootstrap", address, "--name", name])

            workers = {f"worker-{number}": start(f"worker-{number}") for number in (1, 2, 3)}
            self._until(lambda: look.members() == sorted(workers), "three workers share the partitions")
            self._say(f"{len(workers)} confluent-kafka workers are in the group {GROUP}")
            time.sleep(3)  # commits, by which the group's history tells how often each worker commits
            children.kill(KILLED)
            self._say(f"SIGKILL to {KILLED}; its session ends after {SESSION_MS // 1000} s")
            self._until(lambda: KILLED not in look.members(), f"{KILLED} is out")
            time.sleep(4)
            workers[SLOW].send_signal(signal.SIGUSR1)
            self._say(f"{SLOW} takes {STALLS_S:.0f} s for one record; max.poll.interval.ms is {POLL_MS // 1000} s")
            self._until(lambda: SLOW not in look.members(), f"{SLOW} is out")
            self._until(lambda: SLOW in look.members(), f"{SLOW} is back")
            start(NEW)
            self._until(lambda: NEW in look.members(), f"{NEW} is in")
            self._say(f"{SLOW} was put out and came back; {NEW} joined")
            time.sleep(2)
            return self._tell(["--kafka", address])

    def _tell(self, source: Sequence[str]) -> bool:
        command = ["groups", "explain", GROUP]
        self._out.print()
        self._out.print(Text("$ muster " + " ".join([*command, *source]), style="bold"), soft_wrap=True)
        muster = [sys.executable, "-m", "muster.cli"]
        subprocess.run([*muster, *command, *source], check=False)
        told = subprocess.run([*muster, *command, *source, "-o", "json"], check=False, stdout=subprocess.PIPE).stdout
        proof = compare_with_truth(json.loads(told or b"{}").get("rebalances", []))
        show_watch_proof(self._out, proof)
        return all(each.right for each in proof)


class GroupLook:
    """Asks the broker who is in the group, as any tool does: Muster has no part in the story."""

    def __init__(self, address: str) -> None:
        from confluent_kafka.admin import AdminClient

        self._admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        self._last: list[str] = []

    def members(self) -> list[str]:
        """Client ids, in order; of a group that is rebalancing, none."""
        from confluent_kafka import KafkaException

        try:
            found = self._admin.describe_consumer_groups([GROUP], request_timeout=5)[GROUP].result(timeout=10)
        except (KafkaException, TimeoutError):
            return self._last  # the coordinator is starting, or busy
        stable = found.state.name == "STABLE"
        self._last = sorted(str(member.client_id) for member in found.members) if stable else []
        return self._last


@contextmanager
def written(address: str) -> Iterator[None]:
    """The topic, and a thread that writes to it."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(timeout=60)
    producer, over = Producer({"bootstrap.servers": address, "log_level": 0}), threading.Event()

    def write() -> None:
        number = 0
        while not over.wait(1 / RECORDS_A_SECOND):
            producer.produce(TOPIC, b"order %d" % number, partition=number % PARTITIONS)
            producer.poll(0)
            number += 1

    thread = threading.Thread(target=write, name="demo-producer", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


# The proof
# ---------


class ToldCause(NamedTuple):
    """What the ledger says of one worker, beside what was done to it."""

    worker: str
    done: str
    told: str
    certainty: str
    right: bool


DONE: Final = {
    KILLED: "SIGKILL",
    SLOW: f"{STALLS_S:.0f} s on one record",
}


def compare_with_truth(rebalances: Sequence[dict[str, Any]]) -> list[ToldCause]:
    """rebalances: documents of the ledger, in any order."""
    proof = []
    for worker, causes in EXPECTED.items():
        told = [
            (each["cause"].replace("_", " ").lower(), each.get("certainty") or "")
            for each in rebalances
            if each.get("culprit_client_id") == worker
        ]
        found = next((each for each in told if each[0] in causes), None)
        cause, certainty = found or next(iter(told), ("nothing", ""))
        proof.append(ToldCause(worker, DONE[worker], cause, certainty, found is not None))
    return proof


def show_watch_proof(out: Console, proof: Sequence[ToldCause]) -> None:
    table = Table("worker", "what was done to it", "what Muster tells", "how it is known", box=None, pad_edge=False)
    for each in proof:
        told = Text(each.told, style="green" if each.right else "bold red")
        table.add_row(each.worker, each.done, told, each.certainty)
    out.print()
    out.print(table)
    right = all(each.right for each in proof)
    out.print(
        "\nNothing was written to the Kafka. On yours:\n"
        "  muster groups explain GROUP --kafka b1:9092\n"
        "  muster watch kafka://b1:9092     # all groups, on http://127.0.0.1:9291/",
        soft_wrap=True,
    )
    if not right:
        out.print(Text("NOT ALL OF IT WAS TOLD AS IT WAS", style="bold red"))
