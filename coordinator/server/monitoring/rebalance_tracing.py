"""A node's rebalances as traces: which requests may set one off, and which ledger entries are exported.

Without `otel.exporter` no handler is wrapped, nothing is exported, and nothing of OpenTelemetry is imported.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from muster.coordinator.config import Settings
from muster.coordinator.core.model.effects import GroupChanged
from muster.coordinator.core.model.types import AUDIT_OUTCOMES
from muster.coordinator.edge.request_limits import name_operator
from muster.coordinator.observability.tracing.rebalance_spans import RequestTraces, is_complete
from muster.coordinator.rpc.v1 import control_service_pb2 as control_pb
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.rpc_dispatch import MethodKind, RpcCall, ServiceMethod
from muster.coordinator.server.services.shared_session import SharedSessionHandler

if TYPE_CHECKING:
    from muster.coordinator.observability.tracing.export import RebalanceExport

HEADER: Final = "traceparent"


class RebalanceTracing:
    """Without `otel.exporter` no handler is wrapped, nothing is told, and nothing of OpenTelemetry imported."""

    def __init__(self, settings: Settings) -> None:
        self._causes = RequestTraces()
        self._export = make_exporter(settings) if settings.otel_exporter == "otlp" else None

    def listening(self, table: Mapping[str, ServiceMethod]) -> dict[str, ServiceMethod]:
        """The table of methods, in which those that set rebalances off remember their callers' `traceparent`."""
        if self._export is None:
            return dict(table)
        return {name: self._noting(method, name.rpartition("/")[2]) for name, method in table.items()}

    def noticed(self, notice: GroupChanged) -> None:
        """Once an entry is whole it is told."""
        entry = notice.entry
        if self._export is None or entry is None or entry.outcome in AUDIT_OUTCOMES:
            return
        whole = is_complete(entry)
        traceparent = self._causes.of(notice.group_id, entry, whole=whole)
        if whole:
            self._export.enqueue_rebalance(notice.group_id, entry, traceparent)

    async def close(self) -> None:
        if self._export is not None:
            await asyncio.to_thread(self._export.close)

    def _noting(self, method: ServiceMethod, short_name: str) -> ServiceMethod:
        if isinstance(method.handler, SharedSessionHandler):
            return replace(method, handler=method.handler.over(self._noting_stream(method.handler.serve)))
        if short_name == "Session" and method.kind is MethodKind.BOTH_STREAM:
            return replace(method, handler=self._noting_stream(method.handler))
        if short_name in CULPRITS:
            return replace(method, handler=self._noting_call(method, CULPRITS[short_name]))
        return method

    def _noting_call(self, method: ServiceMethod, culprits: "Culprits") -> Callable[[Any, RpcCall], Any]:
        handler = method.handler

        async def traced(request: Any, call: RpcCall) -> Any:
            traceparent = call.metadata.get(HEADER, "")
            for name in culprits(request, call):
                self._causes.note(request.group_id, name, traceparent)
            answer = await handler(request, call)
            if traceparent and not getattr(request, "member_id", "-"):
                # Who came without an id has one now, and the rebalance is not whole before it has its share.
                self._causes.note(request.group_id, answer.member_id, traceparent, late=True)
            return answer

        return traced

    def _noting_stream(self, handler: Callable[[Any, RpcCall], Any]) -> Callable[[Any, RpcCall], Any]:
        """Of a stream's requests all are part of the trace in which it was opened."""

        def traced(requests: AsyncIterator[pb.SessionRequest], call: RpcCall) -> Any:
            traceparent = call.metadata.get(HEADER, "")
            return handler(self._heard(requests, traceparent), call)

        return traced

    async def _heard(
        self, requests: AsyncIterator[pb.SessionRequest], traceparent: str
    ) -> AsyncIterator[pb.SessionRequest]:
        group_id = member_id = ""
        async for request in requests:
            kind = request.WhichOneof("request")
            if not group_id and kind in ("hello", "register_consumer"):
                said = getattr(request, kind)
                group_id, member_id = said.group_id, said.member_id
            if may_trigger_rebalance(request):
                self._causes.note(group_id, member_id, traceparent)
            yield request


def make_exporter(settings: Settings) -> "RebalanceExport":
    from muster.coordinator.observability.tracing.export import RebalanceExport

    return RebalanceExport(settings.otel_endpoint, settings.node_id, version("muster-groups"))


def culprit_member(request: Any, _: RpcCall) -> Iterator[str]:
    yield request.member_id


def culprit_members(request: Any, _: RpcCall) -> Iterator[str]:
    for each in request.members:
        yield each.member_id


def culprit_heartbeat(request: pb.ConsumerGroupHeartbeatRequest, _: RpcCall) -> Iterator[str]:
    if not is_plain_heartbeat(request):
        yield request.member_id


Operation = pb.AlterGroupSettingsRequest | control_pb.HoldGroupRequest | control_pb.ResumeGroupRequest


def culprit_operator(request: Operation, call: RpcCall) -> Iterator[str]:
    if not request.validate_only:
        yield name_operator(call.peer_host, request.reason)


Culprits = Callable[[Any, RpcCall], Iterator[str]]

CULPRITS: Final[Mapping[str, Culprits]] = {
    "JoinGroup": culprit_member,
    "LeaveGroup": culprit_members,
    "RemoveMembers": culprit_members,
    "ConsumerGroupHeartbeat": culprit_heartbeat,
    "AlterGroupSettings": culprit_operator,
    "HoldGroup": culprit_operator,
    "ResumeGroup": culprit_operator,
}
"""The calls that set rebalances off, and whom the ledger names as the culprit then. SyncGroup, Heartbeat and
OffsetCommit are not among them: they carry one on, or refuse, and begin none."""


def may_trigger_rebalance(request: pb.SessionRequest) -> bool:
    """Whether a member comes, goes, or asks for something else by this request on its stream."""
    kind = request.WhichOneof("request")
    if kind == "consumer_group_heartbeat":
        return not is_plain_heartbeat(request.consumer_group_heartbeat)
    return kind in ("register_consumer", "deregister")


def is_plain_heartbeat(request: pb.ConsumerGroupHeartbeatRequest) -> bool:
    """A heartbeat of a KIP-848 member that is there and asks for nothing new."""
    asked = ("subscribed_topic_names", "subscribed_topic_regex", "server_assignor")
    return request.member_epoch > 0 and not any(map(request.HasField, asked))
