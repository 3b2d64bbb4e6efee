"""The assignment map: who owns what. Small groups show every partition as a cell, large ones bundle them by colour."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from muster.coordinator.observability.views.formatting import listed, plural, spans
from muster.coordinator.observability.views.member_names import Names
from muster.coordinator.rpc.v1.ledger_pb2 import Rebalance
from muster.coordinator.web.pages.pictures import PartitionCell, draw_bar, draw_strips, lag_class, legend, rate_class

MOST_CELLS: Final = 600
MOST_ROWS: Final = 80
"""Beyond these a cell apiece is more than one can look at, and than a page should weigh."""
MOST_NAMED: Final = 40
"""Partitions that a line names; it counts the others."""
UNOWNED = "unowned"

Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class PartitionOwnership:
    """A partition of the group: who owns it (empty: nobody), how far it is behind, how much is read of it a second."""

    topic: str
    partition: int
    owner: str
    lag: int | None = None
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class TopicCells:
    topic: str
    picture: Markup


@dataclass(frozen=True, slots=True)
class MapRow:
    member_id: str
    name: str
    count: int
    lag: int | None
    topics: tuple[TopicCells, ...]
    bundle: Markup
    gained: str
    """What the last rebalance brought it, in words; empty when nothing."""
    lost: str


@dataclass(frozen=True, slots=True)
class AssignmentMap:
    rows: tuple[MapRow, ...]
    unowned: MapRow | None
    idle: bool
    """No member is there: that nobody owns its partitions is no trouble."""
    bundled: bool
    by: str
    legend: tuple[tuple[str, str], ...]
    summary: str
    rebalance: int
    """The number of the last rebalance whose moves are marked; 0 when there is none."""


class LatestMoves:
    """What the last rebalance that moved something did, looked up by place."""

    def __init__(self, entry: Rebalance | None) -> None:
        moves = entry.moves if entry else ()
        self.number = entry.number if entry else 0
        self.source: dict[Place, str] = {(move.topic, move.partition): move.source for move in moves if move.target}
        self.gone: dict[str, list[tuple[Place, str]]] = defaultdict(list)
        self.came: dict[str, Counter[str]] = defaultdict(Counter)
        for move in moves:
            if move.source:
                self.gone[move.source].append(((move.topic, move.partition), move.target))
            if move.target:
                self.came[move.target][move.source] += 1


def assignment_map(
    holdings: Sequence[PartitionOwnership],
    members: Sequence[str],
    names: Names,
    last: Rebalance | None,
    by: str = "lag",
) -> AssignmentMap:
    """`members` also those who own nothing; `by` is lag or rate, what the colours stand for."""
    owned: dict[str, list[PartitionOwnership]] = {
        member: [] for member in sorted(members, key=lambda each: names[each])
    }
    nobody: list[PartitionOwnership] = []
    for holding in holdings:
        owned.get(holding.owner, nobody).append(holding)
    bundled = len(holdings) > MOST_CELLS or len(owned) > MOST_ROWS
    moves = LatestMoves(last)
    most = max((len(each) for each in (*owned.values(), nobody)), default=1)
    drawn = [make_map_row(member, each, names, moves, by, most if bundled else 0) for member, each in owned.items()]
    if bundled:
        drawn.sort(key=lambda row: (-(row.lag or 0), row.name))
    return AssignmentMap(
        rows=tuple(drawn),
        unowned=make_map_row("", nobody, names, moves, by, most if bundled else 0, calm=not owned) if nobody else None,
        idle=not owned,
        bundled=bundled,
        by=by,
        legend=tuple(legend(by)),
        summary=summarize_map(owned, nobody),
        rebalance=moves.number,
    )


def make_map_row(
    member: str,
    held: Sequence[PartitionOwnership],
    names: Names,
    moves: LatestMoves,
    by: str,
    most: int,
    *,
    calm: bool = False,
) -> MapRow:
    """`most` partitions fill the width of a bundled row; 0 draws cells. `calm`: unowned ones are coloured as others."""
    loud = not (member or calm)
    lags = [each.lag for each in held if each.lag is not None]
    gone = moves.gone.get(member, []) if member else []
    came = moves.came.get(member, Counter())
    return MapRow(
        member_id=member,
        name=names[member] if member else "no member" if calm else "nobody",
        count=len(held),
        lag=sum(lags) if lags else None,
        topics=() if most else topic_cells(member, held, names, moves, UNOWNED if loud else by),
        bundle=bundle_cells(held, by, most, UNOWNED if loud else "") if most else Markup(""),
        gained=describe_gained(came, names, short=bool(most)),
        lost=describe_lost(gone, names, short=bool(most)),
    )


def describe_gained(came: Counter[str], names: Names, *, short: bool) -> str:
    if not came:
        return ""
    count, sources = sum(came.values()), [names[source] for source in sorted(came) if source]
    if short:
        return f"+{count:,}"
    return f"took {count:,} from {listed(sources)}" if sources else f"took {count:,} that nobody had"


def describe_lost(gone: Sequence[tuple[Place, str]], names: Names, *, short: bool) -> str:
    if not gone:
        return ""
    if short:
        return f"−{len(gone):,}"
    targets = [names[target] for target in sorted({target for _, target in gone}) if target]
    return f"gave {len(gone):,} to {listed(targets)}" if targets else f"lost {len(gone):,}"


def colour_of(holding: PartitionOwnership, by: str) -> str:
    return rate_class(holding.rate) if by == "rate" else lag_class(holding.lag)


def topic_cells(
    member: str, held: Sequence[PartitionOwnership], names: Names, moves: LatestMoves, by: str
) -> tuple[TopicCells, ...]:
    """A strip of cells for each topic; what the last rebalance took away stands behind, as an outline."""
    by_topic: dict[str, list[PartitionCell]] = defaultdict(list)
    for each in sorted(held, key=lambda each: (each.topic, each.partition)):
        by_topic[each.topic].append(cell_of(each, names, moves, by))
    for (topic, partition), target in sorted(moves.gone.get(member, ()) if member else ()):
        there = names[target] if target else "nobody"
        label = f"{topic} {partition}: went to {there} in rebalance {moves.number}"
        by_topic[topic].append(PartitionCell(partition, "", label, gone=True))
    whose = names[member] if member else "nobody"
    return tuple(
        TopicCells(topic, draw_strips(cells, f"{topic} of {whose}: partitions")) for topic, cells in by_topic.items()
    )


def cell_of(holding: PartitionOwnership, names: Names, moves: LatestMoves, by: str) -> PartitionCell:
    place = (holding.topic, holding.partition)
    label = f"{holding.topic} {holding.partition}: " + (
        "lag unknown" if holding.lag is None else f"lag {holding.lag:,}"
    )
    if holding.rate is not None:
        label += f", {holding.rate:,.1f} records/s"
    if by == UNOWNED:
        return PartitionCell(holding.partition, UNOWNED, label + ", nobody owns it")
    if place in moves.source:
        source = moves.source[place]
        label += f", came from {names[source] if source else 'nobody'} in rebalance {moves.number}"
    return PartitionCell(holding.partition, colour_of(holding, by), label, moved=place in moves.source)


def bundle_cells(held: Sequence[PartitionOwnership], by: str, most: int, colour: str = "") -> Markup:
    counts = Counter(colour or colour_of(each, by) for each in held)
    return draw_bar(sorted(counts.items()), most)


def summarize_map(owned: Mapping[str, Sequence[PartitionOwnership]], nobody: Sequence[PartitionOwnership]) -> str:
    """Everything in a sentence, for who has ten seconds or no eyes."""
    count = len(nobody) + sum(map(len, owned.values()))
    topics = {each.topic for held in (*owned.values(), nobody) for each in held}
    if not count:
        return "This group owns no partition."
    said = f"{plural(count, 'partition')} of {plural(len(topics), 'topic')}, {plural(len(owned), 'member')}"
    shares = [len(held) for held in owned.values()]
    if shares:
        each = f"{min(shares):,}" if min(shares) == max(shares) else f"{min(shares):,} to {max(shares):,}"
        said += f" with {each}" + (" each" if len(shares) > 1 else "")
    idle = shares.count(0)
    if idle:
        said += f"; {idle:,} of them idle"
    return said + "."


def unowned_words(nobody: Sequence[PartitionOwnership]) -> str:
    """Which these are, by topic; the first of them by number."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for each in nobody[:MOST_NAMED]:
        by_topic[each.topic].append(each.partition)
    named = ", ".join(f"{topic}[{spans(numbers)}]" for topic, numbers in sorted(by_topic.items()))
    return named + (f" and {len(nobody) - MOST_NAMED:,} more" if len(nobody) > MOST_NAMED else "")
