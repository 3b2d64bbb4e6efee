"""16. Balance is calm: no partition moves for its sake that has moved within the cooldown, in this life of the node or
before; and where an operator wants nobody to lose anything, nothing is judged.

A rebalance that something else joined in moves what that needs, and does not count.
"""

from muster.coordinator.core.control.overrides import overrides
from muster.coordinator.core.model.effects import Effects
from muster.coordinator.core.model.events import Event
from muster.coordinator.core.model.records import RebalanceDecided
from muster.coordinator.core.model.types import Cause, Outcome, RebalanceEntry
from muster.coordinator.core.shard import Shard
from tests.sim.members.balancing import COOLDOWN_MS
from tests.sim.watch import Checker
from tests.sim.world import World


class BalanceIsCalm(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.moved_ms: dict[str, dict[tuple[str, int], int]] = {}
        """group -> partition -> when it moved last, as long as the group is balanced"""
        self.entries: dict[str, dict[tuple[str, int], RebalanceEntry]] = {}
        """The same: by which entry of the ledger"""
        self.resting: frozenset[str] = frozenset()

    def before_step(self, shard: int, core: Shard, event: Event) -> None:
        state = core.state
        self.resting = frozenset(
            group_id for group_id in state.holds if overrides.are_members_protected(state, group_id)
        )

    def replayed(self, shard: int, core: Shard) -> None:
        """What moved by a plan that the log has lost did not move: nobody was told of it.

        Lost is what the ledger no longer tells, or tells of a generation that the group's own records have not reached:
        the log may have broken between the two, and a ledger tells then of what never came to be.
        """
        for group_id, entries in self.entries.items():
            if self.node.shard_index(group_id) != shard:
                continue
            ledger = core.ledgers.get(group_id)
            kept = ledger.entries if ledger is not None else {}
            reached = last_plan(core, group_id)
            for place, entry in list(entries.items()):
                trimmed = bool(kept) and entry.number < min(kept)
                found = kept.get(entry.number)
                told = trimmed or (found is not None and found.moves == entry.moves)
                if not told or entry.generation > reached:
                    self.moved_ms.get(group_id, {}).pop(place, None)
                    del entries[place]

    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        for record in effects.records:
            if isinstance(record, RebalanceDecided):
                self._decided(record.group_id, record.entry, core)
        for group_id in list(self.moved_ms):
            here = self.node.shard_index(group_id) == shard
            if here and (group_id not in core.state.balanced or self.harmed(group_id)):
                # It is balanced no longer, or what was known of it has been lost.
                del self.moved_ms[group_id]

    def _decided(self, group_id: str, entry: RebalanceEntry, core: Shard) -> None:
        if entry.outcome is Outcome.WATCHED:
            self.world.census["balance watched"] += 1
            if group_id in self.resting:
                self.fail(f"what balance would do in {group_id} was judged while nobody may lose anything")
        if entry.outcome is not Outcome.COMPLETED:
            return
        balancing = core.state.balancing.get(group_id)
        moved = {(m.topic, m.partition) for m in entry.moves if m.source and m.target not in ("", m.source)}
        known = self.moved_ms.get(group_id, {})
        if entry.cause is Cause.LAG_IMBALANCE:
            self.world.census["balance acted"] += 1
            own = {
                (m.topic, m.partition) for m in entry.moves if m.source and m.why.startswith(("balance", "withheld"))
            }
            again = sorted(place for place in own if self.world.now_ms - known.get(place, -COOLDOWN_MS) < COOLDOWN_MS)
            if again and not entry.also and group_id not in core.state.holds:
                self.fail(f"balance of {group_id} moved {again} again within {COOLDOWN_MS} ms: {entry}")
        if balancing is not None and moved:
            self.moved_ms.setdefault(group_id, {}).update(dict.fromkeys(moved, self.world.now_ms))
            self.entries.setdefault(group_id, {}).update(dict.fromkeys(moved, entry))


def last_plan(core: Shard, group_id: str) -> int:
    """The generation, or the epoch, of the group's last plan; -1 where there is no group."""
    consumers, classic = core.consumer_groups.get(group_id), core.groups.get(group_id)
    if consumers is not None:
        return consumers.target_epoch
    return classic.generation if classic is not None else -1
