"""How large a record can get: one place that says so, asked before a step changes anything.

A record that the log cannot take would cost every group of the shard what is not on record yet, so its size is
estimated, never too low, and held against `Limits.max_group_bytes`: a quarter of what one segment holds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from muster.coordinator.core.model.plan import Plan
from muster.coordinator.core.model.types import Limits, MemberPlan, PartitionMove, RebalanceEntry, Settlement
from muster.coordinator.errors import CoordinatorError

FIXED_BYTES = 64
"""Numbers and lengths of one element, at most."""

ENTRY_BYTES = 160
"""Field names, numbers and punctuation of one element in JSON, at most."""

PARTITION_BYTES = 12
"""A partition number, in binary or in JSON, with what parts it from the next."""

MAX_TOPIC_BYTES = 249

LAST_GENERATION = 2**31 - 1


def next_generation(generation: int) -> int:
    """The log has 32 bits for it; after the last number the count begins anew. Only equality is ever asked.

    >>> next_generation(7), next_generation(2**31 - 1)
    (8, 1)
    """
    return 1 if generation >= LAST_GENERATION else generation + 1


def check_fits_log(group_id: str, what: str, size: int, limits: Limits) -> None:
    """Refuse what would become a record that the log cannot take."""
    if size > limits.max_group_bytes:
        raise CoordinatorError(limits.too_large, too_large(group_id, what, size, limits))


def too_large(group_id: str, what: str, size: int, limits: Limits) -> str:
    return (
        f"{what} of group {group_id!r} have {size} bytes, at most {limits.max_group_bytes} are kept; "
        f"send less, or raise {limits.group_bytes_of}"
    )


def text_bytes(*texts: str | None) -> int:
    whole = "".join(filter(None, texts))
    return len(whole) if whole.isascii() else len(whole.encode("utf-8", "surrogatepass"))


def share_bytes(share: Mapping[str, Iterable[int]]) -> int:
    """One member's share, by topic."""
    return sum(
        text_bytes(topic) + FIXED_BYTES + PARTITION_BYTES * len(tuple(partitions))
        for topic, partitions in share.items()
    )


def largest_share(plan: Plan) -> int:
    return max((share_bytes(share) for share in plan.values()), default=0)


def shorten_entry(entry: RebalanceEntry, limit: int) -> RebalanceEntry:
    """The entry as far as it fits: explanations give way. What was left out is said in it."""
    if entry_bytes(entry) <= limit:
        return entry
    room, kept = limit // 4, 0
    for move in entry.moves:
        room -= move_bytes(move)
        if room < 0:
            break
        kept += 1
    said = f"{len(entry.moves) - kept} of {len(entry.moves)} moves and all shares are left out: the entry is too large"
    shares = sum(map(member_bytes, entry.members))
    shorter = replace(
        entry,
        moves=entry.moves[:kept],
        members=() if shares > limit // 4 else entry.members,
        also=(*entry.also, said),
    )
    if entry_bytes(shorter) > limit:
        untold = entry.more_positions + len(entry.positions)
        shorter = replace(
            shorter,
            positions=(),
            more_positions=untold,
            snapshot_json="",
            snapshot_source="left out: the entry is too large",
        )
    return shorter


def entry_bytes(entry: RebalanceEntry) -> int:
    words = text_bytes(entry.detail, entry.client_reason, entry.culprit, entry.culprit_client_id, entry.snapshot_json)
    return (
        1_024
        + 2 * words  # quotes within a snapshot are escaped
        + sum(map(move_bytes, entry.moves))
        + sum(map(member_bytes, entry.members))
        + sum(text_bytes(text) + FIXED_BYTES for text in entry.also)
        + sum(text_bytes(change.topic) + ENTRY_BYTES for change in entry.positions)
        + sum(text_bytes(phase.name, *phase.waited_for) + ENTRY_BYTES for phase in entry.phases)
    )


def move_bytes(move: PartitionMove) -> int:
    return text_bytes(move.topic, move.source, move.target, move.why) + ENTRY_BYTES


def member_bytes(member: MemberPlan) -> int:
    names = text_bytes(member.member_id, member.client_id, member.client_host, member.group_instance_id)
    shares = sum(text_bytes(topic) + FIXED_BYTES + PARTITION_BYTES * len(numbers) for topic, numbers in member.assigned)
    return names + ENTRY_BYTES + shares


def shorten_settlement(settlement: Settlement, limit: int) -> Settlement:
    """The settlement as far as it fits; the sum over all partitions stands, who had his share when goes first."""
    room = limit - 1_024 - sum(text_bytes(name) + FIXED_BYTES for name in settlement.waited_for)
    synced = sum(text_bytes(name) + FIXED_BYTES for name, _ in settlement.synced)
    if synced > room // 4:
        settlement = replace(settlement, synced=())
    else:
        room -= synced
    if len(settlement.unowned) * (ENTRY_BYTES + MAX_TOPIC_BYTES) <= room:
        return settlement
    kept = max(room, 0) // (ENTRY_BYTES + MAX_TOPIC_BYTES)
    return replace(settlement, unowned=settlement.unowned[:kept])
