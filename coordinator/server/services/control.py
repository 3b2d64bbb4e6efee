"""GroupControl: each method asks the shard that holds the group, by way of the driver. No transport here."""

from collections.abc import Awaitable, Callable

from muster.coordinator.core.model import effects
from muster.coordinator.core.model.replies import CanaryReply
from muster.coordinator.core.model.values import MeasuredRates
from muster.coordinator.rpc.v1 import control_service_pb2 as pb
from muster.coordinator.runtime.router import partition_for
from muster.coordinator.server.driver.drive import EngineDriver
from muster.coordinator.server.rpc_dispatch import RpcCall
from muster.coordinator.server.services import messages_control, trial

MOVING = frozenset({"drain", "pin"})
"""Verbs that move partitions from one living member to another."""


async def no_loads_known(group_id: str) -> MeasuredRates | None:
    """Of a node that does not look at its groups."""
    return None


class GroupControl:
    """What operators do with a group while it works: hold something of it, resume, try an assignor, look."""

    def __init__(
        self,
        driver: EngineDriver,
        shards: int,
        lag_of: Callable[[str], tuple[float, int]] = lambda group_id: (0.0, 0),
        seen: Callable[[str], Awaitable[MeasuredRates | None]] = no_loads_known,
    ) -> None:
        """`lag_of` gives the mean of a group's total lag in the last hour, and for how many ms it is known; `seen` what
        its partitions carry now."""
        self._driver = driver
        self._shards = shards
        self._lag_of = lag_of
        self._seen = seen

    async def hold_group(self, request: pb.HoldGroupRequest, call: RpcCall) -> pb.HoldGroupResponse:
        seen = await self._seen(request.group_id) if request.WhichOneof("verb") in MOVING else None
        event = messages_control.parse_hold_group(
            request, self._driver.next_id(), client_host=call.peer_host, seen=seen
        )
        return messages_control.build_hold_response(
            await self._driver.ask(self._shard_of(event.group_id), event, effects.HoldsReply)
        )

    async def resume_group(self, request: pb.ResumeGroupRequest, call: RpcCall) -> pb.ResumeGroupResponse:
        event = messages_control.parse_resume_group(request, self._driver.next_id(), client_host=call.peer_host)
        return messages_control.build_resume_response(
            await self._driver.ask(self._shard_of(event.group_id), event, effects.HoldsReply)
        )

    async def describe_holds(self, request: pb.DescribeHoldsRequest, call: RpcCall) -> pb.DescribeHoldsResponse:
        event = messages_control.parse_describe_holds(request, self._driver.next_id())
        return messages_control.build_describe_holds_response(
            await self._driver.ask(self._shard_of(event.group_id), event, effects.HoldsReply)
        )

    async def start_canary(self, request: pb.StartCanaryRequest, call: RpcCall) -> pb.StartCanaryResponse:
        lag = self._lag_of(request.group_id)
        event = trial.parse_start_canary(request, self._driver.next_id(), lag, client_host=call.peer_host)
        return trial.build_start_canary_response(
            await self._driver.ask(self._shard_of(event.group_id), event, CanaryReply)
        )

    async def end_canary(self, request: pb.EndCanaryRequest, call: RpcCall) -> pb.EndCanaryResponse:
        event = trial.parse_end_canary(request, self._driver.next_id(), client_host=call.peer_host)
        return trial.build_end_canary_response(
            await self._driver.ask(self._shard_of(event.group_id), event, CanaryReply)
        )

    async def describe_canary(self, request: pb.DescribeCanaryRequest, call: RpcCall) -> pb.DescribeCanaryResponse:
        event = trial.parse_describe_canary(request, self._driver.next_id())
        return trial.build_describe_canary_response(
            await self._driver.ask(self._shard_of(event.group_id), event, CanaryReply)
        )

    def _shard_of(self, group_id: str) -> int:
        return partition_for(group_id, self._shards)
