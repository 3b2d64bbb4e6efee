"""The balance of a group as plans and the ledger see it: recent moves, assignor input, and when balance rests.

The cooldown outlives the process, so moves are a hard fact. While a group's balance acts, the coordinator gives every
plan measured loads in place of lags, and the `balance` settings: what one rebalance has evened out, the next one, of
whatever cause, does not undo. Balance rests while a group is in flux, on trial or held, and only observes where
single partitions cannot be moved.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from muster.assignors.api import JsonValue, Snapshot
from muster.assignors.registry import BUILT_IN, resolve
from muster.coordinator.core.classic.group import ClassicGroup, cooperative_names
from muster.coordinator.core.control.overrides import overrides
from muster.coordinator.core.groups.group import GroupData
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.kinds.registry import KINDS
from muster.coordinator.core.model.plan import WANT_LAGS
from muster.coordinator.core.model.records import NEVER_MS, BalanceForgotten, BalanceStored, Moved
from muster.coordinator.core.model.types import Outcome, RebalanceEntry
from muster.coordinator.core.settings.shapes import ACT, OWN_OPTIONS, BalanceRules, read_balance_rules

if TYPE_CHECKING:
    from muster.coordinator.core.control.balance.evaluation import OngoingBalance


def balance_rules_of(group_id: str, state: ShardState) -> BalanceRules:
    """What an operator has set for the group's balance."""
    stored = state.settings.get(group_id)
    return read_balance_rules(stored.values) if stored else BalanceRules()


def note_rebalance(group_id: str, entry: RebalanceEntry, step: Step) -> None:
    """A rebalance has been decided: partitions of a balanced group that went from one member to another, of whatever
    cause, stay where they are for a while."""
    if not step.state.settings or entry.outcome is not Outcome.COMPLETED:
        return
    rules = balance_rules_of(group_id, step.state)
    places = {
        (move.topic, move.partition) for move in entry.moves if move.source and move.target not in ("", move.source)
    }
    if rules.on and places:
        known = {place: at for place, at in recent_moves(group_id, rules, step).items() if place not in places}
        known.update(dict.fromkeys(places, step.now_ms))
        step.keep(BalanceStored(group_id, watched_at_ms(group_id, step), pack_moves(known)))


def note_watched(group_id: str, rules: BalanceRules, step: Step) -> None:
    """The ledger has been told what would have been moved."""
    step.keep(BalanceStored(group_id, step.now_ms, pack_moves(recent_moves(group_id, rules, step))))


def forget_balance(group_id: str, step: Step) -> None:
    if group_id in step.state.balanced:
        step.keep(BalanceForgotten(group_id))


def recent_moves(group_id: str, rules: BalanceRules, step: Step) -> dict[tuple[str, int], int]:
    """Partitions that moved too recently to move again, and when that was."""
    stored = step.state.balanced.get(group_id)
    return {
        (topic, partition): step.past(at_ms)
        for at_ms, topics in (stored.moved if stored else ())
        if step.now_ms - step.past(at_ms) < rules.cooldown_ms
        for topic, partitions in topics
        for partition in partitions
    }


def count_resting(group_id: str, rules: BalanceRules, step: Step) -> int:
    """How many partitions have moved too recently to move again."""
    stored = step.state.balanced.get(group_id)
    return sum(
        len(partitions)
        for at_ms, topics in (stored.moved if stored else ())
        if step.now_ms - step.past(at_ms) < rules.cooldown_ms
        for _, partitions in topics
    )


def watched_at_ms(group_id: str, step: Step) -> int:
    stored = step.state.balanced.get(group_id)
    return stored.watched_at_ms if stored else NEVER_MS


def may_report_watched(group_id: str, rules: BalanceRules, step: Step) -> bool:
    """Whether the ledger may be told again what would have been moved: once in a cooldown."""
    at_ms = watched_at_ms(group_id, step)
    return at_ms == NEVER_MS or step.now_ms - step.past(at_ms) >= rules.cooldown_ms


def pack_moves(moved: Mapping[tuple[str, int], int]) -> Moved:
    """
    >>> pack_moves({("t", 1): 7, ("t", 0): 7, ("t", 2): 5})
    ((5, (('t', (2,)),)), (7, (('t', (0, 1)),)))
    """
    times: dict[int, dict[str, list[int]]] = {}
    for (topic, partition), at_ms in sorted(moved.items()):
        times.setdefault(at_ms, {}).setdefault(topic, []).append(partition)
    return tuple(
        (at_ms, tuple((topic, tuple(partitions)) for topic, partitions in times[at_ms].items()))
        for at_ms in sorted(times)
    )


# Input of assignors
# ------------------

LAG_STICKY = "lag-sticky"

EVEN_ENOUGH = 0.1
"""Of `min.gain`: so far above the mean a plan may leave the heaviest member. What it leaves there is missing in its
gain: with half of a `min.gain` of 10 %, nothing pays below 1.17 times the mean, with a tenth nothing below 1.12."""


def weigh_snapshot(snapshot: Snapshot, group: GroupData, step: Step) -> Snapshot:
    """The snapshot of a plan that will be carried out: as it is, unless the group's balance acts and has measured."""
    balancing = step.state.balancing.get(group.id)
    if balancing is None or balancing.rules.mode != ACT or eager_member(group):
        return snapshot
    if balancing.loads is None or not balancing.loads.rated:
        return snapshot
    return with_loads(snapshot, group.id, balancing, step)


def with_loads(snapshot: Snapshot, group_id: str, balancing: "OngoingBalance", step: Step) -> Snapshot:
    """For whichever assignor can use them: the group's own, or `lag-sticky`."""
    rules, loads = balancing.rules, balancing.loads
    assert loads is not None
    known = options_of(snapshot.assignor, balancing.weighing)
    assignor = snapshot.assignor if known is not None else LAG_STICKY
    return replace(
        snapshot,
        assignor=assignor,
        lags=loads.whole(loads.counted(rules.drain_ms, balancing.behind), snapshot.topics),
        options=options_for(
            own_options(LAG_STICKY) if known is None else known,
            snapshot.options,
            snapshot.topics,
            recent_moves(group_id, rules, step),
            rules,
            step.now_ms,
        ),
    )


def options_for(
    known: Collection[str],
    said: Mapping[str, JsonValue],
    topics: Collection[str],
    moved: Mapping[tuple[str, int], int],
    rules: BalanceRules,
    now_ms: int,
) -> dict[str, JsonValue]:
    """What the assignor is told: what balance hands in, and what an operator has said besides (`said`), of the options
    that it knows.

    `moved`: when partitions moved that rest since. Rounds and cooldowns keep the group calm, so what pays is done at
    once and whole: an assignor that dampens each plan by itself, or is content before the load is even, would find the
    same again and again, too small to pay (docs/assignors/balance.md has the figures).
    """
    times: dict[str, dict[str, JsonValue]] = {}
    for (topic, partition), at_ms in moved.items():
        if topic in topics:
            times.setdefault(topic, {})[str(partition)] = max(0, at_ms)
    budget: dict[str, JsonValue] = {"move.budget": rules.move_budget} if rules.move_budget else {}
    unless_said: dict[str, JsonValue] = {"dampening": 1.0, "imbalance.tolerance": rules.min_gain * EVEN_ENOUGH}
    return {
        **{name: value for name, value in {**unless_said, **said}.items() if name in set(known) - set(OWN_OPTIONS)},
        "min.gain": rules.min_gain,
        **budget,
        "cooldown.ms": rules.cooldown_ms,
        "moved.at.ms": times,
        "now.ms": max(0, now_ms),
    }


def options_of(word: str, plugins: Mapping[str, tuple[str, ...]]) -> Collection[str] | None:
    """The options of an assignor that takes loads and lets itself be told when a move pays; None of one that does not.

    Of plugins, whoever measures tells that (`LoadMeasured.weighing`): no class of theirs is looked for here.
    """
    if word not in BUILT_IN:
        return plugins.get(word)
    known = own_options(word)
    return known if accepts_loads(word in WANT_LAGS, known) else None


@cache
def own_options(built_in: str) -> tuple[str, ...]:
    return tuple(getattr(resolve(built_in), "options", ()))


def accepts_loads(wants_lags: bool, options: Collection[str]) -> bool:
    """Whether an assignor that says so of itself can be balanced by."""
    return wants_lags and set(OWN_OPTIONS) <= set(options)


def eager_member(group: GroupData) -> str:
    """The first member of the classic protocol, in a group of whichever kind, that lets go of everything in a
    rebalance; empty when none does.

    Cooperative is only who offers nothing but cooperative assignors: with an eager one beside them, clients are eager.
    """
    offers = KINDS[type(group)].classic_offers(group)
    return next((member for member, offer in offers if not cooperative_names().issuperset(offer)), "")


# When balance rests
# ------------------

AT_REST = "Stable"
"""The word of every kind for a group in which nothing is on its way."""


def why_balance_rests(group: GroupData, step: Step) -> str:
    """Why nothing is to be judged now: there is nobody to share with, things are in flux, or on trial. Empty: it is."""
    canary = step.state.canaries.get(group.id)
    if overrides.are_members_protected(step.state, group.id):
        return "it rests while a freeze, a deploy or a held share is on"
    if len(group.members) < 2:
        return "there are fewer than two members"
    if group.under_way or group.state.value != AT_REST:
        return "a rebalance is under way"
    return "it rests while a canary runs" if canary is not None and canary.runs else ""


def why_balance_cannot_act(group: GroupData | None, plans_itself: bool) -> str:
    """Why nothing may be moved in this group for the sake of balance; empty where it may. `plans_itself`: its members
    do, not the coordinator."""
    if group is None or not group.members:
        return ""
    if plans_itself:
        return (
            f"the members of group {group.id!r} make its plans; set an assignor for the group, or let its members join "
            "with group.protocol=consumer"
        )
    if member := eager_member(group):
        stopped = "the whole group" if isinstance(group, ClassicGroup) else "all that it reads"
        return (
            f"member {member!r} of group {group.id!r} lets go of all it has in a rebalance (eager), so every move "
            f"would stop {stopped}; let all members offer cooperative assignors only, or set balance=watch"
        )
    return ""
