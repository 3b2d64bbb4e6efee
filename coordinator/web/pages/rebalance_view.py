"""A rebalance as the page shows it: in a sentence, in a list, on the line of time, and whole at its address.

Its address is permanent. Its sentences are those of `views.sentences`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from muster.coordinator.observability.views.formatting import bounded, duration, partition_seconds, plural, spans
from muster.coordinator.observability.views.incidents import GroupIncident
from muster.coordinator.observability.views.ledger import (
    certainty_word,
    generation_words,
    is_rebalance,
    is_watched,
    surely_unowned_seconds,
    took_ms,
    took_words,
    unowned_words,
)
from muster.coordinator.observability.views.member_names import Names
from muster.coordinator.observability.views.sentences import (
    CHANGE,
    OPERATOR,
    TROUBLE,
    cause_kind,
    cause_name,
    cause_word,
    describe_certainty,
    describe_incarnation,
    describe_late_fetch,
    describe_phase_wait,
    describe_topic_change,
    describe_waits,
    longest_wait,
    outcome_name,
    sentence,
)
from muster.coordinator.rpc.v1.ledger_pb2 import (
    NodeStall,
    PartitionMove,
    PositionChange,
    Rebalance,
    RebalancePhase,
)
from muster.coordinator.web.http.guard import segment_of
from muster.coordinator.web.pages.pictures import TimelineMark, draw_phases, draw_timeline

# The view
# --------

MOST_LINES: Final = 12
"""Lines of moves in a list; the rebalance's own page has more."""

PHASE_KINDS: Final = {
    "initial delay": ("p0", "gave members time to join together"),
    "join": ("p1", "waited for members to join"),
    "claim": ("p1", "waited for members to claim"),
    "stop": ("p1", "waited for members to stop"),
    "plan": ("p2", "waited for the plan"),
    "assign": ("p2", "made the plan"),
    "settle": ("p3", "waited until everybody had fetched a share"),
    "reconcile": ("p3", "handed over"),
    "start": ("p3", "waited for members to start"),
}


@dataclass(frozen=True, slots=True)
class PhaseView:
    kind: str
    name: str
    took: str
    what: str
    waited_for: str


@dataclass(frozen=True, slots=True)
class MoveLine:
    """Partitions of one topic that went the same way for the same reason."""

    topic: str
    partitions: str
    count: int
    source: str
    target: str
    unowned: str
    why: str


@dataclass(frozen=True, slots=True)
class PositionLine:
    """What an operator did to one position."""

    place: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class RebalanceView:
    group: str
    number: int
    href: str
    generations: str
    started_ms: int
    took: str
    cause: str
    cause_word: str
    kind: str
    sentence: str
    culprit: str
    culprit_id: str
    culprit_host: str
    detail: str
    said: str
    also: tuple[str, ...]
    outcome: str
    assignor: str
    phases: tuple[PhaseView, ...]
    picture: Markup
    waited_for: str
    """Who was waited for longest; empty when nobody was."""
    waited: str
    """And how long, and how that ended."""
    waits_known: bool
    """An older version did not record for whom it waited."""
    certainty: str
    """How the cause is known: inferred, with its evidence, or unknown; empty where it is recorded."""
    certainty_word: str
    topics: tuple[tuple[str, int, str], ...]
    """What happened to topics: in words, when (epoch milliseconds), and by whom."""
    back: tuple[str, ...]
    """Who came back under a new id."""
    late: tuple[str, ...]
    """What was still fetched by members that had gone."""
    moved: int
    unowned: str
    left: int
    """Partitions that it left without an owner: their seconds go on, and are in no figure."""
    moves: tuple[MoveLine, ...]
    more_moves: int
    word: str
    """Rebalance, or entry: of what an operator did beside."""
    positions: tuple[PositionLine, ...]
    more_positions: int


def rebalance_address(group: str, number: int) -> str:
    """Where this rebalance stays.

    >>> rebalance_address("a/b ?", 3)
    '/groups/a%2Fb%20%3F/rebalances/3'
    """
    return f"/groups/{segment_of(group)}/rebalances/{number}"


def rebalance_view(entry: Rebalance, names: Names, longest_ms: int, most_lines: int = MOST_LINES) -> RebalanceView:
    cause = cause_name(entry)
    lines, more = move_lines(entry.moves, names, most_lines, "not known" if is_watched(entry) else STILL_UNOWNED)
    phase_views = tuple(phase_view(phase, names) for phase in entry.phases)
    bars = [
        (view.kind, phase.duration_ms, f"{view.name} {view.took}")
        for view, phase in zip(phase_views, entry.phases, strict=True)
    ]
    detail = names.in_text(entry.detail)
    waited_for, waited = waited_longest(entry, names)
    return RebalanceView(
        group=entry.group_id,
        number=entry.number,
        href=rebalance_address(entry.group_id, entry.number),
        generations=generation_words(entry, "to"),
        started_ms=entry.started_at_ms,
        took=took_words(entry),
        cause=cause,
        cause_word=cause_word(cause),
        kind=cause_kind(cause),
        sentence=sentence(entry, names),
        culprit=names[entry.culprit],
        culprit_id=entry.culprit,
        culprit_host=entry.culprit_client_host,
        detail=detail,
        said=entry.client_reason if entry.client_reason not in entry.detail else "",
        also=tuple(map(names.in_text, entry.also)),
        outcome=outcome_name(entry).lower().replace("_", " "),
        assignor=entry.protocol_name,
        phases=phase_views,
        picture=draw_phases(bars, max(longest_ms, took_ms(entry))),
        waited_for=waited_for,
        waited=waited,
        waits_known=not is_watched(entry)
        and (bool(entry.certainty or waited_for) or not any(phase.waited_for for phase in entry.phases)),
        certainty=describe_certainty(entry, names),
        certainty_word=certainty_word(entry) or "",
        topics=tuple((describe_topic_change(each), each.at_ms, each.by) for each in entry.topics),
        back=tuple(describe_incarnation(each, names) for each in entry.incarnations),
        late=tuple(describe_late_fetch(each, names) for each in entry.late_fetches),
        moved=len(entry.moves),
        unowned=bounded(surely_unowned_seconds(entry), entry.unowned_partition_seconds, partition_seconds),
        left=sum(bool(move.source) and not move.target for move in entry.moves),
        moves=lines,
        more_moves=more,
        word="rebalance" if is_rebalance(entry) else "entry",
        positions=tuple(map(position_line, entry.positions[:most_lines])),
        more_positions=max(0, len(entry.positions) - most_lines) + entry.more_positions,
    )


def position_line(change: PositionChange) -> PositionLine:
    before = f"{change.before:,}" if change.HasField("before") else "nothing"
    after = f"{change.after:,}" if change.HasField("after") else "nothing"
    return PositionLine(f"{change.topic}-{change.partition}", before, after)


def phase_view(phase: RebalancePhase, names: Names) -> PhaseView:
    kind, what = PHASE_KINDS.get(phase.name, ("p2", phase.name))
    return PhaseView(kind, phase.name, duration(phase.duration_ms), what, describe_phase_wait(phase, names))


def waited_longest(entry: Rebalance, names: Names) -> tuple[str, str]:
    """Who was waited for longest, and how long and how that ended; both empty where nobody was.

    Entries of older versions name who came last, however early that was: of them nothing is said.
    """
    wait = longest_wait(entry)
    if wait is None:
        return "", ""
    name = names[wait.member_id]
    return name, describe_waits([wait], names).removeprefix("waited ").replace(f" for {name}", "", 1)


STILL_UNOWNED: Final = "still unowned"


def move_lines(
    moves: Sequence[PartitionMove], names: Names, most: int, untold: str = STILL_UNOWNED
) -> tuple[tuple[MoveLine, ...], int]:
    """What went the same way, together; those with most partitions first, and how many lines are left out. untold: of
    partitions whose time without an owner nobody has told."""
    grouped: dict[tuple[str, str, str, str], list[PartitionMove]] = defaultdict(list)
    for move in moves:
        grouped[move.topic, move.source, move.target, move.why].append(move)
    ordered = sorted(grouped.items(), key=lambda item: (-len(item[1]), item[0]))
    lines = tuple(
        MoveLine(
            topic, spans(move.partition for move in same), len(same), names[source], names[target],
            (unowned_words(same) or untold) if target else STILL_UNOWNED, names.in_text(why),
        )
        for (topic, source, target, why), same in ordered[:most]
    )  # fmt: skip
    return lines, max(0, len(ordered) - most)


# Incidents
# ---------

INCIDENT_COLOURS: Final = {
    **dict.fromkeys(("crash_loop", "storm", "stop", "node_stall", "failover", "instance_id_shared"), TROUBLE),
    "operator": OPERATOR,
}


@dataclass(frozen=True, slots=True)
class IncidentView:
    """What belongs together, with its rebalances newest first; `more` are those of which the page has no more than the
    address."""

    kind: str
    colour: str
    sentence: str
    from_ms: int
    lasted: str
    certainty: str
    figures: str
    rebalances: tuple[RebalanceView, ...]
    more: tuple[tuple[int, str], ...]


def incident_view(incident: GroupIncident, group: str, known: Mapping[int, RebalanceView]) -> IncidentView:
    """`known`: the rebalances that the page shows, by number."""
    newest_first = incident.entries[::-1]
    overtaken = f" ({incident.superseded} overtaken)" if incident.superseded else ""
    least, most = incident.unowned_at_least_partition_seconds, incident.unowned_partition_seconds
    cost = bounded(least, most, partition_seconds)
    figures = (
        f"{plural(incident.rebalances, 'rebalance')}{overtaken}, {plural(incident.moved, 'partition')} moved, "
        f"{cost} partition-seconds without an owner"
    )
    return IncidentView(
        kind=incident.kind.replace("_", " "),
        colour=incident_colour(incident, known),
        sentence=incident.sentence,
        from_ms=incident.from_ms,
        lasted=duration(incident.to_ms - incident.from_ms),
        certainty="" if incident.certainty == "recorded" else incident.certainty,
        figures=figures if incident.rebalances else "",
        rebalances=tuple(known[number] for number in newest_first if number in known),
        more=tuple((number, rebalance_address(group, number)) for number in newest_first if number not in known),
    )


def incident_colour(incident: GroupIncident, known: Mapping[int, RebalanceView]) -> str:
    """Its own, or the worst of its rebalances'."""
    if incident.kind in INCIDENT_COLOURS:
        return INCIDENT_COLOURS[incident.kind]
    kinds = {known[number].kind for number in incident.entries if number in known}
    return TROUBLE if incident.kind == "rebalance" and TROUBLE in kinds else CHANGE


def incident_timeline(
    incidents: Sequence[GroupIncident],
    group: str,
    now_ms: int,
    stalls: Sequence[NodeStall] = (),
    known: Mapping[int, RebalanceView] | None = None,
) -> Markup:
    """A mark for each incident, from its beginning to its end; it leads to its last rebalance."""
    most = max((incident.moved for incident in incidents), default=0)
    marks = [
        TimelineMark(
            incident.entries[-1],
            incident.from_ms,
            incident.to_ms,
            incident_colour(incident, known or {}),
            incident.moved / most if most else 0.0,
            incident.sentence,
            rebalance_address(group, incident.entries[-1]),
        )
        for incident in incidents
        if incident.entries
    ]
    away = [(stall.ended_at_ms - stall.stalled_ms, stall.ended_at_ms) for stall in stalls]
    return draw_timeline(marks, now_ms, away)
