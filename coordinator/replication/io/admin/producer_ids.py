"""Producer ids that no other node issues (CL-A4): from blocks of ZooKeeper's, the next of which is fetched in
advance.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from muster.coordinator.edge.background_tasks import BackgroundTask, log_undone
from muster.coordinator.zookeeper.cluster.cluster_layout import ProducerIdBlock
from muster.coordinator.zookeeper.cluster.cluster_watches import ProducerIdsExhausted, take_producer_ids
from muster.coordinator.zookeeper.errors import ZooKeeperError
from muster.coordinator.zookeeper.session import ZooKeeperSession
from muster.storage.errors import StorageError
from muster.storage.logs.producer_state import FENCES_FROM, MAX_EPOCH

RETRY_S: Final = 0.1

log = structlog.get_logger("muster.replication")


class NoProducerIdsYet(StorageError):
    """ZooKeeper has not answered for as long as a block and a half lasts. Producers ask again."""

    code = 14
    name = "COORDINATOR_LOAD_IN_PROGRESS"


class ProducerIdBlocks:
    """`fetch_first_block` fetches the first block; from then on each is given without a wait, as long as ZooKeeper
    answers now and then. take: the next block, for this node alone."""

    def __init__(
        self, take: Callable[[], Awaitable[ProducerIdBlock]], connected: Callable[[], Awaitable[None]]
    ) -> None:
        self._take = take
        self._connected = connected
        self._next, self._end = 0, 0
        self._ahead: ProducerIdBlock | None = None
        self._fetching = BackgroundTask(self._fetch_failed)
        self._failure: BaseException | None = None
        """What the last fetch ended with; None: with a block."""
        self._why = ""

    @classmethod
    def of(cls, session: ZooKeeperSession, node_id: int) -> "ProducerIdBlocks":
        return cls(lambda: take_producer_ids(session, node_id), session.connected)

    async def fetch_first_block(self) -> None:
        """Have a block, and the next one. Raises ZooKeeper's weather, MalformedZnode, ProducerIdsExhausted."""
        block = await self._take()
        self._next, self._end = block.first, block.last + 1
        self._fetch()

    async def close(self) -> None:
        """What is left of the blocks is used by nobody."""
        await self._fetching.stop()

    async def next(self) -> int:
        """An id that was never given before, once there is one. Raises ProducerIdsExhausted."""
        while True:
            try:
                return self.fresh()
            except NoProducerIdsYet:
                self._fetch()
                await self._fetching.ended()
                if self._failure is not None:
                    raise self._failure from None

    def new_ids(self, known: int, epoch: int) -> tuple[int, int]:
        """As `Broker.next_producer_id`: the next epoch of the id that a producer has, or a fresh one. Raises
        NoProducerIdsYet."""
        if known >= 0 and 0 <= epoch < MAX_EPOCH - 1:
            return known, epoch + 1
        return self.fresh(), 0

    def new_fence(self) -> int:
        """As `Broker.next_fence_id`. Raises NoProducerIdsYet."""
        return FENCES_FROM + self.fresh()

    def fresh(self) -> int:
        """An id that was never given before. Raises NoProducerIdsYet."""
        if self._next == self._end and self._ahead is not None:
            self._next, self._end, self._ahead = self._ahead.first, self._ahead.last + 1, None
        if self._ahead is None:
            self._fetch()
        if self._next == self._end:
            raise NoProducerIdsYet(f"This node has no producer ids left, and waits for more{self._why}. Ask again.")
        self._next += 1
        return self._next - 1

    def _fetch(self) -> None:
        if self._ahead is None and not self._fetching.busy:
            self._failure = None
            self._fetching.start(self._persist(), "producer ids")

    def _fetch_failed(self, error: BaseException) -> None:
        """It is tried again when somebody asks."""
        self._failure, self._why = error, f": {error!r}"
        log_undone(error)

    async def _persist(self) -> None:
        while self._ahead is None:
            await self._connected()
            try:
                self._ahead, self._why = await self._take(), ""
            except ProducerIdsExhausted as error:
                self._failure, self._why = error, f": {error}"
                return
            except ZooKeeperError as error:
                self._why = f": {error}"
                log.debug("no producer ids for now", why=str(error))
                await asyncio.sleep(RETRY_S)
