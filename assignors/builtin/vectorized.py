"""The built-in assignors on arrays: owner by partition from columns, for groups too large to look at every partition.

Each gives the same answer as its plain form; tests compare them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.assignors.builtin.exact_balance import AlikeMembers, FlowExchange, MemberLevel, PartitionPool, member_levels
from muster.assignors.data.columns import NOBODY, SnapshotColumns

# Assignors that follow an order
# ------------------------------

_SAFE_TOTAL = 1 << 62


def range_owner(columns: SnapshotColumns) -> NDArray[np.int32]:
    """Range without racks."""
    start, member = columns.takers
    owner = np.empty(columns.axis.size, dtype=np.int32)
    base, counts = columns.axis.base.tolist(), columns.axis.counts.tolist()
    known: dict[tuple[int, bytes], NDArray[np.int32]] = {}
    alike = columns.alike
    for topic, (begin, end) in enumerate(zip(start[:-1].tolist(), start[1:].tolist(), strict=True)):
        takers = member[begin:end]
        key = (counts[topic], b"" if alike else takers.tobytes())
        if key not in known:
            known[key] = _runs(counts[topic], takers)
        owner[base[topic] : base[topic + 1]] = known[key]
    return owner


def _runs(count: int, takers: NDArray[np.int32]) -> NDArray[np.int32]:
    length, longer = divmod(count, len(takers))
    lengths = np.full(len(takers), length)
    lengths[:longer] += 1
    return np.repeat(takers, lengths)


def roundrobin_owner(columns: SnapshotColumns) -> NDArray[np.int32]:
    if columns.alike:
        readers = columns.readers
        if len(readers) == len(columns.members):
            return _turns(columns.axis.size, readers, 0)
    start, member = columns.takers
    owner = np.empty(columns.axis.size, dtype=np.int32)
    base, counts = columns.axis.base.tolist(), columns.axis.counts.tolist()
    turn = 0
    for topic, (begin, end) in enumerate(zip(start[:-1].tolist(), start[1:].tolist(), strict=True)):
        takers = member[begin:end]
        first = int(np.searchsorted(takers, turn)) % len(takers)
        owner[base[topic] : base[topic + 1]] = _turns(counts[topic], takers, first)
        turn = int(takers[(first + counts[topic] - 1) % len(takers)]) + 1
    return owner


def _turns(count: int, takers: NDArray[np.int32], first: int) -> NDArray[np.int32]:
    rounds = -(-(first + count) // len(takers))
    return np.tile(takers, rounds)[first : first + count]


def lag_owner(columns: SnapshotColumns, ranks: Sequence[int]) -> NDArray[np.int32] | None:
    """KAFKA-5337 on arrays; `ranks` are the members' places by id. None when totals may exceed 64 bits."""
    start, member = columns.takers
    by_id = np.array(ranks, dtype=np.int32)
    owner = np.empty(columns.axis.size, dtype=np.int32)
    base, lags = columns.axis.base.tolist(), columns.lags
    if len(lags) and int(lags.max()) > _SAFE_TOTAL // int(columns.axis.counts.max()):
        return None
    for topic, (begin, end) in enumerate(zip(start[:-1].tolist(), start[1:].tolist(), strict=True)):
        if topic == 0 or not columns.alike:
            takers = member[begin:end]
            takers = takers[np.argsort(by_id[takers])]
        row = lags[base[topic] : base[topic + 1]]
        heaviest = np.argsort(-row, kind="stable")
        owner[base[topic] + heaviest] = _rounds(row[heaviest], takers)
    return owner


def _rounds(falling: NDArray[np.int64], takers: NDArray[np.int32]) -> NDArray[np.int32]:
    """Takers of partitions sorted by falling lag: each round gives everyone one, least total first."""
    among = len(takers)
    out = np.empty(len(falling), dtype=np.int32)
    totals = np.zeros(among, dtype=np.int64)
    for begin in range(0, len(falling), among):
        dealt = falling[begin : begin + among]
        turn = np.argsort(totals, kind="stable")[: len(dealt)]
        out[begin : begin + among] = takers[turn]
        totals[turn] += dealt
    return out


def sticky_owner_alike(columns: SnapshotColumns) -> NDArray[np.int32]:
    """Equal subscriptions, no racks: quotas give the optimum; same rules as `sticky.share_alike`."""
    readers = columns.readers
    owner = columns.owner
    quota, extras = divmod(columns.axis.size, len(readers))
    loads = np.bincount(owner + 1, minlength=len(columns.members) + 1)[1:][readers]
    caps = np.full(len(readers), quota, dtype=np.int64)
    if extras:
        caps[np.flatnonzero(loads > quota)[:extras]] += 1
    if (loads > caps).any():
        owner = owner.copy()
        _let_go(columns, owner, readers, loads, caps)
    needs = quota - np.minimum(loads, caps)
    free = np.flatnonzero(owner == NOBODY)
    if not len(free):
        return owner
    if owner is columns.owner:
        owner = owner.copy()
    left = len(free) - int(np.maximum(needs, 0).sum())
    at_quota = np.flatnonzero(needs >= 0)[:left]
    owner[free] = readers[np.concatenate((_deal_rounds(needs), at_quota))]
    return owner


def _let_go(
    columns: SnapshotColumns,
    owner: NDArray[np.int32],
    readers: NDArray[np.int32],
    loads: NDArray[np.intp],
    caps: NDArray[np.int64],
) -> None:
    """Free what lies above the caps: the lowest partitions stay, whatever their topic (KAFKA-16277)."""
    heavy = np.flatnonzero(loads > caps)
    rank = np.full(len(columns.members) + 1, NOBODY, dtype=np.int64)  # the last is for owner -1
    rank[readers[heavy]] = np.arange(len(heavy))
    whose = rank[owner]
    where = np.flatnonzero(whose >= 0)
    topic = columns.axis.topic_of[where].astype(np.int64)
    topics = len(columns.axis.topics)
    longest = int(columns.axis.counts.max())
    partition = where - columns.axis.base[topic]
    keys = np.sort((whose[where] * longest + partition) * topics + topic)
    lengths, kept = loads[heavy], caps[heavy]
    ends = np.cumsum(lengths)
    drop = np.arange(len(keys)) >= np.repeat(ends - lengths + kept, lengths)
    keys = keys[drop]
    owner[columns.axis.base[keys % topics] + keys // topics % longest] = NOBODY


def _deal_rounds(needs: NDArray[np.int64]) -> NDArray[np.intp]:
    """Whose turn it is: one each to all who need any, again and again until no one does."""
    hungry = np.flatnonzero(needs > 0)
    if not len(hungry):
        return hungry
    wants = needs[hungry]
    common = int(wants.min())
    dealt = [np.tile(hungry, common)]
    wants = wants - common
    if wants.any():
        members = np.repeat(hungry, wants)
        ends = np.cumsum(wants)
        rounds = np.arange(len(members)) - np.repeat(ends - wants, wants)
        small = rounds.astype(np.uint16) if int(wants.max()) < 0xFFFF else rounds
        dealt.append(members[np.argsort(small, kind="stable")])
    return np.concatenate(dealt)


def legacy_owner(columns: SnapshotColumns, ranks: Sequence[int], hashes: Sequence[int]) -> NDArray[np.int32]:
    """Equal subscriptions: partitions by the hash of "[topic,partition]", dealt to the readers by id.

    `hashes` are those of "[topic,", by topic; `ranks` the members' places by id.
    """
    by_id = np.array(ranks, dtype=np.int32)
    readers = columns.readers[np.argsort(by_id[columns.readers])]
    longest = int(columns.axis.counts.max())
    digits, powers = _digit_hashes(longest)
    partition = np.arange(columns.axis.size) - np.repeat(columns.axis.base[:-1], columns.axis.counts)
    start = np.array(hashes, dtype=np.int64)[columns.axis.topic_of]
    # Java's ints wrap around; so does the cast to 32 bits.
    opened = ((start & 0xFFFFFFFF) * powers[partition] + digits[partition]) & 0xFFFFFFFF
    value = (opened * 31 + ord("]")).astype(np.uint32).astype(np.int32)
    owner = np.empty(columns.axis.size, dtype=np.int32)
    owner[np.argsort(value, kind="stable")] = _turns(columns.axis.size, readers, 0)
    return owner


def _digit_hashes(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Hashes of "0", "1", .. and 31 to the power of their lengths, modulo 2 to the 32."""
    hashes = np.zeros(count, dtype=np.int64)
    powers = np.ones(count, dtype=np.int64)
    numbers = np.arange(count, dtype=np.int64)
    for place in range(len(str(count)) - 1, -1, -1):
        here = (numbers >= 10**place) | (place == 0)
        digit = numbers // 10**place % 10 + ord("0")
        hashes[here] = (hashes[here] * 31 + digit[here]) & 0xFFFFFFFF
        powers[here] = powers[here] * 31 & 0xFFFFFFFF
    return hashes, powers


# The sticky ones
# ---------------

_SMALL = 50_000  # kept (topic, member) pairs; up to here the full network is cheaper than a first try
_FEW_HEIGHTS = 32


def sticky_owner(columns: SnapshotColumns) -> NDArray[np.int32]:
    """Owner by partition: even first, then few moves. Racks are not looked at."""
    if not len(columns.readers):
        return columns.owner
    if columns.alike:
        return sticky_owner_alike(columns)
    free = int((columns.owner == NOBODY).sum())
    loads = np.bincount(columns.owner + 1, minlength=len(columns.members) + 1)[1:]
    if not free and int(np.ptp(loads[columns.readers])) <= 1:
        return columns.owner
    if not free and _no_path_down(columns, loads):
        return columns.owner
    groups = _groups(columns)
    pools = [PartitionPool(topic, None, count) for topic, count in enumerate(columns.axis.counts.tolist())]
    levels, guide = member_levels(pools, groups, _lying(columns))
    if not free and _settled(loads, levels):
        return columns.owner
    exchange = _cheapest(columns, pools, groups, levels, guide, loads)
    return _carried_out(columns, exchange)


def _no_path_down(columns: SnapshotColumns, loads: NDArray[np.intp]) -> bool:
    """Whether no chain of moves leads from a member to one with two fewer: then the loads are the fairest."""
    heights = np.unique(loads[columns.readers])
    if len(heights) > _FEW_HEIGHTS:
        return False
    topics, members = len(columns.axis.topics), len(columns.members)
    held = columns.owner.astype(np.int64) * topics + columns.axis.topic_of
    held = np.unique(held)
    holder, topic = held // topics, held % topics
    start, taker = columns.takers
    read = np.repeat(np.arange(topics), np.diff(start))
    for height in heights[::-1]:
        reached = np.zeros(members, dtype=np.bool_)
        reached[columns.readers] = loads[columns.readers] >= height
        before = 0
        while (now := int(reached.sum())) > before:
            before = now
            open_topics = np.zeros(topics, dtype=np.bool_)
            open_topics[topic[reached[holder]]] = True
            reached[taker[open_topics[read]]] = True
        if int(loads[reached].min()) < height - 1:
            return False
    return True


def _groups(columns: SnapshotColumns) -> list[AlikeMembers]:
    by_kind: dict[int, list[int]] = {}
    for member, kind in enumerate(columns.subscription_of.tolist()):
        if len(columns.subscriptions[kind]):
            by_kind.setdefault(kind, []).append(member)
    # Kinds are counted anew: those that nobody reads or that are empty have no group.
    return [
        AlikeMembers(number, tuple(columns.subscriptions[kind].tolist()), None, members)
        for number, (kind, members) in enumerate(by_kind.items())
    ]


def _lying(columns: SnapshotColumns) -> list[dict[int, int]]:
    """Units of each topic by the kind of subscription that holds them; kinds as in `_groups`."""
    out: list[dict[int, int]] = [{} for _ in columns.axis.topics]
    owned = np.flatnonzero(columns.owner != NOBODY)
    if not len(owned):
        return out
    number: dict[int, int] = {}
    for kind in columns.subscription_of.tolist():
        if len(columns.subscriptions[kind]):
            number.setdefault(kind, len(number))
    kinds = len(columns.subscriptions)
    keys = columns.axis.topic_of[owned].astype(np.int64) * kinds
    keys += columns.subscription_of[columns.owner[owned]]
    for key, count in _counted(keys, len(out) * kinds):
        out[key // kinds][number[key % kinds]] = count
    return out


def _counted(keys: NDArray[np.int64], limit: int) -> list[tuple[int, int]]:
    """Each key with how often it occurs."""
    if limit <= 1 << 22:
        counts = np.bincount(keys, minlength=limit)
        found: NDArray[Any] = np.flatnonzero(counts)
        return list(zip(found.tolist(), counts[found].tolist(), strict=True))
    found, counts = np.unique(keys, return_counts=True)
    return list(zip(found.tolist(), counts.tolist(), strict=True))


def _settled(loads: NDArray[np.intp], levels: Sequence[MemberLevel]) -> bool:
    """Whether these loads are already the fairest."""
    for members, floor, extras in levels:
        above = loads[members] - floor
        if int(above.min()) < 0 or int(above.max()) > 1 or int(above.sum()) != extras:
            return False
    return True


def _cheapest(
    columns: SnapshotColumns,
    pools: Sequence[PartitionPool],
    groups: Sequence[AlikeMembers],
    levels: Sequence[MemberLevel],
    guide: list[dict[int, int]],
    loads: NDArray[np.intp],
) -> FlowExchange:
    """The exchange with the fewest moves.

    First with only those as givers who have more than their floor. If that moves no more than
    must be moved, it is optimal; else everybody may give.
    """
    givers: set[int] = set()
    unavoidable = 0
    for members, floor, extras in levels:
        above = loads[members] - floor
        givers.update(np.asarray(members)[above > 0].tolist())
        unavoidable += int(np.maximum(above - 1, 0).sum()) + max(0, int((above > 0).sum()) - extras)
    _keep(columns, pools)
    everyone = sum(len(group.members) for group in groups)
    if len(givers) < everyone and sum(len(pool.kept) for pool in pools) > _SMALL:
        copied = [dict(row) for row in guide]
        exchange = FlowExchange(pools, groups, len(columns.members), levels, copied, frozenset(givers))
        exchange.net.run()
        moved = sum(pools[pool].kept[member] - stay for pool, member, stay in exchange.staying())
        if moved <= unavoidable and exchange.done():
            return exchange
    exchange = FlowExchange(pools, groups, len(columns.members), levels, guide)
    exchange.net.run()
    return exchange


def _keep(columns: SnapshotColumns, pools: Sequence[PartitionPool]) -> None:
    owned = np.flatnonzero(columns.owner != NOBODY)
    members = len(columns.members)
    keys = columns.axis.topic_of[owned].astype(np.int64) * members + columns.owner[owned]
    for key, count in _counted(keys, len(pools) * members):
        pools[key // members].kept[key % members] = count


def _carried_out(columns: SnapshotColumns, exchange: FlowExchange) -> NDArray[np.int32]:
    owner = columns.owner.copy()
    base = columns.axis.base
    for pool, member, stay in exchange.staying():
        if stay < exchange.pools[pool].kept[member]:
            row = owner[base[pool] : base[pool + 1]]
            row[np.flatnonzero(row == member)[stay:]] = NOBODY
    takers: dict[int, list[int]] = {}
    for pool, member in exchange.gains():
        takers.setdefault(pool, []).append(member)
    for pool, members in takers.items():
        row = owner[base[pool] : base[pool + 1]]
        row[np.flatnonzero(row == NOBODY)] = members
    return owner
