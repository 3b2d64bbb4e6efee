"""A rebalance as a trace, made from its ledger entry: its spans, and the request that set it off. Pure.

A trace has a root span, one span for each phase, and one for each member's part. Members and operators send a
`traceparent` with their requests; it is remembered until the ledger names them as the cause.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

from muster.coordinator.core.model.types import Cause, MemberPlan, Outcome, RebalanceEntry

# The request that set a rebalance off
# ------------------------------------

Key = TypeVar("Key", tuple[str, str], tuple[str, int])

MAX_REMEMBERED: Final = 10_000
"""Requests that are remembered; the oldest go first."""

MAX_TRACEPARENT_CHARS: Final = 64
"""Characters of a `traceparent` of version 00, and some."""

MAX_NAME_CHARS: Final = 1_024
"""Characters of a group's and a culprit's name, together: what is longer is refused anyway, or nobody's name."""


CAUSES_WITHOUT_REQUEST: Final = frozenset(
    {
        *(Cause.SESSION_EXPIRED, Cause.SYNC_TIMEOUT, Cause.REBALANCE_TIMEOUT, Cause.HANDOFF_TIMEOUT),
        *(Cause.PARTITIONS_CHANGED, Cause.BROKERS_CHANGED, Cause.COORDINATOR_FAILOVER, Cause.LAG_IMBALANCE),
        *(Cause.DELAY_OVER, Cause.DEPLOY_OVER),
    }
)
"""What no request of the culprit's sets off: the clock does, or somebody whom the ledger does not name."""


class RequestTraces:
    """The last `traceparent` of each culprit of a group: whoever asked for something that may start a rebalance.

    An entry is told of when it is decided and again when it is whole. The request belongs to it that was there when it
    was decided: by the time it is whole, the same member may have set the next one off.
    """

    def __init__(self, most: int = MAX_REMEMBERED) -> None:
        self._most = most
        self._known: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._late: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._decided: OrderedDict[tuple[str, int], str] = OrderedDict()

    def note(self, group_id: str, culprit: str, traceparent: str, *, late: bool = False) -> None:
        """A culprit is a member's id, or an operator as the ledger names him. What is too long is none.

        One without a `traceparent` counts as well: what the same one sent before belongs to something else. `late`: the
        member has its id by the answer only, which may come after the decision.
        """
        if not culprit or len(traceparent) > MAX_TRACEPARENT_CHARS or len(group_id) + len(culprit) > MAX_NAME_CHARS:
            return
        known, key = self._late if late else self._known, (group_id, culprit)
        known.pop(key, None)
        if traceparent:
            self._put(known, key, traceparent)

    def of(self, group_id: str, entry: RebalanceEntry, *, whole: bool) -> str:
        """The one that belongs to this entry; empty where there is none. It counts once."""
        key = (group_id, entry.number)
        found = self._decided.pop(key, None)
        if found is None:
            found = self._take_trace(self._known, group_id, entry)
        found = self._take_trace(self._late, group_id, entry) or found
        if not whole:
            self._put(self._decided, key, found)
        return found

    def _take_trace(self, known: "OrderedDict[tuple[str, str], str]", group_id: str, entry: RebalanceEntry) -> str:
        found = known.pop((group_id, entry.culprit), "")
        return "" if entry.cause in CAUSES_WITHOUT_REQUEST else found

    def _put(self, known: "OrderedDict[Key, str]", key: Key, traceparent: str) -> None:
        known[key] = traceparent
        if len(known) > self._most:
            known.popitem(last=False)


# Spans
# -----

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
        attributes = {
            "muster.phase": phase.name,
            "muster.phase.waited_for": ", ".join(phase.waited_for),
            "muster.phase.waits": "; ".join(
                f"{wait.client_id or wait.member_id} {wait.came.name.lower()} after {wait.after_ms} ms"
                for wait in phase.waits
            ),
        }
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
        began_ms, at_ms = at_ms, at_ms + max(0, phase.duration_ms)
        ends.update(dict.fromkeys(phase.waited_for, min(at_ms, end_ms)))
        ends.update((wait.member_id, min(began_ms + wait.after_ms, end_ms)) for wait in phase.waits)

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
