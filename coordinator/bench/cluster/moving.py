"""P6: a thousand units get other leaders at once: until all is written and told, against the bare writes."""

import asyncio
import signal
import time
from pathlib import Path
from typing import Any, Final

from muster.coordinator.bench.cluster.asking import Asking, Gone
from muster.coordinator.bench.cluster.trio import three_nodes
from muster.coordinator.bench.processes import BenchFailed
from muster.coordinator.bench.rows import Row
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.zookeeper.connect import Session

NAME: Final = "P6 1,000 units move"
TOPIC: Final = "moving"
UNITS: Final = 1_000
AT_ONCE: Final = 100
TIMES: Final = 3.0
FIRST, REST = 1, (2, 3)
PATIENCE_S: Final = 60.0


def measure(home: str) -> Row:
    Path(home).mkdir(parents=True)
    with three_nodes(home, {"auto.leader.rebalance.enable": "false"}) as nodes:
        asking = Asking(nodes.addresses)

        async def story() -> tuple[float, float]:
            try:
                await make(asking)
                bare_s = await bare(nodes.connect)
                nodes.signal(FIRST, signal.SIGKILL)
                return await moved(asking), bare_s
            finally:
                asking.close()

        took_s, bare_s = asyncio.run(story())
    ratio = bare_s / took_s
    return Row(
        "cluster", NAME, round(took_s, 3), "s", "bare multis of 100", round(bare_s, 3), round(ratio, 3),
        round(1 / TIMES, 3), ratio >= 1 / TIMES,
    )  # fmt: skip


async def make(asking: Asking) -> None:
    """All led by one."""
    assigned = [
        struct("CreateTopicsRequest.topics.assignments")(partition_index=number, broker_ids=[FIRST, *REST])
        for number in range(UNITS)
    ]
    wanted = struct("CreateTopicsRequest.topics")(
        name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=assigned
    )
    request = struct("CreateTopicsRequest")(topics=[wanted], timeout_ms=60_000)
    code = (await asking.ask(FIRST, "CreateTopics", 4, request, 90.0)).topics[0].error_code
    if code:
        raise BenchFailed(f"the topic {TOPIC} could not be made: error {code}")
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        if await in_sync(asking):
            return
        await asyncio.sleep(0.2)
    raise BenchFailed("the copies do not come in sync")


async def in_sync(asking: Asking) -> bool:
    parts = await described(asking, REST[0])
    return len(parts) == UNITS and all(len(part.isr_nodes) == len(REST) + 1 for part in parts)


async def described(asking: Asking, node: int) -> list[Any]:
    request = struct("MetadataRequest")(topics=[struct("MetadataRequest.topics")(name=TOPIC)])
    try:
        return list((await asking.ask(node, "Metadata", 4, request, 5.0)).topics[0].partitions)
    except Gone:
        return []


async def moved(asking: Asking) -> float:
    """From the first unit that has another leader until both others know of all."""
    began_s = 0.0
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        left = [
            sum(part.leader_id not in REST for part in parts) if (parts := await described(asking, node)) else UNITS
            for node in REST
        ]
        if not began_s and min(left) < UNITS:
            began_s = time.monotonic()
        if not any(left):
            return time.monotonic() - began_s
    raise BenchFailed("not all units have another leader")


async def bare(connect: str) -> float:
    """As many writes of as many bytes, a hundred in one request, and nothing else."""
    session = Session(connect)
    await session.open()
    try:
        await session.ensure("/bare")
        paths = [f"/bare/{number}" for number in range(UNITS)]
        await chunks(session, paths, lambda together, path: together.create(path, b"x" * 200))
        began_s = time.monotonic()
        await chunks(session, paths, lambda together, path: together.set_data(path, b"y" * 200))
        return time.monotonic() - began_s
    finally:
        await session.close()


async def chunks(session: Session, paths: list[str], add: Any) -> None:
    for start in range(0, len(paths), AT_ONCE):

        def build(together: Any, some: list[str] = paths[start : start + AT_ONCE]) -> None:
            for path in some:
                add(together, path)

        await session.commit(build)
