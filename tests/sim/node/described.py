"""Requests in the words of a trace."""

from typing import Any

from muster.coordinator.core.model.events import ConsumerHeartbeat, OffsetCommit

FEW = 20
"""Topics that are named."""


def describe(request: Any) -> str:
    """One request for the trace, as far as it matters there."""
    member = getattr(request, "member_id", "")
    generation = getattr(request, "generation", "")
    request = getattr(request, "heartbeat", request)
    more: object = request.offsets if isinstance(request, OffsetCommit) else ""
    if isinstance(request, ConsumerHeartbeat):
        member, generation = request.member_id, request.member_epoch
        owned = None if request.owned is None else [(t[:4], sorted(p)) for t, p in sorted(request.owned.items())]
        names = request.topic_names or ()
        topics = request.topic_names if len(names) <= FEW else f"{len(names)} topics"
        more = f"topics={topics} regex={request.topic_regex} owned={owned}"
    return f"{type(request).__name__} {request.group_id} {member} {generation} {more}".rstrip()
