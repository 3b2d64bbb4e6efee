"""Groups taken over from the upstream on first use, and groups whose offsets are mirrored back to it.

A group that is unknown here and has offsets upstream is adopted when it is first asked for (KB-M2): its clients
changed an address and nothing else, and continue where they were. While a member still reads in it upstream it is
refused here, or each record would be read twice. A group that was taken over once, or deleted here, is never taken
over by itself again.

The mirror fetches committed offsets from this node's own driver, and commits them upstream as well (KB-M4).
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import structlog

from muster.assignors.api import TopicPartition
from muster.coordinator.config import Settings
from muster.coordinator.core.model import effects, events
from muster.coordinator.core.model.types import CommittedOffset
from muster.coordinator.core.shard import Shard
from muster.coordinator.edge.background_tasks import SupervisedTasks
from muster.coordinator.errors import ErrorCode, NodeShuttingDown, Overloaded
from muster.coordinator.kafka_backend.offset_migration import RELEASED, GroupAway, OffsetMirror, first_names
from muster.coordinator.kafka_backend.state_log import StateLog
from muster.coordinator.kafka_backend.upstream import group_requests
from muster.coordinator.kafka_backend.upstream.group_requests import UpstreamOffset
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamError
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.runtime.shards import partition_for
from muster.coordinator.server.driver.driver import EngineDriver
from muster.coordinator.server.kafka_backend.gated_engine import AdoptionVerdict, GatedEngine
from muster.coordinator.server.kafka_backend.upstream_diagnostics import report_optional_bug, set_condition

# Adoption on first use (KB-M2)
# -----------------------------

SERVED_MS: Final = 10_000
"""So long it is not asked again for a group that has nothing upstream, and is not known here either."""

REFUSED_MS: Final = 2_000
"""So long a refusal stands: clients ask again all the time."""

PATIENCE_S: Final = 5.0
MOST_REMEMBERED: Final = 10_000

OPERATOR: Final = "Muster, which takes the group over from the upstream"

SERVED: Final = AdoptionVerdict(ErrorCode.NONE)

log = structlog.get_logger("muster.engine")


class RememberedVerdict(NamedTuple):
    said: AdoptionVerdict
    until_ms: int


class GroupAdoption:
    """Asked by the engine of groups that it does not know; all in the node's loop."""

    def __init__(
        self,
        upstream: Upstream,
        partitions: Callable[[], Mapping[str, int]],
        state: StateLog,
        engine: GatedEngine,
        driver: EngineDriver,
        now_ms: Callable[[], int],
    ) -> None:
        """partitions: of the upstream's topics."""
        self._upstream = upstream
        self._partitions = partitions
        self._state = state
        self._engine = engine
        self._driver = driver
        self._now_ms = now_ms
        self._verdicts: dict[str, RememberedVerdict] = {}
        self._tasks = SupervisedTasks(report_optional_bug("adopting a group from the upstream"))

    async def stop(self) -> None:
        await self._tasks.close()

    # -- what the engine asks -----------------------------------------------------------------------------------------

    def verdict_of(self, shard: int, group: str) -> AdoptionVerdict | None:
        if self._state.is_settled(shard, group):
            return SERVED
        core = self._engine.core(shard)
        if isinstance(core, Shard) and core.state.offsets.get(group):
            return SERVED
        verdict = self._verdicts.get(group)
        return None if verdict is None or verdict.until_ms <= self._now_ms() else verdict.said

    def look_up_group(self, shard: int, group: str) -> None:
        self._tasks.start(self._find_verdict(shard, group))

    def deleted(self, shard: int, group: str, by: str) -> None:
        """What was given back may be taken over again, and nothing else that was deleted."""
        core = self._engine.core(shard)
        if RELEASED in by:
            self._state.unsettle(shard, group)
        elif isinstance(core, Shard) and (core.knows(group, None) or group in core.state.offsets):
            self._state.settle(shard, group)

    def adopted(self, shard: int, group: str) -> None:
        """Not again by itself, when its positions here have expired or were taken away."""
        self._state.settle(shard, group)

    # -- asking the upstream ------------------------------------------------------------------------------------------

    async def _find_verdict(self, shard: int, group: str) -> None:
        said = AdoptionVerdict(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, "whether the upstream knows the group is not known yet"
        )
        try:
            async with asyncio.timeout(PATIENCE_S):
                said = await self._looked(shard, group)
        except (UpstreamError, TimeoutError, Overloaded, NodeShuttingDown) as error:
            # Members are clients: where the upstream is, is for the log alone.
            said = said._replace(message=f"what the upstream has of the group {group} cannot be told; ask again")
            log.warning("a group waits", group=group, why=str(error) or "the upstream does not answer in time")
        finally:
            self._remember(group, said)
            self._engine.release_group(shard, group)
            self._driver.wake()

    async def _looked(self, shard: int, group: str) -> AdoptionVerdict:
        there = await group_requests.fetch_offsets(self._upstream, group)
        if not there:
            return SERVED
        members = (await group_requests.describe_group(self._upstream, group)).members
        if members:
            named = first_names([f"{each.client_id or each.id} at {each.host}" for each in members])
            why = f"the group {group} has members in the upstream itself: {named}; it is served here once they are gone"
            log.warning("a group waits", group=group, why=why)
            return AdoptionVerdict(ErrorCode.COORDINATOR_NOT_AVAILABLE, why)
        counts = self._partitions()
        known = {
            place: CommittedOffset(*position) for place, position in there.items() if place[1] < counts.get(place[0], 0)
        }
        if not known:
            return SERVED
        self._state.settle(shard, group)
        commit = events.OffsetCommit(
            self._driver.next_id(), group, "", None, -1, known, operator=OPERATOR, by_tool=True
        )
        reply = await self._driver.ask_shard(shard, commit, effects.OffsetCommitReply)
        code = next((each for each in (reply.code, *reply.partitions.values()) if each), ErrorCode.NONE)
        if code:
            self._state.unsettle(shard, group)
            return AdoptionVerdict(ErrorCode.COORDINATOR_NOT_AVAILABLE, reply.message or code.meaning)
        log.info("a group was adopted from the upstream", group=group, positions=len(known))
        return SERVED

    def _remember(self, group: str, said: AdoptionVerdict) -> None:
        now_ms = self._now_ms()
        if len(self._verdicts) >= MOST_REMEMBERED:
            self._verdicts = {name: each for name, each in self._verdicts.items() if each.until_ms > now_ms}
        if len(self._verdicts) >= MOST_REMEMBERED:
            self._verdicts.clear()
        self._verdicts[group] = RememberedVerdict(said, now_ms + (REFUSED_MS if said.code else SERVED_MS))


# The mirror (KB-M4)
# ------------------

BEHIND: Final = "offsets-not-mirrored"


class NodeOffsetMirror:
    """`start` and `stop`; `report_conditions` every now and then."""

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

    def report_conditions(self, conditions: Conditions) -> None:
        set_condition(conditions, BEHIND, self._why)

    def _troubled(self, sentence: str) -> None:
        self._why = sentence

    async def _positions(self, group: str) -> Mapping[TopicPartition, UpstreamOffset]:
        event = events.OffsetFetch(self._driver.next_id(), group, None)
        try:
            reply = await self._driver.ask_shard(partition_for(group, self._shards), event, effects.OffsetFetchReply)
        except (Overloaded, NodeShuttingDown) as error:
            raise GroupAway(str(error)) from error
        if reply.code:
            raise GroupAway(reply.message)
        return {
            place: UpstreamOffset(each.offset, each.leader_epoch, each.metadata)
            for place, each in reply.offsets.items()
            if each is not None
        }
