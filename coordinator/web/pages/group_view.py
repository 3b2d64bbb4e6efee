"""One group, from what the node answered to what its page shows. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from markupsafe import Markup

from muster.coordinator.observability.views.controls import balance_words, fence_words, seen_controls
from muster.coordinator.observability.views.formatting import Names, duration, plural
from muster.coordinator.observability.views.holds import override_words
from muster.coordinator.observability.views.ledger import is_rebalance
from muster.coordinator.observability.views.shadows import ShadowRow, compare_shadows
from muster.coordinator.observability.views.trials import SeenCanary
from muster.coordinator.rpc.v1.coordinator_service_pb2 import DescribedMember
from muster.coordinator.rpc.v1.ledger_pb2 import Rebalance
from muster.coordinator.web.pages.assignment_map import AssignmentMap, assignment_map, unowned_words
from muster.coordinator.web.pages.findings import MOST_PARTITIONS, FindingView, find_group_problems
from muster.coordinator.web.pages.naming import name_members
from muster.coordinator.web.pages.page_data import GroupPageData, Place
from muster.coordinator.web.pages.rebalances import (
    RebalanceView,
    rebalance_duration_ms,
    rebalance_timeline,
    rebalance_view,
)
from muster.coordinator.web.pages.sentences import listed
from muster.coordinator.web.pages.series import draw_chart
from muster.coordinator.web.pages.timeline import time_in_words

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
    eta_s: float | None = None
    rates: Mapping[Place, float] = field(default_factory=dict)
    health: str = ""
    reason: str = ""


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
    lag: int
    trend: str
    trend_class: str
    eta: str
    health: str
    health_class: str
    reason: str
    unowned: int
    unowned_words: str
    map: AssignmentMap
    last_moved: RebalanceView | None
    rebalances: tuple[RebalanceView, ...]
    rebalance_count: int
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
    canary: SeenCanary | None
    """The trial of another assignor that goes on."""
    findings: tuple[FindingView, ...]
    examined: bool
    """Whether the doctor's rules were asked."""


def make_group_view(
    facts: GroupPageData, figures: SampledFigures, now_ms: int, by: str = "lag", all_members: bool = False
) -> GroupPageView:
    group, history = facts.group, facts.history
    ids = [member.member_id for member in group.members]
    names = name_members(history, ids, {member.member_id: member.client_id for member in group.members})
    holdings = facts.holdings(figures.rates)
    nobody = [each for each in holdings if each.owner not in facts.shares]
    moved = last_with_moves(history)
    shown = history[:MOST_REBALANCES]
    longest = max(map(rebalance_duration_ms, shown), default=0)
    views = {entry.number: rebalance_view(entry, names, longest) for entry in (*shown, *([moved] if moved else []))}
    busy = group.group_state in BUSY
    goes_on = seen_controls(group)
    return GroupPageView(
        group=group.group_id,
        kind=facts.kind,
        state=group.group_state,
        state_class="busy" if busy else "ok" if group.group_state == "Stable" else "",
        assignor=group.protocol_data,
        generation=group.generation_id,
        headline=headline(len(ids), len(holdings), len(nobody), facts.lag),
        waiting=listed([names[member] for member in group.waiting_for]) if group.waiting_for else "",
        waiting_until_ms=group.waiting_until_ms,
        members=member_rows(
            group.members, facts, names, FIRST_MEMBERS if len(ids) > MOST_MEMBERS and not all_members else len(ids)
        ),
        member_count=len(ids),
        partitions=len(holdings),
        lag=facts.lag,
        trend=trend_words(figures.trend),
        trend_class=trend_class(figures.trend),
        eta=eta_words(figures.eta_s, facts.lag),
        health=figures.health,
        health_class=HEALTH_CLASSES.get(figures.health, ""),
        reason=figures.reason,
        unowned=len(nobody) if ids and not busy else 0,
        unowned_words=unowned_words(nobody),
        map=assignment_map(holdings, ids, names, moved, by),
        last_moved=views[moved.number] if moved else None,
        rebalances=tuple(views[entry.number] for entry in shown),
        rebalance_count=len(history),
        timeline=rebalance_timeline(history, names, now_ms, facts.stalls, views),
        chart=draw_chart(figures.times, figures.lags, [entry.started_at_ms for entry in history]),
        series=json.dumps([list(figures.times), list(figures.lags), [entry.started_at_ms for entry in history]]),
        version=facts.version,
        settings=facts.settings,
        suspended=facts.suspended,
        balance=balance_words(goes_on.balance) if goes_on.balance is not None else "",
        fences=fence_words(goes_on) if goes_on.fences else "",
        held=tuple(override_words(facts.holds)),
        shadows=tuple(compare_shadows(history[::-1], 1)),
        canary=facts.canary if facts.canary is not None and facts.canary.goes_on else None,
        findings=find_group_problems(facts, names, now_ms),
        examined=len(facts.positions) <= MOST_PARTITIONS,
    )


HEALTH_CLASSES: Final = {"OK": "ok", "WARN": "warn", "ERR": "bad", "STOP": "bad", "STALL": "bad", "REWIND": "bad"}


def last_with_moves(history: Sequence[Rebalance]) -> Rebalance | None:
    """A KIP-848 group may have an entry for what moved nothing after the one that did.

    Where none on record moved anything, the newest rebalance; nothing that operators did beside is one.
    """
    return next((entry for entry in history if entry.moves), next(filter(is_rebalance, history), None))


def headline(members: int, partitions: int, unowned: int, lag: int) -> str:
    """
    >>> headline(2, 12, 0, 0), headline(1, 12, 6, 1)
    ('2 members share 12 partitions, everything read.', '1 member has 6 of 12 partitions, 1 record behind.')
    """
    if not members:
        return (
            f"Nobody is in this group. It has positions in {plural(partitions, 'partition')}, {lag:,} records behind."
        )
    behind = f"{plural(lag, 'record')} behind" if lag else "everything read"
    owned = (
        f"{partitions - unowned:,} of {plural(partitions, 'partition')}" if unowned else plural(partitions, "partition")
    )
    return f"{plural(members, 'member')} {'has' if members == 1 else 'share'} {owned}, {behind}."


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


def trend_class(trend: float | None) -> str:
    return "flat" if trend is None or abs(trend) < 0.5 else "up" if trend > 0 else "down"


def eta_words(eta_s: float | None, lag: int) -> str:
    """
    >>> eta_words(40.2, 9), eta_words(None, 9), eta_words(0.0, 0)
    ('in 40 s', 'not at this pace', 'now')
    """
    if not lag:
        return "now"
    return "not at this pace" if eta_s is None else f"in {time_in_words(max(1_000, round(eta_s * 1000)))}"


def member_rows(
    members: Sequence[DescribedMember], facts: GroupPageData, names: Names, most: int
) -> tuple[GroupMemberView, ...]:
    rows = [
        GroupMemberView(
            member_id=member.member_id,
            name=names[member.member_id],
            client_id=member.client_id,
            host=member.client_host,
            instance=member.group_instance_id,
            software=member.client_software,
            partitions=len(facts.shares.get(member.member_id, ())),
            lag=sum(
                facts.positions[place].lag
                for place in facts.shares.get(member.member_id, ())
                if place in facts.positions
            ),
            leader=member.member_id == facts.group.leader,
            heard_ms=member.last_heard_ms,
            session=duration(member.session_timeout_ms) if member.HasField("session_timeout_ms") else "",
            committed_ms=max(
                (
                    facts.positions[place].committed_at_ms or 0
                    for place in facts.shares.get(member.member_id, ())
                    if place in facts.positions
                ),
                default=0,
            ),
        )
        for member in members
    ]
    return tuple(sorted(rows, key=lambda row: (-row.lag, row.name) if len(rows) > most else (0, row.name))[:most])
