"""Groups, their members, their positions and their settings, a row each."""

from collections.abc import Iterable, Sequence

from typing_extensions import TypedDict

from muster.coordinator.observability.read_model.groups import (
    GroupDescription,
    GroupHolds,
    GroupListing,
    GroupProgress,
    MemberDescription,
    PartitionLag,
)
from muster.coordinator.observability.views.controls import (
    BalanceRow,
    CanaryStateRow,
    FencesRow,
    HoldRow,
    balance_row,
    canary_row,
    fences_row,
    hold_rows,
)
from muster.coordinator.observability.views.formatting import duration, moment, plural, utc_clock, utc_moment


class GroupRow(TypedDict):
    group: str
    type: str
    state: str
    protocol_type: str
    lag: int | None
    health: str | None
    health_reason: str | None
    idle_since: str | None


class StateRow(TypedDict):
    group: str
    coordinator: str
    watched: bool
    assignment_strategy: str | None
    state: str
    members: int
    generation: int
    leader: str | None
    planned_by: str | None
    kept_out: str | None
    waiting_for: list[str]
    waiting_until: str | None
    lag: int | None
    trend: float | None
    trend_window_s: float | None
    eta_s: float | None
    health: str | None
    health_reason: str | None
    idle_since: str | None
    hidden_topics: int
    held: list[HoldRow]
    canary: CanaryStateRow | None
    balance: BalanceRow | None
    fences: FencesRow | None


class MemberRow(TypedDict):
    group: str
    consumer_id: str
    group_instance_id: str | None
    host: str
    client_id: str
    client_software: str | None
    partitions: int
    assignment: str | None


class OffsetRow(TypedDict):
    group: str
    topic: str
    partition: int
    current_offset: int | None
    log_start_offset: int | None
    log_end_offset: int | None
    lag: int | None
    removed: int | None
    consumer_id: str | None
    host: str | None
    client_id: str | None


def group_row(group: GroupListing) -> GroupRow:
    """What the node's samples say of it is None where there are none."""
    told = group.progress
    return {
        "group": group.group_id,
        "type": group.group_type,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "lag": told.lag if told else None,
        "health": told.health if told else None,
        "health_reason": told.reason if told else None,
        "idle_since": utc_moment(told.idle_since_ms) if told and told.idle_since_ms is not None else None,
    }


def state_row(group: GroupDescription, holds: GroupHolds) -> StateRow:
    """What the node's samples say of it is None where there are none. `holds`: what operators hold of the group."""
    told = group.progress
    return {
        "group": group.group_id,
        "coordinator": group.watched or group.coordinator,
        "watched": bool(group.watched),
        "assignment_strategy": group.assignor or None,
        "state": group.state,
        "members": len(group.members),
        "generation": group.generation,
        "leader": group.leader or None,
        "planned_by": planner_words(group),
        "kept_out": group.kept_out or None,
        "waiting_for": list(group.waiting_for),
        "waiting_until": moment(group.waiting_until_ms) if group.waiting_until_ms else None,
        "lag": told.lag if told else None,
        "trend": round(told.trend, 3) if told and told.trend is not None else None,
        "trend_window_s": told.trend_window_ms / 1000 if told and told.trend is not None else None,
        "eta_s": round(told.eta_s, 1) if told and told.eta_s is not None else None,
        "health": told.health if told else None,
        "health_reason": told.reason if told else None,
        "idle_since": utc_moment(told.idle_since_ms) if told and told.idle_since_ms is not None else None,
        "hidden_topics": group.hidden_topics,
        "held": hold_rows(group.group_id, holds),
        "canary": canary_row(group.controls.canary),
        "balance": balance_row(group.controls.balance),
        "fences": fences_row(group.controls),
    }


def hidden_words(hidden_topics: int) -> str:
    """What is not shown of a group.

    >>> hidden_words(1), hidden_words(2)
    ('1 topic that you may not describe is not shown', '2 topics that you may not describe are not shown')
    """
    return (
        f"{plural(hidden_topics, 'topic')} that you may not describe {'is' if hidden_topics == 1 else 'are'} not shown"
    )


def watched_words(watched: str) -> str:
    """Of a group that the node only watches: who coordinates it.

    >>> watched_words("the Kafka at b1:9092")
    'watched: the Kafka at b1:9092 coordinates it'
    """
    return f"watched: {watched} coordinates it"


def planner_words(group: GroupDescription) -> str | None:
    """Who makes the plans; None where nobody does, or it is not known."""
    if group.planned_there:
        return f"the coordinator by {group.planned_there}, {'as set' if group.assignor_is_set else 'as members ask'}"
    return "a member" if group.leader else None


def progress_words(progress: GroupProgress) -> str:
    """How far behind a group is, and where that leads."""
    if progress.idle_since_ms is not None:
        return progress.reason
    if not progress.lag:
        return "everything is read"
    behind = f"{plural(progress.lag, 'record')} behind"
    if progress.trend is None:
        return f"{behind}; how fast that changes is not known yet"
    over = f" over the last {progress.trend_window_ms / 1000:.0f} s" if progress.trend_window_ms else ""
    if progress.eta_s is not None:
        pace = f"{-progress.trend:,.1f} fewer each second{over}"
        return f"{behind}, {pace}: caught up in about {duration(progress.eta_s * 1000)}"
    if progress.trend < 0.05:
        return f"{behind}, unchanged{over}"
    return f"{behind}, {progress.trend:,.1f} more each second{over}: it does not catch up at this pace"


def idle_words(since_ms: int, lag: int, growth: int | None, now_ms: int) -> str:
    """The state of a group without members: since when, how far behind, and whether that grows."""
    behind = f"{lag:,} behind" if lag else "everything is read"
    way = "" if not growth else ", growing" if growth > 0 else ", shrinking"
    return f"idle since {utc_clock(since_ms, now_ms)}, {behind}{way}"


def member_row(group_id: str, member: MemberDescription) -> MemberRow:
    return {
        "group": group_id,
        "consumer_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "host": member.client_host,
        "client_id": member.client_id,
        "client_software": member.client_software or None,
        "partitions": len(member.assignment),
        "assignment": assignment_text(member.assignment),
    }


def removed_words(lags: Iterable[PartitionLag]) -> str:
    """What of the column LAG can no longer be read; empty where all of it can."""
    short = [lag for lag in lags if lag.removed]
    if not short:
        return ""
    removed, left = sum(lag.removed for lag in short), sum(lag.lag for lag in short)
    return (
        f"LAG is Kafka's figure. {removed:,} of these records, in {plural(len(short), 'partition')}, were removed by "
        f"retention before the group read them; {left:,} can still be read"
    )


def offset_row(group_id: str, lag: PartitionLag, owner: MemberDescription | None, *, known: bool = True) -> OffsetRow:
    """`lag` is Kafka's figure, `removed` what of it retention removed.

    Not `known`: the position lies in a ZooKeeper that is away.
    """
    topic, partition = lag.partition
    return {
        "group": group_id,
        "topic": topic,
        "partition": partition,
        "current_offset": lag.committed if known else None,
        "log_start_offset": lag.log_start if lag.end_known else None,
        "log_end_offset": lag.log_end if lag.end_known else None,
        "lag": lag.kafka_lag if known and lag.end_known else None,
        "removed": lag.removed if known and lag.end_known else None,
        "consumer_id": owner.member_id if owner else None,
        "host": owner.client_host if owner else None,
        "client_id": owner.client_id if owner else None,
    }


def assignment_text(partitions: Sequence[tuple[str, int]]) -> str | None:
    """As Kafka's tool writes it.

    >>> assignment_text((("a", 0), ("a", 2), ("b", 1)))
    'a(0,2), b(1)'
    """
    by_topic: dict[str, list[str]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(str(number))
    return ", ".join(f"{topic}({','.join(numbers)})" for topic, numbers in by_topic.items()) or None
