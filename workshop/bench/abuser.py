"""`python -m muster.workshop.bench.abuser KIND ADDRESS SIZE TIMES`: asks for what is refused, asks and goes, or asks on
many connections for what is large (a KIND of `crowds.QUESTIONS`; TIMES connections).

It says a line when it is ready, and begins at the end of its input.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.storage.records.batch import encode_batch
from muster.workshop.bench.crowds import QUESTIONS, ask_together
from muster.workshop.bench.grpc_members import SERVICE, GrpcConnection
from muster.workshop.bench.kafka_load import LoadConnection
from muster.workshop.bench.processes import BenchFailed

SHORT_BYTES = 1_000
"""A refusal has fewer; an answer about so many partitions has more."""
HOLD_S = 0.02
PUSHED_BYTES: Final = 16 << 10
"""Of one record, and about of one request."""


async def refused_by_kafka(address: str, size: int, times: int) -> None:
    line = await LoadConnection.to(address)
    topic = struct("OffsetFetchRequest.topics")(name="t", partition_indexes=[0] * size)
    request = line.request("OffsetFetch", 5, struct("OffsetFetchRequest")(group_id="nobody", topics=[topic]))
    await await_start()
    for _ in range(times):
        if len(await line.pass_on(request)) > SHORT_BYTES:
            raise BenchFailed(f"a list of {size} entries was answered at length; it has to be refused")
    line.close()


async def refused_by_grpc(address: str, size: int, times: int) -> None:
    wire = GrpcConnection(address)
    rows = [pb.OffsetFetchTopic(name="t", partition_indexes=bytes(size))]
    request = pb.OffsetFetchRequest(group_id="nobody", topics=rows).SerializeToString()
    await await_start()
    for _ in range(times):
        await wire.refused("OffsetFetch", request)
    await wire.close()


async def cancelled(address: str, size: int, times: int) -> None:
    """`size` JoinGroups together on one connection, of which nobody waits for the answer."""
    wire = GrpcConnection(address)
    ask: Any = wire.channel.unary_unary(f"{SERVICE}JoinGroup")
    request = pb.JoinGroupRequest(group_id="g", protocol_type="consumer", session_timeout_ms=10_000)
    data = request.SerializeToString()
    await await_start()
    for _ in range(times):
        calls = [ask(data) for _ in range(size)]
        await asyncio.sleep(HOLD_S)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    await wire.close()


async def pushed(address: str, size: int, times: int) -> None:
    """`size` bytes a second of records for `times` seconds, whatever the answers say; as far as they are read."""
    line, loop = await LoadConnection.to(address), asyncio.get_running_loop()
    record = (0, None, bytes(PUSHED_BYTES), ())
    data = struct("ProduceRequest.topic_data.partition_data")(index=0, records=encode_batch([record]))
    topic = struct("ProduceRequest.topic_data")(name="pushed", partition_data=[data])
    asked = struct("ProduceRequest")(acks=1, timeout_ms=10_000, topic_data=[topic])
    request = line.request("Produce", 3, asked)
    await await_start()
    end_s, due_s = loop.time() + times, loop.time()
    while loop.time() < end_s:
        if line.unsent < SHORT_BYTES << 10:
            line.send(request, lambda frame: None)
        due_s += len(request) / size
        await asyncio.sleep(max(0.0, due_s - loop.time()))
    line.close()


async def await_start() -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)


KINDS: Final[dict[str, Callable[[str, int, int], Coroutine[Any, Any, None]]]] = {
    "kafka": refused_by_kafka,
    "grpc": refused_by_grpc,
    "flood": cancelled,
    "kafka-quota": pushed,
}


def main() -> None:
    kind, address, size, times = sys.argv[1:]
    if kind in QUESTIONS:
        asyncio.run(ask_together(kind, address, int(size), int(times), await_start))
    else:
        asyncio.run(KINDS[kind](address, int(size), int(times)))


if __name__ == "__main__":
    main()
