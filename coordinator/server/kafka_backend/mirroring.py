"""KB-M4 on a node: its groups' positions, asked of its own driver, are committed upstream as well."""

from collections.abc import Callable, Mapping
from typing import Final

from muster.coordinator.config import Settings
from muster.coordinator.core.model import core_events, effects
from muster.coordinator.errors import NodeShuttingDown, Overloaded
from muster.coordinator.kafka_backend.mirror import GroupAway, OffsetMirror
from muster.coordinator.kafka_backend.state_log import StateLog
from muster.coordinator.kafka_backend.upstream.groups import UpstreamOffset
from muster.coordinator.kafka_backend.upstream.records import TopicPartition
from muster.coordinator.kafka_backend.upstream.upstream import Upstream
from muster.coordinator.runtime.conditions import Conditions
from muster.coordinator.runtime.router import partition_for
from muster.coordinator.server.driver.drive import EngineDriver
from muster.coordinator.server.kafka_backend.oddities import report_optional_bug, set_condition

BEHIND: Final = "offsets-not-mirrored"


class NodeOffsetMirror:
    """`start` and `stop`; `look` every now and then."""

    def __init__(
        self,
        settings: Settings,
        upstream: Upstream,
        log: StateLog,
        driver: EngineDriver,
        shards: int,
        now_ms: Callable[[], int],
    ) -> None:
        """log: tells what is appended from here on."""
        self._driver = driver
        self._shards = shards
        self._why = ""
        self.mirror = OffsetMirror(
            upstream,
            self._positions,
            now_ms=now_ms,
            interval_ms=settings.engine_kafka_offsets_mirror_interval_ms,
            on_trouble=self._troubled,
            on_bug=report_optional_bug("writing what groups have committed upstream"),
        )
        log.on_positions = self.mirror.written

    def start(self) -> None:
        self.mirror.start()

    async def stop(self) -> None:
        await self.mirror.stop()

    def lost(self, shard: int) -> None:
        """It is not this node's any more."""
        self.mirror.lost(shard)

    def look(self, conditions: Conditions) -> None:
        set_condition(conditions, BEHIND, self._why)

    def _troubled(self, sentence: str) -> None:
        self._why = sentence

    async def _positions(self, group: str) -> Mapping[TopicPartition, UpstreamOffset]:
        event = core_events.OffsetFetch(self._driver.next_id(), group, None)
        try:
            reply = await self._driver.ask(partition_for(group, self._shards), event, effects.OffsetFetchReply)
        except (Overloaded, NodeShuttingDown) as error:
            raise GroupAway(str(error)) from error
        if reply.code:
            raise GroupAway(reply.message)
        return {
            place: UpstreamOffset(each.offset, each.leader_epoch, each.metadata)
            for place, each in reply.offsets.items()
            if each is not None
        }
