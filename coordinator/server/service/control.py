"""GroupControl: each method asks the shard that holds the group, by way of the driver. No transport here."""

from collections.abc import Awaitable, Callable

from muster.coordinator.core import effects
from muster.coordinator.core.control.holds.values import Seen
from muster.coordinator.core.control.trial.replies import CanaryReply
from muster.coordinator.rpc.v1 import control_service_pb2 as pb
from muster.coordinator.runtime.router import partition_for
from muster.coordinator.server.dispatch import Call
from muster.coordinator.server.driver.drive import Driver
from muster.coordinator.server.messages import control, trial

MOVING = frozenset({"drain", "pin"})
"""Verbs that move partitions from one living member to another."""


async def nothing_seen(group_id: str) -> Seen | None:
    """Of a node that does not look at its groups."""
    return None


class GroupControl:
    """What operators do with a group while it works: hold something of it, resume, try an assignor, look."""

    def __init__(
        self,
        driver: Driver,
        shards: int,
        lag_of: Callable[[str], tuple[float, int]] = lambda group_id: (0.0, 0),
        seen: Callable[[str], Awaitable[Seen | None]] = nothing_seen,
    ) -> None:
        """`lag_of` gives the mean of a group's total lag in the last hour, and for how many ms it is known; `seen` what
        its partitions carry now."""
        self._driver = driver
        self._shards = shards
        self._lag_of = lag_of
        self._seen = seen

    async def hold_group(self, request: pb.HoldGroupRequest, call: Call) -> pb.HoldGroupResponse:
        seen = await self._seen(request.group_id) if request.WhichOneof("verb") in MOVING else None
        event = control.hold_group(request, self._driver.next_id(), client_host=call.peer_host, seen=seen)
        return control.held(await self._driver.ask(self._shard_of(event.group_id), event, effects.HoldsReply))

    async def resume_group(self, request: pb.ResumeGroupRequest, call: Call) -> pb.ResumeGroupResponse:
        event = control.resume_group(request, self._driver.next_id(), client_host=call.peer_host)
        return control.resumed(await self._driver.ask(self._shard_of(event.group_id), event, effects.HoldsReply))

    async def describe_holds(self, request: pb.DescribeHoldsRequest, call: Call) -> pb.DescribeHoldsResponse:
        event = control.describe_holds(request, self._driver.next_id())
        return control.described(await self._driver.ask(self._shard_of(event.group_id), event, effects.HoldsReply))

    async def start_canary(self, request: pb.StartCanaryRequest, call: Call) -> pb.StartCanaryResponse:
        lag = self._lag_of(request.group_id)
        event = trial.start_canary(request, self._driver.next_id(), lag, client_host=call.peer_host)
        return trial.started(await self._driver.ask(self._shard_of(event.group_id), event, CanaryReply))

    async def end_canary(self, request: pb.EndCanaryRequest, call: Call) -> pb.EndCanaryResponse:
        event = trial.end_canary(request, self._driver.next_id(), client_host=call.peer_host)
        return trial.ended(await self._driver.ask(self._shard_of(event.group_id), event, CanaryReply))

    async def describe_canary(self, request: pb.DescribeCanaryRequest, call: Call) -> pb.DescribeCanaryResponse:
        event = trial.describe_canary(request, self._driver.next_id())
        return trial.described(await self._driver.ask(self._shard_of(event.group_id), event, CanaryReply))

    def _shard_of(self, group_id: str) -> int:
        return partition_for(group_id, self._shards)
