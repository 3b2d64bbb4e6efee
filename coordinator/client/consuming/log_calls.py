"""Where logs begin and end, and which offset belongs to a time."""

from collections.abc import Collection, Mapping

from muster.coordinator.client.calls.methods import LIST_OFFSETS
from muster.coordinator.client.calls.transport import Transport
from muster.coordinator.client.errors import refusal
from muster.coordinator.client.types import OffsetAndTimestamp, TopicPartition
from muster.storage.rpc.v1 import broker_service_pb2 as pb

LATEST = -1
EARLIEST = -2
READ_COMMITTED = 1


async def list_offsets(
    transport: Transport,
    times: Mapping[TopicPartition, int],
    timeout_ms: int | None = None,
    *,
    committed: bool = False,
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """The first offset at or after each time (epoch milliseconds, LATEST or EARLIEST); offset -1 when there is none.

    With `committed` the latest is the last stable offset: before the first open transaction.
    """
    if not times:
        return {}
    request = pb.ListOffsetsRequest(isolation_level=READ_COMMITTED if committed else 0)
    lines: dict[str, pb.ListOffsetsTopic] = {}
    for (topic, partition), timestamp in sorted(times.items()):
        line = lines.get(topic)
        if line is None:
            line = lines[topic] = request.topics.add(name=topic)
        line.partitions.add(partition_index=partition, timestamp=timestamp)
    answer = await transport.retried(LIST_OFFSETS, request, doing="looking up offsets", timeout_ms=timeout_ms)
    found: dict[TopicPartition, OffsetAndTimestamp] = {}
    for topic_result in answer.topics:
        for result in topic_result.partitions:
            about = f"{topic_result.name}-{result.partition_index}"
            if result.error_code:
                raise refusal(result.error_code, pb.ErrorCode.Name(result.error_code), result.error_message, about)
            key = TopicPartition(topic_result.name, result.partition_index)
            found[key] = OffsetAndTimestamp(result.offset, result.timestamp)
    return found


async def end_offsets(transport: Transport, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    found = await list_offsets(transport, dict.fromkeys(partitions, LATEST))
    return {tp: at.offset for tp, at in found.items()}


async def start_offsets(transport: Transport, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    found = await list_offsets(transport, dict.fromkeys(partitions, EARLIEST))
    return {tp: at.offset for tp, at in found.items()}
