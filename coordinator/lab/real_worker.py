"""One worker of a real comparison, as a process: tells on standard output what it gained and lost, and when.

Its one argument is JSON: `properties` of the client, `topics` or `resources`, and `leave`. It ends with its input.
"""

import asyncio
import json
import sys
import time
from typing import Any

from muster.coordinator.client.aio import Worker
from muster.coordinator.client.types import TopicPartition


def say(what: str, partition: TopicPartition) -> None:
    """Times are of the system's monotonic clock, which all processes share."""
    print(json.dumps([what, time.monotonic_ns() // 1_000_000, *partition]), flush=True)


async def work(given: dict[str, Any]) -> None:
    worker = Worker(given["properties"])
    await worker.join(
        given["topics"],
        given["resources"],
        on_gain=lambda _, partition: say("take", partition),
        on_lose=lambda _, partition: say("drop", partition),
    )
    running = asyncio.create_task(worker.run())
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    await worker.close(given["leave"])
    await asyncio.gather(running, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(work(json.loads(sys.argv[1])))
