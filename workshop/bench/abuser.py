"""`python -m muster.workshop.bench.abuser KIND ADDRESS SIZE TIMES`: asks for what is refused, or asks and goes.

It says a line when it is ready, and begins at the end of its input.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.storage.records.batch import encode_batch
from muster.workshop.bench.grpc_members import SERVICE, GrpcConnection
from muster.workshop.bench.kafka_load import LoadConnection
from muster.workshop.bench.processes import BenchFailed

SHORT_BYTES = 1_000
"""A refusal has fewer; an answer about so many partitions has more."""
HOLD_S = 0.02
WIDE_TOPIC, DESCRIBED = "everywhere", "described-"
"""A topic with many partitions, and how the names of many topics begin."""
TOPIC: Final = 2
ANY: Final = 1
"""Of whatever an entry has: its resource's type, its pattern's, its operation, its permission."""
ROW_BYTES: Final = 10
"""A row of an answer has more."""
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


async def asked_by_a_crowd(address: str, name: str, version: int, request: Any, most: int, connections: int) -> None:
    """Each of so many connections asks once; raises BenchFailed for an answer of no more than `most` bytes."""
    lines = [await LoadConnection.to(address) for _ in range(connections)]
    data = [line.request(name, version, request) for line in lines]
    await await_start()
    frames = await asyncio.gather(*(line.pass_on(asked) for line, asked in zip(lines, data, strict=True)))
    if (least := min(map(len, frames))) <= most:
        raise BenchFailed(f"{name} was answered with {least} bytes; expected more than {most}")
    for line in lines:
        line.close()


async def listed_groups(address: str, size: int, times: int) -> None:
    await asked_by_a_crowd(address, "ListGroups", 4, struct("ListGroupsRequest")(), size * ROW_BYTES, times)


async def described_topics(address: str, size: int, times: int) -> None:
    request = struct("MetadataRequest")(topics=None)
    await asked_by_a_crowd(address, "Metadata", 9, request, size * ROW_BYTES, times)


async def described_settings(address: str, size: int, times: int) -> None:
    row = struct("DescribeConfigsRequest.resources")
    rows = [row(resource_type=TOPIC, resource_name=f"{DESCRIBED}{n}", configuration_keys=None) for n in range(size)]
    request = struct("DescribeConfigsRequest")(resources=rows)
    await asked_by_a_crowd(address, "DescribeConfigs", 4, request, size * ROW_BYTES, times)


async def listed_ends(address: str, size: int, times: int) -> None:
    part = struct("ListOffsetsRequest.topics.partitions")
    rows = [part(partition_index=number, timestamp=-1) for number in range(size)]
    topic = struct("ListOffsetsRequest.topics")(name=WIDE_TOPIC, partitions=rows)
    request = struct("ListOffsetsRequest")(replica_id=-1, topics=[topic])
    await asked_by_a_crowd(address, "ListOffsets", 5, request, size * ROW_BYTES, times)


async def described_log_dirs(address: str, size: int, times: int) -> None:
    request = struct("DescribeLogDirsRequest")(topics=None)
    await asked_by_a_crowd(address, "DescribeLogDirs", 3, request, size * ROW_BYTES, times)


async def listed_transactions(address: str, size: int, times: int) -> None:
    await asked_by_a_crowd(address, "ListTransactions", 1, struct("ListTransactionsRequest")(), size * ROW_BYTES, times)


async def described_acls(address: str, size: int, times: int) -> None:
    names = dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
    kinds = dict.fromkeys(("resource_type_filter", "pattern_type_filter", "operation", "permission_type"), ANY)
    request = struct("DescribeAclsRequest")(**names, **kinds)
    await asked_by_a_crowd(address, "DescribeAcls", 2, request, size * ROW_BYTES, times)


async def await_start() -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)


KINDS: Final[dict[str, Callable[[str, int, int], Coroutine[Any, Any, None]]]] = {
    "kafka": refused_by_kafka,
    "grpc": refused_by_grpc,
    "flood": cancelled,
    "kafka-quota": pushed,
    "kafka-groups": listed_groups,
    "kafka-metadata": described_topics,
    "kafka-settings": described_settings,
    "kafka-ends": listed_ends,
    "kafka-log-dirs": described_log_dirs,
    "kafka-transactions": listed_transactions,
    "kafka-acls": described_acls,
}


def main() -> None:
    kind, address, size, times = sys.argv[1:]
    asyncio.run(KINDS[kind](address, int(size), int(times)))


if __name__ == "__main__":
    main()
