"""Static membership used in a way that helps nobody (KIP-345)."""

from collections import Counter
from collections.abc import Iterator

from muster.coordinator.observability.doctor.facts import DoctorFacts, ExaminedGroup
from muster.coordinator.observability.doctor.finding import RuleCase
from muster.coordinator.observability.doctor.words import number_entries, seconds, some
from muster.coordinator.observability.views.formatting import plural
from muster.coordinator.rpc.v1.ledger_pb2 import RebalanceCause

REPLACED_IN_MS = 600_000
REPLACED_OFTEN = 3
STRANGERS = 3
"""So many times as many instance ids as there are members, each seen in one life only, are names that never return."""


def used_twice(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """Two processes with one id push each other out, again and again."""
    replaced = RebalanceCause.REBALANCE_CAUSE_STATIC_MEMBER_REPLACED
    entries = [e for e in group.lately(facts.now_ms, REPLACED_IN_MS) if e.cause == replaced]
    names: Counter[str] = Counter()
    hosts: dict[str, set[str]] = {}
    for entry in entries:
        instance = instance_of(entry.culprit, entry.culprit_client_id)
        names[instance] += 1
        hosts.setdefault(instance, set()).add(entry.culprit_client_host)
    # A calm takeover is no rebalance: only the node's own count tells of it.
    counted = {member.instance_id: member for member in group.members if member.instance_id and member.taken_over}
    for instance in sorted({*names, *filter(None, counted)}):
        here = counted.get(instance)
        times = max(names[instance], here.taken_over if here else 0)
        if times >= REPLACED_OFTEN:
            theirs = [e for e in entries if instance_of(e.culprit, e.culprit_client_id) == instance]
            places = {*hosts.get(instance, ()), *([here.host] if here else [])}
            now = [f"now {here.client_id or here.id} has it"] if here else []
            yield RuleCase(
                f"instance id {instance!r} was taken over, or asked for by another, {times} times in "
                f"{seconds(REPLACED_IN_MS)}",
                (*([number_entries(theirs)] if theirs else []), f"from {some(sorted(places))}", *now),
            )


def instance_of(member_id: str, client_id: str) -> str:
    """A static member's id begins with its instance id; what the coordinator adds is a UUID.

    >>> instance_of("pod-1-0c1ab5c1-3a5c-4b4e-9f6e-2f1d3b7f9a10", "app")
    'pod-1'
    """
    head, dash, tail = member_id[:-37], member_id[-37:-36], member_id[-36:]
    return head if head and dash == "-" and tail.count("-") == 4 else client_id or member_id


def never_reused(group: ExaminedGroup, facts: DoctorFacts) -> Iterator[RuleCase]:
    """Instance ids that are new with each start: the old ones hold their partitions until their sessions end."""
    lives: dict[str, set[str]] = {}
    for entry in group.rebalances:
        for member in entry.members:
            if member.group_instance_id:
                lives.setdefault(member.group_instance_id, set()).add(member.member_id)
    now = {member.instance_id for member in group.members if member.instance_id}
    gone = sorted(name for name, ids in lives.items() if name not in now and len(ids) == 1)
    if now and len(gone) >= STRANGERS * len(now):
        yield RuleCase(
            f"{plural(len(gone), 'instance id')} came once, and never again",
            (
                f"{len(now)} static members now; gone: {some(gone)}",
                f"among the members of {number_entries(group.rebalances)}",
            ),
        )
