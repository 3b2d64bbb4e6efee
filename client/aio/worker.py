"""The worker for asyncio."""

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from muster.client.aio.working import WorkerCore
from muster.client.callbacks import OnPartition
from muster.client.config import WorkerConfig, load
from muster.client.membership.listener import RebalanceListener
from muster.client.membership.seam import Callback
from muster.client.types import FencingToken, GroupMetadata, TopicPartition


class AsyncWorker:
    """As `muster.client.Worker`; callbacks may be coroutines."""

    def __init__(self, config: Mapping[str, Any] | None = None, **properties: Any) -> None:
        self._core = WorkerCore(load(WorkerConfig, config, properties))
        self._listener = RebalanceListener()

    async def join(
        self,
        topics: Iterable[str] = (),
        resources: Iterable[str] = (),
        on_gain: OnPartition["AsyncWorker"] | None = None,
        on_lose: OnPartition["AsyncWorker"] | None = None,
        on_prepare: OnPartition["AsyncWorker"] | None = None,
    ) -> None:
        """Take part. Joining again changes the names. `on_prepare` as in `Consumer.subscribe`, for each partition."""
        self._listener = RebalanceListener(on_gain, on_lose, on_prepare=on_prepare)
        await self._core.join(tuple(topics), tuple(resources))

    async def poll(self, timeout: float | None = None) -> bool:
        """Run the callbacks of one change; False when there was none within `timeout` seconds."""
        callback = await self._core.next_callback(timeout)
        if callback is not None:
            await self._tell(callback)
        return callback is not None

    async def run(self) -> None:
        """Run callbacks until the worker is closed, from a callback or another thread, or Ctrl-C."""
        while not self._core.closed:
            await self.poll()

    def owned(self) -> set[TopicPartition]:
        """What is owned now. Inside `on_lose` it is still in it."""
        return set(self._core.owned)

    def fencing_token(self, partition: tuple[str, int]) -> FencingToken:
        """Proof of ownership; IllegalState when the partition is not owned."""
        return self._core.fencing_token(TopicPartition(*partition))

    def group_metadata(self) -> GroupMetadata:
        """Who this worker is to its group right now."""
        return self._core.identity()

    async def close(self, leave: bool | str = True) -> None:
        """Run `on_lose` for all that is owned, then leave. `leave` as in `Consumer.close`."""
        if self._core.closed:
            return
        try:
            await self._core.begin_close(leave)
            while (callback := await self._core.closing_callback()) is not None:
                await self._tell(callback)
        finally:
            await self._core.finish_close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _tell(self, callback: Callback) -> None:
        errors: list[Exception] = []
        for tp in callback.partitions:
            try:
                waiting = self._listener.call_for(self, tp, callback)
                if waiting is not None:
                    await waiting
            except Exception as error:
                errors.append(error)
        self._core.done(callback)
        if errors:
            raise errors[0]
