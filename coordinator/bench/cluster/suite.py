"""The cases of `muster bench cluster`: the goals are CL-P1 to CL-P9 (docs/design/cluster.md, Goals)."""

import asyncio
import contextlib
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from muster.coordinator.bench.cluster import appends, moving, takeover
from muster.coordinator.bench.cluster.asking import Asking
from muster.coordinator.bench.cluster.failover import Gap, How, rounds
from muster.coordinator.bench.cluster.trio import NODES, one_alone, three_brokers, three_nodes
from muster.coordinator.bench.processes import BenchFailed
from muster.coordinator.bench.rows import Row, at_most
from muster.coordinator.zookeeper.errors import ZooKeeperError

BENCH: Final = "cluster"
ROUNDS: Final = 3
BROKERS: Final = "three brokers of Kafka 4.1.1"
TOLD: Final = "Kafka 4.1.1, measured before"
"""Where no broker is given: what was measured on another machine."""

KILLED_HEARTBEAT_S, KILLED_PRODUCE_S, STOPPED_S = 10.3, 10.8, 0.86


class Wanted(NamedTuple):
    """of: whether the first answer counts, or the longest while without one. told_s: Kafka's, measured before."""

    case: str
    what: str
    how: How
    longest: bool
    share: float
    told_s: float


FAILOVERS: Final = (
    Wanted("P1 killed: to the first heartbeat", "heartbeat", How.KILLED, False, 0.2, KILLED_HEARTBEAT_S),
    Wanted("P1 killed: to the first acks=all produce", "produce", How.KILLED, False, 0.2, KILLED_PRODUCE_S),
    Wanted("P1 frozen: to the first heartbeat", "heartbeat", How.FROZEN, False, 0.9, KILLED_HEARTBEAT_S),
    Wanted("P1 frozen: to the first acks=all produce", "produce", How.FROZEN, False, 0.9, KILLED_PRODUCE_S),
    Wanted("P2 stopped: longest without a heartbeat", "heartbeat", How.STOPPED, True, 0.5, STOPPED_S),
    Wanted("P2 stopped: longest without a produce", "produce", How.STOPPED, True, 0.5, 1.0),
)
COSTS: Final = "P3 to P5 copies"
IDLE: Final = "P9 idle, 1,000 partitions"
IDLE_S: Final = 20.0
IDLE_SHARE: Final = 0.03


def run(only: str = "", kafka: str = "") -> Iterator[Row]:
    """Measure the cases whose name contains `only`; beside the brokers of the folder `kafka`, if it names one.

    Each row is told as soon as it is measured. Raises BenchFailed, which names the case that failed, and JavaNotFound.
    """
    wanted = [each for each in FAILOVERS if only in each.case]
    with tempfile.TemporaryDirectory(prefix="muster-bench-", ignore_cleanup_errors=True) as home:
        for how in dict.fromkeys(each.how for each in wanted):
            yield from failovers(f"{home}/{how.name.lower()}", [each for each in wanted if each.how is how], kafka)
        if only in COSTS:
            with telling(COSTS):
                yield from copies(f"{home}/copies")
        for name, measure in ALONE.items():
            if only in name:
                with telling(name):
                    yield measure(f"{home}/{name.split()[0]}")


@contextlib.contextmanager
def telling(case: str) -> Iterator[None]:
    """Whatever comes in the way of a case is told with its name. Raises BenchFailed."""
    try:
        yield
    except (BenchFailed, ZooKeeperError, OSError, subprocess.SubprocessError) as error:
        raise BenchFailed(f"{case}: {str(error) or type(error).__name__}") from error


def failovers(home: str, wanted: list[Wanted], kafka: str) -> Iterator[Row]:
    """All of what happens to a node one way. Each way has servers of its own: none has gone through another before.

    Where the brokers fail, what was measured is told beside what they took before, and then how they failed.
    """
    how = wanted[0].how
    whats = list(dict.fromkeys(each.what for each in wanted))
    cases = ", ".join(each.case for each in wanted)
    with telling(cases), three_nodes(f"{home}/ours") as nodes:
        ours = asyncio.run(rounds(nodes, ROUNDS, how, whats))
    theirs: dict[str, Gap] = {}
    failure: BenchFailed | None = None
    if kafka:
        try:
            with telling(f"{cases}: {BROKERS}"), three_brokers(made(f"{home}/theirs"), kafka) as brokers:
                theirs = asyncio.run(rounds(brokers, 1, how, whats))
        except BenchFailed as error:
            failure = error
    for each in wanted:
        yield failover(each, ours[each.what], theirs.get(each.what))
    if failure is not None:
        raise failure


def failover(wanted: Wanted, ours: Gap, theirs: Gap | None) -> Row:
    """
    >>> failover(FAILOVERS[0], Gap(0.5, 0.5), Gap(10.0, 10.0))[2:]
    (0.5, 's', 'three brokers of Kafka 4.1.1', 10.0, 20.0, 5.0, True)
    """
    value = ours.longest_s if wanted.longest else ours.first_s
    peer, against = (TOLD, wanted.told_s) if theirs is None else (BROKERS, theirs[wanted.longest])
    return cost(wanted.case, value, "s", peer, against, wanted.share)


def copies(home: str) -> Iterator[Row]:
    with one_alone(made(home)) as alone, three_nodes(home) as nodes:
        single, triple = asyncio.run(appends.costs([(alone, 1), (nodes, 3)]))
    peer = "the same node alone"
    yield cost("P3 copies: processor time of the leader", triple.leader_ms, "ms/MB", peer, single.leader_ms, 1.2)
    yield cost("P4 copies: processor time of all three", triple.all_ms, "ms/MB", peer, single.leader_ms, 1.7)
    yield cost("P5 copies: one acks=all produce, median", triple.produce_ms, "ms", peer, single.produce_ms, 3.0)


def idle(home: str) -> Row:
    """The busiest of three nodes, as a share of a core."""
    with three_nodes(made(home)) as nodes:
        asking = Asking(nodes.addresses)

        async def fill() -> None:
            await asking.make("idle", 1_000, 3)
            asking.close()

        asyncio.run(fill())
        time.sleep(IDLE_S / 2)
        before = {node: nodes.cpu_s(node) for node in NODES}
        time.sleep(IDLE_S)
        share = max(nodes.cpu_s(node) - before[node] for node in NODES) / IDLE_S
    return cost(IDLE, share * 100, "% of a core", "the goal", IDLE_SHARE * 100, 1.0)


def cost(case: str, value: float, unit: str, peer: str, peer_value: float, share: float) -> Row:
    return at_most(share, case, value, unit, peer, peer_value, bench=BENCH)


def made(folder: str) -> str:
    Path(folder).mkdir(parents=True)
    return folder


ALONE: Final[dict[str, Callable[[str], Row]]] = {
    moving.NAME: moving.measure,
    takeover.NAME: takeover.measure,
    IDLE: idle,
}
"""Cases of one row, by their names: measured below a folder that is not there yet."""
