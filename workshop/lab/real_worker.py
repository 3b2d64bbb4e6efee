"""One worker of a real comparison, as a process: tells on standard output what it gained and lost, and when.

Its one argument is JSON: `properties` of the client, `topics` or `resources`, and `leave`. It ends with its input.
"""

import asyncio
import json
import sys
import time
from typing import Any

from muster.client.aio import AsyncWorker
from muster.client.types import TopicPartition


def print_event(what: str, partition: TopicPartition) -> None:
    """Times are of the system's monotonic clock, which all processes share."""
    print(json.dumps([what, time.monotonic_ns() // 1_000_000, *partition]), flush=True)


async def run_worker(given: dict[str, Any]) -> None:
    worker = AsyncWorker(given["properties"])
    await worker.join(
        given["topics"],
        given["resources"],
        on_gain=lambda _, partition: print_event("take", partition),
        on_lose=lambda _, partition: print_event("drop", partition),
    )
    running = asyncio.create_task(worker.run())
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    await worker.close(given["leave"])
    await asyncio.gather(running, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(run_worker(json.loads(sys.argv[1])))
