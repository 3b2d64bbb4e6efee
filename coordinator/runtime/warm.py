"""A shard that another node leads, kept ready: its core takes in what is committed, as it comes (CL-G8).

Applying each record as it comes gives what a replay gives, which takes only the newest of each key: it is what the
leader's own core does. The two topics of a shard speak of different things, so how far one is ahead of the other makes
no difference. What a replay can pass over and this cannot (damage, a record that says nothing, facts that an older
version kept elsewhere) makes the core of no use: the shard is then loaded as if there were none.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

from muster.coordinator.core.model.core_records import DelayStored, OwnRecord
from muster.coordinator.core.model.records import CentralStored
from muster.coordinator.runtime.ledger import decode_ledger
from muster.coordinator.runtime.loader import (
    FORGOTTEN,
    GROUPS_TOPIC,
    LEDGER_TOPIC,
    TOMBSTONES,
    LoadReport,
    decode_records,
    group_offsets,
)
from muster.coordinator.runtime.loads import LoadJob
from muster.coordinator.runtime.ports import KeyValue, LogDamage, LogFailed
from muster.coordinator.runtime.slot import ShardCore

SLICE: Final = 400
"""Records of each topic between two pauses: some 5 ms of work."""


class CommittedTail(Protocol):
    """One topic of a shard, read from its first record on. All of it from any thread, one at a time."""

    def more(self, *, committed: bool) -> Iterator[KeyValue | LogDamage] | None:
        """The records that follow what was given before, a portion of them; None: that was all, for now. With
        `committed`, no record above the high watermark. Raises LogFailed."""

    @property
    def behind(self) -> bool:
        """Whether more is committed than was given. It takes no time."""

    def stands(self) -> bool:
        """Whether the log still has all that was given: nothing of it was cut away, and nothing begun anew."""


class WarmLog(Protocol):
    def tail(self, topic: str, shard: int) -> CommittedTail:
        """Raises LogFailed where this node has no such log."""

    def flush(self, shards: Sequence[int]) -> None:
        """See `GroupLog`."""


class UnfitForWarming(Exception):
    """What the log has cannot be taken in as it comes; the sentence says what it is."""


class WarmShard:
    """The core of a shard, and how far it is. `why` says, once it is of no use, what made it so."""

    def __init__(
        self,
        shard: int,
        core: ShardCore,
        log: WarmLog,
        lock: AbstractContextManager[object],
        tell: Callable[[int, str], None],
    ) -> None:
        """core: a new one. lock: keeps two threads from taking records in at once. tell: hears why the core is of no
        use, in any thread. Raises LogFailed where there is nothing to read."""
        self.shard = shard
        self.core = core
        self.report = LoadReport()
        self.why = ""
        self.cut = False
        """The log was cut below what was taken in, or begins anew (CL-F6): so must this."""
        self._log = log
        self._tell = tell
        self._groups = log.tail(GROUPS_TOPIC, shard)
        self._ledger = log.tail(LEDGER_TOPIC, shard)
        self._coming: dict[CommittedTail, Iterator[KeyValue | LogDamage]] = {}
        self._more = False
        self._lock = lock

    @property
    def useless(self) -> bool:
        return self.cut or bool(self.why)

    @property
    def behind(self) -> bool:
        """Whether more is committed than was taken in, as far as can be told at once."""
        return self._more or self._groups.behind or self._ledger.behind

    def take_some(self) -> bool:
        """A slice of what is committed, in any thread. Whether there may be more already."""
        with self._lock:
            self._more = self._guarded(lambda: self._slice(committed=True))
            return self._more

    def take_the_rest(self, given_up: Callable[[], bool]) -> bool:
        """All that there is (CL-G2), in any thread. False: it cannot be done, or nobody wants it any more."""
        with self._lock:
            return self._guarded(lambda: self._rest(given_up)) and not self.useless

    def _guarded(self, work: Callable[[], bool]) -> bool:
        """A mistake here costs no more than the time of a load."""
        if self.useless:
            return False
        try:
            return work()
        except (UnfitForWarming, LogFailed) as error:
            self.why = str(error)
        except Exception as error:
            self.why = f"a record cannot be applied: {error!r}"
        self._tell(self.shard, self.why)
        return False

    def _rest(self, given_up: Callable[[], bool]) -> bool:
        self._log.flush([self.shard])  # as before any replay
        while self._slice(committed=False):
            if given_up():
                return False
        return self._stands()

    def _stands(self) -> bool:
        self.cut = not (self._groups.stands() and self._ledger.stands())
        return not self.cut

    def _slice(self, *, committed: bool) -> bool:
        if not self._stands():
            return False
        groups = self._next(self._groups, committed)
        self._keep(groups)
        ledger = self._next(self._ledger, committed)
        self._explain(ledger)
        return bool(groups or ledger)

    def _next(self, tail: CommittedTail, committed: bool) -> list[KeyValue]:
        """Some records that follow; none: that was all, for now."""
        while True:
            some = list(islice(self._coming.get(tail, iter(())), SLICE))
            if some:
                return [require_sound(item) for item in some]
            portion = tail.more(committed=committed)
            if portion is None:
                return []
            self._coming[tail] = portion

    def _keep(self, items: list[KeyValue]) -> None:
        for record in group_offsets(items, f"{GROUPS_TOPIC}-{self.shard}", self.report):
            self.core.apply(record)
            self.report.tombstones += isinstance(record, TOMBSTONES)
        self._must_make_sense()

    def _explain(self, items: list[KeyValue]) -> None:
        for record in decode_records(items, decode_ledger, f"{LEDGER_TOPIC}-{self.shard}", self.report):
            if isinstance(record, CentralStored | DelayStored):
                raise UnfitForWarming(f"{LEDGER_TOPIC}-{self.shard} has facts that an older version kept there")
            self.report.ledger += 1
            if isinstance(record, OwnRecord):
                continue  # it ends what is not there
            self.core.apply(record)
            self.report.tombstones += isinstance(record, FORGOTTEN)
        self._must_make_sense()

    def _must_make_sense(self) -> None:
        if self.report.malformed:
            raise UnfitForWarming(self.report.complaints[0])


def require_sound(item: KeyValue | LogDamage) -> KeyValue:
    if isinstance(item, LogDamage):
        raise UnfitForWarming(f"offset {item.offset}: {item.sentence}")
    return item


@dataclass(eq=False, slots=True)
class WarmJob(LoadJob):
    """Takes the shard that was kept ready to the log's end; where that cannot be done, it is replayed into `core`."""

    warm: WarmShard | None = None

    def run(self) -> None:
        warm = self.warm
        if warm is not None and warm.take_the_rest(lambda: self.given_up):
            self.core, self.report = warm.core, warm.report
            self.report.committed_to = self.core.committed_to()
        else:
            LoadJob.run(self)
