"""A node's fences: how they come into its logs, and which of them its logs may forget."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from muster.coordinator.core.model.effects import ClaimFenceReply
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.slot import ShardStatus
from muster.coordinator.server.backend.fencing import FencingService
from muster.coordinator.server.backend.services import FENCE_SERVICE
from muster.coordinator.server.driver.drive import EngineDriver
from muster.coordinator.server.rpc_dispatch import ServiceMethod, methods_of
from muster.storage.broker.broker import Broker
from muster.storage.broker.fences import FenceOwnership, Fences
from muster.storage.broker.requests import LogRequests, wall_clock_ms
from muster.storage.errors import (
    InvalidProducerEpoch,
    InvalidTopicName,
    StorageError,
    UnknownTopicOrPartition,
)

CODES = {
    UnknownTopicOrPartition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    InvalidTopicName: ErrorCode.INVALID_REQUEST,
    InvalidProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
}
"""What else a log says no to is the disk's trouble, which may be mended."""


def make_fencing_service(
    driver: EngineDriver, engine: Engine, broker: Broker, requests: LogRequests
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

    def __init__(self, broker: Broker, fences: Fences) -> None:
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
