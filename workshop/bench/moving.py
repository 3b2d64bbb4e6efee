"""CL-P6: a thousand units get other leaders at once: until all is written and told, against the bare writes.

It begins when the controller decides the first of them, which the ledger of elections tells afterwards. Meanwhile the
nodes are asked for one partition only: that of a topic made last, which is decided last. Were they asked for all
thousand, the answers would cost them more than what is measured.
"""

import asyncio
import signal
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from muster.client import Admin
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.zookeeper.session import ZooKeeperSession
from muster.workshop.bench.asking import PAUSE_S, TRIES_S, ServerGone, TrioClient
from muster.workshop.bench.processes import BenchFailed, Stopwatch
from muster.workshop.bench.rows import BenchRow
from muster.workshop.bench.trio import MusterTrio, run_three_nodes

if TYPE_CHECKING:
    from muster.coordinator.rpc.v1.cluster_service_pb2 import Election

MOVING_CASE: Final = "P6 1,000 units move"
MOVING_TOPIC: Final = "moving"
LAST: Final = "moving-last"
UNITS: Final = 1_000
WRITES_AT_ONCE: Final = 100
BARE_ROUNDS: Final = 5
TIMES: Final = 3.0
VICTIM, SURVIVORS = 3, (1, 2)
"""The first one that starts is the controller, and another one dies: how a controller is found is CL-P1's."""
LARGE_S: Final = 5.0
"""How long an answer about all units is waited for."""
LOOK_S: Final = 0.2


def measure_leader_moves(home: str) -> BenchRow:
    Path(home).mkdir(parents=True)
    with run_three_nodes(home, {"auto.leader.rebalance.enable": "false"}) as nodes:
        told_s, bare_s = asyncio.run(time_leader_moves(nodes))
        took_s = told_s - first_decision_s(nodes)
    ratio = bare_s / took_s
    return BenchRow(
        "cluster", MOVING_CASE, round(took_s, 3), "s", "bare multis of 100", round(bare_s, 3), round(ratio, 3),
        round(1 / TIMES, 3), ratio >= 1 / TIMES,
    )  # fmt: skip


async def time_leader_moves(nodes: MusterTrio) -> tuple[float, float]:
    """When all was told, by the wall's clock, and how long the bare writes took."""
    asking = TrioClient(nodes.addresses)
    try:
        for topic, partitions in ((MOVING_TOPIC, UNITS), (LAST, 1)):
            await make_topic_led_by_victim(asking, topic, partitions)
        bare_s = await time_bare_writes(nodes.connect)
        nodes.signal(VICTIM, signal.SIGKILL)
        return await wait_until_known(asking), bare_s
    finally:
        asking.close()


async def make_topic_led_by_victim(asking: TrioClient, topic: str, partitions: int) -> None:
    """All led by the one that is to die."""
    assigned = [
        struct("CreateTopicsRequest.topics.assignments")(partition_index=number, broker_ids=[VICTIM, *SURVIVORS])
        for number in range(partitions)
    ]
    wanted = struct("CreateTopicsRequest.topics")(
        name=topic, num_partitions=-1, replication_factor=-1, assignments=assigned
    )
    request = struct("CreateTopicsRequest")(topics=[wanted], timeout_ms=60_000)
    code = (await asking.ask(VICTIM, "CreateTopics", 4, request, TRIES_S)).topics[0].error_code
    if code:
        raise BenchFailed(f"the topic {topic} could not be made: error {code}")
    await asking.in_sync(topic, partitions, LARGE_S)


async def wait_until_known(asking: TrioClient) -> float:
    """The moment at which both others have heard of all, by the wall's clock."""
    deadline_s = time.monotonic() + TRIES_S
    waiting = list(SURVIVORS)
    while waiting and time.monotonic() < deadline_s:
        waiting = [node for node in waiting if await count_unmoved(asking, node, LAST)]
        await asyncio.sleep(PAUSE_S if waiting else 0)
    at_s = time.time()
    while time.monotonic() < deadline_s:
        left = [await count_unmoved(asking, node, MOVING_TOPIC) for node in SURVIVORS]
        if not any(left):
            return at_s
        await asyncio.sleep(LOOK_S)
        at_s = time.time()
    raise BenchFailed(f"partitions that have no other leader after {TRIES_S:.0f} s, as both others know: {left}")


async def count_unmoved(asking: TrioClient, node: int, topic: str) -> int:
    """Partitions that are led by the one that died, or by nobody, as far as a node knows; 1 where it says nothing."""
    try:
        parts = await asking.described(node, topic, LARGE_S)
    except ServerGone:
        return 1
    return sum(part.leader_id not in SURVIVORS for part in parts) if parts else 1


def first_decision_s(nodes: MusterTrio) -> float:
    """The moment at which the first was decided, by the wall's clock. The ledger is written behind what it tells of,
    and in its order; should it have lost some, then a few of the hundred that were decided with the first."""
    deadline_s = time.monotonic() + TRIES_S
    found: list[Election] = []
    with Admin({"bootstrap.servers": ",".join(nodes.doors[node] for node in SURVIVORS)}) as admin:
        while time.monotonic() < deadline_s:
            found = [each for each in admin.explain_elections(2 * UNITS, MOVING_TOPIC) if each.from_node_id == VICTIM]
            if len(found) > UNITS - WRITES_AT_ONCE // 2:
                return min(each.decided_ms for each in found) / 1_000
            time.sleep(LOOK_S)
    raise BenchFailed(f"the ledger of elections has {len(found)} of {UNITS:,}, and when it began is not known")


async def time_bare_writes(connect: str) -> float:
    """As many writes of as many bytes, a hundred in one request, and nothing else: the median of some rounds."""
    session = ZooKeeperSession(connect)
    await session.open()
    took_s = []
    try:
        await session.ensure("/bare")
        paths = [f"/bare/{number}" for number in range(UNITS)]
        await write_chunks(session, paths, lambda together, path: together.create(path, b"x" * 200))
        for _ in range(BARE_ROUNDS):
            watch = Stopwatch()
            await write_chunks(session, paths, lambda together, path: together.set_data(path, b"y" * 200))
            took_s.append(watch.read())
        return statistics.median(took_s)
    finally:
        await session.close()


async def write_chunks(session: ZooKeeperSession, paths: list[str], add: Any) -> None:
    for start in range(0, len(paths), WRITES_AT_ONCE):

        def build(together: Any, some: list[str] = paths[start : start + WRITES_AT_ONCE]) -> None:
            for path in some:
                add(together, path)

        await session.commit(build)
