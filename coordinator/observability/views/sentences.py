"""A ledger entry in sentences: what set it off, what became of which partitions, for whom it waited, who came back.

The command line, the page and the doctor say it in the same words. Names are those of `Names`; what others chose is
not made harmless here, for each door writes it differently.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from muster.coordinator.observability.views.formatting import NAMED, duration, listed, plural
from muster.coordinator.observability.views.ledger import is_watched
from muster.coordinator.observability.views.member_names import Names
from muster.coordinator.rpc.v1 import ledger_pb2
from muster.coordinator.rpc.v1.ledger_pb2 import (
    FurtherTrigger,
    Incarnation,
    LateFetch,
    PartitionMove,
    PhaseWait,
    Rebalance,
    RebalanceCause,
    RebalanceOutcome,
    RebalancePhase,
    TopicChange,
)

# One sentence
# ------------

TROUBLE, CHANGE, OPERATOR, FOLLOW_UP = "trouble", "change", "operator", "followup"
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
    "NODE_STALLED": (TROUBLE, "the node stood still, and {who} gave up", "the node stood still, and members gave up"),
    "PROTOCOLS_CHANGED": (CHANGE, "{who} offers other assignors", "a member offers other assignors"),
    "MEMBER_RESTARTED": (CHANGE, "{who} restarted", "a member restarted"),
    "INSTANCE_ID_SHARED": (
        TROUBLE, "{who} shares its group.instance.id with another process", "two processes share one group.instance.id",
    ),
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
    "MEMBER_CHANGED": "{detail}.",
}
"""What is no rebalance."""


ENDINGS: Final = ("MEMBER_LEFT", "SESSION_EXPIRED", "POLL_TIMEOUT")
"""Causes that a broker's records do not tell apart: a member is gone."""


SAID_BEST_BY_THEMSELVES: Final = ("CANARY",)
"""Causes of which the entry's own words tell more than any that stand here."""


def cause_name(entry: Rebalance | FurtherTrigger) -> str:
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
    if entry.topics and not entry.culprit:
        return " and ".join(map(describe_topic_change, entry.topics[:NAMED]))
    back = next((each for each in entry.incarnations if each.member_id == entry.culprit), None)
    if back is not None and cause_name(entry) == "MEMBER_JOINED":
        return describe_incarnation(back, names)
    if cause_name(entry) == "MEMBER_LEFT" and entry.certainty == ledger_pb2.CERTAINTY_UNKNOWN:
        return f"{names[entry.culprit]} left or stopped answering"
    _, by_whom, otherwise = CAUSES.get(cause_name(entry), (CHANGE, "", cause_word(cause_name(entry))))
    happened = by_whom.format(who=names[entry.culprit]) if entry.culprit and by_whom else otherwise
    inferred = is_watched(entry) and entry.certainty == ledger_pb2.CERTAINTY_INFERRED
    return f"probably {happened}" if inferred and cause_name(entry) in ENDINGS else happened


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


# For whom it waited
# ------------------

WAIT_ENDS: Final = {
    ledger_pb2.WAIT_END_JOINED: "",
    ledger_pb2.WAIT_END_EXPIRED: ", which never came: {it} expired",
    ledger_pb2.WAIT_END_LEFT: ", which left",
    ledger_pb2.WAIT_END_REPLACED: ", which a new process replaced",
    ledger_pb2.WAIT_END_NEVER: ", which had not come when it ended",
}
LAST_OF_PHASE: Final = {
    "join": "last to join",
    "plan": "planned by",
    "settle": "last to sync",
    "claim": "last to claim",
    "stop": "last to stop",
    "start": "last to start",
}
"""What entries of older versions say of a phase: who came last, however early that was."""
INITIAL_DELAY: Final = "initial delay"
PHASE_SETTINGS: Final = {INITIAL_DELAY: "group.initial.rebalance.delay.ms"}
"""Phases whose length a setting decides: nobody is waited for."""


def describe_waits(waits: Sequence[PhaseWait], names: Names) -> str:
    """How long a phase waited and for whom, those together whose wait ended alike; empty when nobody was waited for.

    >>> waits = [PhaseWait(member_id="a", came=1, after_ms=900), PhaseWait(member_id="b", came=2, after_ms=5000)]
    >>> describe_waits(waits, Names({}))
    'waited 5.00 s for b, which never came: it expired; waited 900 ms for a'
    """
    alike: dict[ledger_pb2.WaitEnd, list[PhaseWait]] = defaultdict(list)
    for wait in waits:
        alike[wait.came].append(wait)
    ordered = sorted(alike.items(), key=lambda each: -max(wait.after_ms for wait in each[1]))
    return "; ".join(
        f"waited {duration(max(wait.after_ms for wait in same))} for {listed([names[wait.member_id] for wait in same])}"
        + WAIT_ENDS[came].format(it="they" if len(same) > 1 else "it")
        for came, same in ordered
    )


def describe_phase_wait(phase: RebalancePhase, names: Names) -> str:
    """What is to be said of a phase beside its length; empty when that is nothing."""
    if phase.name in PHASE_SETTINGS:
        return PHASE_SETTINGS[phase.name]
    if phase.waits:
        return describe_waits(phase.waits, names)
    came = [names[member] for member in phase.waited_for if member]
    return f"{LAST_OF_PHASE.get(phase.name, 'waited for')} {came[-1]}" if came else ""


def longest_wait(entry: Rebalance) -> PhaseWait | None:
    """The wait that took longest; None where nobody was waited for, or an older version wrote the entry."""
    waits = (wait for phase in entry.phases for wait in phase.waits)
    return max(waits, key=lambda wait: wait.after_ms, default=None)


# Certainty, topics, who came back
# --------------------------------

TOPIC_CHANGES: Final = {
    ledger_pb2.TOPIC_CHANGE_KIND_MADE: "{topic} was created with {after}",
    ledger_pb2.TOPIC_CHANGE_KIND_GREW: "{topic} grew from {before} to {after}",
    ledger_pb2.TOPIC_CHANGE_KIND_DELETED: "{topic} was deleted",
    ledger_pb2.TOPIC_CHANGE_KIND_REMADE: "{topic} was deleted and created again with {after}",
}


def describe_certainty(entry: Rebalance, names: Names) -> str:
    """What a reader has to know of how the cause is known; empty where it is recorded."""
    if entry.certainty == ledger_pb2.CERTAINTY_INFERRED:
        word = "probably" if is_watched(entry) else "inferred"
        return f"{word}: {names.in_text(entry.evidence)}" if entry.evidence else word
    if entry.certainty == ledger_pb2.CERTAINTY_UNKNOWN:
        return f"unknown: {names.in_text(entry.evidence)}" if entry.evidence else "unknown"
    if entry.certainty == ledger_pb2.CERTAINTY_SAID:
        return f"the broker says: {names.in_text(entry.evidence)}"
    return ""


def describe_topic_change(change: TopicChange) -> str:
    """Without when and by whom.

    >>> describe_topic_change(TopicChange(topic="orders", kind=2, before=3, after=5))
    'orders grew from 3 to 5 partitions'
    """
    return TOPIC_CHANGES.get(change.kind, "{topic} changed").format(
        topic=change.topic, before=change.before, after=plural(change.after, "partition")
    )


def describe_incarnation(back: Incarnation, names: Names) -> str:
    """Who came back, and what became of the id before.

    >>> back = Incarnation(member_id="a-2", previous_id="a-1", away_ms=3000, how="left")
    >>> describe_incarnation(back, Names({}))
    'a-2 is back under a new id, 3.00 s after a-1 left'
    """
    new, old, away = names[back.member_id], names[back.previous_id], duration(back.away_ms)
    if back.how == "left":
        return f"{new} is back under a new id, {away} after {old} left"
    if back.how == "expired":
        return f"{new} is back under a new id; {old} had expired, last heard of {away} before"
    if back.how == "gone":
        return f"{new} is back under a new id, {away} after {old} was last heard of"
    if back.how == "replaced":
        return f"{new} took the place of {old}, last heard of {away} before"
    return f"{new} is back under a new id while {old} still counted, last heard of {away} before"


SAME_NAMES: Final = "inferred: a fetch names no member; no other member has this client id and host"


def describe_late_fetch(late: LateFetch, names: Names) -> str:
    """Who still read what it had lost.

    >>> late = LateFetch(member_id="b", topic="orders", partitions=[0, 1], after_ms=4200, certainty=1)
    >>> describe_late_fetch(late, Names({}))
    'b was gone, but its client still fetched orders-0 and orders-1 4.20 s later'
    """
    places = listed([f"{late.topic}-{partition}" for partition in late.partitions])
    known = late.certainty == ledger_pb2.CERTAINTY_RECORDED
    whose, how = ("its client", "") if known else ("its client id", f" ({SAME_NAMES})")
    return f"{names[late.member_id]} was gone, but {whose} still fetched {places} {duration(late.after_ms)} later{how}"
