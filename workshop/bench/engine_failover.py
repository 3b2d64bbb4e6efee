"""KB-P8, KB-P9: how long nobody answers a heartbeat when the owner of its group's shard is killed, or told to stop;
beside three brokers of Kafka, of which the group's coordinator goes the same way."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from muster.workshop.bench.asking import TrioClient, TrioMember
from muster.workshop.bench.broker import KafkaBroker, free_ports
from muster.workshop.bench.cluster_suite import BROKERS, KILLED_HEARTBEAT_S, STOPPED_S, TOLD
from muster.workshop.bench.failover import FailureKind, ServiceGap, measure_gaps, measure_heartbeat_gap
from muster.workshop.bench.inside import BENCH, settings_over, start_node_process
from muster.workshop.bench.processes import read_announcement
from muster.workshop.bench.rows import BenchRow, at_most
from muster.workshop.bench.trio import TrioProcesses, run_three_brokers

NODES: Final = (1_000_001, 1_000_002, 1_000_003)
"""As Kafka's clients know them: `engine.kafka.node.id.base` and `node.id`."""
FAILOVER_SHARDS: Final = 4
BEFORE: Final = {
    FailureKind.KILLED: ServiceGap(KILLED_HEARTBEAT_S, KILLED_HEARTBEAT_S),
    FailureKind.STOPPED: ServiceGap(STOPPED_S, STOPPED_S),
}
FAILOVER_ROUNDS: Final = 3
SETTLE_S: Final = 12.0
"""Between two rounds: a session, and the time that shards take to be dealt anew."""


class NodesOverKafka(TrioProcesses):
    """Muster's over one broker, each with a door of its own and one for the broker; they stay over restarts."""

    def __init__(self, home: Path, broker: KafkaBroker) -> None:
        super().__init__()
        self._home = home
        self._broker = broker
        self._ports = dict(zip(NODES, zip(free_ports(3), free_ports(3), strict=True), strict=True))
        self.addresses = {node: f"127.0.0.1:{own}" for node, (own, _) in self._ports.items()}

    def start(self, node: int) -> None:
        own, brokers = self._ports[node]
        settings = settings_over(self._broker.address, "bench-failover", FAILOVER_SHARDS) | {
            "node.id": str(node - NODES[0] + 1),
            "kafka.listeners": f"127.0.0.1:{own}",
            "engine.kafka.broker.ports": str(brokers),
            "engine.kafka.broker.id.first": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        process = start_node_process(settings, self._home / f"node{node}.log")
        self.runs(node, process)
        read_announcement(process)


def measure_failover(broker: KafkaBroker, home: str, kafka: str) -> Iterator[BenchRow]:
    """kafka: a folder of brokers to be killed and stopped; without one Kafka's figures are those of before."""
    ours = run_nodes_over(broker, Path(home))
    theirs, peer = BEFORE, TOLD
    if kafka:
        theirs, peer = {how: measure_brokers(Path(home) / how.name.lower(), kafka, how) for how in ours}, BROKERS
    killed, stopped = FailureKind.KILLED, FailureKind.STOPPED
    first, longest = "P8 an owner is killed: first heartbeat", "P9 an owner is stopped: longest without a heartbeat"
    yield at_most(1.2, first, ours[killed].first_s, "s", peer, theirs[killed].first_s, bench=BENCH)
    yield at_most(1.0, longest, ours[stopped].longest_s, "s", peer, theirs[stopped].longest_s, bench=BENCH)


def measure_brokers(folder: Path, kafka: str, how: FailureKind) -> ServiceGap:
    folder.mkdir()
    with run_three_brokers(str(folder), kafka) as brokers:
        return asyncio.run(measure_gaps(brokers, 1, how, ["heartbeat"]))["heartbeat"]


def run_nodes_over(broker: KafkaBroker, home: Path) -> dict[FailureKind, ServiceGap]:
    nodes = NodesOverKafka(home, broker)
    try:
        for node in NODES:
            nodes.start(node)
        return asyncio.run(measure_node_gaps(nodes))
    finally:
        nodes.stop()


async def measure_node_gaps(nodes: NodesOverKafka) -> dict[FailureKind, ServiceGap]:
    """The medians of the rounds."""
    asking = TrioClient(nodes.addresses)
    try:
        await asyncio.sleep(SETTLE_S)
        member = TrioMember(asking)
        await member.join()
        found: dict[FailureKind, ServiceGap] = {}
        for how in (FailureKind.KILLED, FailureKind.STOPPED):
            gaps = []
            for _ in range(FAILOVER_ROUNDS):
                gaps.append(await measure_heartbeat_gap(nodes, asking, member, how))
                await asyncio.sleep(SETTLE_S)
            found[how] = ServiceGap(*(sorted(each)[FAILOVER_ROUNDS // 2] for each in zip(*gaps, strict=True)))
        return found
    finally:
        asking.close()
