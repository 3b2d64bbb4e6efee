"""What a node does by the clock: the log's periodic work, compaction, and a look at what is wrong."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

import structlog

from muster.coordinator.config import Settings
from muster.coordinator.runtime.conditions import Conditions
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.server.backend.disk_room import DiskRoom, WriteProbe
from muster.coordinator.server.backend.endings import DirectoryWatch
from muster.coordinator.server.driver.clock import NodeClock
from muster.coordinator.server.log_troubles import LogConditions
from muster.coordinator.server.troubles import (
    update_disk_room_condition,
    update_lost_explanations_condition,
    update_starved_condition,
    update_upkeep_condition,
    update_write_condition,
)
from muster.storage.broker.broker import Broker
from muster.storage.errors import StorageError
from muster.storage.logs.log import Log

if TYPE_CHECKING:
    from muster.coordinator.server.security.listeners import NodeCertificates

TICK_S = 1.0
"""How often the log does its periodic work."""

log = structlog.get_logger("muster.node")


class LossReporter(Protocol):
    def take_losses(self) -> list[str]:
        """See `BrokerGroupLog.take_losses`."""


class NodeUpkeep:
    """Two tasks on the loop that makes it, from then on until `stop`. What they find goes to the node's conditions;
    `fail` hears of what the node cannot go on with: it has no data directory any more."""

    def __init__(
        self,
        settings: Settings,
        clock: NodeClock,
        conditions: Conditions,
        broker: Broker,
        group_log: LossReporter,
        engine: Engine,
        fail: Callable[[BaseException], None],
        certificates: "NodeCertificates | None" = None,
    ) -> None:
        self._clock = clock
        self._conditions = conditions
        self._broker = broker
        self._group_log = group_log
        self._engine = engine
        self._pause_s = max(settings.cleaner_backoff_ms / 1000, TICK_S)
        self._fail = fail
        self._directory = DirectoryWatch(settings.data_dir)
        self._disk_room = DiskRoom(settings.data_dir, settings.log_dirs_free_warn_bytes)
        self._last_room, self._refusal = WriteProbe(settings.data_dir), ""
        self._log_troubles = LogConditions(broker.troubles, conditions)
        self._certificates = certificates
        if certificates is not None:
            certificates.start(conditions)
        self._tasks = (asyncio.create_task(self._tick()), asyncio.create_task(self._compact()))

    def stop(self) -> None:
        """Begin nothing more. A compaction's thread lets go of the log when the log is closed."""
        if self._certificates is not None:
            self._certificates.stop()
        for task in self._tasks:
            task.cancel()

    async def _tick(self) -> None:
        """Flushes by age, checkpoints and retention in a thread; what only the appending one may do, log by log."""
        await self._look_at_room()  # a node that starts on a full disk says so from the first second on
        while True:
            await asyncio.sleep(TICK_S)
            if (gone := await asyncio.to_thread(self._directory.gone)) is not None:
                self._fail(gone)
                return
            aged: list[Log] = []
            try:
                tick = partial(self._broker.tick, self._clock.now_ms(), compacting=False, aged=aged)
                complaints = await asyncio.to_thread(tick)
                for old in aged:
                    self._broker.roll_aged(old, self._clock.now_ms())
                    await asyncio.sleep(0)
            except Exception as error:  # whatever it was: what is due next must not be left undone for good
                log.error("the log's periodic work failed", exc_info=error)
                complaints = [repr(error)]
            update_upkeep_condition(self._conditions, complaints)
            await self._look_at_room()
            update_lost_explanations_condition(self._conditions, self._group_log.take_losses())
            update_starved_condition(self._conditions, self._engine.starved)
            self._log_troubles.carry()
            self._conditions.current()  # what has run out is told, though nobody asks

    async def _look_at_room(self) -> None:
        shortage = await asyncio.to_thread(self._disk_room.shortage)
        wanted = self._log_troubles.still_wanted()
        before, self._refusal = self._refusal, await asyncio.to_thread(self._last_room.refusal, wanted)
        update_disk_room_condition(self._conditions, shortage)
        if wanted and not self._refusal:
            self._log_troubles.found_room()
            before = before or "the log was refused room"
        update_write_condition(self._conditions, self._refusal, before)

    async def _compact(self) -> None:
        """One log at a time, in a thread: it may take minutes, and only the swap at its end holds up anybody."""
        while True:
            await asyncio.sleep(self._pause_s)
            try:
                await asyncio.to_thread(self._broker.compact, self._clock.now_ms())
            except (OSError, StorageError) as error:
                log.error("a log could not be compacted", why=str(error))
                update_upkeep_condition(self._conditions, [str(error)])
            except Exception as error:
                log.error("a log could not be compacted", exc_info=error)
                update_upkeep_condition(self._conditions, [repr(error)])
