"""The deterministic assignors on arrays: owner by partition from columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from muster.assignors.data.columns import NOBODY, SnapshotColumns

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
