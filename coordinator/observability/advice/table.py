"""Every kind of advice, and what becomes of a group's history: what to change, what helps most first.

A pure function of what the node's API tells of a group: the same entries give the same advice, however they were read
(EX-A1).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from typing_extensions import TypedDict

from muster.coordinator.observability.advice import commit_advice, membership_advice, state_advice
from muster.coordinator.observability.advice.assignor_advice import (
    advise_adoption,
    advise_assignor,
    advise_consumer_protocol,
    advise_lag_aware,
    judge_assignor,
)
from muster.coordinator.observability.advice.model import (
    DAY_MS,
    LEAST_SHARE,
    Advice,
    AdviceDocument,
    GroupRecord,
    read_record,
)
from muster.coordinator.observability.advice.plan_replay import PlanReplay
from muster.coordinator.observability.advice.skew_advice import advise_on_skew
from muster.coordinator.observability.doctor.model import ExaminedGroup
from muster.coordinator.observability.views.formatting import listed, plural
from muster.coordinator.observability.views.incidents import find_incidents

HOUR_MS: Final = 3_600_000

# Kinds
# -----

Adviser: TypeAlias = Callable[[GroupRecord, PlanReplay], Iterable[Advice]]


def by_record(adviser: Callable[[GroupRecord], Iterable[Advice]]) -> Adviser:
    """Of kinds that need no plan made again."""
    return lambda record, _: adviser(record)


@dataclass(frozen=True, slots=True)
class AdviceKind:
    """`what` it looks for, in half a sentence, as docs/advise.md lists it."""

    name: str
    what: str
    adviser: Adviser


KINDS: Final[tuple[AdviceKind, ...]] = (
    AdviceKind(
        "partitions-without-member",
        "partitions of a subscribed topic have no owner although the group is stable",
        by_record(state_advice.advise_on_unowned),
    ),
    AdviceKind(
        "flapping-member",
        "one client id at one host sets off at least half of all restarts",
        by_record(membership_advice.advise_on_flapping),
    ),
    AdviceKind(
        "poll-interval, poison-partition",
        "members did not poll within `max.poll.interval.ms`; the same partition was there each time",
        by_record(membership_advice.advise_on_late_polls),
    ),
    AdviceKind(
        "session-timeout",
        "members expired, and were back within two session timeouts",
        by_record(membership_advice.advise_longer_session),
    ),
    AdviceKind(
        "static-membership",
        "members restart under new ids, which sets off rebalances",
        by_record(membership_advice.advise_static_membership),
    ),
    AdviceKind(
        "assignor",
        "another assignor would have moved or stopped less in the same rebalances",
        advise_assignor,
    ),
    AdviceKind(
        "kip-848",
        "members of an eager group stop for rebalances that do not change their share",
        by_record(advise_consumer_protocol),
    ),
    AdviceKind(
        "lag-aware",
        "one member has most of the lag, and a plan by lag would spread it",
        by_record(advise_lag_aware),
    ),
    AdviceKind(
        "skew, hot-partition",
        "one member reads much more than the others and falls behind; most of it is one partition",
        by_record(advise_on_skew),
    ),
    AdviceKind(
        "frequent-commits",
        "positions are committed more than three times as often as by default, and more than 20 a second",
        by_record(commit_advice.advise_on_frequent_commits),
    ),
    AdviceKind(
        "stuck-member, silent-member, no-commits",
        "positions of one member do not move, or are none, while the others' do; nothing was ever committed",
        by_record(commit_advice.advise_on_commits),
    ),
    AdviceKind(
        "unfinished-roll-out",
        "some members do not offer the assignor that others prefer",
        by_record(state_advice.advise_on_roll_out),
    ),
    AdviceKind(
        "mixed-subscriptions",
        "a minority of the members reads other topics",
        by_record(state_advice.advise_on_subscriptions),
    ),
    AdviceKind(
        "members-without-partition",
        "there are more members than partitions",
        by_record(state_advice.advise_on_idle_members),
    ),
    AdviceKind(
        "adopt",
        "Muster can do for a group of another broker what that broker cannot",
        by_record(advise_adoption),
    ),
)
"""In the order in which advice of equal weight is given."""

# Advice for a group
# ------------------


class WindowDocument(TypedDict):
    """The time that was judged, and what its rebalances cost. Times are epoch milliseconds."""

    from_ms: int
    to_ms: int
    rebalances: int
    partition_seconds: float
    moves: int


class GroupAdviceDocument(TypedDict):
    """One group's advice for programs, as `GroupAdvice` has it."""

    group: str
    window: WindowDocument
    advice: list[AdviceDocument]
    nothing_to_change: str | None
    not_judged: list[str]


@dataclass(frozen=True, slots=True)
class GroupAdvice:
    """What to change about one group, and what was looked at. Times are epoch milliseconds."""

    group_id: str
    advice: tuple[Advice, ...]
    from_ms: int
    to_ms: int
    rebalances: int
    partition_seconds: float
    moves: int
    not_judged: tuple[str, ...]
    """What nothing could be said about, and why: a sentence each."""
    looked_at: str
    """The window in words: "12 rebalances in 7 days (1 rolling restart)"."""

    @property
    def nothing_to_change(self) -> str:
        """The sentence for a group that is well; empty where something is advised."""
        return "" if self.advice else f"Nothing to change: {self.looked_at}."

    def to_dict(self) -> GroupAdviceDocument:
        return {
            "group": self.group_id,
            "window": {
                "from_ms": self.from_ms,
                "to_ms": self.to_ms,
                "rebalances": self.rebalances,
                "partition_seconds": self.partition_seconds,
                "moves": self.moves,
            },
            "advice": [each.to_dict() for each in self.advice],
            "nothing_to_change": self.nothing_to_change or None,
            "not_judged": list(self.not_judged),
        }


def advise_group(group: ExaminedGroup, partitions: Mapping[str, int], now_ms: int, since_ms: int = 0) -> GroupAdvice:
    """`group.ledger` with the snapshots of its entries; without them nothing is said about the assignor.

    `partitions`: how many each topic has. Entries of before `since_ms` are not judged. Plans are made again, which may
    take seconds for a large group: not for an event loop.
    """
    record = read_record(group, partitions, now_ms, since_ms)
    replay = judge_assignor(record)
    found = [advice for kind in KINDS for advice in kind.adviser(record, replay)]
    kept = [advice for advice in found if advice.saves.share >= LEAST_SHARE]
    kept.sort(key=lambda advice: (-advice.saves.weight, -advice.saves.share))
    told = GroupAdvice(
        group_id=group.id,
        advice=tuple(kept),
        from_ms=record.since_ms if record.entries else now_ms,
        to_ms=now_ms,
        rebalances=record.rebalances,
        partition_seconds=round(record.seconds, 3),
        moves=record.moves,
        not_judged=(replay.problem,) if replay.problem else (),
        looked_at=describe_window(record),
    )
    rounds = list(record.rounds)
    del record
    while rounds:  # one by one: to free millions of owners at once would hold up all threads
        rounds.pop()
    return told


def describe_window(record: GroupRecord) -> str:
    if not record.rebalances:
        return "no rebalance on record"
    length = describe_length(record.facts.now_ms - record.since_ms)
    return f"{plural(record.rebalances, 'rebalance')} in {length}{describe_causes(record)}"


def describe_length(ms: int) -> str:
    """
    >>> describe_length(604_800_000), describe_length(5_400_000), describe_length(30_000)
    ('7 days', '2 hours', '1 minute')
    """
    for unit_ms, noun in ((DAY_MS, "day"), (HOUR_MS, "hour")):
        if ms >= 0.95 * unit_ms:
            return plural(round(ms / unit_ms), noun)
    return plural(max(1, round(ms / 60_000)), "minute")


INCIDENTS: Final = {
    "start": "start",
    "stop": "stop",
    "stop_and_start": "stop and start",
    "restart": "restart",
    "rolling_restart": "rolling restart",
    "crash_loop": "crash loop",
    "members_changed": "change of members",
    "storm": "storm of rebalances",
    "topic_change": "change of topics",
    "assignor_rollout": "roll-out of an assignor",
    "operator": "act of an operator",
    "instance_id_shared": "instance id used twice",
    "node_stall": "stall of the node",
    "failover": "change of the coordinator",
    "rebalance": "single rebalance",
}
PLURALS: Final = {
    "crash loop": "crash loops",
    "change of members": "changes of members",
    "storm of rebalances": "storms of rebalances",
    "change of topics": "changes of topics",
    "roll-out of an assignor": "roll-outs of assignors",
    "act of an operator": "acts of operators",
    "instance id used twice": "instance ids used twice",
    "stall of the node": "stalls of the node",
    "change of the coordinator": "changes of the coordinator",
}


def describe_causes(record: GroupRecord) -> str:
    """What the incidents were: ` (1 start and 2 rolling restarts)`."""
    found = find_incidents(record.entries, record.names, record.group.stalls, record.group.moves)
    kinds = Counter(INCIDENTS[each.kind] for each in found if each.rebalances)
    words = [name_incidents(kind, times) for kind, times in sorted(kinds.items(), key=lambda item: (-item[1], item[0]))]
    return f" ({listed(words)})" if words else ""


def name_incidents(kind: str, times: int) -> str:
    """
    >>> name_incidents("start", 2), name_incidents("change of topics", 1), name_incidents("change of topics", 3)
    ('2 starts', '1 change of topics', '3 changes of topics')
    """
    return plural(times, kind) if times == 1 or kind not in PLURALS else f"{times:,} {PLURALS[kind]}"
