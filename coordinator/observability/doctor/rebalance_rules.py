"""Rules on rebalances that come too often, achieve nothing, or do not end, judged by the ledger."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from muster.coordinator.observability.doctor.model import (
    DoctorFacts,
    ExaminedGroup,
    RuleCase,
    cause_name,
    is_recent,
    list_culprits,
    member_name,
    number_entries,
    seconds,
    some,
)
from muster.coordinator.observability.views.formatting import plural
from muster.coordinator.rpc.v1.ledger_pb2 import MemberPlan, Rebalance, RebalanceCause, RebalanceOutcome

WINDOW_MS = 600_000
JOINED_OFTEN = 3
"""Who joined more often in the window flaps."""
STORM = 6
"""More rebalances in the window are a storm."""
IN_A_ROW = 3
SILENT_LEADER = 2
OVERDUE_MS = 10_000

DEPARTURES = {
    RebalanceCause.REBALANCE_CAUSE_SESSION_EXPIRED,
    RebalanceCause.REBALANCE_CAUSE_MEMBER_LEFT,
    RebalanceCause.REBALANCE_CAUSE_POLL_TIMEOUT,
    RebalanceCause.REBALANCE_CAUSE_SYNC_TIMEOUT,
    RebalanceCause.REBALANCE_CAUSE_REBALANCE_TIMEOUT,
}
ARRIVALS = {RebalanceCause.REBALANCE_CAUSE_MEMBER_JOINED, RebalanceCause.REBALANCE_CAUSE_MEMBER_RESTARTED}
WAITED_IN_VAIN = {RebalanceCause.REBALANCE_CAUSE_SYNC_TIMEOUT}


def flapping(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """One client joined more than three times in ten minutes, and went in between.

    Several members of one name at one host (workers of one program) have so many times as much leave to.
    """
    for who, seen in count_comings(group, facts.now_ms).items():
        joins, leaves = list(seen.joined.values()), list(seen.gone.values())
        often = JOINED_OFTEN * max(1, seen.at_once)
        if len(joins) > often and len(leaves) >= often:
            yield RuleCase(
                f"{who} joined {len(joins)} times in {seconds(WINDOW_MS)}, and went {len(leaves)} times",
                (
                    f"joined with {number_entries(unique_entries(joins))}",
                    f"gone with {number_entries(unique_entries(leaves))} ({list_reasons(leaves)})",
                ),
            )


@dataclass(slots=True)
class ClientComings:
    """Of all members of one name: with which rebalance each came and went, and how many lived at once.

    A process that comes back under another id is one member: the id before counts no more, though its session lasts.
    """

    joined: dict[str, Rebalance] = field(default_factory=dict)
    gone: dict[str, Rebalance] = field(default_factory=dict)
    at_once: int = 0


def count_comings(group: ExaminedGroup, now_ms: int) -> dict[str, ClientComings]:
    """By client. A member is known by its id: whoever comes again gets a new one."""
    entries = list(reversed(group.rebalances))
    names, dead = client_names(entries), set[str]()
    seen: dict[str, ClientComings] = defaultdict(ClientComings)
    # A ledger that is whole begins with a group of nobody.
    before: set[str] | None = set() if entries and entries[0].number == 1 else None
    for entry in entries:
        recent = is_recent(entry, now_ms, WINDOW_MS)
        name = culprit_name(entry, names)
        for each in entry.incarnations:
            dead.add(each.previous_id)
            if recent:
                seen[names.get(each.previous_id, name)].gone.setdefault(each.previous_id, entry)
        if recent and entry.cause in ARRIVALS:
            seen[name].joined.setdefault(entry.culprit, entry)
        elif recent and entry.cause in DEPARTURES:
            seen[name].gone.setdefault(entry.culprit, entry)
        if not is_settled(entry):
            continue  # it has no plan: its list of members says nothing
        now = {member.member_id for member in entry.members}
        for who, count in Counter(names[member] for member in now - dead).items():
            seen[who].at_once = max(seen[who].at_once, count)
        if before is not None and recent:
            for member in now - before:
                seen[names[member]].joined.setdefault(member, entry)
            for member in before - now:
                seen[names[member]].gone.setdefault(member, entry)
        before = now
    return seen


def client_names(entries: Iterable[Rebalance]) -> dict[str, str]:
    """Of every member that some plan has, by id."""
    return {member.member_id: client_name(member) for entry in entries for member in entry.members}


def culprit_name(entry: Rebalance, names: Mapping[str, str]) -> str:
    return names.get(entry.culprit) or f"{entry.culprit_client_id} at {entry.culprit_client_host}"


def unique_entries(entries: list[Rebalance]) -> list[Rebalance]:
    """Each once, in order."""
    return [entry for _, entry in sorted({entry.number: entry for entry in entries}.items())]


def is_settled(entry: Rebalance) -> bool:
    return entry.outcome in (
        RebalanceOutcome.REBALANCE_OUTCOME_COMPLETED,
        RebalanceOutcome.REBALANCE_OUTCOME_EMPTIED,
    )


def client_name(member: MemberPlan) -> str:
    """Who comes again under a new member id is known by what it calls itself, and where it runs."""
    name = member.group_instance_id or member.client_id or member.member_id
    return f"{name} at {member.client_host or 'unknown host'}"


def list_reasons(entries: list[Rebalance]) -> str:
    return some(list(dict.fromkeys(cause_name(entry) for entry in entries)))


def find_calm_entries(group: ExaminedGroup, now_ms: int) -> set[int]:
    """The rebalances, by number, of clients that came once and went once, each with what followed of it.

    A rolling restart has two for each member and is no storm; nor is a start or a stop of all.
    """
    entries = group.lately(now_ms, WINDOW_MS)
    names, seen = client_names(group.rebalances), count_comings(group, now_ms)
    by_client: dict[tuple[str, bool], list[int]] = defaultdict(list)
    for entry in entries:
        if entry.cause in ARRIVALS or entry.cause in DEPARTURES:
            by_client[culprit_name(entry, names), entry.cause in ARRIVALS].append(entry.number)
    calm = set[int]()
    for (who, _), numbers in by_client.items():
        if len(numbers) <= max(1, seen[who].at_once):
            calm.update(numbers)
    for entry in reversed(entries):
        if entry.cause == RebalanceCause.REBALANCE_CAUSE_REVOCATION_FOLLOW_UP and entry.number - 1 in calm:
            calm.add(entry.number)
    return calm


def storm(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """More than six rebalances in ten minutes, those of a rolling restart, a start or a stop not counted."""
    entries = list(group.lately(facts.now_ms, WINDOW_MS))
    if len(entries) > STORM:
        calm = find_calm_entries(group, facts.now_ms)
        entries = [entry for entry in entries if entry.number not in calm]
    if len(entries) > STORM:
        causes: dict[str, int] = defaultdict(int)
        for entry in entries:
            causes[cause_name(entry)] += 1
        often = sorted(causes.items(), key=lambda pair: -pair[1])
        unowned_s = sum(entry.unowned_partition_seconds for entry in entries)
        yield RuleCase(
            f"{len(entries)} rebalances in {seconds(WINDOW_MS)}",
            (
                number_entries(entries),
                "causes: " + ", ".join(f"{name} {times}" for name, times in often),
                f"{unowned_s:,.1f} partition-seconds without an owner",
            ),
        )


def superseded(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """The last three rebalances or more were overtaken by the next one before they had a plan."""
    row = []
    for entry in group.rebalances:
        if entry.outcome != RebalanceOutcome.REBALANCE_OUTCOME_SUPERSEDED:
            break
        row.append(entry)
    if len(row) >= IN_A_ROW:
        lost_ms = max(0, row[0].ended_at_ms - row[-1].started_at_ms)
        yield RuleCase(
            f"the last {len(row)} rebalances were each overtaken by the next",
            (number_entries(row), f"without a plan for {seconds(lost_ms)}", f"set off by {list_reasons(row)}"),
        )


def leader_never_syncs(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """Rebalances ended because no plan came: the leader joined, and did not hand one in."""
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
    """A rebalance goes on after the moment at which it was to end at the latest."""
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
    """The newest rebalance failed: its assignor made no plan, or no attempt succeeded."""
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
