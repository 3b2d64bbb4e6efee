"""What another assignor, another member or other lags would do: a dry run on a snapshot, explained.

A snapshot of the ledger is first rid of options that are not the assignor's own, so that it can be asked again.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

from muster.assignors import registry
from muster.assignors.api import Assignment, Assignor, JsonValue, Member, Snapshot
from muster.assignors.data.values import TOLD_BESIDE
from muster.assignors.registry import BUILT_IN, own_name, resolve
from muster.assignors.run import is_ours, run

# What changed between two assignments
# ------------------------------------

Shares: TypeAlias = Mapping[str, Mapping[str, Sequence[int]]]


class OwnerMove(NamedTuple):
    """One partition that changed hands; `source` is None when it had no owner, `target` when it has none."""

    topic: str
    partition: int
    source: str | None
    target: str | None


def list_moves(before: Shares, after: Shares) -> list[OwnerMove]:
    """Partitions whose owner differs, ordered by topic and partition.

    >>> list_moves({"a": {"t": [0, 1]}}, {"a": {"t": [0]}, "b": {"t": [1]}})
    [OwnerMove(topic='t', partition=1, source='a', target='b')]
    """
    was, now = owner_of(before), owner_of(after)
    return [
        OwnerMove(topic, partition, was.get((topic, partition)), now.get((topic, partition)))
        for topic, partition in sorted(was.keys() | now.keys())
        if was.get((topic, partition)) != now.get((topic, partition))
    ]


def owner_of(shares: Shares) -> dict[tuple[str, int], str]:
    """{(topic, partition): member}."""
    return {
        (topic, partition): member
        for member, share in shares.items()
        for topic, partitions in share.items()
        for partition in partitions
    }


# A recorded question, asked again
# --------------------------------


def restore_question(snapshot: Snapshot, assignor: Assignor) -> Snapshot:
    """The snapshot without options that are none of this assignor's: those that only the ledger was told, and, where
    another one had been asked, options of that one. What nobody has stays: it may be a slip of somebody's pen.
    """
    other = options_understood(snapshot.assignor) if is_another(snapshot.assignor, assignor) else ()
    mine = frozenset(getattr(assignor, "options", ()))
    options = {
        name: value
        for name, value in snapshot.options.items()
        if name not in TOLD_BESIDE and (name in mine or (other is not None and name not in other))
    }
    return snapshot if len(options) == len(snapshot.options) else replace(snapshot, options=options)


def is_another(word: str, assignor: Assignor) -> bool:
    """Only built-in assignors refuse options that they do not know."""
    return bool(word) and is_ours(assignor) and own_name(word) != assignor.name


def options_understood(word: str) -> Collection[str] | None:
    """The options of the assignor that had been asked; None: of a plugin, which may have any."""
    name = own_name(word)
    return frozenset(getattr(resolve(name), "options", ())) if name in BUILT_IN else None


# The forecast
# ------------


@dataclass(frozen=True, slots=True)
class SnapshotChange:
    """What is different from the snapshot. New members subscribe to everything that is subscribed to."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    lags: Mapping[str, Sequence[int]] | None = None
    topics: Mapping[str, int] | None = None  # new partition counts
    options: Mapping[str, JsonValue] | None = None


@dataclass(frozen=True, slots=True)
class MemberForecast:
    """One member, before and after."""

    id: str
    partitions_before: int
    partitions_after: int
    lag_before: int
    lag_after: int


@dataclass(frozen=True, slots=True)
class ExplainedMove:
    topic: str
    partition: int
    source: str | None
    target: str | None
    why: str


@dataclass(frozen=True, slots=True)
class LoadSpread:
    """How even the loads are: fewest and most, and their standard deviation."""

    least: int
    most: int
    deviation: float

    @classmethod
    def of(cls, loads: Iterable[int]) -> LoadSpread:
        listed = list(loads) or [0]
        return cls(min(listed), max(listed), round(statistics.pstdev(listed), 3))


@dataclass(frozen=True, slots=True)
class ForecastBounds:
    """What must not be exceeded; None is no bound."""

    max_moves: int | None = None
    max_spread: int | None = None  # most partitions of a member minus fewest
    max_lag_share: float | None = None  # the heaviest member's lag, as a multiple of the mean


@dataclass(frozen=True, slots=True)
class Forecast:
    """What one assignor would decide."""

    assignor: str
    members: tuple[MemberForecast, ...]
    moves: tuple[ExplainedMove, ...]
    partitions: tuple[LoadSpread, LoadSpread]  # before, after
    lag: tuple[LoadSpread, LoadSpread]
    withheld: int  # partitions that a cooperative hand-over gives out in its second round
    unassigned: int
    note: str = ""
    assignment: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; the field names are those of the dataclasses, `before` and `after` named."""
        return {
            "assignor": self.assignor,
            "moves": [asdict(move) for move in self.moves],
            "members": [asdict(member) for member in self.members],
            "partitions": {"before": asdict(self.partitions[0]), "after": asdict(self.partitions[1])},
            "lag": {"before": asdict(self.lag[0]), "after": asdict(self.lag[1])},
            "withheld": self.withheld,
            "unassigned": self.unassigned,
            "note": self.note,
            "assignment": {
                member: {topic: list(partitions) for topic, partitions in share.items()}
                for member, share in self.assignment.items()
            },
        }

    def breaches(self, bounds: ForecastBounds) -> list[str]:
        """One sentence for each bound that is broken; empty when all hold."""
        broken: list[str] = []
        if bounds.max_moves is not None and len(self.moves) > bounds.max_moves:
            broken.append(f"{self.assignor}: {len(self.moves)} moves, at most {bounds.max_moves} allowed")
        spread = self.partitions[1].most - self.partitions[1].least
        if bounds.max_spread is not None and spread > bounds.max_spread:
            broken.append(f"{self.assignor}: spread of {spread} partitions, at most {bounds.max_spread} allowed")
        total = sum(member.lag_after for member in self.members)
        if bounds.max_lag_share is not None and total:
            share = self.lag[1].most * len(self.members) / total
            if share > bounds.max_lag_share:
                broken.append(
                    f"{self.assignor}: the heaviest member has {share:.2f} times the mean lag, "
                    f"at most {bounds.max_lag_share} allowed"
                )
        return broken


Decide: TypeAlias = Callable[[Assignor, Snapshot, bool], Assignment]
"""Asks an assignor for a plan; the last argument says whether to hold back what is to be let go of first, as `run`."""


def what_if(
    snapshot: Snapshot, assignor: Assignor | str = "", change: SnapshotChange | None = None, decide: Decide = run
) -> Forecast:
    """The decision of `assignor` (the snapshot's own when empty) on the changed snapshot.

    Raises AssignorError (also UnknownAssignor) and, for a change that cannot be, ValueError.
    """
    word = assignor or snapshot.assignor
    if word == "":
        raise ValueError("the snapshot names no assignor; name one of: " + ", ".join(registry.known()))
    chosen = registry.resolve(word) if isinstance(word, str) else word
    future = apply_change(restore_question(snapshot, chosen), change or SnapshotChange())
    target = decide(chosen, future, False)
    after = target.to_dict()
    before = owned_now(snapshot)
    steps = tuple(_explained(move, snapshot, future, before, after) for move in list_moves(before, after))
    cooperative = chosen.protocol.value == "cooperative"
    return Forecast(
        assignor=chosen.name,
        members=tuple(_members(future, before, after, snapshot.lags or {}, future.lags or {})),
        moves=steps,
        partitions=(_balance(before), _balance(after)),
        lag=(_lag_balance(before, snapshot.lags or {}), _lag_balance(after, future.lags or {})),
        withheld=len(decide(chosen, future, True).withheld) if cooperative else 0,
        unassigned=len(target.unassigned),
        note=target.note,
        assignment=after,
    )


def compare(
    snapshot: Snapshot, words: str | Iterable[str], change: SnapshotChange | None = None, decide: Decide = run
) -> list[Forecast]:
    """The same question to several assignors."""
    return [what_if(snapshot, assignor, change, decide) for assignor in registry.resolve_all(words)]


def apply_change(snapshot: Snapshot, change: SnapshotChange) -> Snapshot:
    """The snapshot with the change made; ValueError when it names members that are, or are not, there."""
    present = {member.id for member in snapshot.members}
    for member in change.remove:
        if member not in present:
            raise ValueError(f"{member!r} cannot leave: the members are {', '.join(sorted(present)) or 'none'}")
    for member in change.add:
        if member in present:
            raise ValueError(f"{member!r} cannot join: it is a member already; choose another id")
    stay = [member for member in snapshot.members if member.id not in change.remove]
    wanted = tuple(dict.fromkeys(topic for member in snapshot.members for topic in member.topics))
    return replace(
        snapshot,
        members=[*stay, *(Member(word, wanted) for word in change.add)],
        topics=snapshot.topics if change.topics is None else {**snapshot.topics, **change.topics},
        lags=snapshot.lags if change.lags is None else {**(snapshot.lags or {}), **change.lags},
        options=snapshot.options if change.options is None else {**snapshot.options, **change.options},
    )


def owned_now(snapshot: Snapshot) -> dict[str, dict[str, list[int]]]:
    """The rightful owners as an assignment."""
    owned: dict[str, dict[str, list[int]]] = {member.id: {} for member in snapshot.members}
    for (topic, partition), member in snapshot.owners().items():
        owned[member].setdefault(topic, []).append(partition)
    return owned


def forecast_table(forecasts: Sequence[Forecast]) -> list[dict[str, str]]:
    """One row per forecast, for people: the columns of `muster simulate --compare`."""
    return [
        {
            "ASSIGNOR": forecast.assignor,
            "MOVES": str(len(forecast.moves)),
            "PARTITIONS": f"{forecast.partitions[1].least}-{forecast.partitions[1].most}",
            "WAS": f"{forecast.partitions[0].least}-{forecast.partitions[0].most}",
            "LAG": f"{forecast.lag[1].least}-{forecast.lag[1].most}",
            "LAG-WAS": f"{forecast.lag[0].least}-{forecast.lag[0].most}",
            "WITHHELD": str(forecast.withheld),
            "NOTE": forecast.note,
        }
        for forecast in forecasts
    ]


_Shares = Mapping[str, Mapping[str, Sequence[int]]]
_Lags = Mapping[str, Sequence[int]]


def _members(
    future: Snapshot, before: _Shares, after: _Shares, lags_before: _Lags, lags_after: _Lags
) -> list[MemberForecast]:
    return [
        MemberForecast(
            id=member,
            partitions_before=_count(before.get(member, {})),
            partitions_after=_count(after.get(member, {})),
            lag_before=_lag(before.get(member, {}), lags_before),
            lag_after=_lag(after.get(member, {}), lags_after),
        )
        for member in sorted({*before, *(member.id for member in future.members)})
    ]


def _explained(move: OwnerMove, past: Snapshot, future: Snapshot, before: _Shares, after: _Shares) -> ExplainedMove:
    return ExplainedMove(*move, why=_why(move, past, future, before, after))


def _why(move: OwnerMove, past: Snapshot, future: Snapshot, before: _Shares, after: _Shares) -> str:
    reads = {member.id: member.topics for member in future.members}
    if move.target is None:
        return "nobody may take it" if move.topic in _all_topics(reads) else f"nobody subscribes to {move.topic}"
    if move.source is None:
        claimants = sorted(m.id for m in past.members if move.partition in (m.owned or {}).get(move.topic, ()))
        return f"claims of {' and '.join(claimants)} disagree" if claimants else "nobody owned it"
    if move.source not in reads:
        return f"{move.source} is gone"
    if move.topic not in reads[move.source]:
        return f"{move.source} no longer subscribes to {move.topic}"
    had, has = (_count(shares.get(move.source, {})) for shares in (before, after))
    took, takes = (_count(shares.get(move.target, {})) for shares in (before, after))
    if has < had and takes > took:
        return f"evens out: {move.source} had {had} and has {has}, {move.target} had {took} and has {takes}"
    lags = future.lags or {}
    if lags:
        was = _lag(before.get(move.source, {}), lags)
        left = _lag(after.get(move.source, {}), lags)
        if left < was:
            return f"takes lag off {move.source}: {was} before, {left} after"
    return "placed by rule: this assignor did not keep it with its owner"


def _all_topics(reads: Mapping[str, Sequence[str]]) -> set[str]:
    return {topic for topics in reads.values() for topic in topics}


def _count(share: Mapping[str, Sequence[int]]) -> int:
    return sum(len(partitions) for partitions in share.values())


def _lag(share: Mapping[str, Sequence[int]], lags: _Lags) -> int:
    return sum(
        max(0, int(lags[topic][partition]))
        for topic, partitions in share.items()
        if topic in lags
        for partition in partitions
        if partition < len(lags[topic])
    )


def _balance(shares: _Shares) -> LoadSpread:
    return LoadSpread.of(_count(share) for share in shares.values())


def _lag_balance(shares: _Shares, lags: _Lags) -> LoadSpread:
    return LoadSpread.of(_lag(share, lags) for share in shares.values())
