"""A rebalance as the page shows it: in a sentence, in a list, on the line of time, and whole at its address.

Its address is permanent. The sentence says what set the rebalance off and what became of which partitions: first
those of the member that caused it, then the others.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from muster.coordinator.observability.views.formatting import Names, duration, plural, spans
from muster.coordinator.observability.views.ledger import is_rebalance
from muster.coordinator.rpc.v1.ledger_pb2 import (
    NodeStall,
    PartitionMove,
    PositionChange,
    Rebalance,
    RebalanceCause,
    RebalanceOutcome,
)
from muster.coordinator.web.http.guard import segment_of
from muster.coordinator.web.pages.pictures import TimelineMark, draw_phases, draw_timeline

# One sentence
# ------------

TROUBLE, CHANGE, OPERATOR, FOLLOW_UP = "trouble", "change", "operator", "followup"
NAMED: Final = 3
"""So many names stand in a sentence; the others are counted."""

CAUSES: Final[dict[str, tuple[str, str, str]]] = {
    "MEMBER_JOINED": (CHANGE, "{who} joined", "a member joined"),
    "MEMBER_METADATA_CHANGED": (CHANGE, "{who} changed what it asks for", "a member changed what it asks for"),
    "STATIC_MEMBER_METADATA_CHANGED": (CHANGE, "{who} came back with other wishes", "a static member changed"),
    "SESSION_EXPIRED": (TROUBLE, "{who} stopped answering", "a member stopped answering"),
    "MEMBER_LEFT": (CHANGE, "{who} left", "a member left"),
    "STATIC_MEMBER_REPLACED": (CHANGE, "{who} was replaced by a new process", "a static member was replaced"),
    "PROTOCOL_CHANGED": (CHANGE, "the group changed its protocol", "the group changed its protocol"),
    "LEADER_REJOINED": (CHANGE, "the leader {who} rejoined", "the leader rejoined"),
    "POLL_TIMEOUT": (TROUBLE, "{who} stopped polling", "a member stopped polling"),
    "SYNC_TIMEOUT": (TROUBLE, "{who} did not fetch its share in time", "a member did not fetch its share in time"),
    "REBALANCE_TIMEOUT": (TROUBLE, "{who} did not rejoin in time", "a member did not rejoin in time"),
    "GROUP_OVER_SIZE": (TROUBLE, "the group has more members than it may", "the group has more members than it may"),
    "REVOCATION_FOLLOW_UP": (
        FOLLOW_UP, "what was let go of is handed on", "what was let go of is handed on",
    ),
    "SUBSCRIPTION_CHANGED": (CHANGE, "{who} changed its topics", "a member changed its topics"),
    "PARTITIONS_CHANGED": (CHANGE, "topics or partitions changed", "topics or partitions changed"),
    "ASSIGNOR_CHANGED": (OPERATOR, "the assignor was changed", "the assignor was changed"),
    "LAG_IMBALANCE": (CHANGE, "lag was uneven", "lag was uneven"),
    "OPERATOR": (OPERATOR, "an operator stepped in", "an operator stepped in"),
    "THAW": (OPERATOR, "the group was resumed", "the group was resumed"),
    "COORDINATOR_FAILOVER": (TROUBLE, "the coordinator changed", "the coordinator changed"),
    "HANDOFF_TIMEOUT": (TROUBLE, "{who} did not let go in time", "a member did not let go in time"),
    "MEMBER_FENCED": (TROUBLE, "{who} was shut out", "a member was shut out"),
    "WEIGHT_CHANGED": (OPERATOR, "weights changed", "weights changed"),
    "ASSIGNOR_FAILED": (TROUBLE, "the assignor failed", "the assignor failed"),
    "DELAY_OVER": (FOLLOW_UP, "the wait for a missing member is over", "the wait for a missing member is over"),
    "BROKERS_CHANGED": (CHANGE, "a broker came or went", "a broker came or went"),
    "CANARY": (OPERATOR, "a trial of another assignor began or ended", "a trial of another assignor began or ended"),
    "DEPLOY_OVER": (OPERATOR, "a deploy is over", "a deploy is over"),
    "PIN_CHANGED": (OPERATOR, "a partition was pinned", "a partition was pinned"),
    "DRAINED": (OPERATOR, "a member is drained", "a member is drained"),
}  # fmt: skip
"""By cause: its kind, which is its colour; what to say when it is known who, and when not."""

ENDS: Final = {
    "SUPERSEDED": "before that was done, the next rebalance began",
    "EMPTIED": "nobody is left",
    "FAILED": "no attempt succeeded, and the plan of before holds",
}


OPERATOR_CHANGES: Final = {
    "SETTINGS_CHANGED": "An operator changed the group's settings; nobody moved.",
    "POSITIONS_CHANGED": "An operator changed {positions}; nobody moved.",
    "TRIAL": "{detail}.",
    "HELD": "{detail}.",
    "WATCHED": "{detail}; nobody moved, for the group is only watched.",
    "GROUP_DELETED": "An operator deleted the group, and {positions} with it.",
}
"""What is no rebalance."""


SAID_BEST_BY_THEMSELVES: Final = ("CANARY",)
"""Causes of which the entry's own words tell more than any that stand here."""


def cause_name(entry: Rebalance) -> str:
    return RebalanceCause.Name(entry.cause).removeprefix("REBALANCE_CAUSE_")


def outcome_name(entry: Rebalance) -> str:
    return RebalanceOutcome.Name(entry.outcome).removeprefix("REBALANCE_OUTCOME_")


def cause_kind(cause: str) -> str:
    return CAUSES[cause][0] if cause in CAUSES else CHANGE


def cause_word(cause: str) -> str:
    """
    >>> cause_word("SESSION_EXPIRED")
    'session expired'
    """
    return cause.replace("_", " ").lower()


def listed(names: Sequence[str]) -> str:
    """
    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c", "d", "e"])
    ('a', 'a and b', 'a, b, c and 2 others')
    """
    if len(names) > NAMED + 1:
        return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} others"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else "nobody"


def sentence(entry: Rebalance, names: Names) -> str:
    """What happened, ending in a full stop."""
    happened, ended = describe_cause(entry, names), ENDS.get(outcome_name(entry))
    moved = describe_moves(entry.moves, entry.culprit, names)
    if outcome_name(entry) in OPERATOR_CHANGES:
        return OPERATOR_CHANGES[outcome_name(entry)].format(
            positions=plural(len(entry.positions) + entry.more_positions, "position"),
            detail=capitalize_sentence(names.in_text(entry.detail), ""),
        )
    parts = [happened, *([moved] if entry.moves or not ended else []), *([ended] if ended else [])]
    return capitalize_sentence("; ".join(parts) + ".", names[entry.culprit])


def capitalize_sentence(text: str, culprit: str) -> str:
    """With a capital, unless it begins with somebody's name."""
    return text if culprit and text.startswith(culprit) else text[:1].upper() + text[1:]


def describe_cause(entry: Rebalance, names: Names) -> str:
    if cause_name(entry) in SAID_BEST_BY_THEMSELVES and entry.detail:
        return names.in_text(entry.detail)
    _, by_whom, otherwise = CAUSES.get(cause_name(entry), (CHANGE, "", cause_word(cause_name(entry))))
    return by_whom.format(who=names[entry.culprit]) if entry.culprit and by_whom else otherwise


def describe_moves(moves: Sequence[PartitionMove], culprit: str, names: Names) -> str:
    """What became of the partitions: first those of who set it off, then the others."""
    if not moves:
        return "nothing moved"
    took: list[PartitionMove] = []
    gave: list[PartitionMove] = []
    others: list[PartitionMove] = []
    for move in moves:
        mine = (gave if move.source == culprit else took if move.target == culprit else others) if culprit else others
        mine.append(move)
    if not gave and not took:
        return describe_exchange(others, names)
    said = []
    if gave:
        said.append(f"its {describe_losses(gave, names)}")
    if took:
        said.append(f"it took {describe_gains(took, names)}")
    if others:
        said.append(
            f"{len(others):,} more moved between the others"
            if any(map(target_of, others))
            else describe_exchange(others, names)
        )
    return "; ".join(said)


def source_of(move: PartitionMove) -> str:
    return move.source


def target_of(move: PartitionMove) -> str:
    return move.target


def describe_losses(moves: Sequence[PartitionMove], names: Names) -> str:
    targets, few = order_members(move.target for move in moves), plural(len(moves), "partition")
    if not any(targets):
        return f"{few} {'is' if len(moves) == 1 else 'are'} without an owner"
    return f"{few} went to {listed([names[member] or 'nobody' for member in targets])}"


def describe_gains(moves: Sequence[PartitionMove], names: Names) -> str:
    sources, few = order_members(move.source for move in moves), plural(len(moves), "partition")
    if not any(sources):
        return f"{few} that nobody had"
    return f"{few} from {listed([names[member] or 'nobody' for member in sources])}"


def describe_exchange(moves: Sequence[PartitionMove], names: Names) -> str:
    sources, targets = (order_members(end(move) for move in moves) for end in (source_of, target_of))
    few = plural(len(moves), "partition")
    if not any(sources):
        return f"{few} that nobody had went to {listed([names[member] for member in targets])}"
    if len(sources) > 1 and sorted(sources) == sorted(targets):
        return f"{few} changed hands between {listed([names[member] for member in targets])}"
    if not any(targets) or (len(sources) <= NAMED and len(targets) <= NAMED):
        return f"{describe_losses(moves, names)}, from {listed([names[member] or 'nobody' for member in sources])}"
    return f"{few} moved between {plural(len({*sources, *targets} - {''}), 'member')}"


def order_members(members: Iterable[str]) -> list[str]:
    """Each once, who has most first, then by name."""
    counts = Counter(members)
    return sorted(counts, key=lambda member: (-counts[member], member))


# The view
# --------

MOST_LINES: Final = 12
"""Lines of moves in a list; the rebalance's own page has more."""

PHASE_KINDS: Final = {
    "join": ("p1", "waited for members to join", "last was"),
    "claim": ("p1", "waited for members to claim", "last was"),
    "stop": ("p1", "waited for members to stop", "last was"),
    "plan": ("p2", "waited for the plan", "made by"),
    "assign": ("p2", "made the plan", "by"),
    "settle": ("p3", "waited until everybody had fetched a share", "last was"),
    "reconcile": ("p3", "handed over", "last was"),
    "start": ("p3", "waited for members to start", "last was"),
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
    """And how long."""
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


def rebalance_duration_ms(entry: Rebalance) -> int:
    """The phases' sum, which goes on after the plan until every member has its share; else the entry's own ends."""
    return sum(phase.duration_ms for phase in entry.phases) or max(0, entry.ended_at_ms - entry.started_at_ms)


def rebalance_view(entry: Rebalance, names: Names, longest_ms: int, most_lines: int = MOST_LINES) -> RebalanceView:
    cause = cause_name(entry)
    lines, more = move_lines(entry.moves, names, most_lines)
    phase_views = tuple(phase_view(phase.name, phase.duration_ms, phase.waited_for, names) for phase in entry.phases)
    bars = [
        (view.kind, phase.duration_ms, f"{view.name} {view.took}")
        for view, phase in zip(phase_views, entry.phases, strict=True)
    ]
    detail = names.in_text(entry.detail)
    waited_for, waited = longest_wait(entry, names)
    return RebalanceView(
        group=entry.group_id,
        number=entry.number,
        href=rebalance_address(entry.group_id, entry.number),
        generations=f"{entry.previous_generation} to {entry.generation}",
        started_ms=entry.started_at_ms,
        took=duration(rebalance_duration_ms(entry)),
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
        picture=draw_phases(bars, max(longest_ms, rebalance_duration_ms(entry))),
        waited_for=waited_for,
        waited=waited,
        moved=len(entry.moves),
        unowned=partition_seconds(entry.unowned_partition_seconds),
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


def partition_seconds(seconds: float) -> str:
    """
    >>> partition_seconds(0.0), partition_seconds(13.24), partition_seconds(12_345.6)
    ('0', '13.2', '12,346')
    """
    return (
        "0"
        if not seconds
        else f"{seconds:,.0f}"
        if seconds >= 100
        else f"{seconds:.1f}"
        if seconds >= 1
        else f"{seconds:.2f}"
    )


def phase_view(name: str, ms: int, waited_for: Sequence[str], names: Names) -> PhaseView:
    kind, what, last = PHASE_KINDS.get(name, ("p2", name, "waited for"))
    waited = [names[member] for member in waited_for if member]
    return PhaseView(kind, name, duration(ms), what, f"{last} {waited[-1]}" if waited else "")


def longest_wait(entry: Rebalance, names: Names) -> tuple[str, str]:
    """Who, and how long; both empty when nobody was waited for."""
    waits = [phase for phase in entry.phases if any(phase.waited_for) and phase.duration_ms]
    if not waits:
        return "", ""
    longest = max(waits, key=lambda phase: phase.duration_ms)
    last = [member for member in longest.waited_for if member][-1]
    return names[last], duration(longest.duration_ms)


def move_lines(moves: Sequence[PartitionMove], names: Names, most: int) -> tuple[tuple[MoveLine, ...], int]:
    """What went the same way, together; those with most partitions first, and how many lines are left out."""
    grouped: dict[tuple[str, str, str, str], list[PartitionMove]] = defaultdict(list)
    for move in moves:
        grouped[move.topic, move.source, move.target, move.why].append(move)
    ordered = sorted(grouped.items(), key=lambda item: (-len(item[1]), item[0]))
    lines = tuple(
        MoveLine(
            topic, spans(move.partition for move in same), len(same), names[source], names[target],
            unowned_words_of(same) if target else "still unowned", names.in_text(why),
        )
        for (topic, source, target, why), same in ordered[:most]
    )  # fmt: skip
    return lines, max(0, len(ordered) - most)


def unowned_words_of(moves: Sequence[PartitionMove]) -> str:
    """How long these partitions had no owner, at least and at most."""
    known = [move.unowned_ms for move in moves if move.unowned_ms >= 0]
    if not known:
        return "still unowned"
    low, high = duration(min(known)), duration(max(known))
    return low if low == high else f"{low} to {high}"


def rebalance_timeline(
    entries: Sequence[Rebalance],
    names: Names,
    now_ms: int,
    stalls: Sequence[NodeStall] = (),
    known: Mapping[int, RebalanceView] | None = None,
) -> Markup:
    """`known`: what has been said of some of them, by number, is not thought out again."""
    known = known or {}
    most = max((len(entry.moves) for entry in entries), default=0)
    marks = [
        TimelineMark(
            entry.number,
            entry.started_at_ms,
            max(entry.ended_at_ms, entry.started_at_ms + rebalance_duration_ms(entry)),
            cause_kind(cause_name(entry)),
            len(entry.moves) / most if most else 0.0,
            f"{'Rebalance' if is_rebalance(entry) else 'Entry'} {entry.number}: {sentence_of(entry, names, known)}",
            rebalance_address(entry.group_id, entry.number),
        )
        for entry in entries
    ]
    away = [(stall.ended_at_ms - stall.stalled_ms, stall.ended_at_ms) for stall in stalls]
    return draw_timeline(marks, now_ms, away)


def sentence_of(entry: Rebalance, names: Names, known: Mapping[int, RebalanceView]) -> str:
    return known[entry.number].sentence if entry.number in known else sentence(entry, names)
