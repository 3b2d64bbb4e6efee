"""The cases of `muster bench cluster`: the goals are CL-P1 to CL-P9 (docs/design/cluster.md, Goals)."""

import asyncio
import contextlib
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from muster.coordinator.zookeeper.errors import ZooKeeperError
from muster.workshop.bench import appends, moving, takeover
from muster.workshop.bench.asking import TrioClient
from muster.workshop.bench.failover import FailureKind, ServiceGap, measure_gaps
from muster.workshop.bench.processes import BenchFailed
from muster.workshop.bench.rows import BenchRow, at_most
from muster.workshop.bench.trio import NODES, run_one_node, run_three_brokers, run_three_nodes

BENCH: Final = "cluster"
ROUNDS: Final = 3
BROKERS: Final = "three brokers of Kafka 4.1.1"
TOLD: Final = "Kafka 4.1.1, measured before"
"""Where no broker is given: what was measured on another machine."""

KILLED_HEARTBEAT_S, KILLED_PRODUCE_S, STOPPED_S = 10.3, 10.8, 0.86


class FailoverGoal(NamedTuple):
    """of: whether the first answer counts, or the longest while without one. told_s: Kafka's, measured before."""

    case: str
    what: str
    how: FailureKind
    longest: bool
    share: float
    told_s: float


FAILOVERS: Final = (
    FailoverGoal("P1 killed: to the first heartbeat", "heartbeat", FailureKind.KILLED, False, 0.2, KILLED_HEARTBEAT_S),
    FailoverGoal(
        "P1 killed: to the first acks=all produce", "produce", FailureKind.KILLED, False, 0.2, KILLED_PRODUCE_S
    ),
    FailoverGoal("P1 frozen: to the first heartbeat", "heartbeat", FailureKind.FROZEN, False, 0.9, KILLED_HEARTBEAT_S),
    FailoverGoal(
        "P1 frozen: to the first acks=all produce", "produce", FailureKind.FROZEN, False, 0.9, KILLED_PRODUCE_S
    ),
    FailoverGoal("P2 stopped: longest without a heartbeat", "heartbeat", FailureKind.STOPPED, True, 0.5, STOPPED_S),
    FailoverGoal("P2 stopped: longest without a produce", "produce", FailureKind.STOPPED, True, 0.5, 1.0),
)
COSTS: Final = "P3 to P5 copies"
IDLE: Final = "P9 idle, 1,000 partitions"
IDLE_S: Final = 20.0
IDLE_SHARE: Final = 0.03


def run(only: str = "", kafka: str = "") -> Iterator[BenchRow]:
    """Measure the cases whose name contains `only`; beside the brokers of the folder `kafka`, if it names one.

    Each row is told as soon as it is measured. Raises BenchFailed, which names the case that failed, and JavaNotFound.
    """
    wanted = [each for each in FAILOVERS if only in each.case]
    with tempfile.TemporaryDirectory(prefix="muster-bench-", ignore_cleanup_errors=True) as home:
        for how in dict.fromkeys(each.how for each in wanted):
            yield from measure_failovers(
                f"{home}/{how.name.lower()}", [each for each in wanted if each.how is how], kafka
            )
        if only in COSTS:
            with name_failed_case(COSTS):
                yield from measure_copies(f"{home}/copies")
        for name, measure in ALONE.items():
            if only in name:
                with name_failed_case(name):
                    yield measure(f"{home}/{name.split()[0]}")


@contextlib.contextmanager
def name_failed_case(case: str) -> Iterator[None]:
    """Whatever comes in the way of a case is told with its name. Raises BenchFailed."""
    try:
        yield
    except (BenchFailed, ZooKeeperError, OSError, subprocess.SubprocessError) as error:
        raise BenchFailed(f"{case}: {str(error) or type(error).__name__}") from error


def measure_failovers(home: str, wanted: list[FailoverGoal], kafka: str) -> Iterator[BenchRow]:
    """All of what happens to a node one way. Each way has servers of its own: none has gone through another before.

    Where the brokers fail, what was measured is told beside what they took before, and then how they failed.
    """
    how = wanted[0].how
    whats = list(dict.fromkeys(each.what for each in wanted))
    cases = ", ".join(each.case for each in wanted)
    with name_failed_case(cases), run_three_nodes(f"{home}/ours") as nodes:
        ours = asyncio.run(measure_gaps(nodes, ROUNDS, how, whats))
    theirs: dict[str, ServiceGap] = {}
    failure: BenchFailed | None = None
    if kafka:
        try:
            with (
                name_failed_case(f"{cases}: {BROKERS}"),
                run_three_brokers(make_folder(f"{home}/theirs"), kafka) as brokers,
            ):
                theirs = asyncio.run(measure_gaps(brokers, 1, how, whats))
        except BenchFailed as error:
            failure = error
    for each in wanted:
        yield failover(each, ours[each.what], theirs.get(each.what))
    if failure is not None:
        raise failure


def failover(wanted: FailoverGoal, ours: ServiceGap, theirs: ServiceGap | None) -> BenchRow:
    """
    >>> failover(FAILOVERS[0], ServiceGap(0.5, 0.5), ServiceGap(10.0, 10.0))[2:]
    (0.5, 's', 'three brokers of Kafka 4.1.1', 10.0, 20.0, 5.0, True)
    """
    value = ours.longest_s if wanted.longest else ours.first_s
    peer, against = (TOLD, wanted.told_s) if theirs is None else (BROKERS, theirs[wanted.longest])
    return cost_row(wanted.case, value, "s", peer, against, wanted.share)


def measure_copies(home: str) -> Iterator[BenchRow]:
    with run_one_node(make_folder(home)) as alone, run_three_nodes(home) as nodes:
        single, triple = asyncio.run(appends.measure_append_costs([(alone, 1), (nodes, 3)]))
    peer = "the same node alone"
    yield cost_row("P3 copies: processor time of the leader", triple.leader_ms, "ms/MB", peer, single.leader_ms, 1.2)
    yield cost_row("P4 copies: processor time of all three", triple.all_ms, "ms/MB", peer, single.leader_ms, 1.7)
    yield cost_row("P5 copies: one acks=all produce, median", triple.produce_ms, "ms", peer, single.produce_ms, 3.0)


def measure_idle_cluster(home: str) -> BenchRow:
    """The busiest of three nodes, as a share of a core."""
    with run_three_nodes(make_folder(home)) as nodes:
        asking = TrioClient(nodes.addresses)

        async def fill() -> None:
            await asking.make("idle", 1_000, 3)
            asking.close()

        asyncio.run(fill())
        time.sleep(IDLE_S / 2)
        before = {node: nodes.cpu_s(node) for node in NODES}
        time.sleep(IDLE_S)
        share = max(nodes.cpu_s(node) - before[node] for node in NODES) / IDLE_S
    return cost_row(IDLE, share * 100, "% of a core", "the goal", IDLE_SHARE * 100, 1.0)


def cost_row(case: str, value: float, unit: str, peer: str, peer_value: float, share: float) -> BenchRow:
    return at_most(share, case, value, unit, peer, peer_value, bench=BENCH)


def make_folder(folder: str) -> str:
    Path(folder).mkdir(parents=True)
    return folder


ALONE: Final[dict[str, Callable[[str], BenchRow]]] = {
    moving.MOVING_CASE: moving.measure_leader_moves,
    takeover.TAKEOVER_CASE: takeover.measure_shard_takeover,
    IDLE: measure_idle_cluster,
}
"""Cases of one row, by their names: measured below a folder that is not there yet."""
