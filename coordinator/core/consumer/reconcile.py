"""One member's way to its target: give up first, then take what is free (KIP-848)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from muster.coordinator.core.consumer.group import ConsumerGroup, ConsumerMember, ConsumerMemberState
from muster.coordinator.core.model.consumer_records import CurrentStored, Epochs, Shares, TopicId


@dataclass(frozen=True, slots=True)
class ReconciliationGoal:
    """What the member is to have, and what it says it has (None: it did not say)."""

    target: Shares
    owned: Shares | None


def reconciled(group: ConsumerGroup, member: ConsumerMember, wish: ReconciliationGoal) -> CurrentStored | None:
    """The member's next current assignment, or None when nothing changes."""
    match member.state:
        case ConsumerMemberState.STABLE:
            if member.epoch == group.target_epoch and not dropped_topics(member, wish.target):
                return None
            following = next_assignment(group, member, wish, group.target_epoch)

        case ConsumerMemberState.UNREVOKED:
            if wish.owned is None or overlaps(wish.owned, member.revoking):
                return None
            following = next_assignment(group, member, wish, group.target_epoch, freed=True)

        case ConsumerMemberState.UNRELEASED:
            following = next_assignment(group, member, wish, group.target_epoch)

        case ConsumerMemberState.UNKNOWN:
            # A newer coordinator wrote this state; only a member that holds nothing gets here.
            following = next_assignment(group, member, wish, group.target_epoch, freed=True)

        case _:
            assert_never(member.state)
    return following if is_changed(member, following) else None


def dropped_topics(member: ConsumerMember, target: Shares) -> bool:
    return any(topic not in target for topic in member.assigned)


def next_assignment(
    group: ConsumerGroup, member: ConsumerMember, wish: ReconciliationGoal, target_epoch: int, freed: bool = False
) -> CurrentStored:
    """Keep what is in both, revoke the rest; take what nobody else holds."""
    keep, revoke = split_assigned(member.assigned, wish.target)
    if revoke and not (wish.owned is not None and not overlaps(wish.owned, revoke)):
        # The member must acknowledge first; until then it stays at its epoch.
        return CurrentStored(
            group.id, member.id, member.epoch, member.previous_epoch, ConsumerMemberState.UNREVOKED, keep, revoke
        )
    free, blocked = available_partitions(group, member, wish.target, keep)
    assigned = merge_shares(keep, free, target_epoch)
    state = ConsumerMemberState.UNRELEASED if blocked else ConsumerMemberState.STABLE
    # A static member that was away comes back without an epoch of its own.
    previous = max(member.epoch, 0) if member.epoch != target_epoch else member.previous_epoch
    return CurrentStored(group.id, member.id, target_epoch, previous, state, assigned, {})


def split_assigned(assigned: Epochs, target: Shares) -> tuple[Epochs, Epochs]:
    """What stays and what must go."""
    keep: dict[TopicId, Mapping[int, int]] = {}
    revoke: dict[TopicId, Mapping[int, int]] = {}
    for topic, partitions in assigned.items():
        wanted = target.get(topic, frozenset())
        if stays := {p: epoch for p, epoch in partitions.items() if p in wanted}:
            keep[topic] = stays
        if goes := {p: epoch for p, epoch in partitions.items() if p not in wanted}:
            revoke[topic] = goes
    return keep, revoke


def available_partitions(
    group: ConsumerGroup, member: ConsumerMember, target: Shares, keep: Epochs
) -> tuple[dict[TopicId, frozenset[int]], bool]:
    """The new partitions that nobody else holds, and whether any is still held; its own revocations do not block."""
    free: dict[TopicId, frozenset[int]] = {}
    blocked = False
    for topic, partitions in target.items():
        new = partitions - keep.get(topic, {}).keys()
        taken = {p for p in new if group.owner(topic, p) not in (None, member.id)}
        blocked = blocked or bool(taken)
        if new - taken:
            free[topic] = frozenset(new - taken)
    return free, blocked


def merge_shares(keep: Epochs, free: Shares, epoch: int) -> dict[TopicId, Mapping[int, int]]:
    return {
        topic: {**keep.get(topic, {}), **dict.fromkeys(sorted(free.get(topic, ())), epoch)}
        for topic in sorted(keep.keys() | free.keys())
    }


def overlaps(owned: Shares, held: Epochs) -> bool:
    return any(not partitions.isdisjoint(held.get(topic, {})) for topic, partitions in owned.items())


def is_changed(member: ConsumerMember, following: CurrentStored) -> bool:
    now = (member.epoch, member.previous_epoch, int(member.state), dict(member.assigned), dict(member.revoking))
    then = (
        following.epoch,
        following.previous_epoch,
        following.state,
        dict(following.assigned),
        dict(following.revoking),
    )
    return now != then
