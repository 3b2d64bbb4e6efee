"""Audit entries: what operators do to a group besides rebalancing it, as its ledger keeps it.

An entry for each change of positions and for the deletion of a group, with the operator, and the positions before and
after. A group's history goes with it; the entry of its deletion stays as long as positions would. Positions in an
entry, such entries of a group, and deleted groups of a shard are bounded.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from muster.coordinator.core.groups.bookkeeping import audit_entry, keep_entry
from muster.coordinator.core.groups.group import ZOOKEEPER
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.events import DeleteGroup, OffsetCommit
from muster.coordinator.core.model.ledger import GroupLedger, LostPositions
from muster.coordinator.core.model.records import RebalanceForgotten
from muster.coordinator.core.model.types import Outcome, PositionChange, RebalanceEntry, StoredOffset

MAX_POSITIONS = 200
"""Positions that an entry tells before and after; of others it has the number."""

MAX_ENTRIES = 20
"""Of a group's changes of positions: they must not push its rebalances out of the ledger."""

MAX_FAREWELLS = 100
"""Deleted groups of a shard of which it is told who deleted them."""

TOGETHER_MS = 60_000
"""What the same operator does within this time of what he did last is told in one entry, if nothing came between:
tools send a request for each topic, and doors cut long ones into slices."""

Positions = Mapping[tuple[str, int], StoredOffset]


def note_operator_commit(request: OffsetCommit, kept: Positions, step: Step) -> None:
    """Called before `kept` counts: who is no member commits it.

    On the wire an operator's tool is like a consumer that assigns partitions to itself and commits all the time. It is
    taken for a tool if it says so, or if members have shared the group: no such consumer has business there.
    """
    if not request.by_tool and not is_shared_here(request.group_id, step):
        return
    changes = list(changes_of(request.group_id, kept, step))
    note_positions_changed(request.group_id, changes, request.operator, step)


class OperatorChanges:
    """As `note_operator_commit`, of a commit of very many positions: one entry, once all of it is known."""

    def __init__(self, request: OffsetCommit, step: Step) -> None:
        told = bool(request.operator) and (request.by_tool or is_shared_here(request.group_id, step))
        self._request = request if told else None
        ledger = step.state.ledgers.get(request.group_id)
        last = last_operator_entry(ledger, request.operator, step)
        self._known = {(change.topic, change.partition) for change in last.positions} if last else set()
        self._changes: list[PositionChange] = []
        self._more = 0

    def note(self, kept: Positions, step: Step) -> None:
        """Called before these count."""
        if self._request is None:
            return
        for change in changes_of(self._request.group_id, kept, step):
            if len(self._changes) < MAX_POSITIONS or (change.topic, change.partition) in self._known:
                self._changes.append(change)
            else:
                self._more += 1

    def tell(self, step: Step) -> None:
        if self._request is not None:
            group_id, operator = self._request.group_id, self._request.operator
            note_positions_changed(group_id, self._changes, operator, step, self._more)


def changes_of(group_id: str, kept: Positions, step: Step) -> Iterator[PositionChange]:
    """What positions change that are about to count."""
    stored = step.state.offsets.get(group_id, {})
    for place, position in kept.items():
        before = stored[place].offset if place in stored else None
        if before != position.offset:
            yield PositionChange(*place, before, position.offset)


def is_shared_here(group_id: str, step: Step) -> bool:
    """Whether members have shared the group whom the shard knows. Those who meet in ZooKeeper commit without a name
    (offsets.storage=kafka); as long as they may be there, it is they."""
    ledger = step.state.ledgers.get(group_id)
    newest = None if ledger is None else ledger.newest
    if newest is None or newest.protocol_type != ZOOKEEPER:
        return newest is not None
    observed = step.state.observed(group_id)
    return observed is not None and not observed.members


def note_positions_changed(
    group_id: str, changes: Sequence[PositionChange], operator: str, step: Step, more: int = 0
) -> None:
    """Keep an entry for them and for so many more, or tell them in that of a moment ago."""
    if not changes or not operator:
        return
    ledger = step.state.ledgers.get(group_id)
    entry = last_operator_entry(ledger, operator, step) or audit_entry(
        group_id, Outcome.POSITIONS_CHANGED, operator, "", step
    )
    keep_entry(group_id, with_changes(entry, changes, step.now_ms, more), step)
    for number in surplus_entries(step.state.ledgers[group_id]):
        step.keep(RebalanceForgotten(group_id, number))


def last_operator_entry(ledger: GroupLedger | None, operator: str, step: Step) -> RebalanceEntry | None:
    """The entry that tells what this operator did a moment ago, if it is the last of all."""
    last = ledger.last if ledger else None
    if last is None or last.outcome is not Outcome.POSITIONS_CHANGED or last.culprit != operator:
        return None
    return last if 0 <= step.now_ms - last.ended_at_ms < TOGETHER_MS else None


def with_changes(
    entry: RebalanceEntry, changes: Sequence[PositionChange], now_ms: int, more: int = 0
) -> RebalanceEntry:
    """With these changes and so many more. A position that is told already keeps what it was before."""
    told = {(change.topic, change.partition): change for change in entry.positions}
    more += entry.more_positions
    for change in changes:
        place = change.topic, change.partition
        if place in told:
            told[place] = replace(change, before=told[place].before)
        elif len(told) < MAX_POSITIONS:
            told[place] = change
        else:
            more += 1
    what = {"deleted" if change.after is None else "set" for change in told.values()}
    detail = f"{entry.culprit} {' and '.join(sorted(what, reverse=True))} {count_positions(len(told) + more)}"
    return replace(entry, positions=tuple(told.values()), more_positions=more, detail=detail, ended_at_ms=now_ms)


def count_positions(positions: int) -> str:
    """
    >>> count_positions(1), count_positions(12)
    ('1 position', '12 positions')
    """
    return f"{positions} position" if positions == 1 else f"{positions} positions"


def surplus_entries(ledger: GroupLedger) -> list[int]:
    """The oldest entries of changed positions, beyond as many as may be."""
    numbers = sorted(n for n, entry in ledger.entries.items() if entry.outcome is Outcome.POSITIONS_CHANGED)
    return numbers[:-MAX_ENTRIES]


def lost_positions(stored: Positions) -> LostPositions:
    """All positions of a group that goes."""
    told = [PositionChange(*place, position.offset, None) for place, position in islice(stored.items(), MAX_POSITIONS)]
    return LostPositions(tuple(told), len(stored) - len(told))


def farewell_entry(event: DeleteGroup, step: Step) -> RebalanceEntry | None:
    """What will be told of the group if it may be deleted: to be made while it is there. Its number goes on from those
    of the entries that go with it, so that no address of an entry ever means another.
    """
    lost = step.state.going.pop(event.group_id, None) or lost_positions(step.state.offsets.get(event.group_id, {}))
    if not event.operator:
        return None
    ledger = step.state.ledgers.get(event.group_id)
    entries = len(ledger.entries) if ledger else 0
    told = f"{entries} {'entry' if entries == 1 else 'entries'} of its ledger"
    had = f"{count_positions(len(lost.positions) + lost.more)} and {told}"
    detail = f"{event.operator} deleted the group, with {had}"
    entry = audit_entry(event.group_id, Outcome.GROUP_DELETED, event.operator, detail, step)
    return replace(entry, positions=lost.positions, more_positions=lost.more)


def keep_farewell(group_id: str, entry: RebalanceEntry | None, step: Step) -> None:
    """The group is gone: its ledger begins anew with the entry that says so. Of too many such the oldest go."""
    if entry is None:
        return
    keep_entry(group_id, entry, step)
    farewells = step.state.farewells
    while len(farewells) > MAX_FAREWELLS:
        oldest = next(iter(farewells))
        step.keep(RebalanceForgotten(oldest, farewells[oldest]))
