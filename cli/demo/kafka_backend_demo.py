"""`muster demo --engine`: two nodes over an existing Kafka, an unmodified client, and a kill of its group's owner."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from rich.console import Console
from rich.text import Text

from muster.cli.common.commands import CommandError
from muster.cli.demo.delivery_proof import ProofTable
from muster.cli.demo.processes import DemoProcesses, DemoRun
from muster.cli.groups.rebalance_story import move_line
from muster.client import Admin
from muster.client.described import GroupDescription
from muster.client.errors import ClientError

NODES: Final = (1, 2)
SHARDS: Final = 4
TRIES: Final = 5
"""To make the topic, where connections break."""
PARTITIONS: Final = 6
RECORDS: Final = 3_000
"""Sent before anybody reads, and once more behind the kill."""
ASSIGNOR: Final = "lag"
LEASE_MS: Final = 6_000
"""The least that brokers take unless they are told otherwise."""
STALLED_S: Final = 60.0
MOST_PORTS: Final = 1_000


@dataclass(frozen=True, slots=True)
class TakeoverProof:
    """What was seen."""

    sent: int
    read: int
    again: int
    in_kafka: bool
    planned_by: str
    before: tuple[int, int]
    """The group's generation, and how many rebalances it had, before the kill; and after it."""
    after: tuple[int, int]
    without_s: float

    @property
    def holds(self) -> bool:
        return (
            self.read == self.sent and not self.in_kafka and self.planned_by == ASSIGNOR and self.before == self.after
        )


class Readers:
    """Two members of a group, by an unmodified client, in a thread each; what they have read, by place."""

    def __init__(self, servers: str, group: str, topic: str) -> None:
        self.places: dict[tuple[int, int], int] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        given = {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 30_000,
            "enable.auto.commit": True,
            "log_level": 0,
        }
        self._threads = [threading.Thread(target=self._run, args=(given, topic), daemon=True) for _ in NODES]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(STALLED_S)

    def _run(self, given: dict[str, Any], topic: str) -> None:
        consumer = Consumer(given)
        consumer.subscribe([topic])
        while not self._over.is_set():
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                with self._lock:
                    place = message.partition() or 0, message.offset() or 0
                    self.places[place] = self.places.get(place, 0) + 1
        consumer.close()


class KafkaBackendDemo(DemoRun):
    """Runs one demo; `run` may be called once. engine: kafka://HOST:PORT,..."""

    def __init__(self, folder: Path, engine: str) -> None:
        super().__init__(folder)
        self._engine = engine
        self._servers = engine.removeprefix("kafka://")
        self._name = f"muster-demo-{token_hex(4)}"

    def run(self) -> bool:
        """Whether all that is promised was kept. Processes and topics of the demo are gone when it returns."""
        upstream = AdminClient({"bootstrap.servers": self._servers, "log_level": 0})
        try:
            brokers = sorted(upstream.list_topics(timeout=10).brokers)
        except KafkaException as error:
            raise CommandError(f"no Kafka answers at {self._servers}: {error}") from error
        with ExitStack() as stack:
            stack.callback(self._clear, upstream)
            self._children = stack.enter_context(DemoProcesses(self._folder))
            servers, addresses = self._start_nodes(brokers)
            self._make(servers, min(len(brokers), 3))
            admin = stack.enter_context(Admin({"bootstrap.servers": ",".join(addresses.values()), "client.id": "demo"}))
            proved = self._play(admin, upstream, servers, addresses)
        self._out.print()
        show_takeover_proof(self._out, proved)
        return proved.holds

    def _play(self, admin: Admin, upstream: AdminClient, servers: str, addresses: dict[int, str]) -> TakeoverProof:
        sent = self._produce(servers)
        self._say(f"{sent:,} records sent by confluent-kafka, most of them to one partition")
        self._until(lambda: self._set(admin), "the group takes its setting")
        self._say(f"groups set {self._name} assignor={ASSIGNOR}: a Python assignor, which looks at lags, plans for it")
        readers = Readers(servers, self._name, self._name)
        self._until(lambda: self._shared(admin), "two unmodified consumers share the partitions")
        self._until(lambda: len(readers.places) >= sent, "all is read")
        found = admin.describe_group(self._name)
        owner = next(number for number, address in addresses.items() if address == found.coordinator)
        before = found.generation, len(admin.explain(self._name))
        self._say(f"generation {found.generation}, planned by {found.planned_there or found.assignor}")

        pid = self._children.kill(f"node-{owner}")
        killed = time.monotonic()
        self._say(f"SIGKILL to node {owner} (pid {pid}): it is the owner of the group's shard")
        with Admin({"bootstrap.servers": addresses[3 - owner], "client.id": "demo"}) as left:
            self._until(lambda: self._owned_by(left, addresses[3 - owner]), "the other node owns it")
            without_s = time.monotonic() - killed
            self._say(f"node {3 - owner} owns it after {without_s:.1f} s (engine.kafka.session.timeout.ms {LEASE_MS})")
            sent += self._produce(servers)
            self._until(lambda: len(readers.places) >= sent, "all is read")
            now = left.describe_group(self._name)
            after, planned = (now.generation, len(left.explain(self._name))), now.planned_there
            self._out.print()
            self._out.print(Text("The takeover, from the group's ledger", style="bold"))
            for move in left.moves(self._name)[:1]:
                self._out.print(move_line(move), soft_wrap=True)
        there = upstream.list_consumer_groups().result(timeout=30)
        readers.stop()
        return TakeoverProof(
            sent,
            len(readers.places),
            sum(readers.places.values()) - len(readers.places),
            self._name in [each.group_id for each in there.valid],
            planned,
            before,
            after,
            without_s,
        )

    # Processes and topics.

    def _start_nodes(self, brokers: list[int]) -> tuple[str, dict[int, str]]:
        width = brokers[-1] - brokers[0] + 1
        if width > MOST_PORTS:
            raise CommandError(
                f"the ids of its brokers go from {brokers[0]} to {brokers[-1]}: too many ports for a demo"
            )
        doors, addresses = [], {}
        for number in NODES:
            with free_ports(width) as first:
                ports = f"{first}-{first + width - 1}"
            settings = {
                "node.id": str(number),
                "engine.kafka.cluster": self._name,
                "engine.kafka.broker.ports": ports,
                "engine.kafka.broker.id.first": str(brokers[0]),
                "engine.kafka.session.timeout.ms": str(LEASE_MS),
                "engine.kafka.heartbeat.interval.ms": "1000",
                "engine.kafka.state.replication.factor": str(min(len(brokers), 3)),
                "offsets.topic.num.partitions": str(SHARDS),
                "group.initial.rebalance.delay.ms": "1500",
                "logging.level": "warning",
            }
            arguments = ["--engine", self._engine]
            arguments += [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
            node = self._children.start_node(arguments, f"node-{number}")
            doors.append(node.kafka_address)
            addresses[number] = node.address
            self._say(f"node {number} over {self._servers}: gRPC {node.address}, Kafka's clients {node.kafka_address}")
        return ",".join(doors), addresses

    def _make(self, servers: str, copies: int) -> None:
        """Make the demo's topic. Where a connection broke, it is asked for again, and may be there then."""
        client = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        for tries_left in reversed(range(TRIES)):
            try:
                client.create_topics([NewTopic(self._name, PARTITIONS, copies)])[self._name].result(timeout=30)
                return
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError.TOPIC_ALREADY_EXISTS:
                    return
                if code != KafkaError._TRANSPORT or not tries_left:
                    what = f"topic {self._name} could not be made through the nodes: {error.args[0].str()}"
                    raise CommandError(what, "", "their logs say more (--keep)") from error

    def _clear(self, upstream: AdminClient) -> None:
        """The demo's two topics go; what else there is was not touched."""
        with suppress(KafkaException):
            for gone in upstream.delete_topics([self._name, f"{self._name}.state"]).values():
                with suppress(KafkaException):
                    gone.result(timeout=30)

    def _produce(self, servers: str) -> int:
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "log_level": 0})
        for number in range(RECORDS):
            # Most of it in one partition: who plans by lags gives its owner less of the others.
            producer.produce(self._name, b"%d" % number, partition=number % PARTITIONS if number % 4 == 0 else 0)
            producer.poll(0)
        if producer.flush(STALLED_S):
            raise CommandError("records were not acknowledged through the nodes", "", "their logs say more (--keep)")
        return RECORDS

    # Looking.

    def _set(self, admin: Admin) -> bool:
        try:
            admin.alter_group_settings(self._name, {"assignor": ASSIGNOR})
        except ClientError:
            return False
        return True

    def _group(self, admin: Admin) -> GroupDescription | None:
        try:
            return admin.describe_group(self._name)
        except ClientError:
            return None

    def _shared(self, admin: Admin) -> bool:
        found = self._group(admin)
        owned = [] if found is None else [len(member.assignment) for member in found.members]
        return len(owned) == len(NODES) and all(owned) and sum(owned) == PARTITIONS

    def _owned_by(self, admin: Admin, address: str) -> bool:
        found = self._group(admin)
        return found is not None and found.coordinator == address and bool(found.members)


@contextmanager
def free_ports(count: int) -> Iterator[int]:
    """The first of so many in a row that nobody has."""
    for _ in range(100):
        with ExitStack() as held, suppress(OSError, OverflowError):
            first = held.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            for port in range(first + 1, first + count):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            held.close()
            yield first
            return
    raise CommandError(f"there are no {count} free ports in a row")


def show_takeover_proof(out: Console, proved: TakeoverProof) -> None:
    table = ProofTable()
    row = table.add_check
    row("records read", f"{proved.read:,}", good=proved.read == proved.sent, note=f"of {proved.sent:,} sent")
    table.add_row("read again", f"{proved.again:,}", "after the last commit before the kill")
    row("the group at Kafka itself", "yes" if proved.in_kafka else "no", good=not proved.in_kafka)
    row("planned by", proved.planned_by, good=proved.planned_by == ASSIGNOR, note="for clients that know nothing of it")
    same = proved.before == proved.after
    row("generation", f"{proved.before[0]} -> {proved.after[0]}", good=same, note="unchanged" if same else "CHANGED")
    table.add_row("without an owner", f"{proved.without_s:.1f} s", "from the kill to the first answer")
    table.show(out, holds=proved.holds)
