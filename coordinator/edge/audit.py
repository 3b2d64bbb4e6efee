"""Who changed what, through whichever door: what operators do is told in one line each, and never what clients do.

A handler of such a request is watched as the tables of the doors are made; all others stay as they are.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from muster.coordinator.security.identity import ANONYMOUS, Identity, Principal

MOST_NAMES: Final = 5

ACTIONS: Final = frozenset(
    {
        "CreateTopics", "DeleteTopics", "CreatePartitions", "AlterConfigs", "IncrementalAlterConfigs", "DeleteRecords",
        "DeleteGroups", "RemoveMembers", "AlterGroupSettings", "HoldGroup", "ResumeGroup", "StartCanary", "EndCanary",
        "OffsetDelete", "OffsetCommit", "CreateAcls", "DeleteAcls",
        "AlterClientQuotas", "AlterQuotas",
        "ElectLeaders", "AlterPartitionReassignments", "DrainNode",
    }
)  # fmt: skip
"""Requests that change what others rely on, by Kafka's names and ours. Of OffsetCommit only what tools send
(`include_zookeeper`): a consumer without a group commits like a tool, all the time."""


class AuditedCall(Protocol):
    """What both doors know of a caller."""

    @property
    def peer_host(self) -> str: ...

    @property
    def client_software(self) -> str: ...

    @property
    def identity(self) -> Identity: ...


@dataclass(frozen=True, slots=True)
class OperatorAction:
    """`of` names topics or groups; `refused` counts those of them that were refused, or is 1 for the whole."""

    what: str
    of: str
    host: str
    software: str
    door: str
    refused: int
    reason: str
    principal: Principal = ANONYMOUS


AuditedHandler: TypeAlias = Callable[[Any, Any], Awaitable[Any]]
ReportAction: TypeAlias = Callable[[OperatorAction], None]


def report_actions(handler: AuditedHandler, what: str, door: str, tell: ReportAction) -> AuditedHandler:
    """The same handler; what it did is told once it has answered. Requests that only check are none of it.

    A call that came in through another door than the table's says so (`door`), and why, where its request cannot.
    """

    async def told(request: Any, call: AuditedCall) -> Any:
        response = await handler(request, call)
        reason = str(getattr(request, "reason", "") or getattr(call, "reason", ""))
        by = getattr(call, "door", door)
        who = call.identity.principal
        tell(
            OperatorAction(
                what,
                format_subjects(request),
                call.peer_host,
                call.client_software,
                by,
                count_refusals(response),
                reason,
                who,
            )
        )
        return response

    def chosen(request: Any, call: AuditedCall) -> Awaitable[Any]:
        return told(request, call) if changes_something(what, request) else handler(request, call)

    return chosen


def changes_something(what: str, request: Any) -> bool:
    if what == "OffsetCommit":
        return bool(getattr(request, "include_zookeeper", False)) and not request.member_id
    return not getattr(request, "validate_only", False)


def format_subjects(request: Any) -> str:
    """The topics or groups that a request is about: a few of them, and how many more."""
    names = list(list_subjects(request))
    more = len(names) - MOST_NAMES
    return ",".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def list_subjects(request: Any) -> Iterable[str]:
    if getattr(request, "group_id", ""):
        return [str(request.group_id)]
    if hasattr(request, "node_id"):
        return [f"node {request.node_id}"]
    for field in ("topic_names", "groups_names"):
        if getattr(request, field, None):
            return map(str, getattr(request, field))
    fields = ("topics", "resources", "creations", "filters", "entries", "partitions", "topic_partitions")
    return (str(name_of_row(row)) for row in first_nonempty(request, *fields))


def name_of_row(row: Any) -> object:
    if parts := getattr(row, "entity", None):
        return " ".join(map(format_quota_entity, parts))
    fields = ("name", "topic", "resource_name", "resource_name_filter", "principal_filter")
    places = (getattr(row, field, None) for field in fields)
    return next((name for name in places if name), "?")


def format_quota_entity(part: Any) -> str:
    """Of whose quota it is: `user alice`."""
    kind, name = (getattr(part, f"entity_{field}", None) or getattr(part, field, "") for field in ("type", "name"))
    return f"{kind} {name or '<default>'}"


def count_refusals(response: Any) -> int:
    if getattr(response, "error_code", 0):
        return 1
    fields = ("topics", "results", "responses", "members", "groups", "filter_results", "entries")
    rows = first_nonempty(response, *fields, "replica_election_results")
    return sum(bool(getattr(each, "error_code", 0)) for row in rows for each in rows_with_codes(row))


def rows_with_codes(row: Any) -> Iterable[Any]:
    """The partitions of a topic, where each has a code of its own."""
    return (row,) if hasattr(row, "error_code") else first_nonempty(row, "partitions", "partition_result")


def first_nonempty(of: Any, *fields: str) -> Iterable[Any]:
    found: Iterable[Any] = next((rows for rows in (getattr(of, field, None) for field in fields) if rows), ())
    return found
