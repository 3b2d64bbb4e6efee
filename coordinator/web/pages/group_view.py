"""One group, from what the node answered to what its page shows. Pure.

The doctor's findings and the sampler's figures become part of the page; of the doctor's rules that compare two looks
nothing is shown, because a page has only one.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from markupsafe import Markup

from muster.coordinator.observability.doctor.model import (
    DoctorFacts,
    ExaminedGroup,
    Severity,
    drained_ids,
    override_lines,
)
from muster.coordinator.observability.doctor.table import examine_group
from muster.coordinator.observability.history.group_health import HealthStatus
from muster.coordinator.observability.history.group_history import GroupHistory, PartitionRates
from muster.coordinator.observability.read_model.groups import Canary, MemberDescription
from muster.coordinator.observability.views.controls import balance_words, fence_words, override_words
from muster.coordinator.observability.views.formatting import duration, listed, plural
from muster.coordinator.observability.views.groups import hidden_words, idle_words, watched_words
from muster.coordinator.observability.views.incidents import find_incidents, latest_incidents
from muster.coordinator.observability.views.ledger import ShadowRow, compare_shadows, is_rebalance, took_ms
from muster.coordinator.observability.views.member_names import Names, names_of
from muster.coordinator.rpc.v1.ledger_pb2 import Rebalance
from muster.coordinator.web.pages.assignment_map import AssignmentMap, assignment_map, unowned_words
from muster.coordinator.web.pages.page_data import GroupPageData, Place
from muster.coordinator.web.pages.pictures import draw_chart, time_in_words
from muster.coordinator.web.pages.position_view import GroupPositionLine, RowPage, position_lines, row_page
from muster.coordinator.web.pages.rebalance_view import (
    IncidentView,
    RebalanceView,
    incident_timeline,
    incident_view,
    rebalance_view,
)

# Findings of the doctor
# ----------------------

CLASSES: Final = {Severity.ADVICE: "change", Severity.WARNING: "warn", Severity.ERROR: "bad"}
MOST_FINDINGS: Final = 10
MOST_EVIDENCE: Final = 5
MOST_CHARS: Final = 400
MOST_PARTITIONS: Final = 2_000
"""A larger group is for `muster doctor`, which has the time; the page says so."""


@dataclass(frozen=True, slots=True)
class FindingView:
    word: str
    kind: str
    """A class of the style sheet."""
    what: str
    why: str
    todo: str
    evidence: tuple[str, ...]


def find_group_problems(facts: GroupPageData, names: Names, now_ms: int) -> tuple[FindingView, ...]:
    """Worst first; none of a group that is too large. One look is all there is: rules that compare two find nothing."""
    if len(facts.positions) > MOST_PARTITIONS:
        return ()
    group = make_examined_group(facts)
    sizes: dict[str, int] = {}
    for topic, number in facts.positions:
        sizes[topic] = max(sizes.get(topic, 0), number + 1)
    found = examine_group(group, DoctorFacts(now_ms, groups=(group,), partitions=sizes))
    return tuple(
        FindingView(
            word=finding.severity.name.lower(),
            kind=CLASSES[finding.severity],
            what=shortened(names.in_text(finding.what)),
            why=finding.why,
            todo=finding.todo,
            evidence=tuple(shortened(names.in_text(each)) for each in finding.evidence[:MOST_EVIDENCE]),
        )
        for finding in found[:MOST_FINDINGS]
    )


def shortened(text: str) -> str:
    """
    >>> len(shortened("x" * 1_000)), shortened("short")
    (401, 'short')
    """
    return text if len(text) <= MOST_CHARS else text[:MOST_CHARS] + "…"


def make_examined_group(facts: GroupPageData) -> ExaminedGroup:
    return ExaminedGroup(
        facts.group,
        facts.kind.lower() or "classic",
        facts.positions,
        ledger=tuple(facts.history),
        stalls=tuple(facts.stalls),
        moves=tuple(facts.moves),
        held=override_lines(facts.holds),
        drained=drained_ids(facts.group.members, facts.holds),
    )


# The view
# --------

MOST_MEMBERS: Final = 100
FIRST_MEMBERS: Final = 50
"""Of more than these the members' table has those who are most behind, until all are asked for."""
MOST_REBALANCES: Final = 15
BUSY: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Waiting",
    "Stopping",
    "Starting",
)


@dataclass(frozen=True, slots=True)
class SampledFigures:
    """What the sampler knows of a group; empty while it knows nothing."""

    times: Sequence[int] = ()
    lags: Sequence[int] = ()
    trend: float | None = None
    trend_window_ms: int = 0
    eta_s: float | None = None
    rates: Mapping[Place, float] = field(default_factory=dict)
    """Records a second that are read, by partition."""
    written: Mapping[Place, float] = field(default_factory=dict)
    health: str = ""
    reason: str = ""
    idle: tuple[int, int | None] | None = None
    """Of a group without members: since when, and by how much its lag grew of late."""


@dataclass(frozen=True, slots=True)
class GroupMemberView:
    member_id: str
    name: str
    client_id: str
    host: str
    instance: str
    software: str
    partitions: int
    lag: int
    leader: bool
    heard_ms: int
    session: str
    committed_ms: int
    """When it last committed any partition that it has; 0: never. No protocol tells when it last polled."""


@dataclass(frozen=True, slots=True)
class GroupPageView:
    group: str
    kind: str
    state: str
    state_class: str
    assignor: str
    generation: int
    headline: str
    waiting: str
    waiting_until_ms: int
    members: tuple[GroupMemberView, ...]
    member_count: int
    partitions: int
    lag: int | None
    """None: nobody knows where the logs end."""
    trend: str
    trend_window: str
    trend_class: str
    eta: str
    health: str
    health_class: str
    reason: str
    unowned: int
    unowned_words: str
    map: AssignmentMap
    last_moved: RebalanceView | None
    last_told: IncidentView | None
    """What the last rebalance that moved something belongs to, as `muster groups explain` says it."""
    rebalances: tuple[RebalanceView, ...]
    rebalance_count: int
    incidents: tuple[IncidentView, ...]
    """What the rebalances amount to, newest first."""
    timeline: Markup
    chart: Markup
    series: str
    version: int
    settings: Mapping[str, str]
    suspended: str
    """Why the setting `assignor` does not count until it is set again."""
    balance: str
    """How the group's balance is, in words; empty while it is off."""
    fences: str
    """Who claimed partitions last, in words; empty where nobody did."""
    held: tuple[tuple[str, int | None], ...]
    """What operators hold of the group, in words, and when it ends by itself (epoch milliseconds)."""
    shadows: tuple[ShadowRow, ...]
    """The last decision that shadow assignors made again: the real one, then theirs."""
    canary: Canary | None
    """The trial of another assignor that goes on."""
    positions: tuple[GroupPositionLine, ...]
    position_page: RowPage
    removed: int
    """Records of all its positions that retention removed before they were read."""
    findings: tuple[FindingView, ...]
    examined: bool
    """Whether the doctor's rules were asked."""
    watched: str
    """Of a group that the node only watches: who coordinates it, in words; empty: Muster does."""


def make_group_view(
    facts: GroupPageData,
    figures: SampledFigures,
    now_ms: int,
    by: str = "lag",
    all_members: bool = False,
    position_page: int = 1,
) -> GroupPageView:
    group, history = facts.group, facts.history
    ids = [member.member_id for member in group.members]
    names = names_of(history, group.members)
    holdings = facts.holdings(figures.rates if by == "rate" else None)
    present = frozenset(ids)
    nobody = [each for each in holdings if each.owner not in present]
    moved = last_with_moves(history)
    shown = history[:MOST_REBALANCES]
    longest = max(map(took_ms, shown), default=0)
    views = {entry.number: rebalance_view(entry, names, longest) for entry in (*shown, *([moved] if moved else []))}
    incidents = find_incidents(history, names, facts.stalls, facts.moves)
    busy = group.state in BUSY
    controls = group.controls
    findings = find_group_problems(facts, names, now_ms)
    health, reason = agreed_health(figures, findings)
    if figures.idle is not None:
        reason = idle_words(figures.idle[0], facts.lag, figures.idle[1], now_ms)  # of the lag that this page shows
    rows = row_page(position_page, len(facts.positions))
    return GroupPageView(
        group=group.group_id,
        kind=facts.kind,
        state=group.state,
        state_class="busy" if busy else "ok" if group.state == "Stable" else "",
        assignor=group.assignor,
        generation=group.generation,
        headline=headline(
            len(ids), len(holdings), len(nobody), facts.lag if facts.lag_known else None, group.hidden_topics
        ),
        waiting=listed([names[member] for member in group.waiting_for]) if group.waiting_for else "",
        waiting_until_ms=group.waiting_until_ms,
        members=member_rows(
            group.members, facts, names, FIRST_MEMBERS if len(ids) > MOST_MEMBERS and not all_members else len(ids)
        ),
        member_count=len(ids),
        partitions=len(holdings),
        lag=facts.lag if facts.lag_known else None,
        trend=trend_words(figures.trend),
        trend_window=window_words(figures),
        trend_class=trend_class(figures.trend),
        eta=eta_words(figures.eta_s, facts.lag, figures.trend),
        health=health,
        health_class=HEALTH_CLASSES.get(health, ""),
        reason=sentence_of(reason) if reason and health in ("IDLE", "") else reason,
        unowned=len(nobody) if ids and not busy else 0,
        unowned_words=unowned_words(nobody),
        map=assignment_map(holdings, ids, names, moved, by),
        last_moved=views[moved.number] if moved else None,
        last_told=next(
            (
                incident_view(each, group.group_id, {})
                for each in incidents
                if moved and moved.number in each.entries and len(each.entries) > 1
            ),
            None,
        ),
        rebalances=tuple(views[entry.number] for entry in shown),
        rebalance_count=len(history),
        incidents=tuple(
            incident_view(each, group.group_id, views)
            for each in latest_incidents(incidents, history[::-1], MOST_REBALANCES)[::-1]
        ),
        timeline=incident_timeline(incidents, group.group_id, now_ms, facts.stalls, views),
        chart=draw_chart(figures.times, figures.lags, [entry.started_at_ms for entry in history]),
        series=json.dumps([list(figures.times), list(figures.lags), [entry.started_at_ms for entry in history]]),
        version=facts.version,
        settings=facts.settings,
        suspended=facts.suspended,
        balance=balance_words(controls.balance) if controls.balance is not None else "",
        fences=fence_words(controls) if controls.fences else "",
        held=tuple(override_words(facts.holds)),
        shadows=tuple(compare_shadows(history[::-1], 1)),
        canary=facts.canary if facts.canary is not None and facts.canary.goes_on else None,
        positions=position_lines(facts.positions, names, figures.rates, figures.written, rows),
        position_page=rows,
        removed=sum(position.removed for position in facts.positions.values()),
        findings=findings,
        examined=len(facts.positions) <= MOST_PARTITIONS,
        watched=watched_words(group.watched) if group.watched else "",
    )


HEALTH_CLASSES: Final = {"OK": "ok", "WARN": "warn", "ERR": "bad", "IDLE": "idle"}


def agreed_health(figures: SampledFigures, findings: Sequence[FindingView]) -> tuple[str, str]:
    """The group's health in one word, and why: of the sampler and the doctor, whichever is worse.

    A group in which the doctor finds something wrong is not OK on the same page.
    """
    worst = next(iter(findings), None)
    if worst is None or figures.health not in ("OK", "WARN") or CLASSES[Severity.ADVICE] == worst.kind:
        return figures.health, figures.reason
    word = "ERR" if worst.kind == CLASSES[Severity.ERROR] else "WARN"
    return (figures.health, figures.reason) if word == figures.health else (word, worst.what)


def sentence_of(text: str) -> str:
    """
    >>> sentence_of("nobody owns 2 partitions of t")
    'Nobody owns 2 partitions of t.'
    """
    return f"{text[:1].upper()}{text[1:]}."


def last_with_moves(history: Sequence[Rebalance]) -> Rebalance | None:
    """A KIP-848 group may have an entry for what moved nothing after the one that did.

    Where none on record moved anything, the newest rebalance; nothing that operators did beside is one.
    """
    return next((entry for entry in history if entry.moves), next(filter(is_rebalance, history), None))


def headline(members: int, partitions: int, unowned: int, lag: int | None, hidden_topics: int = 0) -> str:
    """lag: None: it is not known.

    >>> headline(2, 12, 0, 0), headline(1, 12, 6, 1)
    ('2 members share 12 partitions, everything read.', '1 member has 6 of 12 partitions, 1 record behind.')
    >>> headline(1, 0, 0, 0, 2)
    '1 member is in this group. 2 topics that you may not describe are not shown.'
    """
    if hidden_topics:
        there = f"{plural(members, 'member')} {'is' if members == 1 else 'are'} in this group."
        return f"{there if members else 'No member is in this group.'} {hidden_words(hidden_topics)}."
    if not members:
        return f"No member is in this group. It has positions in {plural(partitions, 'partition')}."
    behind = "" if lag is None else f", {plural(lag, 'record')} behind" if lag else ", everything read"
    owned = (
        f"{partitions - unowned:,} of {plural(partitions, 'partition')}" if unowned else plural(partitions, "partition")
    )
    return f"{plural(members, 'member')} {'has' if members == 1 else 'share'} {owned}{behind}."


def trend_words(trend: float | None) -> str:
    """
    >>> trend_words(None), trend_words(0.2), trend_words(-31.7), trend_words(1204.0)
    ('', 'steady', 'shrinking by 32/s', 'growing by 1,204/s')
    """
    if trend is None:
        return ""
    if abs(trend) < 0.5:
        return "steady"
    return f"{'growing' if trend > 0 else 'shrinking'} by {abs(trend):,.0f}/s"


def window_words(figures: SampledFigures) -> str:
    """How far back the trend looks; empty while there is none."""
    if figures.trend is None or not figures.trend_window_ms:
        return ""
    return f"over the last {time_in_words(figures.trend_window_ms)}"


def trend_class(trend: float | None) -> str:
    return "flat" if trend is None or abs(trend) < 0.5 else "up" if trend > 0 else "down"


def eta_words(eta_s: float | None, lag: int, trend: float | None = None) -> str:
    """
    >>> eta_words(40.2, 9), eta_words(None, 9), eta_words(0.0, 0), eta_words(40.2, 9, -0.2)
    ('in 40 s', 'not at this pace', 'now', 'not at this pace')
    """
    if not lag:
        return "now"
    return (
        "not at this pace"
        if eta_s is None or (trend_class(trend) == "flat" and trend is not None)
        else f"in {time_in_words(max(1_000, round(eta_s * 1000)))}"
    )


def member_rows(
    members: Sequence[MemberDescription], facts: GroupPageData, names: Names, most: int
) -> tuple[GroupMemberView, ...]:
    rows = [make_member_view(member, facts, names) for member in members]
    return tuple(sorted(rows, key=lambda row: (-row.lag, row.name) if len(rows) > most else (0, row.name))[:most])


def make_member_view(member: MemberDescription, facts: GroupPageData, names: Names) -> GroupMemberView:
    positions = [facts.positions[tp] for tp in member.assignment if tp in facts.positions]
    return GroupMemberView(
        member_id=member.member_id,
        name=names[member.member_id],
        client_id=member.client_id,
        host=member.client_host,
        instance=member.group_instance_id or "",
        software=member.client_software,
        partitions=len(member.assignment),
        lag=sum(position.lag for position in positions),
        leader=member.member_id == facts.group.leader,
        heard_ms=member.last_heard_ms or 0,
        session=duration(member.session_timeout_ms) if member.session_timeout_ms is not None else "",
        committed_ms=max((position.committed_at_ms or 0 for position in positions), default=0),
    )


# Figures of the sampler
# ----------------------


class SamplerFigures:
    """What the sampler knows of groups, for who may see all topics that it is about; else nothing is known."""

    def __init__(self, history: GroupHistory, sees: Callable[[str], bool]) -> None:
        self._history = history
        self._sees = sees

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def lag(self, group: str) -> int | None:
        return self._history.lag(group) if self._sees(group) else None

    def rates(self, group: str) -> PartitionRates | None:
        """As last seen, of every partition; None while the sampler has not seen the group."""
        return self._history.rates(group) if self._sees(group) else None

    def of(self, group: str) -> SampledFigures:
        """Empty while the sampler has not seen the group; without rates by partition."""
        history = self._history
        if not history.knows(group) or not self._sees(group):
            return SampledFigures()
        times, lags = history.lag_series(group)
        health, reason = self.health(group)
        found = history.last_health(group)
        return SampledFigures(
            times.tolist(),
            lags.tolist(),
            history.trend(group),
            history.trend_window_ms(group),
            history.eta_s(group),
            health=health,
            reason=reason,
            idle=(found.idle_since_ms, found.growth) if found.idle_since_ms is not None else None,
        )

    def health(self, group: str) -> tuple[str, str]:
        """The word, and why when it is not well; both empty while nothing is known."""
        if self._history.seen_ms(group) is None or not self._sees(group):
            return "", ""
        found = self._history.last_health(group)
        if found.idle_since_ms is not None:
            return found.status.name, idle_words(found.idle_since_ms, found.total_lag, found.growth, self.now_ms())
        return found.status.name, found.reason if found.status > HealthStatus.OK else ""

    async def seen_by(self, groups: Iterable[str]) -> list[tuple[str, PartitionRates]]:
        """What was last seen of each of these groups that is known. Others have their turns in between."""
        found = []
        for group in groups:
            if known := self.rates(group):
                found.append((group, known))
            await asyncio.sleep(0)
        return found
