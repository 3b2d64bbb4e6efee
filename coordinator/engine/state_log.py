"""The group log over the state topic: what turns decided waits for its number, what was read waits for its load.

Nothing here talks to Kafka: `Owning` does, by the rules of `coordinator.ownership`.
"""

from collections.abc import Iterable, Iterator, Sequence

from muster.coordinator.engine.writing import fitting
from muster.coordinator.ownership.facts import Record
from muster.coordinator.runtime.ports import Damage, Entry, KeyValue, LogFailed

LEDGER = b"{"
"""So begin the ledger's keys (S2)."""


class StateLog:
    """A `GroupLog`. Its `append` never waits: `Owning` is told of its number by the engine right after, and releases
    what rests on it once Kafka has acknowledged it."""

    def __init__(self, batch_bytes: int) -> None:
        """batch_bytes: what one batch has room for (S1)."""
        self.batch_bytes = batch_bytes
        self._turns: dict[int, list[Entry]] = {}
        self._read: dict[int, dict[bytes, KeyValue]] = {}

    # -- GroupLog ---------------------------------------------------------------------------------------------------

    def draft(self) -> list[Entry]:
        return []

    def append(self, shard: int, groups: Sequence[Entry], ledger: Sequence[Entry], now_ms: int) -> None:
        self._turns.setdefault(shard, []).extend(fitting(shard, groups, ledger, self.batch_bytes))

    def flush(self, shards: Sequence[int]) -> None:
        """Kafka's acknowledgements come by themselves (A5)."""

    def read_groups(self, shard: int) -> Iterator[KeyValue | Damage]:
        return (record for record in self._loaded(shard) if not record.key.startswith(LEDGER))

    def read_ledger(self, shard: int) -> Iterator[KeyValue | Damage]:
        return (record for record in self._loaded(shard) if record.key.startswith(LEDGER))

    def _loaded(self, shard: int) -> Iterable[KeyValue]:
        read = self._read.get(shard)
        if read is None:
            raise LogFailed(f"shard {shard} is not read yet")
        return read.values()

    # -- for Owning -------------------------------------------------------------------------------------------------

    def turn(self, shard: int) -> list[Entry]:
        """What was appended since the last call."""
        return self._turns.pop(shard, [])

    def begin(self, shard: int) -> None:
        """What counts of the shard is about to be told, from its start."""
        self._read[shard] = {}

    def hold(self, shard: int, records: Iterable[Record]) -> None:
        """These count, and are behind those before: of each key the newest is kept until the load."""
        read = self._read[shard]
        for record in records:
            key = record.key or b""
            read.pop(key, None)
            read[key] = KeyValue(key, record.value, record.offset)

    def ready(self, shard: int) -> None:
        """All that counts has been told, be it nothing."""
        self._read.setdefault(shard, {})

    def let_go(self, shard: int) -> None:
        """What was read is loaded, or nobody wants it any more."""
        self._read.pop(shard, None)
        self._turns.pop(shard, None)
