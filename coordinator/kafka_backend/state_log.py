"""The group log over the state topic: decided turns wait for their number, replayed records wait for their load.

A turn becomes one batch, encoded once, because the same bytes must be sent again after an unknown outcome (KB-S1,
KB-A2). A ledger entry that is too large is cut; a group's record that is too large is refused (KB-S3). Nothing here
talks to Kafka: `ShardOwner` does, by the rules of `shard_ownership/`.
"""

import asyncio
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, TypeAlias

from muster.coordinator.kafka_backend.shard_ownership.append_queues import RECORD_BYTES
from muster.coordinator.kafka_backend.shard_ownership.shard_log import MeasuredRecords, ShardBatch, ShardRecord
from muster.coordinator.runtime.ports import Entry, KeyValue, LogDamage, LogFailed, LogWithoutTransactions
from muster.storage.records.batch import encode_written

# Batches as bytes, and what no batch has room for (KB-S1, KB-S3)
# ---------------------------------------------------------------

COMPRESSED_FROM: Final = 1 << 10
CODEC: Final = "zstd"
LARGE_BYTES: Final = 256 << 10
MANY_RECORDS: Final = 1_000
"""From so much, or so many, on batches are made in a thread."""
LEFT_OUT: Final = frozenset({"snapshot", "plan"})
"""Of a ledger entry that is too large: the most of it, and what can be done without."""


def wire_of(batch: ShardBatch, timestamp_ms: int) -> bytes:
    """The batch's bytes: made once, for the same must be sent again (KB-A2)."""
    if batch.wire is None:
        codec = CODEC if batch.size >= COMPRESSED_FROM else "none"
        batch.wire = encode_written(
            batch.records,
            timestamp_ms,
            producer=(*batch.producer, batch.sequence),
            codec=codec,
            transactional=bool(batch.transactional_id),
        )
    return batch.wire


def are_large(batches: Sequence[ShardBatch]) -> bool:
    """Whether making their bytes takes so long that a thread should."""
    records = size = 0
    for batch in batches:
        if batch.wire is None:
            records, size = records + len(batch.records), size + batch.size
    return records > MANY_RECORDS or size > LARGE_BYTES


def wires_of(batches: Sequence[ShardBatch], stamp_ms: int) -> dict[int, bytes]:
    """Their bytes, by shard."""
    return {batch.shard: wire_of(batch, stamp_ms) for batch in batches}


async def encode_batches(batches: Sequence[ShardBatch], stamp_ms: int) -> dict[int, bytes]:
    """The same, of any size."""
    return await asyncio.to_thread(wires_of, batches, stamp_ms) if are_large(batches) else wires_of(batches, stamp_ms)


def size_of(entry: Entry) -> int:
    return len(entry[0]) + len(entry[1] or b"")


class RecordTooLarge(LogFailed):
    """Records of these groups have no room in any batch (KB-S3)."""

    def __init__(self, sentence: str, groups: frozenset[str]) -> None:
        super().__init__(sentence)
        self.groups = groups


def fit_turn(shard: int, groups: Sequence[Entry], ledger: Sequence[Entry], most: int) -> MeasuredRecords:
    """What one turn writes, the ledger's records first and the group's last (KB-S1).

    An entry of the ledger that alone is too large is cut short. Raises RecordTooLarge for a group's record that is:
    nothing of the turn is kept then.
    """
    check_room(shard, groups, most)
    turn = MeasuredRecords(
        [each if size_of(each) + RECORD_BYTES <= most else cut_ledger_entry(each, most) for each in ledger]
    )
    turn.extend(groups)
    return turn


def check_room(shard: int, groups: Sequence[Entry], most: int) -> None:
    """Raises RecordTooLarge."""
    if isinstance(groups, MeasuredRecords) and groups.largest + RECORD_BYTES <= most:
        return
    large = [entry for entry in groups if size_of(entry) + RECORD_BYTES > most]
    if large:
        names = frozenset(map(group_of, large))
        raise RecordTooLarge(
            f"a record of group {min(names)!r} of shard {shard} takes {size_of(large[0])} bytes, and the state topic "
            f"has room for {most - RECORD_BYTES} in one; raise max.message.bytes of that topic, or keep groups smaller",
            names,
        )


def group_of(entry: Entry) -> str:
    """Whose record it is: each key of a group's says so behind its kind.

    >>> group_of((b"\\0\\2\\0\\1g", None, -1)), group_of((b"\\0", None, -1))
    ('g', '')
    """
    key = entry[0]
    size = int.from_bytes(key[2:4], "big")
    return key[4 : 4 + size].decode("utf-8", "replace")


def cut_ledger_entry(entry: Entry, most: int) -> Entry:
    """A ledger's entry without snapshot and plan; one that cannot be cut so far is left out as a whole."""
    key, value, _ = entry
    told = json.loads(value or b"{}")
    body = told.get("entry")
    if isinstance(body, dict):
        told["entry"] = {name: each for name, each in body.items() if name not in LEFT_OUT}
    short = json.dumps(told | {"cut": True}, separators=(",", ":")).encode()
    return key, short if len(key) + len(short) + RECORD_BYTES <= most else None, -1


# The group log
# -------------

LEDGER = b"{"
"""So begin the ledger's keys (KB-S2)."""

SETTLED = (32_255).to_bytes(2, "big")
"""So begin keys of groups of which nothing is to be taken over from the upstream by itself any more (KB-M2): a kind of
hard facts that only this room knows."""

OnPositions: TypeAlias = Callable[[int, Collection[str]], None]

THIN_OUT_FROM = 500_000
"""Records of a shard, from which on those that a later one of their key replaces are let go of while it is read. The
loader does so in any case: below that it would be done twice."""


class ReplayedRecords:
    """What counts of a shard, as it was read. Of each key only the newest is kept once there is much of it, and
    somebody calls `thin_out`."""

    __slots__ = ("_count", "_most", "_portions")

    def __init__(self) -> None:
        self._portions: list[Sequence[ShardRecord]] = []
        self._count = 0
        self._most = THIN_OUT_FROM

    def add(self, records: Sequence[ShardRecord]) -> None:
        self._portions.append(records)
        self._count += len(records)

    def select_records(self, *, ledger: bool) -> Iterator[KeyValue]:
        """The ledger's, or all others."""
        return (
            KeyValue(record.key or b"", record.value, record.offset)
            for records in self._portions
            for record in records
            if ((record.key or b"")[:1] == LEDGER) is ledger
        )

    @property
    def much(self) -> bool:
        return self._count > self._most

    def thin_out(self) -> None:
        """For any thread, while nothing is added: it takes its time."""
        newest: dict[bytes, ShardRecord] = {}
        for records in self._portions:
            for record in records:
                key = record.key or b""
                newest.pop(key, None)
                newest[key] = record
        self._portions = [list(newest.values())]
        self._count = len(newest)
        self._most = max(THIN_OUT_FROM, 2 * self._count)


class StateLog(LogWithoutTransactions):
    """A `GroupLog`. Its `append` never waits: `ShardOwner` is told of its number by the engine right after, and
    releases what rests on it once Kafka has acknowledged it."""

    def __init__(self, batch_bytes: int) -> None:
        """batch_bytes: what one batch has room for (KB-S1)."""
        self.batch_bytes = batch_bytes
        self.on_positions: OnPositions | None = None
        """Hears whose positions each turn changes."""
        self._turns: dict[int, MeasuredRecords] = {}
        self._read: dict[int, ReplayedRecords] = {}
        self._settled: dict[int, set[str]] = {}
        self._beside: dict[int, list[Entry]] = {}

    # -- GroupLog ---------------------------------------------------------------------------------------------------

    def draft(self) -> list[Entry]:
        return MeasuredRecords()

    def append(self, shard: int, groups: Sequence[Entry], ledger: Sequence[Entry], now_ms: int) -> None:
        fits = fit_turn(shard, groups, ledger, self.batch_bytes)
        fits.extend(self._beside.pop(shard, ()))
        before = self._turns.setdefault(shard, fits)
        if before is not fits:
            before.extend(fits)

    def check_room(self, shard: int, groups: Sequence[Entry]) -> None:
        """Raises RecordTooLarge for what `append` would refuse, of which group it is."""
        check_room(shard, groups, self.batch_bytes)

    def flush(self, shards: Sequence[int]) -> None:
        """Kafka's acknowledgements come by themselves (KB-A5)."""

    def read_groups(self, shard: int) -> Iterator[KeyValue | LogDamage]:
        """Raises LogFailed. What only this room knows is put aside on the way."""
        read = self._loaded(shard).select_records(ledger=False)
        settled = self._settled[shard] = set()
        return (each for each in read if not settles(settled, each))

    def read_ledger(self, shard: int) -> Iterator[KeyValue | LogDamage]:
        return self._loaded(shard).select_records(ledger=True)

    def _loaded(self, shard: int) -> ReplayedRecords:
        read = self._read.get(shard)
        if read is None:
            raise LogFailed(f"shard {shard} is not read yet")
        return read

    # -- for Owning -------------------------------------------------------------------------------------------------

    def turn(self, shard: int) -> MeasuredRecords:
        """What was appended since the last call."""
        return self._turns.pop(shard, None) or MeasuredRecords()

    def begin_shard(self, shard: int) -> None:
        """What counts of the shard is about to be told, from its start."""
        self._read[shard] = ReplayedRecords()
        self._settled.pop(shard, None)
        self._beside.pop(shard, None)

    def hold(self, shard: int, records: Sequence[ShardRecord]) -> None:
        """These count, and are behind those before; kept until the load."""
        self._read[shard].add(records)

    def much(self, shard: int) -> ReplayedRecords | None:
        """What was read of a shard, where it is time to let go of what is replaced."""
        read = self._read.get(shard)
        return read if read is not None and read.much else None

    def ready(self, shard: int) -> None:
        """All that counts has been told, be it nothing."""
        self._read.setdefault(shard, ReplayedRecords())

    def let_go(self, shard: int) -> None:
        """What was read is loaded, or nobody wants it any more."""
        self._read.pop(shard, None)
        self._turns.pop(shard, None)

    # -- groups that are settled ------------------------------------------------------------------------------------

    def is_settled(self, shard: int, group: str) -> bool:
        return group in self._settled.get(shard, ())

    def settle(self, shard: int, group: str) -> None:
        """It is, and written with what the shard writes next."""
        if not self.is_settled(shard, group):
            self._settled.setdefault(shard, set()).add(group)
            self._beside.setdefault(shard, []).append((SETTLED + group.encode(), b"1", -1))

    def unsettle(self, shard: int, group: str) -> None:
        """It could not be done after all."""
        if self.is_settled(shard, group):
            self._settled[shard].discard(group)
            self._beside.setdefault(shard, []).append((SETTLED + group.encode(), None, -1))


def settles(settled: set[str], record: KeyValue) -> bool:
    """Whether it says that a group is settled, or no more: then it is noted."""
    if record.key[:2] != SETTLED:
        return False
    group = record.key[2:].decode(errors="replace")
    if record.value is None:
        settled.discard(group)
    else:
        settled.add(group)
    return True
