"""A shard of groups that another broker coordinates: it learns from its records, answers, and decides nothing.

The facts are those of any shard, so groups are described, listed and explained as everywhere. No timer runs: whether a
member is alive is the other broker's to say. Requests that would change anything are refused.
"""

from dataclasses import replace

from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.classic.lifecycle import restore_members
from muster.coordinator.core.groups.bookkeeping import keep_entry, next_number
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.effects import REPLY_TYPES, DescribeReply, Effects, GroupChanged, add_refusal
from muster.coordinator.core.model.events import (
    Event,
    GroupSeen,
    GroupsVanished,
    Loaded,
    RecordsWatched,
    TopicsChanged,
    WatchStood,
)
from muster.coordinator.core.model.records import GroupStored, RebalanceDecided
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.core.model.types import GroupState, Limits, RebalanceEntry
from muster.coordinator.core.shard import QUESTIONS, Shard, take_catalog
from muster.coordinator.core.watched.followed_evidence import amend_kept_entry
from muster.coordinator.core.watched.seen_rounds import (
    REBALANCING,
    SeenRound,
    SeenRounds,
    see_round,
    take_seen,
    with_seen_phases,
)
from muster.coordinator.errors import CoordinatorError, ErrorCode

ONLY_WATCHED = (
    "this node watches the groups of a Kafka and coordinates none, so nothing can be changed here; to have Muster "
    "coordinate a group, run nodes over that Kafka and use muster engine adopt"
)

NOT_READ = "the records of the groups have not been read yet"


class WatchedShard(Shard):
    """See the module. excuse: why it cannot answer yet; empty: it can. seen: by group, rounds that looks have seen and
    records have not told of yet."""

    __slots__ = ("excuse", "seen")

    def __init__(self, limits: Limits, index: int) -> None:
        super().__init__(limits, index)
        self.excuse = NOT_READ
        self.seen: dict[str, SeenRounds] = {}

    def beat(self, group_id: str, member_id: str, generation: int, rights: Rights, now_ms: int) -> bool:
        """Nobody is a member here."""
        return False

    def step(self, event: Event, now_ms: int) -> Effects:
        """Answer a question or learn what a record says; anything else is refused, or means nothing here."""
        kind = type(event)
        if kind in QUESTIONS and self.excuse:
            return add_refusal(event, CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, self.excuse), Effects())
        if kind in QUESTIONS:
            return without_waits(super().step(event, now_ms))
        if kind in REPLY_TYPES:
            return add_refusal(event, CoordinatorError(ErrorCode.INVALID_REQUEST, ONLY_WATCHED), Effects())
        step = Step(self.state, now_ms)
        if isinstance(event, RecordsWatched):
            learn_facts(event, step, self.seen, read_anew=bool(self.excuse))
        elif isinstance(event, GroupSeen):
            see_group(event, step, self.seen, behind=bool(self.excuse))
        elif isinstance(event, GroupsVanished):
            forget_groups(event, step)
        elif isinstance(event, WatchStood):
            self.excuse = event.excuse
            self.seen.clear()
        elif isinstance(event, TopicsChanged):
            take_catalog(event, step)
        elif isinstance(event, Loaded):
            self.state.loaded_at_ms = now_ms
        return step.out


# Learning
# --------


def learn_facts(event: RecordsWatched, step: Step, seen: dict[str, SeenRounds], *, read_anew: bool) -> None:
    """read_anew: they may have been read before, by an earlier process of this node."""
    for fact in event.facts:
        if isinstance(fact, RebalanceDecided) and fact.amends:
            entry = amend_kept_entry(fact, step)
            if entry is not None:
                tell_entry(fact.group_id, entry, step)
            continue
        if isinstance(fact, RebalanceDecided):
            rounds = take_seen(fact, seen, step.now_ms)
            number = number_of(fact, step, read_anew=read_anew)
            if number is not None:
                keep_watched_entry(fact, number, rounds, step)
            continue
        step.learn(fact)
        group = step.state.groups.get(getattr(fact, "group_id", ""))
        if isinstance(fact, GroupStored) and isinstance(group, ClassicGroup):
            restore_members(group, fact, step)


def number_of(decided: RebalanceDecided, step: Step, *, read_anew: bool) -> int | None:
    """The number that its entry gets; None: it is kept already, or made room for others.

    Rebalances are kept in the order of their records, and several may end with one. One of a later generation is newer
    whatever its time, for brokers' clocks differ; unless it is older than all: then the group has been made anew since,
    and counts from 1 again. One that is missing between others could not be written, as on a full disk: its number is
    still free.
    """
    ledger = step.state.ledgers.get(decided.group_id)
    newest = None if ledger is None else ledger.newest
    if not read_anew or ledger is None or newest is None:
        return next_number(decided.group_id, step)
    of, kept = decided.entry, ledger.entries.values()
    oldest_ms = newest.ended_at_ms
    for each in kept:
        if each.ended_at_ms == of.ended_at_ms and each.generation == of.generation:
            return None
        oldest_ms = min(oldest_ms, each.ended_at_ms)
    if of.ended_at_ms < oldest_ms:
        return None
    if of.ended_at_ms >= newest.ended_at_ms or of.generation > newest.generation:
        return next_number(decided.group_id, step)
    number = 1 + max(each.number for each in kept if each.ended_at_ms <= of.ended_at_ms)
    return None if number in ledger.entries else number


def forget_groups(event: GroupsVanished, step: Step) -> None:
    """Their entries stay, as those of any group that was deleted."""
    for group_id in event.group_ids:
        group = step.state.logged(group_id)
        step.state.offsets.pop(group_id, None)
        if group is not None:
            step.state.drop(type(group), group_id)
            step.out.notices.append(GroupChanged(group_id, GroupState.DEAD.value, 0))


def keep_watched_entry(decided: RebalanceDecided, number: int, seen: SeenRound | None, step: Step) -> None:
    group_id = decided.group_id
    entry = replace(with_seen_phases(decided.entry, seen), number=number)
    keep_entry(group_id, entry, step)
    tell_entry(group_id, entry, step)


def tell_entry(group_id: str, entry: RebalanceEntry, step: Step) -> None:
    group = step.state.groups.get(group_id)
    state, generation = ("Dead", entry.generation) if group is None else (group.state.value, group.generation)
    step.out.notices.append(GroupChanged(group_id, state, generation, entry))


# Looks
# -----


def see_group(event: GroupSeen, step: Step, seen: dict[str, SeenRounds], *, behind: bool) -> None:
    """A classic group is in the state that was seen, for as long as it rebalances: its records do not say. Those of a
    KIP-848 group do. behind: its past is being read, so which record is of which round cannot be told."""
    group = step.state.groups.get(event.group_id)
    if not behind:
        see_round(event.group_id, event.state, seen, step.now_ms)
    if not isinstance(group, ClassicGroup):
        return
    settled = GroupState.STABLE if group.members else GroupState.EMPTY
    state = GroupState(event.state) if event.state in REBALANCING else settled
    if state is not group.state:
        group.state = state
        step.out.notices.append(GroupChanged(group.id, state.value, group.generation))


def without_waits(out: Effects) -> Effects:
    """Whom a rebalance waits for its coordinator knows, and tells nobody."""
    out.replies = [
        (request_id, replace(reply, waiting_for=(), waiting_until_ms=0) if isinstance(reply, DescribeReply) else reply)
        for request_id, reply in out.replies
    ]
    return out
