"""A node over a Kafka: in this process, asked without a door, which is what the engine costs and nothing else; or as
another process."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from muster.coordinator.config import load_settings
from muster.coordinator.core.model.core_events import OffsetCommit
from muster.coordinator.core.model.effects import OffsetCommitReply
from muster.coordinator.core.model.types import CommittedOffset
from muster.coordinator.runtime.router import partition_for
from muster.coordinator.runtime.slot import ShardStatus
from muster.coordinator.server.logs import configure_logs
from muster.coordinator.server.node.app import CoordinatorNode
from muster.workshop.bench.processes import BenchFailed

BENCH: Final = "engine"
COMMITTED_TOPIC: Final = "orders"
STARTS_S: Final = 60.0
LOOK_AGAIN_S: Final = 0.01
LOG_LEVEL: Final = "error"


def settings_over(address: str, cluster: str, shards: int) -> dict[str, str]:
    return {
        "engine": f"kafka://{address}",
        "engine.kafka.cluster": cluster,
        "engine.kafka.state.replication.factor": "1",
        "offsets.topic.num.partitions": str(shards),
        "listeners": "127.0.0.1:0",
        "http.listeners": "",
        "logging.level": LOG_LEVEL,
    }


def start_node_process(settings: Mapping[str, str], log: Path) -> "subprocess.Popen[bytes]":
    """A node as a process, which announces itself on standard output; what it says otherwise comes behind `log`."""
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    with log.open("ab") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "muster.cli", "serve", "--announce", *words],
            stdout=subprocess.PIPE,
            stderr=errors,
        )


@asynccontextmanager
async def run_node_over(address: str, cluster: str, shards: int) -> AsyncIterator[CoordinatorNode]:
    """It owns all shards by the time."""
    settings = load_settings(None, settings_over(address, cluster, shards))
    repeats = configure_logs(settings.logging_level, settings.logging_format, node_id=settings.node_id)
    node = CoordinatorNode(settings)
    try:
        async with asyncio.timeout(STARTS_S):
            await node.start()
            await owns_all_shards(node, shards)
    except TimeoutError:
        raise BenchFailed(f"a node over {address} did not own its shards within {STARTS_S:.0f} s") from None
    try:
        yield node
    finally:
        await node.stop()
        repeats.close()


async def owns_all_shards(node: CoordinatorNode, shards: int) -> None:
    while True:
        if all(node.engine.status(shard) is ShardStatus.ACTIVE for shard in range(shards)):
            return
        await asyncio.sleep(LOOK_AGAIN_S)


def group_per_shard(shards: int) -> list[str]:
    """A group for each shard."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < shards:
        group = f"bench-{number}"
        found.setdefault(partition_for(group, shards), group)
        number += 1
    return [found[shard] for shard in range(shards)]


async def commit_position(node: CoordinatorNode, group: str, offset: int) -> None:
    """One position, of a group without members. Raises BenchFailed where it is refused."""
    event = OffsetCommit(
        node.driver.next_id(), group, "", None, -1, {(COMMITTED_TOPIC, 0): CommittedOffset(offset, metadata="")}
    )
    reply = await node.driver.ask(partition_for(group, node.engine.shards), event, OffsetCommitReply)
    codes = {reply.code, *reply.partitions.values()}
    if any(codes):
        raise BenchFailed(f"a commit of {group} was refused: {sorted(code.name for code in codes if code)}")
