"""The rebalance ledger: cause, culprit, phases, snapshot and moves of each rebalance (house rule 7).

`RebalanceInProgress` gathers while a rebalance runs and may die with the process; what it becomes, a `RebalanceEntry`,
is a record. A partition's time without an owner runs from the moment its owner let go of it (rejoined without it, left,
or was last heard of) until the coordinator answered the new owner's SyncGroup.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from coordinator.core.plan import Plan
from coordinator.core.records import DelayStored
from coordinator.core.types import Cause, Move, Phase, RebalanceEntry, Settlement

MAX_WAITED_FOR = 10
MAX_ALSO = 20

LAST_PHASES = {"assign": "reconcile", "stop": "start"}
"""What follows a plan, by a phase that led to it: KIP-848 groups hand over one by one, central groups start everybody.
Otherwise shares are fetched."""

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Trigger:
    """What set a rebalance off. `culprit` is a member id, or the operator's name for himself."""

    cause: Cause
    detail: str
    culprit: str = ""
    client_id: str = ""
    client_host: str = ""
    client_reason: str = ""


class Client(Protocol):
    """Whoever sent the request, as far as its words are kept."""

    id: str
    client_id: str
    client_host: str
    client_software: str


def described(member: Client) -> str:
    """A member as the ledger's sentences name it."""
    software = f", {member.client_software}" if member.client_software else ""
    where = f"{member.client_id or 'no client id'}{software} at {member.client_host or 'unknown host'}"
    return f"member {member.id} ({where})"


@dataclass(frozen=True, slots=True)
class Departure:
    """Why a member went, and until when it may have worked on its partitions."""

    why: str
    last_owned_ms: int


@dataclass(slots=True)
class RebalanceInProgress:
    """What is known of the rebalance that is under way."""

    number: int
    trigger: Trigger
    previous_generation: int
    started_at_ms: int
    also: list[str] = field(default_factory=list)
    arrivals: dict[str, int] = field(default_factory=dict)
    """member -> when it (re)joined, in order of arrival"""
    released: dict[str, int] = field(default_factory=dict)
    """member -> since when its partitions are without an owner"""
    gone: dict[str, str] = field(default_factory=dict)
    """member -> why it is no longer there"""
    phases: list[Phase] = field(default_factory=list)
    joined_at_ms: int = -1

    def note(self, trigger: Trigger) -> None:
        """A further trigger while the rebalance is already under way."""
        if len(self.also) < MAX_ALSO:
            self.also.append(trigger.detail)

    def arrived(self, member_id: str, now_ms: int) -> None:
        self.arrivals[member_id] = now_ms
        self.released.setdefault(member_id, now_ms)

    def left(self, member_id: str, departure: Departure) -> None:
        self.gone[member_id] = departure.why
        self.released.setdefault(member_id, departure.last_owned_ms)


@dataclass(frozen=True, slots=True)
class Gap:
    """`count` partitions of one new owner, unowned since `since_ms` (None: the old owner still holds them)."""

    target: str
    since_ms: int | None
    count: int
    moved: tuple[TopicPartition, ...] = ()

    def length_ms(self, until_ms: int) -> int:
        return 0 if self.since_ms is None else max(0, until_ms - self.since_ms)


@dataclass(slots=True)
class Settling:
    """Between the plan and the last member's SyncGroup: who has fetched its share, and when."""

    number: int
    decided_at_ms: int
    gaps: tuple[Gap, ...]
    fetched: dict[str, int] = field(default_factory=dict)

    @property
    def late(self) -> list[str]:
        """Those who were given something that they still have to fetch."""
        return sorted({gap.target for gap in self.gaps} - self.fetched.keys())

    def renamed(self, old_id: str, new_id: str) -> None:
        if old_id not in self.fetched:
            self.gaps = tuple(replace(gap, target=new_id) if gap.target == old_id else gap for gap in self.gaps)

    def settlement(self, now_ms: int) -> Settlement:
        """What can be said now; a member that never fetched its share leaves its partitions out."""
        unowned = [
            (topic, partition, gap.length_ms(self.fetched[gap.target]))
            for gap in self.gaps
            if gap.target in self.fetched
            for topic, partition in gap.moved
        ]
        total = sum(gap.length_ms(self.fetched.get(gap.target, now_ms)) * gap.count for gap in self.gaps)
        return Settlement(
            number=self.number,
            settled_at_ms=now_ms,
            waited_for=last_few(self.fetched),
            unowned=tuple(unowned),
            unowned_partition_ms=total,
        )


@dataclass(slots=True)
class Ledger:
    """The kept entries of one group, oldest first. Hard state."""

    entries: dict[int, RebalanceEntry] = field(default_factory=dict)
    settlements: dict[int, Settlement] = field(default_factory=dict)
    delay: DelayStored | None = None

    @property
    def next_number(self) -> int:
        return max(self.entries, default=0) + 1

    @property
    def newest(self) -> RebalanceEntry | None:
        return self.entries[max(self.entries)] if self.entries else None

    def surplus(self, limit: int) -> list[int]:
        """The oldest entries beyond `limit`."""
        return sorted(self.entries)[: max(0, len(self.entries) - limit)]


@dataclass(frozen=True, slots=True)
class Withheld:
    """A partition that a cooperative plan gave to nobody: who had it, and since when it is free.

    `since_ms` is None while its holder had not let go of it.
    """

    holder: str
    since_ms: int | None = None
    gone: str = ""
    """Why its holder is no longer there, when the group waited for it to come back (KIP-415)."""


NEVER_HELD = Withheld("")


@dataclass(frozen=True, slots=True)
class Diff:
    """What a plan changes, and what it withholds for a later round."""

    moves: tuple[Move, ...]
    gaps: tuple[Gap, ...]
    withheld: dict[TopicPartition, Withheld]


@dataclass(frozen=True, slots=True)
class Before:
    """How things stood: the last plan, what members reported to hold, and what an earlier round withheld."""

    plan: Plan
    still_held: Mapping[str, Mapping[str, frozenset[int]]]
    carried: Mapping[TopicPartition, Withheld]
    delayed: bool = False
    """The new plan keeps what lost its owner for it to come back (KIP-415)."""


def difference(before: Before, target: Plan, rebalance: RebalanceInProgress) -> Diff:
    """Compare two plans partition by partition; cells that did not change are only counted."""
    moves: list[Move] = []
    kept: dict[tuple[str, int | None], int] = {}
    moved: dict[tuple[str, int | None], list[TopicPartition]] = {}
    withheld: dict[TopicPartition, Withheld] = {}

    for member, topic, partitions in unchanged_cells(before.plan, target):
        let_go = partitions - before.still_held.get(member, {}).get(topic, frozenset())
        if let_go:
            key = (member, since(member, rebalance))
            kept[key] = kept.get(key, 0) + len(let_go)

    old_owner, new_owner = owners_of_changed_cells(before.plan, target)
    for tp in sorted(old_owner.keys() | new_owner.keys() | before.carried.keys()):
        source, owner = old_owner.get(tp, ""), new_owner.get(tp, "")
        earlier = before.carried.get(tp, NEVER_HELD)
        holder = source or earlier.holder
        still_held = tp[1] in before.still_held.get(holder, {}).get(tp[0], frozenset())
        free_since = None if still_held else free_since_ms(holder, earlier, rebalance)
        if not owner:
            if still_held or (not source and holder in target):
                withheld[tp] = Withheld(holder, free_since)
            elif before.delayed and holder:
                withheld[tp] = Withheld(holder, free_since, rebalance.gone.get(holder, earlier.gone))
            if source:
                why = why_unowned(rebalance.gone.get(source, ""), still_held, not target, before.delayed)
                moves.append(Move(*tp, source, "", -1, why))
            continue
        if source == owner and still_held:
            continue
        if source == owner:
            kept[owner, free_since] = kept.get((owner, free_since), 0) + 1
            continue
        why = (
            "its old owner had not let go"
            if still_held
            else why_moved(earlier, source, owner in before.plan, rebalance)
        )
        moves.append(Move(*tp, holder, owner, -1, why))
        moved.setdefault((owner, free_since), []).append(tp)
    return Diff(tuple(moves), gaps_of(kept, moved), withheld)


def unchanged_cells(before: Plan, target: Plan) -> Iterable[tuple[str, str, frozenset[int]]]:
    for member, topics in before.items():
        for topic, partitions in topics.items():
            if partitions and target.get(member, {}).get(topic) == partitions:
                yield member, topic, frozenset(partitions)


def owners_of_changed_cells(before: Plan, target: Plan) -> tuple[dict[TopicPartition, str], dict[TopicPartition, str]]:
    def owners(plan: Plan, other: Plan) -> dict[TopicPartition, str]:
        return {
            (topic, partition): member
            for member, topics in plan.items()
            for topic, partitions in topics.items()
            if other.get(member, {}).get(topic) != partitions
            for partition in partitions
        }

    return owners(before, target), owners(target, before)


def free_since_ms(holder: str, earlier: Withheld, rebalance: RebalanceInProgress) -> int:
    """A partition that was free already when an earlier round withheld it is free since then."""
    if earlier.since_ms is not None and holder == earlier.holder:
        return earlier.since_ms
    return since(holder, rebalance)


def since(member: str, rebalance: RebalanceInProgress) -> int:
    return rebalance.released.get(member, rebalance.started_at_ms)


def why_unowned(gone: str, still_held: bool, nobody_left: bool, delayed: bool) -> str:
    if still_held and not gone:
        return "withheld until its owner has let go (cooperative)"
    if gone and delayed and not nobody_left:
        return f"{gone}; kept for it to come back while the delay runs"
    reasons = [gone] if gone else []
    return "; ".join([*reasons, "nobody is left to own it" if nobody_left else "the plan gives it to nobody"])


def why_moved(earlier: Withheld, source: str, owner_stayed: bool, rebalance: RebalanceInProgress) -> str:
    holder = source or earlier.holder
    if not holder:
        return "nobody owned it"
    if not source and earlier.gone:
        return f"{earlier.gone}; it was not waited for any longer"
    if holder in rebalance.gone:
        return rebalance.gone[holder]
    if not source:
        return "released in the round before"
    return "balance" if owner_stayed else "balance: its new owner joined"


def gaps_of(
    kept: Mapping[tuple[str, int | None], int], moved: Mapping[tuple[str, int | None], list[TopicPartition]]
) -> tuple[Gap, ...]:
    return tuple(
        Gap(
            target=member,
            since_ms=free_since,
            count=kept.get((member, free_since), 0) + len(moved.get((member, free_since), ())),
            moved=tuple(moved.get((member, free_since), ())),
        )
        for member, free_since in sorted(kept.keys() | moved.keys(), key=lambda key: (key[0], key[1] or 0))
    )


def last_few(members: Iterable[str]) -> tuple[str, ...]:
    """The last arrivals of a phase: those it ended up waiting for."""
    return tuple(members)[-MAX_WAITED_FOR:]


def settled(entry: RebalanceEntry, settlement: Settlement | None) -> RebalanceEntry:
    """The entry with what became known after the plan."""
    if settlement is None:
        return entry
    unowned = {(topic, partition): ms for topic, partition, ms in settlement.unowned}
    last = next((LAST_PHASES[phase.name] for phase in entry.phases if phase.name in LAST_PHASES), "settle")
    return replace(
        entry,
        phases=(*entry.phases, Phase(last, settlement.settled_at_ms - entry.ended_at_ms, settlement.waited_for)),
        moves=tuple(
            replace(move, unowned_ms=unowned.get((move.topic, move.partition), move.unowned_ms)) for move in entry.moves
        ),
        unowned_partition_ms=settlement.unowned_partition_ms,
    )
