"""One answer of many shards: which groups there are."""

from collections.abc import Iterable, Sequence

from muster.coordinator.core.model.effects import ListedGroup, ListReply
from muster.coordinator.errors import ErrorCode


def merge_group_lists(replies: Sequence[ListReply]) -> tuple[ListReply | None, Iterable[ListedGroup]]:
    """All shards' groups by name. Shards that moved away are left out; the first that failed otherwise is told."""
    failed = next((reply for reply in replies if reply.code not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR)), None)
    return failed, sorted((group for reply in replies for group in reply.groups), key=lambda group: group.group_id)
