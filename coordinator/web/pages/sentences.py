"""A rebalance in one sentence of plain words: who set it off, and what became of whose partitions."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from muster.coordinator.observability.views.formatting import Names, plural
from muster.coordinator.rpc.v1.ledger_pb2 import PartitionMove, Rebalance, RebalanceCause, RebalanceOutcome

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
