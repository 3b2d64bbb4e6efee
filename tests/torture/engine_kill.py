"""Nodes over a real Kafka, killed again and again while clients commit: nothing acknowledged is lost, or read no more.

`python -m tests.torture.engine_kill --rounds 200`, or a part of `make torture`. Each node is a process that tells what
it acknowledged over a pipe. Without Maven's jars, or Java, it says so and ends with 2.
"""

import argparse
import asyncio
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from muster.coordinator.config import parse_address
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamAddress, UpstreamError
from muster.coordinator.kafka_backend.upstream.upstream_client import GROUP, Upstream
from muster.workshop.bench.kafka_peer import KAFKA, JarsUnavailable, find_jars
from tests.interop.kafka_broker import kafka_broker
from tests.support.kafka_backend.processes import Nodes, three

MORE = "group.min.session.timeout.ms=1000\n"
AT_ONCE = 0.15
"""How often another one is killed before the first is back."""


async def kills(address: str, rounds: int, rng: random.Random) -> Nodes:
    """At its end each group's last acknowledged number is read: see `three`."""
    async with three(address, "killed-often") as nodes:
        for number in range(rounds):
            try:
                await one_round(nodes, rng)
            except TimeoutError:
                raise AssertionError(f"round {number}: nothing goes on\n{await where(nodes)}") from None
            assert nodes.clients.wrong == [], f"round {number}: {nodes.clients.wrong}"
            print(
                f"\rkill {number + 1} of {rounds}, {sum(nodes.clients.acked.values())} acknowledged", end="", flush=True
            )
        print()
    return nodes


async def one_round(nodes: Nodes, rng: random.Random) -> None:
    for node in rng.sample([1, 2, 3], 2 if rng.random() < AT_ONCE else 1):
        await nodes.nodes[node].kill()
    if rng.random() < 0.5:
        # The others take its shards, or it is back within its session and takes them again.
        await nodes.clients.more(1)
    for node, each in list(nodes.nodes.items()):
        if not each.lives:
            await nodes.begin(node)
    nodes.others.clear()
    await nodes.clients.more(rng.randrange(1, 8))


async def where(nodes: Nodes) -> str:
    """Each node, as it sees itself; what each group was acknowledged last."""
    before = {node: len(each.said) for node, each in nodes.nodes.items()}
    for each in nodes.nodes.values():
        if each.lives:
            each.signal(signal.SIGUSR1)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(10):
            await nodes.news.until(lambda: all(len(each.said) > before[node] for node, each in nodes.nodes.items()))
    upstream = Upstream(UpstreamAddress((parse_address(nodes.addresses[1]),)))
    try:
        request = struct("DescribeGroupsRequest")(groups=[f"{nodes.cluster}.nodes"])
        group = await upstream.ask_coordinator(GROUP, f"{nodes.cluster}.nodes", "DescribeGroups", request)
    except UpstreamError as error:
        group = error
    finally:
        upstream.close()
    told = [f"node {node}, {'alive' if each.lives else 'gone'}: {each.said}" for node, each in nodes.nodes.items()]
    return "\n".join([*told, str(group), str(nodes.clients.acked)])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture.engine_kill", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    try:
        classpath = os.pathsep.join(map(str, find_jars(KAFKA)))
    except JarsUnavailable as error:
        print(f"needs a real broker ({KAFKA}): {error}", file=sys.stderr)
        return 2
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, kafka_broker(classpath, Path(folder) / "kafka", MORE) as address:
        nodes = asyncio.run(kills(address, asked.rounds, random.Random(asked.seed)))
    print(
        f"{asked.rounds} rounds in {time.monotonic() - began:.0f} s: {sum(nodes.clients.acked.values())} commits "
        f"acknowledged, 0 lost; the longest without one for a group {nodes.clients.longest_s:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
