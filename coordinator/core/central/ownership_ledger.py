"""Writes the ledger of central groups: one entry for each new ownership, and for each that could not be brought about.

Every member stops, so every partition is without an owner from its owner's FetcherStopped to the new one's
FetcherStarted.
"""

from collections.abc import Iterable

from muster.coordinator.core.central.group import CentralGroup, CentralMember, DecidedOwnership
from muster.coordinator.core.groups.bookkeeping import (
    keep_entry,
    keep_settlement,
    ledger_entry_begun,
)
from muster.coordinator.core.groups.member_causes import take_incarnations
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.ledger import (
    Departure,
    OngoingRebalance,
    PlanBefore,
    RebalanceChange,
    RebalanceSettling,
    RebalanceTrigger,
    diff_plans,
    phase_with_waits,
)
from muster.coordinator.core.model.plan import CONSUMER, canonical_name
from muster.coordinator.core.model.types import Cause, Outcome, PartitionMove, RebalancePhase, WaitEnd

SOURCE = "central"
"""Where the ledger's snapshot comes from: it is the assignor's input itself."""
MAX_NAME = 249
"""The longest name a topic can have (Kafka's Topic.MAX_NAME_LENGTH)."""
NAMES_TOLD = 5


def note_trigger(group: CentralGroup, trigger: RebalanceTrigger, step: Step) -> None:
    """The first trigger gives a rebalance its cause; those that come before it has been decided are noted beside it."""
    progress = group.progress
    if progress.rebalance is not None:
        progress.rebalance.note(trigger, step.now_ms)
    else:
        progress.rebalance = ledger_entry_begun(group.id, trigger, group.generation, step)
    take_incarnations(group)


def note_departure(group: CentralGroup, member: CentralMember, departure: Departure, step: Step) -> None:
    """A member is gone; the trigger that says so has been noted."""
    assert group.progress.rebalance is not None
    group.progress.rebalance.left(member.id, departure, step.now_ms)


def note_stopped(group: CentralGroup, member: CentralMember, step: Step) -> None:
    group.progress.stopped.setdefault(member.id, step.now_ms)
    if group.progress.rebalance is not None:
        group.progress.rebalance.released.setdefault(member.id, step.now_ms)


def note_restarted(group: CentralGroup, member: CentralMember) -> None:
    """It fetches what it had before: it was only stopped for a while."""
    if group.progress.rebalance is not None:
        group.progress.rebalance.released.pop(member.id, None)


def drop_rebalance(group: CentralGroup) -> None:
    """The plan is the one that holds: whatever called for it leaves no entry."""
    group.progress.rebalance = None


def note_planned(group: CentralGroup, step: Step) -> None:
    """There is another plan. What went before it was waiting: for leases, for patterns, for failed attempts."""
    rebalance = group.progress.rebalance
    if rebalance is None:
        note_trigger(
            group,
            RebalanceTrigger(Cause.COORDINATOR_FAILOVER, "the group was loaded, and needs another assignment"),
            step,
        )
        rebalance = group.progress.rebalance
        assert rebalance is not None
    since_ms = group.progress.planning_since_ms
    if not group.progress.second_look:
        rebalance.phases.clear()
    if not rebalance.phases and since_ms > rebalance.started_at_ms:
        former = group.history.former
        clients = {member: former[member].client_id if member in former else "" for member in rebalance.gone}
        ended = {member: rebalance.ends[member] for member in rebalance.gone}
        rebalance.phases.append(phase_with_waits("wait", clients, ended, rebalance.started_at_ms, since_ms))
    rebalance.phases.append(RebalancePhase("plan", step.now_ms - since_ms))


def note_failed_attempt(group: CentralGroup, why: str, step: Step) -> None:
    """Noted beside the cause; if nothing was under way but the start of what is decided, it is a cause of its own."""
    trigger = RebalanceTrigger(Cause.HANDOFF_TIMEOUT, f"attempt {group.progress.failures} failed: {why}")
    note_trigger(group, trigger, step)


def record_given_up(group: CentralGroup, step: Step) -> None:
    """Every attempt failed: the entry says so, and the ownership that is stored stays."""
    rebalance = group.progress.rebalance
    assert rebalance is not None
    write_entry(group, rebalance, Outcome.FAILED, (), step)
    group.progress.rebalance = None


def record_emptied(group: CentralGroup, step: Step) -> None:
    """Nobody is left."""
    rebalance = group.progress.rebalance
    assert rebalance is not None
    close_settling(group, step)
    diff = diff_plans(PlanBefore(group.owned, {}, {}), {}, rebalance)
    write_entry(group, rebalance, Outcome.EMPTIED, diff.moves, step)
    group.progress.rebalance = None


def end_stop_phase(group: CentralGroup, step: Step) -> None:
    """The end of a phase; if something has happened meanwhile, another plan follows, and nobody is left to stop."""
    progress = group.progress
    assert progress.rebalance is not None
    clients = {member: group.members[member].client_id for member in progress.stopped if member in group.members}
    ended = {member: (WaitEnd.JOINED, progress.stopped[member]) for member in clients}
    progress.rebalance.phases.append(phase_with_waits("stop", clients, ended, progress.stopping_since_ms, step.now_ms))


def end_stopping(group: CentralGroup, step: Step) -> None:
    """Everybody has stopped, and the plan will become the ownership."""
    rebalance = group.progress.rebalance
    assert rebalance is not None
    if why := missing_topics_sentence(
        group, frozenset().union(*(member.topics for member in group.members.values())), step
    ):
        rebalance.note(RebalanceTrigger(Cause.PARTITIONS_CHANGED, why), step.now_ms)
    end_stop_phase(group, step)


def record_decision(group: CentralGroup, decided: DecidedOwnership, step: Step) -> None:
    """The plan becomes the ownership; the one before is still the stored one."""
    progress = group.progress
    rebalance, diff = progress.rebalance, progress.compared
    assert rebalance is not None
    assert diff is not None
    close_settling(group, step)
    write_entry(group, rebalance, Outcome.COMPLETED, diff.moves, step, decided)
    progress.settling = RebalanceSettling(rebalance.number, diff.gaps)
    progress.rebalance = None


def note_started(group: CentralGroup, member: CentralMember, step: Step) -> None:
    """The member fetches its share: it is owned from here on."""
    note_restarted(group, member)
    settling = group.progress.settling
    if settling is not None:
        settling.fetched.setdefault(member.id, step.now_ms)


def close_settling(group: CentralGroup, step: Step) -> None:
    """Complete the last entry with what became known since: when each partition was fetched again."""
    settling, group.progress.settling = group.progress.settling, None
    if settling is not None:
        keep_settlement(group, settling.settlement(step.now_ms), step)


def keep_settled(group: CentralGroup, step: Step) -> None:
    """As `close_settling`, of a large group, for which it was made in a turn of its own."""
    progress = group.progress
    settled, progress.settled = progress.settled, None
    progress.settling = progress.settled_at_ms = None
    assert settled is not None
    keep_settlement(group, settled.settlement, step, settled.entry)


def write_entry(
    group: CentralGroup,
    rebalance: OngoingRebalance,
    outcome: Outcome,
    moves: tuple[PartitionMove, ...],
    step: Step,
    decided: DecidedOwnership | None = None,
) -> None:
    """Keep the entry. decided: of one that was completed."""
    snapshot_json, source = group.progress.described if decided is not None else ("", "")
    change = RebalanceChange(
        generation=group.generation + (outcome is not Outcome.FAILED),
        protocol_type=CONSUMER,
        protocol_name=planned_by(group, step),
        moves=moves,
        members=() if decided is None else decided.members,
        snapshot_json=snapshot_json,
        snapshot_source=source,
    )
    entry = rebalance.entry(outcome, step.now_ms, change)
    keep_entry(group.id, entry, step, None if decided is None else decided.listed_bytes)
    step.announce(group, entry=entry)


def planned_by(group: CentralGroup, step: Step) -> str:
    """Whoever made the plan; before there is one, whom the members ask for."""
    request = group.progress.request
    return group.assignor if request is None else canonical_name(request.assignor, step.limits)


def missing_topics_sentence(group: CentralGroup, topics: Iterable[str], step: Step) -> str:
    """Which of these names the log that the group is planned from lacks, as a sentence; empty when it has them all."""
    missing = sorted(set(topics) - step.state.partitions.keys())
    if not missing:
        return ""
    names = ", ".join(repr(name[:MAX_NAME]) for name in missing[:NAMES_TOLD])
    more = f" and {len(missing) - NAMES_TOLD} more" if len(missing) > NAMES_TOLD else ""
    return (
        f"the log of the node that coordinates group {group.id!r} has no topic {names}{more}: nobody is given any of it"
    )
