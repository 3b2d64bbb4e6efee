"""KEDA's ExternalScaler: its handlers, without a transport.

Each handler reads the metadata (BadMetadata: INVALID_ARGUMENT), looks at the group (SubjectNotFound: NOT_FOUND,
TemporarilyUnknown: UNAVAILABLE) and answers by `replica_rules`. An error leaves the decision to KEDA's own fallback;
nothing here answers 0 because something is unknown.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from math import ceil
from time import perf_counter
from typing import Protocol, TypeAlias

from muster.coordinator.edge.request_limits import MAX_NAME_CHARS
from muster.coordinator.errors import NodeShuttingDown, Overloaded
from muster.coordinator.observability.scaler.replica_rules import GroupSample, ScalerMemory, decide_replicas, is_active
from muster.coordinator.observability.scaler.trigger_metadata import BadMetadata, ScalerTrigger, parse_metadata
from muster.coordinator.rpc.v1 import externalscaler_service_pb2 as pb

MAX_OBJECTS = 1_000
"""ScaledObjects whose last figures are remembered; beyond that who was not heard of for longest begins anew."""
MAX_STREAMS = 1_000
LOOK_EVERY_S = 1.0
"""How often an open StreamIsActive looks at its group; less often where a look is dear."""
LOOK_SHARE = 100
"""A look is followed by a pause of so many times its duration: a stream takes at most 1 % of a core."""

Key: TypeAlias = tuple[str, str, frozenset[tuple[str, str]]]


class GroupSource(Protocol):
    """How a group is looked at."""

    async def plan_owners(self, trigger: ScalerTrigger) -> GroupSample:
        """Raises SubjectNotFound for a group or topic that is not there, TemporarilyUnknown for one that cannot be told
        of yet."""


class ExternalScaler:
    """The handlers. `clock_ms` is monotonic."""

    def __init__(self, groups: GroupSource, clock_ms: Callable[[], int]) -> None:
        self._groups = groups
        self._clock_ms = clock_ms
        self._memories: OrderedDict[Key, ScalerMemory] = OrderedDict()
        self._streams = 0
        self._closed = asyncio.Event()

    def close(self) -> None:
        """End every stream."""
        self._closed.set()

    async def is_active(self, request: pb.ScaledObjectRef, call: object) -> pb.IsActiveResponse:
        trigger, memory = self._known(request)
        return pb.IsActiveResponse(result=await self._active(trigger, memory))

    async def stream_is_active(self, request: pb.ScaledObjectRef, call: object) -> AsyncIterator[pb.IsActiveResponse]:
        """Now, and whenever it changes, until the group cannot be told of any more."""
        self._known(request)
        if self._streams >= MAX_STREAMS:
            raise Overloaded(f"{MAX_STREAMS} StreamIsActive are open, as many as this node keeps; close some first")
        self._streams += 1
        try:
            told: bool | None = None
            while True:
                began_s = perf_counter()
                active = (await self.is_active(request, call)).result
                if active is not told:
                    told = active
                    yield pb.IsActiveResponse(result=active)
                await self._pause(max(LOOK_EVERY_S, LOOK_SHARE * (perf_counter() - began_s)))
        finally:
            self._streams -= 1

    async def get_metric_spec(self, request: pb.ScaledObjectRef, call: object) -> pb.GetMetricSpecResponse:
        """Of the metadata alone: it is answered while the group is away, too."""
        trigger = parse_metadata(_metadata(request))
        target = trigger.lag_threshold
        spec = pb.MetricSpec(metricName=trigger.metric_name, targetSize=target, targetSizeFloat=target)
        return pb.GetMetricSpecResponse(metricSpecs=[spec])

    async def get_metrics(self, request: pb.GetMetricsRequest, call: object) -> pb.GetMetricsResponse:
        trigger, memory = self._known(request.scaledObjectRef)
        if request.metricName not in ("", trigger.metric_name):
            raise BadMetadata("metricName", request.metricName, f"{trigger.metric_name}, as GetMetricSpec named it")
        seen = await self._groups.plan_owners(trigger)
        figure = decide_replicas(trigger, seen, memory, self._clock_ms())
        value = pb.MetricValue(
            metricName=trigger.metric_name, metricValue=ceil(figure.value), metricValueFloat=figure.value
        )
        return pb.GetMetricsResponse(metricValues=[value])

    async def _active(self, trigger: ScalerTrigger, memory: ScalerMemory) -> bool:
        return is_active(trigger, await self._groups.plan_owners(trigger), memory, self._clock_ms())

    async def _pause(self, seconds: float) -> None:
        """Raises NodeShuttingDown when the node stops meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                await self._closed.wait()
        except TimeoutError:
            return
        raise NodeShuttingDown

    def _known(self, ref: pb.ScaledObjectRef) -> tuple[ScalerTrigger, ScalerMemory]:
        """The trigger, and what was decided for it before."""
        metadata = _metadata(ref)
        trigger = parse_metadata(metadata)
        key = (ref.namespace, ref.name, frozenset(metadata.items()))
        memory = self._memories.setdefault(key, ScalerMemory())
        self._memories.move_to_end(key)
        if len(self._memories) > MAX_OBJECTS:
            self._memories.popitem(last=False)
        return trigger, memory


def _metadata(ref: pb.ScaledObjectRef) -> dict[str, str]:
    for field, value in (("name", ref.name), ("namespace", ref.namespace)):
        if len(value) > MAX_NAME_CHARS:
            raise BadMetadata(field, value, f"at most {MAX_NAME_CHARS} characters; it has {len(value)}")
    return dict(ref.scalerMetadata)
