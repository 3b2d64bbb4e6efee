"""Rules on rebalances that come too often, achieve nothing, or do not end, judged by the ledger."""

from collections import Counter
from collections.abc import Iterator

from muster.coordinator.observability.doctor.model import (
    DoctorFacts,
    ExaminedGroup,
    RuleCase,
    cause_name,
    list_culprits,
    member_name,
    number_entries,
    recent_incidents,
    seconds,
    some,
)
from muster.coordinator.observability.views.formatting import plural
from muster.coordinator.observability.views.incidents import LOOP_TIMES
from muster.coordinator.rpc.v1.ledger_pb2 import RebalanceCause, RebalanceOutcome

WINDOW_MS = 600_000
STORM = 6
"""More rebalances in the window are a storm."""
MOST_INCIDENTS = 3
"""So many, newest first, are told with a storm."""
IN_A_ROW = 3
SILENT_LEADER = 2
OVERDUE_MS = 10_000

TOLD_ELSEWHERE = frozenset(("crash_loop", "instance_id_shared"))
"""Kinds of incidents that have rules of their own."""
WAITED_IN_VAIN = {RebalanceCause.REBALANCE_CAUSE_SYNC_TIMEOUT}


def flapping(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """One client restarted three times or more in ten minutes.

    Several members of one name at one host (workers of one program) have so many times as much leave to.
    """
    for each in recent_incidents(group, facts.now_ms, WINDOW_MS):
        if each.told.kind != "crash_loop":
            continue
        incident = each.incident
        who, _ = Counter(incident.restarts).most_common(1)[0]
        since_ms = facts.now_ms - WINDOW_MS
        times = sum(
            back == who and at_ms >= since_ms
            for back, at_ms in zip(incident.restarts, incident.restarted_at_ms, strict=True)
        )
        if times >= LOOP_TIMES * max(1, incident.at_once[who]):
            client_id, instance, host = who
            static = f", instance id {instance}" if instance else ""
            known = Counter({how: count for how, count in incident.how[who].items() if how != "went"})
            ways = ", ".join(f"{how} {plural(count, 'time')}" for how, count in known.most_common())
            yield RuleCase(
                f"crash loop: {each.told.sentence.rstrip('.')}",
                (
                    number_entries(each.entries),
                    f"client id {client_id}{static}, host {host or 'unknown'}{f': {ways}' if ways else ''}",
                ),
            )


def storm(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """More than six rebalances in ten minutes without a common, harmless cause.

    A rolling restart, a start or a stop, a group that grows or shrinks, a roll-out, an operator's act, a stall and a
    failover with what followed are such causes. Rebalances that were overtaken before they had a plan do not count.
    A crash loop is `member-flaps`.
    """
    if len(group.lately(facts.now_ms, WINDOW_MS)) <= STORM:
        return
    stormy = [
        each
        for each in recent_incidents(group, facts.now_ms, WINDOW_MS)
        if not each.is_harmless and each.told.kind not in TOLD_ELSEWHERE
    ]
    entries = sorted((entry for each in stormy for entry in each.completed), key=lambda entry: -entry.number)
    if len(entries) > STORM:
        causes = Counter(cause_name(entry) for entry in entries)
        unowned_s = sum(entry.unowned_partition_seconds for entry in entries)
        yield RuleCase(
            f"{len(entries)} rebalances in {seconds(WINDOW_MS)}",
            (
                number_entries(entries),
                "causes: " + ", ".join(f"{name} {times}" for name, times in causes.most_common()),
                *(each.told.sentence for each in stormy[: -MOST_INCIDENTS - 1 : -1]),
                f"{unowned_s:,.1f} partition-seconds without an owner",
            ),
        )


def superseded(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """Each of the last three or more rebalances was superseded by the next one before it had a plan."""
    row = []
    for entry in group.rebalances:
        if entry.outcome != RebalanceOutcome.REBALANCE_OUTCOME_SUPERSEDED:
            break
        row.append(entry)
    if len(row) >= IN_A_ROW:
        lost_ms = max(0, row[0].ended_at_ms - row[-1].started_at_ms)
        yield RuleCase(
            f"the last {len(row)} rebalances were each overtaken by the next",
            (
                number_entries(row),
                f"without a plan for {seconds(lost_ms)}",
                f"set off by {some(list(dict.fromkeys(map(cause_name, row))))}",
            ),
        )


def leader_never_syncs(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """Rebalances ended without a plan: the leader joined, and never sent one."""
    entries = [e for e in group.lately(facts.now_ms, 6 * WINDOW_MS) if e.cause in WAITED_IN_VAIN]
    if len(entries) >= SILENT_LEADER:
        yield RuleCase(
            f"{plural(len(entries), 'time')} in the last hour no plan came from the leader",
            (
                number_entries(entries),
                f"put out for it: {some(list_culprits(entries))}",
                f"the leader now: {find_leader(group)}",
            ),
        )


def find_leader(group: ExaminedGroup) -> str:
    found = next((member_name(member) for member in group.members if member.member_id == group.description.leader), "")
    return found or group.description.leader or "nobody"


def overdue(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """A rebalance continues beyond its latest possible end."""
    late_ms = facts.now_ms - group.description.waiting_until_ms
    if group.description.waiting_until_ms and group.description.waiting_for and late_ms > OVERDUE_MS:
        names = {member.member_id: member_name(member) for member in group.members}
        yield RuleCase(
            f"a rebalance is {seconds(late_ms // 1000 * 1000)} past its deadline, and goes on",
            (
                f"state {group.state}, generation {group.generation}",
                f"waits for {some([names.get(member, member) for member in group.description.waiting_for])}",
            ),
        )


def no_plan(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """The latest rebalance failed: its assignor made no plan, or no attempt succeeded."""
    newest = next(iter(group.rebalances), None)
    failed = RebalanceOutcome.REBALANCE_OUTCOME_FAILED
    if newest is not None and (
        newest.outcome == failed or newest.cause == RebalanceCause.REBALANCE_CAUSE_ASSIGNOR_FAILED
    ):
        yield RuleCase(
            "the newest rebalance came to no plan of its own",
            (
                number_entries([newest]),
                *([f"assignor {newest.protocol_name}"] if newest.protocol_name else []),
                newest.detail,
            ),
        )
