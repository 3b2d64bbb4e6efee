"""What an assignor is given so that it evens out load: measured loads for lags, and the settings of `balance`.

While a group's balance acts, every plan that the coordinator makes for it is made from this: what one rebalance has
evened out, the next one, of whatever cause, does not undo.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from muster.assignors.api import JsonValue, Snapshot
from muster.assignors.registry import BUILT_IN, resolve
from muster.coordinator.core.classic.assigning import cooperative_names
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.consumer.group import ConsumerGroup
from muster.coordinator.core.control.balance import memory
from muster.coordinator.core.groups.group import GroupData
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.plan import WANT_LAGS
from muster.coordinator.core.settings.rules import ACT, OWN_OPTIONS, BalanceRules

if TYPE_CHECKING:
    from muster.coordinator.core.control.balance.ongoing import OngoingBalance

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
            memory.recent_moves(group_id, rules, step),
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
    return next((member for member, offer in classic_offers(group) if not cooperative_names().issuperset(offer)), "")


def classic_offers(group: GroupData) -> Iterator[tuple[str, frozenset[str]]]:
    """Members of the classic protocol, and the names that each offers."""
    if isinstance(group, ClassicGroup):
        for member in group.members.values():
            yield member.id, member.offer
    elif isinstance(group, ConsumerGroup):
        for other in group.members.values():
            if other.classic is not None:
                yield other.id, frozenset(protocol.name for protocol in other.classic.protocols)
