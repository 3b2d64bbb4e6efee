"""Consume, transform, produce with a group of Muster's over a real Kafka, while the program and the group's owner are
killed: every record comes out once, and positions agree with what came out, as a read_committed reader sees it.

`python -m tests.torture.exactly_once --rounds 200`; it wants Java and Maven's jars, as `make engine` does.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from muster.workshop.bench.kafka_peer import KAFKA, find_jars
from tests.interop.kafka_broker import kafka_broker
from tests.support.kafka_backend.door import DoorNode
from tests.support.kafka_backend.served import make_topics
from tests.support.pace import Patience
from tests.torture.transforming import INPUT, OUTPUT

PARTITIONS: Final = 3
BURST: Final = 30
CHECKED_EVERY: Final = 10
PATIENCE_S: Final = 120.0
GROUP: Final = "eos"
HUNG: Final = "Timeout ("
"""How the program's last words begin when it ends itself: see `transforming`."""
MORE: Final = "group.min.session.timeout.ms=1000\n"
FAULTS: Final = ("program", "program", "owner", "both", "nothing")


class Program:
    """The one that transforms, in a process of its own."""

    def __init__(self, servers: str, place: Path) -> None:
        self._command = [sys.executable, "-m", "tests.torture.transforming", servers, GROUP]
        self._log = place / "program.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def see_to_it(self) -> bool:
        """Whether it had ended by itself, as a producer that was fenced has to; it is started again then."""
        assert self._process is not None
        ended = self._process.poll() is not None
        if ended:
            self.start()
        return ended

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    def hung(self) -> int:
        """How often send_offsets_to_transaction did not come back, and it ended itself. The fault that is known is
        librdkafka's; positions that a node never answers would look the same."""
        return self._log.read_text(errors="replace").count(HUNG)

    def tail(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join([line for line in lines if not line.startswith("%")][-30:])


class Round:
    """All rounds: what was sent, and what came of it."""

    def __init__(self, kafka: str, nodes: dict[int, DoorNode], place: Path) -> None:
        self.nodes = nodes
        self.servers = ",".join(node.kafka_address for node in nodes.values())
        self.program = Program(self.servers, place)
        self.sent = 0
        self.census: Counter[str] = Counter()
        self._producer = Producer({"bootstrap.servers": kafka})
        quiet = {"log_level": 0}
        reading = {"bootstrap.servers": kafka, "group.id": "reads", "isolation.level": "read_committed", **quiet}
        self._reader = Consumer(reading)
        self._reader.assign([TopicPartition(OUTPUT, 0, 0)])
        self._positions = Consumer({"bootstrap.servers": self.servers, "group.id": GROUP, **quiet})
        self.found: Counter[int] = Counter()

    def sends(self) -> None:
        for number in range(self.sent, self.sent + BURST):
            self._producer.produce(INPUT, b"%d" % number, partition=number % PARTITIONS)
        self.sent += BURST
        assert self._producer.flush(PATIENCE_S) == 0

    def strikes(self, what: str, number: int) -> None:
        self.census[f"killed: {what}"] += what != "nothing"
        if what in ("program", "both"):
            self.program.kill()
        if what in ("owner", "both"):
            struck = self.nodes[1 + number % 2]
            struck.kill()
            struck.start()
        if what in ("program", "both"):
            self.program.start()

    def reads(self) -> None:
        for message in self._reader.consume(500, 0.05):
            if message.error() is None:
                self.found[int(message.value())] += 1

    def differences(self) -> list[str]:
        """Once all that was sent has come out, or it takes too long."""
        patience = Patience(PATIENCE_S)
        while sum(self.found.values()) < self.sent and patience.lasts():
            self.reads()
            self.census["ended by itself"] += self.program.see_to_it()
        self.reads()
        wrong = [f"{n} came out {self.found[n]} times" for n in range(self.sent) if self.found[n] != 1]
        return wrong + self._off()

    def _committed(self, places: list[TopicPartition]) -> list[TopicPartition]:
        """Asked again while their shard moves."""
        patience = Patience(PATIENCE_S)
        while True:
            try:
                return list(self._positions.committed(places, timeout=PATIENCE_S))
            except KafkaException:
                if not patience.lasts():
                    raise

    def _off(self) -> list[str]:
        """Positions that are not at their partition's end; what is open is waited for."""
        places = [TopicPartition(INPUT, part) for part in range(PARTITIONS)]
        wrong: list[str] = []
        for each in self._committed(places):
            _, end = self._positions.get_watermark_offsets(each, timeout=PATIENCE_S)
            if each.offset != end:
                wrong.append(f"{INPUT}-{each.partition} is committed at {each.offset}; all {end} came out")
        return wrong


def torture(kafka: str, rounds: int, seed: int, place: Path) -> Counter[str]:
    """Raises AssertionError at the first difference."""
    rng = random.Random(seed)
    make_topics(kafka, {INPUT: PARTITIONS, OUTPUT: 1})
    nodes = {number: DoorNode(kafka, "torture", number, place) for number in (1, 2)}
    with ExitStack() as stack:
        for node in nodes.values():
            stack.callback(node.stop)
            node.start()
        whole = Round(kafka, nodes, place)
        stack.callback(whole.program.kill)
        whole.program.start()
        for number in range(1, rounds + 1):
            whole.sends()
            time.sleep(rng.uniform(0, 1.5))  # whatever it is at then
            whole.census["ended by itself"] += whole.program.see_to_it()
            whole.strikes(rng.choice(FAULTS), number)
            if number % CHECKED_EVERY == 0 or number == rounds:
                wrong = whole.differences()
                logs = "\n".join(node.log_tail() for node in nodes.values())
                assert not wrong, f"seed {seed}, round {number}: {wrong[:10]}\n{whole.program.tail()}\n{logs}"
                print(f"{number} rounds, {whole.sent} records, 0 differences", flush=True)
        whole.census["records"] = whole.sent
        whole.census["hung in send_offsets"] = whole.program.hung()
        return whole.census


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture.exactly_once", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="how often something is killed, or nothing is")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    classpath = os.pathsep.join(map(str, find_jars(KAFKA)))
    with tempfile.TemporaryDirectory() as home, kafka_broker(classpath, Path(home) / "kafka", MORE) as kafka:
        census = torture(kafka, options.rounds, options.seed, Path(home))
    print(", ".join(f"{count} {what}" for what, count in sorted(census.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
