"""KB-P7: a heartbeat at a node over Kafka, beside one at a node with a log of its own: processor time, interleaved."""

import asyncio
import contextlib
import statistics
from collections.abc import Iterator, Mapping

import grpc

from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.rpc.v1 import errors_pb2
from muster.workshop.bench.broker import KafkaBroker
from muster.workshop.bench.heartbeat import (
    HEARTBEAT_ROUND_S,
    HEARTBEAT_ROUNDS,
    HEARTBEAT_SETTINGS,
    HEARTBEAT_WARM_UP_S,
    HeartbeatTarget,
    join_target,
    measure_round,
)
from muster.workshop.bench.inside import BENCH, LOOK_AGAIN_S, STARTS_S, settings_over
from muster.workshop.bench.members import GrpcConnection
from muster.workshop.bench.processes import LOAD_CORE, ServerProcess, pinned, run_node, run_server
from muster.workshop.bench.rows import BenchRow, at_most

HEARTBEAT_SHARDS = 4


def measure_backend_heartbeats(broker: KafkaBroker, home: str) -> Iterator[BenchRow]:
    settings = {**settings_over(broker.address, "bench-beating", HEARTBEAT_SHARDS), **HEARTBEAT_SETTINGS}
    with pinned(LOAD_CORE), run_node(home, HEARTBEAT_SETTINGS) as bundled, run_server(node_arguments(settings)) as over:
        ours, theirs = asyncio.run(interleave_nodes(over, bundled))
    peer = "a node with a log of its own"
    yield at_most(1.05, "P7 a heartbeat by gRPC", ours, "us CPU/RPC", peer, theirs, bench=BENCH)


def node_arguments(settings: Mapping[str, str]) -> list[str]:
    given = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    return ["-m", "muster.cli", "serve", "--announce", "--until-eof", *given]


async def interleave_nodes(over: ServerProcess, bundled: ServerProcess) -> tuple[float, float]:
    await wait_until_coordinating(over)
    targets: list[HeartbeatTarget] = [await join_target(over), await join_target(bundled)]
    costs: tuple[list[float], list[float]] = ([], [])
    for target in targets:
        await measure_round(target, HEARTBEAT_WARM_UP_S)
    for number in range(HEARTBEAT_ROUNDS):
        for which in (0, 1) if number % 2 else (1, 0):
            costs[which].append(await measure_round(targets[which], HEARTBEAT_ROUND_S))
    for target in targets:
        for member in target.members:
            await member.wire.close()
    ours, theirs = map(statistics.median, costs)
    return ours, theirs


async def wait_until_coordinating(over: ServerProcess) -> None:
    """Return once it answers for the group that is about to be joined."""
    wire = GrpcConnection(over.address)
    request = pb.HeartbeatRequest(group_id="bench", member_id="nobody", generation_id=1)
    async with asyncio.timeout(STARTS_S):
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):  # it has heard nothing of the nodes' group yet
                answer = await wire.call("Heartbeat", request, pb.HeartbeatResponse)
                if answer.error_code == errors_pb2.ERROR_CODE_UNKNOWN_MEMBER_ID:
                    break
            await asyncio.sleep(LOOK_AGAIN_S)
    await wire.close()
