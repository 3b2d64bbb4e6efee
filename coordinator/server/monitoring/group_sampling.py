"""Samples a node's groups over time into a history, for rates, trends and health, and for KEDA's scaler.

`GroupSampler` looks every `observe.sample.ms`, a slice per turn of the event loop. A lag is of one moment, and never
below none. Spacing is by the node's monotonic clock: a clock that is set back changes nothing, and a stall makes one
interval longer, as it was. Samples that were missed are not made up for. A shard that failed is loaded again soon,
and its groups keep their history meanwhile; the history goes with a shard that is unloaded.

`GroupObservation` runs what a setting asks for; the package `scaler` is imported with `scaler.enable` and not before.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, NamedTuple, Self

import structlog

from muster.coordinator.config import Settings
from muster.coordinator.core.model.effects import GroupChanged
from muster.coordinator.core.model.events import LagMeasured
from muster.coordinator.edge.background_tasks import RestartedTask
from muster.coordinator.observability.history.group_changes import GroupChanges
from muster.coordinator.observability.history.group_history import GroupHistory, Sample, admit_groups
from muster.coordinator.runtime.shards import ShardStatus
from muster.coordinator.server.monitoring.load_meter import LogExtents, ObservedShards, PositionReader
from muster.coordinator.server.rpc_dispatch import ServiceMethod, methods_of
from muster.long_work import LoopSlice, make_aside

if TYPE_CHECKING:
    from muster.coordinator.edge.cluster_view import ClusterView
    from muster.coordinator.observability.scaler.scaler_service import ExternalScaler


# The sampler
# -----------

log = structlog.get_logger("muster.node")


class GroupSampler:
    """`topic_ids` gives the topics there are."""

    def __init__(
        self,
        history: GroupHistory,
        looking: PositionReader,
        clock_ms: Callable[[], int],
        topic_ids: Callable[[], Mapping[str, bytes]],
        on_lag: Callable[[str], None] = lambda group_id: None,
        on_look: Callable[[str], None] = lambda group_id: None,
    ) -> None:
        """`on_lag` gets each group whose lag is not what it was at the sample before, `on_look` each that was seen."""
        self.history = history
        self._looking = looking
        self._clock_ms = clock_ms
        self._topic_ids = topic_ids
        self._on_lag = on_lag
        self._on_look = on_look
        self._notice = ""
        self._sampling = RestartedTask("samples of groups", self._run)

    def start(self) -> None:
        """Sample on the running loop from now on, until `stop`."""
        self._sampling.start()

    def stop(self) -> None:
        self._sampling.cancel()

    async def _run(self) -> None:
        period_ms = self.history.sample_ms
        due_ms = self._clock_ms()
        while True:
            await self.sample()
            missed = (self._clock_ms() - due_ms) // period_ms
            due_ms += (missed + 1) * period_ms
            await asyncio.sleep((due_ms - self._clock_ms()) / 1000)

    async def sample(self) -> None:
        """Look at every group once."""
        breath = LoopSlice()
        self.history.topics(self._topic_ids())
        sizes: dict[str, int] = {}
        for number in range(self._looking.shards):
            if (shard := self._looking.active(number)) is not None:
                sizes.update((group_id, len(stored)) for group_id, stored in shard.state.offsets.items() if stored)
            await breath.yield_if_used()
        room = await make_aside(lambda: GroupsWithRoom.of(sizes, self.history.groups), len(sizes))
        self._report_refused(*room.refused)
        self.history.forget([*room.crowded_out, *filter(self._gone, room.not_there)])
        for group_id in room.kept:
            await self._look_at(group_id, breath)

    def _gone(self, group_id: str) -> bool:
        """Whether a group without positions has none for good: its shard is not about to be loaded."""
        return self._looking.status(group_id) in (ShardStatus.ACTIVE, ShardStatus.UNLOADED)

    async def _look_at(self, group_id: str, breath: LoopSlice) -> None:
        before = self.history.lag(group_id)
        if stored := self._looking.stored(group_id):
            self.history.expect(group_id, len(stored))
        async for piece in self._looking.pieces(group_id, breath):
            found = [each for each in piece.stored if each is not None]
            offsets, times = [each.offset for each in found], [each.commit_timestamp_ms for each in found]
            seen = Sample(piece.places, piece.ends, offsets, times, piece.positions)
            self.history.record_sample(group_id, seen, self._clock_ms())
        if self._looking.stored(group_id):
            self.history.note_commits(group_id, self._looking.commits(group_id), self._clock_ms())
            self.history.settle(group_id, self._clock_ms(), has_members=self._looking.has_members(group_id))
            if self.history.lag(group_id) != before:
                self._on_lag(group_id)
            self._on_look(group_id)

    def _report_refused(self, groups: int, partitions: int) -> None:
        self.history.refused(groups, partitions)
        if self.history.notice != self._notice:
            self._notice = self.history.notice
            log.warning("history of groups", notice=self._notice or "there is room for all groups again")


class GroupsWithRoom(NamedTuple):
    """Of which groups the history is kept, and what becomes of those that it has."""

    kept: list[str]
    refused: tuple[int, int]
    """Groups without room, and their positions."""
    crowded_out: list[str]
    not_there: list[str]
    """They have no positions any more, or are not loaded."""

    @classmethod
    def of(cls, sizes: Mapping[str, int], known: Sequence[str]) -> Self:
        """sizes: each group's positions. In any thread."""
        room = admit_groups(list(sizes.values()))
        kept = {group_id: sizes[group_id] for group_id, has in zip(sizes, room, strict=True) if has}
        refused = len(sizes) - len(kept), sum(sizes.values()) - sum(kept.values())
        crowded_out = [group_id for group_id in known if group_id in sizes and group_id not in kept]
        return cls(list(kept), refused, crowded_out, [group_id for group_id in known if group_id not in sizes])


# What a setting asks for
# -----------------------

AT_REST = ("Stable", "Empty", "Dead")
"""States in which a group stays until something happens."""

SCALER = "externalscaler.ExternalScaler"


class GroupObservation:
    """Made with the node. Nothing is kept, imported or run where no setting asks for it."""

    def __init__(self, settings: Settings, clock_ms: Callable[[], int], on_look: Callable[[str], None]) -> None:
        """`on_look` gets each group that was sampled."""
        self.history = GroupHistory(settings.observe_sample_ms) if settings.observes else None
        self.changes = GroupChanges(token_hex(8))
        """Which groups are not as they were: noted by the node, and by the sampler where a lag is another one."""
        self.services: tuple[str, ...] = ()
        """The services that are served beside the node's own."""
        self.malformed: tuple[type[Exception], ...] = ()
        """By what these say that a request has no shape."""
        self._clock_ms = clock_ms
        self._on_look = on_look
        self._sampling: GroupSampler | None = None
        self._scaler: ExternalScaler | None = None
        if settings.scaler_enable:
            from muster.coordinator.observability.scaler.trigger_metadata import BadMetadata

            self.services, self.malformed = (SCALER,), (BadMetadata,)

    def start(
        self,
        engine: ObservedShards,
        logs: LogExtents,
        topic_ids: Callable[[], Mapping[str, bytes]],
        partitions: Callable[[], Mapping[str, int]],
        tell: Callable[[int, LagMeasured], None],
        cluster: "ClusterView | None" = None,
    ) -> dict[str, ServiceMethod]:
        """Sample from now on, and the scaler's methods, if it is on. `tell` gives a shard what its canaries ask for;
        `cluster` knows the other nodes where this one is one of many."""
        if self.history is None:
            return {}
        looking = PositionReader(engine, logs)
        on_look = partial(self._looked, looking, self.history, tell)
        self._sampling = GroupSampler(self.history, looking, self._clock_ms, topic_ids, self.changes.note, on_look)
        self._sampling.start()
        if not self.services:
            return {}
        from muster.coordinator.observability.scaler.scaler_service import ExternalScaler
        from muster.coordinator.rpc.v1 import externalscaler_service_pb2 as pb
        from muster.coordinator.server.monitoring.scaled_groups import ScaledGroups

        groups = ScaledGroups(looking, self.history, self._clock_ms, partitions)
        self._scaler = ExternalScaler(groups, self._clock_ms)
        if cluster is not None:
            from muster.coordinator.server.monitoring.scaled_groups import ClusterScaler

            self._scaler = ClusterScaler(cluster, engine.shards, groups, self._clock_ms)
        return methods_of(pb.DESCRIPTOR.services_by_name["ExternalScaler"], self._scaler)

    def _looked(
        self, looking: PositionReader, history: GroupHistory, tell: Callable[[int, LagMeasured], None], group_id: str
    ) -> None:
        """A group was sampled: a canary of it is held against its lag."""
        self._on_look(group_id)
        shard, lag = looking.of_group(group_id), history.lag(group_id)
        canary = shard.state.canaries.get(group_id) if shard is not None else None
        if shard is not None and canary is not None and canary.runs and lag is not None:
            tell(shard.index, LagMeasured(group_id, lag))

    def noticed(self, notice: GroupChanged) -> None:
        """A group has another state, generation or plan; until it is at rest, who it waits for changes untold."""
        self.changes.note(notice.group_id, restless=notice.state not in AT_REST)

    def drain(self) -> None:
        """End the streams that are open."""
        if self._scaler is not None:
            self._scaler.close()

    def stop(self) -> None:
        if self._sampling is not None:
            self._sampling.stop()
