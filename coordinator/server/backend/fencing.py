"""Fencing: a partition's owner becomes the only one that logs take records from on its behalf."""

from collections.abc import Sequence
from typing import Protocol

from muster.coordinator.core.model import effects
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.rpc.v1 import fence_service_pb2 as pb
from muster.coordinator.runtime.router import partition_for
from muster.coordinator.server.backend import claims
from muster.coordinator.server.driver.drive import EngineDriver
from muster.coordinator.server.rpc_dispatch import RpcCall


class LogFences(Protocol):
    """The node's logs. All of it raises CoordinatorError."""

    def check(self, places: Sequence[tuple[str, int]]) -> None:
        """These logs are there, and clients may write to them."""

    def fresh_id(self) -> int:
        """A producer id that no fence has had."""

    async def put_up(self, granted: effects.ClaimFenceReply, places: Sequence[tuple[str, int]]) -> None:
        """Make the ownership known to these logs, and to all that owners before it have claimed for."""


class FencingService:
    """The handler. The group's shard decides; then the logs are told, and only then the owner."""

    def __init__(self, driver: EngineDriver, fences: LogFences, *, shards: int) -> None:
        self._driver = driver
        self._fences = fences
        self._shards = shards

    async def claim_fence(self, request: pb.ClaimFenceRequest, call: RpcCall) -> pb.ClaimFenceResponse:
        places = claims.parse_fenced_logs(request)
        try:
            self._fences.check(places)
            claim = claims.parse_fence_claim(request, self._driver.next_id(), self._fences.fresh_id())
            shard = partition_for(claim.group_id, self._shards)
            granted = await self._driver.ask(shard, claim, effects.ClaimFenceReply)
            if granted.code is not ErrorCode.NONE:
                raise CoordinatorError(granted.code, granted.message)
            await self._fences.put_up(granted, places)
        except CoordinatorError as refusal:
            return claims.build_fence_refusal(refusal)
        return pb.ClaimFenceResponse(producer_id=granted.producer_id, producer_epoch=granted.epoch)
