"""What the doctor's rules say of a group, for its page. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from muster.coordinator.observability.doctor.facts import (
    DoctorFacts,
    ExaminedGroup,
    ExaminedMember,
    ExaminedPartition,
    ExaminedPosition,
)
from muster.coordinator.observability.doctor.finding import Severity
from muster.coordinator.observability.doctor.holding import drained_ids, override_lines
from muster.coordinator.observability.doctor.table import examine_group
from muster.coordinator.observability.views.formatting import Names
from muster.coordinator.observability.views.group_answers import code_word
from muster.coordinator.rpc.v1.coordinator_service_pb2 import DescribedMember
from muster.coordinator.web.pages.page_data import GroupPageData, Place

CLASSES: Final = {Severity.ADVICE: "change", Severity.WARNING: "warn", Severity.ERROR: "bad"}
MOST_FINDINGS: Final = 10
MOST_EVIDENCE: Final = 5
MOST_CHARS: Final = 400
MOST_PARTITIONS: Final = 2_000
"""A larger group is for `muster doctor`, which has the time; the page says so."""


@dataclass(frozen=True, slots=True)
class FindingView:
    word: str
    kind: str
    """A class of the style sheet."""
    what: str
    why: str
    todo: str
    evidence: tuple[str, ...]


def find_group_problems(facts: GroupPageData, names: Names, now_ms: int) -> tuple[FindingView, ...]:
    """Worst first; none of a group that is too large. One look is all there is: rules that compare two find nothing."""
    if len(facts.positions) > MOST_PARTITIONS:
        return ()
    group = make_examined_group(facts)
    sizes: dict[str, int] = {}
    for topic, number in facts.positions:
        sizes[topic] = max(sizes.get(topic, 0), number + 1)
    found = examine_group(group, DoctorFacts(now_ms, groups=(group,), partitions=sizes))
    return tuple(
        FindingView(
            word=finding.severity.name.lower(),
            kind=CLASSES[finding.severity],
            what=shortened(names.in_text(finding.what)),
            why=finding.why,
            todo=finding.todo,
            evidence=tuple(shortened(names.in_text(each)) for each in finding.evidence[:MOST_EVIDENCE]),
        )
        for finding in found[:MOST_FINDINGS]
    )


def shortened(text: str) -> str:
    """
    >>> len(shortened("x" * 1_000)), shortened("short")
    (401, 'short')
    """
    return text if len(text) <= MOST_CHARS else text[:MOST_CHARS] + "…"


def make_examined_group(facts: GroupPageData) -> ExaminedGroup:
    described = facts.group
    members = tuple(
        make_examined_member(member, facts.shares.get(member.member_id, ()), facts) for member in described.members
    )
    return ExaminedGroup(
        id=described.group_id,
        state=described.group_state,
        type=facts.kind.lower() or "classic",
        assignor=described.protocol_data,
        generation=described.generation_id,
        leader=described.leader,
        members=members,
        waiting_for=tuple(described.waiting_for),
        waiting_until_ms=described.waiting_until_ms,
        positions={
            ExaminedPartition(*place): ExaminedPosition(at.committed, at.log_start, at.log_end, at.committed_at_ms)
            for place, at in facts.positions.items()
        },
        ledger=tuple(facts.history),
        kept_out=described.planner.kept_out,
        held=override_lines(facts.holds),
        drained=drained_ids(members, facts.holds),
    )


def make_examined_member(member: DescribedMember, owned: Sequence[Place], facts: GroupPageData) -> ExaminedMember:
    return ExaminedMember(
        id=member.member_id,
        client_id=member.client_id,
        host=member.client_host,
        software=member.client_software,
        instance_id=member.group_instance_id if member.HasField("group_instance_id") else None,
        topics=tuple(sorted(facts.wanted.get(member.member_id, ()))),
        owned=tuple(ExaminedPartition(*place) for place in owned),
        session_timeout_ms=member.session_timeout_ms if member.HasField("session_timeout_ms") else None,
        rebalance_timeout_ms=member.rebalance_timeout_ms if member.HasField("rebalance_timeout_ms") else None,
        heartbeat_interval_ms=member.heartbeat_interval_ms if member.HasField("heartbeat_interval_ms") else None,
        offers=tuple(member.offered_assignors),
        refused_commits=member.refused_commits,
        refused_code=code_word(member.refused_commit_code) if member.refused_commits else "",
        taken_over=member.taken_over,
    )
