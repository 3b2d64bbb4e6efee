"""What `commit()` was asked to commit, in any of the forms people know."""

from collections.abc import Mapping
from typing import TypeAlias

from muster.client.aio.shared import ConsumerCore
from muster.client.errors import IllegalState
from muster.client.types import Message, OffsetAndMetadata, TopicPartition

Offset: TypeAlias = int | OffsetAndMetadata
MAX_OFFSET = 2**63 - 1


def choose_commit_offsets(
    core: ConsumerCore, message: Message | None, offsets: Mapping[tuple[str, int], Offset] | None
) -> dict[TopicPartition, OffsetAndMetadata]:
    """A message means the offset after it; nothing means after everything handed over so far."""
    if message is not None and offsets is not None:
        raise IllegalState("commit() takes a message or offsets, not both")
    if message is not None:
        return {message.topic_partition: OffsetAndMetadata(message.offset + 1)}
    if offsets is None:
        return core.everything_handed_over()
    return {TopicPartition(*tp): check_offset(tp, offset) for tp, offset in offsets.items()}


def check_offset(tp: tuple[str, int], offset: Offset) -> OffsetAndMetadata:
    given = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
    if not 0 <= given.offset <= MAX_OFFSET:
        raise IllegalState(f"cannot commit offset {given.offset} for {tp[0]}-{tp[1]}; 0 to {MAX_OFFSET} is expected")
    return given
