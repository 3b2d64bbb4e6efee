"""Which spans a ledger entry is: the rebalance, its phases, and each member's part. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from muster.coordinator.core.model.types import MemberPlan, Outcome, RebalanceEntry

MAX_MEMBERS: Final = 200
"""Members of one rebalance that have a span of their own: who was waited for, then who gained or lost something."""

Value: TypeAlias = str | int | float | bool


@dataclass(frozen=True, slots=True)
class SpanPlan:
    """One span to be made. Times are epoch milliseconds."""

    name: str
    start_ms: int
    end_ms: int
    attributes: Mapping[str, Value]
    children: tuple["SpanPlan", ...] = field(default=())
    events: tuple[tuple[str, int], ...] = ()
    """(what happened within it, when)"""


def is_complete(entry: RebalanceEntry) -> bool:
    """Whether it is a rebalance that was completed, and all that will be known of it is."""
    return entry.outcome is Outcome.COMPLETED and entry.unowned_partition_ms >= 0


def plan_spans(group_id: str, entry: RebalanceEntry) -> SpanPlan:
    """The root span and its children. It ends when the last member had its share."""
    phases = tuple(phase_spans(entry))
    end_ms = max((phase.end_ms for phase in phases), default=entry.started_at_ms)
    end_ms = max(end_ms, entry.ended_at_ms, entry.started_at_ms)
    members = tuple(member_spans(entry, end_ms))
    attributes: dict[str, Value] = {
        "messaging.consumer.group.name": group_id,
        "muster.rebalance.number": entry.number,
        "muster.rebalance.generation": entry.generation,
        "muster.rebalance.cause": entry.cause.name.lower(),
        "muster.rebalance.detail": entry.detail,
        "muster.rebalance.culprit": entry.culprit,
        "muster.rebalance.culprit.client_id": entry.culprit_client_id,
        "muster.rebalance.culprit.host": entry.culprit_client_host,
        "muster.rebalance.assignor": entry.protocol_name,
        "muster.rebalance.members": len(entry.members),
        "muster.rebalance.moves": len(entry.moves),
        "muster.rebalance.unowned_partition_seconds": entry.unowned_partition_ms / 1000,
        "muster.rebalance.members_left_out": max(0, len(entry.members) - MAX_MEMBERS),
    }
    return SpanPlan(f"rebalance {group_id}", entry.started_at_ms, end_ms, attributes, (*phases, *members))


def phase_spans(entry: RebalanceEntry) -> Iterator[SpanPlan]:
    """One after the other, from the beginning."""
    at_ms = entry.started_at_ms
    for phase in entry.phases:
        end_ms = at_ms + max(0, phase.duration_ms)
        attributes = {"muster.phase": phase.name, "muster.phase.waited_for": ", ".join(phase.waited_for)}
        yield SpanPlan(f"phase {phase.name}", at_ms, end_ms, attributes)
        at_ms = end_ms


def member_spans(entry: RebalanceEntry, end_ms: int) -> Iterator[SpanPlan]:
    """What the rebalance was to each member: when it joined, and when it had its share, which ends its part.

    Where the ledger does not know the latter (the member was gone before, or an older version wrote the entry), who was
    waited for ends with the last phase that did, everybody else with the plan.
    """
    gained = Counter(move.target for move in entry.moves)
    revoked = Counter(move.source for move in entry.moves)
    waited = {member for phase in entry.phases for member in phase.waited_for}
    ends = dict[str, int]()
    at_ms = entry.started_at_ms
    for phase in entry.phases:
        at_ms += max(0, phase.duration_ms)
        ends.update(dict.fromkeys(phase.waited_for, min(at_ms, end_ms)))

    def weight(member: MemberPlan) -> tuple[bool, int]:
        touched = gained[member.member_id] + revoked[member.member_id]
        return member.member_id in waited, touched

    for member in sorted(entry.members, key=weight, reverse=True)[:MAX_MEMBERS]:
        name = member.member_id
        attributes: dict[str, Value] = {
            "muster.member": name,
            "muster.member.client_id": member.client_id,
            "muster.member.host": member.client_host,
            "muster.member.instance": member.group_instance_id or "",
            "muster.member.waited_for": name in waited,
            "muster.member.revoked": revoked[name],
            "muster.member.gained": gained[name],
            "muster.member.owned": count_owned(member),
        }
        last_ms = ends.get(name, entry.ended_at_ms) if member.synced_at_ms < 0 else member.synced_at_ms
        last_ms = max(entry.started_at_ms, min(last_ms, end_ms))
        told = (("joined", member.joined_at_ms), ("synced", member.synced_at_ms))
        events = tuple((word, at_ms) for word, at_ms in told if entry.started_at_ms <= at_ms <= last_ms)
        yield SpanPlan(f"member {member.client_id or name}", entry.started_at_ms, last_ms, attributes, events=events)


def count_owned(member: MemberPlan) -> int:
    return sum(len(partitions) for _, partitions in member.assigned)
