"""GroupControl: each method asks the shard that holds the group, by way of the driver. No transport here."""

from muster.coordinator.core import effects
from muster.coordinator.rpc.v1 import control_service_pb2 as pb
from muster.coordinator.runtime.router import partition_for
from muster.coordinator.server.dispatch import Call
from muster.coordinator.server.driver.drive import Driver
from muster.coordinator.server.messages import control


class GroupControl:
    """What operators do with a group while it works: hold something of it, resume, look."""

    def __init__(self, driver: Driver, shards: int) -> None:
        self._driver = driver
        self._shards = shards

    async def hold_group(self, request: pb.HoldGroupRequest, call: Call) -> pb.HoldGroupResponse:
        event = control.hold_group(request, self._driver.next_id(), client_host=call.peer_host)
        return control.held(await self._driver.ask(self._shard_of(event.group_id), event, effects.HoldsReply))

    async def resume_group(self, request: pb.ResumeGroupRequest, call: Call) -> pb.ResumeGroupResponse:
        event = control.resume_group(request, self._driver.next_id(), client_host=call.peer_host)
        return control.resumed(await self._driver.ask(self._shard_of(event.group_id), event, effects.HoldsReply))

    async def describe_holds(self, request: pb.DescribeHoldsRequest, call: Call) -> pb.DescribeHoldsResponse:
        event = control.describe_holds(request, self._driver.next_id())
        return control.described(await self._driver.ask(self._shard_of(event.group_id), event, effects.HoldsReply))

    def _shard_of(self, group_id: str) -> int:
        return partition_for(group_id, self._shards)
