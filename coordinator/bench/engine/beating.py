"""KB-P7: a heartbeat at a node over Kafka, beside one at a node with a log of its own: processor time, interleaved."""

import asyncio
import contextlib
import statistics
from collections.abc import Iterator, Mapping

import grpc

from muster.coordinator.bench.engine.inside import BENCH, LOOK_AGAIN_S, STARTS_S, settings_over
from muster.coordinator.bench.heartbeat import ROUND_S, ROUNDS, SETTINGS, WARM_UP_S, Target, joined, one_round
from muster.coordinator.bench.kafka.broker import Broker
from muster.coordinator.bench.members import Wire
from muster.coordinator.bench.processes import LOAD_CORE, Server, node, pinned, server
from muster.coordinator.bench.rows import Row, at_most
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.rpc.v1 import errors_pb2

SHARDS = 4


def measure(broker: Broker, home: str) -> Iterator[Row]:
    settings = {**settings_over(broker.address, "bench-beating", SHARDS), **SETTINGS}
    with pinned(LOAD_CORE), node(home, SETTINGS) as bundled, server(words(settings)) as over:
        ours, theirs = asyncio.run(interleaved(over, bundled))
    peer = "a node with a log of its own"
    yield at_most(1.05, "P7 a heartbeat by gRPC", ours, "us CPU/RPC", peer, theirs, bench=BENCH)


def words(settings: Mapping[str, str]) -> list[str]:
    given = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    return ["-m", "muster.coordinator.cli", "serve", "--announce", "--until-eof", *given]


async def interleaved(over: Server, bundled: Server) -> tuple[float, float]:
    await coordinates(over)
    targets: list[Target] = [await joined(over), await joined(bundled)]
    costs: tuple[list[float], list[float]] = ([], [])
    for target in targets:
        await one_round(target, WARM_UP_S)
    for number in range(ROUNDS):
        for which in (0, 1) if number % 2 else (1, 0):
            costs[which].append(await one_round(targets[which], ROUND_S))
    for target in targets:
        for member in target.members:
            await member.wire.close()
    ours, theirs = map(statistics.median, costs)
    return ours, theirs


async def coordinates(over: Server) -> None:
    """Return once it answers for the group that is about to be joined."""
    wire = Wire(over.address)
    request = pb.HeartbeatRequest(group_id="bench", member_id="nobody", generation_id=1)
    async with asyncio.timeout(STARTS_S):
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):  # it has heard nothing of the nodes' group yet
                answer = await wire.call("Heartbeat", request, pb.HeartbeatResponse)
                if answer.error_code == errors_pb2.ERROR_CODE_UNKNOWN_MEMBER_ID:
                    break
            await asyncio.sleep(LOOK_AGAIN_S)
    await wire.close()
