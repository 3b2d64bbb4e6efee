"""What must hold of a shard after every event, whatever came before. Each check names the rule it stands for."""

from dataclasses import replace

from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.model.types import GroupState, Outcome
from muster.coordinator.core.shard import Shard

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState


def check_shard(shard: Shard) -> None:
    """All checks that need nothing but the shard itself."""
    for group in shard.groups.values():
        members_are_in_one_place(group)
        counts_are_right(group)
        parked_requests_fit_the_state(group)
        everyone_is_watched(shard, group)
        the_log_knows_the_plan(group)
        every_generation_is_explained(shard, group)
    no_timer_without_a_reason(shard)


def members_are_in_one_place(group: ClassicGroup) -> None:
    """A member id is a member or a handed-out id, never both; a static member is known by its instance id."""
    assert not group.pending_joins & group.members.keys()
    assert group.pending_syncs <= group.members.keys()
    assert all(member.id == member_id for member_id, member in group.members.items())
    instances = {m.group_instance_id: m.id for m in group.members.values() if m.group_instance_id is not None}
    assert group.static == instances
    assert group.leader is None or group.leader in group.members
    if group.is_in(COMPLETING, STABLE):
        assert group.members
        assert group.leader
    if group.state is EMPTY:
        assert not group.members


def counts_are_right(group: ClassicGroup) -> None:
    """What the group counts as members come and go is what a count of all of them gives."""
    members = group.members.values()
    assert group.members.joining_count == sum(member.joining for member in members)
    offers = [{protocol.name for protocol in member.protocols} for member in members]
    assert group.members.common_protocols == (set.intersection(*offers) if offers else set())
    assert not offers or group.members.common_protocols, "the members have no protocol in common"


def parked_requests_fit_the_state(group: ClassicGroup) -> None:
    """A join is parked only while preparing, a sync only until the plan is there."""
    for member in group.members.values():
        assert not member.joining or group.state is PREPARING
        assert not member.syncing or group.state is COMPLETING
        assert not (member.syncing and member.id in group.pending_syncs)


def everyone_is_watched(shard: Shard, group: ClassicGroup) -> None:
    """Whoever may fall silent has a session timer; whatever is waited for has an end."""
    deadlines = shard.state.deadlines
    if group.state is DEAD:
        return
    for member in group.members.values():
        waits_for_us = (member.joining or member.syncing) and not member.is_new
        assert waits_for_us or group.session_timer(member.id) in deadlines, f"{member.id} could stay forever"
    for member_id in group.pending_joins:
        assert group.session_timer(member_id) in deadlines
    assert (group.join_timer in deadlines) == (group.state is PREPARING)
    assert (group.sync_timer in deadlines) == (bool(group.pending_syncs) and group.is_in(COMPLETING, STABLE))
    assert group.follow_timer not in deadlines or (group.remote and group.state is STABLE)


def no_timer_without_a_reason(shard: Shard) -> None:
    """No timer is left for a group or member that is gone."""
    for key in shard.state.deadlines:
        if key == ("retention",):
            continue
        group = shard.groups[key[1]]
        assert group.state is not DEAD
        assert key[0] != "session" or key[2] in group.members or key[2] in group.pending_joins


def the_log_knows_the_plan(group: ClassicGroup) -> None:
    """A stable group is on record exactly as it stands: a reload would bring back the same."""
    if group.state is STABLE:
        assert group.stored is not None
        assert group.stored == replace(group.record(0), state_timestamp_ms=group.stored.state_timestamp_ms)
    elif group.stored is not None:
        assert group.stored.generation <= group.generation


def every_generation_is_explained(shard: Shard, group: ClassicGroup) -> None:
    """Each generation has its entry, unless it waits for its plan. Entries are numbered without a gap.

    The last rebalance's entry stays when newer ones of another kind push out its neighbours.
    """
    ledger = shard.ledgers.get(group.id)
    entries = sorted(ledger.entries.values(), key=lambda entry: entry.number) if ledger else []
    newest = {ledger.newest.number} if ledger and ledger.newest is not None else set()
    numbers = {entry.number for entry in entries} | ({group.under_way} - {0})
    explained = {entry.generation for entry in entries}
    waiting = group.generation if group.state is COMPLETING else 0
    missing = set(range(1, group.generation + 1)) - {waiting} - explained
    something_was_forgotten = len(numbers) < max(numbers, default=0)
    assert something_was_forgotten or not missing, f"generations {missing} have no entry"
    beside = numbers - newest
    assert len(beside - {group.under_way}) <= shard.state.limits.ledger_max_entries
    assert not beside or set(range(min(beside), max(beside) + 1)) <= numbers
    for entry in entries:
        assert entry.generation == entry.previous_generation + (entry.outcome is not Outcome.MEMBER_CHANGED)
        assert entry.started_at_ms <= entry.ended_at_ms
        assert entry.outcome is not Outcome.EMPTIED or not entry.members
        assert entry.detail
    if ledger:
        assert ledger.settlements.keys() <= ledger.entries.keys()
        for settlement in ledger.settlements.values():
            assert 0 <= sum(ms for _, _, ms in settlement.unowned) <= settlement.unowned_partition_ms
