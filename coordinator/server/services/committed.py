"""One OffsetCommit: which of its partitions there are, and what it is told of each. Pure."""

from dataclasses import replace

from muster.coordinator.core.model.core_events import OffsetCommit
from muster.coordinator.core.model.effects import OffsetCommitReply
from muster.coordinator.edge.catalog import PartitionCounts, describe_missing_partition, partition_exists
from muster.coordinator.errors import ErrorCode
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.services import answers


def find_unknown_partitions(event: OffsetCommit, catalog: PartitionCounts) -> frozenset[tuple[str, int]]:
    """The partitions that the catalog does not have."""
    return frozenset(tp for tp in event.offsets if not partition_exists(catalog, *tp))


def keep_known_partitions(event: OffsetCommit, unknown: frozenset[tuple[str, int]]) -> OffsetCommit:
    """The commit without those that are unknown."""
    if not unknown:
        return event
    return replace(event, offsets={tp: at for tp, at in event.offsets.items() if tp not in unknown})


def build_checked_commit_response(
    event: OffsetCommit, unknown: frozenset[tuple[str, int]], reply: OffsetCommitReply, catalog: PartitionCounts
) -> pb.OffsetCommitResponse:
    """`reply` is what the group said of those that are known."""
    codes = {
        tp: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if tp in unknown else reply.partitions.get(tp, reply.code)
        for tp in event.offsets
    }
    reasons = {
        tp: explain_refused_commit(*tp, metadata, codes[tp], catalog)
        for tp, (_, _, metadata) in event.offsets.items()
        if codes[tp] is not ErrorCode.NONE
    }
    return answers.build_commit_response(codes, reply, reasons)


def explain_refused_commit(topic: str, partition: int, metadata: str, code: ErrorCode, catalog: PartitionCounts) -> str:
    """Value, expectation and remedy for one partition of a commit; empty when the code says it all."""
    if code is ErrorCode.OFFSET_METADATA_TOO_LARGE:
        return (
            f"{topic}-{partition}: the metadata has {len(metadata)} characters, more than "
            "offset.metadata.max.bytes allows; shorten it, or raise the limit"
        )
    if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return ""
    return describe_missing_partition(catalog, topic, partition)
