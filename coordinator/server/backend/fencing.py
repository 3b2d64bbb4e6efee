"""The Fencing service: a partition's owner becomes the only one that logs take records from on its behalf.

The group's shard decides; then the logs are told, and only then the owner. The node's logs keep a fence for as long
as its group has it on record, and a shard that cannot be asked may have it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from muster.coordinator.core.model import effects
from muster.coordinator.core.model.effects import ClaimFenceReply
from muster.coordinator.core.model.events import NO_PRODUCER, ClaimFence
from muster.coordinator.core.model.types import RequestId
from muster.coordinator.core.shard import Shard
from muster.coordinator.edge import request_limits
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.rpc.v1 import fence_service_pb2 as pb
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.shards import ShardStatus, partition_for
from muster.coordinator.server.backend.node_services import FENCE_SERVICE
from muster.coordinator.server.driver.driver import EngineDriver
from muster.coordinator.server.rpc_dispatch import RpcCall, ServiceMethod, methods_of
from muster.coordinator.server.services import group_responses
from muster.storage.broker.fences import FenceOwnership, Fences
from muster.storage.broker.record_log import AppendableLog
from muster.storage.broker.requests import LogRequests, wall_clock_ms
from muster.storage.errors import InvalidProducerEpoch, InvalidTopicName, StorageError, UnknownTopicOrPartition

# Claims
# ------


def parse_fence_claim(request: pb.ClaimFenceRequest, request_id: RequestId, fresh_id: int) -> ClaimFence:
    return ClaimFence(
        request_id,
        request_limits.check_name("group_id", request.group_id),
        request_limits.check_name("member_id", request.member_id),
        request_limits.check_name("topic", request.topic),
        request.partition,
        request.generation_id,
        request.producer_id if request.HasField("producer_id") else NO_PRODUCER,
        request.producer_epoch if request.HasField("producer_epoch") else NO_PRODUCER,
        fresh_id,
    )


def parse_fenced_logs(request: pb.ClaimFenceRequest) -> list[tuple[str, int]]:
    """Raises MalformedRequest for too many of them, and for one that is named twice."""
    request_limits.check_at_most("logs", len(request.logs), request_limits.MAX_PARTITIONS)
    places = [(request_limits.check_name("topic", each.topic), each.partition) for each in request.logs]
    request_limits.check_distinct("logs", places)
    return places


def build_fence_refusal(refusal: CoordinatorError) -> pb.ClaimFenceResponse:
    return pb.ClaimFenceResponse(
        error_code=group_responses.to_error_code(refusal.code),
        error_message=refusal.message,
        producer_id=-1,
        producer_epoch=-1,
    )


# The service
# -----------


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
        places = parse_fenced_logs(request)
        try:
            self._fences.check(places)
            claim = parse_fence_claim(request, self._driver.next_id(), self._fences.fresh_id())
            shard = partition_for(claim.group_id, self._shards)
            granted = await self._driver.ask_shard(shard, claim, effects.ClaimFenceReply)
            if granted.code is not ErrorCode.NONE:
                raise CoordinatorError(granted.code, granted.message)
            await self._fences.put_up(granted, places)
        except CoordinatorError as refusal:
            return build_fence_refusal(refusal)
        return pb.ClaimFenceResponse(producer_id=granted.producer_id, producer_epoch=granted.epoch)


# Fences in the node's logs
# -------------------------

CODES = {
    UnknownTopicOrPartition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    InvalidTopicName: ErrorCode.INVALID_REQUEST,
    InvalidProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
}
"""What else a log says no to is the disk's trouble, which may be mended."""


def make_fencing_service(
    driver: EngineDriver, engine: Engine, broker: AppendableLog, requests: LogRequests
) -> dict[str, ServiceMethod]:
    """The rows of its service; from here on the logs keep fences for as long as their groups."""
    broker.keep_fences(lambda producer_id: is_fence_on_record(producer_id, engine))
    fences = NodeFences(broker, Fences(broker, requests.commit, wall_clock_ms))
    return methods_of(FENCE_SERVICE, FencingService(driver, fences, shards=engine.shards))


def is_fence_on_record(producer_id: int, engine: Engine) -> bool:
    """Whether a group has this fence. One whose shard is not there to be asked may have it. From any thread."""
    for shard in range(engine.shards):
        core = engine.core(shard)
        if engine.status(shard) is not ShardStatus.ACTIVE or not isinstance(core, Shard):
            return True
        if producer_id in core.state.fence_ids:
            return True
    return False


class NodeFences:
    """The logs of this node, in the words of groups."""

    def __init__(self, broker: AppendableLog, fences: Fences) -> None:
        self._broker = broker
        self._fences = fences

    def check(self, places: Sequence[tuple[str, int]]) -> None:
        with translate_storage_errors():
            self._fences.check(places)

    def fresh_id(self) -> int:
        with translate_storage_errors():
            return self._broker.next_fence_id()

    async def put_up(self, granted: ClaimFenceReply, places: Sequence[tuple[str, int]]) -> None:
        with translate_storage_errors():
            await self._fences.put_up(FenceOwnership(granted.producer_id, granted.epoch, granted.former), places)


@contextmanager
def translate_storage_errors() -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        raise CoordinatorError(CODES.get(type(error), ErrorCode.COORDINATOR_NOT_AVAILABLE), str(error)) from error
