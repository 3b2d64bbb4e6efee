"""Transactions of unmodified clients under kill -9 of node and clients, freezes longer than their timeout, and requests
that arrive after they were repeated; every history is checked for anomalies (see `list_append`).

    python -m tests.torture.transactions --rounds 1000 --client confluent
    python -m tests.torture.transactions --rounds 1000 --client java
    python -m tests.torture.transactions --rounds 1000 --client muster
    python -m tests.torture.transactions --rounds 200 --nodes 3
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.peers import java_command
from tests.support.cluster_nodes import ClusterNodes
from tests.support.node import NodeProcess
from tests.support.pace import Patience
from tests.support.zookeeper.servers import running
from tests.torture.appending import PARTITIONS, TIMEOUT_S
from tests.torture.held_requests import HoldingProxy
from tests.torture.list_append import Log, find_anomalies, read_history

WORKERS: Final = 3
CHECKED_EVERY: Final = 20
"""Rounds of one history, which has a topic of its own."""
PATIENCE_S: Final = 120.0
FAULTS: Final = ("client", "client", "node", "both", "freeze", "twin", "nothing")
CLUSTER: Final = {"transaction.state.log.num.partitions": "4", "min.insync.replicas": "2"}
NODE: Final = {"kafka.listeners": "127.0.0.1:0", "transaction.state.log.num.partitions": "4"}


def confluent_worker(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.torture.appending", *arguments]


def java_worker(*arguments: str) -> list[str]:
    java, *rest = java_command("AppendWorker", *arguments)
    return [java, "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *rest]


def muster_worker(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.torture.appending_by_muster", *arguments]


CLIENTS: Final[dict[str, Callable[..., list[str]]]] = {
    "confluent": confluent_worker,
    "java": java_worker,
    "muster": muster_worker,
}


class Site:
    """The node, or the nodes of a cluster, each behind a proxy of its own for Kafka's clients."""

    def __init__(self, place: Path, seed: int, held: float, more: dict[str, str], nodes: int, stack: ExitStack) -> None:
        self.proxies = {number: HoldingProxy(seed + number, held) for number in range(1, nodes + 1)}
        self._held = held
        if nodes == 1:
            self.nodes = {1: NodeProcess(place / "data", NODE | more)}
        else:
            connect = stack.enter_context(running(1)).connect
            self._cluster = ClusterNodes(place, connect, nodes, CLUSTER | more)
            self.nodes = self._cluster.nodes
        for number, node in self.nodes.items():
            node.settings["kafka.advertised.listeners"] = self.proxies[number].address
            stack.callback(node.stop)
        for proxy in self.proxies.values():
            stack.callback(proxy.stop)

    def start(self) -> None:
        if len(self.nodes) == 1:
            self.nodes[1].start()
        else:
            self._cluster.start()
        for number, node in self.nodes.items():
            self.proxies[number].start(node.kafka_address)

    @property
    def kafka_address(self) -> str:
        return ",".join(proxy.address for proxy in self.proxies.values())

    def address_for(self, client: str) -> str:
        if client == "muster":
            return ",".join(node.address for node in self.nodes.values())
        return self.kafka_address

    def kill(self, rng: random.Random) -> None:
        """One of them, and have it back; in a cluster others may lead meanwhile."""
        node = self.nodes[rng.randint(1, len(self.nodes))]
        node.kill()
        if len(self.nodes) > 1:
            time.sleep(rng.choice((0, 1, 5)))
        node.start()

    def calm(self, calm: bool) -> None:
        for proxy in self.proxies.values():
            proxy.chance = 0.0 if calm else self._held

    def log_tail(self) -> str:
        return "\n".join(f"node {number}: {node.log_tail()}" for number, node in self.nodes.items())

    def census(self) -> Counter[str]:
        return sum((proxy.census for proxy in self.proxies.values()), Counter[str]())


class Worker:
    """Instances of one transactional id, one after another; a frozen one may still be there when the next begins."""

    def __init__(self, command: Callable[..., list[str]], name: str, place: Path) -> None:
        self.name, self.life = name, 0
        self._command, self._place = command, place
        self._process: subprocess.Popen[bytes] | None = None
        self._frozen: list[subprocess.Popen[bytes]] = []
        self.log = place / f"{name}.log"

    def histories(self, topic: str) -> list[Path]:
        return sorted(self._place.glob(f"{topic}.{self.name}.*.jsonl"))

    def start(self, servers: str, topic: str) -> None:
        self.life += 1
        told = self._place / f"{topic}.{self.name}.{self.life}.jsonl"
        with self.log.open("ab") as log:
            command = self._command(servers, topic, self.name, str(self.life), str(told))
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def kill(self) -> None:
        if self._process is not None:
            end_process(self._process)
            self._process = None

    def freeze(self) -> None:
        """It stands still; another instance may begin."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        self._frozen.append(self._process)
        self._process = None

    def thaw(self) -> None:
        for each in self._frozen:
            each.send_signal(signal.SIGCONT)

    def take_back(self) -> None:
        """The instance that was frozen goes on as the one that there is."""
        self.thaw()
        self._process = self._frozen.pop()

    def end(self) -> None:
        """All instances, after the transaction that they are at."""
        self.thaw()
        everybody = [*self._frozen, *([self._process] if self._process is not None else [])]
        self._frozen, self._process = [], None
        for each in everybody:
            assert each.stdin is not None
            each.stdin.close()
        for each in everybody:
            try:
                each.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                end_process(each)


def end_process(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(30)


class History:
    """Some rounds on one topic, by workers whose ids are new."""

    def __init__(self, site: Site, client: str, topic: str, workers: Sequence[Worker]) -> None:
        self.site, self.topic, self.workers = site, topic, workers
        self._servers = site.address_for(client)
        self.census: Counter[str] = Counter()
        admin = AdminClient({"bootstrap.servers": site.kafka_address, "log_level": 0})
        copies = min(len(site.nodes), 3)
        admin.create_topics([NewTopic(topic, PARTITIONS, copies)])[topic].result(PATIENCE_S)

    def start(self) -> None:
        for each in self.workers:
            each.start(self._servers, self.topic)

    def strikes(self, what: str, rng: random.Random) -> None:
        self.census[f"round: {what}"] += 1
        worker = rng.choice(self.workers)
        if what == "freeze" and not worker.ended():
            worker.freeze()
            time.sleep(rng.uniform(0.5, 3) * TIMEOUT_S)
            worker.take_back()
        if what == "twin" and not worker.ended():
            worker.freeze()
            worker.start(self._servers, self.topic)
            time.sleep(rng.uniform(0.5, 2))
            worker.thaw()
        if what in ("client", "both"):
            worker.kill()
        if what in ("node", "both"):
            self.site.kill(rng)
        for each in self.workers:
            if each.ended():
                self.census["instances"] += 1
                each.start(self._servers, self.topic)

    def anomalies(self) -> list[str]:
        """Once everybody has ended, and whatever they left open is aborted."""
        for each in self.workers:
            each.end()
        self.site.calm(True)
        self._abort_the_rest()
        history = read_history(path for each in self.workers for path in each.histories(self.topic))
        log = self._read()
        for one in history.values():
            self.census[f"transactions {one.end.value}"] += 1
            self.census["reads"] += len(one.reads)
        self.census["records"] += sum(map(len, log.values()))
        return find_anomalies(history, log, self._positions())

    def _abort_the_rest(self) -> None:
        for each in self.workers:
            name = f"{self.topic}.{each.name}"
            settings = {"bootstrap.servers": self.site.kafka_address, "transactional.id": name, "log_level": 0}
            Producer(settings).init_transactions(PATIENCE_S)

    def _read(self) -> Log:
        consumer = Consumer(
            {
                "bootstrap.servers": self.site.kafka_address,
                "group.id": "judge",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(self.topic, number, 0) for number in range(PARTITIONS)])
        shown: dict[int, dict[int, str]] = {number: {} for number in range(PARTITIONS)}
        ended: set[int] = set()
        patience = Patience(PATIENCE_S)
        while len(ended) < PARTITIONS:
            assert patience.lasts(), f"{self.topic}: no end was told of {PARTITIONS - len(ended)} partitions"
            for message in consumer.consume(1000, 0.5):
                if message.error():
                    ended.add(message.partition())
                else:
                    shown[message.partition()][message.offset()] = (message.value() or b"").decode()
        for number in range(PARTITIONS):
            _, stable = consumer.get_watermark_offsets(TopicPartition(self.topic, number), PATIENCE_S)
            last = max(shown[number], default=-1)
            assert last < stable, f"{self.topic}-{number}: {last} was shown past the last stable offset {stable}"
        consumer.close()
        return shown

    def _positions(self) -> dict[str, int]:
        found = {}
        for each in self.workers:
            settings = {"bootstrap.servers": self.site.kafka_address, "group.id": f"{self.topic}.{each.name}"}
            consumer = Consumer(settings | {"log_level": 0})
            (place,) = consumer.committed([TopicPartition(self.topic, 0)], PATIENCE_S)
            found[each.name] = max(place.offset, 0)
            consumer.close()
        return found


def torture(
    client: str,
    rounds: int,
    seed: int,
    place: Path,
    *,
    more: dict[str, str] | None = None,
    held: float = 0.01,
    nodes: int = 1,
) -> Counter[str]:
    """Raises AssertionError at the first anomaly."""
    rng = random.Random(seed)
    census: Counter[str] = Counter()
    with ExitStack() as stack:
        site = Site(place, seed, held, more or {}, nodes, stack)
        site.start()
        for first in range(0, rounds, CHECKED_EVERY):
            site.calm(False)
            workers = [Worker(CLIENTS[client], f"w{number}", place) for number in range(WORKERS)]
            for each in workers:
                stack.callback(each.kill)
            history = History(site, client, f"list-{seed}-{first}", workers)
            history.start()
            time.sleep(2)  # until they are at work
            for _ in range(min(CHECKED_EVERY, rounds - first)):
                time.sleep(rng.uniform(0.1, 1.0))  # whatever they are at then
                history.strikes(rng.choice(FAULTS), rng)
            time.sleep(1)
            try:
                wrong = history.anomalies()
            except KafkaException as error:
                raise AssertionError(f"seed {seed}, rounds from {first}: {error}\n{site.log_tail()}") from error
            census.update(history.census)
            said = "\n".join(each.log.read_text(errors="replace")[-500:] for each in workers)
            assert not wrong, f"seed {seed}, rounds from {first}: {len(wrong)}, {wrong[:10]}\n{said}\n{site.log_tail()}"
            done = census["transactions committed"]
            print(f"{min(first + CHECKED_EVERY, rounds)} rounds, {done} transactions, 0 anomalies", flush=True)
        return census + site.census()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture.transactions", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="how often something is done to them")
    parser.add_argument("--client", choices=sorted(CLIENTS), default="confluent")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--held", type=float, default=0.01, help="the chance of each request to be held back")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the node")
    parser.add_argument("--nodes", type=int, default=1, help="1, or 3 that are a cluster")
    options = parser.parse_args()
    more = dict(each.split("=", 1) for each in options.set)
    with tempfile.TemporaryDirectory() as home:
        place = Path(home)
        census = torture(
            options.client, options.rounds, options.seed, place, more=more, held=options.held, nodes=options.nodes
        )
    print(", ".join(f"{count} {what}" for what, count in sorted(census.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
