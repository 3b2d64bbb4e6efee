"""What a balanced group remembers of its moves: a hard fact, for the cooldown outlives the process."""

from collections.abc import Mapping

from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.model.balance_records import NEVER_MS, BalanceForgotten, BalanceStored, Moved
from muster.coordinator.core.model.types import Outcome, RebalanceEntry
from muster.coordinator.core.settings.rules import BalanceRules, read_balance_rules


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
