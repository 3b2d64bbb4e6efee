"""A node's rebalances as traces: which requests may set one off, and which entries are told."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from muster.coordinator.config import Settings
from muster.coordinator.core.effects import GroupChanged
from muster.coordinator.server.dispatch import Call, Method
from muster.coordinator.tracing.causes import Causes
from muster.coordinator.tracing.spans import is_whole

if TYPE_CHECKING:
    from muster.coordinator.tracing.export import Export

SETTING_OFF = ("JoinGroup", "LeaveGroup", "ConsumerGroupHeartbeat")
"""The calls by which a member, or an operator for it, comes, goes, or asks for something else."""

HEADER = "traceparent"


class Tracing:
    """Without `otel.exporter` no handler is wrapped, nothing is told, and nothing of OpenTelemetry imported."""

    def __init__(self, settings: Settings) -> None:
        self._causes = Causes()
        self._export = export_of(settings) if settings.otel_exporter == "otlp" else None

    def listening(self, table: Mapping[str, Method]) -> dict[str, Method]:
        """The table of methods, in which those that set rebalances off remember their callers' `traceparent`."""
        if self._export is None:
            return dict(table)
        return {name: self._noting(method) if is_cause(name) else method for name, method in table.items()}

    def noticed(self, notice: GroupChanged) -> None:
        """Once an entry is whole it is told."""
        entry = notice.entry
        if self._export is not None and entry is not None and is_whole(entry):
            self._export.tell(notice.group_id, entry, self._causes.take(notice.group_id, entry.culprit))

    async def close(self) -> None:
        if self._export is not None:
            await asyncio.to_thread(self._export.close)

    def _noting(self, method: Method) -> Method:
        handler = method.handler

        async def noted(request: Any, call: Call) -> Any:
            traceparent = "" if is_plain_beat(request) else call.metadata.get(HEADER, "")
            if not traceparent:
                return await handler(request, call)
            for member_id in members_of(request):
                self._causes.note(request.group_id, member_id, traceparent)
            answer = await handler(request, call)
            # Who came without an id has one now, and the rebalance is not over before it has its share.
            self._causes.note(request.group_id, getattr(answer, "member_id", ""), traceparent)
            return answer

        return replace(method, handler=noted)


def export_of(settings: Settings) -> "Export":
    from muster.coordinator.tracing.export import Export

    return Export(settings.otel_endpoint, settings.node_id, version("muster-groups"))


def is_cause(full_name: str) -> bool:
    return full_name.rpartition("/")[2] in SETTING_OFF


def is_plain_beat(request: Any) -> bool:
    """A heartbeat of a KIP-848 member that is there and asks for nothing new."""
    return getattr(request, "member_epoch", 0) > 0 and not request.HasField("subscribed_topic_names")


def members_of(request: Any) -> Iterator[str]:
    if hasattr(request, "members"):
        yield from (member.member_id for member in request.members)
    else:
        yield request.member_id
