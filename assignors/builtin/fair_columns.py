"""The sticky assignors on arrays: `muster.assignors.builtin.fair` for groups too large to look at every partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.assignors.builtin import fast
from muster.assignors.builtin.fair import AlikeMembers, FlowExchange, MemberLevel, PartitionPool, member_levels
from muster.assignors.data.columns import NOBODY, SnapshotColumns

_SMALL = 50_000  # kept (topic, member) pairs; up to here the full network is cheaper than a first try
_FEW_HEIGHTS = 32


def sticky_owner(columns: SnapshotColumns) -> NDArray[np.int32]:
    """Owner by partition: even first, then few moves. Racks are not looked at."""
    if not len(columns.readers):
        return columns.owner
    if columns.alike:
        return fast.sticky_owner_alike(columns)
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
