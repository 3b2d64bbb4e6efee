"""Who looks at the node's groups as time goes by, and for whom: the sampler, and KEDA's scaler beside it.

The room `scaler` is imported with `scaler.enable` and not before.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Protocol

from muster.coordinator.config import Settings
from muster.coordinator.core.model.effects import GroupChanged
from muster.coordinator.core.model.trial_events import LagMeasured
from muster.coordinator.observability.history.group_changes import GroupChanges
from muster.coordinator.observability.history.history import GroupHistory, Place
from muster.coordinator.server.monitoring.looking import AwaitEnds, ObservedShards, PositionReader
from muster.coordinator.server.monitoring.sampling import GroupSampler
from muster.coordinator.server.rpc_dispatch import ServiceMethod, methods_of

if TYPE_CHECKING:
    from muster.coordinator.edge.cluster import ClusterView
    from muster.coordinator.observability.scaler.scaler_service import ExternalScaler

AT_REST = ("Stable", "Empty", "Dead")
"""States in which a group stays until something happens."""

SCALER = "externalscaler.ExternalScaler"


class LogEnds(Protocol):
    """What is asked of the node's logs."""

    def ends(self, places: Sequence[Place], /) -> list[int]: ...

    @property
    def ahead(self) -> AwaitEnds | None: ...


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
        logs: LogEnds,
        topic_ids: Callable[[], Mapping[str, bytes]],
        partitions: Callable[[], Mapping[str, int]],
        span: Callable[[str, int], tuple[int, int]],
        tell: Callable[[int, LagMeasured], None],
        cluster: "ClusterView | None" = None,
    ) -> dict[str, ServiceMethod]:
        """Sample from now on, and the scaler's methods, if it is on. `tell` gives a shard what its canaries ask for;
        `cluster` knows the other nodes where this one is one of many."""
        if self.history is None:
            return {}
        looking = PositionReader(engine, logs.ends, logs.ahead)
        on_look = partial(self._looked, looking, self.history, tell)
        self._sampling = GroupSampler(self.history, looking, self._clock_ms, topic_ids, self.changes.note, on_look)
        self._sampling.start()
        if not self.services:
            return {}
        from muster.coordinator.observability.scaler.scaler_service import ExternalScaler
        from muster.coordinator.rpc.v1 import externalscaler_service_pb2 as pb
        from muster.coordinator.server.monitoring.scaled import ScaledGroups

        groups = ScaledGroups(looking, self.history, self._clock_ms, partitions, span)
        self._scaler = ExternalScaler(groups, self._clock_ms)
        if cluster is not None:
            from muster.coordinator.server.monitoring.scaler import ClusterScaler

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
