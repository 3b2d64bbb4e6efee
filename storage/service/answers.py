"""What came of produces and fetches, in protobuf, and what a reader's words about epochs are worth."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from muster.storage.broker.broker import Broker
from muster.storage.broker.epochs import NOT_TOLD, Divergence, check_epoch, check_history
from muster.storage.errors import StorageError
from muster.storage.rpc.v1 import broker_service_pb2 as pb
from muster.storage.service.fetch_frames import FetchResultFrame
from muster.storage.types import Appended, Fetched

Wanted: TypeAlias = pb.FetchPartition | pb.MultiFetchPartition
Asked: TypeAlias = tuple[str, Wanted]
"""A topic's name, and what is wanted of one of its partitions."""


def error_code_of(error: StorageError) -> Any:
    """Kafka's number; the generated enum is open, though its type says otherwise."""
    return error.code


def find_epoch_mismatch(broker: Broker, topic: str, part: Wanted) -> StorageError | Divergence | None:
    """Why the reader's idea of the leader, or of what it has read, is not the log's; None where it tells of neither."""
    if part.HasField("current_leader_epoch"):
        refusal = check_epoch(broker, topic, part.partition, part.current_leader_epoch)
        if refusal is not None:
            return refusal
    if part.HasField("last_fetched_epoch") and part.last_fetched_epoch != NOT_TOLD:
        return check_history(broker, topic, part.partition, part.fetch_offset, part.last_fetched_epoch)
    return None


def current_leader_of(error: StorageError) -> pb.LeaderIdAndEpoch | None:
    """Who leads the partition instead, where the refusal says it."""
    if error.leader >= 0:
        return pb.LeaderIdAndEpoch(leader_id=error.leader, leader_epoch=error.leader_epoch)
    return None


def produce_response(request: pb.ProduceRequest, results: Sequence[Appended | StorageError]) -> pb.ProduceResponse:
    told = iter(results)
    response = pb.ProduceResponse()
    for topic in request.topic_data:
        answer = response.responses.add(name=topic.name)
        answer.partition_responses.extend(produce_result(data.index, next(told)) for data in topic.partition_data)
    return response


def produce_result(partition: int, result: Appended | StorageError) -> pb.ProducePartitionResult:
    if isinstance(result, StorageError):
        return pb.ProducePartitionResult(
            index=partition,
            error_code=error_code_of(result),
            error_message=str(result),
            base_offset=-1,
            log_append_time_ms=-1,
            current_leader=current_leader_of(result),
        )
    return pb.ProducePartitionResult(
        index=partition,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
    )


def fetch_result(topic: str, partition: int, found: Fetched | StorageError | Divergence) -> FetchResultFrame:
    if isinstance(found, Divergence):
        parting = pb.FetchPartitionResult(
            partition_index=partition,
            high_watermark=found.high_watermark,
            last_stable_offset=found.last_stable_offset,
            log_start_offset=found.log_start_offset,
            diverging_epoch=pb.EpochEndOffset(epoch=found.epoch, end_offset=found.end_offset),
        )
        return FetchResultFrame(topic, parting, b"")
    if isinstance(found, StorageError):
        refused = pb.FetchPartitionResult(
            partition_index=partition,
            error_code=error_code_of(found),
            error_message=str(found),
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=-1,
            current_leader=current_leader_of(found),
        )
        return FetchResultFrame(topic, refused, b"")
    result = pb.FetchPartitionResult(
        partition_index=partition,
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable_offset,
        log_start_offset=found.log_start_offset,
        aborted_transactions=[
            pb.AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            for aborted in found.aborted
        ],
    )
    return FetchResultFrame(topic, result, found.records)
