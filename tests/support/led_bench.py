"""An engine whose shards other nodes could lead, driven by hand, with an authority that a test holds in its hands."""

from collections.abc import Collection

from muster.coordinator.core.model.effects import Reply
from muster.coordinator.core.model.events import Event
from muster.coordinator.core.model.types import Limits
from muster.coordinator.runtime.engine import EngineOptions
from muster.coordinator.runtime.leased import LeasedEngine
from muster.coordinator.runtime.ports import LogFailed
from muster.coordinator.runtime.shards import ShardStatus
from tests.fakes.memory_group_log import MemoryGroupLog
from tests.fakes.tiny_shard import TinyShard

TIMEOUT_MS = 5_000


class HeldAuthority:
    """Says yes until it is told otherwise."""

    def __init__(self) -> None:
        self.answers = True
        self.fires = True
        self.led = {0}
        self.positions: list[tuple[int, int]] = []
        self.kept: list[int] = []
        self.broken: list[int] = []

    def may_answer(self, shard: int) -> bool:
        return self.answers

    def may_fire(self, shard: int) -> bool:
        return self.fires

    def wrote(self, shard: int, position: int) -> None:
        self.positions.append((shard, position))

    def flushed(self, shards: Collection[int]) -> None:
        self.kept += shards

    def broke(self, shard: int, why: str) -> None:
        self.broken.append(shard)

    def leads(self, shard: int) -> bool:
        return shard in self.led


class LedBench:
    """Two shards; shard 0 is this node's and loaded. `told` is everything that was told since the last call."""

    def __init__(self, engine: type[LeasedEngine] = LeasedEngine, *, loads_elsewhere: bool = False) -> None:
        self.log = MemoryGroupLog(2)
        self.authority = HeldAuthority()
        self.bugs: list[str] = []
        self.changes: list[tuple[int, ShardStatus, str]] = []
        self.engine = engine(
            self.log,
            2,
            Limits(),
            TinyShard,
            authority=self.authority,
            commit_timeout_ms=TIMEOUT_MS,
            options=EngineOptions(
                on_bug=lambda script, error: self.bugs.append(f"{script} -> {error!r}"),
                on_status=lambda *change: self.changes.append(change),
                loads_elsewhere=loads_elsewhere,
            ),
        )
        self.engine.load_shard(0, 0)

    @property
    def core(self) -> TinyShard:
        core = self.engine.core(0)
        assert isinstance(core, TinyShard)
        return core

    def turn(self, now_ms: int, *asked: Event) -> list[tuple[int, Reply]]:
        for event in asked:
            assert self.engine.submit(0, event)
        self.engine.turn(now_ms)
        return self.told()

    def told(self) -> list[tuple[int, Reply]]:
        return self.engine.take_released().replies

    def flush(self, now_ms: int = 0) -> list[tuple[int, Reply]]:
        job = self.engine.flush_job()
        if job is not None:
            try:
                job.run()
            except LogFailed as error:
                self.engine.flush_failed(job, error, now_ms)
            else:
                self.engine.flushed(job, now_ms)
        return self.told()

    def commit(self, now_ms: int, position: int | None = None) -> list[tuple[int, Reply]]:
        """So many appends are committed; None: all there were."""
        self.engine.committed(0, self.authority.positions[-1][1] if position is None else position, now_ms)
        return self.told()
