"""Where logs begin and end, and which offset belongs to a time."""

from collections.abc import Collection, Mapping

from muster.client.calls.leaders import ONE_NODE
from muster.client.calls.leading import Refusals, call_leaders
from muster.client.calls.methods import DELETE_RECORDS, LIST_OFFSETS
from muster.client.calls.transport import Transport
from muster.client.errors import refusal
from muster.client.members.subscription import group_by_topic
from muster.client.types import OffsetAndTimestamp, TopicPartition
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
    found: dict[TopicPartition, OffsetAndTimestamp] = {}

    async def attempt(address: str, places: Collection[TopicPartition], patience_ms: int | None) -> Refusals:
        request = pb.ListOffsetsRequest(isolation_level=READ_COMMITTED if committed else 0)
        lines: dict[str, pb.ListOffsetsTopic] = {}
        for topic, partition in sorted(places):
            line = lines.get(topic)
            if line is None:
                line = lines[topic] = request.topics.add(name=topic)
            line.partitions.add(partition_index=partition, timestamp=times[TopicPartition(topic, partition)])
        call = transport.retried if address == ONE_NODE else transport.call
        answer = await call(
            LIST_OFFSETS, request, doing="looking up offsets", address=address or None, timeout_ms=patience_ms
        )
        refused: Refusals = {}
        for topic_result in answer.topics:
            for result in topic_result.partitions:
                about = f"{topic_result.name}-{result.partition_index}"
                key = TopicPartition(topic_result.name, result.partition_index)
                if result.error_code:
                    name = pb.ErrorCode.Name(result.error_code)
                    refused[key] = refusal(result.error_code, name, result.error_message, about)
                else:
                    found[key] = OffsetAndTimestamp(result.offset, result.timestamp)
        return refused

    await call_leaders(transport, times, attempt, timeout_ms)
    return found


async def delete_records(transport: Transport, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Drop records below each offset (-1: all there are); the logs' new first offsets. The first refusal is raised."""
    marks: dict[TopicPartition, int] = {}

    async def attempt(address: str, places: Collection[TopicPartition], patience_ms: int | None) -> Refusals:
        request = pb.DeleteRecordsRequest()
        for topic, numbers in group_by_topic(places).items():
            line = request.topics.add(name=topic)
            for number in numbers:
                line.partitions.add(partition_index=number, offset=before[TopicPartition(topic, number)])
        answer = await transport.call(
            DELETE_RECORDS, request, doing="deleting records", address=address or None, timeout_ms=patience_ms
        )
        refused: Refusals = {}
        for found in answer.topics:
            for result in found.partitions:
                key = TopicPartition(found.name, result.partition_index)
                if result.error_code:
                    about, name = f"{found.name}-{result.partition_index}", pb.ErrorCode.Name(result.error_code)
                    refused[key] = refusal(result.error_code, name, result.error_message, about)
                else:
                    marks[key] = result.low_watermark
        return refused

    await call_leaders(transport, before, attempt)
    return marks


async def list_end_offsets(transport: Transport, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    found = await list_offsets(transport, dict.fromkeys(partitions, LATEST))
    return {tp: at.offset for tp, at in found.items()}


async def list_start_offsets(transport: Transport, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    found = await list_offsets(transport, dict.fromkeys(partitions, EARLIEST))
    return {tp: at.offset for tp, at in found.items()}
